#!/usr/bin/env python3
"""Runs tests/gpu/sanitize.sh with a compute-sanitizer that only pretends."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("ROOFTUNE_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))

MAKE_BATCH = """#!/bin/bash
if [ "$1" = --show ]; then cat "$2"; exit 0; fi
mkdir -p "$1"
kind=served
[ "$2" = --racecheck ] && kind=every-lane races="race-gemm_no_wait race-softmax_missed"
for name in softmax gemm $races; do echo "$kind" >"$1/$name.frames"; done
"""
WORKER = """#!/bin/bash
# Two processes with one lease would wait for each other.
[ -n "$XDG_RUNTIME_DIR" ] && mkdir "$XDG_RUNTIME_DIR/lease" || exit 3
echo "  ${ANSWERS:-4 answers OK, 0 not}"
"""
SANITIZER = """#!/bin/bash
if [ "$1" = --version ]; then echo "Version 2025.3.0.0"; exit 0; fi
if [ "$1" = --help ]; then echo "  --base-port arg"; exit 0; fi
while [ "$1" != --log-file ]; do
  [ "$1" = --tool ] && tool=$2
  [ "$1" = --base-port ] && echo "$2" >>"$PORTS"
  shift
done
log=$2
shift 2
echo "$tool $(cat "${@: -1}")" >>"$PORTS.frames"
"$@" || exit $?
case "$tool $*" in
  "racecheck "*race-gemm_no_wait*) echo "========= RACECHECK SUMMARY: 3 hazards displayed" >"$log"; exit 9 ;;
  "$BAD "*softmax.frames) echo "========= ERROR SUMMARY: 1 error" >"$log"; exit 9 ;;
esac
[ "$tool" = "$SLOW" ] && sleep 5
echo "========= ERROR SUMMARY: 0 errors" >"$log"
"""


class SanitizeTest(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.tmp = pathlib.Path(temp.name)
        for name, text in {"make_batch": MAKE_BATCH, "rooftune-worker": WORKER, "compute-sanitizer": SANITIZER}.items():
            (self.tmp / name).write_text(text)
            (self.tmp / name).chmod(0o755)

    def run_script(self, **environment):
        env = {**os.environ, "COMPUTE_SANITIZER": str(self.tmp / "compute-sanitizer"), "PORTS": str(self.tmp / "ports"),
               "SANITIZE_JOBS": "4", **environment}
        done = subprocess.run(["bash", ROOT / "tests/gpu/sanitize.sh", self.tmp, self.tmp / "report"], capture_output=True,
                              text=True, env=env, timeout=60)
        return done, json.loads((self.tmp / "report.json").read_text())

    def test_clean(self):
        done, report = self.run_script()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual((report["templates"], report["runs"], report["clean"]), (2, 8, 8))
        self.assertEqual(report["tools"], ["initcheck", "memcheck", "racecheck", "synccheck"])
        self.assertEqual((report["planted_races"], report["planted_races_found"]), (2, 1))
        self.assertEqual(report["version"], "Version 2025.3.0.0")
        self.assertIn("8 of 8 runs clean", done.stdout)
        ports = (self.tmp / "ports").read_text().split()
        self.assertEqual(len(ports), len(set(ports)), "each run has its own")
        self.assertTrue((self.tmp / "report.d" / "memcheck-softmax.txt").exists(), "the tools' logs are kept")

    def test_racecheck_alone_gets_kernels_of_which_every_lane_arrives(self):
        self.run_script()
        given = set((self.tmp / "ports.frames").read_text().splitlines())
        self.assertEqual(given, {"racecheck every-lane", "memcheck served", "synccheck served", "initcheck served"})

    def test_an_error_is_found_and_named(self):
        done, report = self.run_script(BAD="initcheck")
        self.assertEqual(done.returncode, 1)
        self.assertEqual([(r["tool"], r["name"]) for r in report["rows"] if r["result"] == "found" and not r["planted"]],
                         [("initcheck", "softmax")])
        self.assertIn("ERROR SUMMARY: 1 error", done.stdout)

    def test_kernels_that_did_not_run_are_not_clean(self):
        done, report = self.run_script(ANSWERS="0 answers OK, 4 not")
        self.assertEqual((done.returncode, report["clean"]), (1, 0))
        self.assertEqual({r["result"] for r in report["rows"] if not r["planted"]}, {"wrong answers"})

    def test_time_is_bounded_and_what_it_leaves_out_is_said(self):
        done, report = self.run_script(SLOW="racecheck", SANITIZE_LIMIT_S="1")
        self.assertEqual(done.returncode, 1)
        self.assertEqual({r["result"] for r in report["rows"] if r["tool"] == "racecheck" and not r["planted"]}, {"timed out"})
        done, report = self.run_script(SANITIZE_TOTAL_S="0")
        self.assertEqual((done.returncode, {r["result"] for r in report["rows"]}), (1, {"not run"}))

    def test_without_the_tool(self):
        done, report = self.run_script(COMPUTE_SANITIZER="/nowhere", CUDA_PATH="/nowhere", PATH="/usr/bin:/bin")
        if done.returncode != 77:
            self.skipTest("this machine has one")
        self.assertIn("no compute-sanitizer", report["problem"])


if __name__ == "__main__":
    unittest.main()
