"""One matrix of a diagnosis: all that was read from it, and how it is shown."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uncone.records.blocks import (
    Block,
    Bullets,
    Cell,
    Cloud,
    Figure,
    Folded,
    Gauge,
    Gauges,
    Heading,
    Table,
    Text,
)
from uncone.records.charts import bin_charts, norms_chart, spectrum_chart
from uncone.records.parts import Finding, Group, Groups, Measurement, Norms, Spectrum
from uncone.records.picture import Picture
from uncone.records.text import better, count, number, optional, shortened, span, title
from uncone.records.tokens import (
    FrequencyGroups,
    UnderTrained,
    frequency_blocks,
    token_measurements,
    under_trained_blocks,
)
from uncone.records.wording import counted, plural

LEVELS = ("severe", "warning", "note", "healthy")
"""Worst first."""
WITHOUT_EFFECT = "No effect on probabilities"
WITHOUT_EFFECT_REASON = (
    "Adding one vector to every row of the head adds the same amount to every logit of a position, and softmax ignores "
    "it: no probability depends on these raw readings, so no finding is drawn from them."
)
_GAUGE_FIXED = "All are read after the head's mean row was subtracted, which changes no probability."
_NAMES = {"input": "Input token table", "head": "Output head", "rows": "Rows"}
_USED = {True: "mean row subtracted", False: "rows as stored", None: ""}
_KEYS = ("mean_cosine", "isoscore")
_TAIL = 3  # the last third of the ids: in vocabularies ordered by frequency, the rare tokens
_MOST_ITEMS, _LONGEST = 12, 200
_OUTERMOST = 8


@dataclass(frozen=True)
class Subject:
    """One matrix of a model (`input`, `head`) or a plain collection (`rows`), and all that was read from
    it."""

    name: str
    source: str
    n: int
    d: int
    dtype: str
    measurements: tuple[Measurement, ...]
    findings: tuple[Finding, ...]
    groups: Groups | None
    spectrum: Spectrum | None
    norms: Norms | None
    picture: Picture | None
    without_effect: tuple[Measurement, ...] = ()
    """Raw readings of a head that no probability depends on (a vector added to all rows changes none)."""
    left_out: int = 0
    """Rows that are not finite and were left out on request."""
    notes: tuple[str, ...] = ()
    frequency_groups: FrequencyGroups | None = None
    under_trained: UnderTrained | None = None

    def measurement(self, name: str) -> Measurement:
        """The measurement called `name`; KeyError where it was not taken."""
        for measurement in self.measurements:
            if measurement.name == name:
                return measurement
        raise KeyError(name)

    def token_measurements(self) -> tuple[Measurement, ...]:
        """The readings of groups of tokens and the share that looks untrained, as measurements."""
        return token_measurements(self.frequency_groups, self.under_trained, self.d)

    @property
    def title(self) -> str:
        """The matrix in words: a model's two matrices by what they are, everything else by its own name."""
        return _NAMES.get(self.name, self.name)

    def blocks(self) -> Iterator[Block]:
        """Findings, pictures, tokens, numbers and notes."""
        size = f"{counted(self.n, 'row')} x {counted(self.d, 'column')}"
        yield Heading(self.title, 2, about=f"{size}, {self.dtype}, {self.source}")
        for finding in worst_first(self.findings):
            yield from _finding(finding)
        if not self.findings:
            yield Text("No finding was drawn from these numbers.", "quiet")
        yield from self._figures()
        if self.frequency_groups is not None and self.frequency_groups.groups:
            yield from frequency_blocks(self.frequency_groups)
        if self.under_trained is not None:
            yield from under_trained_blocks(self.under_trained)
        fixed = bool(self.without_effect)
        yield from measurement_blocks(
            "Measurements", _GAUGE_FIXED if fixed else "", self.measurements, fixed=fixed
        )
        yield from measurement_blocks(WITHOUT_EFFECT, WITHOUT_EFFECT_REASON, self.without_effect, fixed=False)
        notes = self.notes
        if self.left_out:
            words = plural(self.left_out, "row that is not finite was", "rows that are not finite were")
            notes = (f"{count(self.left_out)} {words} left out, as asked.", *notes)
        if notes:
            yield Heading("Notes")
            yield Bullets(notes)

    def gauges(self) -> Gauges:
        """Mean cosine, IsoScore, and the tail's cosine to the reserved rows (or the effective rank): those
        that were taken."""
        taken, fixed = {m.name: m for m in self.measurements}, bool(self.without_effect)
        chosen = [_gauge(taken[name], fixed) for name in _KEYS if name in taken]
        tail = tail_bin(self.groups)
        if self.groups is not None and tail is not None:
            what = "reserved rows" if self.groups.reserved_by_name else "the last ids"
            about = f"the nearest tail bin, ids {count(tail.start)} to {count(tail.stop - 1)}"
            label = f"Cosine of the tail to {what}"
            chosen.append(Gauge(label, tail.cosine_to_reserved, "", 0.0, (-1.0, 1.0), "lower", about))
        spare = dict.fromkeys(
            name for name in ("effective_rank", *taken) if name in taken and name not in _KEYS
        )
        return Gauges(tuple((chosen + [_gauge(taken[name], fixed) for name in spare])[:3]))

    def _figures(self) -> Iterator[Block]:
        if self.picture is not None and self.picture.ids:
            yield Figure("The cone", (Cloud("cone", "The cone", self.picture, self._shares()),))
            farthest = tuple(_farthest(name, labels) for name, labels in self.picture.outermost(_OUTERMOST))
            if farthest:
                columns = ("group", "rows, the farthest first", *[""] * (_OUTERMOST - 1))
                yield Folded("Farthest from the centre, by group", (Table(columns, farthest),))
        charts = () if self.groups is None else tuple(bin_charts([("bins", "bins", self.groups.bins)]))
        if self.groups is not None and charts:
            yield _by_id(self.groups, charts)
            yield Folded("The numbers behind this figure", (_bin_table(self.groups),))
        spectrum = None if self.spectrum is None else spectrum_chart(self.spectrum)
        norms = None if self.norms is None else norms_chart(self.norms)
        shapes = tuple(chart for chart in (spectrum, norms) if chart is not None)
        if shapes:
            legend = () if spectrum is None else tuple((curve.style, curve.name) for curve in spectrum.curves)
            yield Figure("Spectrum and norms", shapes, legend=legend)

    def _shares(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        spectrum = self.spectrum
        return ((), ()) if spectrum is None else (_shares(spectrum.raw), _shares(spectrum.centered))


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, worst first, otherwise in the record's order."""
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def worst_level(findings: Sequence[Finding]) -> str:
    """The worst level among the findings; `note` where there is none, since no finding is no clean bill."""
    return min((finding.level for finding in findings), key=LEVELS.index, default="note")


def _finding(finding: Finding) -> Iterator[Block]:
    cause = "" if finding.cause == finding.level else title(finding.cause)
    yield Heading(cause, 4, finding.level.upper(), finding.level)
    yield Text(finding.summary)
    if finding.evidence:
        yield Bullets(finding.evidence, "quiet")
    if finding.repair:
        yield Text(f"What to do: {finding.repair}", "advice")


def tail_bin(groups: Groups | None) -> Group | None:
    """The bin of the last third of the ids whose rows lie nearest to the reserved ones, bins holding reserved
    rows apart."""
    if groups is None or not groups.bins:
        return None
    tail = groups.bins[-math.ceil(len(groups.bins) / _TAIL) :]
    compared = [group for group in tail if group.cosine_to_reserved is not None and group.reserved_rows == 0]
    return max(compared, key=lambda group: group.cosine_to_reserved or 0.0, default=None)


def _gauge(m: Measurement, fixed: bool) -> Gauge:
    return Gauge(
        title(m.name), m.value, m.reason, m.reference, m.range, m.better, _USED[is_centered(m, fixed)]
    )


def is_centered(measurement: Measurement, fixed: bool) -> bool | None:
    """Whether the rows had their mean subtracted; a head's measurements were handed centred rows, whatever
    they do."""
    return True if fixed and measurement.centered is not None else measurement.centered


def measurement_blocks(
    heading: str, why: str, measurements: Sequence[Measurement], *, fixed: bool
) -> Iterator[Block]:
    """Measurements in one table, the reasons and warnings below it, and what the names mean."""
    if not measurements:
        return
    yield Heading(heading)
    if why:
        yield Text(why, "lead")
    columns = ("measure", "value", "isotropic", "better", "rows")
    yield Table(columns, tuple(_cells(m, fixed) for m in measurements), ("value", "isotropic", "rows"))
    for m in measurements:
        if m.value is None:
            yield Text(f"{title(m.name)} is undefined: {m.reason}", "caution")
        for warning in m.warnings:
            yield Text(f"{title(m.name)}: {warning}", "caution")
    meanings = tuple(
        (
            title(m.name),
            Cell(m.name, tone="code"),
            m.definition,
            f"{span(m.range)}, {better(m.better)}",
            m.reads_badly,
        )
        for m in measurements
    )
    details = tuple(
        (title(m.name), title(str(name)), _plain(value))
        for m in measurements
        for name, value in m.details.items()
    )
    folded = [Table(("measure", "name in files", "definition", "range", "reads badly when"), meanings)]
    folded += [Table(("measure", "detail", "value"), details)] if details else []
    yield Folded("What these measures are, and their details", tuple(folded))


def _cells(m: Measurement, fixed: bool) -> tuple[str | Cell, ...]:
    name, used = title(m.name), {True: "centred", False: "raw", None: ""}[is_centered(m, fixed)]
    value = "undefined" if m.value is None else number(m.value, limits=m.range)
    interval = "" if m.interval is None else " to ".join(number(end, limits=m.range) for end in m.interval)
    return (
        name if not used or name.endswith(used) else f"{name}, {used}", Cell(value, interval, "strong"),
        optional(m.reference, m.range), "" if m.better == "neither" else m.better, count(m.n),
    )  # fmt: skip


def _plain(value: Any) -> str:
    """A value from JSON in words. Tuples and lists read alike, so a record and its JSON give the same
    page."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, Mapping):
        return _listed([f"{key}: {_plain(item)}" for key, item in value.items()])
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _listed([_plain(item) for item in value])
    return shortened(str(value), _LONGEST)


def _listed(items: Sequence[str]) -> str:
    more = len(items) - _MOST_ITEMS
    return ", ".join(items[:_MOST_ITEMS]) + (f", … ({more} more)" if more > 0 else "")


def _farthest(name: str, labels: Sequence[str]) -> tuple[str | Cell, ...]:
    cells = [Cell(shortened(label), tone="token") for label in labels]
    return name, *cells, *[""] * (_OUTERMOST - len(labels))


def _by_id(groups: Groups, charts: tuple[Any, ...]) -> Figure:
    first, last = count(groups.bins[0].start), count(groups.bins[-1].stop - 1)
    size = count(groups.bin_size)
    caption, reserved = (
        "Dashed: what an isotropic cloud gives. Shaded: bins that hold reserved rows.",
        groups.reserved_group,
    )
    if reserved is not None:
        caption += f" Reserved: {groups.reserved}, {counted(reserved.n, 'row')}"
        if reserved.mean_cosine is not None:
            caption += (
                f"; their mean cosine among themselves is {number(reserved.mean_cosine, limits=(-1, 1))}"
            )
        caption += "."
    return Figure(
        "By row id", charts, caption, (("bins", f"a bin of {size} ids"),),
        spark=f"By row id, {first} to {last}, bins of {size}:",
    )  # fmt: skip


def _bin_table(groups: Groups) -> Table:
    columns = ("ids", "rows", "zero rows", "reserved", "norm", "cosine within", "cosine to reserved")
    rows = [_bin_row(group, f"{count(group.start)} to {count(group.stop - 1)}") for group in groups.bins]
    rows += [] if groups.reserved_group is None else [_bin_row(groups.reserved_group, "all reserved")]
    return Table(columns, tuple(rows), columns[1:])


def _bin_row(group: Group, name: str) -> tuple[str | Cell, ...]:
    norm = Cell(
        optional(group.norm_mean, (0, None)), "" if group.norm_std is None else f"± {number(group.norm_std)}"
    )
    cosines = (optional(value, (-1, 1)) for value in (group.mean_cosine, group.cosine_to_reserved))
    return name, count(group.n), count(group.zero_rows), count(group.reserved_rows), norm, *cosines


def _shares(values: Sequence[float]) -> tuple[float, ...]:
    """The shares of the squared length that the first two and the first three directions hold."""
    total = math.fsum(values)
    return () if total <= 0 else tuple(math.fsum(values[:dims]) / total for dims in (2, 3))
