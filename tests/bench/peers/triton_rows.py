"""Triton peers of the memory-bound operators: straightforward kernels, tuned over block and warps."""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
# A large finite number: -infinity minus -infinity would be NaN.
LOWEST = tl.constexpr(-1.0e30)


@triton.jit
def copy_words(x, y, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < count), mask=at < count)


@triton.jit
def softmax_rows(x, y, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)
    at = row[:, None] * cols + col[None, :]
    inside = (row[:, None] < rows) & (col[None, :] < cols)
    value = tl.load(x + at, mask=inside, other=LOWEST).to(tl.float32) * LOG2E
    power = tl.exp2(value - tl.max(value, axis=1)[:, None])
    result = power / tl.sum(power, axis=1)[:, None]
    tl.store(y + at, result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _online(base, cols, UNROLL: tl.constexpr, BLOCK: tl.constexpr):
    """(maximum, sum of powers of 2) of a row in base-2 units: each of BLOCK lanes rescales once for UNROLL elements."""
    at = tl.arange(0, UNROLL)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    top = tl.full((BLOCK,), LOWEST, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, UNROLL * BLOCK):
        value = tl.load(base + start + at, mask=start + at < cols, other=LOWEST).to(tl.float32) * LOG2E
        higher = tl.maximum(top, tl.max(value, axis=0))
        total = total * tl.exp2(top - higher) + tl.sum(tl.exp2(value - higher[None, :]), axis=0)
        top = higher
    highest = tl.max(top, axis=0)
    return highest, tl.sum(total * tl.exp2(top - highest), axis=0)


@triton.jit
def softmax_online(x, y, cols, UNROLL: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    highest, total = _online(x + row, cols, UNROLL, BLOCK)
    at = tl.arange(0, UNROLL)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    for start in range(0, cols, UNROLL * BLOCK):
        value = tl.load(x + row + start + at, mask=start + at < cols, other=LOWEST).to(tl.float32) * LOG2E
        result = tl.exp2(value - highest) / total
        tl.store(y + row + start + at, result.to(y.dtype.element_ty), mask=start + at < cols)


@triton.jit
def cross_entropy_online(x, targets, loss, cols, UNROLL: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    highest, total = _online(x + row * cols, cols, UNROLL, BLOCK)
    at_target = tl.load(x + row * cols + tl.load(targets + row)).to(tl.float32)
    tl.store(loss + row, (highest + tl.log2(total)) / LOG2E - at_target)


@triton.jit
def rmsnorm_rows(
    x,
    residual,
    weight,
    y,
    residual_out,
    rows,
    cols,
    eps,
    RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)
    at = row[:, None] * cols + col[None, :]
    inside = (row[:, None] < rows) & (col[None, :] < cols)
    value = tl.load(x + at, mask=inside, other=0.0)
    if RESIDUAL:
        value = (value.to(tl.float32) + tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)).to(value.dtype)
        tl.store(residual_out + at, value, mask=inside)
    value = value.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, axis=1) / cols + eps)
    w = tl.load(weight + col, mask=col < cols, other=0.0).to(tl.float32)
    tl.store(y + at, (value * scale[:, None] * w[None, :]).to(y.dtype.element_ty), mask=inside)


@triton.jit
def layernorm_rows(x, weight, bias, y, rows, cols, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)
    at = row[:, None] * cols + col[None, :]
    inside = (row[:, None] < rows) & (col[None, :] < cols)
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(value, axis=1) / cols
    difference = tl.where(inside, value - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(difference * difference, axis=1) / cols + eps)
    w = tl.load(weight + col, mask=col < cols, other=0.0).to(tl.float32)
    b = tl.load(bias + col, mask=col < cols, other=0.0).to(tl.float32)
    result = difference * scale[:, None] * w[None, :] + b[None, :]
    tl.store(y + at, result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def swiglu_blocks(x, y, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(x + row * 2 * cols + col, mask=col < cols, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * cols + cols + col, mask=col < cols, other=0.0).to(tl.float32)
    result = gate / (1.0 + tl.exp2(-gate * LOG2E)) * up
    tl.store(y + row * cols + col, result.to(y.dtype.element_ty), mask=col < cols)


@triton.jit
def _rotate(x, y, cosines, sines, block, rows, heads, ROWS: tl.constexpr, HALF: tl.constexpr):
    """Pairs (i, i + HALF) of ROWS heads; `rows` = tokens · heads."""
    row = block.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, HALF)
    inside = (row < rows)[:, None] & (col >= 0)[None, :]
    angle = (row // heads)[:, None] * HALF + col[None, :]
    at = row[:, None] * (2 * HALF) + col[None, :]
    c = tl.load(cosines + angle, mask=inside, other=0.0)
    s = tl.load(sines + angle, mask=inside, other=0.0)
    a = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + at + HALF, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + at, (a * c - b * s).to(y.dtype.element_ty), mask=inside)
    tl.store(y + at + HALF, (b * c + a * s).to(y.dtype.element_ty), mask=inside)


@triton.jit
def rope_heads(
    q, k, cosines, sines, q_out, k_out, tokens, heads_q, heads_kv, q_blocks, ROWS: tl.constexpr, HALF: tl.constexpr
):
    block = tl.program_id(0)
    if block < q_blocks:
        _rotate(q, q_out, cosines, sines, block, tokens * heads_q, heads_q, ROWS, HALF)
    else:
        _rotate(k, k_out, cosines, sines, block - q_blocks, tokens * heads_kv, heads_kv, ROWS, HALF)


@triton.jit
def sum_rows(x, y, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        inside = (row[:, None] < rows) & (col[None, :] < cols)
        total += tl.load(x + row[:, None] * cols + col[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row, tl.sum(total, axis=1), mask=row < rows)


WARPS = (1, 2, 4, 8, 16, 32)


def row_configs(cols: int) -> list:
    """Whole rows in registers: 8 to 64 elements a thread."""
    block = triton.next_power_of_2(cols)
    return [
        dict(ROWS=rows, BLOCK=block, num_warps=warps)
        for rows in (1, 2, 4, 8)
        for warps in WARPS
        if block <= 32768 and 8 <= rows * block / (32 * warps) <= 64
    ]


def online_configs(cols: int) -> list:
    """Loops over long rows, 8 lanes of 16-bit loads a thread."""
    return [
        dict(UNROLL=unroll, BLOCK=256 * warps, num_warps=warps)
        for unroll in (1, 2, 4, 8)
        for warps in (4, 8, 16)
        if unroll * 256 * warps <= max(cols, 2048)
    ]


def block_configs() -> list:
    return [
        dict(BLOCK=block, num_warps=warps)
        for block in (512, 1024, 2048, 4096, 8192)
        for warps in (2, 4, 8, 16)
        if 4 <= block / (32 * warps) <= 32
    ]


def head_configs(half: int) -> list:
    return [
        dict(ROWS=rows, HALF=half, num_warps=warps)
        for rows in (4, 8, 16, 32, 64)
        for warps in (1, 2, 4, 8)
        if 4 <= rows * half / (32 * warps) <= 32
    ]


def sum_configs(cols: int) -> list:
    return [
        dict(ROWS=rows, BLOCK=block, num_warps=warps)
        for rows in (1, 4)
        for block in (1024, 2048, 4096, 8192)
        for warps in (4, 8, 16)
        if block <= triton.next_power_of_2(cols) and 8 <= rows * block / (32 * warps) <= 64
    ]
