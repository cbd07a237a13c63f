"""Triton peers of GEMM, y[m,n] = x[m,k] · w[n,k]ᵀ: pointer loads with optional split-K, and a persistent kernel over
tensor descriptors (TMA)."""

import triton
import triton.language as tl


@triton.jit
def _tile(tile, m_tiles, n_tiles, GROUP: tl.constexpr):
    """Tiles in groups of GROUP rows, so that tiles that run together share operands in the L2."""
    group = tile // (GROUP * n_tiles)
    first = group * GROUP
    height = tl.minimum(m_tiles - first, GROUP)
    within = tile % (GROUP * n_tiles)
    return first + within % height, within // height


@triton.jit
def pointer_gemm(
    x,
    w,
    y,
    partial,
    m,
    n,
    k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
    GROUP: tl.constexpr,
):
    """SPLIT > 1: sums of a share of k go to partial[SPLIT, m, n] in fp32. k is a multiple of SPLIT · BK."""
    tile_m, tile_n = _tile(tl.program_id(0), tl.cdiv(m, BM), tl.cdiv(n, BN), GROUP)
    share = tl.program_id(1)
    row, col = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
    steps = k // (SPLIT * BK)
    at_k = share * steps * BK + tl.arange(0, BK)
    x_at = x + (row % m).to(tl.int64)[:, None] * k + at_k[None, :]
    w_at = w + (col % n).to(tl.int64)[None, :] * k + at_k[:, None]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, steps):
        total = tl.dot(tl.load(x_at), tl.load(w_at), total)
        x_at += BK
        w_at += BK
    inside = (row < m)[:, None] & (col < n)[None, :]
    at = row.to(tl.int64)[:, None] * n + col[None, :]
    if SPLIT > 1:
        tl.store(partial + share.to(tl.int64) * m * n + at, total, mask=inside)
    else:
        tl.store(y + at, total.to(y.dtype.element_ty), mask=inside)


@triton.jit
def scaled_gemm(
    x,
    w,
    y,
    row_scale,
    column_scale,
    m,
    n,
    k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    """int8 operands, a scale for each row of x and of w. k is a multiple of BK."""
    tile_m, tile_n = _tile(tl.program_id(0), tl.cdiv(m, BM), tl.cdiv(n, BN), GROUP)
    row, col = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
    at_k = tl.arange(0, BK)
    x_at = x + (row % m).to(tl.int64)[:, None] * k + at_k[None, :]
    w_at = w + (col % n).to(tl.int64)[None, :] * k + at_k[:, None]
    total = tl.zeros((BM, BN), tl.int32)
    for _ in range(0, k // BK):
        total = tl.dot(tl.load(x_at), tl.load(w_at), total, out_dtype=tl.int32)
        x_at += BK
        w_at += BK
    scale = tl.load(row_scale + row % m)[:, None] * tl.load(column_scale + col % n)[None, :]
    at = row.to(tl.int64)[:, None] * n + col[None, :]
    tl.store(y + at, (total.to(tl.float32) * scale).to(y.dtype.element_ty), mask=(row < m)[:, None] & (col < n)[None, :])


@triton.jit
def sum_shares(partial, y, count, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for share in tl.static_range(SPLIT):
        total += tl.load(partial + share * count + at, mask=at < count, other=0.0)
    tl.store(y + at, total.to(y.dtype.element_ty), mask=at < count)


@triton.jit
def persistent_gemm(
    x, w, y, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr
):
    m_tiles, n_tiles = tl.cdiv(m, BM), tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), m_tiles * n_tiles, PROGRAMS, flatten=True):
        tile_m, tile_n = _tile(tile, m_tiles, n_tiles, GROUP)
        total = tl.zeros((BM, BN), tl.float32)
        for step in range(0, tl.cdiv(k, BK)):
            a = x.load([tile_m * BM, step * BK])
            b = w.load([tile_n * BN, step * BK])
            total = tl.dot(a, b.T, total)
        y.store([tile_m * BM, tile_n * BN], total.to(y.dtype))


REDUCE_BLOCK = 1024


def _config(bm, bn, bk, warps, stages, split=1):
    return dict(BM=bm, BN=bn, BK=bk, SPLIT=split, GROUP=8, num_warps=warps, num_stages=stages)


_POINTER = {
    16: [
        (16, 32, 128, 2, 5),
        (16, 32, 256, 4, 4),
        (16, 64, 128, 4, 4),
        (16, 64, 256, 4, 3),
        (16, 128, 64, 4, 5),
        (16, 128, 128, 8, 4),
        (16, 64, 128, 4, 4, 4),
        (16, 32, 256, 4, 4, 4),
    ],
    64: [
        (64, 32, 128, 4, 4),
        (64, 32, 64, 4, 6),
        (64, 64, 64, 4, 5),
        (64, 64, 128, 4, 4),
        (64, 128, 64, 4, 5),
        (64, 128, 128, 8, 3),
        (64, 64, 64, 4, 5, 4),
        (64, 32, 128, 4, 4, 4),
    ],
    128: [
        (64, 64, 64, 4, 5),
        (64, 64, 128, 4, 4),
        (64, 128, 64, 4, 5),
        (128, 64, 64, 4, 4),
        (128, 128, 64, 8, 4),
        (128, 64, 128, 4, 3),
        (64, 64, 128, 4, 4, 4),
        (128, 64, 64, 4, 4, 4),
    ],
    512: [
        (64, 128, 64, 4, 5),
        (64, 256, 64, 8, 4),
        (128, 128, 64, 4, 4),
        (128, 128, 64, 8, 4),
        (128, 256, 64, 8, 3),
        (128, 256, 64, 8, 4),
        (256, 128, 64, 8, 3),
        (64, 64, 128, 4, 4),
    ],
}
_PERSISTENT = {
    16: [(16, 32, 256, 4, 5), (16, 64, 128, 4, 6), (16, 64, 256, 4, 4), (16, 128, 64, 4, 6), (16, 128, 128, 4, 5)],
    64: [(64, 32, 128, 4, 5), (64, 64, 64, 4, 6), (64, 64, 128, 4, 4), (64, 128, 64, 4, 5), (64, 128, 128, 4, 3)],
    128: [
        (64, 64, 128, 4, 4),
        (64, 128, 64, 4, 5),
        (128, 32, 128, 4, 4),
        (128, 64, 64, 4, 5),
        (128, 64, 128, 4, 4),
        (128, 128, 64, 8, 4),
    ],
    512: [
        (64, 128, 64, 4, 5),
        (64, 256, 64, 4, 4),
        (128, 128, 64, 4, 4),
        (128, 128, 64, 8, 4),
        (128, 128, 128, 8, 3),
        (128, 256, 64, 8, 3),
        (256, 128, 64, 8, 3),
        (128, 256, 64, 8, 4),
    ],
}


def _class(m: int) -> int:
    return next((limit for limit in (16, 64, 128) if m <= limit), 512)


def pointer_configs(m: int, k: int) -> list:
    return [c for c in (_config(*values) for values in _POINTER[_class(m)]) if k % (c["SPLIT"] * c["BK"]) == 0]


def scaled_configs(m: int, k: int) -> list:
    """Those of pointer_configs with as many bytes of int8."""
    configs = [_config(bm, bn, 2 * bk, *rest) for bm, bn, bk, *rest in _POINTER[_class(m)]]
    return [
        {key: value for key, value in c.items() if key != "SPLIT"} for c in configs if c["SPLIT"] == 1 and k % c["BK"] == 0
    ]


def persistent_configs(m: int, programs: int) -> list:
    configs = [_config(*values) for values in _PERSISTENT[_class(m)]]
    return [{**{key: value for key, value in c.items() if key != "SPLIT"}, "PROGRAMS": programs} for c in configs]
