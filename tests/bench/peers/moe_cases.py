"""Expert layers of moe_shapes.csv: routed inputs, references in double precision and peers."""

import random

import torch

import compare
import triton_moe as kernels
from case import Case
from provider import Failed
from shapes import read_shapes
from triton.tools.tensor_descriptor import TensorDescriptor

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn


def sizes_of(m: int, experts: int) -> list:
    """Rows of each expert, as rooftune generates them: uneven, about half to one and a half of the mean, and none for
    the expert in the middle."""
    weights = [random.Random(f"{m} {experts} {e}").uniform(1, 3) for e in range(experts)]
    if experts > 1:
        weights[experts // 2] = 0
    filled = [e for e in range(experts) if weights[e] > 0]
    ones = min(m, len(filled))
    starts, seen, weight = [], 0, 0.0
    for e in range(experts + 1):
        starts.append(seen * ones // len(filled) + int((m - ones) * min(1.0, weight / sum(weights))))
        if e < experts:
            seen += weights[e] > 0
            weight += weights[e]
    starts[-1] = m
    return [b - a for a, b in zip(starts, starts[1:])]


class Layer:
    """One expert layer. gather: x has a row a token. scatter: rows of y go to their slots, times a factor each."""

    def __init__(self, shape, gather=0, scatter=0, fp8=False):
        self.m, self.n, self.k, self.experts = (shape[name] for name in ("m", "n", "k", "experts"))
        self.topk = shape["topk"] if gather else 1
        self.gather, self.scatter, self.fp8 = gather, scatter, fp8
        self.sizes = sizes_of(self.m, self.experts)
        self.starts = [sum(self.sizes[:e]) for e in range(self.experts + 1)]

    def text(self):
        parts = [f"moe_gemm m={self.m} n={self.n} k={self.k} experts={self.experts}"]
        parts += [f"topk={self.topk}"] if self.topk > 1 else []
        parts += [f"dtype={'fp8_e4m3' if self.fp8 else 'bf16'}"]
        parts += ["gather=1"] if self.gather else []
        parts += ["scatter=1 weighted=1"] if self.scatter else []
        return " ".join(parts)

    def make(self, g):
        def values(*shape):
            made = torch.empty(shape, device=g.device, dtype=FP8 if self.fp8 else BF16)
            for part in made.view(-1, shape[-1]).split(1 << 15):  # an fp8 tensor can't be drawn, and a large one twice
                part.copy_(torch.randn(part.shape, generator=g, device=g.device, dtype=BF16))
            return made

        made = {"x": values(self.m // self.topk, self.k), "w": values(self.experts, self.n, self.k)}
        if self.fp8:
            blocks = -(-self.k // 128)
            for name, shape in (
                ("scale_x", (self.m // self.topk, blocks)),
                ("scale_w", (self.experts, -(-self.n // 128), blocks)),
            ):
                made[name] = 1 + 0.125 * torch.randn(shape, generator=g, device=g.device)
        made["groups"] = torch.tensor(self.starts, dtype=torch.int32, device=g.device)
        if self.gather or self.scatter:
            made["slots"] = torch.randperm(self.m, generator=g, device=g.device).to(torch.int32)
        if self.scatter:
            made["weights"] = 0.5 + 0.125 * torch.randn(self.m, generator=g, device=g.device)
        return made

    def experts_with_rows(self):
        return [(e, self.starts[e], self.starts[e + 1]) for e in range(self.experts) if self.sizes[e]]

    def _expert_rows(self, i, e, begin, end):
        """An expert's rows of the result, and where they go."""
        rows = torch.arange(begin, end, device=i["x"].device)
        slots = i["slots"][begin:end].long() if "slots" in i else rows
        source = slots // self.topk if self.gather else rows
        x, w = i["x"][source].double(), i["w"][e].double()
        if self.fp8:
            wide = lambda s, columns: s.double().repeat_interleave(128, -1)[..., :columns]
            x *= wide(i["scale_x"][source], self.k)
            w *= wide(wide(i["scale_w"][e], self.k).t(), self.n).t()
        y = x @ w.t()
        return (slots, y * i["weights"][slots].double()[:, None]) if self.scatter else (rows, y)

    def reference(self, i):
        """Expert by expert: the whole in double precision would be large."""

        def check(out):
            worst = {"error": 0.0, "worst": 0.0}
            for e, begin, end in self.experts_with_rows():
                target, y = self._expert_rows(i, e, begin, end)
                found = compare.compare(out[target], y)
                worst = {key: max(worst[key], found[key]) for key in worst}
            return worst

        return {"y": check}

    def bytes(self):
        element = 1 if self.fp8 else 2
        used = len(self.experts_with_rows())
        scales = 0
        if self.fp8:
            scales = 4 * -(-self.k // 128) * (self.m // self.topk + used * -(-self.n // 128))
        moved = self.m // self.topk * self.k + used * self.n * self.k
        indices = 4 * (self.experts + 1) + 4 * self.m * (int(self.gather or self.scatter) + self.scatter)
        return element * moved + 2 * self.m * self.n + scales + indices


def _gathered(layer, i):
    return i["x"].index_select(0, i["slots"] // layer.topk) if layer.gather else i["x"]


def _scattered(layer, i, o, y):
    if layer.scatter:
        o["y"].index_copy_(0, i["slots"].long(), (y * i["weights"][i["slots"]][:, None]).to(BF16))


def _loop(layer):
    """torch.mm an expert; the host knows the sizes."""

    def call(i, o):
        x, y = _gathered(layer, i), torch.empty_like(o["y"]) if layer.scatter else o["y"]
        for e, begin, end in layer.experts_with_rows():
            torch.mm(x[begin:end], i["w"][e].t(), out=y[begin:end])
        _scattered(layer, i, o, y)

    return lambda c: c.writing("loop of cublas", call, "one torch.mm an expert, sizes known on the host")


def _grouped(layer):
    def build(context):
        if not hasattr(torch, "_grouped_mm"):
            raise Failed("torch has no _grouped_mm")

        def product(i):
            return torch._grouped_mm(_gathered(layer, i), i["w"].transpose(1, 2), offs=i["groups"][1:], out_dtype=BF16)

        if not layer.scatter:
            return context.eager("torch grouped", lambda i: (product(i),), "torch._grouped_mm")
        return context.writing("torch grouped", lambda i, o: _scattered(layer, i, o, product(i)), "torch._grouped_mm")

    return build


def _scaled_loop(layer):
    """torch._scaled_mm (cuBLASLt) an expert, with scales of 1 × 128 and 128 × 128."""

    def call(i, o):
        x = _gathered(layer, i)
        scales = i["scale_x"].index_select(0, i["slots"] // layer.topk) if layer.gather else i["scale_x"]
        for e, begin, end in layer.experts_with_rows():
            # cuBLASLt takes a multiple of four rows (vllm-project/vllm#49932): with an expert's own go up to three of its
            # neighbours', whose results are dropped. It reads scales of rows with rows next to one another.
            rows = -(-(end - begin) // 4) * 4
            first = min(begin, layer.m - rows)
            row_scales = scales[first : first + rows].t().contiguous().t()
            product = torch._scaled_mm(
                x[first : first + rows], i["w"][e].t(), scale_a=row_scales, scale_b=i["scale_w"][e].t(), out_dtype=BF16
            )
            o["y"][begin:end] = product[begin - first : end - first]

    return lambda c: c.writing("loop of cublaslt", call, "one torch._scaled_mm an expert, sizes known on the host")


def _triton(layer):
    def build(context):
        programs = torch.cuda.get_device_properties(0).multi_processor_count
        described = {}

        def descriptor(tensor, rows, columns):
            key = (tensor.data_ptr(), rows, columns)
            if key not in described:
                described[key] = TensorDescriptor.from_tensor(tensor.view(-1, layer.k), [rows, columns])
            return described[key]

        def launch(i, o, c):
            some = i["groups"]
            kernels.grouped_gemm[(programs,)](
                descriptor(i["x"], c["BM"], c["BK"]),
                i["x"],
                descriptor(i["w"], c["BN"], c["BK"]),
                o["y"],
                i["groups"],
                i.get("slots", some),
                i.get("weights", some),
                i.get("scale_x", some),
                i.get("scale_w", some),
                layer.experts,
                layer.n,
                layer.k,
                layer.topk,
                **c,
            )

        element, index = ("float8_e4m3fn" if layer.fp8 else "bfloat16"), "int32"
        candidates = []
        for c in kernels.configs(layer.m / layer.experts, programs, layer.gather, layer.scatter, layer.fp8):
            arguments = (
                ("descriptor", c["BM"], c["BK"], element),
                element,
                ("descriptor", c["BN"], c["BK"], element),
                "bfloat16",
                index,
                index,
                "float32" if layer.scatter else index,
                *(["float32"] * 2 if layer.fp8 else [index] * 2),
                layer.experts,
                layer.n,
                layer.k,
                layer.topk,
            )
            task = ("triton_moe", "grouped_gemm", arguments, c)
            candidates.append(([task], c, lambda i, o, c=c: launch(i, o, c)))
        return context.triton("triton", candidates, note="persistent, tensor descriptors")

    return build


def case(shape, gather=0, scatter=0, fp8=False):
    layer = Layer(shape, gather, scatter, fp8)
    builders = {"triton": _triton(layer)}
    if fp8:
        builders["loop of cublaslt"] = _scaled_loop(layer)
    else:
        builders.update({"loop of cublas": _loop(layer), "torch grouped": _grouped(layer)})
    label = f"{shape['model']}.{shape['layer']} {layer.m}x{layer.n}x{layer.k} {layer.experts} experts"
    label += "".join(f" {name}" for name, on in (("gather", gather), ("scatter", scatter), ("fp8", fp8)) if on)
    return Case(
        layer.text(),
        label,
        {"m": layer.m, "n": layer.n, "k": layer.k, "experts": layer.experts},
        layer.make,
        [("y", (layer.m, layer.n), BF16)],
        layer.reference,
        builders,
        layer.bytes(),
        2 * layer.m * layer.n * layer.k,
        dtype="fp8_e4m3" if fp8 else "bf16",
    )


def cases() -> list:
    shapes = read_shapes("moe_shapes.csv")
    made = [case(s) for s in shapes]
    made += [case(s, gather=1) if s["layer"] == "gate_up" else case(s, scatter=1) for s in shapes]
    return made + [case(s, fp8=True) for s in shapes if s["fp8"]]
