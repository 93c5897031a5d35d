"""Decimal numbers in text as float64, many at once, each the one that `float` gives.

A number of up to 8 digits, a point and up to 16 digits is m / 10^k with whole m and k. Where m is below 2^53 both are exact
in float64 and the quotient is rounded once, so that it is the nearest float64 to the decimal (Clinger, 1990, the fast path).
Eight digits at a time are turned into a whole number inside one 64-bit word. What has another form is left to the caller.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

PADDING = 32
"""Bytes that must follow the last number in the text: words of 8 are read beyond its end."""
_POWERS = np.array([float(f"1e{k}") for k in range(17)])
_MOST_EXACT = 2.0**53
_MINUS, _ZERO = ord("-"), ord("0")


def parse_decimals(
    text: Bytes, start: Places, point: Places, end: Places
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """The numbers text[start:end] with a '.' at `point`, and which of them are doubtful.

    Args:
        text: the bytes, with `PADDING` more after the last number.
        start, point, end: int64 of one shape, start <= point < end.

    Returns:
        Values and doubts of that shape. A value without a doubt equals `float(text[start:end])` to the bit; one with a doubt
        means nothing: its text has an exponent, too many digits, or is no number.
    """
    words = text[: len(text) // 8 * 8].view("<u8")
    negative = text.take(start) == _MINUS
    first = start + negative
    whole, doubtful = _whole_part(text, words, first, point)
    after = point + 1
    count = end - after
    doubtful |= count + (point - first) == 0
    most = int(count.max(initial=0))
    if most <= 8:
        fraction, wrong = _digits(words, after, count)
        scale = _POWERS.take(count)
        value = whole * scale
    else:
        doubtful |= count > 16
        count = np.minimum(count, 16)
        later = np.maximum(count - 8, 0)
        fraction, wrong = _digits(words, after, count - later)
        rest, wrong_rest = _digits(words, after + 8, later)
        scale = _POWERS.take(count)
        value = whole * scale
        value += rest
        fraction *= _POWERS.take(later)
        wrong |= wrong_rest
    value += fraction
    doubtful |= wrong
    if most + 8 > 15:
        doubtful |= value >= _MOST_EXACT
    value /= scale
    return np.copysign(value, 0.5 - negative), doubtful


def _whole_part(
    text: Bytes, words: Words, first: Places, point: Places
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """What stands before the point, and where that is no number of up to 8 digits."""
    count = point - first
    if (count == 1).all():  # as in nearly all files of vectors
        digit = text.take(first) ^ _ZERO
        return digit.astype(np.float64), digit > 9
    long = count > 8
    value, wrong = _digits(words, first, np.minimum(count, 8))
    return value, wrong | long


def _digits(words: Words, at: Places, count: Places) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """The whole numbers of `count` (0 to 8) digits that begin at byte `at`, and where another character is among them."""
    index = at >> 3
    bits = ((at & 7) << 3).astype(np.uint64)
    packed = words.take(index)
    packed >>= bits
    packed |= words.take(index + 1) << (np.uint64(64) - bits)  # a shift by 64 gives 0 in NumPy
    packed ^= np.uint64(0x3030303030303030)
    packed <<= ((8 - count) << 3).astype(np.uint64)  # what follows the number goes, and zeros come before it
    wrong = packed + np.uint64(0x7676767676767676)  # a byte above 9 gets its highest bit
    wrong |= packed
    wrong &= np.uint64(0x8080808080808080)
    # Pairs of digits, then of pairs, then of fours, all at once.
    packed *= np.uint64(10 * 2**8 + 1)
    packed >>= np.uint64(8)
    packed &= np.uint64(0x00FF00FF00FF00FF)
    packed *= np.uint64(100 * 2**16 + 1)
    packed >>= np.uint64(16)
    packed &= np.uint64(0x0000FFFF0000FFFF)
    packed *= np.uint64(10000 * 2**32 + 1)
    packed >>= np.uint64(32)
    return packed.astype(np.float64), wrong != 0
