"""What the rows say about tokens: frequent and rare ones compared, and the tokens that were hardly trained."""

from collections.abc import Sequence

from uncone.records import (
    Difference,
    Estimate,
    FrequencyGroup,
    FrequencyGroups,
    Subject,
    UnderTrained,
    UnderTrainedToken,
)
from uncone.records.text import number, shortened, title
from uncone.records.wording import plural
from uncone.report.markup import element, escape, escape_number, section, shown, shown_count, token

MOST_SHOWN = 20
_COSINES = (-1.0, 1.0)
_READINGS: tuple[tuple[str, str, tuple[float | None, float | None]], ...] = (
    ("mean_cosine", "Cosine within", _COSINES),
    ("cosine_to_reserved", "Cosine to reserved", _COSINES),
    ("cosine_to_common", "Cosine to common", _COSINES),
    ("mean_norm", "Norm", (0.0, None)),
)
_CHANCE = (
    "Cosine to common: to the direction of the sum of all unit rows. Above chance: the standard deviations by which the "
    "cosine within lies above that of random groups of the same size, and the most that such a group's probability can be "
    "(Cantelli), whatever the distribution."
)


def tokens_section(subject: Subject, uid: str) -> str:
    """Both parts, as far as the record has them."""
    content = ""
    if subject.frequency_groups is not None and subject.frequency_groups.groups:
        content += _groups(subject.frequency_groups, f"{uid}-frequency")
    if subject.under_trained is not None:
        content += _under_trained(subject.under_trained, f"{uid}-under-trained")
    return content


def _groups(found: FrequencyGroups, uid: str) -> str:
    lead = f"Groups by {'count' if found.by == 'count' else 'id'}: {found.definition}. Below each value its {100 * found.confidence:g}% interval."
    with_counts = any(group.occurrences is not None for group in found.groups)
    columns = [
        "Group",
        "Rows",
        *(["Occurrences"] if with_counts else []),
        *(name for _, name, _ in _READINGS),
        "Above chance",
    ]
    rows = [_group(group, with_counts=with_counts) for group in found.groups]
    content = element("p", escape(lead), class_="lead") + _table(columns, rows, "Readings by group")
    content += element("p", escape(_CHANCE), class_="muted") + _differences(found.differences)
    return section("Frequent and rare tokens", content, uid=uid)


def _group(group: FrequencyGroup, *, with_counts: bool) -> list[str]:
    occurrences = (
        ["–" if group.occurrences is None else shown_count(group.occurrences)] if with_counts else []
    )
    readings = [_estimate(getattr(group, name), limits) for name, _, limits in _READINGS]
    chance = "–"
    if group.excess is not None:
        chance = f"{shown(group.excess)} sd"
        if group.chance is not None and group.chance < 1:
            chance += (
                f"<br/>{element('span', f'p at most {shown(group.chance, (0.0, 1.0))}', class_='muted')}"
            )
    return [escape(title(group.name)), shown_count(group.n), *occurrences, *readings, chance]


def _estimate(estimate: Estimate, limits: tuple[float | None, float | None]) -> str:
    if estimate.value is None:
        return "–"
    value = shown(estimate.value, limits)
    if estimate.interval is None:
        return value
    low, high = (shown(end) for end in estimate.interval)
    return f"{value}<br/>{element('span', f'{low} to {high}', class_='muted')}"


def _differences(differences: Sequence[Difference]) -> str:
    if not differences:
        return ""
    names = {name: words for name, words, _ in _READINGS}
    rows = [
        [
            escape(f"{title(d.first)} minus {d.second}"),
            escape(names[d.reading]),
            _estimate(d.difference, (None, None)),
        ]
        for d in differences
    ]
    table = _table(["Groups", "Reading", "Difference"], rows, "Differences between groups")
    return element("details", element("summary", "Differences between groups, with their intervals") + table)


def _under_trained(found: UnderTrained, uid: str) -> str:
    content = element("p", _lead(found), class_="lead")
    content += "".join(element("p", escape(note), class_="caution") for note in found.notes)
    news, known = ([t for t in found.tokens if t.expected is expected] for expected in (False, True))
    content += _list(found, news[:MOST_SHOWN], "Under-trained tokens") if news else ""
    if len(news) > MOST_SHOWN:
        more = element(
            "summary", f"The next {shown_count(len(news) - MOST_SHOWN)} of {shown_count(found.found or 0)}"
        )
        content += element("details", more + _list(found, news[MOST_SHOWN:], "More under-trained tokens"))
    if known:
        summary = element(
            "summary",
            f"Known to be unused, for comparison: the first {shown_count(len(known))} of {shown_count(found.known)}",
        )
        content += element("details", summary + _list(found, known, "Rows known to be unused"))
    return section("Under-trained tokens", content, uid=uid)


def _lead(found: UnderTrained) -> str:
    if found.found is None:
        return f"Not told: {escape(found.reason)}."
    looks = plural(found.found, "looks as if no text had trained it", "look as if no text had trained them")
    text = f"{shown_count(found.found)} of {shown_count(found.tested)} rows {looks}, at a false-discovery rate of "
    text += f"{escape_number(number(100 * found.rate))}{chr(0x202F)}%. Indicator: {escape(found.definition)}."
    text += f" Compared with {escape(found.reference)}." if found.reference else ""
    if found.known:
        text += f" Of the {shown_count(found.known)} {plural(found.known, 'row')} known to be unused "
        text += f"{shown_count(found.known_found)} {plural(found.known_found, 'looks', 'look')} it too."
    return text


def _list(found: UnderTrained, tokens: Sequence[UnderTrainedToken], label: str) -> str:
    with_counts = any(t.count is not None for t in tokens)
    by_cosine = found.indicator == "cosine"
    columns = [
        "Token",
        "Id",
        *(["Distance"] if by_cosine else []),
        "p",
        "q",
        "Norm",
        "Cosine to unused",
        "Cosine to mean",
    ]
    columns += ["Count"] if with_counts else []
    rows = []
    for t in tokens:
        name = "–" if t.token is None else token(escape(shortened(t.token)))
        cells = [name, shown_count(t.id), *([shown(t.indicator, (0.0, 2.0))] if by_cosine else [])]
        cells += [shown(t.p, (0.0, 1.0)), shown(t.q, (0.0, 1.0)), shown(t.norm, (0.0, None))]
        cells += ["–" if c is None else shown(c, _COSINES) for c in (t.cosine_to_unused, t.cosine_to_mean)]
        rows.append(cells + (["–" if t.count is None else shown_count(t.count)] if with_counts else []))
    return _table(columns, rows, label)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], label: str) -> str:
    """A table that scrolls in itself; cells are markup, the first of a row is its heading."""
    head = element(
        "thead", element("tr", "".join(element("th", escape(column), scope="col") for column in columns))
    )
    body = "".join(
        element("tr", element("th", row[0], scope="row") + "".join(element("td", cell) for cell in row[1:]))
        for row in rows
    )
    table = element("table", head + element("tbody", body), class_="bins")
    return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)
