"""How many directions a matrix's rows use, in the two passes of a record and without their spectrum."""

import torch

Tensor = torch.Tensor
PROBES = 16  # probes that find the largest directions, and as many again for the others


class Participation:
    """tr(C)^2 / tr(C^2) with C = X'X, for rows X without their mean: 1 on one line, D if all directions are alike.

    Hutch++ (Meyer et al. 2021): the first pass gives C S for a fixed S (D, 16), and from it an orthonormal Q. The
    second pass gives C Q, and C g for fixed g orthogonal to Q, scaled to the root of the D - 16 dimensions they
    represent:

        tr(C^2) ~ |C Q|^2 + mean |C g|^2

    Exact up to 16 dimensions and where variances are alike. The standard deviation over probes is below 1% where the
    k-th variance falls as 1 / k or faster, or where one direction outweighs all others, and at most 5% between, for
    instance for 40 equal directions. Each record uses the same S and g, so the jitter of a course is smaller.
    """

    def __init__(self, d: int, device: torch.device, dtype: torch.dtype) -> None:
        random = torch.Generator().manual_seed(1)
        self.probes, self._others = torch.randn(2, d, PROBES, generator=random).to(device, dtype)
        self._shift: Tensor | None = None
        self._products = torch.zeros(PROBES, d, device=device, dtype=torch.float64)
        self._images = torch.zeros(PROBES, device=device, dtype=torch.float64)

    def shifted(self, images: Tensor) -> Tensor:
        """Images of rows (n, D), rows times `probes`, less a common part, which would round the rest away."""
        if self._shift is None:
            self._shift = images.mean(0)
        return images - self._shift

    def add(self, products: Tensor, images: Tensor) -> None:
        """Add the `products` of rows' images (n, M), transposed, times these rows."""
        self._products += products
        self._images += images.sum(0).double()

    def end_first(self, mean: Tensor) -> None:
        """Prepare the second pass, whose rows are without their mean."""
        found, _ = torch.linalg.qr((self._products - torch.outer(self._images, mean)).T)
        d, k = found.shape
        others = self._others.double()
        others = others - found @ (found.T @ others)
        others *= max(0, d - k) ** 0.5 / others.norm(dim=0).clamp_min(1e-300)
        missing = found.new_zeros(d, PROBES - k)
        self.probes = torch.cat([found, missing, others], 1).to(self.probes.dtype)
        self._products = torch.zeros_like(self.probes.T, dtype=torch.float64)
        self._images = torch.zeros(2 * PROBES, device=mean.device, dtype=torch.float64)

    def ratio(self, trace: float) -> float | None:
        """None where all rows are alike."""
        squares = self._products.square().sum(1)
        total = float(squares[:PROBES].sum() + squares[PROBES:].sum() / PROBES)
        return trace**2 / total if total > 0 else None
