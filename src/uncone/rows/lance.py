"""Rows from a column of fixed-size lists in a Lance dataset, by fragment."""

import bisect
import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from uncone.errors import InputError, first_line, needed
from uncone.rows.base import GRID, Rows, check_shape
from uncone.rows.bytes import StreamedRows
from uncone.rows.floats import Array
from uncone.rows.names import listing, only
from uncone.rows.parquet import DTYPES, kind_of
from uncone.rows.parts import Part, RowsInParts


def open_lance(url: str, column: str | None, name: str, fragments: tuple[int, ...] | None = None) -> Rows:
    """`url` is a folder or an address of a store; messages show `name` instead."""
    lance = needed("lance", f"reading {name} needs Lance, got none: pip install 'uncone[lance]'")
    try:
        dataset = lance.dataset(url)
        schema = dataset.schema
    except Exception as error:
        raise InputError(
            f"expected a Lance dataset, got {name}, which lance cannot open ({first_line(error)})"
        ) from error
    if column is None:
        fitting = [field.name for field in schema if (kind_of(field.type) or ("", None))[1] is not None]
        column = only(fitting, name, among=listing(schema.names), kind="column of fixed-size lists")
    if column not in schema.names:
        raise InputError(f"no column {column!r} in {name}: it holds {listing(schema.names)}")
    return LanceRows(dataset, url, column, name, fragments)


class LanceRows(RowsInParts, StreamedRows):
    def __init__(self, dataset: Any, url: str, column: str, name: str, fragments: tuple[int, ...] | None) -> None:
        super().__init__()
        kind = kind_of(dataset.schema.field(column).type)
        if kind is None or kind[1] is None:
            got = f"{str(dataset.schema.field(column).type)[:80]} in column {column!r} of {name}"
            raise InputError(
                f"expected fixed-size lists of float64, float32 or float16, got {got}: write such a column"
            )
        chosen = [one for one in dataset.get_fragments() if fragments is None or one.fragment_id in fragments]
        counts = [one.count_rows() for one in chosen]  # without deleted rows
        self._fragments = [one for one, count in zip(chosen, counts, strict=True) if count]
        self._column, self.name, self.dtype = column, f"{name}#{column}", DTYPES[kind[0]]
        self._firsts = list(itertools.accumulate(filter(None, counts), initial=0))
        self.shape = (self._firsts[-1], kind[1])
        check_shape(self.shape, self.name)
        if fragments is None and len(self._fragments) > 1:
            ids = (one.fragment_id for one in self._fragments)
            sizes = (stop - start for start, stop in itertools.pairwise(self._firsts))
            self.parts = tuple(
                Part(partial(open_lance, url, column, name, (i,)), f"{name} (fragment {i})", (n, kind[1]), self.dtype)
                for i, n in zip(ids, sizes, strict=True)
            )

    def begin(self, row: int) -> int:
        return int(self._firsts[bisect.bisect_right(self._firsts, row) - 1])

    def pieces(self, begin: int) -> Iterator[Array]:
        d = self.shape[1]
        try:
            for fragment in self._fragments[self._firsts.index(begin) :]:
                for batch in fragment.to_batches(columns=[self._column], batch_size=max(1, min(GRID, 2**24 // d))):
                    array = batch.column(0)
                    array = getattr(array, "storage", array)
                    values = array.flatten()
                    if array.null_count or values.null_count or len(values) != d * len(array):
                        raise InputError(f"expected lists of {d} numbers in {self.name}, got a null: fill or drop it")
                    if len(array):
                        yield np.asarray(values.to_numpy()).reshape(len(array), d)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"expected a Lance dataset, got {self.name}, which lance cannot read ({first_line(error)})"
            ) from error
