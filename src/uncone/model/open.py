"""From a spec to `Rows` (arrays, files, the matrices of any kind of model) and to the files that it reads."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from uncone.errors import InputError, UnconeError
from uncone.model.adapter import open_adapter
from uncone.model.files import ModelFiles, is_adapter, open_model_files
from uncone.model.gguf import find_gguf, is_model_file, open_gguf
from uncone.model.hugging_face import cached_snapshot, open_tokenizer
from uncone.model.places import LanguageModel, language_model
from uncone.model.sentence_transformers import is_sentence_transformers, open_sentence_transformers, read_modules
from uncone.regular import misspelt
from uncone.roles import DOWNLOADING, Path_, Progress
from uncone.rows import Rows, as_samples, without_nonfinite
from uncone.rows.floats import DTYPES
from uncone.rows.lance import open_lance
from uncone.rows.open import KINDS, format_of, is_there, open_elsewhere, open_file, split_part
from uncone.rows.parquet import is_parquet_folder
from uncone.rows.parts import Engine
from uncone.rows.remote.address import Address, address_of, is_remote
from uncone.rows.remote.open import open_remote
from uncone.rows.shards import is_glob, is_npy_folder, joined, named_files

Spec = Path_


@dataclass(eq=False)
class Opened(os.PathLike[str]):
    """What a spec names, found once. It can be used as the spec, and keeps what was opened."""

    spec: str
    path: Path  # exists; for a model's name, the cached snapshot
    part: str | None  # after the '#'
    name: str  # for reports: never a whole path of this machine

    @property
    def full_name(self) -> str:
        return self.name if self.part is None else f"{self.name}#{self.part}"

    def __fspath__(self) -> str:
        return self.spec

    __str__ = __fspath__

    @cached_property
    def is_model(self) -> bool:
        """Whether it has a table and a head, and is not only a file of tensors."""
        is_rows = self.path.suffix == ".lance" or is_parquet_folder(self.path)
        return (self.path.is_dir() and not is_rows) or is_model_file(self.path)

    @cached_property
    def model(self) -> LanguageModel:
        return open_language_model(self.path)

    @cached_property
    def files(self) -> ModelFiles:
        return self.model.files or open_model_files(self.path)

    @cached_property
    def rows(self) -> Rows:
        return _open_matrix(self)[1] if self.is_model else open_file(self.path, self.part)

    @cached_property
    def tokenizer(self) -> Any:
        if not is_sentence_transformers(self.path):
            return open_tokenizer(self.path)
        return open_tokenizer(self.path / read_modules(self.path)[0]["path"]) or open_tokenizer(self.path)


@dataclass(eq=False)
class OpenedRemote(Opened):
    """What a URL names. Nothing is requested before it is used. Show the `spec`: the address may hold a password."""

    address: Address
    allow_full: bool = False  # even if the server serves no parts

    @cached_property
    def is_model(self) -> bool:
        return format_of(self.name) is None

    @cached_property
    def model(self) -> LanguageModel:
        from uncone.model.remote import remote_model

        return remote_model(self.address, partial(open_remote, allow_full=self.allow_full))

    @cached_property
    def rows(self) -> Rows:
        if self.is_model:
            return _open_matrix(self)[1]
        if format_of(self.name) == "lance":
            return open_lance(self.address.url, self.part, self.address.name)
        return open_elsewhere(open_remote(self.address, allow_full=self.allow_full), self.part)

    @cached_property
    def tokenizer(self) -> Any:
        return refuse_elsewhere(self, " to read a text with")


@dataclass(eq=False)
class OpenedMany(Opened):
    """What a glob or a folder of `.npy` names."""

    specs: tuple[str, ...]
    engine: Engine | None = None
    skip_damaged: bool = False
    allow_full: bool = False

    @cached_property
    def is_model(self) -> bool:
        return False

    @cached_property
    def rows(self) -> Rows:
        opened = partial(open_rows, allow_full=self.allow_full)
        return joined(self.specs, self.full_name, opened, self.engine, skip_damaged=self.skip_damaged)


@dataclass(frozen=True)
class Subjects:
    """The matrices a diagnosis is about, (name, rows) each, and notes on the others."""

    spec: Any  # `Opened`, or what is in memory
    name: str
    rows: tuple[tuple[str, Rows], ...]
    notes: tuple[str, ...] = ()
    cap: float | None = None  # the cap of the model's logits; under a cap, the head's mean has an effect
    editable: bool = False  # a directory of transformers, whose rows `repair_tokens` can set


def open_rows(spec: Any, *, skip_nonfinite: bool = False, allow_full: bool = False) -> Rows:
    """Open a matrix that is read block by block. Nothing is loaded, and only a URL touches the network.

    Args:
        spec: one of - a tensor, NumPy array, list or DataFrame (N, D); a DataFrame or Series (pandas, polars)
            with one column of lists, where a column `id` gives the ids of rows; - `file.npy`; `file.npz`, or
            `file.npz#key` when it holds several matrices; - `file.parquet` or a folder of such files, with
            `#column` when several columns hold lists of floats; - word vectors: text (`.vec`, `.txt`, `.glove`,
            `.vec.gz`, `.txt.gz`), or word2vec binary (`.bin`); - `file.safetensors`, or `file.safetensors#tensor` when
            it holds several matrices; - `file.pt`, `.pth`, `.ckpt` or `.bin` as `torch.save` writes them,
            with `#tensor` when they hold several; - `MODEL#input` or `MODEL#head`: the token table or output
            head of a model, or `MODEL#tensor` for any other of its tensors. A model is a directory of
            transformers or Sentence Transformers, the name of a cached model (NAME or NAME@REVISION), or a GGUF
            file. - a URL of a `.safetensors`, `.npy` or `.parquet` file, or of a folder of transformers with
            `#head`, `#input` or `#tensor`: `hf://ORG/MODEL`, `https://`, or `s3://` and other stores of fsspec. Only
            ranges of bytes are read: headers, and the rows each time they are used. Nothing is kept on disk.
        skip_nonfinite: leave out rows with NaN or inf (`left_out` of the result names them). This costs one pass.
        allow_full: if a server serves no parts of a file, load the whole file into memory.

    Returns:
        `Rows` with `shape`, `dtype`, `name`, `labels` (token strings or words, if any) and
            `blocks()`.

    Raises:
        InputError: the source is missing, cut, pickled, not a matrix of floats, empty, or lacks the tensor.
        UnsupportedModel: the table or head cannot be found in the model's files.

    Example:
        >>> import numpy, uncone
        >>> uncone.open_rows(numpy.ones((3, 2), dtype="float32")).shape
        (3, 2)
    """
    rows = _allowing(spec, allow_full).rows if isinstance(spec, str | os.PathLike) else as_samples(spec)
    return without_nonfinite(rows) if skip_nonfinite else rows


def open_subjects(
    spec: Any,
    *,
    skip_nonfinite: bool = False,
    skip_damaged: bool = False,
    allow_full: bool = False,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Subjects:
    """A model's table and head, or the matrix that `spec` names, for several passes. `engine` works on its shards."""
    if isinstance(spec, str | os.PathLike):
        spec = _allowing(spec, allow_full)
        if isinstance(spec, OpenedMany):
            spec = replace(spec, engine=engine, skip_damaged=skip_damaged)
        elif skip_damaged:
            raise InputError(f"expected shards with --skip-damaged, got {spec.name}: leave out the option")
    opened = _open_subjects(spec)
    opened = replace(opened, notes=(*opened.notes, *(note for _, rows in opened.rows for note in rows.notes)))
    by_engine([rows for _, rows in opened.rows], engine)
    here = dict[str, Rows]()  # a tied head is the table, and comes with it
    for name, rows in opened.rows:
        if rows.name not in here:
            here[rows.name] = at_hand(name, rows, progress)
    opened = replace(opened, rows=tuple((name, here[rows.name]) for name, rows in opened.rows))
    if not skip_nonfinite:
        return opened

    def kept(name: str, rows: Rows) -> Rows:
        if progress is None:
            return without_nonfinite(rows)
        what, n = f"{name}: looking for rows that are not finite", rows.shape[0]
        return without_nonfinite(rows, lambda done: progress(what, done, n))

    return replace(opened, rows=tuple((name, kept(name, rows)) for name, rows in opened.rows))


def by_engine(of_spec: Sequence[Rows], engine: Engine | None) -> None:
    """Let an engine work on the shards of rows. InputError: the rows have no shards."""
    if engine is None:
        return
    for rows in of_spec:
        if not rows.parts:
            raise InputError(
                f"expected shards with --workers or --engine, got {rows.name}: leave them out for a single file"
            )
        rows.engine = engine


def open_at_hand(
    spec: Any, name: str, *, skip_nonfinite: bool, progress: Progress | None, engine: Engine | None = None
) -> Rows:
    """`open_rows`, for rows that are read several times."""
    rows = at_hand(name, open_rows(spec), progress)
    by_engine([rows], engine)
    return without_nonfinite(rows) if skip_nonfinite else rows


def at_hand(name: str, rows: Rows, progress: Progress | None) -> Rows:
    return rows.at_hand(progress and partial(progress, f"{name}: {DOWNLOADING}"))


def _allowing(spec: Spec, allow_full: bool) -> Opened:
    opened = open_spec(spec)
    if allow_full and isinstance(opened, OpenedRemote | OpenedMany):
        return replace(opened, allow_full=True)
    return opened


def split(spec: Spec) -> tuple[Path, str | None]:
    opened = open_spec(spec)
    return opened.path, opened.part


def open_whole(spec: Spec, use: str = "") -> Opened:
    opened = open_spec(spec)
    if opened.part is not None:
        raise InputError(f"expected a whole model{use}, got its part #{opened.part}: leave that out")
    refuse_elsewhere(opened, use)
    return opened


def refuse_elsewhere(opened: Opened, use: str = "") -> None:
    if isinstance(opened, OpenedRemote):
        raise InputError(f"expected a model on this machine{use}, got {opened.name}: download it first")


def open_spec(spec: Spec) -> Opened:
    if isinstance(spec, Opened):
        return spec
    text = os.fspath(spec)
    if len(text) > 4000 or "\0" in text:
        raise InputError(f"expected {KINDS}, got a text of {len(text)} characters: give a path or a name")
    name, part = split_part(text, names=True)
    if part != "" and not is_there(name) and is_glob(name):
        end = "" if part is None else f"#{part}"
        shown = address_of(name).name if is_remote(name) else name
        return OpenedMany(
            f"{shown}{end}", Path(shown), part, shown, tuple(f"{file}{end}" for file in named_files(name))
        )
    if part is None and is_there(name) and is_npy_folder(Path(name)):
        files = sorted(str(file) for file in Path(name).glob("[!_.]*.npy"))
        return OpenedMany(text, Path(name), None, "/".join(Path(name).resolve().parts[-2:]), tuple(files))
    if is_remote(name) and not is_there(name):
        address = address_of(name)
        if part == "":
            raise InputError(f"expected a tensor's name after '#', got {address.name}#: name it, or leave out the '#'")
        end = "" if part is None else f"#{part}"
        return OpenedRemote(f"{address.name}{end}", Path(address.name), part, address.name, address)
    is_path = is_there(name)
    path = Path(name) if is_path else cached_snapshot(name)
    if path is None:
        raise InputError(
            f"no file or folder {name!r}, and no model of that name in the Hugging Face cache: {misspelt(name)}"
            f"expected {KINDS}; uncone downloads nothing by name, but can read hf://{name[:200]}"
        )
    if part == "":
        raise InputError(f"expected a tensor's name after '#', got {text!r}: name it, or leave out the '#'")
    return Opened(text, path, part, "/".join(path.resolve().parts[-2:]) if is_path else name)


def _open_subjects(spec: Any) -> Subjects:
    opened = open_spec(spec) if isinstance(spec, str | os.PathLike) else None
    if opened is None or not opened.is_model:
        rows = as_samples(spec) if opened is None else opened.rows
        return Subjects(opened or spec, Path(rows.name).name, (("rows", rows),))
    if opened.part is None and is_adapter(opened.path):
        adapter = open_adapter(opened.path)
        return Subjects(opened, opened.name, tuple(adapter.whole_tables().items()), adapter.notes)
    if opened.part is None:
        return _open_model(opened)
    matrix = _open_matrix(opened, by_kind=True)
    if is_adapter(opened.path):
        return Subjects(opened, opened.full_name, (matrix,))
    cap = opened.model.cap if matrix[0] == "head" else None
    notes, editable = (_capped(cap),) if cap else (), (opened.path / "config.json").is_file()
    return Subjects(opened, opened.full_name, (matrix,), notes, cap, editable)


def _capped(cap: float) -> str:
    why = "because adding a vector to all of its rows changes probabilities"
    return f"The model caps its logits at {cap:g}. Its head is read as stored, {why}."


def _open_matrix(opened: Opened, *, by_kind: bool = False) -> tuple[str, Rows]:
    """As `Adapter.matrix`."""
    path, part = opened.path, opened.part
    if part is not None and is_adapter(path):
        return open_adapter(path).matrix(part, by_kind=by_kind)
    model = opened.model
    if part is None:
        way_out = f"give {path}#input, {path}#head or {path}#TENSOR"
        raise InputError(f"expected one matrix of the model {path}, got the whole model: {way_out}")
    if part not in ("input", "head"):
        rows, kinds = model.rows(part), {}
        if by_kind:
            with suppress(UnconeError):
                places = model.places()
                kinds = {places.head: "head", places.input: "input"}
        return (kinds[part], model.rows(part, with_tokens=True)) if part in kinds else ("rows", rows)
    places = model.places()
    tensor = places.input if part == "input" else places.head
    if tensor is None:
        why = f"{places.why}; open its token table as {path}#input"
        raise InputError(f"expected a model with an output head, got {path}: {why}")
    return part, model.rows(tensor, with_tokens=True)


def _open_model(opened: Opened) -> Subjects:
    model = opened.model
    places = model.places()
    named = (("input", places.input), ("head", places.head))
    rows = [(name, model.rows(tensor, with_tokens=True)) for name, tensor in named if tensor is not None]
    notes = [places.why] if places.head is None else []
    if places.head is not None and model.cap is not None:
        notes.append(_capped(model.cap))
    if places.tied:
        how = "as table and as head" if model.cap else "as table and, with its mean removed, as head"
        notes.append(f"The output head is tied to the token table. This one matrix is read {how}.")
    kinds = sorted({matrix.dtype for _, matrix in rows} - set(DTYPES))
    if kinds:
        notes.append(f"The rows are stored as {' and '.join(kinds)} and dequantised for reading.")
    cap = None if places.head is None else model.cap
    return Subjects(opened, opened.name, tuple(rows), tuple(notes), cap, (opened.path / "config.json").is_file())


def open_language_model(path: Path) -> LanguageModel:
    if path.is_file():
        return open_gguf(path)
    if is_sentence_transformers(path):
        return open_sentence_transformers(path)
    if not (path / "config.json").is_file() and (file := find_gguf(path)) is not None:
        return open_gguf(file)
    return language_model(open_model_files(path))
