"""Which tokens were hardly trained? Rows that look like rows no text ever used, at a controlled rate of false finds."""

from collections.abc import Callable
from typing import Any, Literal

import torch

from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.false_discovery import benjamini_hochberg, robust_null
from uncone.measure.groups import FEWEST_RESERVED
from uncone.measure.projections import project_about
from uncone.measure.unused_rows import Evidence, UntrainedAxes, untrained_axes
from uncone.moments import Moments, row_norms
from uncone.records import UnderTrained, UnderTrainedToken
from uncone.records.wording import cut_label
from uncone.rows import Rows, as_rows
from uncone.threads import on_one_thread

Tensor = torch.Tensor
Indicator = Literal["cosine", "norm"]
RATE = 0.01
"""The expected share of false finds among the finds."""
CONTROL = 0.5
"""This share of the known-unused rows must be found themselves: else the indicator says nothing here, not even that there are none."""
MOST_LISTED = 200
MOST_KNOWN_LISTED = 20
NO_CONTROL = "No row is known to be unused: short rows are taken for untrained, and no control says whether that holds here."

DEFINITIONS = {
    "cosine": "cosine distance of a row to the mean of the known-unused rows, the mean row subtracted{removed} (Land & Bartolo 2024)",
    "norm": "Euclidean norm of a row, where short is suspect (Land & Bartolo 2024)",
}


def under_trained_tokens(
    rows: Any,
    moments: Moments | None = None,
    *,
    prefer: Indicator = "cosine",
    counts: Tensor | None = None,
    rate: float = RATE,
    most: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> UnderTrained:
    """The rows that look as if no text had trained them: candidates for glitch tokens (Land & Bartolo 2024).

    **Indicator.** `cosine`: an untrained row of a head is only ever pushed away, along with all others like it, so that it
    ends in one common direction. It is the cosine distance 1 - cos(y_i, u) to the mean u of the rows known to be unused, of
    rows y with the mean row subtracted (a head's mean is a gauge, a table's the common direction) and the first principal
    component removed. The paper removes that component to be rid of the constant part, which here is gone already; many unused
    rows can be that component themselves, so it is removed only if the known-unused rows then stand out more. For heads, and
    tables tied to one. `norm`: an
    untrained row of an input table of its own gets no gradient and only shrinks, or keeps its small start. `prefer` is tried
    first, then the other.

    **Known-unused rows** are those whose token is reserved by name or that have no token at all; where there are fewer than
    10, those of count 0, if counts are given. They are a positive control too: an indicator counts only if at least half of them
    are found by it, so that to find no other row means something. Each is compared with the mean of the others.

    **Null and rate.** Ordinary rows are taken to have normal readings, with centre and scale fitted to the bulk of all tested
    rows (`robust_null`): one-sided p-values, then `benjamini_hochberg` at `rate`. This keeps the expected share of false finds
    below `rate` if the tail of ordinary rows toward the unused ones is no heavier than normal and fewer than a quarter of all
    rows are untrained. Since real tails can be heavier, a row must also lie nearer to the median of the known-unused rows than to that
    of the ordinary ones; that only raises p-values, so that it costs no control.

    Args:
        rows: Rows, or a tensor or array (N, D), of a token table or output head. Read twice (three times without `moments`).
        moments: unweighted moments of the same rows, with second-order sums.
        prefer: "cosine" for a head or a tied table, "norm" for an input table of its own.
        counts: (N,) how often each token occurs, for evidence and as said above.
        rate: the false-discovery rate, between 0 and 1.
        most: how many found tokens are listed; 200 by default.
        progress: called with the number of rows done.

    Returns:
        `UnderTrained`, with at most `most` found tokens and 20 known-unused ones, those with the smallest p-values first.

    Raises:
        InputError: rate or counts that do not fit, moments of other rows, rows that are not finite.
        UndefinedMeasure: too few rows are known to be unused, they do not stand out for either indicator, or the rows are so
            far from 0 that their dtype does not hold what they differ by.

    Reads badly when the vocabulary holds a second kind of rows (added languages, images): those of one kind that lie together
    on the side of the unused rows are named. What is named is a candidate; whether the model can use it takes a prompt.
    """
    rows = as_rows(rows)
    m = Moments.of(rows, unit_first=False) if moments is None else moments
    axes = untrained_axes(rows, m, counts=counts)
    norms = torch.cat([row_norms(block) for block in rows.blocks()])
    products, squares = project_about(rows, axes.axes, axes.mean, progress)
    return find_projected(axes, norms, products, squares, prefer=prefer, counts=counts, rate=rate, most=most)


@on_one_thread
def find_projected(
    axes: UntrainedAxes, norms: Tensor, products: Tensor, squares: Tensor, *, prefer: Indicator,
    counts: Tensor | None = None, rate: float = RATE, most: int | None = None,
) -> UnderTrained:  # fmt: skip
    """As `under_trained_tokens`, from a pass that was made: the norms of all rows (N,), and of the rows less `axes.mean` the
    products with `axes.axes` (N, 3) and the squared lengths (N,)."""
    if not 0 < rate < 1:
        raise InputError(
            f"expected a false-discovery rate between 0 and 1, got {rate}: 0.01 is one false find in a hundred"
        )
    evidence, reasons = Evidence.of(axes, norms, products, squares), list[str]()
    orders: dict[Indicator, tuple[Indicator, Indicator]] = {
        "cosine": ("cosine", "norm"),
        "norm": ("norm", "cosine"),
    }
    if evidence.to_unused is None and bool(axes.reference.any()):
        raise UndefinedMeasure(
            "expected rows known to be unused that lie apart from the others, got their mean at the mean of all rows"
        )
    if evidence.to_unused is None and prefer == "cosine":
        raise UndefinedMeasure(
            f"expected at least {FEWEST_RESERVED} rows known to be unused (reserved by name, without a token, or of count 0), got fewer: "
            "give counts of a text that leaves some out"
        )
    for indicator in orders[prefer] if evidence.to_unused is not None else (prefer,):
        try:
            return _conclude(axes, evidence, indicator, counts, rate, MOST_LISTED if most is None else most)
        except UndefinedMeasure as error:
            reasons.append(f"{indicator}: {error}")
    raise UndefinedMeasure("; ".join(dict.fromkeys(reasons)))


def _conclude(
    axes: UntrainedAxes,
    evidence: Evidence,
    indicator: Indicator,
    counts: Tensor | None,
    rate: float,
    most: int,
) -> UnderTrained:
    """The finds by one indicator.

    Raises:
        UndefinedMeasure: rows without a spread, or known-unused rows that are not found.
    """
    values = evidence.norms if indicator == "norm" or evidence.to_unused is None else 1 - evidence.to_unused
    expected, tested = axes.expected, ~axes.expected
    null = robust_null(-values[tested])
    p = null.upper_p(-values)
    if evidence.to_unused is not None:
        halfway = (float((-values[axes.reference]).median()) + null.center) / 2
        p = torch.where(-values > halfway, p, 1.0)
    q = torch.ones_like(p)
    q[tested] = benjamini_hochberg(p[tested])
    q[expected] = _q_if_tested(p[expected], p[tested])
    if evidence.to_unused is not None:
        _require_control(int((q[axes.reference] <= rate).sum()), int(axes.reference.sum()))
    finds, known = (q <= rate) & tested, (q <= rate) & expected
    listed = [*_first(p, finds, most), *_first(p, known, MOST_KNOWN_LISTED)]
    removed = " and the first principal component removed" if evidence.removed else ""
    return UnderTrained(
        found=int(finds.sum()), indicator=indicator, definition=DEFINITIONS[indicator].format(removed=removed), rate=rate,
        tested=int(tested.sum()), reference=axes.why, known=int(expected.sum()), known_found=int(known.sum()),
        center=-null.center, scale=null.scale, threshold=float(values[finds].max()) if bool(finds.any()) else None,
        tokens=tuple(_token(axes.rows, i, evidence, values, p, q, counts, bool(expected[i])) for i in listed),
        notes=(NO_CONTROL,) if evidence.to_unused is None else (),
    )  # fmt: skip


def _require_control(found: int, known: int) -> None:
    """
    Raises:
        UndefinedMeasure: too few of the known-unused rows are found.
    """
    if found < CONTROL * known:
        raise UndefinedMeasure(
            f"expected at least {CONTROL:.0%} of the rows known to be unused to be found by it, got {found} of {known}: "
            "they look too much like the others for untrained rows to be told"
        )


def _q_if_tested(p: Tensor, tested: Tensor) -> Tensor:
    """The q-value that each p-value would have if that row alone were tested with the others."""
    ordered, n = tested.sort().values, len(tested)
    later = (
        (n + 1) * ordered / torch.arange(2, n + 2, dtype=torch.float64)
    )  # at the p-value of each other row
    least = torch.cat([later.flip(0).cummin(0).values.flip(0), torch.ones(1, dtype=torch.float64)])
    at = torch.searchsorted(ordered, p)
    return torch.minimum((n + 1) * p / (torch.searchsorted(ordered, p, right=True) + 1), least[at]).clamp_max(
        1.0
    )


def _first(p: Tensor, chosen: Tensor, most: int) -> list[int]:
    indices = chosen.nonzero().flatten()
    found: list[int] = indices[p[indices].argsort(stable=True)][:most].tolist()
    return found


def _token(
    rows: Rows,
    i: int,
    evidence: Evidence,
    values: Tensor,
    p: Tensor,
    q: Tensor,
    counts: Tensor | None,
    expected: bool,
) -> UnderTrainedToken:
    def at(values: Tensor | None) -> float | None:
        return None if values is None else float(values[i])

    return UnderTrainedToken(
        id=i if rows.ids is None else int(rows.ids[i]), token=None if rows.labels is None else cut_label(rows.labels[i]),
        indicator=float(values[i]), p=float(p[i]), q=float(q[i]), norm=float(evidence.norms[i]),
        cosine_to_unused=at(evidence.to_unused), cosine_to_mean=at(evidence.to_mean),
        count=None if counts is None else int(counts[i]), expected=expected,
    )  # fmt: skip
