"""Which tokens were barely trained? Rows that look unused, at a controlled rate of false finds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from uncone.arguments import finite_number, one_of, whole_number
from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.discovery import benjamini_hochberg, q_if_tested, robust_null, support_line
from uncone.measure.groups import FEWEST_RESERVED, named_reserved, special_rows
from uncone.measure.projections import project_about
from uncone.measure.reading import counts_for, with_moments
from uncone.measure.untrained_evidence import KINDS, Evidence, Indicator, UntrainedAxes, evidence_of, nearer, p_of
from uncone.moments import Moments, inverse, row_norms
from uncone.records.text import counted
from uncone.records.token_text import token_texts
from uncone.records.tokens import EvidenceKind, Kind, UnderTrained, UnderTrainedToken
from uncone.roles import Ticks
from uncone.rows import Array, Rows
from uncone.threads import on_one_thread

RATE = 0.01  # The expected share of false finds among the finds
EDGE = 0.2  # The chance that the least certain find is false: the customary bar of a local rate (Efron 2007)
CONTROL = 0.5  # the share of the known-unused rows that must be found: otherwise the indicator shows nothing
FEWEST_TOGETHER = 3  # special tokens, which may be trained: this many close together show an untrained point
TOGETHER = 0.8  # their mean cosine to one another, after subtracting the mean row
_MOST_CANDIDATES = 4096
MOST_LISTED = 200
NO_CONTROL = "No row is known to be unused. Short rows are assumed to be untrained, and no control can check that here."
DEFINITIONS = {
    "cosine": "cosine distance of a row to the mean of the known-unused rows, after subtracting the mean row{removed} "
    "(Land & Bartolo 2024), and its distance to that mean",
    "norm": "Euclidean norm of a row, where short rows are suspect (Land & Bartolo 2024)",
}


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
    """The rows that look untrained: candidates for glitch tokens (Land & Bartolo 2024).

    Four kinds of evidence give each row a p-value, each against its own null:

    - place: training only ever pushes an untrained row of a head away, along with all others like it, to one point. Two
      readings test this: atanh of cos(y_i, u), and the cube root of |y_i - u|^2 (near normal for a chi-squared
      variable: Wilson & Hilferty 1931). Here u is the mean of the rows known to be unused, and rows y are less the mean
      row, and less the first principal component where the known-unused rows then stand out more. `robust_null` tests
      both one-sided against their bulk, and p is the larger. Rows that share only the direction were barely trained,
      and are reported apart;
    - length: an untrained row of a separate input table gets no gradient and stays short, by `robust_null`;
    - decay: such rows, which weight decay shrinks alike, share one short length (`length_floor`). p is the share of the
      rows that would be as near to it at the density of lengths above or below, whichever is larger;
    - equality: a trained row equals no other row. p is the share of equal rows among the rows nearer to the ordinary
      rows (0 where none are equal), times the share of all other rows: equality of coarse numbers or copies shows less.

    For place, length and equality a row must also be nearer to the known-unused rows than to the ordinary rows. A kind
    counts where it alone finds half of the known-unused rows; without such rows, only lengths are read. The p of a row
    is the least over the kinds that count, times their number, which is valid however the kinds depend on each other
    (Bonferroni). `benjamini_hochberg` joins the rows, and the least certain find may be false with a chance of 0.2
    (`support_line`): otherwise many certain finds would let in rows that are more likely ordinary.

    The rows known to be unused are the rows whose token is reserved by name and the rows without a token, if there are
    10 or more. Otherwise the tokenizer's special tokens stand in, where 3 or more lie together (a mean cosine of 0.8
    among themselves, after subtracting the mean row). Trained special tokens that occur in the same places lie together
    too, but apart from other tokens. So without counts 3 or more rows of other tokens must be found with them, and with
    counts only special tokens of count 0 stand in. Otherwise rows of count 0 stand in. Rows that lie apart from the
    rest are left out.

    Args:
        rows: (N, D), read twice (three times without `moments`).
        moments: unweighted, with second-order sums.
        prefer: the indicator shown where it counts: "cosine" for a head or a tied table (undefined without known-unused
            rows), "norm" for a separate input table.
        counts: (N,), of the text that the model was trained on; counts of another text do not show what is unused.
        rate: the false-discovery rate. It holds if the tail of ordinary rows toward the unused ones is no heavier than
            normal, and fewer than a quarter of all rows are untrained.
        most: how many found tokens are listed, in addition to 20 known-unused tokens.
    Undefined: too few rows are known to be unused, they do not stand out, or the dtype cannot hold the differences
    between rows.

    Reads badly when the vocabulary holds a second kind of rows (added languages, images) on the side of the unused
    rows, or when trained special tokens stand in without counts and trained rows of other tokens are close to them.
    Only a prompt can show whether the model can use a listed row.
    """
    rows, m = with_moments(rows, moments, unit_first=False)
    axes = untrained_axes(rows, m, known_unused(rows.labels, m.n), counts)
    norms = np.concatenate([row_norms(block) for block in rows.blocks()])
    products, squares = project_about(rows, axes.axes, axes.axes[:, 0], progress)
    return find_projected(axes, norms, products, squares, prefer=prefer, rate=rate, most=most)[0]


def untrained_axes(
    rows: Rows, m: Moments, known: tuple[Array, str], counts: Any, *, of_training: bool = True
) -> UntrainedAxes:
    """Reads rows known to be unused, or rows that stand in for them; counts `of_training` show which are unused."""
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
        (alike | expected, FEWEST_TOGETHER, TOGETHER, "rows of special tokens that are close together"),
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
    """At most 4,096 of the ids, evenly spaced."""
    return ids[np.linspace(0, len(ids) - 1, min(len(ids), _MOST_CANDIDATES)).astype(np.int64)]


def _gathered(y: Array, fewest: int) -> tuple[Array, Array, float]:
    """Which candidates y (K, D), less the mean row, are close together (K,), their sum, and their mean cosine.

    A candidate is apart where its cosine to the sum of the others' directions is under half of the median cosine. All
    are kept where that median is under 0.5, or fewer than `fewest` are left: choosing among rows without a common
    direction would create a common direction.
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
    """The rows whose token is reserved by name, or that have no token: a mask (N,), and in words."""
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
) -> tuple[UnderTrained, Array]:
    """As `under_trained_tokens`, from norms of rows (N,), and of the rows less their mean the products with `axes.axes`
    (N, 3) and the squared lengths (N,); and a mask of the rows found (N,)."""
    one_of(prefer, "prefer", ("cosine", "norm"))
    whole_number(most, "most", 0)
    if not 0 < finite_number(rate, "rate") < 1:
        raise InputError(f"expected a false-discovery rate between 0 and 1, got {rate}: 0.01 is customary")
    evidence = evidence_of(axes, norms, products, squares)
    if evidence.to_unused is None:
        if bool(axes.reference.any()):
            apart = "that differ from the other rows, got their mean at the mean of all rows"
            raise UndefinedMeasure(f"expected rows known to be unused {apart}")
        if prefer == "cosine":
            known = "rows known to be unused (reserved by name, without a token, or of count 0)"
            got = "got fewer: give counts of the text that trained the model"
            raise UndefinedMeasure(f"expected at least {FEWEST_RESERVED} {known}, {got}")
    return _conclude(axes, evidence, prefer, rate, most)


def _counting(
    axes: UntrainedAxes, evidence: Evidence, prefer: Indicator, rate: float
) -> tuple[dict[Kind, Array], dict[Kind, int | None]]:
    """The p-values of all rows by each kind of evidence that counts here, times the number of these kinds; and how many
    known-unused rows each kind finds, None where it is undefined."""
    unused, reasons, known = evidence.to_unused, dict[Indicator, str](), int(axes.reference.sum())
    kinds: list[Kind] = ["length", "decay"] if unused is None else [*KINDS]
    counting, seen = dict[Kind, Array](), dict[Kind, int | None]()
    for kind in kinds:
        try:
            p = p_of(kind, axes, evidence)
        except UndefinedMeasure as error:
            reasons.setdefault(KINDS[kind], str(error))
            seen[kind] = None
            continue
        seen[kind] = found = int((_q(p, axes.expected)[axes.reference] <= rate).sum())
        if unused is None or found >= CONTROL * known:
            counting[kind] = p
        else:
            got = f"{found} of {known}: this test cannot separate untrained rows in {axes.rows.shape[1]:,} columns"
            least = f"at least {CONTROL:.0%} of the rows known to be unused"
            reasons.setdefault(KINDS[kind], f"expected to find {least}, got {got}")
    if not counting:
        order = sorted(reasons, key=lambda indicator: indicator != prefer)
        raise UndefinedMeasure("; ".join(f"{indicator}: {reasons[indicator]}" for indicator in order))
    return {kind: np.minimum(len(counting) * p, 1.0) for kind, p in counting.items()}, seen


def _q(p: Array, expected: Array) -> Array:
    q = np.empty_like(p)
    q[~expected] = benjamini_hochberg(p[~expected])
    q[expected] = q_if_tested(p[expected], p[~expected])
    return q


def _conclude(
    axes: UntrainedAxes, evidence: Evidence, prefer: Indicator, rate: float, most: int
) -> tuple[UnderTrained, Array]:
    unused, expected, tested = evidence.to_unused, axes.expected, ~axes.expected
    counting, seen = _counting(axes, evidence, prefer, rate)
    indicators = [KINDS[kind] for kind in counting]
    indicator = prefer if prefer in indicators else indicators[0]
    values = evidence.norms if unused is None or indicator == "norm" else 1 - unused
    null = robust_null(-values[tested])
    p = np.minimum.reduce([*counting.values()])
    q = _q(p, expected)
    finds = (q <= rate) & tested & (p <= support_line(p[tested], EDGE))
    known_finds, leaning = (q <= rate) & expected, np.zeros_like(tested)
    others = np.count_nonzero((finds | known_finds) & ~axes.special)
    if axes.unsure and unused is not None and others < FEWEST_TOGETHER:
        least, then = (
            f"at least {FEWEST_TOGETHER} rows of other tokens",
            "give counts of the text that trained the model",
        )
        got = f"got {others}: trained special tokens that occur in the same places also lie together, so {then}"
        raise UndefinedMeasure(f"expected {least} where rows of special tokens lie together, {got}")
    if "place" in counting:
        assert unused is not None
        direction = evidence.place()[0][tested]
        of_direction = np.where(nearer(unused, axes)[tested], robust_null(direction).upper_p(direction), 1.0)
        leaning[tested] = (benjamini_hochberg(of_direction) <= rate) & ~finds[tested]
    by_p, ids = np.lexsort((values, p)), axes.rows.ids
    listed = [*by_p[finds[by_p]][:most].tolist(), *by_p[known_finds[by_p]][:20].tolist()]
    listed += by_p[leaning[by_p]][:most].tolist()
    found_at = float(p[finds | known_finds].max(initial=0.0))
    speaks = {kind: of <= found_at for kind, of in counting.items()}

    columns: dict[str, Array | None] = {"indicator": values, "p": p, "q": q, "norm": evidence.norms}
    columns |= {"cosine_to_unused": unused, "cosine_to_mean": evidence.to_mean}

    def read(i: int, text: str | None) -> UnderTrainedToken:
        row, count = i if ids is None else int(ids[i]), None if axes.counts is None else int(axes.counts[i])
        numbers: Any = {name: None if column is None else float(column[i]) for name, column in columns.items()}
        marks = {"expected": bool(expected[i]), "special": bool(axes.special[i]), "leaning": bool(leaning[i])}
        kinds = tuple(kind for kind, of in speaks.items() if of[i] and not leaning[i])
        return UnderTrainedToken(id=row, token=text, **numbers, count=count, **marks, kinds=kinds)

    tokens = tuple(map(read, listed, token_texts(axes.rows.labels, listed)))
    removed = " and the first principal component" * evidence.removed
    result = UnderTrained(
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
        kinds=tuple(
            EvidenceKind(
                kind,
                int((finds & speaks[kind]).sum()) if kind in speaks else None,
                None if unused is None else of_known,
                None if unused is None else int(axes.reference.sum()),
            )
            for kind, of_known in seen.items()
        ),
    )
    return result, finds
