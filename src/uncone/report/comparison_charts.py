"""Drawings of a comparison: the curves of all diagnoses over each other, one colour and dash pattern each."""

import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

from uncone.records import ComparedSubject, Group, Norms, Spectrum, Subject
from uncone.records.text import number, typeset
from uncone.report.charts.frame import Chart, Point, axes, frame, line, segments, svg, widened
from uncone.report.comparison_words import LETTERS
from uncone.report.markup import element

SIZE = (300.0, 240.0)
_FLOOR = 1e-9  # eigenvalues of a float32 matrix below this share of the largest are rounding
_MOST_VERTICES = 160
_LARGEST = 1e290  # beyond, sums and margins leave the range of a float

Curve = tuple[int, list[float]]  # the place of a diagnosis, and its values
READINGS: tuple[tuple[str, str, Callable[[Group], float | None], bool], ...] = (
    ("Cosine to reserved rows", "mean cosine", lambda group: group.cosine_to_reserved, True),
    ("Cosine within the bin", "mean cosine", lambda group: group.mean_cosine, True),
    ("Norm", "mean norm (embedding units)", lambda group: group.norm_mean, False),
)


def css(order: int) -> str:
    """The class of a diagnosis' line, which has its colour and its dashes."""
    return f"line d{order}"


def spectrum_charts(subject: ComparedSubject, uid: str) -> list[Chart]:
    """Eigenvalues by rank on two logarithmic axes: as stored, and centred beside the isotropic line of the first."""
    raw = _spectrum(_curves(subject, lambda s: s.raw), [], f"{uid}-raw", "As stored")
    first = next(
        (side.spectrum for side in subject.sides if side is not None and side.spectrum is not None), None
    )
    even = _kept(first.isotropic) if first is not None else []
    centred = _spectrum(_curves(subject, lambda s: s.centered), even, f"{uid}-centred", "Mean row subtracted")
    return [chart for chart in (raw, centred) if chart is not None]


def _curves(subject: ComparedSubject, of: Callable[[Spectrum], Sequence[float]]) -> list[Curve]:
    spectra = ((order, side.spectrum) for order, side in enumerate(subject.sides) if side is not None)
    curves = [(order, _kept(of(spectrum))) for order, spectrum in spectra if spectrum is not None]
    return [(order, curve) for order, curve in curves if len(curve) > 1]


def _kept(values: Sequence[float]) -> list[float]:
    """What can be drawn on a logarithmic axis; below a billionth of the largest is rounding."""
    largest = max(values, default=0.0)
    return [value for value in values if 1e-290 < value < _LARGEST and value >= largest * _FLOOR]


def _spectrum(curves: Sequence[Curve], even: list[float], uid: str, title: str) -> Chart | None:
    if not curves:
        return None
    drawn = [*(curve for _, curve in curves), *([even] if len(even) > 1 else [])]
    low, high = min(min(curve) for curve in drawn), max(max(curve) for curve in drawn)
    x, y = axes(SIZE, (1.0, float(max(map(len, drawn)))), (low / 1.3, high * 1.3), log_x=True, log_y=True)
    body = frame(x, y, x_label="rank of the eigenvalue", y_label="eigenvalue (embedding units, squared)")
    body += line(_thinned(even), x, y, "line even") if len(even) > 1 else ""
    body += "".join(line(_thinned(curve), x, y, css(order)) for order, curve in curves)
    caption = _listed(
        [(order, f"{typeset(number(curve[0]))}") for order, curve in curves], "Largest eigenvalue"
    )
    return Chart(
        f"Spectrum, {title.lower()}",
        svg(uid, f"Spectra, {title.lower()}", f"Eigenvalues by rank. {caption}", SIZE, body),
        caption,
    )


def _thinned(values: Sequence[float]) -> list[Point]:
    """Ranks spaced evenly on the logarithmic axis; the first ranks, where the outliers are, all stay."""
    last = len(values)
    spread = {round(last ** (step / _MOST_VERTICES)) for step in range(_MOST_VERTICES + 1)}
    return [(float(rank), values[rank - 1]) for rank in sorted(spread | set(range(1, min(last, 30) + 1)))]


def norms_chart(subject: ComparedSubject, uid: str) -> Chart | None:
    """Outlines of the histograms of norms, as shares of the rows, so that different numbers of rows compare."""
    found = [
        (order, side.norms)
        for order, side in enumerate(subject.sides)
        if side is not None and side.norms is not None
    ]
    found = [(order, norms) for order, norms in found if _drawable(norms)]
    if not found:
        return None
    unit = statistics.median(right - left for _, norms in found for left, right in pairwise(norms.edges))
    outlines = [(order, _outline(norms, unit)) for order, norms in found]
    ends = [edge for _, norms in found for edge in (norms.edges[0], norms.edges[-1])]
    top = max(height for _, outline in outlines for _, height in outline)
    x, y = axes(SIZE, (min(ends), max(ends)), (0.0, top * 1.12))
    body = frame(
        x,
        y,
        x_label="Euclidean norm (embedding units)",
        y_label=f"% of rows per {typeset(number(unit, digits=2))} of norm",
    )
    body += "".join(line(outline, x, y, css(order)) for order, outline in outlines)
    caption = _listed([(order, typeset(number(norms.mean))) for order, norms in found], "Mean norm")
    return Chart("Norms", svg(uid, "Distributions of row norms", caption, SIZE, body), caption)


def _drawable(norms: Norms) -> bool:
    within = all(abs(edge) < _LARGEST for edge in norms.edges)
    return within and any(norms.counts) and min(norms.counts) >= 0 and norms.edges[-1] > norms.edges[0]


def _outline(norms: Norms, unit: float) -> list[Point]:
    """Steps from zero to zero: the area under them is the rows', in per cent."""
    total = sum(norms.counts)
    steps = [(norms.edges[0], 0.0)]
    for (left, right), rows in zip(pairwise(norms.edges), norms.counts, strict=True):
        if right > left:
            height = 100 * (rows / total) * (unit / (right - left))
            steps += [(left, height), (right, height)]
    return [*steps, (norms.edges[-1], 0.0)]


def bin_charts(subject: ComparedSubject, uid: str) -> list[Chart]:
    """By id: cosine to the reserved rows, cosine within the bin, and norm, a panel for each that any diagnosis has."""
    sides = [
        (order, side)
        for order, side in enumerate(subject.sides)
        if side is not None and side.groups is not None
    ]
    panels = [_panel(sides, place, f"{uid}-{place}") for place in range(len(READINGS))]
    return [panel for panel in panels if panel is not None]


def _panel(sides: Sequence[tuple[int, Subject]], place: int, uid: str) -> Chart | None:
    title, y_label, of, around_zero = READINGS[place]
    lines = [(order, *_by_id(side, of)) for order, side in sides]
    lines = [(order, xs, values) for order, xs, values in lines if any(value is not None for value in values)]
    known = [value for _, _, values in lines for value in values if value is not None]
    if not known:
        return None
    ends = (
        [group.start for _, side in sides for group in _bins(side)],
        [group.stop for _, side in sides for group in _bins(side)],
    )
    low, high = min(known + [0.0] * around_zero), max(known + [0.0] * around_zero)
    x, y = axes(SIZE, (float(min(ends[0])), float(max(ends[1]))), widened(low, high, 0.1))
    body = frame(x, y, x_label="row id", y_label=y_label, x_ticks=4)
    if around_zero:
        body += element("path", class_="line even", d=f"M{x.start:.1f} {y.at(0.0):.1f}H{x.stop:.1f}")
    for order, xs, values in lines:
        runs = segments(xs, values)
        body += "".join(line(run if len(run) > 1 else [*run, *run], x, y, css(order)) for run in runs)
    extremes = [(order, _extremes(values)) for order, _, values in lines]
    caption = _listed(extremes, "Least and greatest")
    return Chart(title, svg(uid, f"{title}, by row id", caption, SIZE, body), caption)


def _bins(side: Subject) -> tuple[Group, ...]:
    return side.groups.bins if side.groups is not None else ()


def _by_id(side: Subject, of: Callable[[Group], float | None]) -> tuple[list[float], list[float | None]]:
    """The middles of the bins, and their readings; those too large to draw are gaps."""
    groups = _bins(side)
    readings = [of(group) for group in groups]
    middles = [(group.start + group.stop) / 2 for group in groups]
    return middles, [None if value is None or abs(value) > _LARGEST else value for value in readings]


def _extremes(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{typeset(number(min(known)))} to {typeset(number(max(known)))}"


def _listed(parts: Sequence[tuple[int, str]], what: str) -> str:
    return f"{what}: {'; '.join(f'{LETTERS[order]} {words}' for order, words in parts)}."
