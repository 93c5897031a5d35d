"""mu-loss: weight |mean row|^2 of the output head, with a warning where a few giant rows hold the mean."""

import warnings
from dataclasses import dataclass, field

import torch

Tensor = torch.Tensor


@dataclass
class MuLoss:
    """`weight` |mean row|^2 (the mu-loss of Output Embedding Centering, arXiv 2601.02031; its code has 1e-4).

    The mean of V rows can be held at 0 by one row of norm V |mean|, so a small penalty does not show that the cone is
    gone. In the authors' own runs a few rows grew to 10 to 13 times the mean norm and I(W) fell to 0 in 4 of 5 sizes.
    Every `every` calls the longest row is compared with the median one, and one warning is given above `giant` times.
    """

    weight: float = 1e-4
    giant: float = 8.0  # times the median norm of rows
    every: int = 100  # calls between two looks, each a pass over the table
    _calls: int = field(default=0, init=False)
    _warned: bool = field(default=False, init=False)

    def __call__(self, rows: Tensor) -> Tensor:
        """The penalty, a scalar, of rows (V, D)."""
        if not self._warned and self._calls % self.every == 0:
            self._look(rows.detach())
        self._calls += 1
        return self.weight * rows.mean(0).square().sum()

    def _look(self, rows: Tensor) -> None:
        norms = torch.linalg.vector_norm(rows, dim=1)
        longest, median = float(norms.max()), float(norms.median())
        if longest > self.giant * median:
            self._warned = True
            said = f"row {int(norms.argmax())} has norm {longest:.3g}, the median row {median:.3g}"
            warnings.warn(
                f"{said}: the penalty sees only the mean row, which giant rows can hold at 0. Look at I(W) and at the "
                "row norms, or subtract the mean row after each step instead",
                stacklevel=3,
            )
