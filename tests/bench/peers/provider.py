"""What takes part in a comparison. No torch here: the rules are tested without it."""

# Room for two roundings to bf16 (2^-8 each): operators that frameworks compute in steps round in between.
ELEMENT = 2.0**-7
# Of the Frobenius norm; bf16 results of random inputs lie at 1.7e-3.
NORM = 5e-3


# Errors after which a CUDA context is of no more use.
LOST = ("illegal memory access", "misaligned address", "unspecified launch failure", "illegal instruction")


class Failed(Exception):
    """A provider can't be timed; the text says why."""


class Provider:
    """One way to compute the operator. `calls`: one function a buffer set, which either writes the set's own outputs
    and returns None, or returns its outputs, newly allocated, in the operator's order. `role`: ours, peer or copy.
    `check`: for a provider without the operator's outputs, says whether it did its work. `tolerance`: multiplies the
    bound of an element, for a peer that rounds in between more than twice."""

    def __init__(
        self, name, role, calls, config="", note="", prepare_s=0.0, scratch_bytes=None, check=None, tolerance=1.0
    ):
        self.name, self.role, self.calls, self.config, self.note = name, role, calls, config, note
        self.prepare_s, self.scratch_bytes, self.check, self.tolerance = prepare_s, scratch_bytes, check, tolerance


def is_right(result: dict, tolerance=1.0) -> bool:
    """`result` as of compare(). NaN compares false."""
    return result["error"] <= NORM and result["worst"] <= tolerance


def is_lost(error: Exception) -> bool:
    return any(text in str(error) for text in LOST)
