"""Kills writers at random moments: what each was writing is then absent, old or new, and the next leaves no rest.

    python -m tests.kills --kills 200 --seed 0

A forked child writes one of two contents again and again, and is killed. Folders are written under new names.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import faiss  # noqa: F401  # what a writer imports is here before the forks, as each child would take its time again
import numpy as np
import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
import torch
from safetensors import safe_open

from tests.edits.language_models import saved
from tests.repairs.test_sentence_transformers import _directory, _fitted
from tests.report.records_example import make_diagnosis
from uncone import Moments, atomic, open_rows
from uncone.evaluation.encoding import Encoding
from uncone.model.directory import edited_copy
from uncone.model.files import open_model_files
from uncone.repairs.sentence_transformers import insert_into_directory
from uncone.report import write_html
from uncone.training.gate import RareTokenGate
from uncone.transforms import AllButTheTop, Center
from uncone.transforms.apply import repair_rows
from uncone.transforms.faiss import to_faiss

Writer = Callable[[Path, int], None]
N, D = 1_000, 16
FORMATS = ("npy", "npz", "safetensors", "parquet", "vec", "txt.gz", "bin")
RUNS_OF_A_CHILD_S = 30.0


def rows(version: int) -> torch.Tensor:
    """One of the two contents."""
    return torch.randn(N, D, generator=torch.Generator().manual_seed(version))


def _repaired(source: Path) -> Writer:
    def write(target: Path, version: int) -> None:
        repair_rows(open_rows(source), Center().fit(rows(version)), target, overwrite=True)

    return write


def _cache(target: Path, version: int) -> None:
    """The file of a cache has a name of its own, and is written once: here it is removed first."""
    target.mkdir(exist_ok=True)
    for kept in target.glob("*.npy"):
        kept.unlink()
    encoder = Encoding("", "same", lambda texts, **_: rows(version).numpy(), cache=target)
    encoder.vectors(["text"] * N)


def _gate(target: Path, version: int) -> None:
    gate = RareTokenGate(2000)
    gate.observe(torch.arange(100 * (version + 1)))
    gate.step()
    gate.save(target)


def _text(target: Path, version: int) -> None:
    atomic.write_text(target, json.dumps(rows(version).tolist()))


def file_writers(folder: Path) -> dict[str, Writer]:
    """Everything that writes a file."""
    diagnosis = make_diagnosis()
    found: dict[str, Writer] = {
        "record.json": lambda target, version: diagnosis.save(target) if version else _text(target, version),
        "page.html": lambda target, version: write_html(diagnosis, target) if version else _text(target, version),
        "transformation.safetensors": lambda target, version: AllButTheTop(2).fit(rows(version)).save(target),
        "moments.safetensors": lambda target, version: Moments.of(rows(version)).save(target),
        "faiss.index": lambda target, version: to_faiss(Center().fit(rows(version)), target) and None,
        "gate.safetensors": _gate,
    }
    np.save(folder / "source.npy", rows(0).numpy())
    (folder / "words.vec").write_text(f"{N} {D}\n" + "".join(f"w{i} " + " ".join(["1"] * D) + "\n" for i in range(N)))
    for form in FORMATS:
        source = "words.vec" if form in ("vec", "txt.gz", "bin") else "source.npy"
        found[f"repaired.{form}"] = _repaired(folder / source)
    return found


def folder_writers(folder: Path) -> dict[str, Writer]:
    """Everything that writes a folder."""
    sentences = _directory(folder / "encoder", ["Transformer", "Pooling", "Normalize"])
    model = saved(folder / "model", "LlamaForCausalLM")

    def edit(target: Path, version: int) -> None:
        with edited_copy(open_model_files(model), target, {}):
            pass

    return {
        "edited": edit,
        "encoder": lambda target, version: insert_into_directory(sentences, _fitted(), target) and None,
        "cache": _cache,
    }


def content(path: Path) -> bytes | None:
    """A file, or all files of a folder; None where there is nothing."""
    if path.suffix == ".safetensors" and path.exists():  # whose header stands in another order each time
        with safe_open(path, "pt") as file:
            held = {name: file.get_tensor(name).double().tolist() for name in sorted(file.keys())}
            return repr((sorted((file.metadata() or {}).items()), held)).encode()
    if path.is_dir():
        files = (file for file in sorted(path.rglob("*")) if file.is_file() and file.suffix != ".tmp")
        return repr([(str(file.relative_to(path)), file.read_bytes()) for file in files]).encode()
    return path.read_bytes() if path.exists() else None


def _child(run: Callable[[], None]) -> int:
    """A process of its own for `run`; what it prints of an error reaches the terminal."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        run()
        status = 0
    finally:
        os._exit(status)


def _again(write: Writer, folder: Path, name: str, whole: bool, ready: int) -> None:
    began, i = time.monotonic(), 0
    while time.monotonic() - began < RUNS_OF_A_CHILD_S:
        target = folder / (f"{i}-{name}" if whole else name)
        if i == 1:
            os.write(ready, b"x")
        write(target, i % 2)
        i += 1


def kill(write: Writer, folder: Path, name: str, references: list[bytes], wait: random.Random, *, whole: bool) -> str:
    """Kill one writer. Returns what was left: "old or new", "absent", or what is wrong."""
    reading, ready = os.pipe()
    pid = _child(lambda: _again(write, folder, name, whole, ready))
    os.close(ready)
    os.read(reading, 1)  # the first content stands
    os.close(reading)
    time.sleep(wait.uniform(0, 0.1))
    os.kill(pid, signal.SIGKILL)
    if os.waitpid(pid, 0)[1] != signal.SIGKILL:
        return "the writer failed"
    targets = [path for path in folder.iterdir() if path.name.endswith(name) and not path.name.startswith(".")]
    if any(content(target) not in references for target in targets):
        return "half written"
    left = list(folder.rglob(".*.tmp"))
    interrupted = folder / (f"{len(targets)}-{name}" if whole else name)
    status = os.waitpid(_child(lambda: write(interrupted, 0)), 0)[1]
    if status or content(interrupted) not in references:
        return "the next writer failed"
    after = list(folder.rglob(".*.tmp"))
    if after:
        return "the next writer left a temporary file"
    return f"{'old or new' if targets else 'absent'}{', a temporary file removed' if left and not after else ''}"


def _reference(write: Writer, target: Path, version: int) -> bytes | None:
    target.parent.mkdir(parents=True)
    if os.waitpid(_child(lambda: write(target, version)), 0)[1]:
        raise SystemExit(f"{target.name} cannot be written")
    return content(target)


def main(arguments: list[str] | None = None) -> int:
    """Kill, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)  # a fork has none of its parent's other threads
    wait, wrong = random.Random(asked.seed), 0
    with tempfile.TemporaryDirectory() as scratch:
        sources = Path(scratch) / "sources"
        sources.mkdir()
        writers = {name: (write, False) for name, write in file_writers(sources).items()}
        writers |= {name: (write, name != "cache") for name, write in folder_writers(sources).items()}
        references = dict[str, list[bytes]]()
        for name, (write, _) in writers.items():
            found = [_reference(write, Path(scratch, f"reference-{name}-{v}", name), v) for v in (0, 1)]
            references[name] = [one for one in (*found, b"[]" if name == "cache" else None) if one is not None]
        outcomes = Counter[tuple[str, str]]()
        for i in range(asked.kills):
            name = list(writers)[i % len(writers)]
            write, whole = writers[name]
            folder = Path(scratch) / f"kill-{i}"
            folder.mkdir()
            outcome = kill(write, folder, name, references[name], wait, whole=whole)
            outcomes[name, outcome] += 1
            wrong += not outcome.startswith(("old or new", "absent"))
    for (name, outcome), times in sorted(outcomes.items()):
        print(f"{name:28} {outcome:50} {times:4}")
    print(f"{asked.kills} kills of {len(writers)} writers, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
