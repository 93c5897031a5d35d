"""How many directions a matrix's rows use, in the two passes of a record and without their spectrum."""

import torch

Tensor = torch.Tensor
PROBES = 16  # that find the largest directions, and again as many for the others


class Participation:
    """tr(C)^2 / tr(C^2) with C = X'X, of rows X without their mean: 1 along one line, D in all directions alike.

    Hutch++ (Meyer et al. 2021): the first pass gives C S of fixed S (D, 16) and with it an orthonormal Q, the second
    C Q and C g of fixed g off Q, which are made as long as the root of the D - 16 dimensions that they stand for:

        tr(C^2) ~ |C Q|^2 + mean |C g|^2

    Exact up to 16 dimensions and where variances are alike. The standard deviation over probes is below 1% where the
    k-th variance falls as 1 / k or faster, or one direction outweighs all, and at most 5% between, of 40 equal
    directions for instance. The same S and g serve in each record, so that a course has less jitter than that.
    """

    def __init__(self, d: int, device: torch.device, dtype: torch.dtype) -> None:
        random = torch.Generator().manual_seed(1)
        drawn = torch.randn(2, d, min(PROBES, d), generator=random).to(device, dtype)
        self._first, self._others = drawn
        self._probes, self._shift = self._first, torch.zeros(drawn.shape[2], device=device, dtype=dtype)
        self._products = torch.zeros(drawn.shape[1:], device=device, dtype=torch.float64)
        self._images = torch.zeros(drawn.shape[2], device=device, dtype=torch.float64)

    def first(self, x: Tensor, start: int) -> None:
        if not start:  # a common part of all rows would round the rest away
            self._shift = x.mean(0) @ self._first
        images = x @ self._first - self._shift
        self._products += (x.T @ images).double()
        self._images += images.sum(0).double()

    def end_first(self, mean: Tensor) -> None:
        found, _ = torch.linalg.qr(self._products - torch.outer(mean, self._images))
        d, k = found.shape
        others = self._others.double()
        others = others - found @ (found.T @ others)
        others *= (d - k) ** 0.5 / others.norm(dim=0).clamp_min(1e-300)
        self._probes = torch.cat([found, others[:, : k * (d > k)]], 1).to(self._first.dtype)
        self._products = torch.zeros_like(self._probes, dtype=torch.float64)

    def second(self, c: Tensor) -> None:
        """`c` are rows without their mean."""
        self._products += (c.T @ (c @ self._probes)).double()

    def ratio(self, trace: float) -> float | None:
        """None where all rows are alike."""
        squares = self._products.square().sum(0)
        k = self._first.shape[1]
        total = float(squares[:k].sum() + squares[k:].sum() / k)
        return trace**2 / total if total > 0 else None
