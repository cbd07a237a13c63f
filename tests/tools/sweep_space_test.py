#!/usr/bin/env python3
"""The table of random sweeps, from evidence made here."""
import json
import lzma
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("ROOFTUNE_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
TOOL = ROOT / "tools" / "sweep_space.py"


def trial(op, predicted, measured, outcome="OK"):
    line = {"op": op, "outcome": outcome, "resources": {"registers_per_thread": 64}, "prediction": {"time_us": predicted}}
    if outcome == "OK":
        line["measurement"] = {"median_us": measured}
    return json.dumps({"trial": line}) + "\n"


class SweepSpaceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.file = self.root / "docs" / "evidence" / "some-gpu" / "gemm_space" / "20260101-1of1.jsonl.xz"
        self.file.parent.mkdir(parents=True)
        self.page = self.root / "page.md"
        self.page.write_text("before\n<!-- sweep_space -->\n<!-- /sweep_space -->\nafter\n", encoding="utf-8")

    def write(self, text):
        self.file.write_bytes(lzma.compress(text.encode()))

    def run_tool(self, *arguments):
        return subprocess.run([sys.executable, TOOL, "--root", self.root, *arguments], capture_output=True, text=True,
                              check=False)

    def test_says_what_the_first_predicted_lose(self):
        # The fastest is predicted to be the 17th: the first 16 lose 10/8 - 1 = 25 %, the first 64 nothing.
        self.write('{"run": {}}\n' + "".join(trial("gemm m=16 n=8 k=8", 1 + i, 10) for i in range(16)) +
                   trial("gemm m=16 n=8 k=8", 20, 8) + trial("gemm m=16 n=8 k=8", 5, 0, "SPILLS") +
                   '{"trial": {"op": "gemm m=16 n=8 k=8", "outcome": "COMPILE_FAILED"}}\n')
        answer = self.run_tool()
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn("| 16 | 1 | 18 | 18 | 1 | 1.2× |", answer.stdout)
        self.assertIn("| 25.0 %, 25.0 % | 0.0 %, 0.0 % |", answer.stdout)

    def test_writes_and_checks_the_table(self):
        self.write(trial("gemm m=16 n=8 k=8", 1, 2))
        self.assertEqual(self.run_tool("--check-tables", self.page).returncode, 1)
        self.assertEqual(self.run_tool("--table", self.page).returncode, 0)
        self.assertEqual(self.run_tool("--check-tables", self.page).returncode, 0)
        text = self.page.read_text(encoding="utf-8")
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"), text)

    def test_refuses_what_it_cannot_read(self):
        for content in (b"no xz", lzma.compress(b"no json\n"), lzma.compress(b'{"run": {}}\n'),
                        lzma.compress(trial("gemm n=8", 1, 2).encode())):
            self.file.write_bytes(content)
            answer = self.run_tool()
            self.assertEqual(answer.returncode, 1, content)
            self.assertEqual(answer.stderr.count("\n"), 1, answer.stderr)


if __name__ == "__main__":
    unittest.main()
