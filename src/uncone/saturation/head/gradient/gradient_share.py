import math

import numpy as np
import torch

from uncone.errors import UndefinedMeasure
from uncone.measure.group_comparison import NAMES, frequency_membership
from uncone.model.last_states import States
from uncone.records.text import number, percent
from uncone.records.tokens import Estimate
from uncone.roles import Progress
from uncone.rows import Array
from uncone.saturation.head.gradient.record import GradientShare, KeptShare
from uncone.saturation.head.rank.truncation import Tensor, gauge
from uncone.statistics.blocks import block_sums, ratio_interval

NEAR = 2.0  # within this factor of a random subspace, counting dimensions predicts what is kept
_RANK = 1e-6  # of the largest singular value: smaller directions pass nothing back


def kept_gradient_share(states: States, *, seed: int = 0, progress: Progress | None = None) -> GradientShare:
    """The share of the gradient by the logits that is in the column space of the head.

        share of squared norms = ||P g||^2 / ||g||^2,  g = softmax(z) - onehot(y)

    P is the orthogonal projector on the columns of the head W (V, D): a state can change the logits only within them
    (Godey and Artzi 2026). Because g sums to 0 and a constant changes no probability, the mean row of W is first
    subtracted from every row. With capped logits, g is taken at the head's product, through the cap, and W as stored.

    A random subspace of r dimensions keeps r / (V - 1) of the squared norm of any sum-zero g in expectation (r / V of
    any g). Of the norm it keeps the mean of the root of a Beta((r / 2), (V - 1 - r) / 2) variable,

        Gamma((r + 1) / 2) Gamma(n / 2) / (Gamma(r / 2) Gamma((n + 1) / 2)),  n = V - 1

    so a share of norms is about the root of a share of squares: do not mix the two.
    """
    basis = column_space(states.head, states.cap)
    kept, whole = np.empty((2, len(states.states)))
    for part in states.chunks():
        g = logit_gradient(states, part)
        whole[part] = (g.double() ** 2).sum(1).numpy()
        kept[part] = ((g @ basis).double() ** 2).sum(1).numpy()
        if progress is not None:
            progress("projecting the gradient", part.stop, len(states.states))
    if not whole.sum() > 0:
        raise UndefinedMeasure("the gradient by the logits is zero at every token: there is nothing to keep")
    (v, d), is_centred = states.head.shape, states.cap is None
    rank, n = basis.shape[1], v - is_centred
    groups, definition = _groups(states, kept, whole, seed)
    shape, chances = (v, d, rank, is_centred), (rank / n, chance_of_norms(rank, n))
    return GradientShare(_verdict(groups[0], *chances, rank, v), *shape, *chances, groups, definition)


def column_space(head: Tensor, cap: float | None) -> Tensor:
    """Orthonormal columns (V, r), float32, that span the columns of the head (V, D) of numerical rank r."""
    wide = gauge(head, cap)
    values, vectors = torch.linalg.eigh(wide.T @ wide)
    keep = values > max(float(values[-1]), 0) * _RANK**2 + torch.finfo(torch.float64).tiny
    if not bool(keep.any()):
        raise UndefinedMeasure("the head's rows are all the same: it passes no gradient back")
    # QR removes the error of eigenvectors with close eigenvalues
    orthonormal: Tensor = torch.linalg.qr(wide @ (vectors[:, keep] / values[keep].sqrt()))[0]
    return orthonormal.float()


def logit_gradient(states: States, part: slice) -> Tensor:
    """(n, V) float32: the gradient of each token's loss by the head's product, through a cap if there is one."""
    logits = states.logits(states.states[part])
    g = torch.softmax(logits, 1)
    g[torch.arange(len(g)), states.labels[part]] -= 1
    return g if states.cap is None else g * (1 - (logits / states.cap) ** 2)


def chance_of_norms(rank: int, n: int) -> float:
    """The mean share of a vector's norm that a random subspace of `rank` of n dimensions keeps."""
    if rank >= n:
        return 1.0
    gamma = math.lgamma
    return math.exp(gamma((rank + 1) / 2) + gamma(n / 2) - gamma(rank / 2) - gamma((n + 1) / 2))


def _groups(states: States, kept: Array, whole: Array, seed: int) -> tuple[tuple[KeptShare, ...], str]:
    labels, windows = states.labels.numpy(), states.windows.numpy()
    seen, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    membership = frequency_membership(len(seen), counts=counts)
    masks = {"all": np.ones(len(labels), bool)} | {NAMES[g]: membership.groups[place] == g for g in range(3)}
    found = [_share(name, mask, labels, kept, whole, windows, seed) for name, mask in masks.items() if mask.any()]
    return tuple(found), f"Groups of the targets' ids: {membership.definition} in this text."


def _share(name: str, mask: Array, labels: Array, kept: Array, whole: Array, windows: Array, seed: int) -> KeptShare:
    mask = mask & (whole > 0)
    k, w = kept[mask], whole[mask]
    columns = np.stack([np.ones_like(k), np.sqrt(k / w), k / w, np.sqrt(k), np.sqrt(w), k, w], axis=1)
    sums = block_sums(columns, np.unique(windows[mask], return_inverse=True)[1]) if len(k) else np.zeros((0, 7))
    estimates = [_estimate(sums, over, under, seed) for over, under in ((1, 0), (3, 4), (2, 0), (5, 6))]
    return KeptShare(name, len(k), len(np.unique(labels[mask])), *estimates)


def _estimate(sums: Array, over: int, under: int, seed: int) -> Estimate:
    total = sums.sum(0)
    if not total[under] > 0:
        return Estimate(None)
    value = float(total[over] / total[under])
    return Estimate(value, ratio_interval(sums, over, under, value, seed))


def _verdict(share: KeptShare, squares: float, norms: float, rank: int, v: int) -> str:
    value, norm = share.sum_squares.value or 0.0, share.mean_norms.value or 0.0
    times = (
        f"The head keeps {number(value / squares)} times their squared norm ({number(norm / norms)} times their norm)"
    )
    why = f"{times}, which this text cannot distinguish from {number(NEAR)} times"
    if share.sum_squares.interval is None:
        why = f"{times}. There are too few windows of text for an interval"
    else:
        low, high = share.sum_squares.interval
        if low > NEAR * squares:
            why = f"{times}, which is more than counting dimensions predicts"
        elif high < squares / NEAR:
            why = f"{times}, so more is lost than counting dimensions predicts"
        elif squares / NEAR < low and high < NEAR * squares:
            why = f"{times}, so the number of dimensions explains nearly all of the loss"
    own, chance = (_lost(*both) for both in ((value, norm), (squares, norms)))
    lost = f"The head loses {own} of the gradient by its logits"
    return f"{lost}. {rank} random directions of {v} would lose {chance}. {why}."


def _lost(squares: float, norms: float) -> str:
    return f"{percent(1 - squares, precise=True)} of the squared norm ({percent(1 - norms, precise=True)} of the norm)"
