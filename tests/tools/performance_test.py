#!/usr/bin/env python3
"""Statistics and format of the comparisons' rows, and the tables of tools/performance.py, whole and with planted faults."""

import contextlib
import gzip
import io
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("ROOFTUNE_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True
import peer_rows  # noqa: E402  (after the path is set)
import performance  # noqa: E402
import summarize  # noqa: E402

RUN = {
    "schema": 1,
    "suite": "memory_bound",
    "time": "2026-11-29T20:00:00Z",
    "device": "NVIDIA H200",
    "card": "0123abcd",
    "driver": "580.159.04",
    "versions": {"torch": "2.11.0"},
    "method": {"rounds": 7},
}

RECORD = {
    "name": "records/r",
    "template_id": "softmax",
    "template_revision": "0123456789abcdef0123",
    "config": {"block": "256"},
    "environment": {"driver": "580.159.04", "nvrtc": "13.0", "rooftune": "0.1.0"},
}


def timed(role, us, **more):
    entry = {
        "role": role,
        "status": "ok",
        "launches": 20,
        "output": "preallocated",
        "error": 0.0017,
        "worst": 0.3,
        "scratch_bytes": 0,
        "prepare_s": 1.5,
        **peer_rows.summary_of([us * factor for factor in (0.99, 1, 1.01)]),
    }
    return {**entry, **more}


def row(label="softmax 16384x8192", op="softmax rows=16384 cols=8192 dtype=bf16", **more):
    made = {
        "op": op,
        "label": label,
        "shape": {"rows": 16384, "cols": 8192},
        "dtype": "bf16",
        "bytes": 536870912,
        "flops": 0,
        "sets": 2,
        "l2": "cold, rotated",
        "clock": "cool",
        "reference": "double",
        "bounds": {"floor_us": 111.5, "attainable_us": 126.0, "bound": "MEMORY"},
        "clocks": {},
        "phases_s": {},
        "time": "2026-11-29T20:01:00Z",
        "wall_s": 9.5,
        "providers": {
            "rooftune": timed("ours", 130, record=RECORD, served="TEMPLATE"),
            "torch": timed("peer", 500),
            "torch.compile": timed("peer", 300),
            "triton": timed("peer", 128),
            "copy": timed("copy", 125),
        },
    }
    return {**made, **more}


def gemm_row(m, mine, cublas, best, served="TEMPLATE", dtype="bf16", time="2026-11-29T20:01:00Z"):
    providers = {
        "rooftune": timed("ours", mine, record={**RECORD, "template_id": "gemm_wgmma"}, served=served),
        "cublas": timed("peer", cublas),
        "cublaslt_best": timed("peer", best),
    }
    return row(
        f"layer {m}x4096x4096",
        f"gemm m={m} n=4096 k=4096 dtype={dtype}",
        shape={"m": m, "n": 4096, "k": 4096},
        dtype=dtype,
        bytes=10**8,
        flops=2 * m * 4096 * 4096,
        bounds={"floor_us": 1.0, "attainable_us": 0.8 * mine, "bound": "COMPUTE"},
        providers=providers,
        time=time,
    )


class StatisticsTest(unittest.TestCase):
    def test_median(self):
        self.assertEqual(peer_rows.median([3, 1, 2]), 2)
        self.assertEqual(peer_rows.median([4, 1, 2, 3]), 2.5)
        self.assertRaises(ValueError, peer_rows.median, [])

    def test_interval_holds_the_median_as_often_as_it_says(self):
        generator, held, count = random.Random(1), 0, 2000
        for _ in range(count):
            low, high = peer_rows.median_interval([generator.gauss(0, 1) for _ in range(15)])
            held += low <= 0 <= high
        self.assertGreater(held / count, 0.945)
        self.assertLess(held / count, 0.995, "so wide an interval says nothing")

    def test_interval_of_few_samples_is_all_of_them(self):
        self.assertEqual(peer_rows.median_interval([5]), (5, 5))
        self.assertEqual(peer_rows.median_interval([3, 1, 2]), (1, 3))
        # 15 samples: P(Binomial(15, 1/2) < 4) = 0.0176, twice that is below 5 %, with 5 it is not.
        self.assertEqual(peer_rows.median_interval(range(1, 16)), (4, 12))

    def test_geomean(self):
        self.assertAlmostEqual(peer_rows.geomean([2, 8]), 4)
        self.assertRaises(ValueError, peer_rows.geomean, [])
        self.assertRaises(ValueError, peer_rows.geomean, [1, 0])

    def test_every_round_has_everybody_and_another_first(self):
        orders = peer_rows.rounds("abc", 7)
        self.assertTrue(all(sorted(order) == ["a", "b", "c"] for order in orders))
        self.assertEqual({order[0] for order in orders[:3]}, {"a", "b", "c"})
        followers = {tuple(order[i : i + 2]) for order in orders for i in range(2)}
        self.assertGreater(len(followers), 3, "the neighbours change")
        self.assertEqual(peer_rows.rounds([], 2), [[], []])

    def test_launches_of_a_graph(self):
        self.assertEqual(peer_rows.launches_of_graph(10, 4, 2500, True, 1000), 248, "whole rotations")
        self.assertEqual(peer_rows.launches_of_graph(1, 4, 2500, True, 300), 300, "no more than the cap")
        self.assertEqual(peer_rows.launches_of_graph(2000, 4, 2500, True, 300), 4, "all sets, or the L2 stays warm")
        self.assertEqual(peer_rows.launches_of_graph(2000, 2, 2500, False, 300), 1)

    def test_bursts_stay_below_their_limit(self):
        for graph_us in (500, 2500, 3300, 4900, 6000, 20000):
            untimed, replays = peer_rows.replays_of_burst(graph_us, 10000)
            self.assertGreaterEqual(replays, 1)
            self.assertTrue((untimed + replays) * graph_us <= 10000 or (untimed, replays) == (0, 1), graph_us)

    def test_the_median_is_that_of_the_samples_as_written(self):
        # An even number of samples with more digits than are kept.
        entry = timed("ours", 1, **peer_rows.summary_of([1.23456789, 1.23457891, 7.0000001, 1.0]))
        self.assertEqual(peer_rows.provider_problems("p", json.loads(json.dumps(entry))), [])
        generator = random.Random(2)
        for count in range(1, 40):
            entry.update(peer_rows.summary_of([generator.uniform(1, 2) for _ in range(count)]))
            self.assertEqual(peer_rows.provider_problems("p", entry), [])

    def test_what_is_no_time(self):
        for samples in ([], [0.0], [-1.0], [float("nan")], [float("inf")], ["3"]):
            self.assertRaises(ValueError, peer_rows.summary_of, samples)


class FormatTest(unittest.TestCase):
    def test_a_good_row(self):
        self.assertEqual(peer_rows.row_problems(row()), [])

    def test_every_missing_key_is_seen(self):
        for key in peer_rows.ROW_KEYS:
            bad = row()
            del bad[key]
            self.assertIn(f"lacks '{key}'", " ".join(peer_rows.row_problems(bad)))
        for key in peer_rows.TIMED_KEYS:
            bad = row()
            del bad["providers"]["triton"][key]
            self.assertIn(f"triton lacks '{key}'", " ".join(peer_rows.row_problems(bad)))

    def test_a_wrong_provider_has_no_time(self):
        bad = row()
        bad["providers"]["triton"].update(status="wrong", message="error 1")
        self.assertIn("triton is wrong and has a 'median_us'", " ".join(peer_rows.row_problems(bad)))
        del bad["providers"]["triton"]["median_us"], bad["providers"]["triton"]["samples_us"]
        self.assertEqual(peer_rows.row_problems(bad), [])
        self.assertNotIn("triton", peer_rows.timed(bad))
        bad["providers"]["triton"]["message"] = ""
        self.assertIn("does not say why", " ".join(peer_rows.row_problems(bad)))

    def test_a_median_that_is_not_that_of_the_samples(self):
        bad = row()
        bad["providers"]["rooftune"]["median_us"] *= 0.9
        self.assertIn("not those of the samples", " ".join(peer_rows.row_problems(bad)))

    def test_a_row_without_ours(self):
        bad = row()
        del bad["providers"]["rooftune"]
        self.assertIn("without ours", " ".join(peer_rows.row_problems(bad)))


class PerformanceTest(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.addCleanup(self.temp.cleanup)
        self.root = pathlib.Path(self.temp.name).resolve()
        self.folder = self.root / "docs" / "evidence" / "nvidia-h200" / "peers"
        self.folder.mkdir(parents=True)
        self.page = self.root / "page.md"

    def write(self, rows, name="a.ndjson.gz", **run):
        lines = [{"run": {**RUN, **run}}, *({"row": r} for r in rows), {"end": {"reason": "done", "left": []}}]
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        (self.folder / name).write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)

    def run_tool(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = performance.main(["--root", str(self.root), *map(str, arguments)])
        return code, out.getvalue(), err.getvalue()

    def table(self, name):
        self.page.write_text(f"a\n<!-- performance:{name} -->\n<!-- /performance -->\nb\n", encoding="utf-8")
        code, _, err = self.run_tool("--table", self.page)
        self.assertEqual((code, err), (0, ""))
        text = self.page.read_text(encoding="utf-8")
        self.assertTrue(text.startswith("a\n") and text.endswith("\nb\n"))
        self.assertEqual(self.run_tool("--check", "--check-tables", self.page)[0], 0)
        return text

    def test_without_rows_it_says_so(self):
        for name in ("memory_bound_summary", "memory_bound", "rearranging", "gemm_summary", "gemm_bf16", "gemm_fp8", "gemm_int8"):
            self.assertIn("Not measured yet.", self.table(name))

    def test_memory_bound(self):
        self.write([row()])
        text = self.table("memory_bound")
        self.assertIn(
            "| softmax 16384x8192 | 536.9 | 130 (128.7–131.3) | 97 % | 1.04 | 500 (3.85×) | 300 (2.31×) | 128 (0.98×) | "
            "1.5 | 0.98× |",
            text,
        )
        summary = self.table("memory_bound_summary")
        self.assertIn(
            "against torch.compile: 2.308× over 1 shape, 1 above 1, worst 2.308× (softmax 16384x8192)", summary
        )
        self.assertIn("against the fastest peer of each shape: 0.985× over 1 shape, 0 above 1", summary)
        self.assertIn("share of `attainable` from 256 MB on: 97 % or more", summary)
        self.assertIn("NVIDIA H200, driver 580.159.04; 2026-11-29; cards 0123abcd", summary)
        self.assertIn("`docs/evidence/nvidia-h200/peers/a.ndjson.gz`", summary)
        self.assertNotIn("small shapes", summary)

    def test_a_wrong_peer_is_left_out_and_named(self):
        faulty = row()
        faulty["providers"]["triton"] = {"role": "peer", "status": "wrong", "message": "error 3.0e-01"}
        self.write([faulty])
        text = self.table("memory_bound")
        self.assertIn("| 300 (2.31×) | – | 1.5 | 2.31× |", text)
        self.assertIn("Not timed: triton of softmax 16384x8192: wrong, error 3.0e-01.", text)
        self.assertIn("against Triton: not measured", self.table("memory_bound_summary"))

    def test_ours_that_failed_has_no_ratio(self):
        faulty = row()
        faulty["providers"]["rooftune"] = {"role": "ours", "status": "wrong", "message": "error 1"}
        self.write([faulty])
        self.assertIn("| softmax 16384x8192 | 536.9 | wrong | – | – | 500 (–) |", self.table("memory_bound"))

    def test_small_shapes_beside_a_copy(self):
        small = row("rmsnorm 64x4096", "rmsnorm rows=64 cols=4096 dtype=bf16", bytes=1048576)
        small["bounds"] = {"floor_us": 0.2, "attainable_us": 2.0, "bound": "LAUNCH"}
        self.write([row(), small])
        self.assertIn(
            "at most 1.04 of the time of a copy of the same bytes (1 shapes", self.table("memory_bound_summary")
        )

    def test_rearranging_has_the_memory(self):
        moved = row("permute transpose", "permute d0=16384 d1=16384 dtype=bf16 perm=10")
        moved["providers"]["torch"]["scratch_bytes"] = 2000000
        self.write([row(), moved])
        text = self.table("rearranging")
        self.assertIn(
            "| permute transpose | 536.9 | 130 (128.7–131.3) | 0 | 500 (3.85×) | 2 | – | – | 300 (2.31×) | 0 |", text
        )
        self.assertNotIn("softmax", text)

    def test_gemm_classes(self):
        rows = [gemm_row(1, 10, 12, 11), gemm_row(128, 10, 9, 8), gemm_row(4096, 100, 105, 90, served="CUBLASLT")]
        self.write(rows, suite="gemm")
        text = self.table("gemm_summary")
        self.assertIn("m ≤ 128, template against cuBLASLt best: 0.938× over 2 shapes, 1 above 1, worst 0.800×", text)
        self.assertIn("m ≥ 512, template against cuBLASLt best: 0.900× over 1 shape", text)
        # 12/10 · 9/10 · 105/90: where the library is served, its best algorithm's time counts.
        self.assertIn("served (template or library) against cuBLAS: 1.080× over 3 shapes", text)
        self.assertIn("share of `attainable`: 80 % (geometric mean)", text)
        self.assertIn("fp8, m ≤ 64, template against the best of cuBLASLt: not measured", text)
        self.assertIn(
            "| gemm_wgmma | 80 % | 1374 | 105 (1.05×) | – | 90 (0.90×) | – | 0.90× |", self.table("gemm_bf16")
        )
        self.assertIn("Not measured yet.", self.table("gemm_fp8"))

    def test_the_newest_row_counts_and_files_add_up(self):
        self.write([gemm_row(1, 10, 12, 11), gemm_row(2, 10, 12, 11)], suite="gemm")
        self.write([gemm_row(1, 5, 12, 11, time="2026-11-30T01:00:00Z")], "b.ndjson", suite="gemm", card="ffff0000")
        text = self.table("gemm_bf16")
        self.assertIn("| layer 1x4096x4096 | 5 (4.95–5.05) |", text)
        self.assertIn("| layer 2x4096x4096 | 10 (9.9–10.1) |", text)
        self.assertIn("cards 0123abcd, ffff0000", self.table("gemm_summary"))

    def test_a_time_below_the_floor_is_refused(self):
        fast = row()
        fast["providers"]["triton"] = timed("peer", 50)
        self.write([fast])
        code, _, err = self.run_tool("--check")
        self.assertEqual(code, 1)
        self.assertIn("triton took 50.0 µs, less than the floor of 111.5 µs", err)

    def test_a_stale_table_and_broken_files(self):
        self.write([row()])
        self.page.write_text("<!-- performance:memory_bound -->\nold\n<!-- /performance -->\n", encoding="utf-8")
        self.assertIn("out of date", self.run_tool("--check-tables", self.page)[2])
        self.page.write_text("<!-- performance:memory_bound -->\n", encoding="utf-8")
        self.assertIn("without its end", self.run_tool("--check-tables", self.page)[2])
        self.page.write_text("<!-- performance:other -->\n<!-- /performance -->\n", encoding="utf-8")
        self.assertIn("no table is called 'other'", self.run_tool("--check-tables", self.page)[2])
        for text, needle in (
            ('{"row": {}}\n', "the run must come first"),
            ("{", "Expecting"),
            ("[1]\n", "neither run"),
            ("", "empty"),
        ):
            (self.folder / "b.ndjson").write_text(text, encoding="utf-8")
            self.assertIn(needle, self.run_tool("--check")[2])
        (self.folder / "b.ndjson").unlink()
        self.write([row()], schema=2)
        self.assertIn("newer than this tool", self.run_tool("--check")[2])

    def test_comparisons_are_rows_of_the_summary(self):
        shutil.copytree(ROOT / "costmodel" / "ops", self.root / "costmodel" / "ops")
        self.write([row()])
        self.write([gemm_row(4096, 100, 105, 90, served="CUBLASLT")], "b.ndjson", suite="gemm")
        rows = summarize.summarize(self.root, self.root / "docs" / "evidence")
        summarize.check(rows, "evidence")
        template, library = (r for r in rows if r["suite"] == "gemm_bf16")
        if template["provider"] != "TEMPLATE":
            template, library = library, template
        self.assertEqual((template["time_us"], template["baselines"]), (100, {"cublas": 105, "cublaslt_best": 90}))
        self.assertEqual(
            (library["provider"], library["time_us"], library["baselines"]), ("CUBLASLT", 90, {"cublas": 105})
        )
        self.assertEqual(template["candidate_impl"], "gemm_wgmma@0123456789abcdef")
        softmax = next(r for r in rows if r["suite"] == "rows")
        self.assertEqual(softmax["baselines"], {"copy": 125, "torch": 500, "torch.compile": 300, "triton": 128})
        self.assertEqual((softmax["l2"], softmax["clock"], softmax["attainable_us"]), ("cold", "cool", 126.0))
        with self.assertRaisesRegex(summarize.EvidenceError, "no evidence of suite 'rows'"):
            summarize.table(rows, "rows")

    def test_without_arguments_it_prints_the_summaries(self):
        self.write([row()])
        self.assertIn("against PyTorch: 3.846×", self.run_tool()[1])


if __name__ == "__main__":
    unittest.main()
