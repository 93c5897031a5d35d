"""What a loss notes about its targets, in addition to its value."""

from dataclasses import dataclass

import torch

Tensor = torch.Tensor
OF_A_TARGET = 4
"""Numbers of each target: its cross-entropy, its z loss, whether it was predicted, and its log-sum-exp."""


@dataclass(frozen=True, eq=False, repr=False)
class CrossEntropyStats:
    """Means over the targets of one loss, or of several (`a + b`), as scalars without a graph on the loss's device, so
    that code waits for a GPU only when it reads one. Without targets the means are 0. Weights do not count here."""

    numbers: Tensor
    """(6,) float64: the number of targets; sums over targets of the cross-entropy, the z loss, correct predictions and
    the log-sum-exp; the largest log-sum-exp, -inf without targets."""

    @property
    def targets(self) -> Tensor:
        return self.numbers[0]

    @property
    def cross_entropy(self) -> Tensor:
        """Nats per target, without label smoothing and z loss: its exponential is the perplexity."""
        return self._mean(1)

    @property
    def z_loss(self) -> Tensor:
        """What the z loss adds per target, L lse(z)^2."""
        return self._mean(2)

    @property
    def accuracy(self) -> Tensor:
        """The share of targets whose logit no other logit exceeds: a tie counts as right."""
        return self._mean(3)

    @property
    def logsumexp(self) -> Tensor:
        return self._mean(4)

    @property
    def largest_logsumexp(self) -> Tensor:
        return torch.where(self.targets > 0, self.numbers[5], 0.0)

    def __add__(self, other: "CrossEntropyStats") -> "CrossEntropyStats":
        both = torch.stack([self.numbers, other.numbers.to(self.numbers.device)])
        return CrossEntropyStats(torch.cat([both[:, :5].sum(0), both[:, 5:].amax(0)]))

    def __repr__(self) -> str:
        named = ("targets", "cross_entropy", "z_loss", "accuracy", "logsumexp", "largest_logsumexp")
        return f"{type(self).__name__}({', '.join(f'{name}={float(getattr(self, name)):.6g}' for name in named)})"

    def _mean(self, at: int) -> Tensor:
        return self.numbers[at] / self.targets.clamp(min=1)


class Notes:
    """Sums numbers of targets, chunk by chunk."""

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(OF_A_TARGET, dtype=torch.float64, device=device)
        self._largest = torch.full((1,), -torch.inf, dtype=torch.float64, device=device)

    def add(self, each: Tensor) -> None:
        """`each` (n, 4), in the order of `OF_A_TARGET`."""
        self._sums += each.sum(dim=0, dtype=torch.float64)
        self._largest = torch.maximum(self._largest, each[:, 3].amax().double())

    def numbers(self, targets: Tensor) -> Tensor:
        return torch.cat([targets.double().reshape(1), self._sums, self._largest])
