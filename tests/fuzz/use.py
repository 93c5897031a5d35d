"""Open a file and read all of it, and read it again with an independent reader where there is one."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from tests.fuzz.corpus import D, N, Seed
from tests.fuzz.records import use_record
from tests.fuzz.states import ChangedError, use_checkpoints, use_count, use_gate, use_layers, use_run
from tests.fuzz.tables import TableError, use_curves, use_losses, use_pairs, use_runs
from tests.gguf_files import gguf
from tests.matrices import gaussian
from uncone import Calibration, InputError, Moments, UnconeError, calibrate, open_rows, transforms
from uncone.calibration.sides import read_labels
from uncone.evaluation.retrieval import read_judgements
from uncone.model.counts import read_counts
from uncone.model.files import token_labels
from uncone.records.load import load_record
from uncone.repairs.sentences import read_sentences
from uncone.rows import as_rows
from uncone.rows.ids import places_of

Array = np.ndarray[Any, Any]
MOST_NUMBERS = 10**7
"""Of a matrix that is kept whole to be compared."""
IDS = {f"id{i}": i for i in range(N)}


class WrongError(Exception):
    """A file opened, and what was read is not what it holds."""


WRONG = (WrongError, ChangedError, TableError, AssertionError)
"""What says that a damaged file was believed."""


def use(seed: Seed, path: Path) -> Callable[[], None]:
    """Read all of `path`, a damaged copy of the seed; what is returned compares it with the independent answer.

    Raises:
        UnconeError: it was refused, and so was every matrix in it.
    """
    if seed.reader in _OTHERS:
        return _OTHERS[seed.reader](path) or (lambda: None)
    read: dict[str, Array | None] = {}
    refused: UnconeError | None = None
    for part in seed.parts:
        try:
            read[part] = _matrix(f"{path}#{part}" if part else path)
        except UnconeError as error:
            refused = error
    if not read and refused is not None:
        raise refused

    def compare() -> None:
        for part, matrix in read.items():
            if matrix is not None:
                _compare(seed.reader, path, part, matrix)

    return compare


def _matrix(spec: str | Path) -> Array | None:
    rows = open_rows(spec)
    n, d = rows.shape
    if rows.labels is not None and len(rows.labels) != n:
        raise WrongError(f"{len(rows.labels)} labels for {n} rows")
    if (keys := rows.keys) is not None and len(keys) != n:
        raise WrongError(f"{len(keys)} ids for {n} rows")
    kept, seen = [], 0
    for block in rows.blocks():
        if block.ndim != 2 or block.shape[1] != d or block.dtype not in (np.float32, np.float64):
            raise WrongError(f"a block {block.shape} of {block.dtype} in {rows.shape}")
        seen += len(block)
        if n * d <= MOST_NUMBERS:
            kept.append(block.copy())
    if seen != n:
        raise WrongError(f"{seen} rows in blocks, {n} in the shape")
    return np.concatenate(kept) if kept else None


def _compare(reader: str, path: Path, part: str, found: Array) -> None:
    expected = _ORACLES[reader](path, part)
    if expected is None:
        return
    choices = [np.asarray(one) for one in (expected if isinstance(expected, list) else [expected])]
    with np.errstate(all="ignore"):
        alike = [one.astype(found.dtype) for one in choices if one.shape == found.shape]
        if not any(np.array_equal(one, found, equal_nan=True) for one in alike):
            other = f"differs from the independent reader's, {choices[0].shape}"
            raise WrongError(f"{part or 'the matrix'} of shape {found.shape} {other}")


def _safetensors(path: Path, part: str) -> Array:
    found = load_file(path)
    if not part:  # without a name the only matrix of floats is opened, whatever it is called
        (part,) = (name for name, t in found.items() if t.ndim == 2 and t.is_floating_point() and t.numel())
    return found[part].double().numpy()


def _checkpoint(path: Path, part: str) -> Array | None:
    """None where torch gives memory as it was: twice, it gives two answers."""
    _check_records(path)
    one, other = _loaded(path, part), _loaded(path, part)
    return one if np.array_equal(one, other, equal_nan=True) else None


def _check_records(path: Path) -> None:
    """torch refuses a record of another size than its storage, unless it maps the file."""
    try:
        torch.load(path, weights_only=True, map_location="cpu")
    except RuntimeError as error:
        if "record size" in str(error):
            raise WrongError(str(error)[:200]) from error
        raise


def _loaded(path: Path, part: str) -> Array:
    found = torch.load(path, weights_only=True, map_location="cpu")
    if part in found if isinstance(found, dict) else False:
        return found[part].double().numpy()
    for key in part.split(".", 1) if part else ():
        found = found[key]
    return found.double().numpy()


def _parquet(path: Path, part: str) -> Array:
    import pyarrow.parquet as pq

    return np.array(pq.read_table(path, use_threads=False).column(part or "x").to_pylist(), dtype=np.float64)


def _words(path: Path, part: str) -> Array:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = [line for line in content.decode().replace("\r\n", "\n").split("\n") if line]
    first = re.split(r"[ \t]+", lines[0].rstrip())
    if len(first) == 2 and all(word.isdigit() for word in first):
        lines, width = lines[1:], int(first[1])
    else:
        width = len(first) - 1
    fields = [re.split(r"[ \t]+", line.rstrip())[-width:] for line in lines]
    if any("_" in field or not field.isascii() for line in fields for field in line):
        raise ValueError("float takes 1_0 and digits of other scripts, the format does not")
    return np.array([[float(field) for field in line] for line in fields])


def _binary(path: Path, part: str) -> Array:
    head, _, content = path.read_bytes().partition(b"\n")
    n, d = map(int, head.split())
    found = []
    for _ in range(n):
        content = content.lstrip(b"\n").partition(b" ")[2]
        found.append(np.frombuffer(content[: 4 * d], "<f4"))
        content = content[4 * d :]
    return np.array(found)


def _gguf(path: Path, part: str) -> Array | None:
    tensor = next(one for one in gguf.GGUFReader(path).tensors if one.name == part)
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type)


def _model(path: Path, part: str) -> list[Array]:
    return [t.double().numpy() for file in path.rglob("*.safetensors") for t in load_file(file).values()]


_ORACLES: dict[str, Callable[[Path, str], Any]] = {
    "npy": lambda path, part: np.load(path, allow_pickle=False),
    "npz": lambda path, part: np.load(path, allow_pickle=False)[part or "arr_0"],
    "safetensors": _safetensors,
    "checkpoint": _checkpoint,
    "parquet": _parquet,
    "words text": _words,
    "words binary": _binary,
    "gguf": _gguf,
    "model": _model,
}


def _transformation(path: Path) -> Callable[[], None]:
    loaded = transforms.load(path)
    found = loaded.repair if isinstance(loaded, transforms.Normalized) else loaded
    d = found.d if isinstance(found, transforms.Affine) else found.fitted_.d
    if d > 10**4:
        raise InputError("wider than what is tried")
    x = gaussian(5, d, dtype=torch.float64)
    y = found.transform(x)
    if loaded is not found:
        norms = loaded.transform(x).norm(dim=1)
        assert bool(((norms - 1).abs() < 1e-9).logical_or(norms == 0).all())
    affine = found if isinstance(found, transforms.Affine) else getattr(found, "affine_", None)

    def compare() -> None:
        if affine is None:
            return
        t = load_file(path)
        moved = (x - t["shift"]) @ t["weight"] if "weight" in t else x - t["shift"]
        moved = moved + t.get("offset", torch.zeros(1, dtype=torch.float64))
        torch.testing.assert_close(y, moved, msg=lambda told: f"wrong: {told}")

    return compare


def _record(path: Path) -> None:
    use_record(path)
    record = load_record(path)
    if isinstance(record, Calibration):
        calibrate(gaussian(60, D).numpy(), against=record).to_json()


def _moments(path: Path) -> None:
    found = Moments.load(path)
    if found.n:
        found.mean()


def _tokens(path: Path) -> None:
    found = token_labels(path.parent, N)
    if found.labels is None:
        raise InputError(found.note or "")
    if len(found.labels) != N:
        raise WrongError("another number of labels")


_OTHERS: dict[str, Callable[[Path], Callable[[], None] | None]] = {
    **dict.fromkeys(("table", "results", "trainer state", "events"), use_curves),
    "runs": use_runs,
    "losses": use_losses,
    "text pairs": use_pairs,
    "count state": use_count,
    "layer state": use_layers,
    "kept checkpoints": use_checkpoints,
    "gate state": use_gate,
    "run": use_run,
    "record": _record,
    "transformation": _transformation,
    "moments": _moments,
    "sentences": lambda path: (read_sentences(path), None)[1],
    "tokens": _tokens,
    "counts": lambda path: (read_counts(path, N, [f"w{i}" for i in range(N)]), None)[1],
    "pairs": lambda path: (read_labels(path, IDS, None, match_at=None), None)[1],
    "judgements": lambda path: (read_judgements(path, IDS, IDS), None)[1],
    "ids": lambda path: (places_of(as_rows(np.eye(N)), path), None)[1],
}
