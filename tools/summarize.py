#!/usr/bin/env python3
"""Makes docs/evidence/summary.json, and the tables in Markdown files, from evidence files (docs/storage.md).

  summarize.py                       write the summary
  summarize.py --check               fail if a row is incomplete, or the summary is not what the evidence gives
  summarize.py --table FILE…         write the tables between the markers of these files
  summarize.py --check-tables FILE…  fail if a table is not what the evidence gives

A row is the record of one sweep that is served, with the baselines of the same race; where that is a call of a vendor's
library, the best template of the same race has a row of its own. Or it is of a comparison in
`DEVICE/peers/` (tests/bench/peers) the best template's time beside its peers, and where the daemon serves the vendor's
library one more for that. A table stands between `<!-- evidence:SUITE -->` and `<!-- /evidence -->`; comparisons are not in
it (docs/performance.md has them), and of an operator that was measured again only the newest row is.
"""
import argparse
import gzip
import json
import pathlib
import re
import sys

import peer_rows
import tables

NUMBER = (int, float)
# Every key of a row with its type; a row has exactly these.
KEYS = {
    "device": str, "driver": str, "nvrtc": str, "suite": str, "op": str, "shape": dict, "dtype": str, "provider": str,
    "template": str, "config": dict, "candidate_impl": str, "time_us": NUMBER, "ci_us": list, "floor_us": NUMBER,
    "attainable_us": NUMBER, "bound": str, "clock": str, "l2": str, "warmup": int, "iterations": int,
    "reference": str, "tolerance": str, "max_error": NUMBER, "workspace_bytes": int, "peak_bytes": int,
    "evidence_level": str, "baselines": dict, "baseline_versions": dict, "date": str, "source": str,
}
# Keys whose value must say something: an empty text or a zero there means that it was not recorded. (The floor of what fits
# into the L2 is 0.)
MAY_BE_EMPTY = {"config", "floor_us", "max_error", "workspace_bytes", "warmup", "baselines", "baseline_versions", "template"}
ALLOWED = {
    "provider": {"TEMPLATE", "CUBLASLT", "EXTERNAL"},
    "bound": {"MEMORY", "COMPUTE", "LAUNCH", "LATENCY", "SFU"},
    "clock": {"cool", "sustained"}, "l2": {"cold", "warm"},
    "evidence_level": {"MEASURED", "PROFILED", "END_TO_END"},
}


class EvidenceError(Exception):
    """An evidence file that can't be used, or a summary that is not what it should be."""


def operator_dims(root: pathlib.Path) -> dict:
    """Dims of every operator kind that the repository declares: {kind: {dim: default or None}}."""
    kinds = {}
    for folder in ("costmodel", "kernels", "examples", "tests"):
        for file in sorted((root / folder).rglob("*op.txtpb")):
            text = re.sub(r"(?m)^\s*#.*$", "", file.read_text(encoding="utf-8"))
            kind = re.search(r'(?m)^kind:\s*"([^"]+)"', text)
            dims = {}
            for body in re.findall(r"(?m)^dim\s*\{([^}]*)\}", text):
                name = re.search(r'\bname:\s*"([^"]+)"', body)
                default = re.search(r"\bdefault_value:\s*(\d+)", body)
                if name:
                    dims[name.group(1)] = int(default.group(1)) if default else None
            if kind and dims:
                kinds.setdefault(kind.group(1), dims)
    return kinds


def parse_op(text: str, kinds: dict):
    """(shape, dtype) of an operator's text; of an undeclared kind, every whole number is taken for a dim."""
    kind, *words = text.split()
    values = dict(word.split("=", 1) for word in words if "=" in word)
    dims = kinds.get(kind)
    if dims is None:
        return {k: int(v) for k, v in values.items() if v.isdigit()}, values.get("dtype", "")
    shape = {name: int(values[name]) if name in values else default for name, default in dims.items()}
    return {name: value for name, value in shape.items() if value is not None}, values.get("dtype", "")


def read_lines(path: pathlib.Path):
    """(number, line) of every line; JSON as written by `rooftune export`."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                yield number, json.loads(text)
    except (OSError, EOFError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise EvidenceError(f"{path}: {error}") from error


def rounded(value, digits=6):
    """A time without the noise of binary fractions: six significant digits."""
    return float(f"{float(value):.{digits}g}")


def baselines_of(record: dict, lines: list):
    """Times and versions of the baselines that were measured beside the record, by name."""
    times, versions = {}, {}
    for baseline in lines + record.get("baseline", []):  # those of the record's own race come last and win
        median = baseline.get("measurement", {}).get("median_us", 0)
        if baseline.get("outcome", "OK") == "OK" and median:
            times[baseline["name"]] = rounded(median)
            versions[baseline["name"]] = baseline.get("version", "")
    return dict(sorted(times.items())), dict(sorted(versions.items()))


def op_name(text: str, shape: dict) -> str:
    """The kind with the attributes that neither `shape` nor `dtype` holds: "gemm", "rmsnorm residual=1"."""
    kind, *words = text.split()
    return " ".join([kind] + [w for w in words if w.split("=", 1)[0] not in shape and not w.startswith("dtype=")])


def put(row: dict, key: str, value):
    """Leaves out what was not recorded, so that the check names it."""
    if value or (key in MAY_BE_EMPTY and value is not None):
        row[key] = value


def make_row(run: dict, record: dict, baselines: list, kinds: dict, source: str) -> dict:
    measurement = record["measurement"]
    verification = record.get("verification", {})
    bounds = record.get("bounds", {})
    environment = record.get("environment", {})
    shape, dtype = parse_op(record["op"], kinds)
    times, versions = baselines_of(record, baselines)
    samples = len(measurement.get("sample_us", []))
    device = run.get("device", {}).get("name", "") if run.get("device_key") == record["device_key"] else ""
    row = {}
    for key, value in (
            ("device", device or record["device_key"]), ("driver", environment.get("driver")),
            ("nvrtc", environment.get("nvrtc")), ("suite", run.get("suite")), ("op", op_name(record["op"], shape)), ("shape", shape),
            ("dtype", dtype), ("provider", record.get("provider")), ("template", record.get("template_id", "")),
            ("config", {k: int(v) for k, v in sorted(record.get("config", {}).items())}),
            ("candidate_impl", "@".join(filter(None, (record.get("template_id") or record.get("provider"),
                                                      record.get("template_revision", "")[:16])))),
            ("time_us", rounded(measurement.get("median_us", 0))),
            ("ci_us", [rounded(measurement.get(k, 0)) for k in ("ci_low_us", "ci_high_us")]),
            ("floor_us", rounded(bounds.get("floor_us", 0))),
            ("attainable_us", rounded(bounds.get("attainable_us", 0))), ("bound", bounds.get("bound")),
            ("clock", measurement.get("clock", "").lower()), ("l2", measurement.get("l2", "").lower()),
            ("warmup", measurement.get("warmup_launches", 0)),
            ("iterations", samples * max(1, measurement.get("launches_per_sample", 0))),
            ("reference", verification.get("reference")), ("tolerance", verification.get("tolerance")),
            ("max_error", rounded(verification.get("max_error_ratio", 0)) if verification.get("passed") else None),
            ("workspace_bytes", int(record.get("plan", {}).get("workspace_bytes", {}).get("value", 0))),
            ("peak_bytes", int(record.get("peak_bytes", 0))), ("evidence_level", record.get("evidence")),
            ("baselines", times), ("baseline_versions", versions),
            ("date", (record.get("create_time") or run.get("time") or "")[:10]), ("source", source)):
        put(row, key, value)
    return row


def rows_of_file(path: pathlib.Path, root: pathlib.Path, kinds: dict) -> list:
    run, best, baselines, runs = None, {}, {}, {}
    for number, line in read_lines(path):
        if "run" in line:
            run = line["run"]
            if run.get("schema", 0) > 1:
                raise EvidenceError(f"{path}:{number}: schema {run['schema']} is newer than this tool")
        elif run is None:
            raise EvidenceError(f"{path}:{number}: the run must come first")
        elif "sweep" in line:
            baselines.setdefault(line["sweep"]["name"], []).extend(line["sweep"].get("baseline", []))
        elif "baseline" in line:
            baselines.setdefault(line["baseline"]["sweep"], []).append(line["baseline"]["baseline"])
        elif "record" in line:
            record = line["record"]
            sweep = record.get("sweep", record["name"])
            measured = record.get("evidence") in ALLOWED["evidence_level"] and "measurement" in record
            if not measured:
                continue
            runs[sweep] = run
            # What is served, and the best template: one row if that is the same.
            for who in ("served", "template"):
                if who == "template" and record.get("provider", "TEMPLATE") != "TEMPLATE":
                    continue
                known = best.get((sweep, who))
                if known is None or record.get("rank", 0) < known.get("rank", 0):
                    best[sweep, who] = record
    source = path.relative_to(root).as_posix()
    return [make_row(runs[sweep], record, baselines.get(sweep, []), kinds, source)
            for (sweep, who), record in best.items() if who == "served" or record is not best[sweep, "served"]]


def peer_row(row: dict, name: str, facts: dict, kinds: dict, source: str) -> dict:
    """Of provider `name` of a comparison; `facts`: what depends on who made the kernel."""
    entry, run, bounds = row["providers"][name], row["run"], row["bounds"]
    record = row["providers"]["rooftune"].get("record", {})
    environment = record.get("environment", {})
    shape, dtype = parse_op(row["op"], kinds)
    others = {n: us for n, us in peer_rows.timed(row, ("peer", "copy")).items() if n != name}
    made = {}
    for key, value in (
            ("device", run["device"]), ("driver", run["driver"]), ("nvrtc", environment.get("nvrtc")),
            ("suite", peer_rows.evidence_suite(row["run"]["suite"], row["dtype"])), ("op", op_name(row["op"], shape)), ("shape", shape), ("dtype", dtype),
            *facts.items(), ("time_us", rounded(entry["median_us"])), ("ci_us", [rounded(v) for v in entry["ci_us"]]),
            ("floor_us", rounded(bounds.get("floor_us", 0))), ("attainable_us", rounded(bounds.get("attainable_us", 0))),
            ("bound", bounds.get("bound")), ("clock", row["clock"]), ("l2", row["l2"].split(",")[0]), ("warmup", 1),
            ("iterations", len(entry["samples_us"]) * entry["launches"]), ("reference", row["reference"]),
            ("tolerance", "norm 5e-3; element 2^-7·(|ref| + rms of its row)"), ("max_error", rounded(entry["worst"])),
            ("workspace_bytes", entry["scratch_bytes"]), ("peak_bytes", row["bytes"] * row["sets"] + entry["scratch_bytes"]),
            ("evidence_level", "MEASURED"), ("baselines", {n: rounded(us) for n, us in sorted(others.items())}),
            ("baseline_versions", {k: v for k, v in run["versions"].items() if k != "rooftune"}),
            ("date", row["time"][:10]), ("source", source)):
        put(made, key, value)
    return made


def rows_of_peers(evidence: pathlib.Path, root: pathlib.Path, kinds: dict) -> list:
    """What the comparisons say of us: one row for the best template, one more where the library is served."""
    rows = []
    try:
        compared = peer_rows.read_all(peer_rows.files_of(evidence))
    except peer_rows.RowError as error:
        raise EvidenceError(str(error)) from error
    for row in compared:
        source, ours = row["file"].relative_to(root).as_posix(), row["providers"].get("rooftune", {})
        record = ours.get("record", {})
        if ours.get("status") == "ok" and record:
            facts = {"provider": "TEMPLATE", "template": record.get("template_id", ""),
                     "config": {k: int(v) for k, v in sorted(record.get("config", {}).items())},
                     "candidate_impl": f"{record.get('template_id')}@{record.get('template_revision', '')[:16]}"}
            rows.append(peer_row(row, "rooftune", facts, kinds, source))
        if ours.get("served") == "CUBLASLT" and record and "cublaslt_best" in peer_rows.timed(row):
            facts = {"provider": "CUBLASLT", "template": "", "config": {},
                     "candidate_impl": f"CUBLASLT@{row['run']['versions'].get('cublaslt', '')}"}
            rows.append(peer_row(row, "cublaslt_best", facts, kinds, source))
    return rows


def summarize(root: pathlib.Path, evidence: pathlib.Path) -> list:
    kinds = operator_dims(root)
    rows = rows_of_peers(evidence, root, kinds)
    for path in sorted([*evidence.rglob("*.jsonl.gz"), *evidence.rglob("*.jsonl")]):
        rows += rows_of_file(path, root, kinds)
    return sorted(rows, key=lambda r: (r.get("suite", ""), r.get("device", ""), r.get("op", "").split()[:1],
                                       list(r.get("shape", {}).values()), r.get("op", ""), r.get("date", ""),
                                       r.get("source", ""), r.get("time_us", 0)))


def problems(row) -> list:
    """What is wrong with a row, in words."""
    if not isinstance(row, dict):
        return ["is not an object"]
    found = [f"lacks '{key}'" for key in KEYS if key not in row]
    found += [f"has an unknown key '{key}'" for key in row if key not in KEYS]
    for key, kind in KEYS.items():
        value = row.get(key)
        if key not in row:
            continue
        if not isinstance(value, kind) or isinstance(value, bool):
            found.append(f"'{key}' has the wrong type: {value!r}")
        elif not value and key not in MAY_BE_EMPTY:
            found.append(f"'{key}' is empty")
        elif key in ALLOWED and value not in ALLOWED[key]:
            found.append(f"'{key}' is {value!r}, not one of {', '.join(sorted(ALLOWED[key]))}")
    for key, kind in (("shape", int), ("config", int), ("baselines", NUMBER), ("baseline_versions", str)):
        values = row.get(key) if isinstance(row.get(key), dict) else {}
        found += [f"'{key}.{k}' has the wrong type: {v!r}" for k, v in values.items() if not isinstance(v, kind)]
    interval = row.get("ci_us")
    if isinstance(interval, list) and not (len(interval) == 2 and all(isinstance(v, NUMBER) for v in interval)):
        found.append(f"'ci_us' is not [low, high]: {interval!r}")
    return found


def check(rows: list, where: str):
    bad = [f"{where}: row {i} ({row.get('op', '?') if isinstance(row, dict) else row!r}) {what}"
           for i, row in enumerate(rows) for what in problems(row)]
    if bad:
        raise EvidenceError("\n".join(bad))


def to_json(rows: list) -> str:
    """One key a line, values in one piece: readable, and a diff shows what changed."""
    def row_text(row):
        keys = [k for k in KEYS if k in row] + [k for k in row if k not in KEYS]
        return "  {\n" + ",\n".join(f"    {json.dumps(k)}: {json.dumps(row[k], ensure_ascii=False)}" for k in keys) + "\n  }"
    return "[\n" + ",\n".join(row_text(row) for row in rows) + "\n]\n" if rows else "[]\n"


def load(text: str, path: pathlib.Path) -> list:
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        raise EvidenceError(f"{path}: {error}") from error
    if not isinstance(rows, list):
        raise EvidenceError(f"{path}: not a list of rows")
    return rows


def us(value) -> str:
    return f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def newest(rows: list) -> list:
    """Of an operator that was measured several times on one device, the rows of the newest file."""
    def key(row):
        return row["device"], row["op"], row["dtype"], *row["shape"].values()
    def age(row):
        return row["date"], pathlib.PurePosixPath(row["source"]).name.split(".")[0]
    latest = {}
    for row in rows:
        latest[key(row)] = max(latest.get(key(row), ("",)), age(row))
    return [row for row in rows if age(row) == latest[key(row)]]


def table(rows: list, suite: str) -> str:
    rows = newest([row for row in rows if row["suite"] == suite and "/peers/" not in row["source"]])
    if not rows:
        raise EvidenceError(f"no evidence of suite '{suite}'")
    names = sorted({name for row in rows for name in row["baselines"]})
    head = ["operator", "shape", "kernel", "µs", "95 % interval", "floor µs", "attainable µs", "of attainable", "bound",
            *(f"{name} µs" for name in names), "evidence"]
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join("---" if h in ("operator", "shape", "kernel", "bound", "evidence")
                                                           else "---:" for h in head) + "|"]
    for row in rows:
        dims = [(k, v) for k, v in row["shape"].items() if not (k == "batch" and v == 1)]
        while len(dims) > 1 and re.fullmatch(r"d[1-9]", dims[-1][0]) and dims[-1][1] == 1:  # axes that are not there
            dims.pop()
        shape = " × ".join(str(v) for _, v in dims)
        cells = [f"`{row['op']}`", f"{shape} {row['dtype']}", row["template"] or row["provider"], us(row["time_us"]),
                 f"{us(row['ci_us'][0])}–{us(row['ci_us'][1])}", us(row["floor_us"]), us(row["attainable_us"]),
                 f"{100 * row['attainable_us'] / row['time_us']:.0f} %", row["bound"],
                 *(us(row["baselines"][n]) if n in row["baselines"] else "–" for n in names), row["evidence_level"]]
        lines.append("| " + " | ".join(cells) + " |")
    facts = sorted({f"{r['device']}, driver {r['driver']}, NVRTC {r['nvrtc']}, {r['clock']} clock, {r['l2']} L2, "
                    f"{r['date']}" for r in rows})
    versions = sorted({f"{n}: {v}" for r in rows for n, v in r["baseline_versions"].items() if v})
    sources = sorted({r["source"] for r in rows})
    note = "; ".join(facts) + ". " + (f"Baselines: {', '.join(versions)}. " if versions else "")
    return "\n".join(lines) + f"\n\n{note}Source: {', '.join(f'`{s}`' for s in sources)}."


def main(arguments) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--evidence", type=pathlib.Path, help="folder of the evidence (ROOT/docs/evidence)")
    parser.add_argument("--check", action="store_true")
    tables.add_options(parser)
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    evidence = (options.evidence or root / "docs" / "evidence").resolve()
    summary = evidence / "summary.json"
    try:
        rows = summarize(root, evidence)
        check(rows, "evidence")
        if options.check:
            on_disk = summary.read_text(encoding="utf-8") if summary.exists() else to_json([])
            check(load(on_disk, summary), str(summary))
            if on_disk != to_json(rows):
                raise EvidenceError(f"{summary} is not what the evidence gives: run tools/summarize.py")
        tables.update(options, "evidence", lambda key: table(rows, key), "summarize.py")
        if not (options.check or options.table or options.check_tables):
            evidence.mkdir(parents=True, exist_ok=True)
            summary.write_text(to_json(rows), encoding="utf-8")
            print(f"{summary}: {len(rows)} rows")
    except (EvidenceError, tables.TableError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
