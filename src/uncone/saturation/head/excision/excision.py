import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from uncone.errors import InputError
from uncone.model.last_states import States
from uncone.records.text import counted, number, percent, signed
from uncone.records.tokens import Estimate
from uncone.roles import Progress
from uncone.rows import Array
from uncone.saturation.head.excision.record import Cause, Excised, Excision, Kind
from uncone.saturation.head.rank.truncation import Tensor, descending, gauge
from uncone.statistics.blocks import FEWEST_BLOCKS, block_sums, draws, ratio_interval

SPARED = 0.01  # a rise of the loss by at most this share of it does not count
FEW = 0.125  # of all directions: more are not "few dominant" directions
GAIN = 0.1  # alignment has come back if it rises by this much more than a random rotation's
LEVEL = 0.025  # of each side, shared among the few numbers of directions that are tried
MOSTLY = 0.5  # of a rise: if a constant explains more of it, the direction is a constant
_DRAWS, _RESAMPLES = 5, 4000
_FIRST: tuple[Kind, Kind] = "raw", "bias"


def excise(
    states: States, *, ks: Sequence[int] | None = None, seed: int = 0, progress: Progress | None = None
) -> Excision:
    """Take dominant directions out of the states: do the loss and the alignment with the head change?

    With V_k the k leading eigenvectors of the states' covariance, states become h - V_k V_k' (h - mean h) ("centred").
    Random orthonormal directions are taken out in the same way. With the leading eigenvectors of the second moment
    E[h h'] states become h - V_k V_k' h ("raw"). The first raw direction is mostly the mean state, which gives every
    context the same logits, as a bias does: "bias" takes raw directions out and keeps that constant, V_k V_k' mean h.

    Losses are read on every second window without the directions of the other windows, and the other way round, because
    the leading directions of a sample have more than their share of that sample's energy.

    The alignment is the cosine of the matrices S, the second moment (covariance) of the states, and G, the products W'W
    of the head without its mean row (of the head as stored, where logits are capped),

        tr(S G) / (||S||_F ||G||_F)

    (kernel alignment, Cristianini et al. 2001; linear CKA of the feature spaces, Kornblith et al. 2019). After a random
    rotation of S it is tr S tr G / (D ||S||_F ||G||_F) in expectation. The overlap is the mean squared cosine of the
    principal angles between the m leading eigenvectors of S and of G, m / D for random directions, with m = D / 8.

    Centred directions decide. If the alignment comes back without a few of them and the loss stays, the drift is
    harmless (2605.17084 finds such drift in late layers of small models). If the loss rises by more than without random
    directions, they carry what the head reads. The extra rise must exceed a 1 % share of the loss, with an interval
    over windows, and the spread between random draws (Student's t). Both intervals share 5 % among the numbers of
    directions that are tried.

    `ks` are numbers of directions; by default 0, 1, 2, 4, 8, ... to half of the columns.
    """
    d = states.states.shape[1]
    usual = [0, *(2**i for i in range(max(1, (d // 2).bit_length())))]
    ks = usual if ks is None else sorted({0, *ks})
    if ks[0] < 0 or ks[-1] > d:
        raise InputError(f"expected 0 to {d} directions to take out, got {list(ks)}: the states have {d} columns")
    _, moment, covariance = _moments(states.states)
    head = gauge(states.head, states.cap)
    gram, leading = head.T @ head, max(1, d // 8)
    of_head = descending(gram)[:, :leading]
    generator = torch.Generator().manual_seed(seed)
    normal = (torch.randn(d, d, generator=generator, dtype=torch.float64) for _ in range(_DRAWS))
    windows = states.windows.numpy()
    place = np.unique(windows, return_inverse=True)[1]
    folds, is_one = torch.from_numpy(place % 2), place.max() == 0
    others = [_moments(states.states if is_one else states.states[folds != fold]) for fold in (0, 1)]
    means, nothing = [one[0] for one in others], [torch.zeros(d, dtype=torch.float64)] * 2
    raw, centred = ([descending(one[order]) for one in others] for order in (1, 2))
    # the directions of each draw and the mean for both folds, and the moment and directions of all states
    kinds: dict[Kind, tuple[list[list[Tensor]], list[Tensor], Tensor, list[Tensor]]] = {
        "raw": ([raw], nothing, moment, [descending(moment)]),
        "bias": ([raw], means, moment, [descending(moment)]),
        "centred": ([centred], means, covariance, [descending(covariance)]),
    }
    drawn = [torch.linalg.qr(one)[0] for one in normal]
    kinds["random"] = [[one, one] for one in drawn], means, covariance, drawn
    before = _losses(states)
    rows, changes = list[Excised](), dict[tuple[Kind, int], Array]()
    for kind, (every, stays, about, whole) in kinds.items():
        for k in ks:
            found = np.zeros((len(before), len(every)))
            if k:
                cut = ([(folds == fold, one[fold][:, :k], stays[fold]) for fold in (0, 1)] for one in every)
                found = np.stack([_losses(states, one) - before for one in cut], axis=1)
            changes[kind, k] = block_sums(np.concatenate([np.ones((len(found), 1)), found], axis=1), windows)
            both = np.stack([np.ones(len(found)), found.mean(1)], axis=1)
            value = float(found.mean())
            change = Estimate(value, ratio_interval(block_sums(both, windows), 1, 0, value, seed))
            read = np.mean([_alignment(about, gram, of_head, one[:, :k]) for one in whole], axis=0)
            energy, alignment, chance, overlap = map(float, read)
            rows.append(Excised(kind, k, energy, change, alignment, chance, overlap, leading / d))
            if progress is not None:
                progress("taking directions out", len(rows), len(kinds) * len(ks))
    loss = float(before.mean())
    cause, verdict = _judged(rows, changes, loss, d, seed)
    bias = _constant(changes["raw", 1], changes["bias", 1], loss, seed) if 1 in ks else Estimate(None)
    if bias.value is not None:
        verdict += f" {_of_bias(rows, bias)}"
    return Excision(verdict, cause, loss, len(before), d, leading, tuple(rows), bias)


def _moments(states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, second moment and covariance, float64."""
    n, d = states.shape
    total, moment = torch.zeros(d, dtype=torch.float64), torch.zeros((d, d), dtype=torch.float64)
    for part in torch.split(states, 2**14):
        wide = part.double()
        total += wide.sum(0)
        moment += wide.T @ wide
    mean = total / n
    moment = moment / n
    return mean, moment, moment - torch.outer(mean, mean)


def _alignment(about: Tensor, gram: Tensor, of_head: Tensor, basis: Tensor) -> list[float]:
    """The share of the energy taken out, the alignment of the rest with the head, its chance, and the overlap."""
    d, leading = of_head.shape
    keep = torch.eye(d, dtype=torch.float64) - basis @ basis.T
    rest = keep @ about @ keep
    whole, trace = float(about.trace()), float(rest.trace())
    sizes = float(rest.norm() * gram.norm())
    if not sizes > 0 or not trace > 1e-12 * whole:
        return [1.0, 0.0, 0.0, 0.0]
    overlap = float((descending(rest)[:, :leading].T @ of_head).square().sum()) / leading
    cosine, chance = float((rest * gram).sum()) / sizes, trace * float(gram.trace()) / d / sizes
    return [1 - trace / whole, cosine, chance, overlap]


def _losses(states: States, cut: Sequence[tuple[Tensor, Tensor, Tensor]] = ()) -> Array:
    """The loss at each token; `cut` has the tokens (N,) bool of each fold, and takes directions (D, k) out of their
    states, about the mean (D,)."""
    losses = np.empty(len(states.states))
    for part in states.chunks():
        own = states.states[part].clone() if cut else states.states[part]
        for tokens, basis, mean in cut:
            here, narrow = tokens[part], basis.float()
            own[here] -= ((own[here] - mean.float()) @ narrow) @ narrow.T
        found = torch.nn.functional.cross_entropy(states.logits(own), states.labels[part], reduction="none")
        losses[part] = found.double().numpy()
    return losses


def _judged(
    rows: Sequence[Excised], changes: Mapping[tuple[Kind, int], Array], loss: float, d: int, seed: int
) -> tuple[Cause, str]:
    of = {(row.directions, row.k): row for row in rows}
    few = [row for row in rows if row.directions == "centred" and 0 < row.k <= max(1, FEW * d)]
    start, nats, blocks = of["centred", 0], f"of {number(loss)} nats", len(changes["centred", 0])
    if not few or blocks < FEWEST_BLOCKS:
        needs = f"at least {FEWEST_BLOCKS} windows of text, and 1 to {max(1, int(FEW * d))} directions to take out"
        return "none", f"Not decided: expected {needs}, got {counted(blocks, 'window')} and {len(few)} such numbers."
    level, drawn = LEVEL / len(few), draws(blocks, seed, _RESAMPLES)
    for row in few:
        means = _ratios(drawn @ changes["centred", row.k])
        back = row.alignment - row.chance - (start.alignment - start.chance)
        if np.quantile(means, 1 - level) <= SPARED * loss and back >= GAIN:
            without = f"Without {counted(row.k, 'centred direction')} the loss changes by"
            aligned = (
                f"the alignment with the head comes back from {number(start.alignment)} to {number(row.alignment)}"
            )
            change = f"{signed(row.change.value or 0)} {nats}"
            return "harmless drift", f"The drift is harmless. {without} {change}, and {aligned}."
    for row in few:
        own, null = changes["centred", row.k], changes["random", row.k]
        over = _ratios(drawn @ own)[:, 0] - _ratios(drawn @ null).mean(1)
        spread = float(_ratios(null.sum(0)).std(ddof=1)) * math.sqrt(1 + 1 / _DRAWS)
        value = float(_ratios(own.sum(0))[0] - _ratios(null.sum(0)).mean()) - SPARED * loss
        if np.quantile(over, level) > SPARED * loss and value > _four_degrees(level) * spread:
            rise, by_chance = (number(one.change.value or 0) for one in (row, of["random", row.k]))
            without = f"Without {counted(row.k, 'centred direction')} the loss rises by {rise} {nats}"
            what = "The dominant directions carry what the head reads"
            return "information", f"{what}. {without}, without as many random directions by {by_chance}."
    last = few[-1]
    ends = " to ".join(map(signed, last.change.interval or ()))
    change = f"by {signed(last.change.value or 0)} {nats} (95% interval {ends})"
    by_chance = f"without as many random directions by {signed(of['random', last.k].change.value or 0)}"
    without = f"Without {counted(last.k, 'centred direction')} the loss changes {change}, {by_chance}"
    return "none", f"This text does not show what the dominant directions carry. {without}."


def _constant(raw: Array, kept: Array, loss: float, seed: int) -> Estimate:
    """The share of the rise without the first raw direction that its constant explains; no value if no rise is shown,
    or if the share may be no more than half."""
    if len(raw) < FEWEST_BLOCKS:
        return Estimate(None)
    sums = np.stack([raw[:, 0], raw[:, 1], raw[:, 1] - kept[:, 1]], axis=1)
    count, rise, back = sums.sum(0).tolist()
    drawn = draws(len(raw), seed, _RESAMPLES) @ sums
    if np.quantile(drawn[:, 1] / drawn[:, 0], LEVEL) <= SPARED * loss or rise <= SPARED * loss * count:
        return Estimate(None)
    low, high = np.quantile(drawn[:, 2] / drawn[:, 1], [LEVEL, 1 - LEVEL]).tolist()
    share = back / rise
    return Estimate(share, (min(low, share), max(high, share))) if low > MOSTLY else Estimate(None)


def _of_bias(rows: Sequence[Excised], bias: Estimate) -> str:
    raw, kept = (next(r.change.value or 0.0 for r in rows if (r.directions, r.k) == (kind, 1)) for kind in _FIRST)
    low, high = (percent(end) for end in bias.interval or ())
    costs = f"Removing it costs {signed(raw)} nats, but {signed(kept)} nats with its constant part kept"
    what = "The first direction of the raw states is a constant logit bias"
    return f"{what}. {costs}: the constant explains {low} to {high} of the rise."


def _ratios(sums: Array) -> Array:
    """Means of the columns after the first, which counts tokens."""
    return np.asarray(sums[..., 1:] / sums[..., :1])


def _four_degrees(level: float) -> float:
    """The upper quantile of Student's t with `_DRAWS` - 1 = 4 degrees of freedom (Shaw 2006)."""
    root = math.sqrt(4 * level * (1 - level))
    return 2 * math.sqrt(math.cos(math.acos(root) / 3) / root - 1)
