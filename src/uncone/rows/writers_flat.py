"""Writers of plain matrices: `.npy`, one array of a `.npz`, one tensor of a safetensors file."""

import zipfile
from collections.abc import Iterable
from io import BufferedIOBase
from pathlib import Path
from typing import cast

import numpy as np
import torch

from uncone.errors import InputError
from uncone.rows.bytes import LocalFile
from uncone.rows.safetensors import CODES, Entry, header_bytes, raw_bytes, read_header, read_metadata
from uncone.rows.writers_plan import Plan, Source

_COPIED_BYTES = 2**20


def refuse_taken(plan: Plan, names: Iterable[str]) -> None:
    """Raise InputError where the rows are to have the name of something else that is written with them."""
    if plan.part in names:
        raise InputError(
            f"expected a name that is free, got {plan.path.name}#{plan.part}, which the source has too: choose another"
        )


class NpyWriter:
    """A `.npy` file, row-major and little-endian."""

    def __init__(self, handle: BufferedIOBase, plan: Plan, source: Source | None = None) -> None:
        self._handle = handle
        header = {
            "descr": np.dtype(plan.dtype).newbyteorder("<").str,
            "fortran_order": False,
            "shape": plan.shape,
        }
        np.lib.format.write_array_header_1_0(handle, header)

    def write(self, rows: torch.Tensor) -> None:
        self._handle.write(raw_bytes(rows))

    def close(self) -> None:
        """Nothing follows the last row."""


class NpzWriter:
    """A `.npz` file: the other arrays of the source, then the rows, not deflated."""

    def __init__(self, handle: BufferedIOBase, plan: Plan, source: Source) -> None:
        self._zip = zipfile.ZipFile(handle, "w", zipfile.ZIP_STORED)
        member = f"{plan.part}.npy"
        if source.format == "npz" and source.path is not None:
            self._copy_others(source.path, f"{source.part}.npy", plan)
        self._stream = cast(BufferedIOBase, self._zip.open(zipfile.ZipInfo(member), "w", force_zip64=True))
        self._rows = NpyWriter(self._stream, plan)

    def write(self, rows: torch.Tensor) -> None:
        self._rows.write(rows)

    def close(self) -> None:
        self._stream.close()
        self._zip.close()

    def _copy_others(self, path: Path, but: str, plan: Plan) -> None:
        try:
            with zipfile.ZipFile(path) as archive:
                others = [
                    entry for entry in archive.infolist() if entry.filename != but and not entry.is_dir()
                ]
                refuse_taken(plan, [entry.filename.removesuffix(".npy") for entry in others])
                for entry in others:
                    self._copy(archive, entry)
        except InputError:
            raise
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
            raise InputError(
                f"cannot copy the other arrays of {path} ({error}): save it again with numpy.savez"
            ) from error

    def _copy(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
        """One member as it is: never loaded, so that what is pickled stays so."""
        kept = zipfile.ZipInfo(entry.filename, entry.date_time)
        kept.compress_type = entry.compress_type
        with archive.open(entry) as inner, self._zip.open(kept, "w", force_zip64=True) as outer:
            while piece := inner.read(_COPIED_BYTES):
                outer.write(piece)


class SafetensorsWriter:
    """A safetensors file: the rows as one tensor, between the other tensors and the metadata of the source where it is one."""

    def __init__(self, handle: BufferedIOBase, plan: Plan, source: Source) -> None:
        self._handle, self._file = handle, None
        entries, metadata = dict[str, Entry](), {"format": "pt"}
        if source.format == "safetensors" and source.path is not None:
            self._file = LocalFile(source.path)
            entries, metadata = read_header(self._file), read_metadata(self._file)
            entries.pop(source.part or "", None)
            refuse_taken(plan, entries)
        n, k = plan.shape
        ours = Entry(CODES[plan.dtype], plan.shape, 0, n * k * plan.stored.itemsize)
        laid = sorted(entries.items(), key=lambda item: item[1].start)
        self._others = [entry for _, entry in laid]
        self._handle.write(header_bytes([(plan.part, ours), *laid], metadata))

    def write(self, rows: torch.Tensor) -> None:
        self._handle.write(raw_bytes(rows))

    def close(self) -> None:
        for entry in self._others:
            assert self._file is not None
            for start in range(entry.start, entry.stop, _COPIED_BYTES):
                piece = bytearray(min(_COPIED_BYTES, entry.stop - start))
                self._file.read_into(start, memoryview(piece))
                self._handle.write(piece)
