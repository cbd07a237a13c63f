"""Shapes of gemm_shapes.csv and the like."""

import csv
import pathlib

FOLDER = pathlib.Path(__file__).parent


def read_shapes(name="gemm_shapes.csv") -> list:
    """[{model, layer, m, n, k, fp8, …}], numbers as integers."""
    with open(FOLDER / name, encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [{k: v if k in ("model", "layer") else int(v) for k, v in row.items()} for row in rows]
