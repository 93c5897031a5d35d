"""The record of a diagnosis and of each matrix in it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from uncone.diagnosis.bins.record import FrequencyBins, by_count_blocks
from uncone.diagnosis.known.record import Placed
from uncone.diagnosis.why.record import Explanation
from uncone.errors import UnknownName
from uncone.records import tokens
from uncone.records.blocks import (
    Block,
    Blocks,
    Bullets,
    Cell,
    Cloud,
    Code,
    Figure,
    Folded,
    Gauge,
    Gauges,
    Heading,
    Row,
    Table,
    Text,
)
from uncone.records.brief import part
from uncone.records.charts import bin_charts, norms_chart, spectrum_chart
from uncone.records.layout import folded, named, numbers, section, shown
from uncone.records.names import detail, find
from uncone.records.parts import (
    Finding,
    Group,
    Groups,
    Level,
    Measurement,
    NearDuplicates,
    Norms,
    OddRows,
    Picture,
    RandomScores,
    Spectrum,
)
from uncone.records.readings import is_centered, readings_blocks
from uncone.records.record import Record, made_with
from uncone.records.text import count, counted, listing, number, optional, title
from uncone.records.token_text import shown_token
from uncone.records.tokens import FrequencyGroups, UnderTrained

LEVELS: tuple[Level, ...] = ("severe", "warning", "note", "healthy", "structure", "no_effect")
"""Worst first, then levels that are neither good nor bad."""
LABELS = {level: "NO DEFECT" if level == "healthy" else level.replace("_", " ").upper() for level in LEVELS}
WITHOUT_EFFECT = "No effect on probabilities"
WITHOUT_EFFECT_REASON = (
    "Adding one vector to every row of the head adds the same to every logit of a position, which softmax "
    "ignores. No probability depends on these raw readings, so we draw no finding from them."
)
_GAUGE_FIXED = "All measurements are of the head without its mean row. Subtracting it changes no probability."
_NAMES = {"input": "Input token table", "head": "Output head", "rows": "Rows"}
CALLED = {"input": "the input token table", "head": "the output head", "rows": "the collection"}
"""Inside a sentence."""
_USED = {True: "mean row subtracted", False: "rows as stored", None: ""}
_KEYS, _TILES = ("mean_cosine", "effective_rank", "isoscore"), 3
_OF_SINGLE_ROWS = {"hubs", "near_duplicates", "equal_rows", "zero_rows", "giant_rows", "nonfinite_rows"}
_FEWEST_KNOWN, _OUTERMOST = 5, 8  # fewer models show little about what is usual
_FIRST_KNOWN = 2  # on a page, before the others unfold


@part
class Subject:
    """One matrix of a model (`input`, `head`) or a collection (`rows`), and every reading of it."""

    name: str  # `input`, `head` or `rows`
    source: str  # file and tensor
    n: int  # rows
    d: int  # columns
    dtype: str  # as stored
    measurements: tuple[Measurement, ...]  # every measure, undefined ones too
    findings: tuple[Finding, ...]  # most severe first
    groups: Groups | None  # readings by bin of ids
    spectrum: Spectrum | None  # eigenvalues
    norms: Norms | None  # the distribution of row lengths
    picture: Picture | None  # coordinates for the cone picture
    without_effect: tuple[Measurement, ...] = ()  # of a head: raw readings that no probability depends on
    left_out: int = 0  # rows that are not finite and were left out on request
    notes: tuple[str, ...] = ()  # remarks on this matrix
    # frequent, medium, rare, never seen and reserved rows compared; for a collection only with counts or ranks
    frequency_groups: FrequencyGroups | None = None
    under_trained: UnderTrained | None = None  # rows that look untrained; `null` for a collection
    odd_rows: tuple[OddRows, ...] = ()  # zero, equal and giant rows
    placed: tuple[Placed, ...] = ()  # readings among those of known models
    # rows by measured frequency or by rank, where counts or ranks were given: see [its records](explain_records.md)
    by_count: FrequencyBins | None = None
    scores: RandomScores | None = None  # what random pairs score, for a collection with a common direction
    near_duplicates: NearDuplicates | None = None  # for a collection whose nearest neighbours were searched

    def measurement(self, name: str) -> Measurement:
        """The measurement called `name`; KeyError if there is none."""
        return {m.name: m for m in reversed(self.measurements)}[name]

    def token_measurements(self) -> tuple[Measurement, ...]:
        return tokens.token_measurements(self.frequency_groups, self.under_trained, self.d)

    @property
    def title(self) -> str:
        return _NAMES.get(self.name, self.name)

    def blocks(self) -> Blocks:
        size = f"{counted(self.n, 'row')} x {counted(self.d, 'column')}"
        fixed, notes = bool(self.without_effect), self.notes
        if self.left_out:
            rows = counted(self.left_out, "row that is not finite was", "rows that are not finite were")
            notes = (f"{rows} left out, as requested.", *notes)
        is_random = "untrained" in {f.cause for f in self.findings}
        return shown(
            Heading(self.title, 2, about=f"{size}, {self.dtype}, {self.source}"),
            *map(_finding, self._in_order()),
            Text("" if self.findings else "No finding was drawn from these numbers.", "quiet"),
            self._among_known(),
            self._figures(),
            tokens.frequency_blocks(self.frequency_groups),
            by_count_blocks(self.by_count),
            () if is_random else tokens.under_trained_blocks(self.under_trained),
            readings_blocks("Measurements", _GAUGE_FIXED if fixed else "", self.measurements, fixed=fixed),
            folded(readings_blocks(WITHOUT_EFFECT, WITHOUT_EFFECT_REASON, self.without_effect, of="Raw readings")),
            section("Notes", Bullets(notes)),
        )

    def _by_level(self) -> list[Finding]:
        return sorted(self.findings, key=lambda f: LEVELS.index(f.level))

    def _in_order(self) -> list[Finding]:
        """For a collection, findings on single rows come first, because a user can look at these rows."""
        return sorted(self._by_level(), key=lambda f: self.name != "rows" or f.cause not in _OF_SINGLE_ROWS)

    def gauges(self, *, of_many: bool = False) -> Gauges:
        """Three numbers: those of defects, the worst first, then the usual ones; `of_many` adds the matrix's name."""
        taken, chosen, findings = {m.name: m for m in self.measurements}, dict[str, Gauge](), self._by_level()
        resting = {name: finding for finding in reversed(findings) for name in finding.measures}
        whose = self.title if of_many else ""

        def add(name: str) -> None:
            if name in taken and name not in chosen:
                m = taken[name]
                about = ", ".join(filter(None, (whose, _USED[is_centered(m, bool(self.without_effect))])))
                read = (title(m.name), m.value, m.reason, m.reference, m.range, m.better, about)
                chosen[name] = Gauge(*read, *(_judged(resting[name]) if name in resting else ()))

        for f in (f for f in findings if f.is_defect):
            if f.cause == "degenerate_tail" and (nearest := nearest_bin(self.groups)):
                label = f"Cosine of ids {_ids(nearest)} to "
                label += self.groups.called if self.groups else ""
                cosine = (label, nearest.cosine_to_reserved, "", 0.0, (-1.0, 1.0))
                chosen[f.cause] = Gauge(*cosine, "lower", whose, *_judged(f))
            elif f.extent is not None and not taken.keys() & set(f.measures):
                share = (f"{title(f.cause)}, as a share of all", f.extent, "", 0.0, (0.0, 1.0))
                chosen[f.cause] = Gauge(*share, "lower", whose, *_judged(f))
            for name in f.measures[:1]:
                add(name)
        for name in (*_KEYS[bool(self.without_effect) :], *taken):
            add(name)
        return Gauges(tuple(chosen.values())[:_TILES])

    def _among_known(self) -> Blocks:
        known = [one for one in self.placed if one.total >= _FEWEST_KNOWN or one.nearby]
        last = f"We have no reference values for {self.placed[0].whom}s yet." if self.placed else ""
        if known:
            last = f"Sources: {'; '.join(dict.fromkeys(source for one in known for source in one.sources))}."
        gone = [one.gone for one in known if one.gone]
        once = len(set(gone)) == 1 < len(gone)
        left_out = f"Not compared with, where known: {gone[0]}." if once else ""
        texts = (Text(words, "quiet") for words in (left_out, *dict.fromkeys(one.about for one in known), last))
        named = tuple(one.named(gone=not once) for one in known)
        rest = shown(Bullets(named[_FIRST_KNOWN:]), *texts)
        more = f"More readings among known models: {len(named[_FIRST_KNOWN:])}, and the sources"
        folded = Folded(more, rest, in_terminal=True) if named else rest
        return section("Among known models", Bullets(named[:_FIRST_KNOWN]), folded)

    def _found(self) -> str:
        causes = {f.cause for f in self.findings}
        if "not_measured" in causes or not causes:
            return "Too little to judge."
        said = "The rows look random." if "untrained" in causes else "No defect was found in these rows."
        if defects := [title(f.cause).lower() for f in self.findings if f.is_defect]:
            said = f"Found in these rows: {listing(defects)}."
        no_effect = "no_effect" in {f.level for f in self.findings}
        return said + " The common direction of the head changes no probability." * no_effect

    def _figures(self) -> Iterator[Block]:
        groups, spectrum = self.groups, spectrum_chart(self.spectrum) if self.spectrum else None
        if self.picture and self.picture.ids:
            raw, centered = (self.spectrum.raw, self.spectrum.centered) if self.spectrum else ((), ())
            cloud = Cloud("cone", "The picture", self.picture, (_shares(raw), _shares(centered)))
            yield Figure("The picture", (cloud,), self._found())
            rows = tuple(_farthest(*group) for group in self.picture.outermost(_OUTERMOST))
            columns = ("group", "rows, the farthest first", *[""] * (_OUTERMOST - 1))
            yield Folded("Farthest from the centre, by group", shown(Table(columns, rows)))
        if groups and (charts := tuple(bin_charts([("bins", "bins", groups.bins)], called=groups.called))):
            yield _by_id(groups, charts)
            yield Folded("The numbers behind this figure", (_bin_table(groups),))
        norms = norms_chart(self.norms) if self.norms else None
        legend = tuple((curve.style, curve.name) for curve in spectrum.curves) if spectrum else ()
        yield Figure("Spectrum and norms", tuple(filter(None, (spectrum, norms))), legend=legend)


@dataclass(frozen=True)
class Diagnosis(Record):
    """The result of `diagnose`: the verdict, and the subjects with the evidence."""

    READING: ClassVar[str] = (
        "“Isotropic” is the value for a cloud with no preferred direction and the same number of rows and "
        "columns. Numbers are never rounded onto a limit they did not reach."
    )

    name: str  # what was diagnosed, as you named it; for a path, its last two parts
    verdict: str  # one sentence for each matrix
    subjects: tuple[Subject, ...]  # the matrices
    notes: tuple[str, ...] = ()  # remarks on the whole, such as a tied or missing head
    versions: Mapping[str, str] = field(default_factory=dict)  # packages and their versions
    # what the texts show, if you gave any: see [its records](explain_records.md)
    explanation: Explanation | None = None

    def blocks(self) -> Blocks:
        worst = self.level
        first = [one for one in self.subjects if any(f.level == worst for f in one.findings)] or self.subjects
        return shown(
            Heading(self.verdict, 1, LABELS[worst] if worst else "", worst or ""),
            Text(self.name, "quiet"),
            *(one.gauges(of_many=len(self.subjects) > 1) for one in first[:1]),
            *(named(one.blocks(), one.name if place else "") for place, one in enumerate(self.subjects)),
            self.explanation.blocks() if self.explanation else (),
            section("Notes", Bullets(self.notes), level=2),
            Text(made_with(self.versions), "quiet"),
        )

    @property
    def level(self) -> Level | None:
        """The level of the worst finding; None without findings."""
        levels = (f.level for one in self.subjects for f in one.findings)
        return min(levels, key=LEVELS.index, default=None)

    def __getitem__(self, name: Any) -> Any:
        """The reading called `name`: a `Measurement`, or the plain value of one of its details.

        A name is SUBJECT.MEASURE, such as `d["input.mean_cosine"]`; SUBJECT.MEASURE.DETAIL for its details, with list
        items by their place, from 0; SUBJECT.GROUP.READING for a group of tokens, such as
        `input.rare.cosine_to_reserved`; head.without_effect.MEASURE for a head's reading that changes no probability.
        SUBJECT may be left out if there is only one. `uncone.check` takes the same names.

        Raises:
            UnknownName: (a KeyError and an InputError) no reading has this name; the message gives the nearest.
        """
        if not isinstance(name, str):
            raise UnknownName(f"expected a name such as 'mean_cosine', got {name!r}: names are SUBJECT.MEASURE")
        full, measurement, path = self.find(name)
        return detail(full, measurement, path) if path else measurement

    __iter__ = None  # or else Python would ask for d[0], d[1], ...

    def __contains__(self, name: object) -> bool:
        try:
            self[str(name)]
            return True
        except UnknownName:
            return False

    def keys(self) -> list[str]:
        """The names of the readings: `dict(d)` holds all of them."""
        return list(self._named())

    def find(self, name: str) -> tuple[str, Measurement, str]:
        """The whole name of the measurement that `name` begins with, the measurement, and the rest of `name`."""
        return find(self._named(), name, [one.name for one in self.subjects])

    def _named(self) -> dict[str, Measurement]:
        named = dict[str, Measurement]()
        for one in self.subjects:
            for m in (*one.measurements, *one.token_measurements()):
                named.setdefault(f"{one.name}.{m.name}", m)
            for m in one.without_effect:
                named.setdefault(f"{one.name}.without_effect.{m.name}", m)
        return named

    def _ipython_key_completions_(self) -> list[str]:
        """Names of readings and of their details, for the tab key."""
        named = self._named()
        names = [*named, *(f"{name}.{key}" for name, m in named.items() for key in m.details)]
        only = f"{self.subjects[0].name}." if len(self.subjects) == 1 else ""
        return [*names, *(name.removeprefix(only) for name in names if only)]

    def to_rows(self) -> list[dict[str, Any]]:
        return [
            {"subject": one.name, **m.to_row(), "has_effect": of is one.measurements}
            for one in self.subjects
            for of in (one.measurements, one.without_effect)
            for m in of
        ]


def _finding(finding: Finding) -> Blocks:
    cause = "" if finding.level == "healthy" else title(finding.cause)
    return shown(
        Heading(cause, 4, LABELS[finding.level], finding.level),
        Text(finding.summary),
        Bullets(finding.evidence, "quiet"),
        Text(finding.repair and f"What to do: {finding.repair}", "advice"),
        Code(finding.command) if finding.command else (),
    )


def _judged(finding: Finding) -> tuple[str, Level]:
    return f"{LABELS[finding.level].capitalize()}: {title(finding.cause).lower()}", finding.level


def nearest_bin(groups: Groups | None) -> Group | None:
    bins = (g for g in unreserved_bins(groups) if g.cosine_to_reserved is not None) if groups else ()
    return max(bins, key=lambda g: g.cosine_to_reserved or 0.0, default=None)


def unreserved_bins(groups: Groups) -> Iterator[Group]:
    """Bins that do not consist mostly of rows reserved by name."""
    return (g for g in groups.bins if 2 * g.reserved_rows < g.n or not groups.reserved_by_name)


def _ids(first: Group, last: Group | None = None) -> str:
    return f"{count(first.start)} to {count((last or first).stop - 1)}"


def _farthest(name: str, labels: Sequence[str]) -> Row:
    cells = [Cell(shown_token(label), tone="token") for label in labels]
    return name, *cells, *[""] * (_OUTERMOST - len(labels))


def _by_id(groups: Groups, charts: tuple[Any, ...]) -> Figure:
    size, reserved = count(groups.bin_size), groups.reserved_group
    shaded = groups.called
    caption = f"Dashed: the value for an isotropic cloud. Shaded: bins that hold {shaded}."
    if reserved:
        cosine = reserved.mean_cosine
        among = "" if cosine is None else f"; their mean cosine among themselves: {number(cosine, limits=(-1, 1))}"
        caption += f" {_of_whom(groups).capitalize()}: {groups.reserved}, {counted(reserved.n, 'row')}{among}."
    spark = f"By row id, {_ids(groups.bins[0], groups.bins[-1])}, bins of {size}:"
    return Figure("By row id", charts, caption, (("bins", f"a bin of {size} ids"),), spark)


def _of_whom(groups: Groups) -> str:
    return groups.called.removesuffix(" rows").removeprefix("the ")


def _bin_table(groups: Groups) -> Table:
    of = _of_whom(groups)
    columns = ("ids", "rows", "zero rows", of, "norm", "cosine within", f"cosine to {of}")
    rows = [_bin_row(group, _ids(group)) for group in groups.bins]
    rows += [_bin_row(groups.reserved_group, f"all {of}")] if groups.reserved_group else []
    return numbers(columns, rows)


def _bin_row(group: Group, name: str) -> Row:
    spread = "" if group.norm_std is None else f"± {number(group.norm_std)}"
    norm = Cell(optional(group.norm_mean, (0, None)), spread)
    cosines = (optional(value, (-1, 1)) for value in (group.mean_cosine, group.cosine_to_reserved))
    return name, count(group.n), count(group.zero_rows), count(group.reserved_rows), norm, *cosines


def _shares(values: Sequence[float]) -> tuple[float, ...]:
    """The share of the squared length in the first two and three directions."""
    largest = max(values, default=0.0)
    parts = [value / largest for value in values] if largest > 0 else []  # their sum is in range
    total = math.fsum(parts)
    return () if total <= 0 else tuple(math.fsum(parts[:dims]) / total for dims in (2, 3))
