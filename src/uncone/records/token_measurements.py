"""What a diagnosis says of tokens as measurements, so that it can be compared and checked like any other number."""

from collections.abc import Iterator
from typing import Literal

from uncone.records.diagnosis import Subject
from uncone.records.parts import Measurement
from uncone.records.tokens import Estimate, FrequencyGroup, FrequencyGroups, UnderTrained

UNDER_TRAINED_SHARE = "under_trained_share"

_READINGS: tuple[tuple[str, Literal["higher", "lower", "neither"], str], ...] = (
    ("cosine_to_reserved", "lower", "mean cosine between the rows of the group and the reserved rows"),
    ("mean_cosine", "lower", "mean cosine between rows of the group"),
    ("cosine_to_common", "neither", "mean cosine between the rows of the group and the mean of all rows"),
    ("mean_norm", "neither", "mean norm of the rows of the group"),
)


def token_measurements(subject: Subject) -> tuple[Measurement, ...]:
    """The readings of each frequency group, called GROUP.READING, and the share of rows that look untrained.

    Cosines have the isotropic reference 0, norms have none. Intervals are those of the groups. The share counts the rows
    that were not known to be unused, of those that were tested; it is `under_trained_share`.
    """
    groups, found = subject.frequency_groups, subject.under_trained
    readings = (
        [] if groups is None else [m for group in groups.groups for m in _of_group(groups, group, subject.d)]
    )
    return (*readings, *([] if found is None else [_share(found, subject.d)]))


def _of_group(groups: FrequencyGroups, group: FrequencyGroup, d: int) -> Iterator[Measurement]:
    cut = f"{groups.definition}, intervals of {100 * groups.confidence:g}%"
    for name, better, words in _READINGS:
        if group.name == "reserved" and name == "cosine_to_reserved":
            continue  # to themselves
        estimate: Estimate = getattr(group, name)
        is_norm = name == "mean_norm"
        yield Measurement(
            name=f"{group.name}.{name}", value=estimate.value, reason="" if estimate.value is not None else "no such rows",
            range=(0.0, None) if is_norm else (-1.0, 1.0), better=better, reference=None if is_norm else 0.0,
            interval=estimate.interval, n=group.n, d=d, definition=f"{words}; {cut}",
        )  # fmt: skip


def _share(found: UnderTrained, d: int) -> Measurement:
    told = found.found is not None and found.tested > 0
    return Measurement(
        name=UNDER_TRAINED_SHARE, value=(found.found or 0) / found.tested if told else None, reason=found.reason,
        range=(0.0, 1.0), better="lower", reference=0.0 if told else None, n=found.tested, d=d,
        definition=f"rows that look untrained and were not known to, of those tested; {found.definition}, false-discovery rate {found.rate:g}",
    )  # fmt: skip
