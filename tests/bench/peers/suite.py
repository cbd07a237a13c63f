"""Runs a suite of cases: tunes each by rooftuned, checks and times all providers, writes rows (README.md)."""

import argparse
import datetime
import gc
import gzip
import json
import os
import pathlib
import re
import sys
import time
import traceback

ROOT = pathlib.Path(os.environ.get("ROOFTUNE_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[3]))
sys.path[:0] = [str(ROOT / "tools"), str(pathlib.Path(__file__).resolve().parent)]
import peer_rows  # noqa: E402  (after the path is set)
from daemon import DaemonError, Rooftune, choose  # noqa: E402
from provider import Failed, Provider, is_lost, is_right  # noqa: E402

# Of the launched record, what says where its binary comes from.
RECORD_KEYS = ("name", "template_id", "template_revision", "config", "artifact_digest", "environment", "verification")


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


class Writer:
    """JSON lines; every line is on disk when the next shape begins."""

    def __init__(self, path: pathlib.Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = (
            gzip.open(path, "wt", encoding="utf-8") if path.suffix == ".gz" else open(path, "w", encoding="utf-8")
        )

    def put(self, kind, value):
        self._file.write(json.dumps({kind: value}, ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self):
        self._file.close()


class Budget:
    """Seconds for the whole run; a shape begins only if one as long as the longest of the last three would still fit.
    The first shape pays for what is loaded once."""

    def __init__(self, seconds, clock=time.monotonic):
        self._clock, self._start, self._seconds, self._last = clock, clock(), seconds, []

    def left(self) -> float:
        return float("inf") if self._seconds is None else self._seconds - (self._clock() - self._start)

    def spent(self, seconds):
        self._last = [*self._last[-2:], seconds]

    def allows(self) -> bool:
        return self.left() > 0 and self.left() >= max(self._last, default=0.0)


def parse(description, arguments):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="file of rows to write (.ndjson or .ndjson.gz)")
    parser.add_argument(
        "--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin", help="folder of rooftuned"
    )
    parser.add_argument("--data-dir", type=pathlib.Path, help="store to go on with; what it holds is not tuned again")
    parser.add_argument("--only", default="", metavar="REGEX", help="only cases whose label or operator matches")
    parser.add_argument("--peers", default="", metavar="REGEX", help="only providers whose name matches (ours always)")
    parser.add_argument("--max-trials", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--budget-seconds", type=float, help="begin no shape that may not be done in time")
    parser.add_argument("--retune", action="store_true", help="tune also what the store holds")
    parser.add_argument("--no-calibrate", action="store_true", help="take the bounds from the profile")
    parser.add_argument("--export", type=pathlib.Path, metavar="FILE", help="write all sweeps with their trials as evidence")
    parser.add_argument("--list", action="store_true", help="only print the labels")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.max_trials < 1:
        parser.error("--rounds and --max-trials take positive numbers")
    return options


def select(cases, pattern):
    return [c for c in cases if re.search(pattern, c.label) or re.search(pattern, c.op)]


def problem(role, status, message, **more):
    return {"role": role, "status": status, "message": " ".join(str(message).split())[:500], **more}


def ours(context, rooftune, options, loader) -> tuple:
    """(provider or None, its entry, bounds): tunes and loads the best template of the case."""
    case, start = context.case, time.monotonic()
    records, tune_s = rooftune.tune(
        case.op, options.max_trials, options.seed, options.retune, max(30.0, min(600.0, options.budget.left()))
    )
    served, best = choose(records)
    if served is None:
        return None, problem("ours", "unavailable", "no measured record"), {}
    facts = {"served": served.get("provider", ""), "tune_s": peer_rows.rounded(tune_s)}
    bounds = served.get("bounds", {})
    if best is None:
        return None, problem("ours", "unavailable", "no template's record; the library is served", **facts), bounds
    record, binary = rooftune.fetch(best)
    provider = loader(context, record, binary)
    facts.update(
        record={k: record[k] for k in RECORD_KEYS if k in record},
        daemon_us=peer_rows.rounded(record.get("measurement", {}).get("median_us", 0)),
        trials=options.max_trials,
    )
    provider.prepare_s = time.monotonic() - start
    return provider, facts, bounds


def load_ours(driver_module):
    """A loader for ours(): launches from the recipe on torch's current stream."""
    import torch
    from recipe import Recipe

    def allocate(size):
        tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
        return tensor, tensor.data_ptr()

    def loader(context, record, binary):
        recipe = Recipe(driver_module, driver_module.Driver.get(0), record, binary, allocate)
        bound = []
        for inputs, outputs in zip(context.inputs, context.outs):
            addresses = {name: tensor.data_ptr() for name, tensor in {**inputs, **outputs}.items()}
            bound.append(recipe.bind(addresses, context.case.scalars))

        def call(run):
            run(torch.cuda.current_stream().cuda_stream)

        config = ",".join(f"{k}={v}" for k, v in sorted(record.get("config", {}).items()))
        return Provider(
            "rooftune", "ours", [lambda r=run: call(r) for run in bound], config, scratch_bytes=recipe.workspace_bytes
        )

    return loader


def examine(context, provider) -> tuple:
    """(Captured or None, entry): captures the graph, and checks what it computes. A provider that is wrong is not
    timed."""
    harness = context.harness
    entry = {
        "role": provider.role,
        "status": "ok",
        "output": "preallocated",
        "prepare_s": peer_rows.rounded(provider.prepare_s),
    }
    entry.update({k: v for k, v in (("config", provider.config), ("note", provider.note)) if v})
    provider.calls[0]()
    scratch = provider.scratch_bytes
    if scratch is None:
        scratch = harness.scratch_of(provider.calls[0], context.output_bytes)
    captured = harness.capture(provider.calls, context.case.bytes, context.rotates)
    outputs, preallocated = harness.outputs_after_replay(captured, context.outs[0].values())
    if provider.check:
        result = {"error": 0.0 if provider.check() else float("inf"), "worst": 0.0}
    else:
        result = context.check(outputs)
    if not is_right(result, provider.tolerance * context.case.tolerance):
        text = f"error {result['error']:.2e}, worst element {result['worst']:.3g} of its bound"
        kept = {k: entry[k] for k in ("config", "note") if k in entry}
        return None, problem(provider.role, "wrong", text, **kept)
    entry.update(
        error=peer_rows.rounded(result["error"], 3),
        worst=peer_rows.rounded(result["worst"], 3),
        output="preallocated" if preallocated else "allocated",
        launches=captured.launches,
        scratch_bytes=int(scratch),
    )
    return captured, entry


def build_and_examine(context, build, role="peer"):
    """(Captured or None, entry); what fails is an entry, but a lost context ends the run."""
    try:
        return examine(context, build(context))
    except (Failed, DaemonError) as error:
        return None, problem(role, "failed", error)
    except Exception as error:  # noqa: BLE001 -- compilers and drivers raise what they like
        if is_lost(error):
            raise RuntimeError(f"{context.case.label}: the GPU's context is lost") from error
        return None, problem(role, "failed", f"{type(error).__name__}: {error}")


class Phases:
    """Where a case's wall time goes."""

    def __init__(self):
        self.seconds, self._last = {}, time.monotonic()

    def done(self, name):
        now_s = time.monotonic()
        self.seconds[name], self._last = peer_rows.rounded(now_s - self._last, 3), now_s


def run_case(case, harness, pool, rooftune, options, loader) -> dict:
    import torch
    from case import Context
    from harness import buffer_sets

    start, phases = time.monotonic(), Phases()
    sets, rotates = buffer_sets(case.bytes, harness.l2_bytes)
    context = Context(case, harness, pool, sets, rotates, options.seed)
    phases.done("inputs")
    try:
        provider, facts, bounds = ours(context, rooftune, options, loader)
    except (DaemonError, NotImplementedError, TypeError) as error:
        provider, facts, bounds = None, problem("ours", "unavailable", error), {}
    phases.done("rooftune")
    entries, captured = {}, {}
    if provider is None:
        entries["rooftune"] = facts
    else:
        captured["rooftune"], entry = build_and_examine(context, lambda _: provider, "ours")
        entries["rooftune"] = {**facts, **entry}
    for name, build in case.builders.items():
        if re.search(options.peers, name):
            captured[name], entries[name] = build_and_examine(context, build, "copy" if name == "copy" else "peer")
            phases.done(name)
    captured = {name: graph for name, graph in captured.items() if graph is not None}
    if harness.telemetry:
        harness.telemetry.take()
    for name, samples in harness.race(captured, rotates).items():
        entries[name].update(peer_rows.summary_of(samples))
    phases.done("race")
    clocks = harness.telemetry.take() if harness.telemetry else {}
    captured.clear()
    context = provider = None
    gc.collect()
    torch.cuda.empty_cache()
    return {
        "op": case.op,
        "label": case.label,
        "shape": case.shape,
        "dtype": case.dtype,
        "bytes": case.bytes,
        "flops": case.flops,
        "sets": sets,
        "l2": "cold, rotated" if rotates else "cold, flushed",
        "clock": "cool",
        "reference": "double precision on the GPU",
        "providers": entries,
        "bounds": bounds,
        "clocks": clocks,
        "phases_s": phases.seconds,
        "time": now(),
        "wall_s": peer_rows.rounded(time.monotonic() - start, 4),
    }


def line_of(row) -> str:
    times = peer_rows.timed(row)
    mine = times.get("rooftune")
    cells = [f"{name} {us:.4g}" for name, us in times.items()]
    cells += [
        f"{name} {p['status'].upper()}: {p['message'][:90]}"
        for name, p in row["providers"].items()
        if p["status"] != "ok"
    ]
    peers = peer_rows.timed(row, ("peer",))
    ratio = f" | {min(peers.values()) / mine:.3f}x of the best peer" if mine and peers else ""
    spent = " ".join(f"{name} {seconds}" for name, seconds in row["phases_s"].items())
    return f"{row['label']}: {', '.join(cells)}{ratio} ({row['wall_s']} s: {spent})"


def header(suite, harness, telemetry, versions, options) -> dict:
    device, card, driver = telemetry.device()
    return {
        "schema": peer_rows.SCHEMA,
        "suite": suite,
        "time": now(),
        "device": device,
        "card": card,
        "driver": driver,
        "versions": versions,
        "method": {**harness.method(), "seed": options.seed, "max_trials": options.max_trials},
    }


def run_cases(cases, measure, budget, writer) -> tuple:
    """(reason to stop, labels that were not measured); every row is written as soon as it is there."""
    left = [c.label for c in cases]
    for case in cases:
        if not budget.allows():
            return "budget", left
        try:
            row = measure(case)
        except Exception:  # noqa: BLE001 -- what was measured is on disk; say what happened
            traceback.print_exc()
            return "error", left
        budget.spent(row["wall_s"])
        bad = peer_rows.row_problems(row)
        if bad:  # such a row would spoil the file
            print("no row: " + "; ".join(bad), file=sys.stderr)
            continue
        left.remove(case.label)
        writer.put("row", row)
        print(line_of(row), flush=True)
    return "done", left


def measure_all(suite, cases, more_versions, options, rooftune, pool) -> int:
    import torch
    import triton
    from harness import Harness, Telemetry
    from recipe import load_driver

    # A graph that is collected while another one is captured breaks the capture; run_case() collects between cases.
    gc.disable()
    telemetry = Telemetry()
    harness = Harness(options.rounds, telemetry=telemetry)
    versions = {"torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda}
    versions.update(rooftune=rooftune.version().split()[-1], **more_versions())
    loader = load_ours(load_driver(ROOT))
    writer = Writer(options.out)
    try:
        writer.put("run", header(suite, harness, telemetry, versions, options))
        reason, left = run_cases(
            cases, lambda case: run_case(case, harness, pool, rooftune, options, loader), options.budget, writer
        )
        writer.put("end", {"reason": reason, "left": left})
    finally:
        writer.close()
    print(f"{reason}, {len(left)} left{': ' + ', '.join(left) if left else ''}")
    return 1 if reason == "error" else 0


def main(suite, description, make_cases, more_versions, arguments) -> int:
    options = parse(description, arguments)
    cases = select(make_cases(), options.only)
    if options.list:
        print("\n".join(c.label for c in cases))
        return 0
    suites = {peer_rows.evidence_suite(suite, c.dtype) for c in cases}
    if options.export and len(suites) != 1:
        print(f"--export takes cases of one suite, not of {', '.join(sorted(suites)) or 'none'}: choose by --only", file=sys.stderr)
        return 2
    from precompile import Pool

    options.budget = Budget(options.budget_seconds)
    pool, rooftune, phases = Pool(), None, Phases()
    try:
        rooftune = Rooftune(options.bin, options.data_dir)
        phases.done("daemon")
        if not options.no_calibrate and not rooftune.reused:
            rooftune.calibrate()
            phases.done("calibration")
        print(f"started ({' '.join(f'{name} {seconds} s' for name, seconds in phases.seconds.items())})", flush=True)
        code = measure_all(suite, cases, more_versions, options, rooftune, pool)
        if options.export:
            options.export.parent.mkdir(parents=True, exist_ok=True)
            rooftune.run("export", "--suite", " ".join(suites), "-o", str(options.export))
        return code
    except DaemonError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if rooftune:
            rooftune.close()
        pool.close()
