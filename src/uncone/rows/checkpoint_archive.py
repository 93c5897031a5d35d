"""The zip file that torch.save writes: where each storage begins in it, checked against the file before torch looks at it."""

import io
import struct
import zipfile

from uncone.errors import InputError
from uncone.rows.bytes import LocalFile
from uncone.rows.checkpoint_instructions import check_instructions

CONVERT = (
    "where you trust the file, load it with PyTorch and save its state_dict with safetensors.torch.save_file; "
    "uncone runs no code of a file"
)
LARGEST_PICKLE = 256 * 2**20
_LOCAL_HEADER = 30  # bytes of a zip member's header before its name


def storages(source: LocalFile) -> dict[int, int]:
    """Where each member of the zip file begins, and how many bytes it has. Members lie there as they are, uncompressed."""
    members = _members(source)
    found = {}
    for member in members.values():
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise InputError(
                f"expected a PyTorch checkpoint that is stored uncompressed, got {source.name} with a compressed member: {CONVERT}"
            )
        start = _start(source, member)
        if start + member.file_size > source.size:
            raise InputError(f"a member of {source.name} ends beyond its {source.size} bytes: the file was cut, copy it again")
        found[start] = member.file_size
    order = _content(source, members["byteorder"]) if "byteorder" in members else b"little"
    if order != b"little":
        raise InputError(
            f"expected a checkpoint of a little-endian machine, got {source.name} of another: load and save it here"
        )
    check_instructions(io.BytesIO(_content(source, members["data.pkl"])), source.name)
    return found


def _members(source: LocalFile) -> dict[str, zipfile.ZipInfo]:
    """The members of the zip file without the name of its one folder."""
    try:
        with zipfile.ZipFile(source.path) as archive:
            listed = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError, struct.error) as error:
        raise InputError(
            f"expected a PyTorch checkpoint, got {source.name}, cut or damaged ({error}): copy it again"
        ) from error
    members = {member.filename.partition("/")[2]: member for member in listed}
    if len({name.lower() for name in members}) < len(listed):  # torch might take the one that is not looked at here
        raise InputError(
            f"expected each member of the zip file {source.name} once, in one folder, got some twice: do not trust this file"
        )
    if "constants.pkl" in members:
        raise InputError(f"expected a PyTorch checkpoint of tensors, got {source.name}, a TorchScript program: {CONVERT}")
    if "data.pkl" not in members:
        raise InputError(
            f"expected a PyTorch checkpoint, got {source.name}, a zip file without data.pkl: give what torch.save wrote"
        )
    if members["data.pkl"].file_size > LARGEST_PICKLE:
        raise InputError(f"expected at most {LARGEST_PICKLE} bytes of names in {source.name}, got more: do not trust this file")
    return members


def _start(source: LocalFile, member: zipfile.ZipInfo) -> int:
    head = bytearray(_LOCAL_HEADER)
    source.read_into(member.header_offset, memoryview(head))
    return member.header_offset + _LOCAL_HEADER + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")


def _content(source: LocalFile, member: zipfile.ZipInfo) -> bytes:
    """Read without the zip file's checksum: torch can be told to write none."""
    content = bytearray(member.file_size)
    source.read_into(_start(source, member), memoryview(content))
    return bytes(content)
