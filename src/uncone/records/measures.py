"""Descriptions of the measures. Readings, documents and help are made from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from uncone.records.blocks import Block, Blocks, Bullets, Code, Heading, Table, Text
from uncone.records.brief import part
from uncone.records.parts import Measurement
from uncone.records.record import Record
from uncone.records.text import better, visible

End = float | str | None
"""A number, a formula ("min(N, D)") where the end depends on the rows, or None."""
QUESTIONS = {
    "A common direction": ("mean_cosine", "mean_shift"),
    "Evenly used dimensions": ("isoscore", "isoscore_star", "participation_ratio"),
    "The spectrum": (
        "effective_rank", "rankme", "stable_rank", "anisotropy", "singular_entropy", "condition_number",
    ),
    "Single features": ("rogue_dimensions", "dominant_dimension", "outlier_dimensions"),
    "The partition function": ("partition_isotropy", "gaussian_isotropy"),
    "Coverage of the sphere": ("uniformity", "uniformity_exact"),
    "Nearest neighbours": ("two_nn", "levina_bickel", "hubness"),
    "Groups of rows": ("cosine_between", "permutation_test"),
    "Norms": ("norm_id_correlation",),
}  # fmt: skip
"""All measures by the question that they answer. The first measure of each question represents it."""
_NAMES = tuple(name for names in QUESTIONS.values() for name in names)
_GROUPS = (*QUESTIONS.items(), ("Others", ("",)))
_ROWS: dict[bool | None, str] = {True: "rows with the mean row subtracted", False: "rows as stored"}


def by_question(measurements: Sequence[Measurement]) -> list[tuple[str, list[Measurement]]]:
    """In the order of `QUESTIONS`; readings that answer none of them come last."""
    placed = [(_measure(one.name), one) for one in measurements]
    groups = [(of, [one for name in names for measure, one in placed if measure == name]) for of, names in _GROUPS]
    return [(question, group) for question, group in groups if group]


def _measure(reading: str) -> str:
    """The measure that gives this reading (`isoscore` gives `isoscore_debiased`), or ""."""
    return max((name for name in _NAMES if f"{reading}_".startswith(f"{name}_")), key=len, default="")


@part
class MeasureDescription:
    name: str
    says: str
    definition: str  # the sentence in every record, with `{name}` for the value of an option
    formula: str
    range: tuple[End, End]
    better: Literal["higher", "lower", "neither"]
    isotropic: str  # the reference in words
    reads_badly: str
    source: str
    centered: bool | None = None  # whether the mean row is subtracted by default; None where it does not matter
    variants: tuple[tuple[str, str], ...] = ()  # names of readings with other options, and what each reading is
    # of a reading, or why there is none
    interval: str = "95%, for other draws of as many rows, by the infinitesimal jackknife."

    def measured(
        self,
        value: float,
        *,
        lowest: float | None = None,
        highest: float | None = None,
        centered: bool | None = None,
        suffix: str = "",
        asked: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Measurement:
        """The reading `value`. `lowest` and `highest` are the ends that depend on the rows, `asked` fills in the
        definition, and `fields` are other fields of a `Measurement`."""
        if centered is None:
            centered = self.centered
        elif centered != self.centered:
            suffix += "_centered" if centered else "_raw"
        ends = zip(self.range, (lowest, highest), strict=True)
        low, high = (given if isinstance(end, str) else end for end, given in ends)
        return Measurement(
            name=self.name + suffix, value=value, range=(low, high), better=self.better, centered=centered,
            definition=self.definition.format(**(asked or {})), reads_badly=self.reads_badly, **fields,
        )  # fmt: skip

    @property
    def span(self) -> str:
        low, high = (f"{end:g}" if isinstance(end, float) else end for end in self.range)
        return f"from {low} up" if high is None else f"{low} to {high}"

    @property
    def facts(self) -> tuple[str, ...]:
        return (
            f"Range: {self.span}; {better(self.better)}.",
            f"Isotropic: {self.isotropic}.",
            f"Measured on: {_ROWS.get(self.centered, 'rows as stored (subtracting the mean row changes nothing)')}.",
            *(f"`{name}`: {words}." for name, words in self.variants),
            f"Interval: {self.interval}",
            f"Reads badly when {self.reads_badly}",
            f"Source: {self.source}",
        )


@dataclass(frozen=True)
class Measures(Record):
    by_question: tuple[tuple[str, tuple[MeasureDescription, ...]], ...]

    def __str__(self) -> str:
        one, *others = self._all()
        if others:
            return "\n".join(visible(f"{each.name}: {each.says}") for each in (one, *others))
        formula = "\n".join(f"    {visible(line)}" for line in one.formula.splitlines())
        return f"{visible(one.name)}: {visible(one.says)}\n\n{formula}\n\nSource: {visible(one.source)}"

    def _all(self) -> list[MeasureDescription]:
        return [measure for _, group in self.by_question for measure in group]

    def blocks(self) -> Blocks:
        one, *others = self._all()
        if not others:
            return Heading(one.name, 1), Text(one.says), Code(one.formula), Bullets(one.facts)
        blocks: list[Block] = [Heading(f"{len(others) + 1} measures", 1)]
        for question, group in self.by_question:
            rows = tuple((one.name, one.span, one.better, one.says) for one in group)
            blocks += [Heading(question), Table(("measure", "range", "better", "what it shows"), rows)]
        return tuple(blocks)

    def to_rows(self) -> list[dict[str, Any]]:
        return [vars(measure) | {} for measure in self._all()]
