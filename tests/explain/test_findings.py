"""Each threshold of the findings, from both sides."""

import pytest

from uncone.explain.findings import find
from uncone.records import Finding, Group, Groups, Measurement, UnderTrained

N, D = 1_000_000, 100  # so many rows that the noise allowed for is far below the step beside a threshold
STEP = 0.001


def measurement(name: str, value: float, reference: float | None = None, n: int = N) -> Measurement:
    details = {"dimensions": [3], "dimension": 3}
    return Measurement(name, value, reference=reference, n=n, d=D, details=details)


def healthy(**changed: float) -> tuple[Measurement, ...]:
    """The numbers of an even cloud, but for those in `changed`."""
    values = {"mean_cosine": 0.0, "isoscore": 1.0, "effective_rank": 100.0} | changed
    return tuple(
        measurement(name, value, {"effective_rank": 100.0}.get(name, 0.0)) for name, value in values.items()
    )


def level(
    cause: str, *measurements: Measurement, groups: Groups | None = None, found: UnderTrained | None = None
) -> str | None:
    """The level at which the cause is found; None where it is not."""
    findings: tuple[Finding, ...] = find(measurements, groups, head=False, under_trained=found)
    return {finding.cause: finding.level for finding in findings}.get(cause)


@pytest.mark.parametrize(
    ("cause", "name", "threshold", "below", "above"),
    [
        ("common_direction_drift", "mean_cosine", 0.1, None, "warning"),
        ("common_direction_drift", "mean_cosine", 0.5, "warning", "severe"),
        ("low_effective_rank", "effective_rank", 50.0, "warning", None),
        ("low_effective_rank", "effective_rank", 20.0, "severe", "warning"),
        ("rogue_dimensions", "dominant_dimension", 0.2, None, "warning"),
        ("norm_id_coupling", "norm_id_correlation", 0.5, None, "warning"),
        ("norm_id_coupling", "norm_id_correlation", -0.5, "warning", None),
    ],
)
def test_a_level_changes_at_its_threshold(
    cause: str, name: str, threshold: float, below: str | None, above: str | None
) -> None:
    assert level(cause, *healthy(**{name: threshold - STEP})) == below
    assert level(cause, *healthy(**{name: threshold + STEP})) == above


def test_a_rogue_dimension_of_the_cosine_needs_a_cosine_to_carry() -> None:
    for cosine, share, found in ((0.06, 0.21, "warning"), (0.04, 0.21, None), (0.06, 0.19, None)):
        assert level("rogue_dimensions", *healthy(mean_cosine=cosine, rogue_dimensions=share)) == found


def test_of_few_dimensions_a_rogue_one_has_five_even_shares() -> None:
    for share, found in ((0.49, None), (0.51, "warning")):
        few = Measurement("dominant_dimension", share, reference=0.1, n=N, d=10, details={"dimension": 3})
        assert level("rogue_dimensions", *healthy(), few) == found


@pytest.mark.parametrize(("n", "is_judged"), [(29, False), (30, True)])
def test_so_many_rows_are_needed(n: int, is_judged: bool) -> None:
    values = [measurement(name, 0.0, 0.0, n) for name in ("mean_cosine", "isoscore", "effective_rank")]
    assert (level("not_measured", *values) is None) == is_judged


def test_few_rows_are_allowed_their_noise() -> None:
    """A mean cosine over 40 rows of 100 features scatters by 0.0035: four times that is not concluded from."""
    for excess, found in ((0.013, None), (0.015, "warning")):
        assert level("common_direction_drift", measurement("mean_cosine", 0.1 + excess, n=40)) == found


@pytest.mark.parametrize(("found", "expected"), [(100, "note"), (101, "warning")])
def test_many_untrained_tokens_are_a_warning(found: int, expected: str) -> None:
    table = UnderTrained(found, tested=10_000, rate=0.05)
    assert level("under_trained_tokens", *healthy(), found=table) == expected


def groups(*cosines: float, within: float = 0.9, n: int = 1_000) -> Groups:
    """Bins with these cosines to 100 reserved rows whose mean cosine among themselves is `within`."""
    bins = tuple(
        Group(f"ids {i}", i * n, (i + 1) * n, n, 0, 1.0, 0.1, 0.0, cosine) for i, cosine in enumerate(cosines)
    )
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


@pytest.mark.parametrize(("within", "expected"), [(0.499, None), (0.501, "note")])
def test_reserved_rows_are_named_when_they_are_near_copies(within: float, expected: str | None) -> None:
    assert level("degenerate_tail", *healthy(), groups=groups(0.0, within=within)) == expected
