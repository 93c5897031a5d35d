"""One Parquet file as a part of a matrix: its columns, its row groups, and batches of a column. Needs pyarrow, the extra `parquet`."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from uncone.errors import InputError
from uncone.rows.base import GRID
from uncone.rows.bytes import LocalFile
from uncone.rows.names import nearest
from uncone.rows.parquet_lists import value_type
from uncone.rows.sequential import SequentialFile

T = TypeVar("T")
LABEL_COLUMNS = ("token", "word", "label", "name", "title", "text", "id")
"""Columns of text that are taken for labels; the first that is there."""
LONGEST_LABEL = 80
FLOATING = "float64, float32 or float16"
DTYPES = {"halffloat": "float16", "float": "float32", "double": "float64"}
_BUFFER_BYTES = 2**20
_WHOLE_BYTES = 16 * 2**20
"""A file of at most so many bytes is read a column chunk at a time, and a larger one through a buffer."""


@dataclass(frozen=True)
class Kind:
    """What the lists of a column are: the name of Arrow's type of their values, and their length where the type says it."""

    value: str
    length: int | None

    def __str__(self) -> str:
        return f"lists of {self.value}" if self.length is None else f"lists of {self.length} {self.value}"


@dataclass(frozen=True)
class Part:
    """One Parquet file: its number of rows, and the first row of each row group that has any."""

    path: Path
    schema: Any
    rows: int
    groups: list[int]
    group_numbers: list[int]

    def kind(self, column: str) -> Kind:
        index = self.schema.get_all_field_indices(column)
        if len(index) != 1:
            if index:
                raise InputError(
                    f"expected one column {column!r} in {self.path}, got {len(index)} of that name: rename them"
                )
            raise InputError(f"no column {column!r} in {self.path}{nearest(column, self.schema.names)}")
        found = value_type(self.schema.field(index[0]).type)
        if found is None or str(found[0]) not in DTYPES:
            raise InputError(
                f"expected lists of {FLOATING} in column {column!r} of {self.path}, got {str(self.schema.field(index[0]).type)[:80]}: "
                "write a column of lists, one vector each, of a floating type"
            )
        return Kind(str(found[0]), found[1])

    def label_column(self) -> str | None:
        """The first column of text that may name the rows."""
        import pyarrow as pa

        text = {
            field.name
            for field in self.schema
            if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
        }
        return next((name for name in LABEL_COLUMNS if name in text), None)

    def labels(self, column: str) -> Iterator[str | None]:
        """The texts of a column. Each text that stands twice is decoded once, however long it is and however often it stands there."""
        count = 0
        for array in self.batches(column, GRID, as_dictionary=True):
            count += len(array)
            yield from _guarded(self.path, partial(_shortened, array))
        self.check_count("labels", count)

    def check_count(self, what: str, count: int) -> None:
        """Raise InputError unless so many rows came as the footer says: pages may hold others, and pyarrow hands on what is there."""
        if count != self.rows:
            got = "more" if count > self.rows else count
            raise InputError(
                f"the footer of {self.path} lies: {self.rows} {what}, got {got}; copy or write the file again"
            )

    def batches(
        self, column: str, size: int, group: int = 0, *, as_dictionary: bool = False
    ) -> Iterator[Any]:
        """The column from row group `group` on (of those with rows), as Arrow arrays of `size` rows."""
        file = _guarded(self.path, lambda: _parquet_file(self.path, [column] if as_dictionary else None))
        reader = _guarded(
            self.path,
            lambda: file.iter_batches(
                batch_size=size, row_groups=self.group_numbers[group:], columns=[column]
            ),
        )
        while (batch := _guarded(self.path, lambda: next(reader, None))) is not None:
            array = batch.column(batch.schema.get_field_index(column))
            if len(array):
                yield getattr(array, "storage", array)


def open_part(path: Path) -> Part:
    """The schema and the row groups of a file.

    Raises:
        InputError: pyarrow is missing; no such file; no Parquet, or a footer that contradicts itself.
    """
    file = _guarded(path, partial(_parquet_file, path))
    # Not a word of a column's own metadata: pyarrow 26 ends the process over some that are damaged.
    metadata, schema = file.metadata, _guarded(path, lambda: file.schema_arrow)
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    if metadata.num_rows != sum(rows) or min(rows, default=0) < 0:
        raise InputError(
            f"the footer of {path} lies: {metadata.num_rows} rows in row groups of {sum(rows)}; copy or write the file again"
        )
    numbers = [i for i, count in enumerate(rows) if count]
    firsts = list(itertools.accumulate((rows[i] for i in numbers), initial=0))[:-1]
    return Part(path, schema, sum(rows), firsts, numbers)


def _parquet_file(path: Path, dictionaries: list[str] | None = None) -> Any:
    source = LocalFile(path)  # its errors, before pyarrow's
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(
            f"expected pyarrow for reading {path}, got none installed: pip install 'uncone[parquet]'"
        ) from error
    # With a buffer pyarrow makes room for a page as large as its header says, up to 2 GiB. Without one it reads a whole column chunk
    # first, and a page can be no larger; of a file of Python it takes no more than there is.
    is_small = source.size <= _WHOLE_BYTES
    return pq.ParquetFile(
        SequentialFile(source) if is_small else path,
        buffer_size=0 if is_small else _BUFFER_BYTES,
        pre_buffer=False,
        read_dictionary=dictionaries,
    )


def _guarded(path: Path, work: Callable[[], T]) -> T:
    """What `work` gives. pyarrow raises errors of many kinds over damaged files."""
    try:
        return work()
    except InputError:
        raise
    except Exception as error:
        told: str = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise InputError(
            f"expected a Parquet file, got {path} which pyarrow does not read ({told}): copy or write it again"
        ) from error


def _shortened(array: Any) -> list[str | None]:
    """Texts as labels. Those that are no UTF-8, which Parquet does not rule out, get U+FFFD and cost nothing else."""
    import pyarrow as pa
    import pyarrow.compute as pc

    used = pc.unique(array.indices).drop_null()
    texts = array.dictionary.take(used)
    texts = texts.cast(pa.large_binary() if pa.types.is_large_string(texts.type) else pa.binary())
    cut = pc.binary_slice(texts, 0, 4 * LONGEST_LABEL).to_pylist()
    labels = [None if text is None else text.decode("utf-8", "replace")[:LONGEST_LABEL] for text in cut]
    of = dict(zip(used.to_pylist(), labels, strict=True))
    return [of.get(index) for index in array.indices.to_pylist()]
