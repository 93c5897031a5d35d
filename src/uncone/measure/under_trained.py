"""Which tokens were hardly trained? Rows that look unused, at a controlled rate of false finds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from uncone.arguments import finite_number, one_of, whole_number
from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.discovery import benjamini_hochberg, q_if_tested, robust_null
from uncone.measure.groups import FEWEST_RESERVED, named_reserved, special_rows
from uncone.measure.projections import project_about
from uncone.measure.reading import counts_for, with_moments
from uncone.moments import Moments, inverse, row_norms
from uncone.records.text import counted
from uncone.records.token_text import token_texts
from uncone.records.tokens import UnderTrained, UnderTrainedToken
from uncone.roles import Ticks
from uncone.rows import Array, Rows
from uncone.threads import on_one_thread

Indicator = Literal["cosine", "norm"]
RATE = 0.01  # The expected share of false finds among the finds
CONTROL = 0.5  # the share of the known-unused rows that must be found: else the indicator says nothing
FEWEST_TOGETHER = 3  # special tokens, which may be trained, show an untrained point where as many lie together
TOGETHER = 0.8  # by this mean cosine to one another, the mean row subtracted
_MOST_CANDIDATES = 4096
_MOST_COSINE = 1 - 1e-12
MOST_LISTED = 200
NO_CONTROL = (
    "No row is known to be unused: short rows are taken for untrained, and no control says whether that holds here."
)
DEFINITIONS = {
    "cosine": "cosine distance of a row to the mean of the known-unused rows, the mean row subtracted{removed} (Land & Bartolo 2024), "
    "and its distance to that mean",
    "norm": "Euclidean norm of a row, where short is suspect (Land & Bartolo 2024)",
}
_ROUNDOFF = {"float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""By dtype, the share of a number that storing it rounds off; quantised rows count as float32."""


def under_trained_tokens(
    rows: Any,
    moments: Moments | None = None,
    *,
    prefer: Indicator = "cosine",
    counts: Any = None,
    rate: float = RATE,
    most: int = MOST_LISTED,
    progress: Ticks = None,
) -> UnderTrained:
    """The rows that look as if no text had trained them: candidates for glitch tokens (Land & Bartolo 2024).

    An untrained row of a head is only ever pushed away, along with all others like it, to one point. The indicator
    `cosine` is 1 - cos(y_i, u), u the mean of the rows known to be unused, of rows y less the mean row, and less the
    first principal component where the known-unused rows then stand out more. Two readings are tested one-sided by
    `robust_null`, each against its own bulk: atanh of that cosine, and the cube root of the squared distance |y_i - u|^2
    (near normal for a chi-squared variable: Wilson & Hilferty 1931). A row looks untrained by both: p is the larger
    p-value, and `benjamini_hochberg` joins the rows; those found by the direction alone are told apart, as rows that
    lean to the unused ones and were hardly trained. The indicator `norm` is the length: an untrained row of an input
    table of its own gets no gradient. A row must also lie nearer to the known-unused rows than to the ordinary ones,
    and half of the known-unused rows must be found.

    Known to be unused are rows whose token is reserved by name, and those without a token: 10 or more. Else the special
    tokens of the tokenizer stand in, where 3 or more lie together (a mean cosine of 0.8 among themselves, the mean row
    subtracted). Trained special tokens that occur in the same places lie together too, by themselves: so without counts
    3 or more rows of other tokens must be found with them, and with counts only special tokens of count 0 stand in.
    Else rows of count 0 do. Of either kind those that lie apart from the rest are left out.

    Args:
        rows: (N, D), read twice (three times without `moments`).
        moments: unweighted, with second-order sums.
        prefer: the indicator tried first: "cosine" for a head or a tied table, "norm" for an input table of its own.
        counts: (N,), of the text that the model was trained on; those of another text say nothing of what is unused.
        rate: the false-discovery rate. It holds if the tail of ordinary rows toward the unused ones is no heavier than
            normal, and fewer than a quarter of all rows are untrained.
        most: how many found tokens are listed, beside 20 known-unused ones.
    Undefined: too few rows are known to be unused, they do not stand out, or the dtype does not hold what rows differ
    by.

    Reads badly when the vocabulary holds a second kind of rows (added languages, images) on the side of the unused
    ones, or when trained special tokens stand in without counts and trained rows of other tokens lie with them. Whether
    the model can use a named row takes a prompt.
    """
    rows, m = with_moments(rows, moments, unit_first=False)
    axes = untrained_axes(rows, m, known_unused(rows.labels, m.n), counts)
    norms = np.concatenate([row_norms(block) for block in rows.blocks()])
    products, squares = project_about(rows, axes.axes, axes.axes[:, 0], progress)
    return find_projected(axes, norms, products, squares, prefer=prefer, rate=rate, most=most)


@dataclass(frozen=True)
class UntrainedAxes:
    rows: Rows
    counts: Array | None
    axes: Array  # (D, 3): the mean row, the sum of the centred reference rows, the first principal component (or 0)
    mean_norm: float
    expected: Array  # the rows known to be unused
    special: Array  # those of special tokens
    reference: Array  # the rows of the sum
    why: str
    unsure: bool = False  # they are of special tokens, which no counts show to be unused


def untrained_axes(
    rows: Rows, m: Moments, known: tuple[Array, str], counts: Any, *, of_training: bool = True
) -> UntrainedAxes:
    """Reads rows known to be unused, or others in their place; counts `of_training` say which tokens are."""
    (n, d), counts, (expected, why) = rows.shape, counts_for(counts, rows.shape[0]), known
    labels, mean, reference = rows.labels, m.mean(), np.zeros(n, np.bool_)
    special = np.zeros(n, np.bool_)
    special[[] if labels is None else special_rows(labels)] = True
    few = f"because fewer than {FEWEST_RESERVED} are reserved by name or have no token"
    never = np.zeros_like(expected) if counts is None or not of_training else counts == 0
    sure = counts is not None and of_training
    alike = special & never if sure else special  # a special token that the training text has is trained
    tries = (
        (expected, FEWEST_RESERVED, -1.0, why),
        (alike | expected, FEWEST_TOGETHER, TOGETHER, "rows of special tokens that lie together"),
        (never, FEWEST_RESERVED, -1.0, "rows of count 0"),
    )
    total, used = np.zeros(d), ""
    for mask, fewest, least, what in tries:
        if np.count_nonzero(mask) >= fewest:
            ids = _spread(np.flatnonzero(mask))
            kept, total, together = _gathered(rows.take(ids) - mean, fewest)
            if together >= least:
                reference[ids[kept]] = True
                used = what if what == why else f"{int(kept.sum()):,} {what}, {few}"
                break
    axes = np.zeros((d, 3))
    axes[:, 0], axes[:, 1] = mean, total * bool(used)
    if used and n > d > 1:
        axes[:, 2] = m.leading_directions(1, centered=True)[:, 0]
    unsure = not sure and int(expected.sum()) < FEWEST_RESERVED
    return UntrainedAxes(rows, counts, axes, m.mean_norm(), expected, special, reference, used, unsure)


def _spread(ids: Array) -> Array:
    """At most 4,096 of them, evenly."""
    return ids[np.linspace(0, len(ids) - 1, min(len(ids), _MOST_CANDIDATES)).astype(np.int64)]


def _gathered(y: Array, fewest: int) -> tuple[Array, Array, float]:
    """Of candidates y (K, D) less the mean row those that lie together (K,), their sum, and their mean cosine.

    A candidate lies apart where its cosine to the sum of the others' directions is under half of the median's. All are
    kept where that median is under 0.5, or fewer than `fewest` are left: a choice among rows without a common direction
    would make one.
    """
    y = np.asarray(y, np.float64)
    unit = y * inverse(np.sqrt(np.square(y).sum(1)))[:, None]
    kept = np.ones(len(y), np.bool_)
    for _ in range(8):
        total = unit[kept].sum(0)
        own = np.where(kept, 1.0, 0.0)
        dot, square = unit @ total, float(total @ total)
        cosines = (dot - own) * inverse(np.sqrt(np.maximum(square - 2 * own * dot + own, 0.0)))
        median = float(np.median(cosines[kept]))
        now = cosines >= 0.5 * median
        if median < 0.5 or now.sum() < fewest or (now == kept).all():
            break
        kept = now
    n, total = int(kept.sum()), unit[kept].sum(0)
    return kept, y[kept].sum(0), (float(total @ total) - n) / (n * (n - 1)) if n > 1 else 1.0


def known_unused(labels: Sequence[str | None] | None, n: int) -> tuple[Array, str]:
    """The rows whose token is reserved by name, or that have none: a mask (N,), and in words."""
    unused, parts = np.zeros(n, np.bool_), []
    if labels is not None:
        named, without = named_reserved(labels), [i for i, label in enumerate(labels) if label is None]
        unused[named + without] = True
        parts += [f"{counted(len(named), 'row')} whose token is reserved by name"] * bool(named)
        parts += [f"{counted(len(without), 'row')} without a token"] * bool(without)
    return unused, " and ".join(parts)


@on_one_thread
def find_projected(
    axes: UntrainedAxes,
    norms: Array,
    products: Array,
    squares: Array,
    *,
    prefer: Indicator,
    rate: float = RATE,
    most: int = MOST_LISTED,
) -> UnderTrained:
    """As `under_trained_tokens`, from norms of rows (N,), and of the rows less their mean the products with `axes.axes`
    (N, 3) and the squared lengths (N,)."""
    one_of(prefer, "prefer", ("cosine", "norm"))
    whole_number(most, "most", 0)
    if not 0 < finite_number(rate, "rate") < 1:
        raise InputError(f"expected a false-discovery rate between 0 and 1, got {rate}: 0.01 is customary")
    evidence, reasons = _evidence(axes, norms, products, squares), list[str]()
    order: list[Indicator] = [prefer, "norm" if prefer == "cosine" else "cosine"]
    if evidence.to_unused is None:
        order.pop()
        if bool(axes.reference.any()):
            apart = "that lie apart from the others, got their mean at the mean of all rows"
            raise UndefinedMeasure(f"expected rows known to be unused {apart}")
        if prefer == "cosine":
            known = "rows known to be unused (reserved by name, without a token, or of count 0)"
            got = "got fewer: give counts of the text that trained the model"
            raise UndefinedMeasure(f"expected at least {FEWEST_RESERVED} {known}, {got}")
    for indicator in order:
        try:
            return _conclude(axes, evidence, indicator, rate, most)
        except UndefinedMeasure as error:
            reasons.append(f"{indicator}: {error}")
    raise UndefinedMeasure("; ".join(dict.fromkeys(reasons)))


@dataclass(frozen=True)
class _Evidence:
    """By row, float64 (N,): cosines are to the known-unused rows and to the mean row; None without such rows."""

    norms: Array
    to_unused: Array | None
    to_mean: Array | None
    distances: Array | None = None  # to the mean of the known-unused rows, squared
    removed: bool = False  # the first principal component, from the rows of `to_unused`

    def readings(self, indicator: Indicator) -> list[Array]:
        """What is near normal for ordinary rows, and large for untrained ones."""
        if indicator == "norm" or self.to_unused is None or self.distances is None:
            return [-self.norms]
        return [np.arctanh(self.to_unused.clip(-_MOST_COSINE, _MOST_COSINE)), -np.cbrt(self.distances)]


def _evidence(axes: UntrainedAxes, norms: Array, products: Array, squares: Array) -> _Evidence:
    """From the norms of the rows x, and of y = x - mean the products with the axes and the squared lengths."""
    mean, unused, first = axes.axes.T
    along_mean, along, along_first = products.T
    length, to_mean = math.sqrt(mean @ mean), None
    if length > 1e-5 * axes.mean_norm:  # else it is rounding, as of a head whose mean row was subtracted
        to_mean = _ratio(along_mean + length**2, norms * length)
    if not bool(unused.any()):
        return _Evidence(norms, None, to_mean)
    dtype = axes.rows.dtype
    y_square = np.where(squares > np.square(_ROUNDOFF.get(dtype, 2.0**-24) * norms), squares, 0.0)
    directed, lost = np.count_nonzero(norms), np.count_nonzero((norms > 0) & (y_square == 0))
    if 2 * lost > directed:
        got = f"{lost:,} of {directed:,} equal to their mean row (length {length:.3g}) within rounding"
        then = "subtract the mean row before they are stored, or store float64"
        raise UndefinedMeasure(f"expected rows that differ by more than {dtype} rounds off, got {got}: {then}")
    u_square, u_first = float(unused @ unused), float(unused @ first)
    plain = _cosines(along, y_square, u_square, axes.reference)
    whole = _Evidence(norms, plain, to_mean, _distances(along, y_square, u_square, axes.reference))
    if not bool(first.any()):
        return whole
    # z is y without its part along `first`; what is left of a row along it is the rounding of the products
    z_square = y_square - np.square(along_first)
    z_square = np.where(z_square > 8 * np.finfo(axes.rows.widened).eps * y_square, z_square, 0.0)
    rest = max(0.0, u_square - u_first**2)
    along_rest = along - u_first * along_first
    without = _cosines(along_rest, z_square, rest, axes.reference)
    distances = _distances(along_rest, z_square, rest, axes.reference)
    removed = _Evidence(norms, without, to_mean, distances, removed=True)
    return removed if _stand_out(removed, axes) > _stand_out(whole, axes) else whole


def _stand_out(evidence: _Evidence, axes: UntrainedAxes) -> float:
    """How far the median of the known-unused rows lies above the ordinary ones, in deviations, by the weaker reading."""
    try:
        of = [(reading, robust_null(reading[~axes.expected])) for reading in evidence.readings("cosine")]
    except UndefinedMeasure:
        return -math.inf
    return min((float(np.median(reading[axes.reference])) - null.center) / null.scale for reading, null in of)


def _cosines(along: Array, squares: Array, square: float, members: Array) -> Array:
    """cos(y, u) of every row from y . u, |y|^2 and |u|^2; a member of the sum u has the sum of the others."""
    dot = np.where(members, along - squares, along)
    rest = np.where(members, np.maximum(square - 2 * along + squares, 0.0), square)
    return _ratio(dot, np.sqrt(squares) * np.sqrt(rest))


def _distances(along: Array, squares: Array, square: float, members: Array) -> Array:
    """|y - u / K|^2 of every row, u the sum of K rows; a member of the sum is left out of its own."""
    k, rest = int(members.sum()) - members, np.where(members, np.maximum(square - 2 * along + squares, 0.0), square)
    k = np.maximum(k, 1)
    return np.asarray(np.maximum(squares - 2 * (along - squares * members) / k + rest / k**2, 0.0))


def _ratio(dot: Array, length: Array) -> Array:
    """Cosines; 0 where there is no length."""
    return np.divide(dot, length, out=np.zeros_like(dot), where=length > 0).clip(-1.0, 1.0)


def _conclude(axes: UntrainedAxes, evidence: _Evidence, indicator: Indicator, rate: float, most: int) -> UnderTrained:
    unused, expected, tested = evidence.to_unused, axes.expected, ~axes.expected
    values = evidence.norms if indicator == "norm" or unused is None else 1 - unused
    readings = evidence.readings(indicator)
    nulls = [robust_null(reading[tested]) for reading in readings]
    of_each = [null.upper_p(reading) for null, reading in zip(nulls, readings, strict=True)]
    null = robust_null(-values[tested])
    if unused is not None:
        halfway = (float(np.quantile(-values[axes.reference], 0.5, method="lower")) + null.center) / 2
        of_each = [np.where(-values > halfway, p, 1.0) for p in of_each]
    p, q = np.maximum.reduce(of_each), np.ones_like(values)
    q[tested] = benjamini_hochberg(p[tested])
    q[expected] = q_if_tested(p[expected], p[tested])
    if unused is not None:
        seen, known = np.count_nonzero(q[axes.reference] <= rate), int(axes.reference.sum())
        if seen < CONTROL * known:
            got = f"{seen} of {known}: they look too much like the others, in {axes.rows.shape[1]:,} columns"
            least = f"at least {CONTROL:.0%} of the rows known to be unused"
            raise UndefinedMeasure(f"expected {least} to be found by it, got {got}")
    finds, known_finds, leaning = (q <= rate) & tested, (q <= rate) & expected, np.zeros_like(tested)
    others = np.count_nonzero((q <= rate) & ~axes.special)
    if axes.unsure and unused is not None and others < FEWEST_TOGETHER:
        least, then = (
            f"at least {FEWEST_TOGETHER} rows of other tokens",
            "give counts of the text that trained the model",
        )
        got = f"got {others}: trained special tokens that share a place also lie together, so {then}"
        raise UndefinedMeasure(f"expected {least} where rows of special tokens lie together, {got}")
    leaning[tested] = benjamini_hochberg(of_each[0][tested]) <= rate
    leaning &= ~finds
    by_p, ids = np.lexsort((values, p)), axes.rows.ids
    listed = [*by_p[finds[by_p]][:most].tolist(), *by_p[known_finds[by_p]][:20].tolist()]
    listed += by_p[leaning[by_p]][:most].tolist()

    columns: dict[str, Array | None] = {"indicator": values, "p": p, "q": q, "norm": evidence.norms}
    columns |= {"cosine_to_unused": unused, "cosine_to_mean": evidence.to_mean}

    def read(i: int, text: str | None) -> UnderTrainedToken:
        row, count = i if ids is None else int(ids[i]), None if axes.counts is None else int(axes.counts[i])
        numbers: Any = {name: None if column is None else float(column[i]) for name, column in columns.items()}
        kinds = {"expected": bool(expected[i]), "special": bool(axes.special[i]), "leaning": bool(leaning[i])}
        return UnderTrainedToken(id=row, token=text, **numbers, count=count, **kinds)

    tokens = tuple(map(read, listed, token_texts(axes.rows.labels, listed)))
    removed = " and the first principal component removed" * evidence.removed
    return UnderTrained(
        int(finds.sum()),
        indicator=indicator,
        definition=DEFINITIONS[indicator].format(removed=removed),
        rate=rate,
        tested=int(tested.sum()),
        reference=axes.why,
        known=int(expected.sum()),
        known_found=int(known_finds.sum()),
        special=int((axes.special & tested).sum()),
        special_found=int((finds & axes.special).sum()),
        leaning=int(leaning.sum()),
        center=-null.center,
        scale=null.scale,
        threshold=float(values[finds].max()) if finds.any() else None,
        tokens=tokens,
        notes=(NO_CONTROL,) if unused is None else (),
    )
