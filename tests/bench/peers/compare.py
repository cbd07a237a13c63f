"""Compares outputs with a reference in double precision. Works on any torch device."""

import torch

from provider import ELEMENT

# Elements compared at once.
_CHUNK = 1 << 27


def _chunks(count, width):
    step = max(1, _CHUNK // max(1, width))
    return [(start, min(count, start + step)) for start in range(0, count, step)]


def compare(got, want) -> dict:
    """{"error": ‖got - want‖ / ‖want‖, "worst": largest |got - want| / (2^-7·|want| + 2^-7·rms of its row)}. A NaN or a
    missing element makes both infinite."""
    if tuple(got.shape) != tuple(want.shape):
        return {"error": float("inf"), "worst": float("inf")}
    rows = want.reshape(1, -1) if want.dim() < 2 else want.reshape(-1, want.shape[-1])
    out = got.reshape(rows.shape)
    wrong, total, worst = 0.0, 0.0, 0.0
    for start, end in _chunks(*rows.shape):
        reference = rows[start:end].double()
        difference = (out[start:end].double() - reference).abs()
        if not bool(torch.isfinite(difference).all()):
            return {"error": float("inf"), "worst": float("inf")}
        wrong += float((difference * difference).sum())
        squares = reference * reference
        total += float(squares.sum())
        limit = ELEMENT * (reference.abs() + squares.mean(-1, keepdim=True).sqrt())
        worst = max(worst, float((difference / limit.clamp_min(1e-30)).max()))
    return {"error": (wrong / total) ** 0.5 if total else wrong**0.5, "worst": worst}


def equal(got, want) -> dict:
    """The same for what must be equal."""
    same = tuple(got.shape) == tuple(want.shape) and bool((got == want).all())
    return {"error": 0.0 if same else float("inf"), "worst": 0.0 if same else float("inf")}


def poison(tensor):
    """Fills with what no right kernel writes."""
    if tensor.dtype.is_floating_point and tensor.element_size() > 1:
        tensor.fill_(float("nan"))
    elif tensor.element_size() == 1:
        tensor.view(torch.uint8).fill_(0x7F)
    else:
        tensor.fill_(-(2**31) + 1)
