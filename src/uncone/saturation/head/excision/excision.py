from collections.abc import Sequence

import numpy as np
import torch

from uncone.errors import InputError
from uncone.model.last_states import States
from uncone.records.text import counted, number, signed
from uncone.records.tokens import Estimate
from uncone.roles import Progress
from uncone.rows import Array
from uncone.saturation.head.excision.record import Cause, Excised, Excision, Kind
from uncone.saturation.head.rank.truncation import Tensor, descending, gauge
from uncone.statistics.blocks import block_sums, ratio_interval

SPARED = 0.01  # a rise of the loss by at most this share of it is none
FEW = 0.125  # of all directions: more are no "few dominant" ones
GAIN = 0.1  # alignment is back where it rises by this much of the way from chance to 1


def excise(
    states: States, *, ks: Sequence[int] | None = None, seed: int = 0, progress: Progress | None = None
) -> Excision:
    """Take dominant directions out of the states: do the loss and the alignment with the head change?

    With V_k the k leading eigenvectors of the states' second moment E[h h'], states become h - V_k V_k' h ("raw"). With
    those of their covariance they become h - V_k V_k' (h - mean h) ("centred"). Random orthonormal directions are taken
    out as raw ones are.

    The alignment is the cosine of the matrices S, the second moment (covariance) of the states, and G, the products W'W
    of the head without its mean row (of the head as stored, where logits are capped),

        tr(S G) / (||S||_F ||G||_F)

    (kernel alignment, Cristianini et al. 2001; linear CKA of the feature spaces, Kornblith et al. 2019). A random
    rotation of S leaves tr S tr G / (D ||S||_F ||G||_F) of it in expectation. The overlap is the mean squared cosine of
    the principal angles between the m leading eigenvectors of S and of G, m / D for random ones, with m = D / 8.

    Where an alignment comes back without few directions and the loss stays, the drift is harmless (2605.17084 finds
    such in late layers of small models). Where the loss rises by more than without random ones, they carry what the
    head reads.

    `ks` are numbers of directions; by default 0, 1, 2, 4, 8, ... to half of the columns.
    """
    d = states.states.shape[1]
    usual = [0, *(2**i for i in range(max(1, (d // 2).bit_length())))]
    ks = usual if ks is None else sorted({0, *ks})
    if ks[0] < 0 or ks[-1] > d:
        raise InputError(f"expected 0 to {d} directions to take out, got {list(ks)}: the states have {d} columns")
    mean, moment, covariance = _moments(states.states)
    head = gauge(states.head, states.cap)
    gram, leading = head.T @ head, max(1, d // 8)
    of_head = descending(gram)[:, :leading]
    generator = torch.Generator().manual_seed(seed)
    normal = (torch.randn(d, d, generator=generator, dtype=torch.float64) for _ in range(3))
    nothing = torch.zeros(d, dtype=torch.float64)
    before, windows = _losses(states, None, nothing), states.windows.numpy()
    rows = list[Excised]()
    kinds: dict[Kind, tuple[list[Tensor], Tensor, Tensor]] = {
        "raw": ([descending(moment)], moment, nothing),
        "centred": ([descending(covariance)], covariance, mean),
        "random": ([torch.linalg.qr(drawn)[0] for drawn in normal], moment, nothing),
    }
    for kind, (every, about, stays) in kinds.items():
        for k in ks:
            bases = [basis[:, :k] for basis in every]
            changes = np.mean([_losses(states, basis, stays) - before for basis in bases], axis=0)
            sums = block_sums(np.stack([np.ones(len(changes)), changes], axis=1), windows)
            value = float(changes.mean())
            change = Estimate(value, ratio_interval(sums, 1, 0, value, seed))
            read = np.mean([_alignment(about, gram, of_head, basis) for basis in bases], axis=0)
            energy, alignment, chance, overlap = map(float, read)
            rows.append(Excised(kind, k, energy, change, alignment, chance, overlap, leading / d))
            if progress is not None:
                progress("taking directions out", len(rows), len(kinds) * len(ks))
    loss = float(before.mean())
    cause, verdict = _judged(rows, loss, d)
    return Excision(verdict, cause, loss, len(before), d, leading, tuple(rows))


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


def _losses(states: States, basis: Tensor | None, mean: Tensor) -> Array:
    """The loss at each token with the directions (D, k) taken out."""
    losses = np.empty(len(states.states))
    for part in states.chunks():
        own = states.states[part]
        if basis is not None and basis.shape[1]:
            narrow = basis.float()
            own = own - ((own - mean.float()) @ narrow) @ narrow.T
        found = torch.nn.functional.cross_entropy(states.logits(own), states.labels[part], reduction="none")
        losses[part] = found.double().numpy()
    return losses


def _judged(rows: Sequence[Excised], loss: float, d: int) -> tuple[Cause, str]:
    of = {(row.directions, row.k): row for row in rows}
    few = [row for row in rows if row.directions == "raw" and 0 < row.k <= max(1, FEW * d)]
    start, nats = of["raw", 0], f"of {number(loss)} nats"
    for row in few:
        back = row.alignment - row.chance - (start.alignment - start.chance)
        if _ends(row)[1] <= SPARED * loss and back >= GAIN * (1 - start.chance):
            without = f"without {counted(row.k, 'dominant direction')} the loss changes by"
            aligned = (
                f"the alignment with the head comes back from {number(start.alignment)} to {number(row.alignment)}"
            )
            change = f"{signed(row.change.value or 0)} {nats}"
            return "harmless drift", f"The drift is harmless: {without} {change}, and {aligned}."
    for row in few:
        null = of["random", row.k]
        if _ends(row)[0] > max(_ends(null)[1], SPARED * loss):
            rise, by_chance = (number(one.change.value or 0) for one in (row, null))
            without = f"without {counted(row.k, 'direction')} the loss rises by {rise} {nats}"
            what = "The dominant directions carry what the head reads"
            return "information", f"{what}: {without}, without as many random ones by {by_chance}."
    what = "a few dominant directions neither hide the alignment with the head nor cost more than random ones"
    return "none", f"No dominant drift is shown: {what}."


def _ends(row: Excised) -> tuple[float, float]:
    return row.change.interval or (row.change.value or 0.0,) * 2
