#!/usr/bin/env python3
"""Makes docs/evidence/measuring.json from what tests/gpu/winner_agreement.sh wrote, and the figures in Markdown files.

  measuring.py RAW                   compute from the folder RAW and write the figures
  measuring.py --mutants FILE --sanitizer REPORT…
                                     take over what `mutant_check --out FILE` and tests/gpu/sanitize.sh found, and which
                                     planted races show in machine code (tests/data/mutants/mutants.json)
  measuring.py --longer RAW          take over what tests/gpu/longer_search.sh wrote to the folder RAW
  measuring.py --check               fail if the file lacks a figure
  measuring.py --table FILE…         write the figures between the markers of these files
  measuring.py --check-tables FILE…  fail if the figures of a file are not those of measuring.json

Figures stand between `<!-- measuring:NAME -->` and `<!-- /measuring -->`; NAME is agreement, intervals, faults, shares,
races or budget. What RAW does not tell ("mutants", "races", "false_alarms", "sanitizer", "budget") is kept as it is.
"""
import argparse
import datetime
import json
import pathlib
import re
import statistics
import sys

import tables

# What every served time must meet (docs/measuring.md), and what counts as agreement.
RELATIVE, ABSOLUTE_US, AGREEMENT, NEAR_BEST = 0.01, 0.5, 0.01, 0.03
LANE = ("plan", "prepare", "verify", "measure", "confirm", "idle", "busy", "store")
# Of a sanitizer run that says nothing of its kernels.
UNFINISHED = {"not run", "timed out"}
KEPT = ("mutants", "races", "false_alarms", "sanitizer", "budget")
REQUIRED = ("device_key", "driver", "nvrtc", "date", "agreement", "agreement_share", "intervals", "smallest_kernel_us",
            "faults", "shares")


class MeasuringError(Exception):
    """Raw data or figures that can't be used."""


def read(path: pathlib.Path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise MeasuringError(f"{path}: {error}") from error


def seconds(timestamp: str) -> float:
    """Of a proto3 JSON timestamp, which may have nine digits behind the point."""
    text = re.sub(r"(\.\d{6})\d*", r"\1", timestamp.replace("Z", "+00:00"))
    return datetime.datetime.fromisoformat(text).timestamp()


def median_us(trial: dict) -> float:
    return float(trial.get("measurement", {}).get("median_us", 0)) if trial.get("outcome") == "OK" else 0.0


def key(entry: dict) -> str:
    config = ",".join(f"{k}={v}" for k, v in sorted(entry.get("config", {}).items()))
    return f"{entry.get('template_id', '')}:{config}"


def rounded(value, digits=4):
    return float(f"{float(value):.{digits}g}")


def agreement(op: str, sweeps: list, race: dict) -> dict:
    """Of the winners of several sweeps of one operator, by their times of one joint race."""
    winners = [key(min(s["records"], key=lambda r: r.get("rank", 0))) for s in sweeps]
    times = {key(t): median_us(t) for t in race["trial"]}
    missing = [w for w in set(winners) if not times.get(w)]
    if missing:
        raise MeasuringError(f"{op}: the joint race has no time of {missing[0]}")
    differences = [abs(times[a] - times[b]) / min(times[a], times[b])
                   for i, a in enumerate(winners) for b in winners[i + 1:]]
    distinct = sorted(set(winners))
    distinct_differences = [abs(times[a] - times[b]) / min(times[a], times[b])
                            for i, a in enumerate(distinct) for b in distinct[i + 1:]]
    counts = []
    for sweep in sweeps:
        valid = sorted(t for t in map(median_us, sweep["trials"]) if t)
        counts.append((len(valid), sum(t <= valid[0] * (1 + NEAR_BEST) for t in valid)))
    return {
        "op": op, "sweeps": len(sweeps), "distinct_winners": len(distinct),
        "valid_candidates": min(c[0] for c in counts), "within_3_percent": min(c[1] for c in counts),
        "pairs": len(differences), "pairs_agreeing": sum(d <= AGREEMENT for d in differences),
        "distinct_pairs": len(distinct_differences),
        "distinct_pairs_agreeing": sum(d <= AGREEMENT for d in distinct_differences),
        "worst_difference": rounded(max(differences, default=0)),
        "winner_us": rounded(min(times[w] for w in winners)),
    }


def intervals(sweeps: list) -> dict:
    served = [r["measurement"] for s in sweeps for r in s["records"]]
    widths = [(m["ci_high_us"] - m["ci_low_us"], (m["ci_high_us"] - m["ci_low_us"]) / m["median_us"]) for m in served]
    return {
        "served": len(widths), "within_target": sum(w <= ABSOLUTE_US or r <= RELATIVE for w, r in widths),
        "median_relative": rounded(statistics.median(r for _, r in widths)),
        "widest_relative": rounded(max(r for _, r in widths)), "widest_us": rounded(max(w for w, _ in widths)),
        "discarded_samples": sum(m.get("discarded_samples", 0) for m in served),
        "contended_samples": sum(m.get("contended_samples", 0) for m in served),
    }


def shares(op: str, sweeps: list) -> dict:
    """Where the wall time of a sweep goes: the lane's parts add up to most of it, compiling runs beside."""
    rows = []
    for sweep in sweeps:
        wall = seconds(sweep["sweep"]["end_time"]) - seconds(sweep["sweep"]["create_time"])
        spent = sweep["sweep"]["progress"].get("spent_s", {})
        compile_wall = spent.get("compile_wall", 0)
        rows.append({"wall_s": wall, "compile_cpu_s": spent.get("compile", 0), "compile_wall_s": compile_wall,
                     # Of the time in which anything was compiled: 1 = the GPU was never kept waiting by it.
                     "overlap": spent.get("overlap", 0) / compile_wall if compile_wall else 0,
                     **{part: spent.get(part, 0) / wall for part in LANE},
                     "other": max(0.0, 1 - sum(spent.get(part, 0) for part in LANE) / wall)})
    return {"op": op, **{name: rounded(statistics.median(r[name] for r in rows), 3) for name in rows[0]}}


def fault(name: str, trials: list, limit_ms: float) -> dict:
    """How long a bad kernel holds things up, and how much longer whatever comes next takes for the new worker."""
    ordered = sorted(trials, key=lambda t: seconds(t["create_time"]))
    bad = [t for t in ordered if int(t["config"]["fault"]) and t["outcome"] not in ("OK", "COMPILE_FAILED")]
    if not bad:
        raise MeasuringError(f"{name}: no kernel went wrong")
    times = {}  # by (is bad, comes after a bad one): the order is that in which compiles end
    for before, t in zip([None, *ordered], ordered):
        if t in bad or t["outcome"] == "OK":
            times.setdefault((t in bad, before in bad), []).append(t["run_ms"])
    # The first bad one comes after none.
    usual = {is_bad: statistics.median(ms) for (is_bad, after_bad), ms in times.items() if not after_bad}
    result = {"kind": name, "outcome": bad[0]["outcome"], "bad_ms": rounded(usual[True])}
    later = [ms - usual[is_bad] for is_bad in usual for ms in times.get((is_bad, True), [])]
    if later:
        result["next_ready_ms"] = rounded(max(0.0, statistics.median(later)))
    if limit_ms:
        result["limit_ms"], result["beyond_limit_ms"] = limit_ms, rounded(max(0.0, result["bad_ms"] - limit_ms))
    return result


def compute(raw: pathlib.Path) -> dict:
    meta = read(raw / "meta.json")
    rows, all_sweeps, share_rows = [], [], []
    for op in meta["op"]:
        folder = raw / op["name"]
        sweeps = [{"sweep": read(run / "sweep.json"), "trials": read(run / "trials.json")["trial"],
                   "records": read(run / "records.json")["record"]}
                  for run in sorted(folder.glob("run*")) if (run / "records.json").exists()]
        if not sweeps:
            raise MeasuringError(f"{folder}: no sweep ended")
        rows.append(agreement(op["op"], sweeps, read(folder / "race.json")))
        share_rows.append(shares(op["op"], sweeps))
        all_sweeps += sweeps
    environment = all_sweeps[0]["sweep"]["environment"]
    pairs = sum(r["pairs"] for r in rows)
    figures = {
        "device_key": all_sweeps[0]["sweep"]["device_key"], "driver": environment.get("driver", ""),
        "nvrtc": environment.get("nvrtc", ""), "date": all_sweeps[0]["sweep"]["create_time"][:10],
        "agreement": rows, "agreement_share": rounded(sum(r["pairs_agreeing"] for r in rows) / pairs) if pairs else 1.0,
        "intervals": intervals(all_sweeps),
        "smallest_kernel_us": rounded(median_us(read(raw / "smallest.json")["trial"][0])),
        "faults": [fault(f["kind"], read(raw / f"fault_{f['kind']}.json")["trial"], f.get("limit_ms", 0))
                   for f in meta["fault"]],
        "shares": share_rows,
    }
    calibration = raw / "calibration.json"
    if calibration.exists():
        figures["empty_kernel_graph_node_us"] = rounded(read(calibration).get("graph_node_us", 0))
    return figures


def sanitizer_runs(reports: list) -> dict:
    """Runs by tool and name, of reports each of which has a part of them; those that disagree are an error."""
    runs = {}
    for report in reports:
        for run in read(report)["rows"]:
            before = runs.get((run["tool"], run["name"]), run)
            if len({before["result"], run["result"]} - UNFINISHED) > 1:
                raise MeasuringError(f"{report}: {run['tool']} of {run['name']}: {run['result']}, before {before['result']}")
            runs[run["tool"], run["name"]] = run if before["result"] in UNFINISHED else before
    return runs


def mutant_totals(file: pathlib.Path, reports: list, suite: pathlib.Path) -> dict:
    """Planted faults caught of how many, each race by what, unchanged kernels refused of how many, sanitizer runs clean.

    `file` holds mutant_check's rows, the last one its totals; `reports` are those of sanitize.sh; `suite` is mutants.json,
    whose "async_order" says what mutants_compile_test finds in machine code.
    """
    try:
        *rows, totals = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError) as error:
        raise MeasuringError(f"{file}: {error}") from error
    if totals.get("id") != "totals":
        raise MeasuringError(f"{file}: the last row holds no totals: the run did not end")
    runs = sanitizer_runs(reports)
    in_machine_code = {entry["id"] for entry in read(suite)["mutant"] if entry.get("async_order")}
    races = []
    for row in rows:
        if not row.get("racecheck"):
            continue
        run = runs.get(("racecheck", f"race-{row['id']}"))
        if run is None:
            raise MeasuringError(f"racecheck was not run on the race {row['id']}")
        races.append({"id": row["id"], "verification": row["outcome"] if row["caught"] else "",
                      "racecheck": run["result"], "machine_code": row["id"] in in_machine_code})
    templates = [run for run in runs.values() if not run["planted"]]
    return {"mutants": {"planted": totals["mutants"], "caught": totals["caught"]}, "races": races,
            "false_alarms": {"unchanged": totals["unchanged"], "failed": totals["false_alarms"]},
            "sanitizer": {"version": read(reports[0])["version"], "runs": len(templates),
                          "clean": sum(run["result"] == "clean" for run in templates)}}


def not_caught(race: dict) -> bool:
    return not (race["verification"] or race["racecheck"] == "found" or race["machine_code"])


def budget(raw: pathlib.Path) -> dict:
    """What the default budget finds, beside a search over ten times as many candidates: both winners' times of one race."""
    rows, sweep = [], {}
    for folder in sorted(f.parent for f in raw.glob("*/meta.json")):
        meta = read(folder / "meta.json")
        times = {key(t): median_us(t) for t in read(folder / "race.json")["trial"]}
        row = {"op": meta["op"]}
        for name in ("default", "longer"):
            sweep = read(folder / f"{name}.json")
            if not times.get(meta[name]):
                raise MeasuringError(f"{folder}: the race has no time of {meta[name]}")
            row[name] = {"wall_s": rounded(seconds(sweep["end_time"]) - seconds(sweep["create_time"])),
                         "candidates": sweep["progress"]["finished"], "us": rounded(times[meta[name]])}
        rows.append({**row, "ratio": rounded(row["longer"]["us"] / row["default"]["us"])})
    if not rows:
        raise MeasuringError(f"{raw}: no search ended")
    return {"budget": {"device_key": sweep["device_key"], "driver": sweep["environment"].get("driver", ""),
                       "date": sweep["create_time"][:10], "searches": rows}}


def problems(figures: dict) -> list:
    found = [f"lacks '{name}'" for name in REQUIRED if not figures.get(name) and figures.get(name) != 0]
    found += [f"'{row['op']}' has fewer than three candidates within 3 % of the best"
              for row in figures.get("agreement", []) if row["within_3_percent"] < 3]
    found += [f"has the race {race['id']}, which nothing catches" for race in figures.get("races", []) if not_caught(race)]
    return found


def percent(value) -> str:
    return f"{100 * value:.3g} %"


def table(figures: dict, name: str) -> str:
    def lines(head, rows):
        return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head),
                          *("| " + " | ".join(map(str, row)) + " |" for row in rows)])
    if name == "budget":
        found = figures["budget"]
        text = lines(["operator", "candidates", "wall", "best", "longer: candidates", "wall", "best", "longer by default"],
                     [[f"`{r['op']}`", *(cell for part in (r["default"], r["longer"])
                                         for cell in (part["candidates"], f"{part['wall_s']} s", f"{part['us']} µs")),
                       f"{r['ratio']:.3f}"] for r in found["searches"]])
        return f"{text}\n\n{found['device_key']}, driver {found['driver']}, {found['date']}."
    if name == "races":
        text = lines(["race", "verification", "racecheck", "machine code"],
                     [[f"`{r['id']}`", r["verification"] or "–", "found" if r["racecheck"] == "found" else "–",
                       "found" if r["machine_code"] else "–"] for r in figures["races"]])
        counts = [sum(bool(r["verification"]) for r in figures["races"]),
                  sum(r["racecheck"] == "found" for r in figures["races"]),
                  sum(r["machine_code"] for r in figures["races"]), sum(map(not_caught, figures["races"]))]
        return (f"{text}\n\nOf {len(figures['races'])} races verification catches {counts[0]}, racecheck {counts[1]}, the "
                f"machine code's order {counts[2]}, and nothing {counts[3]}.")
    note = f"{figures['device_key']}, driver {figures['driver']}, NVRTC {figures['nvrtc']}, {figures['date']}."
    if name == "agreement":
        text = lines(["operator", "sweeps", "distinct winners", "candidates", "within 3 %", "pairs ≤ 1 %", "worst pair"],
                     [[f"`{r['op']}`", r["sweeps"], r["distinct_winners"], r["valid_candidates"], r["within_3_percent"],
                       f"{r['pairs_agreeing']} of {r['pairs']}", percent(r["worst_difference"])] for r in figures["agreement"]])
        return f"{text}\n\n{percent(figures['agreement_share'])} of all pairs differ by at most 1 %. {note}"
    if name == "intervals":
        i = figures["intervals"]
        return (f"{i['within_target']} of {i['served']} served times have a 95 % interval of at most 1 % or 0.5 µs; the median "
                f"width is {percent(i['median_relative'])}, the widest {percent(i['widest_relative'])}. The smallest kernel "
                f"reads {figures['smallest_kernel_us']} µs. {note}")
    if name == "faults":
        return lines(["kernel", "outcome", "until reported", "beyond its limit", "next candidate later by"],
                     [[f"`{f['kind']}`", f["outcome"], f"{f['bad_ms']} ms",
                       f"{f['beyond_limit_ms']} ms" if "beyond_limit_ms" in f else "–",
                       f"{f['next_ready_ms']} ms" if "next_ready_ms" in f else "–"] for f in figures["faults"]]) + f"\n\n{note}"
    if name == "shares":
        return lines(["operator", "wall", "compile (CPU)", "compile (wall)", "of it while measuring", *LANE, "other"],
                     [[f"`{s['op']}`", f"{s['wall_s']} s", f"{s['compile_cpu_s']} s", f"{s['compile_wall_s']} s",
                       percent(s["overlap"]), *(percent(s[p]) for p in (*LANE, "other"))]
                      for s in figures["shares"]]) + f"\n\n{note}"
    raise MeasuringError(f"no figures are called '{name}'")


def main(arguments) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("raw", nargs="?", type=pathlib.Path, help="folder that winner_agreement.sh wrote")
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--file", type=pathlib.Path, default=root / "docs" / "evidence" / "measuring.json")
    parser.add_argument("--mutants", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--sanitizer", type=pathlib.Path, metavar="REPORT", nargs="+")
    parser.add_argument("--longer", type=pathlib.Path, metavar="RAW")
    parser.add_argument("--check", action="store_true")
    tables.add_options(parser)
    options = parser.parse_args(arguments)
    try:
        if options.raw:
            kept = read(options.file) if options.file.exists() else {}
            figures = compute(options.raw)
            figures = {**figures, **{k: v for k, v in kept.items() if k in KEPT}}
            options.file.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"{options.file}: {figures['agreement_share']:.1%} of pairs agree; "
                  f"{figures['intervals']['within_target']} of {figures['intervals']['served']} intervals meet the target")
            return 0
        if bool(options.mutants) != bool(options.sanitizer):
            parser.error("--mutants and --sanitizer go together")
        if options.mutants or options.longer:
            suite = root / "tests" / "data" / "mutants" / "mutants.json"
            added = mutant_totals(options.mutants, options.sanitizer, suite) if options.mutants else budget(options.longer)
            figures = {**read(options.file), **added}
            options.file.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            return 0
        if not options.file.exists() and not options.table:
            return 0  # nothing was measured yet
        figures = read(options.file)
        found = problems(figures)
        if options.check and found:
            raise MeasuringError("\n".join(f"{options.file} {what}" for what in found))
        tables.update(options, "measuring", lambda key: table(figures, key), "measuring.py")
    except (MeasuringError, tables.TableError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
