"""One matrix, from its rows to everything that a diagnosis reports about it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from uncone import measure
from uncone.diagnosis.advice import Advice
from uncone.diagnosis.bins.record import FrequencyBins
from uncone.diagnosis.collection import named_rows
from uncone.diagnosis.findings import DRIFT, find
from uncone.diagnosis.first_pass import FirstPass, first_pass, marked
from uncone.diagnosis.picture import draw_picture
from uncone.diagnosis.record import Subject
from uncone.diagnosis.tokens import Role, TokenReader, counts_of
from uncone.diagnosis.why.layers.logits import rank_of_logits
from uncone.diagnosis.why.layers.record import LogitSpectrum
from uncone.measure.cosine import random_scores
from uncone.measure.everything import MEASURES, Measure, by_cosine, of_neighbours
from uncone.measure.near_duplicates import near_duplicates
from uncone.measure.reading import read
from uncone.moments import Moments, row_norms
from uncone.moments.sums import products_bytes
from uncone.records.parts import Group, Groups, Measurement, Picture, Spectrum
from uncone.repairs.record import Lengths
from uncone.roles import Progress, are_ranks
from uncone.rows import Array, CenteredRows, Rows
from uncone.threads import on_one_thread

MOST_BINS, FEWEST_BINS = 200, 10
_OF_A_MEAN = {"mean_shift", "stable_rank_centered", "anisotropy_1_raw", "singular_entropy_raw", "outlier_dimensions"}
OF_A_HEAD = tuple(one for one in MEASURES if one[0] not in _OF_A_MEAN)
"""Without the mean row, raw and centred readings are the same."""
_GAUGE = {"mean_cosine", "mean_shift", "stable_rank", "anisotropy_1_raw", "outlier_dimensions", "gaussian_isotropy"}
OF_THE_GAUGE = tuple(one for one in MEASURES if one[0] in _GAUGE)
"""Subtracting one vector from all rows of a head changes these measures, but no probability."""
OF_A_TEXT = (
    "The counts come from your text, which need not be the training text. A token missing from it is not called "
    "untrained for that reason. Counts of the training text (--counts, counts=) can show untrained tokens."
)


class Shared(NamedTuple):
    """Readings of a head, for the table that has the same numbers."""

    untrained: Array | None  # bool (N,)
    spectrum: Spectrum | None
    picture: Picture | None
    partition: Measurement  # of the rows as they are stored


class Summed(NamedTuple):
    found: FirstPass
    groups: Groups
    uniformity: tuple[Measurement, ...]
    pairs: measure.PairSums


@dataclass
class Examination:
    name: str
    rows: Rows
    progress: Progress | None
    role: Role
    counts: Any
    neighbours: bool = False
    logits: LogitSpectrum | None = None
    advice: Advice = Advice()  # noqa: RUF009  # frozen
    capped: bool = False
    of_training: bool = True  # whether counts are of the text that trained the model
    of_head: Shared | None = None  # of a table that is tied to a head
    table: "Examination | None" = None  # the table tied to this head, once its rows are summed

    def __post_init__(self) -> None:
        self.is_head, rows = self.name == "head" and not self.capped, self.rows
        self._reserved = measure.reserved_rows(rows.labels, rows.shape[0])
        ranked = are_ranks(self.counts)
        self.counts, self._notes = counts_of(self.counts, rows)
        if self.counts is not None and not self.of_training and self.role != "collection":
            self._notes += (OF_A_TEXT,)
        self._tokens = TokenReader(rows, self.role, self.counts, of_training=self.of_training, ranked=ranked)
        if self.advice.kind == "vectors":  # names of rows are not tokens: only what follows uses them
            self.rows, notes = named_rows(rows)
            self._notes += notes
        self._summed: Summed | None = None
        self._tell: Progress = self.progress or (lambda *_: None)

    @on_one_thread
    def run(self) -> Subject:
        """Two passes (four of a head: raw, then centred; one less where the table has summed the rows)."""
        rows, without_effect = self.rows, tuple[Measurement, ...]()
        seen = zero = raw = common = raw_partition = None
        odd_rows = None
        if self.of_head and self.of_head.untrained is not None:
            self._tokens.named = self.of_head.untrained
        if self.is_head:
            raw, odd_rows = self.table.lent() if self.table else self._as_stored()
            raw.spectrum(centered=False)
            without_effect, seen = self._read_all(OF_THE_GAUGE, raw), self._see(raw)
            common = raw.mean()
            rows = CenteredRows(rows, common)
            zero = -raw.mean() if raw.zero_rows else None
        found_first, groups, uniformity, pairs = self._summed or self._sum(rows, zero, raw, odd_rows)
        m, norms, odd_rows = found_first.moments, found_first.norms, found_first.odd_rows
        if raw:
            raw_partition = self._partition(self.rows, raw)
            without_effect += (raw_partition,)
            raw = None
        if m.n > 1:
            m.spectrum(centered=True)
        readings = self._read_all(OF_A_HEAD if self.is_head else MEASURES, m, *uniformity)
        if self.of_head:
            seen = self.of_head.spectrum, self.of_head.picture
        spectrum, picture = seen or self._see(m)
        tick = self._tick("looking for untrained rows")
        by_frequency, untrained = self._tokens.read(rows, m, pairs, tick, common=common)
        new = self._tokens.new_rows(rows)
        elsewhere = self._tokens.with_findings_of_their_own(rows, new)
        odd = odd_rows.find(rows, norms, self._tokens.named)
        coupling = read("norm_id_correlation", lambda m: norms.id_correlation(m.d), m)
        partition = self.of_head.partition if self.of_head else self._partition(rows, m)
        self.shared = Shared(self._tokens.named, spectrum, picture, raw_partition or partition)
        readings += (partition, coupling)
        by_count = self._by_count(rows, m)
        scores = copies = None
        if self.neighbours:
            lists = by_cosine(rows, m, self._tick)
            readings += of_neighbours(rows, m, self._tick, lists)
        values = {one.name: one.value for one in readings if one.value is not None}
        if self.advice.kind == "vectors":
            copies = near_duplicates(rows, lists()) if "hubness" in values else None
            cosine = values.get("mean_cosine", 0.0)
            scores = random_scores(rows, cosine) if cosine >= DRIFT else None
        if self.is_head:
            readings = tuple(replace(one, centered=True) for one in readings)
        if self.logits:
            readings += (rank_of_logits(self.logits),)
        lengths, found = norms.record(), bool(untrained and untrained.found)
        if self.role not in ("head", "table"):  # the head decides for a tied table
            found = self.role == "tied table" and groups.reserved_by_name
        are_unit = Lengths(lengths.mean, lengths.smallest, lengths.largest).is_unit
        advice = replace(self.advice, has_tokens=rows.labels is not None, has_unit_rows=are_unit)
        findings = find(
            readings,
            groups,
            head=self.is_head,
            under_trained=untrained,
            elsewhere=elsewhere,
            without_effect=without_effect,
            odd=odd,
            left_out=len(rows.left_out),
            logits=self.logits,
            decayed=self._tokens.decayed(rows),
            new_rows=new,
            scores=scores,
            copies=copies,
            advice=replace(advice, finds_untrained=found),
        )
        return Subject(
            self.name,
            "/".join(Path(rows.name).parts[-2:]),
            *rows.shape,
            rows.dtype,
            readings,
            findings,
            without_effect=without_effect,
            groups=groups,
            spectrum=spectrum,
            norms=lengths,
            picture=picture,
            left_out=len(rows.left_out),
            notes=(*self._notes, *odd_rows.notes),
            frequency_groups=by_frequency,
            under_trained=untrained,
            odd_rows=odd,
            by_count=by_count,
            scores=scores,
            near_duplicates=copies,
        )

    @on_one_thread
    def sum(self) -> None:
        """Make the first pass now: the head tied to this table uses its sums too."""
        self._summed = self._sum(self.rows, None, None, None)
        self._summed.found.moments.spectrum(centered=False)

    def lent(self) -> tuple[Moments, measure.OddRowFinder]:
        assert self._summed
        found = self._summed.found
        return found.moments.lent(), found.odd_rows.without_norms()

    def _as_stored(self) -> tuple[Moments, measure.OddRowFinder]:
        rows = self.rows
        odd_rows, raw = measure.OddRowFinder(rows.shape[1], rows.shape[0]), Moments(rows.shape[1], drawn=True)
        for start, block in raw.add_all(rows, progress=self._tick("summing the raw rows")):
            named = marked(self._reserved.indices, start, len(block)) & self._reserved.by_name
            odd_rows.add_rows(start, block, row_norms(block) == 0, named)
            del block
        return raw, odd_rows

    def _see(self, raw: Moments) -> tuple[Spectrum | None, Picture | None]:
        if raw.n < 2:
            return None, None
        tick = self._tick("drawing")
        picture = draw_picture(self.rows, raw, self._reserved, tick, counts=self.counts)
        centered = raw.spectrum(centered=True)
        isotropic = measure.marchenko_pastur(raw.effective_n - 1, raw.d) * float(centered.mean())
        return Spectrum(*(tuple(v.tolist()) for v in (raw.spectrum(centered=False), centered, isotropic))), picture

    def _sum(
        self, rows: Rows, zero: Array | None, raw: Moments | None, odd_rows: measure.OddRowFinder | None
    ) -> "Summed":
        """`zero`: where a zero row of the source went, if it is no longer zero here; `raw`: moments with the mean, and
        `odd_rows` found with them."""
        (n, d), reserved = rows.shape, self._reserved
        size, doing = products_bytes(d), "summing"
        if size >= 10**9:
            doing += f", with {size / 1e9:.0f} GB for the products of {d:,} columns"
        stop = n if rows.ids is None else int(rows.ids[-1]) + 1
        bin_size = _bin_size_for(stop)
        of: dict[str, Any] = {"zero": zero, "second": raw is None, "odd_rows": odd_rows}
        found = first_pass(rows, reserved, bin_size, self._tokens, self._tick(doing), **of)
        (of_reserved,) = found.special.finish()
        if raw:
            found.moments.take_products(raw, raw.mean().astype(rows.widened).astype(np.float64))
        groups = []
        shares = found.in_bin.tolist(), found.directed.tolist()
        for k, (m, *shared) in enumerate(zip(found.bins.finish(), *shares, strict=True)):
            first, end = k * bin_size, min((k + 1) * bin_size, stop)
            if m.n:
                groups.append(_group(f"ids {first:,} to {end - 1:,}", first, end, m, of_reserved, *shared))
        own = _group(reserved.description, 0, 0, of_reserved, None, len(reserved.indices))
        kind: Literal["reserved", "special"] = "special" if reserved.kind == "special" else "reserved"
        by_id = Groups(bin_size, reserved.description, own, tuple(groups), reserved.by_name, kind)
        m = found.moments
        uniformity = self._read_all(tuple(one for one in MEASURES if one[0] == "uniformity"), m)
        pairs = measure.PairSums.of(m)
        m.unit_second = None  # read; the decomposition wants its memory
        return Summed(found, by_id, uniformity, pairs)

    def _partition(self, rows: Rows, m: Moments) -> Measurement:
        m.keep_directions()  # all that the second pass needs
        of = partial(measure.partition_isotropy, rows, progress=self._tick("partition function"))
        return read("partition_isotropy", of, m)

    def _by_count(self, rows: Rows, m: Moments) -> FrequencyBins | None:
        if not (bins := self._tokens.bins):
            return None
        whose = "the head's mean row before it was subtracted" if self.is_head else "the mean row"
        common = f"The common direction is the direction of {whose}. Distances along it are in mean norms."
        return bins.read(rows, m, common, self._tick("partition function by count"))

    def _read_all(
        self, measures: tuple[tuple[str, Measure], ...], m: Moments, *known: Measurement
    ) -> tuple[Measurement, ...]:
        self._tell(f"{self.name}: finding eigenvalues", 0, 0)
        done = {one.name: one for one in known}
        return tuple(done.get(name) or read(name, of, m) for name, of in measures)

    def _tick(self, doing: str) -> Callable[[int], None]:
        return lambda done: self._tell(f"{self.name}: {doing}", done, self.rows.shape[0])


def examined(examinations: list[Examination]) -> tuple[Subject, ...]:
    """The subjects; the list is emptied, which frees each examination's sums. A head is read before the table tied to it,
    which does not list the same rows again."""
    tied = next((one for one in examinations if one.role == "tied table"), None)
    subjects, shared = list[Subject](), None
    while examinations:
        one = examinations.pop()
        if tied and one.is_head:
            tied.sum()
            one.table = tied
        one.of_head = shared if one is tied else None
        subjects.insert(0, one.run())
        shared = one.shared
    return tuple(subjects)


def _bin_size_for(n: int) -> int:
    """1, 2 or 5 times a power of ten: a tenth of few rows, else 1,000 or more, for at most 200 bins."""
    least, most = (1, FEWEST_BINS) if n < 10_000 else (1000, MOST_BINS)
    sizes = (least * int(digit + "0" * zeros) for zeros in range(20) for digit in "125")
    return next(size for size in sizes if n <= most * size)


def _group(
    name: str, start: int, stop: int, m: Moments, of: Moments | None, reserved_rows: int, directed: int = 0
) -> Group:
    """`of`: moments of the reserved rows; `directed` of the group's rows are reserved and not zero."""
    mean = m.mean_norm()
    spread = max(0.0, m.norm_square_sum / m.weight - mean**2) ** 0.5
    cosine, to_reserved = read("mean_cosine", measure.mean_cosine, m).value, None
    if of:
        to_reserved = read("cosine_between", partial(measure.cosine_between, shared=directed), of, m).value
    return Group(name, start, stop, m.n, m.zero_rows, mean, spread, cosine, to_reserved, reserved_rows)
