"""Compiles Triton kernels in parallel processes into Triton's cache on disk, from which the measuring process then
loads them. Only the time of compiling depends on it: what it misses is compiled later, one after the other."""

import concurrent.futures
import importlib
import multiprocessing
import os


def _prepare():
    import torch

    torch.cuda.init()
    for name in ("triton_rows", "triton_gemm", "triton_moe"):
        importlib.import_module(name)


def _dtype(name):
    import torch

    return getattr(torch, name)


def _argument(spec):
    """An integer or float as it is, "bfloat16" a pointer, ("descriptor", rows, columns) a tensor map of bf16, or
    of the dtype that follows."""
    if isinstance(spec, str):
        return _dtype(spec)
    if isinstance(spec, tuple):
        import torch
        from triton.tools.tensor_descriptor import TensorDescriptor

        return TensorDescriptor(
            torch.empty(64, dtype=_dtype(spec[3] if len(spec) > 3 else "bfloat16"), device="cuda"),
            [1024, 1024],
            [1024, 1],
            list(spec[1:3]),
        )
    return spec


def _compile(module, kernel, arguments, config):
    try:
        function = getattr(importlib.import_module(module), kernel)
        function.warmup(*[_argument(a) for a in arguments], grid=(1,), **config)
        return ""
    except Exception as error:  # noqa: BLE001 -- the measuring process meets it again and reports it
        return f"{kernel}: {type(error).__name__}: {error}"[:300]


class Pool:
    """Starts its processes with the first task: while they load PyTorch they would disturb what is measured."""

    def __init__(self, workers=None):
        self._workers = workers or max(1, min(12, (os.cpu_count() or 2) - 2))
        self._pool = None

    def _start(self):
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = concurrent.futures.ProcessPoolExecutor(self._workers, context, _prepare)
        return self._pool

    def compile(self, tasks, timeout_s=120) -> list:
        """Of (module, kernel, arguments, configuration); returns what went wrong, in words."""
        futures = [self._start().submit(_compile, *task) for task in tasks]
        done, late = concurrent.futures.wait(futures, timeout_s)
        for future in late:
            future.cancel()
        problems = [future.exception() or future.result() for future in done]
        return [str(p) for p in problems if p] + (["compiling took too long"] if late else [])

    def close(self):
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
