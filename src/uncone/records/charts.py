"""Charts of one matrix's numbers, and of several over each other: spectra, norms and bins of ids."""

import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

from uncone.records.blocks import Chart, Curve, Mark
from uncone.records.parts import Group, Norms, Spectrum
from uncone.records.text import count, number
from uncone.records.wording import counted, plural

_FLOOR = 1e-9  # eigenvalues of a float32 matrix below this share of the largest are rounding
_LARGEST, _SMALLEST = 1e290, 1e-290  # beyond, sums and margins leave the range of a float
_MOST_VERTICES = 160
_MOST_DOTS = 140
_SPECTRA = (
    ("raw", "as stored", "raw"),
    ("centered", "centred", "centred"),
    ("isotropic", "isotropic", "isotropic"),
)
_EIGENVALUES = ("rank of the eigenvalue", "eigenvalue (embedding units, squared)")
READINGS: tuple[tuple[str, str, str, str, Callable[[Group], float | None], bool], ...] = (
    (
        "bins",
        "Cosine to reserved rows",
        "mean cosine",
        "cosine to reserved",
        lambda group: group.cosine_to_reserved,
        True,
    ),
    (
        "bins cosine",
        "Cosine within the bin",
        "mean cosine",
        "cosine within bin",
        lambda group: group.mean_cosine,
        True,
    ),
    ("bins norm", "Norm", "mean norm (embedding units)", "mean norm", lambda group: group.norm_mean, False),
)
"""What is drawn of a bin of ids: the chart's name, title and axis, its line in a terminal, the reading, and
whether 0 is isotropic."""


def spectrum_chart(spectrum: Spectrum) -> Chart | None:
    """Eigenvalues by rank on two logarithmic axes; None where there is none to draw."""
    largest = max((value for field, _, _ in _SPECTRA for value in getattr(spectrum, field)), default=0.0)
    kept = [(words, style, drawable(getattr(spectrum, field), largest)) for field, words, style in _SPECTRA]
    if max(len(values) for _, _, values in kept) < 2:
        return None
    raw, isotropic = kept[0][2], kept[2][2]
    caption = "The flatter the line, the evener the cloud."
    if raw and isotropic:
        times = number(raw[0] / isotropic[0])
        caption = f"The largest eigenvalue as stored is {times} times an isotropic cloud's. {caption}"
    left = sum(
        len(getattr(spectrum, field)) - len(values)
        for (field, _, _), (_, _, values) in zip(_SPECTRA, kept, strict=True)
    )
    caption += (
        f" Not drawn: {count(left)} {plural(left, 'value')} below a billionth of the largest." if left else ""
    )
    curves = [curve_of(values, words, style) for words, style, values in kept if values]
    return spectra("spectrum", "Spectrum", curves, caption)


def spectra(name: str, title: str, curves: Sequence[Curve], caption: str) -> Chart:
    """Spectra over each other."""
    return Chart(name, title, *_EIGENVALUES, tuple(curves), log_x=True, log_y=True, caption=caption)


def drawable(values: Sequence[float], largest: float | None = None) -> list[float]:
    """The eigenvalues that a logarithmic axis can show; below a billionth of the largest is rounding."""
    largest = max(values, default=0.0) if largest is None else largest
    return [value for value in values if _SMALLEST < value < _LARGEST and value >= largest * _FLOOR]


def curve_of(values: Sequence[float], name: str, style: str) -> Curve:
    """Eigenvalues at ranks spaced evenly on the logarithmic axis; the first ranks, where the outliers are,
    all stay."""
    last = len(values)
    spread = {round(last ** (step / _MOST_VERTICES)) for step in range(_MOST_VERTICES + 1)}
    ranks = sorted(spread | set(range(1, min(last, 30) + 1)))
    return Curve(name, tuple(map(float, ranks)), tuple(values[rank - 1] for rank in ranks), style)


def norms_chart(norms: Norms) -> Chart | None:
    """A histogram of Euclidean norms with their mean marked; None where there is no row to draw."""
    if not has_norms(norms):
        return None
    unit = unit_of([norms])
    caption = (
        f"{counted(sum(norms.counts), 'row')}, norms from {number(norms.smallest)} to {number(norms.largest)}, "
        f"mean {number(norms.mean)}."
    )
    return Chart(
        "norms", "Norms", "Euclidean norm (embedding units)", f"rows per {number(unit, digits=2)} of norm",
        edges=norms.edges, bars=heights(norms, unit), marks=(Mark(norms.mean, label=f"mean {number(norms.mean)}"),),
        caption=caption,
    )  # fmt: skip


def has_norms(norms: Norms) -> bool:
    """Whether there is a histogram to draw."""
    within = all(abs(edge) < _LARGEST for edge in norms.edges)
    return within and any(norms.counts) and min(norms.counts) >= 0 and norms.edges[-1] > norms.edges[0]


def unit_of(norms: Sequence[Norms]) -> float:
    """The width of a usual bin."""
    return statistics.median(right - left for one in norms for left, right in pairwise(one.edges))


def heights(norms: Norms, unit: float) -> tuple[float, ...]:
    """Rows in `unit` of norm: the area of a bar is its rows, whatever the width of its bin."""
    widths = (right - left for left, right in pairwise(norms.edges))
    return tuple(
        min(rows * unit / width, _LARGEST) if width > 0 else 0.0
        for rows, width in zip(norms.counts, widths, strict=True)
    )


def norms_outline(norms: Norms, unit: float, name: str, style: str) -> Curve:
    """The histogram as steps from zero to zero, in per cent of the rows, so that different numbers of rows
    compare."""
    total = sum(norms.counts)
    xs, ys = [norms.edges[0]], [0.0]
    for (left, right), height in zip(pairwise(norms.edges), heights(norms, unit), strict=True):
        if right > left:
            xs += [left, right]
            ys += [100 * height / total] * 2
    return Curve(name, (*xs, norms.edges[-1]), (*ys, 0.0), style)


def bin_charts(sides: Sequence[tuple[str, str, Sequence[Group]]]) -> list[Chart]:
    """By id, one chart for every reading that a bin has; the first is Figure 3 of Bis et al. (2021).

    A side is a name, the style of its line, and its bins. One alone has dots, and its bins with reserved rows
    are marked.
    """
    return [chart for place in range(len(READINGS)) if (chart := _bin_chart(place, sides)) is not None]


def _bin_chart(place: int, sides: Sequence[tuple[str, str, Sequence[Group]]]) -> Chart | None:
    name, title, y_label, spark, reading, around_zero = READINGS[place]

    def of(group: Group) -> float | None:
        """The reading, as long as a drawing can hold it."""
        value = reading(group)
        return None if value is None or abs(value) > _LARGEST else value

    there = [
        (letter, style, bins) for letter, style, bins in sides if any(of(group) is not None for group in bins)
    ]
    if not there:
        return None
    alone = len(sides) == 1
    curves = tuple(
        _bins_curve(bins, of, letter, style, dots=alone and len(bins) <= _MOST_DOTS)
        for letter, style, bins in there
    )
    ends = "; ".join(f"{'' if alone else f'{letter} '}{_extremes(bins, of)}" for letter, _, bins in there)
    every = [group for _, _, bins in sides for group in bins]
    held = [group for group in every if alone and group.reserved_rows > 0]
    return Chart(
        name, title, "row id", y_label, curves, marks=(Mark(0.0, "y"),) if around_zero else (),
        bands=tuple((float(group.start), float(group.stop)) for group in held),
        x_limits=(float(min(group.start for group in every)), float(max(group.stop for group in every))),
        caption=f"Least and greatest: {ends}.", spark=spark,
    )  # fmt: skip


def _extremes(bins: Sequence[Group], of: Callable[[Group], float | None]) -> str:
    known = sorted(
        ((value, group) for group in bins if (value := of(group)) is not None), key=lambda pair: pair[0]
    )
    return " to ".join(f"{number(value)} (ids {_ids(group)})" for value, group in (known[0], known[-1]))


def _bins_curve(
    bins: Sequence[Group], of: Callable[[Group], float | None], name: str, style: str, *, dots: bool
) -> Curve:
    """One reading of the bins at their middles."""
    values = tuple(map(of, bins))
    middles = tuple((group.start + group.stop) / 2 for group in bins)
    if not dots:
        return Curve(name, middles, values, style)
    known = zip(bins, values, strict=True)
    tips = tuple("" if value is None else f"ids {_ids(group)}: {number(value)}" for group, value in known)
    marked = tuple(place for place, group in enumerate(bins) if group.reserved_rows > 0)
    return Curve(name, middles, values, style, True, tips, marked)


def _ids(group: Group) -> str:
    return f"{count(group.start)} to {count(group.stop - 1)}"


def bins_table(bins: Sequence[Sequence[Group]], place: int) -> list[tuple[str, ...]]:
    """The numbers behind a chart by id: a row for each bin that any side has, matched by first and last
    id."""
    of = READINGS[place][4]
    by_span = [{(group.start, group.stop): group for group in side} for side in bins]
    rows = []
    for start, stop in sorted({span for side in by_span for span in side}):
        values = [of(side[start, stop]) if (start, stop) in side else None for side in by_span]
        if any(value is not None for value in values):
            limits = (-1.0, 1.0) if READINGS[place][5] else (0.0, None)
            shown = ("-" if value is None else number(value, limits=limits) for value in values)
            rows.append((f"{count(start)} to {count(stop - 1)}", *shown))
    return rows
