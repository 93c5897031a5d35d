"""The first screen: the verdict, and the three numbers that carry it, each beside what an isotropic cloud gives."""

import math
from dataclasses import dataclass

from uncone.records import Diagnosis, Group, Groups, Measurement, Subject
from uncone.report.findings import badge, overall_level
from uncone.report.markup import element, escape, shown, shown_count
from uncone.report.text import better, count, span, title

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
    verdict = element("h1", escape(diagnosis.verdict))
    lead = element("p", (badge(level) + " " if level else "") + element("span", _about(diagnosis)), class_="eyebrow")
    tiles = "".join(_tile(key) for key in keys(diagnosis.subjects[0])) if diagnosis.subjects else ""
    return element("section", lead + verdict + (element("div", tiles, class_="keys") if tiles else ""), class_="hero")


def keys(subject: Subject) -> list[Key]:
    """Mean cosine, IsoScore, and the tail's cosine to the reserved rows (or the effective rank): those that were taken."""
    taken = {measurement.name: measurement for measurement in subject.measurements}
    chosen = [_of_measurement(taken[name]) for name in ("mean_cosine", "isoscore") if name in taken]
    tail = tail_bin(subject.groups)
    if tail is not None:
        chosen.append(_of_tail(tail))
    spare = [name for name in ("effective_rank", *taken) if name in taken and name not in ("mean_cosine", "isoscore")]
    return chosen + [_of_measurement(taken[name]) for name in dict.fromkeys(spare)][: 3 - len(chosen)]


def tail_bin(groups: Groups | None) -> Group | None:
    """The bin of the last third of the ids whose rows lie nearest to the reserved ones, bins holding reserved rows apart."""
    if groups is None:
        return None
    tail = groups.bins[-math.ceil(len(groups.bins) / _TAIL) :] if groups.bins else ()
    compared = [group for group in tail if group.cosine_to_reserved is not None and group.reserved_rows == 0]
    return max(compared, key=lambda group: group.cosine_to_reserved or 0.0, default=None)


def _of_measurement(measurement: Measurement) -> Key:
    rows = {True: "mean row subtracted", False: "rows as stored", None: ""}[measurement.centered]
    return Key(
        title(measurement.name), measurement.value, measurement.reason, measurement.reference, measurement.range, measurement.better, rows
    )


def _of_tail(group: Group) -> Key:
    about = f"nearest tail bin: ids {count(group.start)}–{count(group.stop - 1)}"
    return Key("Rare tail to reserved rows", group.cosine_to_reserved, "", 0.0, (-1.0, 1.0), "lower", f"mean cosine; {about}")


def _about(diagnosis: Diagnosis) -> str:
    if not diagnosis.subjects:
        return "no subject was read"
    first = diagnosis.subjects[0]
    return f"{escape(first.name)}: {shown_count(first.n)} rows × {shown_count(first.d)} columns"


def _tile(key: Key) -> str:
    content = element("h2", escape(key.label))
    if key.value is None:
        return element("div", content + element("p", "undefined", class_="value none") + element("p", escape(key.reason)), class_="key")
    content += element("p", shown(key.value, key.limits), class_="value") + _gauge(key)
    reference = "not known" if key.reference is None else shown(key.reference, key.limits)
    content += element("p", f"Isotropic: <b>{reference}</b> · {escape(better(key.better))}")
    content += element("p", escape(" · ".join(part for part in (key.about, f"range {span(key.limits)}") if part)), class_="muted")
    return element("div", content, class_="key")


def _gauge(key: Key) -> str:
    """Where the value lies in its range, with a tick at the isotropic reference; nothing for an unbounded range."""
    low, high = key.limits
    if low is None or high is None or high <= low or key.value is None:
        return ""
    at = _share(key.value, low, high)
    start = _share(key.reference if key.reference is not None else low, low, high)
    bar = f'<rect class="reach" x="{min(at, start):.2f}" y="3" width="{abs(at - start):.2f}" height="4"/>'
    tick = f'<rect class="tick" x="{min(99.4, max(0.0, start - 0.3)):.2f}" y="0" width="0.6" height="10"/>' if key.reference is not None else ""
    dot = f'<rect class="dot" x="{min(98.6, max(0.0, at - 0.7)):.2f}" y="0" width="1.4" height="10"/>'
    track = '<rect class="track" x="0" y="3" width="100" height="4"/>'
    return (
        f'<svg class="gauge" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" '
        f'xmlns="http://www.w3.org/2000/svg">{track}{bar}{tick}{dot}</svg>'
    )


def _share(value: float, low: float, high: float) -> float:
    return 100 * min(1.0, max(0.0, (value - low) / (high - low)))
