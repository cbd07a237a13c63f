#!/usr/bin/env python3
"""GEMM: rooftune's templates against cuBLAS, the best of cuBLASLt's algorithms and tuned Triton kernels, bf16, fp8 and
int8. Needs a GPU, PyTorch with Triton, and rooftuned with its worker and command line (--bin)."""

import sys

import suite


def make_cases():
    import gemm_cases

    return gemm_cases.cases()


def versions():
    import gemm_cases

    return gemm_cases.versions()


if __name__ == "__main__":
    sys.exit(suite.main("gemm", __doc__, make_cases, versions, sys.argv[1:]))
