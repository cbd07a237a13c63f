"""One operator and shape of a comparison, and the usual ways to make providers of it."""

import time

import torch

import compare
from provider import Failed, Provider


class Case:
    """`op`: rooftune's text. `make(generator)`: inputs by tensor name, among them those of the recipe. `outputs`:
    (name, shape, dtype) in order. `reference(inputs)`: {output: double tensor, or a function of the output that
    returns what compare() returns}. `builders`: {provider: function(context)}. `bytes`: every tensor once. `tolerance`:
    multiplies the bound of an element for everybody, where the hardware's own sums need it."""

    def __init__(
        self, op, label, shape, make, outputs, reference, builders, bytes_moved, flops=0, dtype="bf16", scalars=None,
        tolerance=1.0,
    ):
        self.op, self.label, self.shape, self.make, self.outputs = op, label, shape, make, outputs
        self.reference, self.builders, self.bytes, self.flops = reference, builders, int(bytes_moved), int(flops)
        self.dtype, self.scalars, self.tolerance = dtype, scalars or {}, tolerance


class Context:
    """What builders of providers get: the case with its inputs and outputs, one a buffer set."""

    def __init__(self, case, harness, pool, sets, rotates, seed, device="cuda"):
        self.case, self.harness, self.pool, self.rotates = case, harness, pool, rotates
        generator = torch.Generator(device).manual_seed(seed)
        self.inputs = [case.make(generator) for _ in range(sets)]
        self.outs = [
            {name: torch.empty(shape, dtype=dtype, device=device) for name, shape, dtype in case.outputs}
            for _ in range(sets)
        ]
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()  # the rest runs on another stream
        self.output_bytes = sum(t.numel() * t.element_size() for t in self.outs[0].values())

    def eager(self, name, function, note="", tolerance=1.0):
        """function(inputs) returns newly allocated outputs."""
        return Provider(name, "peer", [lambda i=i: function(i) for i in self.inputs], note=note, tolerance=tolerance)

    def writing(self, name, function, note="", role="peer"):
        """function(inputs, outputs) writes the outputs."""

        def call(i, o):
            function(i, o)

        return Provider(name, role, [lambda i=i, o=o: call(i, o) for i, o in zip(self.inputs, self.outs)], note=note)

    def compiled(self, function, note="", name="torch.compile"):
        """torch.compile in its default mode; the wall time is that of the first call, without caches."""
        torch._dynamo.reset()
        compiled = torch.compile(function, dynamic=False, fullgraph=True)
        start = time.monotonic()
        compiled(self.inputs[0])
        torch.cuda.synchronize()
        provider = self.eager(name, compiled, note)
        provider.prepare_s = time.monotonic() - start
        return provider

    def triton(self, name, candidates, role="peer", note=""):
        """The fastest of candidates (tasks for the pool, configuration, function(inputs, outputs) that launches it)."""
        start = time.monotonic()
        problems = self.pool.compile([task for tasks, _, _ in candidates for task in tasks]) if self.pool else []

        def make_calls(launch):
            return [lambda i=i, o=o: launch(i, o) for i, o in zip(self.inputs, self.outs)]

        try:
            config, calls = self.harness.tune(
                [(config, lambda f=launch: make_calls(f)) for _, config, launch in candidates],
                self.case.bytes,
                self.rotates,
            )
        except Failed as error:
            raise Failed(f"{error}{'; ' + problems[0] if problems else ''}") from None
        text = ",".join(f"{k}={v}" for k, v in config.items())
        note = f"{note + '; ' if note else ''}best of {len(candidates)}"
        return Provider(name, role, calls, text, note, time.monotonic() - start)

    def check(self, outputs) -> dict:
        """The worse of all outputs against the reference of set 0."""
        names = [name for name, _, _ in self.case.outputs]
        if len(outputs) != len(names):
            return {"error": float("inf"), "worst": float("inf")}
        if not hasattr(self, "_reference"):
            self._reference = self.case.reference(self.inputs[0])
        results = []
        for name, out in zip(names, outputs):
            wanted = self._reference[name]
            results.append(wanted(out) if callable(wanted) else compare.compare(out, wanted))
        return {key: max(r[key] for r in results) for key in ("error", "worst")}
