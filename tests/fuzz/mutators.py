"""Damage to bytes: at random, and to what lies in them: JSON headers, zip entries, lines of text, integers."""

import contextlib
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable

from tests.fuzz.trees import HUGE, SPIKES, mutant, nested

Mutator = Callable[[bytes, bytes, random.Random], bytes]
"""(content, another valid file of the format, random) -> damaged content."""
_NEAR = (0, 1, -1, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)
_EXTREMES = (*_NEAR, 2**53, 2**62, 2**63 - 1, -(2**63))
_NUMBERS = (b"", b"nan", b"inf", b"-inf", b"1e999", b"0x10", b"1_0", b"\xd9\xa1", b"9" * 400)
_MARKS = (b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"-1", b"0", b"x" * 100_000, b"\xe2\x80\xa8", b"\r", b"\t", b"\n")
_WORDS = (*_NUMBERS, *_MARKS, b"99999999999999999999", b"<script>")
_CELLS = (b"", b"x", b"0", b"1", b"-1", b"nan", b"inf", b"1e308", b"1e-320")
_SHAPES = ("-1", "0", "1", "1.0", "True", "2**9", "9" * 30, "'3'", "()", "1" * 5000, "37L", "None", str(HUGE))


def flip_bits(content: bytes, other: bytes, rng: random.Random) -> bytes:
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 32))):
        found[_near_an_end(len(found), rng)] ^= 1 << rng.randrange(8)
    return bytes(found)


def overwrite(content: bytes, other: bytes, rng: random.Random) -> bytes:
    at, length = _near_an_end(len(content), rng), rng.choice((1, 2, 4, 8, 64))
    filler = rng.choice((b"\0", b"\xff", b"\x80", b"9", b"[", b'"', rng.randbytes(1)))
    return content[:at] + (filler * length)[: len(content) - at] + content[at + length :]


def cut(content: bytes, other: bytes, rng: random.Random) -> bytes:
    return content[: _near_an_end(len(content), rng)]


def cut_within(content: bytes, other: bytes, rng: random.Random) -> bytes:
    at = _near_an_end(len(content), rng)
    return content[:at] + content[at + rng.choice((1, 2, 4, 7, 100)) :]


def extend(content: bytes, other: bytes, rng: random.Random) -> bytes:
    return content + rng.choice((b"\0", b"\n", content, rng.randbytes(rng.choice((1, 4, 1000)))))


def insert(content: bytes, other: bytes, rng: random.Random) -> bytes:
    at = _near_an_end(len(content), rng)
    return content[:at] + rng.choice(_WORDS) + content[at:]


def splice(content: bytes, other: bytes, rng: random.Random) -> bytes:
    return content[: _near_an_end(len(content), rng)] + other[_near_an_end(len(other), rng) :]


def set_integer(content: bytes, other: bytes, rng: random.Random) -> bytes:
    size = struct.calcsize(rng.choice("bhiqq"))
    if len(content) < size:
        return content
    at = _near_an_end(len(content) - size + 1, rng)
    value = rng.choice(_EXTREMES) & (2 ** (8 * size) - 1)
    return content[:at] + value.to_bytes(size, rng.choice(("little", "little", "big"))) + content[at + size :]


def json_text(content: bytes, other: bytes, rng: random.Random) -> bytes:
    return _damaged_json(content, rng)


def _cut_header(content: bytes) -> tuple[bytes, bytes]:
    end = 8 + int.from_bytes(content[:8], "little")
    return content[8:end], content[end:]


def safetensors_header(content: bytes, other: bytes, rng: random.Random) -> bytes:
    header, rest = _cut_header(content)
    header = _damaged_json(header, rng)
    return len(header).to_bytes(8, "little") + header + rest


def metadata_value(content: bytes, other: bytes, rng: random.Random) -> bytes:
    """JSON in a text of JSON, as saved transformations hold it."""
    first, rest = _cut_header(content)
    header = json.loads(first)
    kept = header.get("__metadata__") or {}
    if not kept:
        return safetensors_header(content, other, rng)
    key = rng.choice(sorted(kept))
    with contextlib.suppress(ValueError, RecursionError):
        kept[key] = _damaged_json(kept[key].encode(), rng).decode("utf-8", "replace")
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + rest


def numpy_header(content: bytes, other: bytes, rng: random.Random) -> bytes:
    length = int.from_bytes(content[8:10], "little")
    header = content[10 : 10 + length].decode("latin-1")
    number = rng.choice(_SHAPES)
    order, kind = rng.choice(("True", "1", "None")), rng.choice(("'>f", "'<i", "'|O"))
    names = (("False", order), ("'<f", kind), ("'shape'", "'shap'"), ("}", ", 'more': 1}"))
    shapes = [("(41, 8)", shape) for shape in ("(41, 8, 1)", "(8, 37)", "(" * 300)]
    swaps = (("(41,", f"({number},"), (", 8)", f", {number})"), *names, *shapes)
    header = header.replace(*rng.choice(swaps)).rstrip() + "\n"
    return content[:8] + len(header).to_bytes(2, "little") + header.encode("latin-1") + content[10 + length :]


def zip_entries(content: bytes, other: bytes, rng: random.Random) -> bytes:
    """An archive written anew with one entry damaged, renamed, doubled, left out, emptied or packed otherwise."""
    entries = _entries(content)
    if not entries:
        return flip_bits(content, other, rng)
    at, way = rng.randrange(len(entries)), rng.randrange(7)
    name, inner = entries[at]
    if way == 0:
        entries[at] = (rng.choice(("../x", "/x", "x" * 3000, "", "x\\y", name.upper(), name + "/")), inner)
    elif way == 1:
        entries.append((name, inner[::-1]))
    elif way == 2:
        del entries[at]
    else:
        last = numpy_header if name.endswith(".npy") else insert
        damage = rng.choice((flip_bits, overwrite, cut, extend, set_integer, last))
        entries[at] = (name, b"" if way == 3 else damage(inner, inner, rng) if inner else b"x")
    packing = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    return _archive(entries, packing)


def record_of_another_size(content: bytes, other: bytes, rng: random.Random) -> bytes:
    """A record of numbers is shorter or longer than what its tensor needs; all else of the archive fits."""
    entries = _entries(content)
    at = rng.choice([i for i, (name, inner) in enumerate(entries) if "/data/" in name and inner] or [-1])
    if at < 0:  # the format from before PyTorch 1.6
        return flip_bits(content, other, rng)
    name, inner = entries[at]
    length = rng.choice((0, 1, len(inner) - 1, len(inner) + 1, 2 * len(inner), rng.randrange(len(inner))))
    entries[at] = (name, (inner + rng.randbytes(len(inner)))[:length])
    return _archive(entries, zipfile.ZIP_STORED)


def _entries(content: bytes) -> list[tuple[str, bytes]]:
    """The names and contents of an archive; nothing of what is none."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return [(item.filename, archive.read(item)) for item in archive.infolist()]
    except (zipfile.BadZipFile, ValueError, OSError):
        return []


def _archive(entries: list[tuple[str, bytes]], packing: int) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", packing) as archive:
        for name, inner in entries:
            archive.writestr(name, inner)
    return target.getvalue()


def sealed_record(content: bytes, other: bytes, rng: random.Random) -> bytes:
    """A value in a line of JSON is another, and its checksum stays."""
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    lines[at] = json.dumps(mutant(json.loads(lines[at]), rng)).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def text_lines(content: bytes, other: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    at, way = rng.randrange(len(lines)), rng.randrange(9)
    if way == 0:
        lines.insert(at, lines[rng.randrange(len(lines))])
    elif way == 1:
        del lines[at]
    elif way == 2:
        lines[at] = b""
    elif way == 3:
        rng.shuffle(lines)
    elif way == 8:
        lines = _with_column(lines, rng)
    elif way == 4:
        return content.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n")))
    else:
        separator = next((mark for mark in (b"\t", b";", b",") if mark in lines[at]), b" ")
        words = lines[at].split(separator)
        words[rng.randrange(len(words))] = rng.choice(_WORDS)
        lines[at] = rng.choice((separator, separator, b"\t", b"  ")).join(words)
    return b"\n".join(lines)


def _with_column(lines: list[bytes], rng: random.Random) -> list[bytes]:
    """Every cell of one column below the header is the same."""
    separator = next((mark for mark in (b"\t", b";", b",") if mark in lines[0]), b" ")
    cells = [line.split(separator) for line in lines]
    at, cell = rng.randrange(len(cells[0])), rng.choice(_CELLS)
    return [lines[0], *(separator.join([*row[:at], cell, *row[at + 1 :]]) for row in cells[1:])]


_BYTES: tuple[Mutator, ...] = (flip_bits, overwrite, cut, cut_within, extend, insert, splice, set_integer)
_OF_A_FORMAT: dict[tuple[str, ...], tuple[Mutator, ...]] = {
    (".json",): (json_text,),
    (".safetensors", ".part", "sums"): (safetensors_header, metadata_value),
    (".npy",): (numpy_header,),
    (".npz",): (zip_entries,),
    (".pt", "pytorch_model.bin"): (zip_entries, record_of_another_size),
    (".jsonl",): (sealed_record, text_lines),
    (".txt", ".vec", ".tsv", ".csv"): (text_lines,),
}


def mutators_of(name: str) -> tuple[Mutator, ...]:
    """The ways to damage a file of that name; those that know its format come as often as the others together."""
    known = next((known for ends, known in _OF_A_FORMAT.items() if name.endswith(ends)), ())
    return (*_BYTES, *(known * (len(_BYTES) // max(1, len(known)))))


def damaged(name: str, content: bytes, other: bytes, rng: random.Random) -> bytes:
    """The content of a file of that name with one to three damages."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not content:
            break
        try:
            content = rng.choice(mutators_of(name))(content, other or content, rng)
        except Exception:  # what a first damage left is no file of the format
            content = flip_bits(content, other or content, rng)
    return content


def _near_an_end(length: int, rng: random.Random) -> int:
    """A place: in the first or last 300 bytes as often as anywhere, since headers lie there."""
    if length <= 1:
        return 0
    place = rng.random()
    if place >= 0.6:
        return rng.randrange(length)
    near = rng.randrange(min(300, length))
    return near if place < 0.4 else length - 1 - near


def _damaged_json(text: bytes, rng: random.Random) -> bytes:
    way = rng.randrange(10)
    if way < 7:
        return json.dumps(mutant(json.loads(text), rng, times=rng.choice((1, 1, 2)))).encode("utf-8", "surrogatepass")
    values = [json.dumps(value) for value in SPIKES]
    shown = text.decode("utf-8", "replace")
    if way == 7:  # keys that stand twice
        keys = [part for part in shown.split('"')[1::2] if part]
        twice = f'{{"{rng.choice(keys)}": {rng.choice(values)}, ' if keys else "{"
        return shown.replace("{", twice, 1).encode("utf-8", "surrogatepass") if keys else text
    whole = rng.choice((nested(), "[" * 100_000, '{"a":' * 10_000 + "1" + "}" * 10_000, "9" * 10_000, *values))
    if way == 8:
        return whole.encode("utf-8", "surrogatepass")
    return shown.replace(rng.choice(("1", "0", "null", "true", "[]")), whole, 1).encode("utf-8", "surrogatepass")
