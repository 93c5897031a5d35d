"""Rows from what a notebook holds: arrays, tensors and lists, of any number of axes with a mask."""

from typing import Any

import numpy as np

from uncone.arguments import shown
from uncone.errors import InputError, first_line
from uncone.rows.base import Rows, SelectedRows, as_rows, float_array
from uncone.rows.floats import Array, as_array, is_tensor, of_tensor
from uncone.rows.frames import is_frame, read_frame


def as_samples(x: Any, mask: Any = None) -> Rows:
    """`x` as Rows, or the rows that `mask` keeps.

    Args:
        x: Rows, or a tensor, array, list or DataFrame (N, D) of numbers, or a DataFrame or Series with a column of
            lists of numbers; with a mask also (B, T, D), or more axes before D. Integers and the numbers of lists
            become float64.
        mask: bool or 0 and 1, in the shape of `x` without its last axis: True keeps, as in `attention_mask`. The `ids`
            of the rows are then their places among all positions: b T + t.

    Raises:
        InputError: anything else, integers beyond 2^53; three axes without a mask, since padding there cannot be
            distinguished from states; a mask that keeps no row.
    """
    name = "list" if isinstance(x, list | tuple) else None
    x = as_numbers(x) if name else x
    if is_frame(x):
        numbers, name, load_keys, load_labels = read_frame(x)
        rows = as_rows(whole_as_float64(numbers, name), name=name)
        rows.load_keys, rows.load_labels = load_keys, load_labels
        return rows if mask is None else SelectedRows(rows, _kept(mask, rows.shape[:1]))
    x = whole_as_float64(x, name or ("tensor" if is_tensor(x) else "array"))
    shape = tuple(getattr(x, "shape", ()))
    if mask is None or len(shape) < 2 or 0 in shape:
        return as_rows(x, name=name)  # which refuses all but rows
    rows = as_rows(x if len(shape) == 2 else x.reshape(-1, shape[-1]))
    return SelectedRows(rows, _kept(mask, shape[:-1]))


def as_numbers(x: Any) -> Array:
    """An array, without a copy where possible: bfloat16 becomes float32, integers and lists float64."""
    x = as_array(x)
    if isinstance(x, list | tuple):
        try:
            x = np.stack([as_array(row) for row in x]) if any(map(is_tensor, x)) else np.asarray(x)
        except (TypeError, ValueError, RuntimeError) as error:
            got = f"a list that makes no array ({first_line(error)}): join ragged rows with numpy.concatenate"
            raise InputError(f"expected a list of rows of one length, got {got}") from error
    if not isinstance(x, np.ndarray):
        got = f"{type(x).__name__}: convert it, for instance with numpy.asarray(x)"
        raise InputError(f"expected a tensor, an array or a list of numbers, got {got}")
    return float_array(whole_as_float64(x, "array"), "array")


def as_floats(given: Any, name: str) -> Array:
    """Numbers for rows or items (counts, weights, scores) as float64, of whatever shape; bools are 0 and 1."""
    try:
        numbers = np.asarray(as_array(given))
        if numbers.dtype.kind not in "biuf":
            raise TypeError(f"dtype {numbers.dtype}")
        return numbers.astype(np.float64)
    except (TypeError, ValueError) as error:
        got = f"{shown(given)} ({first_line(error)}): pass a list or an array of them"
        raise InputError(f"expected {name} to hold numbers, got {got}") from error


def whole_as_float64(x: Any, name: str) -> Any:
    """Integers as float64, up to 2^53; anything else as it is."""
    if is_tensor(x):
        is_whole = not (x.is_floating_point() or x.is_complex() or x.is_meta or x.is_quantized)
        if not is_whole or str(x.layout) != "torch.strided" or str(x.dtype) == "torch.bool":
            return x
        x = of_tensor(x, name)[0]
    elif not isinstance(x, np.ndarray) or x.dtype.kind not in "iu":
        return x
    largest = max(-int(x.min()), int(x.max())) if x.size and x.dtype.itemsize == 8 else 0
    if largest > 2**53:
        got = f"a magnitude of {largest} from {name}: pass floats to have them rounded"
        raise InputError(f"expected whole numbers up to 2^53, which float64 holds exactly, got {got}")
    return x.astype(np.float64)


def _kept(mask: Any, shape: tuple[int, ...]) -> Array:
    try:
        given = np.asarray(as_array(mask))
        is_mask = given.dtype.kind in "biu" and bool(((given == 0) | (given == 1)).all())
    except (TypeError, ValueError):
        given, is_mask = np.empty(0), False
    if not is_mask or given.shape != shape:
        raise InputError(
            f"expected a mask of shape {shape}, with True (or 1) for each position to keep, "
            f"got {type(mask).__name__} of shape {tuple(getattr(mask, 'shape', given.shape))} and "
            f"{getattr(mask, 'dtype', given.dtype)}: pass the tokenizer's attention_mask"
        )
    kept = np.flatnonzero(given)
    if not len(kept):
        raise InputError(f"expected a mask that keeps a row, got a mask of shape {shape} that keeps none: keep some")
    return kept
