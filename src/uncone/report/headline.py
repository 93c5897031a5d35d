"""The first screen: the verdict, and the three numbers that carry it, each beside what an isotropic cloud gives."""

import math
from dataclasses import dataclass

from uncone.records import Diagnosis, Group, Groups, Measurement, Subject
from uncone.records.text import better, count, span, title
from uncone.records.wording import plural
from uncone.report.findings import badge, overall_level
from uncone.report.markup import SVG, element, escape, shown, shown_count
from uncone.report.measurements import ROWS_USED, is_centered
from uncone.report.provenance import subject_title

_FIRST = ("mean_cosine", "isoscore")
_TAIL = 3  # the last third of the ids: in frequency-ordered vocabularies, the rare tokens


@dataclass(frozen=True)
class Key:
    """One headline number."""

    label: str
    value: float | None
    reason: str
    reference: float | None
    limits: tuple[float | None, float | None]
    better: str
    about: str


def headline(diagnosis: Diagnosis) -> str:
    """The verdict as the page's heading, its level, and the headline numbers of the first subject."""
    level = overall_level(diagnosis)
    verdict = element("h1", escape(diagnosis.verdict), class_=_size(diagnosis.verdict))
    lead = element(
        "p", (badge(level) + " " if level else "") + element("span", _about(diagnosis)), class_="eyebrow"
    )
    tiles = "".join(_tile(key) for key in keys(diagnosis.subjects[0])) if diagnosis.subjects else ""
    return element(
        "section", lead + verdict + (element("div", tiles, class_="keys") if tiles else ""), class_="hero"
    )


def _size(verdict: str) -> str:
    """A long sentence is set smaller, so that the numbers under it stay on the first screen."""
    return "short" if len(verdict) <= 90 else "long" if len(verdict) <= 240 else "longest"


def keys(subject: Subject) -> list[Key]:
    """Mean cosine, IsoScore, and the tail's cosine to the reserved rows (or the effective rank): those that were taken."""
    taken, fixed = (
        {measurement.name: measurement for measurement in subject.measurements},
        bool(subject.without_effect),
    )
    chosen = [_of_measurement(taken[name], fixed) for name in _FIRST if name in taken]
    tail = tail_bin(subject.groups)
    if subject.groups is not None and tail is not None:
        chosen.append(_of_tail(tail, subject.groups))
    spare = dict.fromkeys(name for name in ("effective_rank", *taken) if name in taken and name not in _FIRST)
    return (chosen + [_of_measurement(taken[name], fixed) for name in spare])[:3]


def tail_bin(groups: Groups | None) -> Group | None:
    """The bin of the last third of the ids whose rows lie nearest to the reserved ones, bins holding reserved rows apart."""
    if groups is None:
        return None
    tail = groups.bins[-math.ceil(len(groups.bins) / _TAIL) :] if groups.bins else ()
    compared = [group for group in tail if group.cosine_to_reserved is not None and group.reserved_rows == 0]
    return max(compared, key=lambda group: group.cosine_to_reserved or 0.0, default=None)


def _of_measurement(measurement: Measurement, gauge_fixed: bool) -> Key:
    m, about = measurement, ROWS_USED[is_centered(measurement, gauge_fixed)]
    return Key(title(m.name), m.value, m.reason, m.reference, m.range, m.better, about)


def _of_tail(group: Group, groups: Groups) -> Key:
    label = (
        "Cosine of the tail to reserved rows"
        if groups.reserved_by_name
        else "Cosine of the tail to the last ids"
    )
    about = f"the nearest tail bin, ids {count(group.start)} to {count(group.stop - 1)}"
    return Key(label, group.cosine_to_reserved, "", 0.0, (-1.0, 1.0), "lower", about)


def _about(diagnosis: Diagnosis) -> str:
    if not diagnosis.subjects:
        return "no subject was read"
    first = diagnosis.subjects[0]
    return f"{escape(subject_title(first))}: {shown_count(first.n)} {plural(first.n, 'row')} × {shown_count(first.d)} {plural(first.d, 'column')}"


def _tile(key: Key) -> str:
    content = element("h2", escape(key.label))
    if key.value is None:
        content += element("p", "undefined", class_="value none") + element("p", escape(key.reason))
        return element("div", content, class_="key")
    content += element("p", shown(key.value, key.limits), class_="value") + _gauge(key)
    reference = "not known" if key.reference is None else shown(key.reference, key.limits)
    content += element("p", f"Isotropic: <b>{reference}</b> · {escape(better(key.better))}")
    about = " · ".join(part for part in (key.about, f"range {span(key.limits)}") if part)
    content += element("p", escape(about), class_="muted")
    return element("div", content, class_="key")


def _gauge(key: Key) -> str:
    """Where the value lies in its range, with a tick at the isotropic reference; nothing for an unbounded range."""
    low, high = key.limits
    if low is None or high is None or high <= low or key.value is None:
        return ""
    at = _share(key.value, low, high)
    start = _share(key.reference if key.reference is not None else low, low, high)
    bars = _bar("track", 0, 100, 3) + _bar("reach", min(at, start), max(at, start), 3)
    bars += _bar("tick", start - 0.3, start + 0.3, 0) if key.reference is not None else ""
    bars += _bar("dot", at - 0.7, at + 0.7, 0)
    return element(
        "svg",
        bars,
        class_="gauge",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        aria_hidden="true",
        xmlns=SVG,
    )


def _bar(css: str, left: float, right: float, inset: float) -> str:
    width = right - left
    x = min(max(left, 0.0), 100.0 - width)  # a mark at the very end of the track stays whole
    return element(
        "rect", class_=css, x=f"{x:.2f}", y=f"{inset:g}", width=f"{width:.2f}", height=f"{10 - 2 * inset:g}"
    )


def _share(value: float, low: float, high: float) -> float:
    return 100 * min(1.0, max(0.0, (value - low) / (high - low)))
