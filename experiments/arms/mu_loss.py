"""mu-loss (output embedding centering, 2601.02031): gamma |mean row|^2, with a warning of giant rows."""

import warnings

import torch

Tensor = torch.Tensor


class MuLoss:
    """gamma |mean row of (V, D)|^2. Every `every` calls it warns where a norm is above `giant` times the median: one
    giant row can hold the mean at 0 while all others drift."""

    def __init__(self, gamma: float = 1e-4, giant: float = 10.0, every: int = 100) -> None:
        self.gamma, self.giant, self.every, self.calls = gamma, giant, every, 0

    def __call__(self, matrix: Tensor) -> Tensor:
        rows = matrix if matrix.dtype == torch.float64 else matrix.float()
        if self.calls % self.every == 0:
            norms = rows.detach().norm(dim=1)
            row, middle = int(norms.argmax()), float(norms.median())
            if float(norms[row]) > self.giant * middle:
                warnings.warn(f"row {row} has norm {float(norms[row]):.3g}, the median is {middle:.3g}", stacklevel=2)
        self.calls += 1
        return self.gamma * rows.mean(0).square().sum()
