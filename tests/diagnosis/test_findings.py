"""Each threshold of the findings, from both sides."""

import math
import re
from typing import Any

import pytest
import scipy.stats

import uncone
from uncone.diagnosis.advice import Advice
from uncone.diagnosis.findings import find
from uncone.records.parts import DEFECTS, Finding, Group, Groups, Measurement, OddRows
from uncone.records.tokens import UnderTrained, UnderTrainedToken

VECTORS, TOKENS = Advice(), Advice("table")
N, D = 1_000_000, 100  # so many rows that the noise allowed for is far below the step beside a threshold
STEP = 0.001


def measurement(name: str, value: float, reference: float | None = None, n: int = N) -> Measurement:
    return Measurement(name, value, reference=reference, n=n, d=D, details={"dimensions": [3], "dimension": 3})


def healthy(**changed: float) -> tuple[Measurement, ...]:
    """The numbers of an even cloud, but for those in `changed`."""
    values = {"mean_cosine": 0.0, "isoscore": 1.0, "effective_rank": 100.0} | changed
    references = {"effective_rank": 100.0, "isoscore": 1.0}
    return tuple(measurement(name, value, references.get(name, 0.0)) for name, value in values.items())


def named(
    *measurements: Measurement,
    groups: Groups | None = None,
    found: UnderTrained | None = None,
    odd: tuple[OddRows, ...] = (),
    raw: tuple[Measurement, ...] = (),
    left_out: int = 0,
    head: bool = False,
    elsewhere: frozenset[int] = frozenset(),
    advice: Advice = VECTORS,
) -> dict[str, Finding]:
    """The findings by their cause."""
    more = {"under_trained": found, "elsewhere": elsewhere, "without_effect": raw, "odd": odd, "left_out": left_out}
    findings = find(measurements, groups, head=head, advice=advice, **more)
    by_cause = {finding.cause: finding for finding in findings}
    assert len(by_cause) == len(findings), "no cause is found twice"
    return by_cause


def level(cause: str, *measurements: Measurement, groups: Groups | None = None, found: Any = None) -> str | None:
    """The level at which the cause is found; None where it is not."""
    finding = named(*measurements, groups=groups, found=found).get(cause)
    return finding and finding.level


@pytest.mark.parametrize(
    ("cause", "name", "threshold", "below", "at", "above"),
    [
        ("common_direction_drift", "mean_cosine", 0.1 + 4 * math.sqrt(2 / D) / N, None, "warning", "warning"),
        ("common_direction_drift", "mean_cosine", 0.5, "warning", "warning", "warning"),  # of vectors
        ("low_effective_rank", "effective_rank", 50.0, "warning", None, None),
        ("low_effective_rank", "effective_rank", 20.0, "severe", "warning", "warning"),
        ("rogue_dimensions", "dominant_dimension", 0.2, None, "warning", "warning"),
        ("rogue_dimensions", "rogue_dimensions", 0.2, None, None, None),  # no cosine that it could carry
        ("dominant_direction", "anisotropy_1", 0.2, None, "warning", "warning"),
        ("norm_id_coupling", "norm_id_correlation", 0.5, None, "structure", "structure"),
        ("norm_id_coupling", "norm_id_correlation", -0.5, "structure", "structure", None),
    ],
)
def test_a_level_changes_at_its_threshold(
    cause: str, name: str, threshold: float, below: str | None, at: str | None, above: str | None
) -> None:
    for value, expected in ((threshold - STEP, below), (threshold, at), (threshold + STEP, above)):
        assert level(cause, *healthy(**{name: value})) == expected


def test_a_common_direction_of_half_of_each_cosine_is_severe_in_a_table() -> None:
    for cosine, expected in ((0.499, "warning"), (0.5, "severe")):
        assert named(*healthy(mean_cosine=cosine), advice=TOKENS)["common_direction_drift"].level == expected


SHARES = [(0.06, 0.21, True), (0.04, 0.21, False), (0.06, 0.19, False)]
SHARES += [(0.0499, 0.9, False), (0.0501, 0.9, True), (0.05, 0.2, True)]


@pytest.mark.parametrize(("cosine", "share", "found"), SHARES)
def test_a_rogue_dimension_of_the_cosine_needs_a_cosine_to_carry(cosine: float, share: float, found: bool) -> None:
    assert ("rogue_dimensions" in named(*healthy(mean_cosine=cosine, rogue_dimensions=share))) == found


@pytest.mark.parametrize(
    ("cause", "name"), [("rogue_dimensions", "dominant_dimension"), ("dominant_direction", "anisotropy_1")]
)
def test_of_few_dimensions_one_has_five_even_shares(cause: str, name: str) -> None:
    for share, found in ((0.49, False), (0.51, True)):
        few = Measurement(name, share, reference=0.1, n=N, d=10, details={"dimension": 3})
        assert (cause in named(*healthy(), few)) == found


def test_so_many_rows_are_needed() -> None:
    for n in (29, 30):
        values = [measurement(name, 0.0, 0.0, n) for name in ("mean_cosine", "isoscore", "effective_rank")]
        assert (level("not_measured", *values) is None) == (n == 30)


def test_few_rows_are_allowed_their_noise() -> None:
    """A mean cosine over 40 rows of 100 features scatters by 0.0035: four times that is not concluded from."""
    for excess, found in ((0.013, None), (0.015, "warning")):
        assert level("common_direction_drift", measurement("mean_cosine", 0.1 + excess, n=40)) == found


def groups(*cosines: float, within: float = 0.9, n: int = 1_000) -> Groups:
    """Bins with these cosines to 100 reserved rows whose mean cosine among themselves is `within`."""
    bins = tuple(Group(f"ids {i}", i * n, (i + 1) * n, n, 0, 1.0, 0.1, 0.0, cosine) for i, cosine in enumerate(cosines))
    return Groups(n, "[unused]", Group("[unused]", 0, 100, 100, 0, 1.0, 0.1, within, None), bins)


@pytest.mark.parametrize(
    ("cosines", "expected"),
    [
        ([0.0, 0.0, 0.0, 0.0, 0.199], "note"),  # near-copies of one vector that nothing follows
        ([0.0, 0.0, 0.0, 0.0, 0.23], "warning"),  # a fifth of the rows
        ([0.0, 0.0, 0.0, 0.23, 0.23], "severe"),
    ],
)
def test_a_tail_leans_by_its_excess_and_is_severe_by_its_share(cosines: list[float], expected: str) -> None:
    assert level("degenerate_tail", *healthy(), groups=groups(*cosines)) == expected


@pytest.mark.parametrize(
    ("everywhere", "within", "expected"),
    [(0.0, 0.499, None), (0.0, 0.5, "note"), (0.0, 0.501, "note"), (0.35, 0.55, "note"), (0.35, 0.549, None)],
)
def test_reserved_rows_that_are_near_copies_are_named(everywhere: float, within: float, expected: str | None) -> None:
    assert level("degenerate_tail", *healthy(mean_cosine=everywhere), groups=groups(0.0, within=within)) == expected


def alike(*cosines: float, toward: float = 0.0, reserved: int = 0, by_name: bool = True) -> Groups:
    """Bins of 1,000 ids with these mean cosines among themselves, and the cosine `toward` the reserved rows."""
    bins = tuple(
        Group(f"ids {i}", i * 1000, (i + 1) * 1000, 1000, 0, 1.0, 0.1, cosine, toward, reserved)
        for i, cosine in enumerate(cosines)
    )
    apart = Group("[unused]", 0, 100, 100, 0, 1.0, 0.1, 0.1, None)
    return Groups(1000, "[unused]", apart, bins, reserved_by_name=by_name)


def test_near_copies_are_a_defect_of_a_vocabulary_and_a_note_of_vectors() -> None:
    for advice, level_, words in ((TOKENS, "warning", "no text trained"), (VECTORS, "note", "sorted by topic")):
        finding = named(*healthy(), groups=alike(0.0, 0.96, 0.96), advice=advice)["near_copies"]
        assert (finding.level, finding.extent) == (level_, 2 / 3)
        assert finding.summary.startswith("The 2,000 rows of ids 1,000 to 2,999 are near-copies of one vector")
        assert words in finding.summary


def test_rows_that_share_a_direction_are_no_near_copies() -> None:
    """1,000 rows with a mean cosine of 0.61 lie 52 degrees apart; a bin at 0.9 is told beside them."""
    found = named(*healthy(), groups=alike(0.0, 0.61, 0.9), advice=TOKENS)
    assert (found["near_copies"].extent, found["alike_rows"].extent) == (1 / 3, 1 / 3)
    assert (found["near_copies"].level, found["alike_rows"].level) == ("warning", "note")
    assert "1,000 rows of ids 1,000 to 1,999 point the same way" in found["alike_rows"].summary


@pytest.mark.parametrize(("everywhere", "alike_from", "same_from"), [(0.0, 0.5, 0.95), (0.8, 0.9, 0.99)])
def test_rows_of_a_collection_are_near_copies_on_its_own_scale(
    everywhere: float, alike_from: float, same_from: float
) -> None:
    """Where two random rows score 0.8, rows with a mean cosine of 0.98 are of one topic, and no copies."""
    for within, expected in (
        (alike_from - 0.001, set()),
        (alike_from + 0.001, {"alike_rows"}),
        (same_from - 0.001, {"alike_rows"}),
        (same_from + 0.001, {"near_copies"}),
    ):
        found = named(*healthy(mean_cosine=everywhere), groups=alike(everywhere, within))
        assert found.keys() & {"alike_rows", "near_copies"} == expected
        assert all(found[cause].level == "note" for cause in expected)
    found = named(*healthy(), groups=alike(0.0, 0.6, 0.97))
    assert found["near_copies"].summary.startswith("The 1,000 rows of ids 2,000 to 2,999 are near-copies")
    assert found["alike_rows"].summary.startswith("The 1,000 rows of ids 1,000 to 1,999 are more alike than others")


def test_rows_too_short_for_a_partition_have_none_as_evidence() -> None:
    for warnings in ((), ("tiny norms",)):
        partition = Measurement("partition_isotropy", 0.4, reference=0.9, n=N, d=D, warnings=warnings)
        evidence = named(*healthy(mean_cosine=0.6), partition)["common_direction_drift"].evidence
        assert any("I(W)" in line for line in evidence) == (not warnings)


def test_an_extent_says_how_far_a_defect_goes() -> None:
    """What a comparison goes by: a cosine, a share of variance, or the share of the rank that is lost."""
    for cause, changed, extent in (
        ("common_direction_drift", {"mean_cosine": 0.3}, 0.3),
        ("rogue_dimensions", {"dominant_dimension": 0.4}, 0.4),
        ("dominant_direction", {"anisotropy_1": 0.25}, 0.25),
        ("low_effective_rank", {"effective_rank": 30.0}, 0.7),
    ):
        finding = named(*healthy(**changed))[cause]
        assert finding.is_defect
        assert finding.extent == pytest.approx(extent)
        assert next(iter(changed)) in finding.measures


def test_of_two_rogue_shares_the_larger_is_the_extent() -> None:
    finding = named(*healthy(mean_cosine=0.06, rogue_dimensions=0.7, dominant_dimension=0.3))["rogue_dimensions"]
    assert (finding.extent, finding.measures) == (0.7, ("rogue_dimensions", "dominant_dimension"))


def odd(kind: str, n: int, **more: object) -> tuple[OddRows, ...]:
    return (OddRows(kind, n, **more),)  # type: ignore[arg-type]


RESERVED = odd("zero", 0, reserved=5)
NOTED = [(odd("zero", 1), TOKENS), (odd("zero", 1), Advice("head"))]  # the one row of a table is its padding
NOTED += [(odd("equal", N // 100), TOKENS), (RESERVED, TOKENS), (RESERVED, Advice())]
WARNED = [(odd("zero", 1), Advice()), (odd("zero", 2), TOKENS)]  # the one row of vectors is a vector of nothing
WARNED += [(odd("equal", N // 100 + 1), TOKENS), (odd("giant", 1), TOKENS), (odd("zero", N // 5), TOKENS)]
WARNED += [(odd("giant", N // 5), Advice())]
SEVERE = [(odd(kind, N // 5 + 1), Advice() if kind == "giant" else TOKENS) for kind in ("zero", "equal", "giant")]
LEVELS = [(*one, level) for level, cases in (("note", NOTED), ("warning", WARNED), ("severe", SEVERE)) for one in cases]


@pytest.mark.parametrize(("rows", "advice", "expected"), LEVELS)
def test_odd_rows_by_their_number(rows: tuple[OddRows, ...], advice: Advice, expected: str) -> None:
    finding = named(*healthy(), odd=rows, advice=advice)[f"{rows[0].kind}_rows"]
    assert finding.level == expected
    assert finding.extent == rows[0].n / N
    assert ("no_defect" in named(*healthy(), odd=rows, advice=advice)) == (expected == "note")


def test_odd_rows_are_told_with_ids_and_tokens() -> None:
    zero = odd("zero", 2, reserved=3, ids=(7, 1200), labels=("<pad>", None))
    finding = named(*healthy(), odd=zero, advice=TOKENS)["zero_rows"]
    assert finding.summary.startswith("2 rows are zero: ")
    assert finding.evidence == ("first: 7 ('<pad>'), 1,200", "3 more rows of this kind are reserved")
    finding = named(*healthy(), odd=odd("giant", 1, ids=(5,), labels=(None,), length=41.23))["giant_rows"]
    assert finding.summary.startswith("1 row is at least ten times as long as the median row")
    assert finding.evidence == ("the longest row has 41.2 times the median length", "the longest first: 5")
    about = named(*healthy(), odd=odd("equal", 64, sampled=32))["equal_rows"]
    assert about.summary.startswith("About 64 rows are equal to an earlier row")
    assert named(*healthy(), odd=odd("zero", 0, reserved=1))["zero_rows"].summary.startswith("Reserved rows are zero")


@pytest.mark.parametrize(
    ("left_out", "expected"), [(0, None), (1, "warning"), (N // 4, "warning"), (N // 4 + 1, "severe")]
)
def test_rows_left_out_are_a_defect_and_severe_from_a_fifth_of_all_rows_on(left_out: int, expected: str | None) -> None:
    finding = named(*healthy(), left_out=left_out).get("nonfinite_rows")
    assert (finding and finding.level) == expected
    assert finding is None or finding.extent == left_out / (N + left_out)


def random_rows(
    n: int = 40_001, d: int = D, *, sigmas: float = 0.0, cosine: float = 0.0, order: float | None = 0.0
) -> tuple[Measurement, ...]:
    """The numbers of n random rows whose spectrum lies `sigmas` off that of noise.

    n D U / 2 is the quantile of chi-squared with D (D + 1) / 2 - 1 degrees of freedom that the normal has there.
    """
    chi = scipy.stats.chi2(d * (d + 1) / 2 - 1)
    quantile = chi.ppf(scipy.stats.norm.cdf(sigmas)) if sigmas < 0 else chi.isf(scipy.stats.norm.sf(sigmas))
    spread = 2 * float(quantile) / (d * (n - 1))
    values = {
        "participation_ratio": (d / (1 + spread), float(d)),
        "mean_cosine": (cosine, 0.0),
        "isoscore": (1.0, 1.0),
        "effective_rank": (d * 0.99, d * 0.99),
    }
    rows = [Measurement(name, value, reference=even, n=n, d=d) for name, (value, even) in values.items()]
    return (*rows, Measurement("norm_id_correlation", order, "no order of norms", reference=0.0, n=n, d=d))


COSINE_BAR = 6 * math.sqrt(2 / D) / 40_000  # six standard errors of the mean cosine of 40,000 pairs' rows


BY_NOISE = {"sigmas": [0.0, 5.9, 6 - 1e-9, -5.9], "cosine": [0.98 * COSINE_BAR, -0.05]}
BY_NOISE |= {"order": [0.0199, -0.0199, None]}
BY_TRAINING = {"sigmas": [6.1, -6.1], "cosine": [1.02 * COSINE_BAR], "order": [0.0201, -0.0201]}
TRACES = [(name, value, True) for name, values in BY_NOISE.items() for value in values]
TRACES += [(name, value, False) for name, values in BY_TRAINING.items() for value in values]


@pytest.mark.parametrize(("trace", "value", "expected"), TRACES)
def test_each_trace_of_training_denies_an_untrained_table(trace: str, value: float | None, expected: bool) -> None:
    found = named(*random_rows(**{trace: value}))
    assert ("untrained" in found) == expected
    assert ("no_defect" in found) == (not expected)
    if expected:
        assert found["untrained"].level == "structure"


@pytest.mark.parametrize(("raw", "expected"), [(0.98 * COSINE_BAR, True), (1.02 * COSINE_BAR, False), (None, True)])
def test_the_stored_rows_of_an_untrained_head_share_no_direction(raw: float | None, expected: bool) -> None:
    stored = Measurement("mean_cosine", raw, "undefined", reference=0.0, n=40_001, d=D)
    assert ("untrained" in named(*random_rows(), raw=(stored,), head=True)) == expected


def test_a_random_table_is_told_by_what_it_is() -> None:
    assert "like the rows of a new model before training" in named(*random_rows(), advice=TOKENS)["untrained"].summary
    assert "like noise" in named(*random_rows())["untrained"].summary
    assert "to 3.0 standard deviations; 6 are allowed" in named(*random_rows(sigmas=-3))["untrained"].evidence[0]


def test_an_untrained_table_with_odd_rows_has_both_findings() -> None:
    found = named(*random_rows(), odd=odd("giant", 1)).items()
    assert {(cause, it.level) for cause, it in found} == {("giant_rows", "warning"), ("untrained", "structure")}


@pytest.mark.parametrize(
    ("kind", "n", "first"),
    [
        ("giant", 1, "Leave the giant rows out first"),
        ("giant", N // 5 + 1, "Leave the giant rows out first"),
        ("equal", N // 5 + 1, "Keep only one of the equal rows first"),
        ("equal", N // 5, None),
        ("zero", N // 5 + 1, None),
    ],
)
def test_odd_rows_that_make_a_cloud_come_before_its_repair(kind: str, n: int, first: str | None) -> None:
    drift = named(*healthy(mean_cosine=0.9), odd=odd(kind, n))["common_direction_drift"]
    if first is None:
        assert drift.repair.startswith("Read scores as percentiles")
        assert drift.command
    else:
        assert drift.repair.startswith(first)
        assert not drift.command


@pytest.mark.parametrize(("n", "correlation", "expected"), [(50, 0.56, False), (50, 0.58, True), (N, 0.5, True)])
def test_few_rows_are_allowed_their_noise_of_ranks(n: int, correlation: float, expected: bool) -> None:
    """Spearman's coefficient of unrelated ranks scatters by 1 / sqrt(n - 1): four times that is 0.571 of 50 rows."""
    few = (measurement(m.name, float(m), m.reference, n) for m in healthy(norm_id_correlation=correlation))
    assert ("norm_id_coupling" in named(*few)) == expected


@pytest.mark.parametrize(("cosine", "expected"), [(0.1 - STEP, False), (0.1 + STEP, True), (0.9, True), (None, False)])
def test_the_common_direction_of_a_head_has_no_effect(cosine: float | None, expected: bool) -> None:
    raw = Measurement("mean_cosine", cosine, "undefined", reference=0.0, n=N, d=D)
    found = named(*healthy(), raw=(raw,), head=True)
    assert ("common_direction_of_the_head" in found) == expected
    assert "no_defect" in found
    if expected:
        assert found["common_direction_of_the_head"].level == "no_effect"
        assert "`uncone center-head` proves that no probability changes" in found["common_direction_of_the_head"].repair


def test_a_head_is_said_to_be_looked_through_for_what_was_looked_for() -> None:
    told = {head: named(*healthy(), head=head)["no_defect"].summary for head in (False, True)}
    assert (
        "We looked for drift, a tail of ids that leans toward reserved rows, a direction or feature that carries the variance"
        in told[False]
    )
    assert (
        "We looked for a tail of ids that leans toward reserved rows, a feature that carries the variance" in told[True]
    )


def test_findings_come_worst_first() -> None:
    some = healthy(mean_cosine=0.6, isoscore=0.5, norm_id_correlation=0.6, dominant_dimension=0.4)
    found = named(*some, odd=odd("equal", 5), raw=(measurement("mean_cosine", 0.6),), advice=TOKENS)
    levels = ["severe", "warning", "note", "structure", "no_effect"]
    assert [finding.level for finding in found.values()] == levels
    assert [f.is_defect for f in found.values()] == [f.level in DEFECTS for f in found.values()]


@pytest.mark.parametrize(
    ("found", "with_tail", "expected"), [(100, False, "note"), (101, False, "warning"), (101, True, "note")]
)
def test_many_untrained_tokens_are_a_warning_unless_a_tail_is_named(found: int, with_tail: bool, expected: str) -> None:
    by_id = groups(0.0, 0.0, 0.0, 0.0, 0.9) if with_tail else None
    finding = named(*healthy(), groups=by_id, found=looks_untrained(found, 1.0))["under_trained_tokens"]
    assert (finding.level, finding.extent) == (expected, found / 10_000)
    assert "first: 'a'" in finding.evidence


def test_bins_mostly_of_reserved_rows_do_not_lean() -> None:
    """Half of a bin's rows being reserved is the last that is too many."""
    for reserved, expected in ((499, "warning"), (500, "note")):
        by_id = groups(0.0, 0.0, 0.0, 0.0, 0.0, 0.9)
        last = Group("ids 5", 5000, 6000, 1000, 0, 1.0, 0.1, 0.0, 0.9, reserved)
        held = Groups(1000, "[unused]", by_id.reserved_group, (*by_id.bins[:5], last))
        assert level("degenerate_tail", *healthy(), groups=held) == expected


@pytest.mark.parametrize(("within", "expected"), [(0.199, None), (0.201, "warning")])
def test_the_last_ids_stand_out_or_nothing_leans_to_them(within: float, expected: str | None) -> None:
    by_id = groups(0.0, 0.0, 0.0, 0.0, 0.0, 0.9, within=within)
    by_number = Groups(1000, "the last ids", by_id.reserved_group, by_id.bins, reserved_by_name=False)
    found = named(*healthy(), groups=by_number, advice=TOKENS).get("degenerate_tail")
    assert (found and found.level) == expected
    of_vectors = named(*healthy(anisotropy_1=0.5), groups=by_number)
    leaning = of_vectors.get("leaning_rows")
    assert (leaning and leaning.level) == (expected and "note")
    assert "degenerate_tail" not in of_vectors
    assert ("dominant_direction" in of_vectors) == (leaning is None)  # which these rows would explain


@pytest.mark.parametrize("kind", ["equal", "zero"])
def test_nothing_is_advised_where_there_is_nothing_to_do(kind: str) -> None:
    for finding in named(*healthy(isoscore=0.5, norm_id_correlation=0.7), advice=TOKENS).values():
        assert (finding.repair, finding.command) == ("", "")
    note = named(*healthy(), odd=odd(kind, 1), advice=TOKENS)[f"{kind}_rows"]
    assert note.repair
    assert not note.command


def test_a_lean_counts_from_its_noise_on() -> None:
    """4 / sqrt(d n m): of 1,000 rows and 100 reserved ones of 100 features, 0.00126 beyond the fifth."""
    at = 0.2 + 4 / math.sqrt(D * 1_000 * 100)
    for cosine, expected in ((at - 1e-6, "note"), (at, "warning")):
        assert level("degenerate_tail", *healthy(), groups=groups(0.0, 0.0, 0.0, 0.0, 0.0, cosine)) == expected


def test_many_spans_of_a_tail_are_counted_and_its_extent_is_its_share_of_the_rows() -> None:
    """Five spans: four are named and one is counted; of four, all are named."""
    for spans in (4, 5):
        finding = named(*healthy(), groups=groups(*[0.9, 0.0] * spans))["degenerate_tail"]
        assert ("1 more span" in finding.summary) == (spans == 5)
        assert finding.summary.count(" to ") >= 4
        assert (finding.extent, finding.measures) == (0.5, ("rare.cosine_to_reserved",))


def test_the_way_of_lengths() -> None:
    for way, order in (("longer", 0.7), ("shorter", -0.7)):
        assert f"ids are {way}." in named(*healthy(norm_id_correlation=order))["norm_id_coupling"].summary


def looks_untrained(found: int, *norms: float) -> UnderTrained:
    """Tokens that look untrained, of these norms."""
    tokens = tuple(UnderTrainedToken(i, "a", 0.1, 0.1, 0.1, norm, None, None) for i, norm in enumerate(norms))
    return UnderTrained(found, tested=10_000, rate=0.05, tokens=tokens)


def test_of_an_untrained_table_no_structure_is_told_and_no_token_is_singled_out() -> None:
    less = (m for m in random_rows() if m.name != "isoscore")
    uneven = Measurement("isoscore", 0.5, reference=1.0, n=40_001, d=D)
    found = named(*less, uneven, found=looks_untrained(2, 0.5, 0.5))
    assert "under_trained_tokens" not in found
    assert "under_trained_tokens" in named(*healthy(), found=looks_untrained(2, 0.5, 0.5))


def told(zero: int, table: UnderTrained) -> dict[str, object]:
    zeros = frozenset(one.id for one in table.tokens if one.norm == 0) if zero else frozenset()
    return {"found": table, "elsewhere": zeros, "odd": odd("zero", zero) if zero else (), "advice": TOKENS}


COPIES, ALIKE, UNTRAINED = "near_copies", "alike_rows", "under_trained_tokens"
DIRECTION = "dominant_direction"


@pytest.mark.parametrize(
    ("cause", "changed", "more", "expected"),
    [
        (ALIKE, {}, {"groups": alike(0.1, 0.499), "advice": TOKENS}, False),
        (ALIKE, {}, {"groups": alike(0.1, 0.501), "advice": TOKENS}, True),
        (ALIKE, {"mean_cosine": 0.4}, {"groups": alike(0.1, 0.599), "advice": TOKENS}, False),
        (ALIKE, {"mean_cosine": 0.4}, {"groups": alike(0.1, 0.601), "advice": TOKENS}, True),
        (ALIKE, {}, {"groups": alike(0.1, 0.9), "advice": TOKENS}, False),
        (COPIES, {}, {"groups": alike(0.1, 0.899), "advice": TOKENS}, False),
        (COPIES, {}, {"groups": alike(0.1, 0.9), "advice": TOKENS}, True),
        (COPIES, {"mean_cosine": 0.75}, {"groups": alike(0.8, 0.949), "advice": TOKENS}, False),
        (COPIES, {"mean_cosine": 0.75}, {"groups": alike(0.8, 0.951), "advice": TOKENS}, True),
        (COPIES, {}, {"groups": alike(0.9, toward=0.9)}, False),  # a tail, which is told of
        (COPIES, {}, {"groups": alike(0.9, reserved=499)}, True),
        (COPIES, {}, {"groups": alike(0.9, reserved=500)}, False),
        (COPIES, {}, {"groups": alike(0.9, reserved=500, by_name=False)}, True),
        (COPIES, {}, {"groups": alike(0.0, 0.9), "odd": odd("equal", 499)}, True),
        (COPIES, {}, {"groups": alike(0.0, 0.9), "odd": odd("equal", 500)}, False),  # equal rows are told of
        (DIRECTION, {"anisotropy_1": 0.5}, {}, True),
        (DIRECTION, {"anisotropy_1": 0.5}, {"head": True}, False),
        (DIRECTION, {"anisotropy_1": 0.5, "mean_cosine": 0.3}, {}, True),
        (DIRECTION, {"anisotropy_1": 0.5, "effective_rank": 40.0}, {}, False),  # something else explains it
        (DIRECTION, {"anisotropy_1": 0.5, "dominant_dimension": 0.3}, {}, False),
        (UNTRAINED, {}, told(2, looks_untrained(2, 0.0, 0.0)), False),
        (UNTRAINED, {}, told(2, looks_untrained(3, 0.0, 0.0)), True),  # more than are zero
        (UNTRAINED, {}, told(2, looks_untrained(2, 0.0, 0.1)), True),  # one of another length
        (UNTRAINED, {}, told(0, looks_untrained(2, 0.0, 0.0)), True),
        ("common_direction_drift", {"mean_cosine": 0.9}, {"head": True}, False),
    ],
)
def test_a_cause_is_told_of_once_and_where_nothing_else_explains_it(
    cause: str, changed: dict[str, float], more: dict[str, Any], expected: bool
) -> None:
    advice = TOKENS if cause == COPIES else VECTORS
    assert (cause in named(*healthy(**changed), **{"advice": advice} | more)) == expected


@pytest.mark.parametrize(
    ("advice", "remedies"),
    [
        (Advice("table"), set()),  # of its own, whose drift was not looked into
        (Advice("table", is_tied=True), {"TableAdam"}),
        (Advice("head"), {"TableAdam", "CenterRows"}),
    ],
)
def test_what_is_to_prevent_a_drift_is_public_and_is_not_the_gate(advice: Advice, remedies: set[str]) -> None:
    """The gradients of a head's rows add up to 0, gated or not, and a penalty raises the loss: `experiments/rare_tokens`."""
    said = advice.on(Finding("common_direction_drift", "severe", "")).repair
    assert set(re.findall(r"`uncone\.(\w+)", said)) - {"transforms"} == remedies
    assert all(hasattr(uncone, name) for name in remedies)
    assert "gate" not in said
