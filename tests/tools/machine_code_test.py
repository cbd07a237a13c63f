#!/usr/bin/env python3
"""tools/machine_code.py over cubins made here: what counts as another kernel, and what does not."""
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("ROOFTUNE_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
TOOL = ROOT / "tools" / "machine_code.py"
NO_BITS = 8


def cubin(**changed) -> bytes:
    """An ELF file with the sections that cubins have, some with other bytes."""
    sections = {".text.k": b"code" * 4, ".nv.constant0.k": b"parameters", ".nv.constant4": b"names", ".nv.info": b"info",
                ".nv.shared.k": 512}
    for name, body in changed.items():
        sections[f".{name.replace('_', '.')}"] = body
    names = b"\0" + b"\0".join(name.encode() for name in sections) + b"\0.shstrtab\0"
    body, headers = b"", b""
    for name, content in [*sections.items(), (".shstrtab", names)]:
        kind, size = (NO_BITS, content) if isinstance(content, int) else (1, len(content))
        headers += struct.pack("<IIQQQQIIQQ", names.index(name.encode()), kind, 0, 0, 64 + len(body), size, 0, 0, 1, 0)
        body += b"" if kind == NO_BITS else content
    head = b"\x7fELF\x02".ljust(0x28, b"\0") + struct.pack("<Q", 64 + len(body))
    head = head.ljust(0x3A, b"\0") + struct.pack("<HHH", 64, len(sections) + 1, len(sections))
    return head.ljust(64, b"\0") + body + headers


class MachineCodeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.sides = [pathlib.Path(folder.name) / side for side in ("before", "after")]
        for side in self.sides:
            side.mkdir()

    def compare(self, before, after):
        """Each a dict of templates and their cubins, which lie in frames between other bytes."""
        for side, files in zip(self.sides, (before, after)):
            for name, found in files.items():
                (side / f"{name}.frames").write_bytes(b"".join(b"a frame, " + one + b", its end" for one in found))
        done = subprocess.run([sys.executable, TOOL, *self.sides], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    def test_same(self):
        self.assertEqual(self.compare({"k": [cubin(), cubin()]}, {"k": [cubin(), cubin()]}), (0, ["k 2 same"]))

    def test_names_do_not_count(self):
        self.assertEqual(self.compare({"k": [cubin()]}, {"k": [cubin(nv_constant4=b"more names", nv_info=b"other")]}),
                         (0, ["k 1 same"]))

    def test_code_constants_and_shared_memory_count(self):
        for other in (cubin(text_k=b"codf" * 4), cubin(nv_constant0_k=b"parameterz"), cubin(nv_constant3=b"new"),
                      cubin(nv_shared_k=513)):
            self.assertEqual(self.compare({"k": [cubin(), cubin()]}, {"k": [cubin(), other]}), (1, ["k 2 DIFFERENT 1"]))

    def test_one_that_is_missing_differs(self):
        self.assertEqual(self.compare({"k": [cubin(), cubin()]}, {"k": [cubin()]}), (1, ["k 1 DIFFERENT 1"]))

    def test_new_and_gone(self):
        self.assertEqual(self.compare({"old": [cubin()], "k": [cubin()]}, {"k": [cubin()], "young": [cubin()]}),
                         (1, ["k 1 same", "old gone", "young new"]))

    def test_nothing_to_compare_is_an_error(self):
        self.assertEqual(self.compare({"k": [cubin()]}, {})[0], 2)


if __name__ == "__main__":
    unittest.main()
