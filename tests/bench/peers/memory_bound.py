#!/usr/bin/env python3
"""Memory-bound operators: rooftune against PyTorch, torch.compile, tuned Triton kernels and a plain copy of the same
bytes. Needs a GPU, PyTorch with Triton, and rooftuned with its worker and command line (--bin)."""

import sys

import suite


def make_cases():
    import rows_cases

    return rows_cases.cases()


if __name__ == "__main__":
    sys.exit(suite.main("memory_bound", __doc__, make_cases, dict, sys.argv[1:]))
