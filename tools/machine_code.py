#!/usr/bin/env python3
"""Whose machine code did a change touch?

  machine_code.py BEFORE AFTER   two folders that `make_batch DIR --profile ID` wrote, of two states of the sources

One line a template: its cubins (references among them), and "same", or how many differ in code, constants or shared
memory. Names and tables of names do not count: .nv.constant4 holds addresses of named constants, one for each that a header
declares, used or not. Exit code 1 if any differ, appear or are gone.
"""
import argparse
import collections
import hashlib
import pathlib
import struct
import sys

COUNTED = (b".text.", b".nv.constant", b".nv.shared")
NOT_COUNTED = (b".nv.constant4",)
NO_BITS = 8  # the section has a size but no bytes in the file


def code_of(elf: bytes):
    """(digest of what counts, the file's length) of the cubin that begins `elf`; None if it is none."""
    try:
        table, = struct.unpack_from("<Q", elf, 0x28)
        size, number, names = struct.unpack_from("<HHH", elf, 0x3A)
        headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(number)]
        digest = hashlib.sha256()
        for name_at, kind, _, _, offset, length in headers:
            name = elf[headers[names][4] + name_at :].split(b"\0", 1)[0]
            if not name.startswith(COUNTED) or name in NOT_COUNTED:
                continue
            body = b"" if kind == NO_BITS else elf[offset : offset + length]
            digest.update(b"%s %d %s" % (name, length, body))
    except (struct.error, IndexError):
        return None
    return digest.hexdigest(), table + number * size


def cubins(frames: bytes) -> list:
    """Digests of the cubins in the frames, which hold them as they are."""
    found, at = [], frames.find(b"\x7fELF\x02")
    while at >= 0:
        code = code_of(frames[at:])
        if code:
            found.append(code[0])
        at = frames.find(b"\x7fELF\x02", at + (code[1] if code else 1))
    return found


def verdict(before: list, after: list) -> str:
    old, new = collections.Counter(before), collections.Counter(after)
    differing = max((new - old).total(), (old - new).total())
    return f"DIFFERENT {differing}" if differing else "same"


def main(arguments) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    options = parser.parse_args(arguments)
    sides = [{f.stem: f for f in folder.glob("*.frames")} for folder in (options.before, options.after)]
    for folder, files in zip((options.before, options.after), sides):
        if not files:
            print(f"{folder}: no frames", file=sys.stderr)
            return 2
    same = True
    for name in sorted({*sides[0], *sides[1]}):
        if name not in sides[1] or name not in sides[0]:
            text = f"{name} {'new' if name in sides[1] else 'gone'}"
        else:
            before, after = (cubins(side[name].read_bytes()) for side in sides)
            text = f"{name} {len(after)} {verdict(before, after)}"
        same &= text.endswith(" same")
        print(text)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
