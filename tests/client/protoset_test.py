#!/usr/bin/env python3
"""Fails if the descriptor set that the Python package carries is not that of the protos. Arguments: built, committed."""
import pathlib
import sys

from google.protobuf import descriptor_pb2


def files(path):
    """Files of a descriptor set by name; their order in the set says nothing."""
    parsed = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(path).read_bytes())
    return {file.name: file for file in parsed.file}


built, committed = files(sys.argv[1]), files(sys.argv[2])
different = sorted(n for n in built.keys() | committed.keys() if built.get(n) != committed.get(n))
if different:
    print(f"{sys.argv[2]} is out of date: {', '.join(different)}.\nUpdate it: cp {sys.argv[1]} {sys.argv[2]}")
    sys.exit(1)
