"""The spectrum: eigenvalues as stored and centred, beside what an isotropic cloud of the same size gives."""

from collections.abc import Sequence

from uncone.records import Spectrum
from uncone.records.text import count, number, typeset
from uncone.records.wording import plural
from uncone.report.charts.frame import Chart, Point, axes, frame, line, svg

SIZE = (360.0, 270.0)
LINES = (
    ("raw", "as stored", "line raw"),
    ("centered", "centred", "line centred"),
    ("isotropic", "isotropic", "line isotropic"),
)
_FLOOR = 1e-9  # eigenvalues of a float32 matrix below this share of the largest are rounding
_MOST_VERTICES = 160


def spectrum_chart(spectrum: Spectrum, uid: str) -> Chart | None:
    """Eigenvalues by rank on two logarithmic axes; None where there is none to draw."""
    curves = [(css, _positive(getattr(spectrum, field))) for field, _, css in LINES]
    values = [value for _, curve in curves for value in curve]
    largest = max(values, default=0.0)
    curves = [(css, [value for value in curve if value >= largest * _FLOOR]) for css, curve in curves]
    if max(len(curve) for _, curve in curves) < 2:
        return None
    low = min(curve[-1] for _, curve in curves if curve)
    longest = max(len(curve) for _, curve in curves)
    x, y = axes(SIZE, (1.0, float(longest)), (low / 1.3, largest * 1.3), log_x=True, log_y=True)
    body = frame(x, y, x_label="rank of the eigenvalue", y_label="eigenvalue (embedding units, squared)")
    body += "".join(line(_thinned(curve), x, y, css) for css, curve in curves if curve)
    caption = _caption(spectrum) + _missing(spectrum, largest)
    described = f"Eigenvalues, largest first, both axes logarithmic. {caption}"
    return Chart("Spectrum", svg(uid, "Spectrum", described, SIZE, body), caption)


def _positive(values: Sequence[float]) -> list[float]:
    return [value for value in values if value > 0]


def _thinned(values: Sequence[float]) -> list[Point]:
    """Ranks spaced evenly on the logarithmic axis; the first ranks, where the outliers are, all stay."""
    last = len(values)
    spread = {round(last ** (step / _MOST_VERTICES)) for step in range(_MOST_VERTICES + 1)}
    return [(float(rank), values[rank - 1]) for rank in sorted(spread | set(range(1, min(last, 30) + 1)))]


def _caption(spectrum: Spectrum) -> str:
    raw, isotropic = _positive(spectrum.raw), _positive(spectrum.isotropic)
    if not raw or not isotropic:
        return "An even cloud has a flat line."
    times = typeset(number(raw[0] / isotropic[0]))
    return f"The largest eigenvalue as stored is {times} times an isotropic cloud's. The flatter the line, the evener the cloud."


def _missing(spectrum: Spectrum, largest: float) -> str:
    left = sum(value < largest * _FLOOR for field, _, _ in LINES for value in getattr(spectrum, field))
    return (
        f" Not drawn: {count(left)} {plural(left, 'value')} below a billionth of the largest." if left else ""
    )
