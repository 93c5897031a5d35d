"""Only regular files are opened, and nothing else is waited for."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import uncone
from tests.rows.reading import refuses
from uncone import InputError
from uncone.regular import open_regular


def test_a_regular_file_is_read_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"one")
    (tmp_path / "link").symlink_to("x")
    for name in ("x", "link"):
        with open_regular(tmp_path / name) as file:
            assert file.read() == b"one"
            assert not os.get_inheritable(file.fileno())


def test_a_pipe_a_folder_a_device_and_a_socket_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero"), Path("/dev/tty"), tmp_path / "socket"):
            refuses(r"which is a folder, a pipe or a device|cannot read", open_regular, path)


def test_what_cannot_be_opened_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    names = {tmp_path / "none": "No such file", tmp_path / "loop": "symbolic links"}
    names |= {"a\0b": "null", "x" * 5000: "too long"}
    for path, reason in names.items():
        refuses(f"cannot read .*{reason}", open_regular, path)


def test_a_misspelt_name_is_told_with_the_name_beside_it(tmp_path: Path) -> None:
    for name in ("docs.npy", "qrels.tsv", "other\n\x1b.npy"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match=r"no file or folder .*dosc\.npy.*: did you mean 'docs\.npy'\? expected"):
        uncone.open_rows(tmp_path / "dosc.npy")
    refuses(r"No such file or directory: did you mean 'qrels\.tsv'\? give", open_regular, tmp_path / "qerls.tsv")
    refuses(r"did you mean 'other\\n\\x1b\.npy'\?", uncone.open_rows, tmp_path / "other.npy")
    for far in (tmp_path / "x" / "docs.npy", tmp_path / "weights.gguf", ""):
        refuses(r"^(?!.*did you mean)", uncone.open_rows, far)


def test_a_refused_file_leaves_no_descriptor(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(InputError):
        open_regular(tmp_path)
    assert os.listdir("/proc/self/fd") == before


def _readers() -> dict[str, Callable[[Path], object]]:
    """Who reads a file that a user names, by the name of a file that it would take."""
    from uncone.calibration.sides import read_labels
    from uncone.evaluation.text_files import lines_of
    from uncone.model.counts import read_counts
    from uncone.model.text_sources import read_texts
    from uncone.repairs.sentences import read_sentences
    from uncone.rows.ids import places_of
    from uncone.training.monitor.run_file import RunFile
    from uncone.transforms import load

    rows = uncone.open_rows(torch.ones(3, 2))
    tables = ["npy", "npz", "safetensors", "pt", "pth", "ckpt", "bin", "parquet", "gguf"]
    words = ["vec", "txt", "glove", "vec.gz"]
    by_name = {f"x.{suffix}": uncone.open_rows for suffix in tables + words}
    by_name |= {f"text.{suffix}": read_texts for suffix in ("txt.xz", "txt", "jsonl", "parquet")}
    by_name |= {f"counts.{suffix}": lambda path: read_counts(path, 3) for suffix in ("tsv", "npy")}
    by_name |= {f"texts.{suffix}": lambda path: list(lines_of(path)) for suffix in ("txt", "txt.gz")}
    return by_name | {
        "pairs.tsv": lambda path: read_labels(path, {}, None, match_at=None),
        "ids.txt": lambda path: places_of(rows, path),
        "sentences.gz": read_sentences,
        "sentences.txt": read_sentences,
        "moments.safetensors": uncone.Moments.load,
        "gate.safetensors": uncone.RareTokenGate(3).load,
        "repair.safetensors": load,
        "run.jsonl": lambda path: RunFile(path, {}),
    }


@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path), lambda path: os.symlink(path, path)]
)
def test_readers_refuse_what_is_no_file_and_wait_for_nothing(tmp_path: Path, make: Callable[[Path], None]) -> None:
    for name, read in _readers().items():
        make(tmp_path / name)
        if name == "run.jsonl" and not (tmp_path / name).exists():  # nothing to go on with
            continue
        with pytest.raises(InputError):
            read(tmp_path / name)
