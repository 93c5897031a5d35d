"""How far Adam's second moment pushes a rare token's probability below its frequency, predicted from counts."""

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from uncone.arguments import finite_number
from uncone.errors import InputError
from uncone.measure.group_comparison import NAMES, frequency_membership
from uncone.model.counts import as_counts


@dataclass(frozen=True)
class KappaGroup:
    name: str  # frequent, medium or rare
    tokens: int  # ids in the group
    frequency: float  # median share of the targets
    kappa: float  # (1 - beta2) / (frequency x targets per step), at the median
    periodic: float  # predicted over true probability where the token occurs at even distances
    random: float  # the same where it occurs at random; 0: only eps and the token's own pushes end its fall


@dataclass(frozen=True)
class KappaTable:
    """Prints as a table, one group per line."""

    beta2: float
    targets: float  # per step
    groups: tuple[KappaGroup, ...]

    def __str__(self) -> str:
        head = f"beta2 {self.beta2:g}, {self.targets:,g} targets per step: predicted over true probability by frequency"
        lines = [f"{'group':10}{'tokens':>10}{'frequency':>12}{'kappa':>10}{'periodic':>10}{'random':>10}"]
        lines += [
            f"{g.name:10}{g.tokens:>10,}{g.frequency:>12.3g}{g.kappa:>10.3g}{g.periodic:>10.3g}{g.random:>10.3g}"
            for g in self.groups
        ]
        return "\n".join([head, *lines])


def kappa_by_frequency(counts: Any, targets: float, *, beta2: float = 0.999) -> KappaTable:
    """Which tokens a per-row second moment, such as Adam's, makes a model predict too rarely, and by how much.

    Between two targets of a token, the token's second moment fades by beta2 per step. The small pushes down therefore
    weigh more and more, and the one pull up weighs least. With q the token's share of the targets and B the targets per
    step:

        kappa = (1 - beta2) / (q B)
        predicted / true = kappa / (2 (exp(kappa / 2) - 1))    the token occurs at even distances
        predicted / true = max(0, 1 - kappa / 2)               the token occurs at random

    The first formula is from Kar 2026, arXiv 2609.37535, which we have not read; experiments/kappa derives and tests
    both. They hold for a single logit with rare targets (q B below 1), a small learning rate, beta1 = 0 and beta2 near
    1. In a softmax of biases they give the order of groups but not the numbers: all logits fall together there, and
    frequent tokens gain what rare tokens lose. We did not try heads with states. A second moment shared over rows
    ("column") showed no deficit.

        print(uncone.kappa_by_frequency(counts, targets=1024, beta2=0.95))

    Args:
        counts: (V,), the count of each id in the training text.
        targets: B, the targets of one optimiser step over all ranks and micro-batches.
        beta2: the optimiser's beta2.

    InputError for counts or numbers out of range.
    """
    targets, beta2 = finite_number(targets, "targets"), finite_number(beta2, "beta2")
    if not (targets > 0 and 0 <= beta2 < 1):
        got = f"got {targets:g} and {beta2:g}: pass the values used in training"
        raise InputError(f"expected targets above 0 and a beta2 from 0 to below 1, {got}")
    if isinstance(counts, str | os.PathLike):
        raise InputError(f"expected counts (V,), got a path: read it first, as numpy.load({os.fspath(counts)!r}) does")
    known = as_counts(counts, len(counts)).counts
    members = frequency_membership(len(known), counts=known).groups
    found = []
    for group in range(3):
        of_group = known[members == group]
        if len(of_group):
            q = float(np.median(of_group)) / float(known.sum())
            kappa = (1 - beta2) / (q * targets)
            found.append(KappaGroup(NAMES[group], len(of_group), q, kappa, _periodic(kappa), max(0.0, 1 - kappa / 2)))
    return KappaTable(beta2, targets, tuple(found))


def _periodic(kappa: float) -> float:
    return kappa / 2 / math.expm1(kappa / 2) if kappa < 1400 else 0.0
