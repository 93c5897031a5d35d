"""The rows in bins of ids, and the reserved rows that each is compared to."""

from collections.abc import Callable

from uncone import measure
from uncone.errors import UndefinedMeasure
from uncone.explain.sums import Sums
from uncone.moments import Moments
from uncone.records import Group, Groups, Measurement


def groups_of(sums: Sums) -> Groups:
    """The readings of each bin, and of the reserved rows."""
    reserved = sums.reserved_sums
    special = _group(sums.reserved.description, 0, 0, reserved, None, (len(sums.reserved.indices), 0))
    bins = []
    for k, (m, shared) in enumerate(zip(sums.bins, sums.reserved_in_bin, strict=True)):
        start, stop = k * sums.bin_size, (k + 1) * sums.bin_size
        if m.n == 0:
            continue
        stop = min(stop, sums.stop)
        bins.append(_group(f"ids {start:,} to {stop - 1:,}", start, stop, m, reserved, shared))
    return Groups(sums.bin_size, sums.reserved.description, special, tuple(bins), sums.reserved.by_name)


def _group(
    name: str, start: int, stop: int, m: Moments, reserved: Moments | None, shared: tuple[int, int]
) -> Group:
    mean = m.mean_norm()
    spread = max(0.0, m.norm_square_sum / m.weight - mean**2) ** 0.5
    to_reserved = (
        None if reserved is None else _value(lambda: measure.cosine_between(reserved, m, shared=shared[1]))
    )
    return Group(
        name,
        start,
        stop,
        m.n,
        m.zero_rows,
        mean,
        spread,
        _value(lambda: measure.mean_cosine(m)),
        to_reserved,
        shared[0],
    )


def _value(function: Callable[[], Measurement]) -> float | None:
    try:
        return float(function())
    except UndefinedMeasure:
        return None
