"""Where in the layers does anisotropy arise?"""

import itertools
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from uncone import measure
from uncone.diagnosis.findings import DRIFT, EVEN_TIMES, FEWEST_ROWS, ROGUE_SHARE, SEVERE_DRIFT
from uncone.diagnosis.why.layers.cluster_cosine import cluster_cosine
from uncone.diagnosis.why.layers.contexts import context_readings
from uncone.diagnosis.why.layers.logits import spectrum_of_logits
from uncone.diagnosis.why.layers.record import LayerProfile, LayerReading
from uncone.diagnosis.why.layers.state_picture import picture_of
from uncone.errors import UndefinedMeasure
from uncone.measure.reading import read
from uncone.measure.spectrum import fit_alpha
from uncone.model.layer_states import LayerStates
from uncone.moments import Moments, inverse, row_norms
from uncone.records.text import number, percent
from uncone.records.tokens import Estimate
from uncone.roles import Progress
from uncone.rows import Array
from uncone.threads import on_one_thread

EDGES = tuple(round(-1 + 0.05 * i, 2) for i in range(41))  # of the bins of cosine
_NEIGHBOURS, _CLUSTERED, _PAIRED = 2048, 2000, 1024  # states for TwoNN, clusters, and the histogram of cosines


@on_one_thread
def describe(
    states: LayerStates,
    *,
    counts: Any = None,
    pictured: Sequence[int] = (-1,),
    seed: int = 0,
    progress: Progress | None = None,
) -> LayerProfile:
    """`counts` (V,) of ids are by default the counts of what was read. `pictured` layers are drawn, from 0 for the
    embeddings, or from -1 for the last layer; layers that the model lacks are left out."""
    layers, notes = list[LayerReading](), list(states.notes)
    for i in range(len(states.layers)):
        if progress:
            progress("reading layers", i, len(states.layers))
        reading, note = _read_layer(states, i, seed)
        layers.append(reading)
        notes += [note] if note and note not in notes else []
    logits, n = spectrum_of_logits(states), len(layers)
    drawn = [i % n for i in pictured if -n <= i < n] if len(states.sample.ids) > 1 else []
    counts = states.counts if counts is None else counts
    result = LayerProfile(
        verdict=_verdict(layers),
        name=states.name,
        tokens=states.tokens,
        sequences=states.sequences,
        special=int(states.apart[0, 0]),
        sinks=int(states.apart[1, 0]),
        stopped=states.stopped,
        layers=tuple(layers),
        edges=EDGES,
        logits=None if isinstance(logits, str) else logits,
        no_logits=logits if isinstance(logits, str) else "",
        pictured=tuple(states.layers[i] for i in drawn),
        pictures=tuple(picture_of(states, i, counts) for i in drawn),
        notes=tuple(notes),
        cut=states.cut,
    )
    if progress:
        progress("reading layers", n, n)
    return result


def _read_layer(states: LayerStates, i: int, seed: int) -> tuple[LayerReading, str]:
    m, x, sample = states.moments[i], states.sample.layers[i], states.sample
    rank, rogue = read("rank", measure.effective_rank, m), read("rogue", measure.rogue_dimensions, m)
    outliers = read("outliers", measure.outlier_dimensions, m)
    cosine, interval = read("cosine", measure.mean_cosine, m).value, states.intervals[i]
    if cosine is not None and interval:
        interval = (max(-1.0, min(interval[0], cosine)), min(1.0, max(interval[1], cosine)))
    order = np.random.default_rng(seed).permutation(len(x))
    near, clustered = (np.sort(order[:most]) for most in (_NEIGHBOURS, _CLUSTERED))
    clusters, note = cluster_cosine(x[clustered], sample.ids[clustered], m, seed=seed)
    nearest = read("two_nn", lambda _: measure.two_nn(x[near]), m) if len(near) > 3 else None
    variance, alpha, ranks = _spectrum(m)
    special, sink = (float(norms[1 + i]) if norms[0] else None for norms in states.apart)
    reading = LayerReading(
        name=states.layers[i],
        n=m.n,
        d=m.d,
        mean_cosine=Estimate(cosine, None if cosine is None else interval),
        anisotropy_raw=read("raw", partial(measure.anisotropy, centered=False), m).value,
        anisotropy=read("anisotropy", measure.anisotropy, m).value,
        effective_rank=rank.value,
        effective_rank_isotropic=rank.reference,
        rogue_share=rogue.value,
        rogue_dimensions=tuple(rogue.details.get("dimensions", ())[:3]),
        outlier_dimensions=tuple(outliers.details.get("dimensions", ())),
        mean_norm=m.mean_norm(),
        largest_norm=m.norm_max,
        special_norm=special,
        sink_norm=sink,
        alpha=alpha,
        alpha_ranks=ranks,
        dimensions_90=dimensions_for(variance, 0.9),
        dimensions_99=dimensions_for(variance, 0.99),
        **vars(context_readings(x, sample.ids, sample.segments, seed=seed)),
        two_nn=Estimate(nearest.value, nearest.interval) if nearest else Estimate(None),
        clusters=clusters.clusters if clusters else None,
        cluster_inter=clusters.inter if clusters else None,
        cluster_intra=clusters.intra if clusters else None,
        histogram=cosine_histogram(x[order[:_PAIRED]]),
    )
    return reading, note


def dimensions_for(variance: Array | None, share: float) -> int | None:
    """How many of the eigenvalues (D,), largest first, have this share of their sum; None if the sum is 0.

    >>> dimensions_for(np.array([6.0, 3.0, 1.0]), 0.9)
    2
    """
    if variance is None or not float(variance.sum()) > 0:
        return None
    reached = np.cumsum(variance) >= share * float(variance.sum()) * (1 - 1e-12)
    return int(reached.argmax()) + 1


def cosine_histogram(x: Array, edges: Sequence[float] = EDGES) -> tuple[float, ...]:
    """The share of pairs of rows (n, D) in each bin of cosine; empty with fewer than two nonzero rows.

    >>> cosine_histogram(np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]), (-1, 0.5, 1))  # cosines 0, 1 and 0
    (0.6666666666666666, 0.3333333333333333)
    """
    norms = row_norms(x)
    units = (x * inverse(norms)[:, None].astype(x.dtype))[norms > 0]
    if len(units) < 2:
        return ()
    cosines = (units @ units.T)[np.triu_indices(len(units), 1)]
    found, _ = np.histogram(np.clip(cosines, -1, 1), edges)
    return tuple((found / len(cosines)).tolist())


def _spectrum(m: Moments) -> tuple[Array | None, float | None, tuple[int, int] | None]:
    """The variances, their alpha-ReQ, and the first and last rank of its fit."""
    variance = alpha = ranks = None
    with suppress(UndefinedMeasure, IndexError):
        variance = m.spectrum(centered=True)
        alpha, first, last = fit_alpha(variance)
        ranks = (first, last)
    return variance, alpha, ranks


_OF_MANY = 0.5  # half widths to widen an interval by, for the largest of some thirteen layers


def _verdict(layers: Sequence[LayerReading]) -> str:
    """Where the mean cosine is largest and rises most. A common direction is claimed only if its interval is clearly
    beyond the threshold of findings."""
    known = [(layer, layer.mean_cosine.value) for layer in layers if layer.mean_cosine.value is not None]
    if not known or layers[0].n < FEWEST_ROWS:
        return f"Too little to judge: {layers[0].n} states."
    top, most = max(known, key=lambda one: one[1])
    interval, cosine = top.mean_cosine.interval, f"have a mean cosine of {number(most)}"
    if interval is not None and interval[1] < DRIFT:
        at_most = f"the mean cosine of two states is at most {number(most)}"
        return f"No layer has a common direction to speak of: {at_most} ({top.name})."
    if interval is None:
        said = "Too little text to judge whether states share a common direction: "
        said += f"two of these {top.n:,} {cosine} in {top.name}"
    elif interval[0] - _OF_MANY / 2 * (interval[1] - interval[0]) < DRIFT:
        ends = f"95% interval of different passages {number(interval[0])} to {number(interval[1])}"
        said = f"It is not certain that states share a common direction: two of them {cosine} in {top.name} ({ends})"
    else:
        of = "most" if most >= SEVERE_DRIFT else "a part"
        said = f"States share a common direction in {top.name}: two of them {cosine}, {of} of every cosine"
    rises = [(b[1] - a[1], a[0], b[0]) for a, b in itertools.pairwise(known)]
    rise, before, after = max(rises, key=lambda one: one[0], default=(0.0, top, top))
    if rise > 0 and known[0][1] < most:
        said += f". The mean cosine rises most from {before.name} to {after.name}, by {number(rise)}"
    elif known[0][1] == most:
        said += ", and it is already there before the first layer"
    last, value = known[-1]
    if last is not top:
        said += f"; in {last.name} it is {number(value)}"
    if is_rogue(top):
        of_it = f"{percent(top.rogue_share or 0)} of the mean cosine"
        said += f". In {top.name} dimension {top.rogue_dimensions[0]} alone carries {of_it}"
    return f"{said}."


def is_rogue(layer: LayerReading) -> bool:
    return layer.rogue_share is not None and layer.rogue_share >= max(ROGUE_SHARE, EVEN_TIMES / layer.d)
