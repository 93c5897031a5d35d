"""What rows show about their tokens: groups by frequency, and tokens that were barely trained."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from uncone.diagnosis.bins.frequency import BinReader
from uncone.errors import UndefinedMeasure
from uncone.measure.cosine import mean_cosine
from uncone.measure.group_comparison import NAMES, PairSums, compare_projected, frequency_membership, group_axes
from uncone.measure.groups import FEWEST_RESERVED, special_rows
from uncone.measure.norms import FEWEST, LengthFloor, length_floor
from uncone.measure.projections import UnitSums, project, project_about
from uncone.measure.reading import read
from uncone.measure.under_trained import find_projected, known_unused, untrained_axes
from uncone.model.counts import as_counts
from uncone.moments import Moments
from uncone.records.text import counted, percent, plural
from uncone.records.token_text import token_texts
from uncone.records.tokens import FrequencyGroups, UnderTrained
from uncone.roles import RANKS, are_ranks
from uncone.rows import Array, Rows

_TOKENS_SHOWN, _MOST_COMPARED = 8, 2048
_SHORT, _GAP = 0.5, 1.5  # of the median; and the ratio to all but a hundredth of the other rows
_FEWEST_NEW, _RANDOM = 3, 0.2  # rows, and the mean cosine of so many that start at random directions
_ONE_VECTOR = 1e-3  # of its length: a resize with transformers leaves new rows within a ten-thousandth of each other
Role = Literal["head", "table", "table of its own", "tied table", "collection"]
"""`table` if no head was read, `table of its own` next to a head that is not tied to it."""
TIED = "see the output head, which has the same rows"


def role_of(name: str, rows: Rows, subjects: tuple[tuple[str, Rows], ...]) -> Role:
    if name != "input":
        return "head" if name == "head" else "collection"
    heads = [other for kind, other in subjects if kind == "head"]
    if not heads:
        return "table"
    return "tied table" if heads[0].name == rows.name else "table of its own"


def counts_of(counts: Any, rows: Rows) -> tuple[Array | None, tuple[str, ...]]:
    """The counts of the rows that are read, from a file or numbers of all rows, and notes; None for ranks."""
    if counts is None or are_ranks(counts):
        return None, ()
    labels, total = rows.labels, rows.shape[0] + len(rows.left_out)
    if rows.ids is not None and labels is not None:  # rows that were left out have no token
        placed: list[str | None] = [None] * total
        for i, label in zip(rows.ids.tolist(), labels, strict=True):
            placed[i] = label
        labels = placed
    all_counts = as_counts(counts, total, labels)
    return all_counts.counts if rows.ids is None else all_counts.counts[rows.ids], all_counts.notes


@dataclass(frozen=True)
class NewRows:
    """The last rows of a table: at random directions with a length of their own, or near one vector."""

    start: int
    stop: int
    evidence: tuple[str, ...]
    near_one_vector: bool = False


@dataclass(frozen=True)
class DecayedRows:
    n: int
    news: int  # not known to be unused
    evidence: tuple[str, ...]


class TokenReader:
    """Reads tokens where a matrix's role gives them a meaning: `update` in a first pass, then `read`.

    With `ranked` and no counts, rows are in order of frequency. Counts not `of_training` show no token to be untrained.
    `named` (bool, (N,)) marks the rows found untrained, by `read` or in the head that a table is tied to.
    """

    def __init__(
        self, rows: Rows, role: Role, counts: Array | None, *, of_training: bool = True, ranked: bool = False
    ) -> None:
        self._role, self._counts, self._unit, self._of_training = role, counts, None, of_training
        self.named: Array = np.zeros(rows.shape[0], np.bool_)
        self._zeros = list[Array]()
        self.bins: BinReader | None = None  # where counts or ranks were given
        if role == "collection" and counts is None and not ranked:
            return
        self._known = known_unused(rows.labels, rows.shape[0])
        unused = np.flatnonzero(self._known[0])
        if not len(unused) and rows.labels is not None and len(special := special_rows(rows.labels)) >= FEWEST_RESERVED:
            unused = np.array(special)
        by = RANKS if ranked else counts
        self._membership = frequency_membership(rows.shape[0], unused if len(unused) else None, by)
        self._unit = UnitSums(self._membership.groups, len(NAMES), rows.shape[1])
        if by is not None:
            self.bins = BinReader(rows, counts, self._known[0])

    @property
    def is_asked(self) -> bool:
        """Whether tokens have a meaning here, so that every block is needed, in order."""
        return self._unit is not None

    def update(self, block: Array, norms: Array, zeros: Array) -> None:
        if self._unit:
            self._unit.update(block, norms)
            self._zeros.append(zeros)
        if self.bins:
            self.bins.update(block, norms)

    def read(
        self, rows: Rows, moments: Moments, pairs: PairSums, progress: Callable[[int], None], *, common: Array | None
    ) -> tuple[FrequencyGroups | None, UnderTrained | None]:
        """One more pass over the rows, shared with `bins`; the `common` direction (D,) defaults to the mean row."""
        unit = self._unit
        if not unit or moments.n < 2:
            return None, None
        of_bins = [self.bins.axes(moments.mean() if common is None else common)] if self.bins else []
        axes = np.concatenate([group_axes(unit), *of_bins], axis=1)
        if self._role in ("collection", "tied table"):
            groups = self._compared(unit, project(rows, axes, progress), axes, pairs)
            return groups, UnderTrained(None, TIED) if self._role == "tied table" else None
        untrained = untrained_axes(rows, moments, self._known, self._counts, of_training=self._of_training)
        all_axes, about = np.concatenate([axes, untrained.axes], axis=1), untrained.axes[:, 0]
        products, squares = project_about(rows, all_axes, about, progress)
        products, others = np.split(products, [-untrained.axes.shape[1]], axis=1)
        groups = self._compared(unit, products + about @ all_axes[:, : axes.shape[1]], axes, pairs)
        prefer: Literal["norm", "cosine"] = "norm" if self._role == "table of its own" else "cosine"
        try:
            found, self.named = find_projected(untrained, unit.norms, others, squares, prefer=prefer)
            return groups, found
        except UndefinedMeasure as error:
            return groups, UnderTrained(None, str(error))

    def decayed(self, rows: Rows) -> DecayedRows | None:
        """Rows of the same short length, as weight decay leaves rows that get no gradient."""
        if not self._unit or self._role in ("collection", "head"):
            return None
        floor = length_floor(self._unit.norms, rows.shape[1])
        floor = floor and replace(floor, rows=floor.rows[~self.named[floor.rows]])
        return _decayed(floor, rows, self._known[0], self._counts) if floor and len(floor.rows) >= FEWEST else None

    def new_rows(self, rows: Rows) -> NewRows | None:
        """The last rows, if all are far shorter or far longer than the others and point in random directions, or if
        all are near one vector."""
        if not self._unit or self._role in ("collection", "head") or rows.ids is not None:
            return None
        norms, unused = self._unit.norms, self._known[0]
        return _new_rows(norms, rows, unused) or _near_one_vector(norms, rows, unused)

    def with_findings_of_their_own(self, rows: Rows, new: NewRows | None) -> frozenset[int]:
        """The ids of zero and new rows among the rows found untrained; these are no longer `named`."""
        if not self._unit or not self.named.any():
            return frozenset()
        own = np.concatenate(self._zeros)
        if new:
            own[new.start : new.stop] = True
        own, self.named = self.named & own, self.named & ~own
        return frozenset(np.flatnonzero(own).tolist() if rows.ids is None else rows.ids[own].tolist())

    def _compared(self, unit: UnitSums, products: Array, axes: Array, pairs: PairSums) -> FrequencyGroups:
        """The groups by frequency. The last two axes are those of the bins."""
        if self.bins:
            self.bins.take(products[:, -2:], axes[:, -2:])
            products = products[:, :-2]
        return compare_projected(unit, products, self._membership, counts=self._counts, pairs=pairs)


def _new_rows(norms: Array, rows: Rows, unused: Array) -> NewRows | None:
    n, median = len(norms), float(np.median(norms))
    for odd in (norms < _SHORT * median, norms * _SHORT > median):
        start = n - int(np.argmin(np.append(odd[::-1], False)))
        of, others = norms[start:], norms[:start]
        if not 0 < start <= n - _FEWEST_NEW or not of.all() or unused[start:].all():
            continue
        gap = np.quantile(others, 0.01) / of.max() if of[0] < median else of.min() / np.quantile(others, 0.99)
        x = np.asarray(rows.take(np.arange(start, min(n, start + _MOST_COMPARED))), np.float64)
        cosine = read("mean_cosine", mean_cosine, Moments.of(x, second=False)).value
        if gap < _GAP or cosine is None or abs(cosine) > _RANDOM:
            continue
        lengths = f"length {of.mean():.3g} on average; the median row has length {median:.3g}"
        return NewRows(start, n, (lengths, f"mean cosine among them {cosine:.3g}", *_first_of(rows, start)))
    return None


def _near_one_vector(norms: Array, rows: Rows, unused: Array) -> NewRows | None:
    """Equal rows have a finding of their own."""
    n = start = len(norms)
    last, farthest = np.asarray(rows.read(n - 1, n), np.float64)[0], 0.0
    while start:
        first = max(0, start - _MOST_COMPARED)
        away = np.linalg.norm(np.asarray(rows.read(first, start), np.float64) - last, axis=1)
        run = int(np.argmin(np.append(away[::-1] <= _ONE_VECTOR * norms[-1], False)))
        farthest = max(farthest, *away[len(away) - run :])
        start -= run
        if run < len(away):
            break
    if not 0 < start <= n - _FEWEST_NEW or not farthest or unused[start:].all():
        return None
    apart = f"each is within {percent(farthest / norms[-1])} of the length of the last one, {norms[-1]:.3g}"
    median = f"the median row of the table has a length of {np.median(norms):.3g}"
    return NewRows(start, n, (apart, median, *_first_of(rows, start)), near_one_vector=True)


def _first_of(rows: Rows, start: int) -> list[str]:
    shown = range(start, rows.shape[0])[:_TOKENS_SHOWN]
    first = ", ".join(repr(text) for text in token_texts(rows.labels, shown) if text)
    return [f"first: {first}"] * bool(first)


def _decayed(floor: LengthFloor, rows: Rows, unused: Array, counts: Array | None) -> DecayedRows:
    n, d = len(floor.rows), rows.shape[1]
    kept = Moments.of(np.asarray(rows.take(floor.rows[:_MOST_COMPARED])), second=False)
    cosine = read("mean_cosine", mean_cosine, kept).value
    known = int(unused[floor.rows].sum())
    evidence = [
        f"length {floor.norm:.3g}, {percent(floor.norm / floor.median)} of the median; spread "
        f"{percent(floor.spread)} (random: {percent((2 * d) ** -0.5)})",
        f"{counted(known, 'row is', 'rows are')} known to be unused",
    ]
    if counts is not None:
        never = int((counts[floor.rows] == 0).sum())
        evidence.append(f"{counted(never, 'of their tokens was', 'of their tokens were')} never seen in the text")
    if cosine is not None:
        evidence.append(f"mean cosine among them {cosine:.3g} (random rows that only shrank: 0)")
    return DecayedRows(n, n - known, tuple(evidence))


def under_trained_evidence(u: UnderTrained, elsewhere: frozenset[int] = frozenset()) -> tuple[str, ...]:
    found = f"{u.found or 0:,} of {u.tested:,} rows"
    evidence = [f"{found}, at a false-discovery rate of {100 * u.rate:g}%: {u.definition}"]
    if elsewhere:
        evidence.append(f"{len(elsewhere):,} of them are zero or new rows, which have their own finding")
    evidence += [u.by_kind] * (sum(bool(one.found) for one in u.kinds) > 1)
    if u.reference and not u.known:
        evidence.append(f"compared with {u.reference}")
    if u.leaning:
        evidence.append(
            f"{counted(u.leaning, 'more row')} may be barely trained: {plural(u.leaning, 'it leans', 'they lean')} that way "
            "by direction alone"
        )
    if u.known:
        known, looks = counted(u.known, "row"), counted(u.known_found, "looks", "look")
        evidence.append(f"of the {known} known to be unused, {looks} untrained by the same measure")
    listed = (one for one in u.listed("found") if one.token is not None and one.id not in elsewhere)
    if tokens := [repr(one.token) for one in listed]:
        evidence.append(f"first: {', '.join(tokens[:_TOKENS_SHOWN])}")
    return tuple(evidence)
