"""The GEMM shapes of gemm_shapes.csv."""

import csv
import pathlib

FILE = pathlib.Path(__file__).parent / "gemm_shapes.csv"


def read_shapes(path=FILE) -> list:
    """[{model, layer, m, n, k, fp8}], numbers as integers."""
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [{k: v if k in ("model", "layer") else int(v) for k, v in row.items()} for row in rows]
