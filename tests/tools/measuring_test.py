#!/usr/bin/env python3
"""Runs tools/measuring.py over made-up answers of the command line."""
import contextlib
import io
import itertools
import json
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("ROOFTUNE_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True
import measuring  # noqa: E402  (after the path is set)


def trial(block, us, outcome="OK", **more):
    return {"template_id": "softmax", "config": {"block": str(block)}, "outcome": outcome,
            "measurement": {"median_us": us, "ci_low_us": us * 0.998, "ci_high_us": us * 1.002}, **more}


def fault_trial(bad, run_ms, at, outcome="OK"):
    return {"config": {"fault": str(int(bad))}, "outcome": outcome, "run_ms": run_ms,
            "create_time": f"2026-11-29T10:00:{at:02d}.123456789Z"}


class MeasuringTest(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.raw = pathlib.Path(temp.name)
        self.file = self.raw / "measuring.json"
        # Three sweeps of the same candidates crown 128 twice and 256 once.
        for run, winner in enumerate((128, 256, 128)):
            folder = self.raw / "softmax" / f"run{run}"
            folder.mkdir(parents=True)
            self.put(folder / "sweep.json", {
                "create_time": "2026-11-29T10:00:00Z", "end_time": "2026-11-29T10:00:10Z", "device_key": "fake/test",
                "environment": {"driver": "580.1", "nvrtc": "13.0"},
                "progress": {"spent_s": {"compile": 20, "compile_wall": 5, "overlap": 4, "measure": 4, "verify": 1, "prepare": 0.5, "confirm": 2, "idle": 1}}})
            self.put(folder / "trials.json", {"trial": [trial(128, 100), trial(256, 100.5), trial(64, 102), trial(32, 150),
                                                        trial(1, 5, "WRONG_RESULT")]})
            self.put(folder / "records.json", {"record": [{**trial(winner, 100), "rank": 0}, {**trial(64, 102), "rank": 1}]})
        self.race(100.4)
        self.put(self.raw / "smallest.json", {"trial": [trial(32, 1.9)]})
        self.put(self.raw / "fault_illegal_address.json", {"trial": [
            fault_trial(False, 10, 1), fault_trial(True, 400, 2, "OUT_OF_BOUNDS"), fault_trial(False, 60, 3),
            fault_trial(True, 420, 4, "OUT_OF_BOUNDS")]})
        self.put(self.raw / "fault_spin.json", {"trial": [fault_trial(False, 10, 1), fault_trial(True, 1120, 2, "TIMEOUT")]})
        self.put(self.raw / "meta.json", {"op": [{"name": "softmax", "op": "softmax rows=1 cols=2 dtype=bf16"}],
                                          "fault": [{"kind": "illegal_address"}, {"kind": "spin", "limit_ms": 1000}]})

    @staticmethod
    def put(path, value):
        path.write_text(json.dumps(value), encoding="utf-8")

    def race(self, second_us):
        self.put(self.raw / "softmax" / "race.json", {"trial": [trial(128, 100), trial(256, second_us)]})

    def run_tool(self, *arguments):
        err = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
            code = measuring.main(["--file", str(self.file), *map(str, arguments)])
        return code, err.getvalue()

    def figures(self):
        code, err = self.run_tool(self.raw)
        self.assertEqual(code, 0, err)
        return json.loads(self.file.read_text(encoding="utf-8"))

    def test_figures(self):
        figures = self.figures()
        row = figures["agreement"][0]
        self.assertEqual((row["sweeps"], row["distinct_winners"], row["pairs"], row["pairs_agreeing"]), (3, 2, 3, 3))
        self.assertEqual((row["valid_candidates"], row["within_3_percent"]), (4, 3))
        self.assertEqual(row["worst_difference"], 0.004)
        self.assertEqual(figures["intervals"]["served"], 6)
        self.assertEqual(figures["intervals"]["within_target"], 6)
        self.assertEqual(figures["smallest_kernel_us"], 1.9)
        self.assertEqual(figures["faults"][0], {"kind": "illegal_address", "outcome": "OUT_OF_BOUNDS", "bad_ms": 410.0,
                                                "next_ready_ms": 50.0})
        self.assertEqual(figures["faults"][1]["beyond_limit_ms"], 120)
        self.assertEqual((figures["shares"][0]["wall_s"], figures["shares"][0]["measure"]), (10, 0.4))
        self.assertEqual((figures["shares"][0]["plan"], figures["shares"][0]["other"]), (0, 0.15), "what nobody accounts for shows")
        self.assertEqual((figures["shares"][0]["compile_wall_s"], figures["shares"][0]["overlap"]), (5, 0.8))
        self.assertEqual(self.run_tool("--check"), (0, ""))

    def test_bad_kernels_in_a_row(self):
        # What the second waits for is the new worker, no part of its own fault.
        self.put(self.raw / "fault_spin.json", {"trial": [
            fault_trial(False, 10, 1), fault_trial(True, 1100, 2, "TIMEOUT"), fault_trial(True, 1300, 3, "TIMEOUT")]})
        spin = self.figures()["faults"][1]
        self.assertEqual((spin["bad_ms"], spin["beyond_limit_ms"], spin["next_ready_ms"]), (1100, 100, 200))

    def test_disagreement_shows(self):
        self.race(102)
        figures = self.figures()
        self.assertEqual(figures["agreement"][0]["pairs_agreeing"], 1)
        self.assertAlmostEqual(figures["agreement_share"], 1 / 3, 3)

    def test_a_winner_that_was_not_raced_is_an_error(self):
        self.put(self.raw / "softmax" / "race.json", {"trial": [trial(128, 100)]})
        code, err = self.run_tool(self.raw)
        self.assertEqual(code, 1)
        self.assertIn("no time of softmax:block=256", err)

    def test_others_figures_are_kept(self):
        self.put(self.file, {"mutants": {"caught": 60, "of": 60}})
        self.assertEqual(self.figures()["mutants"], {"caught": 60, "of": 60})

    def test_tables(self):
        page = self.raw / "page.md"
        text = "".join(f"<!-- measuring:{n} -->\nold\n<!-- /measuring -->\n" for n in
                       ("agreement", "intervals", "faults", "shares"))
        page.write_text(text, encoding="utf-8")
        self.figures()
        self.assertEqual(self.run_tool("--check-tables", page)[0], 1)
        self.assertEqual(self.run_tool("--table", page)[0], 0)
        self.assertEqual(self.run_tool("--check-tables", page)[0], 0)
        written = page.read_text(encoding="utf-8")
        self.assertIn("| `softmax rows=1 cols=2 dtype=bf16` | 3 | 2 | 4 | 3 | 3 of 3 | 0.4 % |", written)
        self.assertIn("| `spin` | TIMEOUT | 1120.0 ms | 120.0 ms | – |", written)
        page.write_text("<!-- measuring:agreement -->\nno end\n", encoding="utf-8")
        self.assertEqual(self.run_tool("--table", page)[0], 1)

    def test_longer_searches(self):
        folder = self.raw / "searches" / "softmax"
        folder.mkdir(parents=True)
        for name, end, finished in (("default", 8, 64), ("longer", 50, 640)):
            self.put(folder / f"{name}.json", {
                "create_time": "2026-11-29T10:00:00Z", "end_time": f"2026-11-29T10:00:{end:02d}Z", "device_key": "fake/test",
                "environment": {"driver": "580.1"}, "progress": {"finished": finished}})
        self.put(folder / "race.json", {"trial": [trial(128, 100), trial(256, 99)]})
        self.put(folder / "meta.json", {"op": "softmax", "default": "softmax:block=128", "longer": "softmax:block=256"})
        self.figures()
        self.assertEqual(self.run_tool("--longer", self.raw / "searches"), (0, ""))
        self.assertEqual(self.figures()["budget"]["searches"], [
            {"op": "softmax", "default": {"wall_s": 8, "candidates": 64, "us": 100},
             "longer": {"wall_s": 50, "candidates": 640, "us": 99}, "ratio": 0.99}])
        page = self.raw / "page.md"
        page.write_text("<!-- measuring:budget -->\nold\n<!-- /measuring -->\n", encoding="utf-8")
        self.assertEqual(self.run_tool("--table", page)[0], 0)
        self.assertIn("| `softmax` | 64 | 8.0 s | 100.0 µs | 640 | 50.0 s | 99.0 µs | 0.990 |", page.read_text(encoding="utf-8"))
        # A winner that the race left out, and a folder without searches.
        self.put(folder / "race.json", {"trial": [trial(128, 100)]})
        self.assertIn("no time of softmax:block=256", self.run_tool("--longer", self.raw / "searches")[1])
        self.assertIn("no search ended", self.run_tool("--longer", self.raw / "softmax")[1])

    def test_who_catches_a_race(self):
        """Planted races, each caught by another check, and one by none."""
        rows = [{"id": "softmax_wrong", "racecheck": False, "outcome": "WRONG_RESULT", "caught": True},
                {"id": "softmax_seen", "racecheck": True, "outcome": "WRONG_RESULT", "caught": True},
                {"id": "softmax_hazard", "racecheck": True, "outcome": "OK", "caught": False},
                {"id": "gemm_wgmma_released_too_early", "racecheck": True, "outcome": "OK", "caught": False},
                {"id": "softmax_missed", "racecheck": True, "outcome": "OK", "caught": False}]
        totals = {"id": "totals", "mutants": 1, "caught": 1, "unchanged": 7, "false_alarms": 0}
        mutants, reports = self.raw / "mutants.json", [self.raw / "report-1.json", self.raw / "report-2.json"]
        mutants.write_text("\n".join(map(json.dumps, [*rows, totals])), encoding="utf-8")
        found = {"softmax_hazard": "found"}
        self.put(reports[0], {"version": "2025.3", "rows": [
            {"tool": tool, "name": "softmax", "planted": False, "result": result}
            for tool, result in (("memcheck", "clean"), ("racecheck", "timed out"))]})
        self.put(reports[1], {"version": "2025.3", "rows": [
            {"tool": "racecheck", "name": f"race-{row['id']}", "planted": True, "result": found.get(row["id"], "clean")}
            for row in rows if row["racecheck"]]})
        self.figures()
        self.assertEqual(self.run_tool("--mutants", mutants, "--sanitizer", *reports), (0, ""))
        figures = self.figures()
        self.assertEqual(figures["sanitizer"], {"version": "2025.3", "runs": 2, "clean": 1})
        self.assertEqual(figures["mutants"], {"planted": 1, "caught": 1})
        self.assertEqual(figures["false_alarms"], {"unchanged": 7, "failed": 0})
        self.assertEqual(figures["races"][2], {"id": "gemm_wgmma_released_too_early", "verification": "",
                                               "racecheck": "clean", "machine_code": True})
        code, err = self.run_tool("--check")
        self.assertEqual(code, 1)
        self.assertIn("race softmax_missed, which nothing catches", err)
        self.assertEqual(err.count("nothing catches"), 1)
        page = self.raw / "page.md"
        page.write_text("<!-- measuring:races -->\nold\n<!-- /measuring -->\n", encoding="utf-8")
        self.assertEqual(self.run_tool("--table", page)[0], 0)
        written = page.read_text(encoding="utf-8")
        self.assertIn("| `softmax_hazard` | – | found | – |", written)
        self.assertIn("Of 4 races verification catches 1, racecheck 1, the machine code's order 1, and nothing 1.", written)
        # What one report left out, or has no end of, another has, in whatever order; two that disagree are an error.
        self.put(self.raw / "report-3.json", {"version": "2025.3", "rows": [
            {"tool": "memcheck", "name": "softmax", "planted": False, "result": "clean"}]})
        for unfinished, order in itertools.product(("not run", "timed out"), ((0, 2), (2, 0))):
            self.put(reports[0], {"version": "2025.3", "rows": [
                {"tool": "memcheck", "name": "softmax", "planted": False, "result": unfinished}]})
            parts = [[*reports, self.raw / "report-3.json"][i] for i in order]
            self.assertEqual(self.run_tool("--mutants", mutants, "--sanitizer", *parts, reports[1]), (0, ""))
            self.assertEqual(self.figures()["sanitizer"]["clean"], 1)
        self.put(reports[0], {"version": "2025.3", "rows": [
            {"tool": "memcheck", "name": "softmax", "planted": False, "result": "found"}]})
        for order in ((0, 2), (2, 0)):
            parts = [[*reports, self.raw / "report-3.json"][i] for i in order]
            code, err = self.run_tool("--mutants", mutants, "--sanitizer", *parts, reports[1])
            self.assertEqual(code, 1)
            self.assertIn("memcheck of softmax: ", err)
        # A race that racecheck was not run on is no race that it missed.
        self.put(reports[1], {"version": "2025.3", "rows": []})
        self.assertIn("racecheck was not run on the race softmax_seen",
                      self.run_tool("--mutants", mutants, "--sanitizer", *reports)[1])

    def test_too_few_candidates_near_the_best_are_found(self):
        for file in self.raw.glob("softmax/run*/trials.json"):
            self.put(file, {"trial": [trial(128, 100), trial(256, 120)]})
        self.figures()
        code, err = self.run_tool("--check")
        self.assertEqual(code, 1)
        self.assertIn("fewer than three candidates", err)


if __name__ == "__main__":
    unittest.main()
