#!/usr/bin/env python3
"""Fails on an #include that goes against the dependency arrows, and on a third-party header where it has no business."""
import pathlib
import re
import sys

# What each folder may include beside itself; rooftune/*.pb.h messages are for everyone.
ARROWS = {
    "base": [],
    "expr": ["base"],
    "costmodel": ["expr", "base"],
    "kernels": ["costmodel", "expr", "base"],
    "tuner/wire": ["base"],
    "tuner/search": ["costmodel", "expr", "base"],
    "tuner/store": ["base"],
    "tuner/compile": ["tuner/wire", "kernels", "costmodel", "expr", "base"],
    "tuner/run": ["tuner/wire", "kernels", "costmodel", "expr", "base"],
    "tuner/worker": ["tuner/wire", "tuner/compile", "kernels", "costmodel", "expr", "base"],
    "tuner/sweep": ["tuner/search", "tuner/store", "tuner/run", "tuner/compile", "tuner/wire", "kernels", "costmodel",
                    "expr", "base"],
    "server": ["tuner/sweep", "tuner/search", "tuner/store", "tuner/run", "tuner/compile", "tuner/wire", "kernels",
               "costmodel", "expr", "base"],
    "client": ["base"],
}
# Header prefixes that only these folders may include.
ONLY = {
    "cuda.h": ["tuner/worker"], "nvrtc.h": ["tuner/worker"], "cublasLt.h": ["tuner/worker"],
    "sqlite3.h": ["tuner/store"],
    "grpcpp/": ["server", "client"], "grpc/": ["server", "client"], "CLI/": ["client"],
    "openssl/": ["base"],
}


def owner(path: str):
    return next((f for f in sorted(ARROWS, key=len, reverse=True) if path.startswith(f + "/")), None)


def violations(root: pathlib.Path):
    for file in sorted(root.rglob("*")):
        rel = file.relative_to(root).as_posix()
        folder = owner(rel)
        if folder is None or file.suffix not in (".h", ".cc", ".inc"):
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
            if not match:
                continue
            target = match.group(1)
            other = owner(target)
            if other and other != folder and other not in ARROWS[folder]:
                yield f"{rel}:{number}: {folder} must not include {other} ({target})"
            if target.endswith(".grpc.pb.h") and folder not in ("server", "client"):
                yield f"{rel}:{number}: services are for server and client only ({target})"
            for prefix, allowed in ONLY.items():
                if target.startswith(prefix) and folder not in allowed:
                    yield f"{rel}:{number}: only {', '.join(allowed)} may include {target}"


def self_check():
    """A planted violation must be found."""
    import tempfile
    with tempfile.TemporaryDirectory() as tmp:
        root = pathlib.Path(tmp)
        (root / "base").mkdir()
        (root / "base" / "bad.h").write_text('#include "kernels/candidate.h"\n#include <sqlite3.h>\n')
        assert len(list(violations(root))) == 2, "the checker does not see planted violations"


self_check()
found = list(violations(pathlib.Path(sys.argv[1])))
print("\n".join(found))
sys.exit(1 if found else 0)
