"""The writer of a Parquet column of lists, next to the other columns of a Parquet source."""

from collections.abc import Iterator
from typing import Any

from uncone.errors import InputError
from uncone.memory import uninitialised
from uncone.rows.base import Source, Target, Writer
from uncone.rows.floats import Array
from uncone.rows.parquet import ParquetRows, guarded, pyarrow_parquet

_LABELS = "label"  # the column of labels, for a source that is not a Parquet file
_GROUP_BYTES = 32 * 2**20
_AT_ONCE = 8192  # rows of the other columns


class ParquetRowsWriter(Writer):
    """Row groups of about 32 MiB. Other columns and metadata come from the source."""

    def begin(self, target: Target, source: Source) -> None:
        pq = pyarrow_parquet("writing .parquet")
        import pyarrow as pa

        value = {"float64": pa.float64(), "float32": pa.float32(), "float16": pa.float16()}[target.dtype]
        if isinstance(source.rows, ParquetRows) and source.format == "parquet":
            self._beside, schema = _other_columns(target, source, source.rows, value)
        else:
            self._beside = _labels(target, source)
            schema = self._beside.schema.append(pa.field(target.part, pa.list_(value)))
        self._target, self._schema = target, schema
        self._writer = pq.ParquetWriter(self._handle, schema, use_dictionary=self._beside.names)
        n, k = target.shape
        group = min(n, max(1, _GROUP_BYTES // (k * target.stored.itemsize)))
        self._waiting, self._rows = uninitialised((group, k), target.stored), 0

    def write(self, rows: Array) -> None:
        while len(rows):
            room = self._waiting[self._rows :][: len(rows)]
            room[...] = rows[: len(room)]
            rows, self._rows = rows[len(room) :], self._rows + len(room)
            if self._rows == len(self._waiting):
                self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._beside.check_end()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        n, k = self._rows, self._target.shape[1]
        values = pa.array(self._waiting[:n].reshape(-1))
        lists = pa.FixedSizeListArray.from_arrays(values, k).cast(self._schema.field(self._target.part).type)
        columns = self._beside.take(n) | {self._target.part: lists}
        ordered = [columns[name] for name in self._schema.names]
        self._writer.write_table(pa.Table.from_arrays(ordered, schema=self._schema))
        self._rows = 0


class _Beside:
    """The columns next to the vectors, read in step with them."""

    def __init__(self, schema: Any, batches: Iterator[Any]) -> None:
        self.schema, self._batches, self._rest = schema, batches, schema.empty_table()
        self.names: list[str] = schema.names

    def take(self, count: int) -> dict[str, Any]:
        self._read(count)
        taken, self._rest = self._rest.slice(0, count), self._rest.slice(count)
        if self.names and len(taken) < count:
            raise InputError("expected as many rows in every column of the source, got fewer: write it again")
        return dict(zip(self.names, taken.columns, strict=True))

    def check_end(self) -> None:
        self._read(1)
        if len(self._rest):
            raise InputError("expected as many rows in every column of the source, got more: write it again")

    def _read(self, count: int) -> None:
        import pyarrow as pa

        parts, ready = [self._rest], len(self._rest)
        while self.names and ready < count and (batch := next(self._batches, None)) is not None:
            parts.append(pa.Table.from_batches([batch], schema=self.schema))
            ready += len(batch)
        self._rest = pa.concat_tables(parts)


def _labels(target: Target, source: Source) -> _Beside:
    import pyarrow as pa

    labels = source.rows.labels
    if labels is None:
        return _Beside(pa.schema([]), iter(()))
    if target.part == _LABELS:
        got = f"{target.path.name}#{target.part}, which the labels use"
        raise InputError(f"expected a name other than {_LABELS!r}, got {got}")
    schema = pa.schema([pa.field(_LABELS, pa.string())])

    def batch(start: int) -> Any:
        # Lone surrogates, which JSON may hold, are not UTF-8.
        some = labels[start : start + _AT_ONCE]
        texts = [None if label is None else label.encode("utf-8", "replace").decode() for label in some]
        return pa.record_batch([pa.array(texts, pa.string())], schema=schema)

    return _Beside(schema, map(batch, range(0, len(labels), _AT_ONCE)))


def _other_columns(target: Target, source: Source, rows: ParquetRows, value: Any) -> tuple[_Beside, Any]:
    """The columns except the vectors, and the schema to write, with vectors of `value`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = [pq.ParquetFile(path, buffer_size=2**20, pre_buffer=False) for path in rows.files]
    schema = files[0].schema_arrow
    for path, file in zip(rows.files, files, strict=True):
        if not file.schema_arrow.equals(schema):
            got = f"other columns in {path.name}: write all parts alike, or write .npy"
            raise InputError(f"expected the same columns in all parts of {source.path}, got {got}")
    at = schema.get_field_index(source.part or "")
    others, field = schema.remove(at), schema.field(at)
    target.check_free(others.names)
    if len(set(others.names)) < len(others.names):
        got = "got one name twice: rename a column, or write .npy"
        raise InputError(f"expected different names of columns in {source.path}, {got}")

    def batches() -> Iterator[Any]:
        for path, file in zip(rows.files, files, strict=True):
            with guarded(path):
                for batch in file.iter_batches(batch_size=_AT_ONCE, columns=others.names):
                    yield batch.select(others.names)

    kind, k = getattr(field.type, "storage_type", field.type), target.shape[1]  # of a column of tensors
    inner = kind.value_field.with_type(value)
    length = k if pa.types.is_fixed_size_list(kind) else -1
    kind = pa.large_list(inner) if pa.types.is_large_list(kind) else pa.list_(inner, length)
    written = others.insert(at, pa.field(target.part, kind, field.nullable, field.metadata))
    if k != rows.shape[1] or target.part != source.part or kind != field.type:
        metadata = {
            name: text for name, text in (schema.metadata or {}).items() if name != b"huggingface"
        }  # repeats the length of lists
        written = written.with_metadata(metadata or None)
    return _Beside(others, batches()), written
