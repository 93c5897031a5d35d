"""How a reading compares with known readings of the same measure and kind of matrix."""

from uncone.records.brief import part
from uncone.records.text import counted, listing, number, title, visible

_MANY = {"tied table or table without a head": "tied tables and tables without a head"}
_UNITS = ((10**9, "B"), (10**6, "M"), (10**3, "K"))


@part
class Placed:
    """How many known readings are below a reading, above it, or equal at the digits published."""

    measure: str  # the measure, as the table of known readings names it
    whom: str  # one of the matrices compared with: `untied head`
    how: str = ""  # how they were read, where not as stored
    below: int = 0  # known readings below this one
    equal: int = 0  # known readings that are equal to it at their digits
    above: int = 0  # known readings above it
    smallest: int | None = None  # parameters of the smallest model compared with; none if a source does not give them
    largest: int | None = None  # parameters of the largest
    left_out: int = 0  # known readings of diverged runs, not compared with
    note: str = ""  # what makes the comparison doubtful
    sources: tuple[str, ...] = ()  # where the known readings are from
    # the reading itself, from its lowest to its highest; missing in older files
    ends: tuple[float, float] | None = None
    itself: bool = False  # whether this very matrix is among the known readings, and was left out
    # for a collection: the nearest known readings below and above, each with its number
    nearby: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.sentence

    def named(self, *, gone: bool = True) -> str:
        """The reading and the sentence, which says what was left out unless `gone` is false."""
        value = " to ".join(dict.fromkeys(map(number, self.ends or ())))
        return f"{title(self.measure)} {value}: {self._compared(self.gone if gone else '')}"

    @property
    def gone(self) -> str:
        """What the comparison leaves out: `this matrix and 3 diverged runs`."""
        runs = [counted(self.left_out, "diverged run")] * bool(self.left_out)
        return " and ".join(["this matrix"] * self.itself + runs)

    @property
    def about(self) -> str:
        """How this reading differs from the measure of the same name."""
        if self.measure != "partition_isotropy_one_sign":
            return ""
        return (
            "Published I(W) takes one sign of each eigenvector, as a solver happened to give it. Compare papers with the "
            "numbers above, the lowest and highest over all choices: `partition_isotropy` takes both, and is never higher."
        )

    @property
    def total(self) -> int:
        return self.below + self.equal + self.above

    @property
    def sentence(self) -> str:
        """Without a full stop.

        >>> Placed("mean_shift", "untied head", below=2, equal=1, above=27).sentence
        'lower than 27 of 30 known untied heads, tied with 1'
        """
        return self._compared(self.gone)

    def _compared(self, gone: str) -> str:
        if self.total == 0:
            said = f"no reference values of {visible(self.measure)} for {self._many} {self.how}".strip()
            return f"{said} ({self.note})" if self.note else said
        word, beaten = ("low", self.above) if self.above >= self.below else ("high", self.below)
        known = " ".join(filter(None, ("known", self.whom if self.total == 1 else self._many, self.how, self._sizes())))
        every = f"the one {known}" if self.total == 1 else f"all {self.total} {known}"
        said = f"the same as {every} at the digits published"
        if beaten:
            said = f"{word}er than {every if beaten == self.total else f'{beaten} of {self.total} {known}'}"
            said += f", tied with {self.equal}" if self.equal else ""
        nearest = f"the nearest are {listing(self.nearby)}" if self.nearby else ""
        doubts = "; ".join(filter(None, (nearest, f"{gone} left out" if gone else "", self.note)))
        return f"{said} ({doubts})" if doubts else said

    @property
    def _many(self) -> str:
        return _MANY.get(self.whom, f"{self.whom}s")

    def _sizes(self) -> str:
        if self.smallest is None or self.largest is None:
            return ""
        size, unit = next((unit for unit in _UNITS if self.largest >= unit[0]), (1, ""))
        ends = dict.fromkeys(number(end / size, digits=2) for end in (self.smallest, self.largest))
        return " ".join(filter(None, ("of", " to ".join(ends), unit, "parameters")))
