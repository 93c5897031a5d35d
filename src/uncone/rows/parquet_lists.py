"""Arrow arrays of lists as tensors: checked, and without a copy."""

from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from uncone.errors import InputError


def value_type(arrow: Any) -> tuple[Any, int | None] | None:
    """The type of the values in lists of Arrow type `arrow`, and their length where the type fixes it; None for what is no list."""
    import pyarrow as pa

    arrow = getattr(arrow, "storage_type", arrow)
    if pa.types.is_fixed_size_list(arrow):
        return arrow.value_type, arrow.list_size
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return arrow.value_type, None
    return None


def check_lists(array: Any, d: int, first: int, where: str) -> None:
    """Raise InputError unless each list of `array` holds d numbers (0 where it is not known yet) and no null; row 0 of it is row
    `first` of `where`."""
    import numpy as np
    import pyarrow as pa

    def wrong(row: int, what: str) -> InputError:
        return InputError(
            f"expected a list of {f'{d} numbers' if d else 'numbers'} in row {first + row} of {where}, got {what}: fill it or drop the row"
        )

    if array.null_count:
        raise wrong(_first_null(array), "a null")
    if not pa.types.is_fixed_size_list(array.type):
        lengths = np.diff(array.offsets.to_numpy())
        other = np.flatnonzero(lengths != d)
        if len(other):
            raise wrong(int(other[0]), f"one of {lengths[other[0]]}")
    values = array.flatten()
    if len(values) != d * len(array):
        raise wrong(0, f"{len(values)} numbers in {len(array)} rows")
    if values.null_count:
        raise wrong(_first_null(values) // d, "a null in the list")


def list_values(array: Any) -> torch.Tensor:
    """The numbers of all lists of `array`, one after another, in its memory. The tensor must not be written to."""
    return from_dlpack(array.flatten())


def _first_null(array: Any) -> int:
    import numpy as np

    return int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
