import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, SupportsFloat

import numpy as np

from uncone import measure
from uncone.errors import UndefinedMeasure
from uncone.measure.spectrum import fit_alpha, logit_spectrum
from uncone.moments import Moments
from uncone.rows import Array

MOST_VALUES = 100  # singular values kept per matrix


def entropy_to_uniform(squares: Array) -> float:
    """KL(p || uniform) = ln d + sum p ln p in nats, from 0 of a flat spectrum to ln d.

    p are the squared singular values (D,) over their sum. Godey et al. (2024, section 4.2) do not say what they
    normalise: squared values give the figures of the paper, the values themselves do not.

    >>> entropy_to_uniform(np.array([1.0, 1.0])), round(entropy_to_uniform(np.array([1.0, 0.0])), 4)  # ln 2
    (0.0, 0.6931)
    """
    total = float(squares.sum())
    if not total > 0:
        raise UndefinedMeasure("a matrix of zeros has no spectrum: pass rows that differ")
    p = squares[squares > 0] / total
    return max(0.0, math.log(len(squares)) + float((p * np.log(p)).sum()))


def of_head(m: Moments) -> tuple[dict[str, float], tuple[float, ...], tuple[float, ...]]:
    """The head's numbers by series name, and its leading singular values, raw and centred."""
    raw, centered = m.spectrum(centered=False), m.spectrum(centered=True)
    values = _known(
        head_entropy=partial(entropy_to_uniform, raw),
        head_entropy_centered=partial(entropy_to_uniform, centered),
        head_alpha=lambda: fit_alpha(centered)[0],
    )
    sides = np.sqrt(raw * m.weight), np.sqrt(centered * (m.weight - 1))
    first, second = (tuple(side[:MOST_VALUES].tolist()) for side in sides)
    return values | of_rows(m, "head"), first, second


def of_rows(m: Moments, kind: str) -> dict[str, float]:
    readings = {"cosine": measure.mean_cosine, "isoscore": measure.isoscore, "rankme": measure.rankme}
    return _known(**{f"{kind}_{name}": partial(read, m) for name, read in readings.items()})


def of_states(states: Any, head: Moments) -> tuple[dict[str, float], tuple[float, ...]]:
    """The numbers of a text's `States`, and the spectrum of their logits for a head with these moments."""
    m = Moments.of(states.states)
    logits = abs(states.scale) * logit_spectrum(head.covariance() * (head.weight - 1), m.second_moment())
    values = _known(
        text_loss=partial(_loss, states),
        logit_entropy=partial(entropy_to_uniform, np.square(logits)),
        states_anisotropy=partial(measure.mean_cosine, m),
        states_rankme=partial(measure.rankme, m),
        states_alpha=lambda: fit_alpha(m.spectrum(centered=True))[0],
    )
    return values, tuple(logits[:MOST_VALUES].tolist())


def _loss(states: Any) -> float:
    """The mean cross-entropy of the next token, in nats."""
    import torch

    with torch.no_grad():
        total = sum(
            float(
                torch.nn.functional.cross_entropy(
                    states.logits(states.states[part]), states.labels[part], reduction="sum"
                )
            )
            for part in states.chunks()
        )
    return total / len(states.labels)


def _known(**readings: Callable[[], SupportsFloat]) -> dict[str, float]:
    values = dict[str, float]()
    for name, read in readings.items():
        with suppress(UndefinedMeasure):
            values[name] = float(read())
    return {name: value for name, value in values.items() if math.isfinite(value)}
