#!/usr/bin/env python3
"""Sums up what tests/gpu/sanitize.sh ran: a table on standard output, a row a run in a JSON file.

Exit code 0 if every template is clean under every tool; planted races that racecheck misses are counted, not failed.
"""
import argparse
import datetime
import json
import pathlib
import sys

FOUND = 9  # --error-exitcode of the tool
NOT_RUN = -1


def read_rows(folder: pathlib.Path) -> list:
    rows = []
    for file in sorted(folder.iterdir()):
        tool, name, code, seconds, summary, answers = file.read_text(encoding="utf-8").rstrip("\n").split("\t")
        code = int(code)
        result = ("not run" if code == NOT_RUN else "found" if code == FOUND else "clean" if code == 0 else
                  "timed out" if code in (124, 137) else f"exit code {code}")
        # A clean tool over kernels that did not run, or gave wrong results, says nothing.
        if result == "clean" and (" 0 not" not in answers or answers.strip().startswith("0 ")):
            result = "wrong answers"
        rows.append({"tool": tool, "name": name, "result": result, "seconds": float(seconds), "summary": summary,
                     "answers": answers.strip(), "planted": name.startswith("race-")})
    return rows


def main(arguments) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=pathlib.Path)
    parser.add_argument("--version", default="")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args(arguments)
    rows = read_rows(options.rows)
    templates = [r for r in rows if not r["planted"]]
    planted = [r for r in rows if r["planted"]]
    for row in rows:
        if row["result"] != "clean" or row["planted"]:
            print(f"{row['tool']:10} {row['name']:40} {row['result']:14} {row['seconds']:5.1f} s  {row['summary']}")
    tools = sorted({r["tool"] for r in templates})
    figures = {
        "version": options.version, "date": datetime.date.today().isoformat(), "seconds": options.seconds,
        "templates": len({r["name"] for r in templates}), "tools": tools, "runs": len(templates),
        "clean": sum(r["result"] == "clean" for r in templates),
        "planted_races": len(planted), "planted_races_found": sum(r["result"] == "found" for r in planted),
        "rows": rows,
    }
    options.out.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{figures['clean']} of {figures['runs']} runs clean ({figures['templates']} templates under {', '.join(tools)}); "
          f"racecheck finds {figures['planted_races_found']} of {figures['planted_races']} planted races; "
          f"{options.seconds:.0f} s")
    return 0 if templates and figures["clean"] == figures["runs"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
