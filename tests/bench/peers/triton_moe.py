"""Triton peers of the grouped GEMM: a persistent kernel that walks over the groups on the device, rows of x by tensor
descriptors (TMA) or gathered by pointers; and the same for fp8 with scales of blocks of 128."""

import triton
import triton.language as tl


@triton.jit
def grouped_gemm(
    x,
    x_rows,
    w,
    y,
    groups,
    slots,
    weights,
    scale_x,
    scale_w,
    experts,
    n,
    k,
    topk,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GATHER: tl.constexpr,
    SCATTER: tl.constexpr,
    SCALED: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """x and w are descriptors, w of [experts · n, k]; x_rows is x as a pointer. SCALED: BK is 128 and divides k, BN
    divides 128."""
    tile = tl.program_id(0)
    n_tiles = tl.cdiv(n, BN)
    before = 0
    for expert in range(0, experts):
        begin, end = tl.load(groups + expert), tl.load(groups + expert + 1)
        m_tiles = tl.cdiv(end - begin, BM)
        after = before + m_tiles * n_tiles
        while tile < after:
            within = tile - before
            row0, col0 = begin + within % m_tiles * BM, within // m_tiles * BN
            row, col = row0 + tl.arange(0, BM), col0 + tl.arange(0, BN)
            inside = row < end
            if GATHER or SCATTER:
                slot = tl.load(slots + row, mask=inside, other=0)
            if GATHER:
                source = slot // topk
            else:
                source = row
            x_at = x_rows + source.to(tl.int64)[:, None] * k + tl.arange(0, BK)[None, :]
            total = tl.zeros((BM, BN), tl.float32)
            for step in range(0, tl.cdiv(k, BK)):
                if GATHER:
                    a = tl.load(x_at + step * BK, mask=(step * BK + tl.arange(0, BK) < k)[None, :], other=0.0)
                else:
                    a = x.load([row0, step * BK])
                b = w.load([expert * n + col0, step * BK])
                if SCALED:
                    rows_scale = tl.load(scale_x + source * (k // 128) + step, mask=inside, other=0.0)
                    column_scale = tl.load(scale_w + (expert * tl.cdiv(n, 128) + col0 // 128) * (k // 128) + step)
                    total += tl.dot(a, b.T) * (rows_scale * column_scale)[:, None]
                else:
                    total = tl.dot(a, b.T, total)
            target = row
            if SCATTER:
                total *= tl.load(weights + slot, mask=inside, other=0.0)[:, None]
                target = slot
            at = target.to(tl.int64)[:, None] * n + col[None, :]
            tl.store(y + at, total.to(y.dtype.element_ty), mask=inside[:, None] & (col < n)[None, :])
            tile += PROGRAMS
        before = after


# By mean rows of a group: (BM, BN, BK, warps, stages).
_CONFIGS = {
    16: [(16, 128, 64, 4, 6), (16, 128, 128, 4, 4), (16, 64, 128, 4, 6), (16, 256, 64, 4, 4), (32, 128, 64, 4, 5)],
    64: [(16, 128, 128, 4, 4), (32, 128, 64, 4, 5), (64, 128, 64, 4, 5), (64, 128, 128, 4, 3), (64, 256, 64, 4, 4)],
    512: [
        (64, 128, 64, 4, 5),
        (64, 256, 64, 4, 4),
        (128, 128, 64, 4, 4),
        (128, 128, 64, 8, 4),
        (128, 256, 64, 8, 3),
        (128, 256, 64, 8, 4),
    ],
}
_SCALED = [(16, 128, 4, 4), (32, 128, 4, 4), (64, 128, 4, 4), (64, 64, 4, 5), (128, 128, 8, 3), (128, 128, 8, 4)]


def configs(mean_rows: float, programs: int, gather: int, scatter: int, scaled: bool) -> list:
    limit = next((limit for limit in (16, 64) if mean_rows <= limit), 512)
    values = [(bm, bn, 128, warps, stages) for bm, bn, warps, stages in _SCALED] if scaled else _CONFIGS[limit]
    return [
        dict(
            BM=bm,
            BN=bn,
            BK=bk,
            GATHER=gather,
            SCATTER=scatter,
            SCALED=int(scaled),
            PROGRAMS=programs,
            num_warps=warps,
            num_stages=stages,
        )
        for bm, bn, bk, warps, stages in values
    ]
