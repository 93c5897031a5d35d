"""Only regular files are opened, and nothing else is waited for."""

import os
import socket
from pathlib import Path

import pytest

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
            with pytest.raises(InputError, match=r"which is a folder, a pipe or a device|cannot read"):
                open_regular(path)


def test_what_cannot_be_opened_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for path, reason in (
        (tmp_path / "none", "No such file"),
        (tmp_path / "loop", "symbolic links"),
        ("a\0b", "null"),
        ("x" * 5000, "too long"),
    ):
        with pytest.raises(InputError, match=f"cannot read .*{reason}"):
            open_regular(path)


def test_a_refused_file_leaves_no_descriptor(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(InputError):
        open_regular(tmp_path)
    assert os.listdir("/proc/self/fd") == before
