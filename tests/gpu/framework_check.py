#!/usr/bin/env python3
"""Fetches tuned kernels from the daemon at ROOFTUNE_ADDRESS, launches them by their recipes on PyTorch tensors and
compares with PyTorch in higher precision. Where the record is a call of cuBLASLt, that call is made. Needs a GPU, torch,
grpcio and the package in client/python; `framework_check.py --list` prints the operators to tune before."""
import sys

import rooftune
import torch


PRODUCTS = ((4096, 4096, 4096), (128, 4096, 4096), (64, 576, 7168), (1, 4096, 4096), (512, 1280, 8192), (1000, 3333, 777))
ROWS = ("softmax rows=16384 cols=8192 dtype=bf16", "rmsnorm rows=16384 cols=8192 dtype=bf16 residual=1")


def error(got, want):
    return ((got.double() - want).norm() / want.norm()).item()


def check(name, got, want, limit):
    value = error(got, want)
    verdict = "ok" if value <= limit and not torch.isnan(got).any() else "WRONG"
    print(f"{verdict:5} {name}: relative error {value:.2e} (limit {limit:.0e})")
    return verdict == "ok"


def median_us(launch, repeats=30):
    for _ in range(3):
        launch()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        launch()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return sorted(times)[repeats // 2]


def main():
    torch.manual_seed(3)
    client, good = rooftune.Client(), True
    random = lambda *shape, dtype=torch.bfloat16: torch.randn(*shape, device="cuda", dtype=dtype)

    for m, n, k in PRODUCTS:
        gemm = client.load("gemm", m=m, n=n, k=k, dtype="bf16")
        a, w = random(m, k), random(n, k)
        good &= check(f"gemm {m}x{n}x{k} {gemm.record.config or 'cuBLASLt'}", gemm(a=a, b=w)["d"].view(m, n), a.double() @ w.double().T, 5e-3)

    softmax = client.load(ROWS[0])
    x = random(16384, 8192)
    y = torch.full_like(x, float("nan"))
    softmax(x=x, y=y)  # a given output is written
    good &= check("softmax 16384x8192", y, torch.softmax(x.double(), -1), 5e-3)

    norm = client.load(ROWS[1])
    x, r, w = random(16384, 8192), random(16384, 8192), random(8192)
    out = norm(x=x, residual=r, weight=w, eps=1e-5)
    total = (x + r).double()
    good &= check("rmsnorm 16384x8192 residual", out["residual_out"], total, 1e-8)
    want = total * torch.rsqrt((total * total).mean(-1, keepdim=True) + 1e-5) * w.double()
    good &= check("rmsnorm 16384x8192", out["y"], want, 5e-3)

    # Graph capture and another stream: the launch path neither allocates nor synchronises.
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        y.zero_()
        norm_out = {"y": torch.empty_like(x), "residual_out": torch.empty_like(x)}
        norm(x=x, residual=r, weight=w, eps=1e-5, **norm_out)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            norm(x=x, residual=r, weight=w, eps=1e-5, **norm_out)
        norm_out["y"].zero_()
        graph.replay()
        side.synchronize()
    good &= check("rmsnorm replayed from a CUDA graph", norm_out["y"], want, 5e-3)
    print(f"host-timed rmsnorm launch {median_us(lambda: norm(x=x, residual=r, weight=w, **norm_out)):.1f} us, "
          f"record says {norm.record.time_us:.1f} us cold")

    for wrong, message in ((dict(a=random(3, 3), b=w), "shape"), (dict(a=x.float(), b=w), "float32"), (dict(a=a), "missing")):
        try:
            gemm(**wrong)
            print(f"WRONG  accepted a bad call ({message})")
            good = False
        except (TypeError, ValueError) as refusal:
            good &= message in str(refusal) or print("WRONG ", refusal) is not None
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join([f"gemm m={m} n={n} k={k} dtype=bf16" for m, n, k in PRODUCTS] + list(ROWS)))
    else:
        sys.exit(main())
