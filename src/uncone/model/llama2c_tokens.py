"""The tokenizer file of llama2.c: for each token its score and its bytes, as `tokenizer.py` of karpathy/llama2.c exports them."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uncone.errors import InputError
from uncone.rows.bytes import LocalFile

SPACE = "▁"
UNKNOWN, BEGIN, END = "<unk>", "<s>", "</s>"
LARGEST_TOKENIZER = 256 * 2**20
_FIRST_BYTE = 3  # <unk>, <s>, </s>, then the 256 bytes


@dataclass(frozen=True)
class Pieces:
    """The tokens as SentencePiece spells them, and their scores: the higher one is merged first."""

    pieces: Sequence[str]
    scores: Sequence[float]
    no_text: Sequence[int] = ()
    """The ids of tokens whose bytes are no UTF-8: run.c prints them as they are, and `pieces` has U+FFFD in their place."""


def find_tokenizer(model: Path, n: int) -> Path | None:
    """The tokenizer file beside a model of `n` tokens: tokN.bin, or tokenizer.bin."""
    candidates = (model.with_name(f"tok{n}.bin"), model.with_name("tokenizer.bin"))
    return next((file for file in candidates if file.is_file()), None)


def read_tokenizer(path: Path, n: int) -> Pieces:
    """The `n` tokens of a tokenizer file.

    The export wrote spaces for SentencePiece's "▁", and a line break around <s> and </s>; this is undone.

    Raises:
        InputError: cut, or not a tokenizer of `n` tokens.
    """
    source = LocalFile(path)
    if source.size > LARGEST_TOKENIZER or source.size < 4 + 8 * n:
        raise _not(source, n, f"{source.size} bytes")
    content = source.head(source.size)
    pieces, scores, no_text, at = list[str](), list[float](), list[int](), 4
    for index in range(n):
        if at + 8 > len(content):
            raise _not(source, n, f"a file that ends after {index} tokens")
        score, length = struct.unpack_from("<fI", content, at)
        at += 8
        if at + length > len(content):
            raise _not(source, n, f"a token {index} of {length} bytes")
        piece = bytes(content[at : at + length])
        pieces.append(_piece(index, piece))
        scores.append(score)
        if pieces[-1] != byte_piece(index) and not _is_text(piece):
            no_text.append(index)
        at += length
    if at != len(content):
        raise _not(source, n, "more tokens than that")
    return Pieces(pieces, scores, no_text)


def byte_piece(index: int) -> str | None:
    """What SentencePiece calls the token that stands for one byte, or None where the id is none of these."""
    byte = index - _FIRST_BYTE
    return f"<0x{byte:02X}>" if 0 <= byte < 256 else None


def _piece(index: int, content: bytes) -> str:
    text = content.decode("utf-8", "replace")
    if index < _FIRST_BYTE:
        return (
            (UNKNOWN, BEGIN, END)[index]
            if text.strip() == (UNKNOWN, BEGIN, END)[index]
            else text.replace(" ", SPACE)
        )
    byte = byte_piece(index)
    if byte is not None and (
        text in (byte, chr(index - _FIRST_BYTE)) or content == bytes([index - _FIRST_BYTE])
    ):
        return byte  # earlier exports wrote the character itself, and a byte is a byte
    return text.replace(" ", SPACE)


def _is_text(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _not(source: LocalFile, n: int, came: str) -> InputError:
    return InputError(
        f"expected a llama2.c tokenizer of {n} tokens in {source.name}, got {came}: give the one the model was trained with"
    )
