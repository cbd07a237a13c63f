#!/usr/bin/env python3
"""What random sweeps of GEMMs hold (DEVICE/gemm_space/ of the evidence, written by tools/collect_sweeps.sh), and how well
the predictor of that day knew their times.

  sweep_space.py                     print the table
  sweep_space.py --table FILE…       write it between the markers of these files
  sweep_space.py --check-tables FILE…  fail if it is not what the evidence gives

It stands between `<!-- sweep_space -->` and `<!-- /sweep_space -->`.
"""
import argparse
import json
import lzma
import pathlib
import re
import statistics
import sys

import tables

# How many of the candidates that are predicted fastest are looked at.
FIRST = (16, 64)


class SpaceError(Exception):
    """Evidence or a document that can't be used."""


def trials_of(path: pathlib.Path):
    try:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                line = json.loads(text)
                if "trial" in line:
                    yield line["trial"]
    except (OSError, EOFError, lzma.LZMAError, ValueError) as error:
        raise SpaceError(f"{path}: {error}") from error


def read(evidence: pathlib.Path):
    """({operator: its trials that were compiled}, the files)."""
    shapes, files = {}, sorted(evidence.glob("*/gemm_space/*.jsonl.xz"))
    for path in files:
        for trial in trials_of(path):
            if "resources" not in trial:
                continue
            measured = trial.get("measurement", {}).get("median_us", 0) if trial.get("outcome") == "OK" else 0
            shapes.setdefault(trial["op"], []).append({
                "spills": trial.get("outcome") == "SPILLS", "measured": float(measured),
                "predicted": float(trial.get("prediction", {}).get("time_us", 0)),
            })
    if not shapes:
        raise SpaceError(f"{evidence}: no sweeps")
    return shapes, files


def lost(trials: list, first: int) -> float:
    """How much slower the best of those predicted fastest is than the best of all."""
    timed = sorted((t for t in trials if t["measured"] > 0), key=lambda t: t["predicted"])
    return min(t["measured"] for t in timed[:first]) / min(t["measured"] for t in timed) - 1


def rows_of(op: str) -> int:
    found = re.search(r"\bm=(\d+)", op)
    if not found:
        raise SpaceError(f"'{op}' has no m")
    return int(found.group(1))


def percent(value: float) -> str:
    return f"{value * 100:.1f} %"


def table(shapes: dict, files: list, root: pathlib.Path) -> str:
    lines = ["| m | shapes | compiled | fewest a shape | spills | slowest by fastest | predicted by measured | "
             + " | ".join(f"lost with the first {n}: median, most" for n in FIRST) + " |",
             "|---:|---:|---:|---:|---:|---:|---:|" + "---:|" * len(FIRST)]
    for m in sorted({rows_of(op) for op in shapes}):
        mine = [trials for op, trials in shapes.items() if rows_of(op) == m]
        timed = [[t["measured"] for t in trials if t["measured"] > 0] for trials in mine]
        ratios = sorted(t["predicted"] / t["measured"] for trials in mine for t in trials if t["measured"] > 0)
        tenth = len(ratios) // 10
        regrets = [[lost(trials, n) for trials in mine] for n in FIRST]
        cells = [m, len(mine), sum(len(t) for t in mine), min(len(t) for t in mine),
                 sum(t["spills"] for trials in mine for t in trials),
                 f"{statistics.median(max(t) / min(t) for t in timed):.1f}×",
                 f"{statistics.median(ratios):.2f} ({ratios[tenth]:.2f}–{ratios[-1 - tenth]:.2f})",
                 *(f"{percent(statistics.median(r))}, {percent(max(r))}" for r in regrets)]
        lines.append("| " + " | ".join(str(c) for c in cells) + " |")
    return "\n".join(lines) + "\n\nSource: " + ", ".join(f"`{f.relative_to(root).as_posix()}`" for f in files) + "."


def main(arguments) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    tables.add_options(parser)
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    try:
        made = table(*read(root / "docs" / "evidence"), root)
        if not (options.table or options.check_tables):
            print(made)
        tables.update(options, "sweep_space", lambda _: made, "sweep_space.py")
    except (SpaceError, tables.TableError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
