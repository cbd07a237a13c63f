"""The memory-bound operators: inputs, references in double precision and peers."""

import math

import torch
import torch.nn.functional as F
import triton

import compare
import triton_rows as kernels
from case import Case

BF16, FP32 = torch.bfloat16, torch.float32


def randn(generator, *shape, dtype=BF16):
    return torch.randn(*shape, generator=generator, device=generator.device, dtype=dtype)


def _grid(*extents):
    return tuple(int(e) for e in extents)


def _candidates(kernel, arguments, configs, launch):
    """`arguments`: specs for the pool; launch(inputs, outputs, configuration)."""
    return [
        ([("triton_rows", kernel, arguments, config)], config, lambda i, o, c=config: launch(i, o, c))
        for config in configs
    ]


def copy_builder(context):
    """A kernel that reads and writes half of the operator's bytes each."""
    count = max(1, context.case.bytes // 8)
    sources = [torch.ones(count, dtype=torch.int32, device="cuda") for _ in context.inputs]
    targets = [torch.empty_like(s) for s in sources]
    pairs = {id(i): pair for i, pair in zip(context.inputs, zip(sources, targets))}

    def launch(inputs, _, config):
        source, target = pairs[id(inputs)]
        kernels.copy_words[_grid(triton.cdiv(count, config["BLOCK"]))](source, target, count, **config)

    arguments = ("int32", "int32", count)
    provider = context.triton(
        "copy", _candidates("copy_words", arguments, kernels.block_configs(), launch), role="copy"
    )
    provider.check = lambda: all(bool((t == s).all()) for s, t in zip(sources, targets))
    return provider


def softmax(rows, cols):
    def reference(i):
        return {"y": torch.softmax(i["x"].double(), -1)}

    def by_rows(i, o, c):
        kernels.softmax_rows[_grid(triton.cdiv(rows, c["ROWS"]))](i["x"], o["y"], rows, cols, **c)

    def online(i, o, c):
        kernels.softmax_online[_grid(rows)](i["x"], o["y"], cols, **c)

    def tuned(context):
        pointers = ("bfloat16", "bfloat16")
        candidates = _candidates("softmax_rows", (*pointers, rows, cols), kernels.row_configs(cols), by_rows)
        if cols >= 8192:
            candidates += _candidates("softmax_online", (*pointers, cols), kernels.online_configs(cols), online)
        return context.triton("triton", candidates)

    builders = {
        "torch": lambda c: c.writing("torch", lambda i, o: torch.softmax(i["x"], -1, out=o["y"])),
        "torch.compile": lambda c: c.compiled(lambda i: torch.softmax(i["x"], -1)),
        "triton": tuned,
        "copy": copy_builder,
    }
    return Case(
        f"softmax rows={rows} cols={cols} dtype=bf16",
        f"softmax {rows}x{cols}",
        {"rows": rows, "cols": cols},
        lambda g: {"x": randn(g, rows, cols)},
        [("y", (rows, cols), BF16)],
        reference,
        builders,
        4 * rows * cols,
    )


def rmsnorm(rows, cols, residual=False):
    eps = 1e-6

    def make(g):
        made = {"x": randn(g, rows, cols), "weight": randn(g, cols) * 0.25 + 1}
        return {**made, "residual": randn(g, rows, cols)} if residual else made

    def reference(i):
        total = (i["x"] + i["residual"] if residual else i["x"]).double()
        y = total * torch.rsqrt((total * total).mean(-1, keepdim=True) + eps) * i["weight"].double()
        return {"y": y, "residual_out": total}

    def framework(i):
        total = i["x"] + i["residual"] if residual else i["x"]
        y = F.rms_norm(total, (cols,), i["weight"], eps)
        return (y, total) if residual else y

    def tuned(context):
        def launch(i, o, c):
            kernels.rmsnorm_rows[_grid(triton.cdiv(rows, c["ROWS"]))](
                i["x"],
                i.get("residual", i["x"]),
                i["weight"],
                o["y"],
                o.get("residual_out", o["y"]),
                rows,
                cols,
                eps,
                **c,
            )

        configs = [dict(RESIDUAL=int(residual), **c) for c in kernels.row_configs(cols)]
        return context.triton(
            "triton", _candidates("rmsnorm_rows", ("bfloat16",) * 5 + (rows, cols, eps), configs, launch)
        )

    outputs = [("y", (rows, cols), BF16)] + ([("residual_out", (rows, cols), BF16)] if residual else [])
    name = "add_rmsnorm" if residual else "rmsnorm"
    return Case(
        f"rmsnorm rows={rows} cols={cols} dtype=bf16{' residual=1' if residual else ''}",
        f"{name} {rows}x{cols}",
        {"rows": rows, "cols": cols},
        make,
        outputs,
        reference,
        {
            "torch": lambda c: c.eager("torch", framework, "F.rms_norm"),
            "torch.compile": lambda c: c.compiled(framework),
            "triton": tuned,
            "copy": copy_builder,
        },
        (8 if residual else 4) * rows * cols + 2 * cols,
        scalars={"eps": eps},
    )


def layernorm(rows, cols):
    eps = 1e-5

    def make(g):
        return {"x": randn(g, rows, cols), "weight": randn(g, cols) * 0.25 + 1, "bias": randn(g, cols)}

    def norm(i, to):
        return F.layer_norm(to(i["x"]), (cols,), to(i["weight"]), to(i["bias"]), eps)

    def tuned(context):
        def launch(i, o, c):
            kernels.layernorm_rows[_grid(triton.cdiv(rows, c["ROWS"]))](
                i["x"], i["weight"], i["bias"], o["y"], rows, cols, eps, **c
            )

        return context.triton(
            "triton",
            _candidates("layernorm_rows", ("bfloat16",) * 4 + (rows, cols, eps), kernels.row_configs(cols), launch),
        )

    same = lambda t: t
    return Case(
        f"layernorm rows={rows} cols={cols} dtype=bf16 bias=1",
        f"layernorm {rows}x{cols}",
        {"rows": rows, "cols": cols},
        make,
        [("y", (rows, cols), BF16)],
        lambda i: {"y": norm(i, torch.Tensor.double)},
        {
            "torch": lambda c: c.eager("torch", lambda i: norm(i, same), "F.layer_norm"),
            "torch.compile": lambda c: c.compiled(lambda i: norm(i, same)),
            "triton": tuned,
            "copy": copy_builder,
        },
        4 * rows * cols + 4 * cols,
        scalars={"eps": eps},
    )


def swiglu(rows, cols):
    def function(i, to=lambda t: t):
        gate, up = to(i["x"]).chunk(2, -1)
        return F.silu(gate) * up

    def tuned(context):
        def launch(i, o, c):
            kernels.swiglu_blocks[_grid(rows, triton.cdiv(cols, c["BLOCK"]))](i["x"], o["y"], cols, **c)

        return context.triton(
            "triton", _candidates("swiglu_blocks", ("bfloat16", "bfloat16", cols), kernels.block_configs(), launch)
        )

    return Case(
        f"glu rows={rows} cols={cols} dtype=bf16",
        f"swiglu {rows}x{cols}",
        {"rows": rows, "cols": cols},
        lambda g: {"x": randn(g, rows, 2 * cols)},
        [("y", (rows, cols), BF16)],
        lambda i: {"y": function(i, torch.Tensor.double)},
        {
            "torch": lambda c: c.eager("torch", function),
            "torch.compile": lambda c: c.compiled(function),
            "triton": tuned,
            "copy": copy_builder,
        },
        6 * rows * cols,
    )


def rope(tokens, heads_q, heads_kv, head_dim):
    half = head_dim // 2

    def make(g):
        position = torch.arange(tokens, device=g.device, dtype=torch.float64)[:, None]
        angle = position * 500000.0 ** (-torch.arange(half, device=g.device, dtype=torch.float64) / half)[None]
        made = {
            "q": randn(g, tokens, heads_q, head_dim),
            "k": randn(g, tokens, heads_kv, head_dim),
            "cos": angle.cos().float(),
            "sin": angle.sin().float(),
        }
        doubled = {name + "_wide": torch.cat((made[name], made[name]), -1).to(BF16) for name in ("cos", "sin")}
        return {**made, **doubled}

    def rotated(x, i, to):
        a, b = to(x).chunk(2, -1)
        c, s = to(i["cos"])[:, None], to(i["sin"])[:, None]
        return torch.cat((a * c - b * s, b * c + a * s), -1)

    def halves(x):
        a, b = x.chunk(2, -1)
        return torch.cat((-b, a), -1)

    def framework(i):
        c, s = i["cos_wide"][:, None], i["sin_wide"][:, None]
        return i["q"] * c + halves(i["q"]) * s, i["k"] * c + halves(i["k"]) * s

    def same_inputs(i):
        return rotated(i["q"], i, torch.Tensor.float).to(BF16), rotated(i["k"], i, torch.Tensor.float).to(BF16)

    def tuned(context):
        def launch(i, o, c):
            q_blocks = triton.cdiv(tokens * heads_q, c["ROWS"])
            blocks = q_blocks + triton.cdiv(tokens * heads_kv, c["ROWS"])
            kernels.rope_heads[_grid(blocks)](
                i["q"], i["k"], i["cos"], i["sin"], o["q_out"], o["k_out"], tokens, heads_q, heads_kv, q_blocks, **c
            )

        candidates = []
        for config in kernels.head_configs(half):
            arguments = (
                "bfloat16",
                "bfloat16",
                "float32",
                "float32",
                "bfloat16",
                "bfloat16",
                tokens,
                heads_q,
                heads_kv,
                triton.cdiv(tokens * heads_q, config["ROWS"]),
            )
            candidates += _candidates("rope_heads", arguments, [config], launch)
        return context.triton("triton", candidates)

    shape = {"tokens": tokens, "heads_q": heads_q, "heads_kv": heads_kv, "head_dim": head_dim}
    outputs = [("q_out", (tokens, heads_q, head_dim), BF16), ("k_out", (tokens, heads_kv, head_dim), BF16)]
    return Case(
        "rope " + " ".join(f"{k}={v}" for k, v in shape.items()) + " dtype=bf16",
        f"rope {tokens}x{heads_q}x{heads_kv}x{head_dim}",
        shape,
        make,
        outputs,
        lambda i: {"q_out": rotated(i["q"], i, torch.Tensor.double), "k_out": rotated(i["k"], i, torch.Tensor.double)},
        {
            "torch": lambda c: c.eager(
                "torch", framework, "the usual form in bf16: tables of full width, the same bytes", 4.0
            ),
            "torch.compile": lambda c: c.compiled(same_inputs),
            "triton": tuned,
            "copy": copy_builder,
        },
        4 * tokens * (heads_q + heads_kv) * head_dim + 8 * tokens * half,
    )


def cross_entropy(rows, vocab):
    def make(g):
        targets = torch.randint(0, vocab, (rows,), generator=g, device=g.device, dtype=torch.int32)
        return {"logits": randn(g, rows, vocab), "targets": targets, "targets_long": targets.long()}

    def reference(i):
        loss = [
            F.cross_entropy(i["logits"][s : s + 512].double(), i["targets_long"][s : s + 512], reduction="none")
            for s in range(0, rows, 512)
        ]
        return {"loss": torch.cat(loss)}

    def framework(i):
        return F.cross_entropy(i["logits"], i["targets_long"], reduction="none")

    def upcast(i):
        return F.cross_entropy(i["logits"].float(), i["targets_long"], reduction="none")

    def tuned(context):
        def launch(i, o, c):
            kernels.cross_entropy_online[_grid(rows)](i["logits"], i["targets"], o["loss"], vocab, **c)

        return context.triton(
            "triton",
            _candidates(
                "cross_entropy_online", ("bfloat16", "int32", "float32", vocab), kernels.online_configs(vocab), launch
            ),
        )

    return Case(
        f"cross_entropy rows={rows} vocab={vocab} dtype=bf16",
        f"cross_entropy {rows}x{vocab}",
        {"rows": rows, "vocab": vocab},
        make,
        [("loss", (rows,), FP32)],
        reference,
        {
            "torch": lambda c: c.eager("torch", framework, "bf16 loss; 64-bit targets"),
            "torch fp32": lambda c: c.eager("torch fp32", upcast, "logits cast to fp32 first; 64-bit targets"),
            "torch.compile": lambda c: c.compiled(upcast, "of the fp32 form; 64-bit targets"),
            "triton": tuned,
            "copy": copy_builder,
        },
        2 * rows * vocab + 8 * rows,
    )


def moved(op, label, shape, x_extents, extents, strides, view):
    """y = view(x).contiguous(), where y[i0, i1, …] is element i0·strides[0] + i1·strides[1] + … of x."""
    elements = math.prod(extents)

    def function(i):
        return view(i["x"]).contiguous()

    def reference(i):
        # Moved as bits, in another way than what is judged: by index.
        flat = i["x"].reshape(-1)
        index = torch.zeros((), dtype=torch.int64, device=flat.device)
        for extent, stride in zip(extents, strides):
            index = index[..., None] + torch.arange(extent, device=flat.device) * stride
        wanted = flat[index.reshape(-1)].reshape(extents)
        return {"y": lambda out: compare.equal(out, wanted)}

    return Case(
        op,
        label,
        shape,
        lambda g: {"x": randn(g, *x_extents)},
        [("y", extents, BF16)],
        reference,
        {
            "torch": lambda c: c.eager("torch", function, ".contiguous()"),
            "torch copy_": lambda c: c.writing("torch copy_", lambda i, o: o["y"].copy_(view(i["x"]))),
            "torch.compile": lambda c: c.compiled(function),
            "copy": copy_builder,
        },
        4 * elements,
    )


def permute(extents, order, label):
    """y = x.permute(order).contiguous()."""
    digits = "".join(str(axis) for axis in order)
    shape = {f"d{axis}": extent for axis, extent in enumerate(extents)}
    return moved(
        f"permute {' '.join(f'{k}={v}' for k, v in shape.items())} dtype=bf16 perm={int(digits)}",
        f"permute {label}",
        shape,
        extents,
        tuple(extents[axis] for axis in order),
        [math.prod(extents[axis + 1 :]) for axis in order],
        lambda x: x.permute(order),
    )


def contiguous(extents, strides, label):
    """y = the strided view of x, made contiguous."""
    shape = {f"d{axis}": extent for axis, extent in enumerate(extents)}
    steps = " ".join(f"s{axis}={stride}" for axis, stride in enumerate(strides) if stride)
    return moved(
        f"contiguous {' '.join(f'{k}={v}' for k, v in shape.items())} dtype=bf16 {steps}",
        f"contiguous {label}",
        shape,
        (1 + sum((extent - 1) * stride for extent, stride in zip(extents, strides)),),
        extents,
        strides,
        lambda x: x.as_strided(extents, strides),
    )


def reduce(rows, cols, axis="row", kind="sum"):
    dims = {"row": -1, "col": 0, "full": (0, 1)}[axis]
    outputs = {"row": rows, "col": cols, "full": 1}[axis]
    names = {"argmax": ["index"], "var": ["mean", "variance"]}.get(kind, ["y"])

    def reference(i):
        x = i["x"].double()
        if kind == "argmax":
            top = i["x"].amax(-1)
            # The first of equal elements is asked for; any of them counts as right for a peer.
            return {"index": lambda out: compare.equal(i["x"].gather(1, out.long()[:, None])[:, 0], top)}
        if kind == "var":
            variance, mean = torch.var_mean(x, dims, correction=0)
            return {"mean": mean.reshape(-1), "variance": variance.reshape(-1)}
        return {"y": (x.amax(dims) if kind == "max" else x.sum(dims)).reshape(-1)}

    def function(i, to=lambda t: t):
        x = i["x"]
        if kind == "argmax":
            return x.argmax(-1)
        if kind == "var":
            variance, mean = torch.var_mean(to(x), dims, correction=0)
            return mean.reshape(-1), variance.reshape(-1)
        return (x.amax(dims) if kind == "max" else x.sum(dims, dtype=FP32)).reshape(-1)

    notes = {"argmax": "64-bit indices", "max": "bf16 result", "var": "bf16 results"}
    builders = {
        "torch": lambda c: c.eager("torch", function, notes.get(kind, "")),
        "torch.compile": lambda c: c.compiled(
            lambda i: function(i, torch.Tensor.float), notes.get(kind, "") if kind != "var" else ""
        ),
    }
    if (axis, kind) == ("row", "sum"):

        def launch(i, o, c):
            kernels.sum_rows[_grid(triton.cdiv(rows, c["ROWS"]))](i["x"], o["y"], rows, cols, **c)

        builders["triton"] = lambda c: c.triton(
            "triton", _candidates("sum_rows", ("bfloat16", "float32", rows, cols), kernels.sum_configs(cols), launch)
        )
    builders["copy"] = copy_builder
    words = (f" axis={axis}" if axis != "row" else "") + (f" kind={kind}" if kind != "sum" else "")
    return Case(
        f"reduce rows={rows} cols={cols} dtype=bf16{words}",
        f"reduce {axis} {kind} {rows}x{cols}",
        {"rows": rows, "cols": cols},
        lambda g: {"x": randn(g, rows, cols)},
        [(name, (outputs,), torch.int32 if kind == "argmax" else FP32) for name in names],
        reference,
        builders,
        2 * rows * cols + 4 * outputs * len(names),
    )


def cases() -> list:
    made = [
        softmax(*s) for s in ((4096, 1024), (65536, 1024), (32768, 4096), (16384, 8192), (8192, 32768), (4096, 131072))
    ]
    made += [rmsnorm(*s) for s in ((1, 4096), (64, 4096), (4096, 4096), (16384, 4096), (16384, 7168), (16384, 8192))]
    made += [rmsnorm(*s, residual=True) for s in ((64, 4096), (4096, 4096), (16384, 4096), (16384, 8192))]
    made += [layernorm(*s) for s in ((64, 4096), (4096, 4096), (16384, 4096), (16384, 8192))]
    made += [swiglu(rows, 14336) for rows in (64, 4096, 16384)]
    made += [rope(*s) for s in ((64, 32, 8, 128), (16384, 32, 8, 128), (16384, 64, 8, 128))]
    made += [cross_entropy(*s) for s in ((4096, 32000), (4096, 128256), (8192, 128256))]
    made += [
        permute((16384, 16384), (1, 0), "transpose 16384x16384"),
        permute((8, 4096, 32, 128), (0, 2, 1, 3), "heads 8x4096x32x128"),
        permute((64, 64, 112, 112), (0, 2, 3, 1), "NCHW to NHWC 64x64x112x112"),
        permute((32, 64, 16, 64, 32), (4, 2, 0, 3, 1), "5-D 32x64x16x64x32"),
        # Patches 1x16x16 of a 64-frame 720p video, and 1x2x2 of its latents: (C, T·H/p, p, W/p, p).
        permute((3, 64 * 45, 16, 80, 16), (1, 3, 0, 2, 4), "video patches 16x16 of 3x64x720x1280"),
        permute((16, 21 * 45, 2, 80, 2), (1, 3, 0, 2, 4), "video patches 2x2 of 16x21x90x160"),
        contiguous((12288, 12288), (1, 12352), "12288x12288, transposed, of rows of 12352"),
    ]
    made += [
        reduce(16384, 8192),
        reduce(64, 4096),
        reduce(16384, 8192, "col"),
        reduce(16384, 8192, "full"),
        reduce(16384, 8192, kind="max"),
        reduce(16384, 8192, kind="argmax"),
        reduce(16384, 8192, kind="var"),
    ]
    return made
