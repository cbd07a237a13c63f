"""GEMM shapes of gemm_shapes.csv: inputs, references in double precision and peers."""

import time

import torch
import triton

import triton_gemm as kernels
from case import Case
from cublaslt import CublasLt
from provider import Failed, Provider
from shapes import read_shapes
from triton.tools.tensor_descriptor import TensorDescriptor

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
_lt = None


def _library():
    global _lt
    if _lt is None:
        _lt = CublasLt()
    return _lt


def versions() -> dict:
    return {"cublaslt": _library().version}


def _lt_best(context, problem, note="", outs=None):
    """The fastest of all algorithms that the heuristic returns. `outs`: buffer sets of the result, if they are not the
    operator's."""
    start = time.monotonic()
    if not problem.algorithms:
        raise Failed("cuBLASLt's heuristic returned nothing")
    candidates = [
        (index, lambda n=index: problem.calls(n, context.inputs, outs or context.outs))
        for index in range(len(problem.algorithms))
    ]
    index, calls = context.harness.tune(candidates, context.case.bytes, context.rotates)
    provider = Provider("cublaslt_best", "peer", calls, problem.describe(index), note, time.monotonic() - start)
    provider.scratch_bytes = problem.algorithms[index].workspace
    return provider


def _lt_first(context, problem, note="", outs=None):
    if not problem.algorithms:
        raise Failed("cuBLASLt's heuristic returned nothing")
    return Provider(
        "cublaslt_first",
        "peer",
        problem.calls(0, context.inputs, outs or context.outs),
        problem.describe(0),
        note,
        scratch_bytes=problem.algorithms[0].workspace,
    )


def _pointer(m, n, k):
    def build(context):
        configs = kernels.pointer_configs(m, k)
        most = max(c["SPLIT"] for c in configs)
        partial = torch.empty(most * m * n if most > 1 else 1, dtype=torch.float32, device="cuda")

        def launch(i, o, c):
            tiles = triton.cdiv(m, c["BM"]) * triton.cdiv(n, c["BN"])
            kernels.pointer_gemm[(tiles, c["SPLIT"])](i["a"], i["b"], o["d"], partial, m, n, k, **c)
            if c["SPLIT"] > 1:
                kernels.sum_shares[(triton.cdiv(m * n, kernels.REDUCE_BLOCK),)](
                    partial, o["d"], m * n, SPLIT=c["SPLIT"], BLOCK=kernels.REDUCE_BLOCK
                )

        candidates = []
        for c in configs:
            tasks = [("triton_gemm", "pointer_gemm", ("bfloat16", "bfloat16", "bfloat16", "float32", m, n, k), c)]
            if c["SPLIT"] > 1:
                tasks.append(
                    (
                        "triton_gemm",
                        "sum_shares",
                        ("float32", "bfloat16", m * n),
                        dict(SPLIT=c["SPLIT"], BLOCK=kernels.REDUCE_BLOCK),
                    )
                )
            candidates.append((tasks, c, lambda i, o, c=c: launch(i, o, c)))
        return context.triton("triton", candidates, note="pointers, split-K where m is small")

    return build


def _persistent(m, n, k):
    def build(context):
        programs = torch.cuda.get_device_properties(0).multi_processor_count
        described = {}

        def descriptors(tensor, rows, columns):
            key = (tensor.data_ptr(), rows, columns)
            if key not in described:
                described[key] = TensorDescriptor.from_tensor(tensor, [rows, columns])
            return described[key]

        def launch(i, o, c):
            grid = (min(programs, triton.cdiv(m, c["BM"]) * triton.cdiv(n, c["BN"])),)
            kernels.persistent_gemm[grid](
                descriptors(i["a"], c["BM"], c["BK"]),
                descriptors(i["b"], c["BN"], c["BK"]),
                descriptors(o["d"], c["BM"], c["BN"]),
                m,
                n,
                k,
                **c,
            )

        candidates = []
        for c in kernels.persistent_configs(m, programs):
            arguments = (
                ("descriptor", c["BM"], c["BK"]),
                ("descriptor", c["BN"], c["BK"]),
                ("descriptor", c["BM"], c["BN"]),
                m,
                n,
                k,
            )
            candidates.append(
                ([("triton_gemm", "persistent_gemm", arguments, c)], c, lambda i, o, c=c: launch(i, o, c))
            )
        return context.triton("triton tma", candidates, note="persistent, tensor descriptors")

    return build


def gemm(label, m, n, k):
    def make(g):
        return {
            "a": torch.randn(m, k, generator=g, device=g.device, dtype=BF16),
            "b": torch.randn(n, k, generator=g, device=g.device, dtype=BF16),
        }

    builders = {
        "cublas": lambda c: c.writing("cublas", lambda i, o: torch.mm(i["a"], i["b"].t(), out=o["d"]), "torch.mm"),
        "cublaslt_first": lambda c: _lt_first(c, _library().problem(m, n, k)),
        "cublaslt_best": lambda c: _lt_best(c, _library().problem(m, n, k)),
        "triton": _pointer(m, n, k),
        "triton tma": _persistent(m, n, k),
    }
    return Case(
        f"gemm m={m} n={n} k={k} dtype=bf16",
        f"{label} {m}x{n}x{k}",
        {"m": m, "n": n, "k": k},
        make,
        [("d", (m, n), BF16)],
        lambda i: {"d": i["a"].double() @ i["b"].double().t()},
        builders,
        2 * (m * k + n * k + m * n),
        2 * m * n * k,
    )


def _problem_of(context, m, n, k):
    scales = (context.inputs[0]["scale_a"], context.inputs[0]["scale_b"])
    return _library().problem(m, n, k, scales)


def fp8_gemm(label, m, n, k):
    """e4m3 operands with one scale each, bf16 result."""

    def make(g):
        made = {
            name: torch.randn(rows, k, generator=g, device=g.device, dtype=BF16).to(FP8)
            for name, rows in (("a", m), ("b", n))
        }
        for name, value, rows in (("a", 0.5, m), ("b", 0.25, n)):
            made[f"scale_{name}"] = torch.full((1,), value, device=g.device)
            # The same value a row, so that every provider computes the same.
            made[f"rows_{name}"] = torch.full((rows, 1), value, device=g.device)
        return made

    def scaled(i, o, a, b):
        torch._scaled_mm(i["a"], i["b"].t(), scale_a=a, scale_b=b, out_dtype=BF16, use_fast_accum=True, out=o["d"])

    def reference(i):
        product = i["a"].double() @ i["b"].double().t()
        return {"d": product * float(i["scale_a"]) * float(i["scale_b"])}

    fast = "fast accumulation"
    builders = {
        "torch tensorwise": lambda c: c.writing(
            "torch tensorwise", lambda i, o: scaled(i, o, i["scale_a"][0], i["scale_b"][0]), fast
        ),
        "torch rowwise": lambda c: c.writing(
            "torch rowwise", lambda i, o: scaled(i, o, i["rows_a"], i["rows_b"].t()), fast
        ),
        "cublaslt_first": lambda c: _lt_first(c, _problem_of(c, m, n, k), fast),
        "cublaslt_best": lambda c: _lt_best(c, _problem_of(c, m, n, k), fast),
    }
    return Case(
        f"gemm m={m} n={n} k={k} dtype=fp8_e4m3 out=bf16 scale=tensor",
        f"{label} {m}x{n}x{k} fp8",
        {"m": m, "n": n, "k": k},
        make,
        [("d", (m, n), BF16)],
        reference,
        builders,
        m * k + n * k + 2 * m * n,
        2 * m * n * k,
        dtype="fp8_e4m3",
        # Hopper's tensor cores add products of 8-bit floats with 13 bits behind the point, whoever calls them.
        tolerance=8.0,
    )


def _products_alone(m, n, k, make):
    """cuBLASLt's products of int8, by _lt_first or _lt_best: it has no scale a row, for which a second kernel would be
    needed."""

    def build(context):
        outs = [{"d": torch.empty(m, n, dtype=torch.int32, device="cuda")} for _ in context.inputs]
        provider = make(context, _library().int8_problem(m, n, k), "without scales, results in 32 bits", outs)
        provider.calls = [lambda c=call, o=out: (c(), o["d"])[1] for call, out in zip(provider.calls, outs)]
        a, b = (context.inputs[0][name] for name in ("a", "b"))
        provider.check = lambda: torch.equal(outs[0]["d"].double(), a.double() @ b.double().t())
        return provider

    return build


def int8_gemm(label, m, n, k):
    """int8 operands with a scale for each row of both, bf16 result."""

    def make(g):
        made = {
            name: torch.randint(-127, 128, (rows, k), generator=g, device=g.device, dtype=torch.int8)
            for name, rows in (("a", m), ("b", n))
        }
        for name, rows in (("a", m), ("b", n)):
            made[f"scale_{name}"] = 1 + 0.125 * torch.randn(rows, 1, generator=g, device=g.device)
        return made

    def scaled(i):
        product = torch._int_mm(i["a"], i["b"].t())
        return (product.float() * i["scale_a"] * i["scale_b"].t()).to(BF16)

    def triton_scaled(context):
        def launch(i, o, c):
            tiles = triton.cdiv(m, c["BM"]) * triton.cdiv(n, c["BN"])
            kernels.scaled_gemm[(tiles,)](i["a"], i["b"], o["d"], i["scale_a"], i["scale_b"], m, n, k, **c)

        arguments = ("int8", "int8", "bfloat16", "float32", "float32", m, n, k)
        candidates = [
            ([("triton_gemm", "scaled_gemm", arguments, c)], c, lambda i, o, c=c: launch(i, o, c))
            for c in kernels.scaled_configs(m, k)
        ]
        return context.triton("triton", candidates, note="pointers")

    def reference(i):
        return {"d": i["a"].double() @ i["b"].double().t() * i["scale_a"].double() * i["scale_b"].double().t()}

    builders = {
        "torch.compile": lambda c: c.compiled(scaled, "torch._int_mm, then the scales"),
        "cublaslt_first": _products_alone(m, n, k, _lt_first),
        "cublaslt_best": _products_alone(m, n, k, _lt_best),
        "triton": triton_scaled,
    }
    return Case(
        f"gemm m={m} n={n} k={k} dtype=int8 out=bf16 scale=row",
        f"{label} {m}x{n}x{k} int8",
        {"m": m, "n": n, "k": k},
        make,
        [("d", (m, n), BF16)],
        reference,
        builders,
        m * k + n * k + 2 * m * n + 4 * (m + n),
        2 * m * n * k,
        dtype="int8",
    )


def cases() -> list:
    shapes = read_shapes()
    label = lambda s: s["model"] if s["model"] == s["layer"] else f"{s['model']}.{s['layer']}"
    made = [gemm(label(s), s["m"], s["n"], s["k"]) for s in shapes]
    for key, case in (("fp8", fp8_gemm), ("int8", int8_gemm)):
        made += [case(label(s), s["m"], s["n"], s["k"]) for s in shapes if s[key]]
    return made
