"""From counts to gates: which ids are rare, and the two factors of each."""

from dataclasses import dataclass

import torch

from uncone.errors import InputError

Tensor = torch.Tensor
Gates = tuple[Tensor, Tensor, Tensor]
MODES = ("relative", "paper", "official", "hard")
RARE_SHARE = 0.19
"""The share of the vocabulary that the paper evaluates as rare."""
ALPHA = 0.03
"""The published language models call ids with fewer targets a step rare, of 32,768 in all."""
_ROUNDED = 1e-7


@dataclass(frozen=True)
class Rule:
    """How gates follow from counts. One of `share`, `frequency` and `alpha` is set."""

    mode: str
    share: float | None
    frequency: float | None
    alpha: float | None
    gate_max: float

    @classmethod
    def of(
        cls, mode: str, share: float | None, frequency: float | None, alpha: float | None, gate_max: float
    ) -> "Rule":
        """The rule with its defaults, checked."""
        if mode not in MODES:
            raise InputError(f"expected a mode among {', '.join(MODES)}, got {mode!r}: use one of them")
        if sum(given is not None for given in (share, frequency, alpha)) > 1:
            raise InputError(
                "expected one of rare_share, rare_frequency and alpha, got several: each says what is rare"
            )
        if share is None and frequency is None and alpha is None:
            share, alpha = (None, ALPHA) if mode in ("paper", "official") else (RARE_SHARE, None)
        for name, value in (("rare_share", share), ("rare_frequency", frequency), ("gate_max", gate_max)):
            if value is not None and not 0 <= value <= 1:
                why = "above 1 the gate would amplify" if name == "gate_max" else "it is a share of the whole"
                raise InputError(f"expected {name} in [0, 1], got {value}: {why}")
        if alpha is not None and not 0 < alpha <= 1:
            raise InputError(
                f"expected alpha in (0, 1], got {alpha}: it is a number of targets a step, and above 1 the "
                "gate would amplify; rare_frequency does not depend on the batch size"
            )
        return cls(mode, share, frequency, alpha, gate_max)

    def gates(
        self, counts: Tensor, steps: float, can_be_rare: Tensor, targets_per_step: float | None
    ) -> Gates:
        """The gates of ids counted `counts` (V,) times in `steps` steps; without counts no id is rare.

        Counts a step are read at a batch of `targets_per_step`; None is the batch of the counts.
        """
        total = float(counts.sum())
        if steps == 0 or total == 0:
            return _open(len(counts))
        counts = counts.double()
        rate = counts / steps if targets_per_step is None else counts * (targets_per_step / total)
        rare, threshold = self._rare(counts, rate, total, can_be_rare)
        if not bool(rare.any()):
            return _open(len(counts))
        g1, g2 = self._factors(counts, rate, total, rare, threshold)
        one = torch.ones((), dtype=torch.float64)
        return rare, torch.where(rare, g1, one).float(), torch.where(rare, g2, one).float()

    def _rare(self, counts: Tensor, rate: Tensor, total: float, can_be_rare: Tensor) -> tuple[Tensor, float]:
        """The rare ids, and the count at which ids cease to be rare."""
        if self.frequency is not None:
            return (counts < self.frequency * total) & can_be_rare, self.frequency * total
        if self.alpha is not None:
            rare = (rate < self.alpha) & can_be_rare
            return rare, self.alpha * float(total / rate.sum())
        assert self.share is not None
        ids = can_be_rare.nonzero().flatten().flip(0)  # among equal counts the higher id is the rarer
        chosen = ids[torch.sort(counts[ids], stable=True).indices[: int(self.share * len(ids))]]
        rare = torch.zeros(len(counts), dtype=torch.bool)
        rare[chosen] = True
        return rare, float(counts[chosen].max()) if len(chosen) else 0.0

    def _factors(
        self, counts: Tensor, rate: Tensor, total: float, rare: Tensor, threshold: float
    ) -> tuple[Tensor, Tensor]:
        if self.mode == "hard":
            return torch.zeros_like(counts), torch.zeros_like(counts)
        g2 = (counts / (counts[rare].mean() + _ROUNDED)).clamp_max(1.0)
        if self.mode == "relative":
            g1 = self.gate_max * counts / threshold if threshold > 0 else torch.zeros_like(counts)
            return g1.clamp_max(self.gate_max), g2
        return rate.clamp_max(1.0), g2


def _open(n: int) -> Gates:
    return torch.zeros(n, dtype=torch.bool), torch.ones(n), torch.ones(n)
