"""Products: the fast order of one, and sums of them in more digits than their factors have."""

import torch

Tensor = torch.Tensor
_FEW = 16
"""Rows below which a product by way of the transposes takes ten times as long."""


def product(d: Tensor, weight: Tensor) -> Tensor:
    """d weight for d (n, V); where its columns are contiguous, a result that has such too saves up to a tenth."""
    return torch.mm(d, weight) if len(d) < _FEW or d.is_contiguous() else torch.mm(weight.T, d.T).T


def add_product(total: Tensor, a: Tensor, b: Tensor, *, begun: bool) -> None:
    """total += a b, or total = a b where nothing was written to it yet.

    Of 16-bit factors, no product is rounded before it is added where the device can do that.
    """
    if a.device.type == "cpu":
        total.addmm_(a.to(total.dtype), b.to(total.dtype), beta=float(begun))
    elif a.dtype == total.dtype:
        total.addmm_(a, b, beta=float(begun))
    elif not _sums_in_float32(a):
        total.copy_(total + torch.mm(a, b) if begun else torch.mm(a, b))
    elif begun:
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
    else:
        torch.mm(a, b, out_dtype=total.dtype, out=total)


def _sums_in_float32(a: Tensor) -> bool:
    """Whether a product of 16-bit numbers can be given out and added in float32, without a rounded copy."""
    if a.device.type != "cuda" or torch.version.hip is not None or torch.__version__ < "2.8":
        return False
    return torch.cuda.get_device_capability(a.device) >= (8, 0)
