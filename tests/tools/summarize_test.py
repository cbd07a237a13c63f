#!/usr/bin/env python3
"""Runs tools/summarize.py over a small evidence file, whole and with planted faults."""
import contextlib
import gzip
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("ROOFTUNE_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True
import summarize  # noqa: E402  (after the path is set)


class SummarizeTest(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.addCleanup(self.temp.cleanup)
        self.root = pathlib.Path(self.temp.name)
        shutil.copytree(ROOT / "costmodel" / "ops", self.root / "costmodel" / "ops")
        self.evidence = self.root / "docs" / "evidence"
        self.file = self.evidence / "h200" / "smoke" / "run.jsonl.gz"
        self.file.parent.mkdir(parents=True)
        text = (ROOT / "tests" / "data" / "evidence" / "suite" / "run.jsonl").read_text(encoding="utf-8")
        self.lines = [json.loads(line) for line in text.splitlines()]
        self.write()

    def write(self):
        data = "".join(json.dumps(line) + "\n" for line in self.lines).encode()
        self.file.write_bytes(gzip.compress(data, mtime=0))

    def run_tool(self, *arguments):
        """Exit code, stdout and stderr; an exception that a user would see as a traceback is raised."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = summarize.main(["--root", str(self.root), *arguments])
        return code, out.getvalue(), err.getvalue()

    def record(self, name):
        return next(line["record"] for line in self.lines if line.get("record", {}).get("name") == f"records/{name}")

    def rows(self):
        self.assertEqual(self.run_tool()[0], 0)
        return json.loads((self.evidence / "summary.json").read_text(encoding="utf-8"))

    def expect_failure(self, needle, *arguments):
        code, out, err = self.run_tool(*arguments)
        self.assertEqual(code, 1, out)
        self.assertIn(needle, err)

    def test_a_served_library_leaves_a_row_to_the_best_template(self):
        before = len(self.rows())
        kernel, second = self.record("r0"), self.record("r1")
        served = json.loads(json.dumps(kernel))
        kernel["rank"], second["rank"] = 1, 2
        served.update(name="records/library", provider="CUBLASLT", template_id="cublaslt", template_revision="130100", rank=0)
        served["measurement"] = {**served["measurement"], "median_us": 5.5}
        self.lines.append({"record": served})
        self.write()
        rows = self.rows()
        self.assertEqual(len(rows), before + 1)
        library = next(row for row in rows if row["provider"] == "CUBLASLT")
        self.assertEqual((library["time_us"], library["candidate_impl"]), (5.5, "cublaslt@130100"))
        template = next(row for row in rows if row["shape"] == library["shape"] and row["provider"] == "TEMPLATE")
        self.assertEqual((template["time_us"], template["baselines"]), (6.5, library["baselines"]))

    def test_best_measured_record_of_each_sweep(self):
        gemm, softmax = self.rows()
        self.assertEqual(set(gemm), set(summarize.KEYS))
        self.assertEqual(gemm["time_us"], 6.5)
        self.assertEqual(gemm["ci_us"], [6.4675, 6.5325])
        self.assertEqual(gemm["shape"], {"m": 1024, "n": 1024, "k": 1024, "batch": 1})
        self.assertEqual(gemm["dtype"], "bf16")
        self.assertEqual(gemm["config"], {"block_m": 128, "stages": 3})
        self.assertEqual(gemm["candidate_impl"], "gemm_mma@0123456789abcdef")
        self.assertEqual(gemm["baselines"], {"cublaslt_first": 5.0}, "a baseline that failed has no time")
        self.assertEqual(gemm["baseline_versions"], {"cublaslt_first": "cublasLt 130100"})
        self.assertEqual((gemm["iterations"], gemm["warmup"], gemm["workspace_bytes"]), (60, 10, 4096))
        self.assertEqual((gemm["clock"], gemm["l2"], gemm["date"]), ("cool", "cold", "2026-11-29"))
        self.assertEqual(gemm["device"], "NVIDIA H200")
        self.assertEqual(gemm["source"], "docs/evidence/h200/smoke/run.jsonl.gz")
        self.assertEqual(softmax["baselines"], {})
        self.assertEqual(softmax["max_error"], 0, "an exact result is a result")

    def test_check_passes_then_sees_every_missing_key(self):
        rows = self.rows()
        self.assertEqual(self.run_tool("--check")[0], 0)
        for key in summarize.KEYS:
            row = dict(rows[0])
            del row[key]
            self.assertIn(f"lacks '{key}'", summarize.problems(row))

    def test_check_sees_wrong_types_and_values(self):
        row = self.rows()[0]
        self.assertEqual(summarize.problems(row), [])
        for key, value in (("time_us", "6.5"), ("time_us", 0), ("time_us", True), ("warmup", 1.5), ("bound", "FAST"),
                           ("clock", "COOL"), ("evidence_level", "ESTIMATED"), ("shape", {"m": "1"}), ("ci_us", [1]),
                           ("baselines", {"x": "1"}), ("device", ""), ("provider", "ME"), ("extra", 1)):
            self.assertTrue(summarize.problems({**row, key: value}), f"{key}={value!r} passed")

    def test_planted_missing_values_in_the_evidence(self):
        for path, key in ((("verification", "reference"), "reference"), (("bounds", "attainable_us"), "attainable_us"),
                          (("environment", "driver"), "driver"), (("peak_bytes",), "peak_bytes"),
                          (("verification", "passed"), "max_error"), (("measurement", "l2"), "l2")):
            self.setUp()
            self.rows()
            target = self.record("r0")
            for part in path[:-1]:
                target = target[part]
            del target[path[-1]]
            self.write()
            self.expect_failure(f"lacks '{key}'", "--check")
            self.expect_failure(f"lacks '{key}'")

    def test_summary_that_differs_from_the_evidence(self):
        self.rows()
        self.record("r0")["measurement"]["median_us"] = 1.0
        self.write()
        self.expect_failure("not what the evidence gives", "--check")
        (self.evidence / "summary.json").write_text("{", encoding="utf-8")
        self.expect_failure("summary.json", "--check")

    def test_output_is_the_same_each_time(self):
        self.rows()
        first = (self.evidence / "summary.json").read_bytes()
        self.rows()
        self.assertEqual((self.evidence / "summary.json").read_bytes(), first)

    def test_tables(self):
        page = self.root / "README.md"
        page.write_text("before\n<!-- evidence:smoke -->\nstale row\n<!-- /evidence -->\nafter\n", encoding="utf-8")
        self.expect_failure("out of date", "--check-tables", str(page))
        self.assertEqual(self.run_tool("--table", str(page))[0], 0)
        text = page.read_text(encoding="utf-8")
        self.assertTrue(text.startswith("before\n<!-- evidence:smoke -->\n| operator |") and text.endswith("\nafter\n"))
        self.assertIn("| `gemm` | 1024 × 1024 × 1024 bf16 | gemm_mma | 6.5 |", text)
        self.assertNotIn("stale row", text)
        self.assertEqual(self.run_tool("--check-tables", str(page))[0], 0)
        page.write_text(text.replace("| 6.5 |", "| 0.5 |"), encoding="utf-8")
        self.expect_failure("out of date", "--check-tables", str(page))
        page.write_text("<!-- evidence:unknown -->\n<!-- /evidence -->\n", encoding="utf-8")
        self.expect_failure("no evidence of suite 'unknown'", "--table", str(page))
        page.write_text("<!-- evidence:smoke -->\n", encoding="utf-8")
        self.expect_failure("without its end", "--check-tables", str(page))

    def test_tables_have_the_newest_measurement_of_an_operator(self):
        page = self.root / "README.md"
        page.write_text("<!-- evidence:smoke -->\n<!-- /evidence -->\n", encoding="utf-8")
        self.run_tool("--table", str(page))
        before = page.read_text(encoding="utf-8").count("\n| `")
        # Again on the same day: a file of a later name, in which one operator is faster and another is not at all.
        kept = [line for line in self.lines if "run" in line or line.get("sweep", {}).get("name") == self.record("r0")["sweep"]]
        again = json.loads(json.dumps(kept + [{"record": self.record("r0")}]))
        again[-1]["record"]["measurement"]["median_us"] = 6.25
        data = "".join(json.dumps(line) + "\n" for line in again).encode()
        (self.file.parent / "run-2.jsonl.gz").write_bytes(gzip.compress(data, mtime=0))
        self.rows()
        self.assertEqual(self.run_tool("--table", str(page))[0], 0)
        text = page.read_text(encoding="utf-8")
        self.assertEqual(text.count("\n| `"), before)
        self.assertIn("| gemm_mma | 6.25 |", text)
        self.assertNotIn("| gemm_mma | 6.5 |", text)

    def test_bad_files(self):
        self.file.write_bytes(self.file.read_bytes()[:40])
        self.expect_failure("run.jsonl.gz")
        self.file.write_bytes(b"no gzip")
        self.expect_failure("run.jsonl.gz")
        self.lines = self.lines[1:]
        self.write()
        self.expect_failure("the run must come first")

    def test_dims_of_unknown_kinds(self):
        kinds = {"gemm": {"m": None, "batch": 1}}
        self.assertEqual(summarize.parse_op("gemm m=8 dtype=bf16 bias=1", kinds), ({"m": 8, "batch": 1}, "bf16"))
        self.assertEqual(summarize.parse_op("mine t=8 dtype=bf16", kinds), ({"t": 8}, "bf16"))


if __name__ == "__main__":
    unittest.main()
