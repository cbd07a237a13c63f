#!/usr/bin/env python3
"""Grouped GEMM of mixtures of experts: rooftune's templates against a loop over cuBLAS, torch's grouped product and
tuned Triton kernels, bf16 and fp8 with scales of blocks. Needs a GPU, PyTorch with Triton, and rooftuned with its
worker and command line (--bin)."""

import sys

import suite


def make_cases():
    import moe_cases

    return moe_cases.cases()


if __name__ == "__main__":
    sys.exit(suite.main("moe", __doc__, make_cases, dict, sys.argv[1:]))
