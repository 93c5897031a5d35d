"""Charts of spectra, norms and bins of ids, of one matrix or of several."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise

from uncone.records.blocks import Chart, Curve, Mark
from uncone.records.layout import LARGEST_DRAWN, SMALLEST_DRAWN
from uncone.records.parts import Group, Norms, Spectrum
from uncone.records.text import NEAR_DIGITS, count, counted, number, optional

_FLOOR = 1e-9  # share of the largest eigenvalue: below it, a float32 matrix has only rounding errors
_NORM = "Euclidean norm (embedding units)"
_FINEST = 1e-4  # narrowest bin, as a share of the largest norm: rows of equal length differ by rounding
_MOST_VERTICES = 160
READINGS = (
    ("bins", "Cosine to reserved rows", "mean cosine", "cosine to reserved", "cosine_to_reserved", True),
    ("bins cosine", "Cosine within the bin", "mean cosine", "cosine within bin", "mean_cosine", True),
    ("bins norm", "Norm", "mean norm (embedding units)", "mean norm", "norm_mean", False),
)  # readings of a bin: the chart's name, title, axis and terminal line, the field, whether 0 is isotropic


def spectrum_chart(spectrum: Spectrum) -> Chart | None:
    every = (spectrum.raw, spectrum.centered, spectrum.isotropic)
    largest = max(chain(*every), default=0.0)
    drawn = [_drawable(values, largest) for values in every]
    if max(map(len, drawn)) < 2:
        return None
    raw, _, isotropic = drawn
    caption = "A flatter line means a more even cloud."
    if raw and isotropic:
        times = number(raw[0] / isotropic[0])
        caption = f"The largest eigenvalue as stored is {times} times an isotropic cloud's. {caption}"
    if left := sum(map(len, every)) - sum(map(len, drawn)):
        caption += f" Not drawn: {counted(left, 'value')} below a billionth of the largest."
    named = zip(drawn, (("as stored", "raw"), ("centred", "centred"), ("isotropic", "isotropic")), strict=True)
    return _spectra("spectrum", "Spectrum", [_curve_of(values, *words) for values, words in named if values], caption)


def _spectra(name: str, title: str, curves: Sequence[Curve], caption: str) -> Chart:
    axes = ("rank of the eigenvalue", "eigenvalue (embedding units, squared)")
    return Chart(name, title, *axes, tuple(curves), log_x=True, log_y=True, caption=caption)


def _drawable(values: Sequence[float], largest: float = 0.0) -> list[float]:
    largest = largest or max(values, default=0.0)
    return [value for value in values if SMALLEST_DRAWN < value < LARGEST_DRAWN and value >= largest * _FLOOR]


def _curve_of(values: Sequence[float], name: str, style: str) -> Curve:
    """Eigenvalues at ranks that are even on the logarithmic axis, and at the first 30, where outliers are."""
    last = len(values)
    spread = {round(last ** (step / _MOST_VERTICES)) for step in range(_MOST_VERTICES + 1)}
    ranks = sorted(spread | set(range(1, min(last, 30) + 1)))
    return Curve(name, tuple(map(float, ranks)), tuple(values[rank - 1] for rank in ranks), style)


def spectra_compared(sides: Sequence[tuple[str, str, Spectrum]], *, centered: bool) -> Chart | None:
    every = ((letter, style, _drawable(one.centered if centered else one.raw)) for letter, style, one in sides)
    kept = [side for side in every if len(side[2]) > 1]
    if not kept:
        return None
    isotropic = _drawable(sides[0][2].isotropic) if centered else []
    curves = [_curve_of(isotropic, "isotropic", "even")] if len(isotropic) > 1 else []
    curves += [_curve_of(values, letter, style) for letter, style, values in kept]
    largest = "; ".join(f"{letter} {number(values[0])}" for letter, _, values in kept)
    name, how = ("spectrum centred", "mean row subtracted") if centered else ("spectrum", "as stored")
    return _spectra(name, f"Spectrum, {how}", curves, f"Largest eigenvalue: {largest}.")


def norms_compared(sides: Sequence[tuple[str, str, Norms]]) -> Chart | None:
    """In per cent of the rows, so that matrices with different numbers of rows can be compared."""
    sides = [side for side in sides if _has_norms(side[2])]
    if not sides:
        return None
    unit = _unit_of([norms for _, _, norms in sides])
    means = "; ".join(f"{letter} {_near(norms.mean)}" for letter, _, norms in sides)
    curves = tuple(_outline(_coarser(norms, unit), unit, letter, style) for letter, style, norms in sides)
    y_label = f"% of rows per {number(unit, digits=2)} of norm"
    return Chart("norms", "Norms", _NORM, y_label, curves, caption=f"Mean norm: {means}.")


def norms_chart(norms: Norms) -> Chart | None:
    if not _has_norms(norms):
        return None
    unit, mean = _unit_of([norms]), _near(norms.mean)
    ends = f"norms from {_near(norms.smallest)} to {_near(norms.largest)}, mean {mean}"
    norms = _coarser(norms, _FINEST * abs(norms.edges[-1]))
    marks, caption = (Mark(norms.mean, label=f"mean {mean}"),), f"{counted(sum(norms.counts), 'row')}, {ends}."
    y_label, bars = f"rows per {number(unit, digits=2)} of norm", _heights(norms, unit)
    return Chart("norms", "Norms", _NORM, y_label, edges=norms.edges, bars=bars, marks=marks, caption=caption)


def _has_norms(norms: Norms) -> bool:
    within = all(abs(edge) < LARGEST_DRAWN for edge in norms.edges)
    return within and any(norms.counts) and min(norms.counts) >= 0 and norms.edges[-1] > norms.edges[0]


def _unit_of(norms: Sequence[Norms]) -> float:
    """The largest median bin width, at least wide enough for the rounding of equal norms."""
    usual = (statistics.median(right - left for left, right in pairwise(one.edges)) for one in norms)
    return max(*usual, *(_FINEST * abs(one.edges[-1]) for one in norms))


def _near(value: float) -> str:
    return number(value, most=NEAR_DIGITS)


def _coarser(norms: Norms, least: float) -> Norms:
    """Join neighbouring bins until each is `least` wide, so that no bar is higher than the number of rows."""
    edges, counts = [norms.edges[0]], [0]
    for rows, (_, right) in zip(norms.counts, pairwise(norms.edges), strict=True):
        counts[-1] += rows
        if right - edges[-1] >= least * (1 - 1e-9):
            edges.append(right)
            counts.append(0)
    left = counts.pop()
    if len(edges) == 1:
        middle = (norms.edges[0] + norms.edges[-1]) / 2
        edges, counts = [middle - least / 2, middle + least / 2], [left]
    else:
        edges[-1], counts[-1] = norms.edges[-1], counts[-1] + left
    return replace(norms, edges=tuple(edges), counts=tuple(counts))


def _heights(norms: Norms, unit: float) -> tuple[float, ...]:
    bins = zip(norms.counts, (right - left for left, right in pairwise(norms.edges)), strict=True)
    return tuple(min(rows * unit / width, LARGEST_DRAWN) if width > 0 else 0.0 for rows, width in bins)


def _outline(norms: Norms, unit: float, name: str, style: str) -> Curve:
    total = sum(norms.counts)
    xs, ys = [norms.edges[0]], [0.0]
    for (left, right), height in zip(pairwise(norms.edges), _heights(norms, unit), strict=True):
        if right > left:
            xs += [left, right]
            ys += [100 * height / total] * 2
    return Curve(name, (*xs, norms.edges[-1]), (*ys, 0.0), style)


Side = tuple[str, str, Sequence[Group]]  # name, style of the line, bins


def bin_charts(sides: Sequence[Side], *, called: str = "reserved rows") -> list[Chart]:
    """One chart by id for each reading of a bin (Bis et al. 2021, Figure 3). A single side is drawn with dots. `called`
    names the rows that bins are compared with."""
    charts = [chart for reading in READINGS if (chart := _bin_chart(sides, *reading)) is not None]
    short = called.removesuffix(" rows").removeprefix("the ")
    named = ((chart.title.replace("reserved rows", called), chart) for chart in charts)
    return [replace(c, title=title, spark=c.spark.replace("reserved", short)) for title, c in named]


def _bin_chart(
    sides: Sequence[Side], name: str, title: str, y_label: str, spark: str, field: str, around_zero: bool
) -> Chart | None:
    curves, ends, alone = [], [], len(sides) == 1
    for letter, style, bins in sides:
        every = (getattr(group, field) for group in bins)
        values = [None if value is None or abs(value) > LARGEST_DRAWN else value for value in every]
        known = sorted((value, i) for i, value in enumerate(values) if value is not None)
        if known:
            curve = Curve(letter, tuple((group.start + group.stop) / 2 for group in bins), tuple(values), style)
            if alone and len(bins) <= 140:
                read = zip(bins, values, strict=True)
                tips = tuple("" if value is None else f"ids {_ids(group)}: {_near(value)}" for group, value in read)
                marked = tuple(i for i, group in enumerate(bins) if group.reserved_rows > 0)
                curve = replace(curve, dots=True, tips=tips, marked=marked)
            curves.append(curve)
            least, greatest = (f"{_near(value)} (ids {_ids(bins[i])})" for value, i in (known[0], known[-1]))
            ends.append(f"{'' if alone else f'{letter} '}{least} to {greatest}")
    if not curves:
        return None
    groups = [group for *_, bins in sides for group in bins]
    held = tuple((float(g.start), float(g.stop)) for g in groups if alone and g.reserved_rows > 0)
    limits = (float(min(g.start for g in groups)), float(max(g.stop for g in groups)))
    chart = Chart(name, title, "row id", y_label, tuple(curves), bands=held, x_limits=limits, spark=spark)
    marks = (Mark(0.0, "y"),) if around_zero else ()
    return replace(chart, marks=marks, caption=f"Lowest and highest: {'; '.join(ends)}.")


def _ids(group: Group) -> str:
    return f"{count(group.start)} to {count(group.stop - 1)}"


def bins_table(bins: Sequence[Sequence[Group]], place: int) -> list[tuple[str, ...]]:
    """The numbers behind the chart `READINGS[place]`: one row per bin of any side, matched by the ends of the bin."""
    *_, field, around_zero = READINGS[place]
    limits = (-1.0, 1.0) if around_zero else (0.0, None)
    by_span = [{(group.start, group.stop): getattr(group, field) for group in side} for side in bins]
    rows = []
    for start, stop in sorted({span for side in by_span for span in side}):
        values = [side.get((start, stop)) for side in by_span]
        if any(value is not None for value in values):
            rows.append((f"{count(start)} to {count(stop - 1)}", *(optional(v, limits) for v in values)))
    return rows
