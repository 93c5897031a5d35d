"""One writer for each format. It gets the rows in order, a block at a time, in the dtype that it stores.

What lies beside the rows in a source of the same format (other arrays, tensors or columns) is written with them, unchanged.
"""

from collections.abc import Callable
from io import BufferedIOBase

from uncone.rows.writers_flat import NpyWriter, NpzWriter, SafetensorsWriter
from uncone.rows.writers_parquet import ParquetRowsWriter
from uncone.rows.writers_plan import Plan, Source, Writer
from uncone.rows.writers_words import GzipWriter, TextWriter, Word2VecWriter

_WRITERS: dict[str, Callable[[BufferedIOBase, Plan, Source], Writer]] = {
    "npy": NpyWriter,
    "npz": NpzWriter,
    "safetensors": SafetensorsWriter,
    "parquet": ParquetRowsWriter,
    "text": TextWriter,
    "gzip": GzipWriter,
    "word2vec": Word2VecWriter,
}


def open_writer(handle: BufferedIOBase, plan: Plan, source: Source) -> Writer:
    """The writer of the plan's format, over a file that is empty yet."""
    return _WRITERS[plan.format](handle, plan, source)
