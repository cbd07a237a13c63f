#!/usr/bin/env python3
"""The comparison's rules without a GPU: launches from recipes, choice of records, exclusion of what is wrong, budgets."""

import contextlib
import io
import json
import os
import pathlib
import struct
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(os.environ.get("ROOFTUNE_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[3]))
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "bench" / "peers")]
sys.dont_write_bytecode = True
import daemon  # noqa: E402  (after the path is set)
import peer_rows  # noqa: E402
import recipe  # noqa: E402
import shapes  # noqa: E402
import suite  # noqa: E402
from provider import Failed, Provider, is_right  # noqa: E402

PLAN = {
    "arch": "sm_90a",
    "tensor": [
        {"name": "a", "role": "INPUT", "dtype": "BF16", "dim": [{"value": "64", "expr": "m"}, {"value": "32"}]},
        {"name": "d", "role": "OUTPUT", "dtype": "BF16", "dim": [{"value": "64"}]},
    ],
    "scalar": [{"name": "alpha", "dtype": "FP32", "default_value": 1}, {"name": "eps"}],
    "workspace_bytes": {"value": "4096", "expr": "4096"},
    "workspace_init": "ZERO",
    "launch": [
        {
            "symbol": "first",
            "grid_x": {"value": "8"},
            "block_x": {"value": "128"},
            "cluster_x": {"value": "16"},
            "dynamic_shared_bytes": {"value": "100000"},
            "shared_opt_in": True,
            "argument": [
                {"tensor": "a", "size": 8},
                {"scalar": "alpha", "size": 4},
                {"integer": {"value": "-3"}, "size": 8},
                {"integer": {"expr": "0"}, "size": 4},
                {"workspace_offset": {"value": "256"}, "size": 8},
                {
                    "tensor_map": {
                        "tensor": "a",
                        "dtype": "BF16",
                        "dim": [{"value": "32"}, {"value": "64"}],
                        "stride_bytes": [{"value": "64"}],
                        "box": [{"value": "32"}, {"value": "8"}],
                        "element_stride": [{"value": "1"}, {"value": "1"}],
                        "swizzle": 3,
                    },
                    "size": 128,
                },
            ],
        },
        {"symbol": "second", "cooperative": True, "argument": [{"tensor": "d", "size": 8}, {"scalar": "eps", "size": 8}]},
    ],
}


class FakeDriver:
    def __init__(self):
        self.calls = []

    def function(self, module, symbol):
        return symbol

    def tensor_map(self, *arguments):
        self.calls.append(("tensor_map", *arguments))
        return b"m" * 128

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))

    def of(self, name):
        return [call[1:] for call in self.calls if call[0] == name]


class RecipeTest(unittest.TestCase):
    def load(self, plan=None):
        self.driver = FakeDriver()
        module = types.SimpleNamespace(PORTABLE_CLUSTER=8)
        return recipe.Recipe(module, self.driver, {"plan": plan or PLAN}, b"cubin", lambda size: ("owner", 1 << 20))

    def test_launches_as_the_recipe_says(self):
        run = self.load().bind({"a": 0x1000, "d": 0x2000}, {"eps": 0.5})
        self.assertEqual(self.driver.of("launch"), [], "nothing runs before it is called")
        run(77)
        self.assertEqual(self.driver.of("zero"), [(1 << 20, 4096, 77)])
        first, second = self.driver.of("launch")
        self.assertEqual(first[:7], ("first", (8, 1, 1), (128, 1, 1), 16, False, 100000, 77))
        self.assertEqual(
            first[7],
            [
                struct.pack("<Q", 0x1000),
                struct.pack("<f", 1),
                struct.pack("<q", -3),
                struct.pack("<i", 0),
                struct.pack("<Q", (1 << 20) + 256),
                b"m" * 128,
            ],
        )
        self.assertEqual(
            second, ("second", (1, 1, 1), (1, 1, 1), 1, True, 0, 77, [struct.pack("<Q", 0x2000), struct.pack("<d", 0.5)])
        )
        self.assertEqual(
            self.driver.of("tensor_map"), [(0x1000, "BF16", [32, 64], [64], [32, 8], [1, 1], (0, 3, 0, 0))]
        )
        self.assertEqual(self.driver.of("allow_shared"), [("first", 100000)])
        self.assertEqual(self.driver.of("allow_large_cluster"), [("first",)])
        self.assertEqual(self.driver.of("check_arch"), [("sm_90a",)])

    def test_a_workspace_is_zeroed_once_where_that_is_enough(self):
        run = self.load({**PLAN, "workspace_init": "ZERO_ONCE"}).bind({"a": 1, "d": 2}, {"eps": 0})
        run(5)
        run(6)
        self.assertEqual(self.driver.of("zero"), [(1 << 20, 4096, 5)])
        self.assertEqual(len(self.driver.of("launch")), 4)

    def test_a_missing_tensor_and_an_unknown_argument(self):
        with self.assertRaisesRegex(TypeError, "takes tensors that nobody gives: d"):
            self.load().bind({"a": 1}, {})
        plan = json.loads(json.dumps(PLAN))
        plan["launch"][1]["argument"] = [{"stream": 1, "size": 8}]
        with self.assertRaisesRegex(NotImplementedError, "stream"):
            self.load(plan).bind({"a": 1, "d": 2}, {})

    def test_the_driver_loads_without_the_package(self):
        module = recipe.load_driver(ROOT)
        self.assertTrue(hasattr(module, "Driver") and module.PORTABLE_CLUSTER == 8)
        self.assertNotIn("grpc", sys.modules)


class RecordsTest(unittest.TestCase):
    def test_what_is_served_and_the_best_template(self):
        library, kernel, slower = ({"provider": p} for p in ("CUBLASLT", "TEMPLATE", "TEMPLATE"))
        served, best = daemon.choose([library, kernel, slower])
        self.assertIs(served, library)
        self.assertIs(best, kernel)
        self.assertEqual(daemon.choose([library]), (library, None))
        self.assertEqual(daemon.choose([]), (None, None))

    def ours(self, records, loader=None):
        tuned = types.SimpleNamespace(
            tune=lambda *a: (records, 3.0), fetch=lambda record: ({**record, "plan": {}}, b"")
        )
        options = types.SimpleNamespace(max_trials=8, seed=7, retune=False, budget=suite.Budget(None))
        context = types.SimpleNamespace(case=types.SimpleNamespace(op="op"))
        return suite.ours(context, tuned, options, loader or (lambda *a: Provider("rooftune", "ours", [])))

    def test_without_a_template_the_library_is_named(self):
        provider, entry, bounds = self.ours([{"name": "r", "provider": "CUBLASLT", "bounds": {"floor_us": 1}}])
        self.assertIsNone(provider)
        self.assertEqual((entry["status"], entry["served"], bounds), ("unavailable", "CUBLASLT", {"floor_us": 1}))
        self.assertEqual(self.ours([])[1]["message"], "no measured record")

    def test_a_template_beside_the_served_library(self):
        records = [{"name": "r", "provider": "CUBLASLT"}, {"name": "s", "provider": "TEMPLATE", "template_id": "t"}]
        provider, facts, _ = self.ours(records)
        self.assertIsNotNone(provider)
        self.assertEqual((facts["served"], facts["record"]), ("CUBLASLT", {"name": "s", "template_id": "t"}))


class ExportTest(unittest.TestCase):
    def test_evidence_is_of_one_suite(self):
        cases = [types.SimpleNamespace(op="gemm", label=dtype, dtype=dtype) for dtype in ("bf16", "fp8_e4m3")]
        arguments = ["rows.ndjson", "--export", "trials.jsonl.gz"]
        with contextlib.redirect_stderr(io.StringIO()) as text:
            self.assertEqual(suite.main("gemm", "", lambda: cases, dict, arguments), 2)
        self.assertIn("gemm_bf16, gemm_fp8", text.getvalue())
        self.assertEqual(peer_rows.evidence_suite("memory_bound", "bf16"), "rows")
        self.assertEqual(peer_rows.evidence_suite("gemm", "int8"), "gemm_int")


class FakeHarness:
    """Captures nothing; `result` is what the check of an output gives."""

    def scratch_of(self, call, output_bytes):
        return 123

    def capture(self, calls, bytes_of_set, rotates):
        calls[-1]()
        return types.SimpleNamespace(launches=10)

    def outputs_after_replay(self, captured, own):
        return [], True


def context_of(error=0.0017, worst=0.4, tolerance=1.0):
    return types.SimpleNamespace(
        harness=FakeHarness(),
        output_bytes=8,
        rotates=True,
        outs=[{}],
        case=types.SimpleNamespace(bytes=8, label="case", tolerance=tolerance),
        check=lambda outputs: {"error": error, "worst": worst},
    )


class ExamineTest(unittest.TestCase):
    def examine(self, context, **more):
        return suite.build_and_examine(context, lambda _: Provider("p", "peer", [lambda: None], config="c", **more))

    def test_who_is_right_is_timed(self):
        captured, entry = self.examine(context_of())
        self.assertEqual(captured.launches, 10)
        self.assertEqual((entry["status"], entry["scratch_bytes"], entry["config"]), ("ok", 123, "c"))

    def test_who_is_wrong_is_not(self):
        for error, worst in ((0.3, 0.4), (0.001, 1.01), (float("nan"), 0.1), (float("inf"), float("inf"))):
            captured, entry = self.examine(context_of(error, worst))
            self.assertIsNone(captured, (error, worst))
            self.assertEqual(entry["status"], "wrong")
            self.assertEqual(peer_rows.provider_problems("p", entry), [])

    def test_a_peer_that_rounds_more_often_says_so(self):
        self.assertEqual(self.examine(context_of(worst=3))[1]["status"], "wrong")
        self.assertEqual(self.examine(context_of(worst=3), tolerance=4)[1]["status"], "ok")
        self.assertEqual(self.examine(context_of(worst=3, tolerance=4))[1]["status"], "ok")

    def test_a_copy_that_does_not_copy(self):
        self.assertEqual(self.examine(context_of(), check=lambda: True)[1]["status"], "ok")
        self.assertEqual(self.examine(context_of(), check=lambda: False)[1]["status"], "wrong")

    def test_what_fails_is_reported_unless_the_context_is_lost(self):
        def raising(error):
            def build(_):
                raise error

            return lambda: suite.build_and_examine(context_of(), build)

        entry = raising(Failed("no configurations"))()[1]
        self.assertEqual((entry["status"], entry["message"]), ("failed", "no configurations"))
        self.assertIn("ValueError: out of resources", raising(ValueError("out of\nresources"))()[1]["message"])
        with self.assertRaisesRegex(RuntimeError, "case: the GPU's context is lost"):
            raising(RuntimeError("CUDA error: an illegal memory access was encountered"))()

    def test_bounds(self):
        self.assertTrue(is_right({"error": 0.005, "worst": 1}))
        self.assertFalse(is_right({"error": 0.0051, "worst": 0}))


def good_row(label):
    times = {"launches": 1, "output": "preallocated", "error": 0.0, "worst": 0.0, "scratch_bytes": 0, "prepare_s": 0.0}
    ours = {"role": "ours", "status": "ok", **times, **peer_rows.summary_of([1.0, 2.0, 3.0])}
    return {
        **{key: kind() for key, kind in peer_rows.ROW_KEYS.items() if isinstance(kind, type)},
        **{"label": label, "op": "op", "bytes": 1, "sets": 1, "wall_s": 1.0, "providers": {"rooftune": ours}},
    }


class RunTest(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.addCleanup(self.temp.cleanup)
        self.file = pathlib.Path(self.temp.name) / "sub" / "rows.ndjson.gz"

    def run_cases(self, measure, budget=None, labels="abc"):
        writer = suite.Writer(self.file)
        run = {key: kind() for key, kind in peer_rows.RUN_KEYS.items()}
        writer.put("run", {**run, "schema": 1})
        cases = [types.SimpleNamespace(label=label, op=label) for label in labels]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
            reason, left = suite.run_cases(cases, measure, budget or suite.Budget(None), writer)
        writer.put("end", {"reason": reason, "left": left})
        writer.close()
        _, rows, end = peer_rows.read_file(self.file)
        self.assertEqual(end, {"reason": reason, "left": left})
        return [row["label"] for row in rows], reason, left, errors.getvalue()

    def test_all(self):
        self.assertEqual(self.run_cases(lambda case: good_row(case.label))[:3], (["a", "b", "c"], "done", []))

    def test_the_budget_stops_between_shapes(self):
        now = [0.0]
        budget = suite.Budget(100, lambda: now[0])

        def measure(case):
            now[0] += 45
            return {**good_row(case.label), "wall_s": 45.0}

        self.assertEqual(self.run_cases(measure, budget)[:3], (["a", "b"], "budget", ["c"]))

    def test_an_error_keeps_what_was_measured(self):
        def measure(case):
            if case.label == "b":
                raise RuntimeError("lost")
            return good_row(case.label)

        labels, reason, left, errors = self.run_cases(measure)
        self.assertEqual((labels, reason, left), (["a"], "error", ["b", "c"]))
        self.assertIn("lost", errors)

    def test_a_row_that_says_too_little_is_not_written(self):
        def measure(case):
            row = good_row(case.label)
            if case.label == "b":
                del row["providers"]["rooftune"]["samples_us"]
            return row

        self.assertEqual(self.run_cases(measure)[:3], (["a", "c"], "done", ["b"]))

    def test_selection_by_label_or_operator(self):
        cases = [
            types.SimpleNamespace(label=label, op=op)
            for label, op in (("add_rmsnorm 1", "rmsnorm x"), ("rope", "rope y"))
        ]
        self.assertEqual([c.label for c in suite.select(cases, "^rms")], ["add_rmsnorm 1"])
        self.assertEqual([c.label for c in suite.select(cases, "^(rope|add)")], ["add_rmsnorm 1", "rope"])
        self.assertEqual(len(suite.select(cases, "")), 2)

    def test_options(self):
        options = suite.parse("", ["out.ndjson", "--only", "x", "--budget-seconds", "5"])
        self.assertEqual((options.only, options.budget_seconds, options.rounds), ("x", 5.0, 7))
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
            suite.parse("", ["out.ndjson", "--rounds", "0"])


class ShapesTest(unittest.TestCase):
    def test_the_list(self):
        rows = shapes.read_shapes()
        self.assertEqual(len(rows), 35)
        self.assertEqual(len({(r["m"], r["n"], r["k"]) for r in rows}), 35)
        self.assertEqual(sum(r["fp8"] for r in rows), 8)
        self.assertEqual(sum(r["m"] <= 128 for r in rows), 18)
        # The Triton peers read whole blocks of k.
        self.assertTrue(all(r["k"] % 256 == 0 and r["n"] % 8 == 0 for r in rows))

    def test_experts(self):
        rows = shapes.read_shapes("moe_shapes.csv")
        self.assertEqual(len(rows), 10)
        self.assertTrue(all(r["m"] % r["topk"] == 0 and r["experts"] <= 512 for r in rows))
        # Tiles of the Triton peer don't reach into the next expert's weights, and its scales are of whole blocks.
        self.assertTrue(all(r["n"] % 256 == 0 and r["k"] % 128 == 0 for r in rows))


if __name__ == "__main__":
    unittest.main()
