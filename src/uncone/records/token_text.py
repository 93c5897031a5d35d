"""Token strings as text: letters that stand for bytes are decoded, and spaces at either end are marked."""

import re
from collections.abc import Sequence

from uncone.records.text import cut_label, shortened

_PLAIN = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = (byte for byte in range(256) if byte not in _PLAIN)
_BYTES = {chr(byte): byte for byte in _PLAIN} | {chr(256 + n): byte for n, byte in enumerate(_OTHERS)}
"""The byte of each letter, as byte-level BPE spells them (Radford et al. 2019, `bytes_to_unicode`)."""
_LETTERS = frozenset(_BYTES)
_SPACES = re.compile("^ +| +$| {2,}")


def token_texts(labels: Sequence[str | None] | None, rows: Sequence[int]) -> list[str | None]:
    """The labels of `rows` for a record, at most 200 characters each. Byte-level labels are decoded (`"Ġthe"` becomes
    `" the"`). Bytes that are not text on their own stay visible, as `"\\xe2\\x80"`."""
    if labels is None:
        return [None] * len(rows)
    spelled = is_byte_level(labels)
    chosen = (labels[row] for row in rows)
    return [cut_label(_read(label) if spelled and label is not None else label) for label in chosen]


def is_byte_level(labels: Sequence[str | None]) -> bool:
    """Whether tokens spell bytes as letters, as in GPT-2 and Llama 3: nearly all hold only these 256 letters, and
    either `Ġ`, the space, begins more than one in a hundred, or all 256 letters are tokens."""
    some = [label for label in labels[:: len(labels) // 20_000 + 1] if label]
    if sum(_LETTERS.issuperset(label) for label in some) < max(1, 0.95 * len(some)):
        return False
    if sum(label.startswith("Ġ") for label in some) > 0.01 * len(some):
        return True
    return {label for label in labels if label is not None and len(label) == 1} >= _LETTERS


def _read(label: str) -> str:
    if not _LETTERS.issuperset(label):  # an added token, which is text
        return label
    return bytes(map(_BYTES.__getitem__, label)).decode("utf-8", "backslashreplace")


def shown_token(token: str, length: int = 40) -> str:
    """`shortened`, with a mark for each space at an end or next to another one."""
    return shortened(_SPACES.sub(lambda spaces: "␣" * len(spaces[0]), token), length)
