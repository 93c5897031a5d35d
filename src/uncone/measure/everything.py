"""All measures of one matrix at once, and the list of them, which a diagnosis uses too."""

import textwrap
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from uncone.arguments import flag
from uncone.errors import UnknownName
from uncone.measure.cosine import mean_cosine, mean_shift
from uncone.measure.dimensions import dominant_dimension, outlier_dimensions, rogue_dimensions
from uncone.measure.hubness import hubness
from uncone.measure.intrinsic_dimension import NEIGHBOURS, levina_bickel, two_nn
from uncone.measure.isoscore import isoscore, isoscore_star, participation_ratio
from uncone.measure.neighbours import Neighbours, nearest_neighbours
from uncone.measure.norms import NormProfile
from uncone.measure.partition import gaussian_isotropy, partition_isotropy
from uncone.measure.reading import moments_of, read
from uncone.measure.spectrum import anisotropy, condition_number, effective_rank, rankme, singular_entropy, stable_rank
from uncone.measure.uniformity import uniformity, uniformity_exact
from uncone.moments import Moments, row_norms
from uncone.records.brief import WIDTH
from uncone.records.names import nearest
from uncone.records.parts import Measurement
from uncone.records.record import frame_of
from uncone.records.text import number
from uncone.rows import Rows, as_samples

Measure = Callable[[Moments], Measurement]
Tick = Callable[[str], Callable[[int], None]]  # from the name of a step to a function of the number of rows done

MEASURES: tuple[tuple[str, Measure], ...] = (
    ("mean_cosine", mean_cosine), ("mean_shift", mean_shift),
    ("isoscore", isoscore), ("isoscore_debiased", partial(isoscore, debiased=True)), ("isoscore_star", isoscore_star),
    ("participation_ratio", participation_ratio),
    ("participation_ratio_debiased", partial(participation_ratio, debiased=True)),
    ("effective_rank", effective_rank), ("rankme", rankme),
    ("stable_rank", stable_rank), ("stable_rank_centered", partial(stable_rank, centered=True)),
    ("anisotropy_1", anisotropy), ("anisotropy_1_raw", partial(anisotropy, centered=False)),
    ("singular_entropy", singular_entropy), ("singular_entropy_raw", partial(singular_entropy, centered=False)),
    ("condition_number", condition_number), ("rogue_dimensions", rogue_dimensions),
    ("dominant_dimension", dominant_dimension), ("outlier_dimensions", outlier_dimensions),
    ("gaussian_isotropy", gaussian_isotropy), ("uniformity", uniformity),
)  # fmt: skip
"""Measures computed from moments with `unit_second=True`."""
_OF_NEIGHBOURS = ("two_nn", "levina_bickel", "hubness", "uniformity_exact")


def by_cosine(rows: Rows, m: Moments, tick: Tick) -> Callable[[], Neighbours]:
    """The ten nearest rows of each row, as `hubness` counts them; the first call searches them."""
    return cache(lambda: nearest_neighbours(rows, 10, m, metric="cosine", progress=tick("finding hubs")))


def of_neighbours(rows: Rows, m: Moments, tick: Tick, lists: Callable[[], Neighbours]) -> tuple[Measurement, ...]:
    """The measures of nearest neighbours, from the `lists` of `by_cosine` and one search for both intrinsic
    dimensions."""
    pairs = tick("pairing directions")

    @cache
    def shared() -> Neighbours:
        return nearest_neighbours(rows, NEIGHBOURS, m, distinct=True, progress=tick("finding neighbours"))

    return (
        read("two_nn", lambda m: two_nn(rows, m, neighbours=shared()), m),
        read("levina_bickel", lambda m: levina_bickel(rows, m, neighbours=shared()), m),
        read("hubness", lambda m: hubness(rows, m, neighbours=lists()), m),
        read("uniformity_exact", partial(uniformity_exact, rows, progress=pairs), m),
    )


class Readings(dict[str, Measurement]):
    """Measurements by their names, in the order of a diagnosis."""

    def __missing__(self, name: str) -> Measurement:
        raise UnknownName(f"expected the name of a measurement, got {name!r}: {nearest(name, list(self))}")

    def __repr__(self) -> str:
        values = ["undefined" if one.value is None else number(one.value, limits=one.range) for one in self.values()]
        words = f"Readings({', '.join(map('='.join, zip(self, values, strict=True)))})"
        return textwrap.fill(words, WIDTH, subsequent_indent="    ", break_on_hyphens=False)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row for each measurement, ready for JSON."""
        return [one.to_row() for one in self.values()]

    def to_frame(self) -> Any:
        """The measurements as a DataFrame. Raises UnsupportedModel where pandas is not installed."""
        return frame_of(self.to_rows())

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)


def all(x: Any, *, mask: Any = None, neighbours: bool = False) -> Readings:  # `measure.all`
    """Every measure that `diagnose` computes from the rows, by name: `measure.all(x)["isoscore"]`.

    `x` and `mask` are as for `moments_of`; from moments alone some measures are undefined. `neighbours` adds the
    measures of nearest neighbours, about 1.5 N^2 D multiply-adds. A measure without a value gives its reason.
    >>> found = uncone.measure.all([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    >>> round(found["mean_cosine"], 4), found["rogue_dimensions"].value
    (0.3333, None)
    """
    neighbours = flag(neighbours, "neighbours")
    if isinstance(x, Moments):
        m, rows = moments_of(x, mask), None
    else:
        rows = as_samples(x, mask)
        m, profile = Moments(rows.shape[1], unit_second=True, drawn=True), NormProfile()
        for start, block in m.add_all(rows):
            ids = np.arange(start, start + len(block)) if rows.ids is None else rows.ids[start:]
            profile.update(row_norms(block), ids[: len(block)])
            del block
        if m.n > 1:
            m.spectrum(centered=True)  # first, as in a diagnosis, so that intervals have the same digits
    taken = [
        _missing(name, m, "Moments.of(rows, unit_second=True)")
        if function is uniformity and not m.has("unit_second")
        else read(name, function, m)
        for name, function in MEASURES
    ]
    if rows is None:
        names = ("partition_isotropy", "norm_id_correlation", *_OF_NEIGHBOURS * neighbours)
        taken += [_missing(name, m, "the rows") for name in names]
    else:
        taken.append(read("partition_isotropy", partial(partition_isotropy, rows), m))
        taken.append(read("norm_id_correlation", lambda m: profile.id_correlation(m.d), m))
        taken += of_neighbours(rows, m, _quietly, by_cosine(rows, m, _quietly)) if neighbours else ()
    return Readings({one.name: one for one in taken})


def _quietly(step: str) -> Callable[[int], None]:
    return lambda done: None


def _missing(name: str, m: Moments, needed: str) -> Measurement:
    return Measurement(name, None, reason=f"these moments are not enough: pass {needed}", n=m.n, d=m.d)
