"""Writer of a Parquet column of lists, with the other columns of the source where that is Parquet too. Needs pyarrow."""

from collections.abc import Iterator
from io import BufferedIOBase
from typing import Any

import numpy as np
import torch

from uncone.errors import InputError
from uncone.memory import uninitialised
from uncone.rows.parquet import ParquetRows
from uncone.rows.writers_flat import refuse_taken
from uncone.rows.writers_plan import Plan, Source

LABELS = "label"
"""The column of labels, where the source has labels and is no Parquet file."""
_GROUP_BYTES = 32 * 2**20
_TYPED = b"huggingface"
"""Metadata in which the libraries of Hugging Face repeat the length of the lists."""


class ParquetRowsWriter:
    """A Parquet file. Row groups are of about 32 MiB of vectors; other columns and the schema's metadata are those of the source."""

    def __init__(self, handle: BufferedIOBase, plan: Plan, source: Source) -> None:
        pa, pq = _pyarrow()
        self._plan, self._pa = plan, pa
        self._beside = _beside(plan, source)
        self._columns = self._beside.schema.names
        schema = self._schema(source)
        self._at = schema.get_field_index(plan.part)
        plain: list[str] = [name for name in schema.names if name != plan.part]
        self._schema_written = schema
        self._writer = pq.ParquetWriter(handle, schema, use_dictionary=plain)
        n, k = plan.shape
        group = min(n, max(1, _GROUP_BYTES // (k * plan.stored.itemsize)))
        self._waiting, self._rows = uninitialised((group, k), plan.stored), 0

    def write(self, rows: torch.Tensor) -> None:
        while len(rows):
            room = self._waiting[self._rows :][: len(rows)]
            room.copy_(rows[: len(room)])
            rows, self._rows = rows[len(room) :], self._rows + len(room)
            if self._rows == len(self._waiting):
                self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._beside.check_end()
        self._writer.close()

    def _flush(self) -> None:
        pa, k = self._pa, self._plan.shape[1]
        values = pa.array(self._waiting[: self._rows].reshape(-1).numpy())
        kind = self._schema_written.field(self._at).type
        kind = getattr(kind, "storage_type", kind)
        if pa.types.is_fixed_size_list(kind):
            lists = pa.FixedSizeListArray.from_arrays(values, type=kind)
        else:
            large = pa.types.is_large_list(kind)
            offsets = pa.array(np.arange(0, self._rows * k + 1, k, dtype=np.int64 if large else np.int32))
            lists = (pa.LargeListArray if large else pa.ListArray).from_arrays(offsets, values, type=kind)
        beside = self._beside.take(self._rows)
        columns = {name: beside.column(i) for i, name in enumerate(self._columns)} | {self._plan.part: lists}
        ordered = [columns[name] for name in self._schema_written.names]
        self._writer.write_table(pa.Table.from_arrays(ordered, schema=self._schema_written))
        self._rows = 0

    def _schema(self, source: Source) -> Any:
        """That of the source with the column of vectors as it will be, or the labels and the vectors."""
        pa, k = self._pa, self._plan.shape[1]
        value = {"float64": pa.float64(), "float32": pa.float32(), "float16": pa.float16()}[self._plan.dtype]
        beside = self._beside
        if beside.vectors is None:
            return beside.schema.append(pa.field(self._plan.part, pa.list_(value)))
        field, at = beside.vectors
        kind = getattr(field.type, "storage_type", field.type)
        if pa.types.is_fixed_size_list(kind):
            kind = pa.list_(kind.value_field.with_type(value), k)
        elif pa.types.is_large_list(kind):
            kind = pa.large_list(kind.value_field.with_type(value))
        else:
            kind = pa.list_(kind.value_field.with_type(value))
        schema = beside.schema.insert(at, pa.field(self._plan.part, kind, field.nullable, field.metadata))
        metadata = {name: text for name, text in (schema.metadata or {}).items() if name != _TYPED}
        same = k == source.rows.shape[1] and self._plan.part == source.part and kind == field.type
        return schema if same else schema.with_metadata(metadata or None)


class _Beside:
    """What stands beside the vectors, read in step with them: (schema, batches), and the field of the vectors with its place."""

    def __init__(self, schema: Any, batches: Iterator[Any], vectors: tuple[Any, int] | None = None) -> None:
        self.schema, self._batches, self.vectors = schema, batches, vectors
        self._rest: Any = None

    def take(self, count: int) -> Any:
        """The next `count` rows as a table."""
        import pyarrow as pa

        if not self.schema.names:
            return pa.table({})
        found, left = [], count
        while left:
            if self._rest is None or not len(self._rest):
                self._rest = next(self._batches, None)
                if self._rest is None:
                    raise InputError(
                        "expected as many rows in every column of the source, got fewer: write it again"
                    )
            found.append(self._rest.slice(0, left))
            left -= len(found[-1])
            self._rest = self._rest.slice(len(found[-1]))
        return pa.Table.from_batches(found, schema=self.schema)

    def check_end(self) -> None:
        """Raise InputError where rows are left over."""
        if self.schema.names and (
            (self._rest is not None and len(self._rest)) or next(self._batches, None) is not None
        ):
            raise InputError("expected as many rows in every column of the source, got more: write it again")


def _beside(plan: Plan, source: Source) -> _Beside:
    pa, _ = _pyarrow()
    if isinstance(source.rows, ParquetRows) and source.format == "parquet":
        return _other_columns(plan, source, source.rows)
    labels = source.rows.labels
    if labels is None:
        return _Beside(pa.schema([]), iter(()))
    if plan.part == LABELS:
        raise InputError(
            f"expected another column of vectors than {LABELS!r}, got {plan.path.name}#{plan.part}: it holds the labels"
        )
    schema = pa.schema([pa.field(LABELS, pa.string())])
    batches = (
        pa.record_batch(
            [pa.array(_texts(labels[start : start + _LABELS_AT_ONCE]), pa.string())], schema=schema
        )
        for start in range(0, len(labels), _LABELS_AT_ONCE)
    )
    return _Beside(schema, batches)


_LABELS_AT_ONCE = 8192


def _texts(labels: Any) -> list[str | None]:
    """As Arrow takes them: lone surrogates, which JSON may hold, are no UTF-8."""
    return [None if label is None else label.encode("utf-8", "replace").decode() for label in labels]


def _other_columns(plan: Plan, source: Source, rows: ParquetRows) -> _Beside:
    """All columns of the source but that of the vectors."""
    _, pq = _pyarrow()

    def opened(path: Any) -> Any:
        return pq.ParquetFile(path, buffer_size=2**20, pre_buffer=False)

    files = [opened(path) for path in rows.files]
    schema = files[0].schema_arrow
    for path, file in zip(rows.files, files, strict=True):
        if not file.schema_arrow.equals(schema):
            raise InputError(
                f"expected the same columns in all parts of {source.path}, got others in {path.name}: write the parts alike, or write .npy"
            )
    at = schema.get_field_index(source.part or "")
    others = schema.remove(at)
    refuse_taken(plan, others.names)
    if len(set(others.names)) < len(others.names):
        raise InputError(
            f"expected columns of different names in {source.path}, got two of one: rename them, or write .npy"
        )

    def batches() -> Iterator[Any]:
        for file in files:
            for batch in file.iter_batches(batch_size=_LABELS_AT_ONCE, columns=others.names):
                yield batch.select(others.names)

    return _Beside(others, _guarded(batches(), source), (schema.field(at), at))


def _guarded(batches: Iterator[Any], source: Source) -> Iterator[Any]:
    """pyarrow raises errors of many kinds over damaged files."""
    while True:
        try:
            batch = next(batches, None)
        except Exception as error:
            told = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise InputError(
                f"cannot read the other columns of {source.path} ({told}): copy or write it again"
            ) from error
        if batch is None:
            return
        yield batch


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            "expected pyarrow for writing .parquet, got none installed: pip install 'uncone[parquet]'"
        ) from error
    return pyarrow, pyarrow.parquet
