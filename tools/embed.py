#!/usr/bin/env python3
"""Writes a C++ file that holds other files as byte strings (see rooftune_embed in cmake/)."""
import argparse
import os

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", required=True)
parser.add_argument("--function", required=True)
parser.add_argument("--header", required=True)
parser.add_argument("--root", required=True)
parser.add_argument("files", nargs="+")
args = parser.parse_args()


def literal(data: bytes) -> str:
    """A concatenation of short literals; octal escapes end after three digits, so they never run on."""
    lines = []
    for start in range(0, len(data), 4000):
        chunk = data[start:start + 4000]
        text = "".join(
            chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else "\\n" if b == 10 else "\\%03o" % b for b in chunk)
        lines.append('    "%s"' % text)
    return "\n".join(lines) or '    ""'


with open(args.out, "w", encoding="ascii") as out:
    out.write('// Made by tools/embed.py; do not edit.\n#include "%s"\n\nnamespace rooftune {\n\n' % args.header)
    out.write("const std::vector<EmbeddedFile>& %s() {\n" % args.function)
    out.write("  static const auto& files = *new std::vector<EmbeddedFile>{\n")
    for path in sorted(args.files):
        data = open(path, "rb").read()
        name = os.path.relpath(path, args.root)
        out.write('      {"%s", std::string(\n%s,\n    %d)},\n' % (name, literal(data), len(data)))
    out.write("  };\n  return files;\n}\n\n}  // namespace rooftune\n")
