"""The lengths of rows, of any size that a float can hold."""

import torch

from uncone.errors import InputError

Tensor = torch.Tensor
_SAFE_NORM = {torch.float32: (1e-11, 1e15), torch.float64: (1e-140, 1e140)}  # no square under- or overflows
SHORTEST = _SAFE_NORM[torch.float64][0]
"""Where no row is longer, second-order sums have no digits."""


class NotFiniteError(InputError):
    """A block holds a NaN or an infinity. The owner of the rows makes of it the message that counts them."""


def are_safe(norms: Tensor) -> bool:
    """Whether these norms, in the dtype of the rows, hold no zero, NaN, overflow or underflow."""
    low, high = _SAFE_NORM[norms.dtype]
    lowest, highest = torch.aminmax(norms)  # NaN where any norm is
    return float(lowest) > low and float(highest) < high


def measured_norms(x: Tensor) -> Tensor | None:
    """The rows' Euclidean norms in float64; None where float32 rows have no float32 squares."""
    norms: Tensor = torch.linalg.vector_norm(x, dim=1)
    if are_safe(norms):
        return norms.double()
    low, high = _SAFE_NORM[x.dtype]
    if not bool(torch.isfinite(x).all()):
        raise NotFiniteError(
            f"expected finite rows, got {int((~torch.isfinite(x).all(dim=1)).sum())} with NaN or inf: mend or drop them"
        )
    if x.dtype == torch.float32:
        if float(norms.max()) < high and bool(((norms > low) | (x == 0).all(dim=1)).all()):
            return norms.double()  # short only where all zero
        return None
    largest: Tensor = x.abs().amax(dim=1)
    if float(largest.max()) > high:
        raise InputError(f"expected numbers below {high:.0e}, got {float(largest.max()):.3g}: scale the rows")
    scaled = torch.where(largest > 0, largest, 1.0)
    long: Tensor = largest * torch.linalg.vector_norm(x / scaled[:, None], dim=1)
    return long


def row_norms(x: Tensor) -> Tensor:
    """The rows' Euclidean norms, float64 (n,), of rows of any finite length."""
    norms = measured_norms(x)
    return measured_norms(x.double()) if norms is None else norms  # type: ignore[return-value]


def inverse(norms: Tensor) -> Tensor:
    """1 / norm, and 0 for a row that has no direction."""
    return torch.where(norms > 0, 1 / norms, 0.0)
