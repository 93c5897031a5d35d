"""How many directions of its logits does a model use? The spectrum of head and states together."""

import math

import numpy as np

from uncone.diagnosis.findings import FEWEST_ROWS, LOGIT_RANK, LOW_RANK, VERY_LOW_RANK
from uncone.diagnosis.why.layers.record import LogitSpectrum
from uncone.errors import UndefinedMeasure
from uncone.measure.spectrum import effective_dimensions, logit_spectrum, marchenko_pastur
from uncone.model.layer_states import LayerStates
from uncone.moments import Moments
from uncone.records.parts import Level, Measurement
from uncone.records.text import count, number, percent
from uncone.rows import Array

MOST_VALUES = 1000  # singular values that are kept


def spectrum_of_logits(states: LayerStates) -> LogitSpectrum | str:
    """The logit spectrum, or the reason why there is none.

    The verdict rests on the covariance S of the states: eigenvalues of S^1/2 W_c' W_c S^1/2. The mean state gives every
    context the same logits, as a bias does, so the raw second moment is only reported. If logits are capped, the head
    is read as stored, because a row added to all its rows has an effect.
    """
    if states.head is None or states.read is None:
        return states.why_no_head or "the model has no linear head"
    m, layer = states.moments[states.read], states.layers[states.read]
    head = Moments.of(states.head.weight, unit_first=False)
    if m.n < FEWEST_ROWS:
        return f"expected at least {FEWEST_ROWS} states for a spectrum, got {m.n}"
    try:
        return _described(head, m, layer, abs(states.head.scale), states.head.cap is not None)
    except UndefinedMeasure as error:
        return f"it is undefined: {error}"


def _described(head: Moments, m: Moments, layer: str, scale: float, capped: bool) -> LogitSpectrum:
    gram = head.second_moment() * head.weight if capped else head.covariance() * (head.weight - 1)
    between = scale * logit_spectrum(gram, m.covariance())
    raw = scale * logit_spectrum(gram, m.second_moment())
    mean, total = m.mean(), float(np.square(raw).sum())
    rank, free = effective_dimensions(between), int(head.n) if capped else int(head.n) - 1
    isotropic, reference = isotropic_logits(free, m.n - 1, head.d)
    size = math.sqrt(float(np.square(between).sum()) / float(np.square(isotropic).sum()))
    most, level = min(free, head.d), judge(rank / reference)
    return LogitSpectrum(
        verdict=_verdict(level, rank, reference, most),
        level=level,
        layer=layer,
        vocabulary=int(head.n),
        dimensions=head.d,
        tokens=m.n,
        effective_rank=rank,
        effective_rank_raw=effective_dimensions(raw),
        head_rank=effective_dimensions(np.sqrt(head.spectrum(centered=not capped))),
        most=most,
        reference=reference,
        mean_share=min(1.0, scale**2 * float(mean @ gram @ mean) / total),
        capped=capped,
        values=tuple(between[:MOST_VALUES].tolist()),
        isotropic=tuple((size * isotropic)[:MOST_VALUES].tolist()),
    )


def isotropic_logits(rows: int, states: int, d: int) -> tuple[Array, float]:
    """Singular values (D,), up to scale, of an isotropic head times isotropic states, and their effective rank. Such
    products follow the free product of two Marchenko-Pastur laws, of variance D/rows + D/states; we use one law of that
    variance instead."""
    values = np.sqrt(marchenko_pastur(1 / (1 / rows + 1 / states), d))
    return values, effective_dimensions(values)


def rank_of_logits(logits: LogitSpectrum) -> Measurement:
    """The measurement behind the finding on a head, if a text was given."""
    return Measurement(
        LOGIT_RANK,
        logits.effective_rank,
        range=(1.0, float(logits.most)),
        better="higher",
        reference=logits.reference,
        n=logits.tokens,
        d=logits.dimensions,
        centered=True,
        definition="exp of the entropy of the normalised singular values of S^1/2 W'W S^1/2, of the head W less its "
        "mean row and the covariance S of a text's states",
    )


def judge(share: float) -> Level:
    return "healthy" if share >= LOW_RANK else "warning" if share >= VERY_LOW_RANK else "severe"


def _verdict(level: Level, rank: float, reference: float, most: int) -> str:
    use = {"healthy": "use their directions", "warning": "use fewer than half of their directions evenly"}
    return (
        f"The logits {use.get(level, 'use only a few directions')}: between contexts their effective rank is "
        f"{number(rank)} of {count(most)}, {percent(rank / reference)} of the value for an isotropic head and "
        f"isotropic states ({number(reference)})."
    )
