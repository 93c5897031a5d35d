"""Numbers in text: parsed at once they are those of `float`, to the bit, or they are said to be doubtful."""

import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from uncone.rows.word_lines import PADDING, parse_decimals


def _parse(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    content = b" ".join(texts) + b" "
    buffer = np.full(len(content) + PADDING, ord("7"), np.uint8)  # what follows must not matter
    buffer[: len(content)] = np.frombuffer(content, np.uint8)
    lengths = np.array([len(text) for text in texts])
    end = np.cumsum(lengths + 1) - 1
    return parse_decimals(buffer, end - lengths, end - lengths + [text.index(b".") for text in texts], end)


def _check(texts: list[bytes]) -> np.ndarray:
    values, doubtful = _parse(texts)
    for text, value, doubt in zip(texts, values.tolist(), doubtful.tolist(), strict=True):
        if not doubt:
            assert value.hex() == float(text).hex(), text
    return doubtful


digits = st.text("0123456789", max_size=18)
signs = st.sampled_from(["", "-"])
decimals = st.builds(lambda sign, whole, rest: f"{sign}{whole}.{rest}".encode(), signs, digits, digits)


@given(st.lists(decimals, min_size=1, max_size=20))
@example([b"9007199254740.993", b"9007199254740.9925", b"0.9007199254740993", b"-0.0", b"00000000.0000000000000000"])
@example([b"99999999.9999999", b"99999999.99999999", b"0.30000000000000004", b"8.5", b".5", b"5.", b"-.5"])
def test_decimals_are_those_of_float(texts: list[bytes]) -> None:
    _check(texts)


@given(st.lists(st.text("0123456789.-+eE_ xnaif\xff", min_size=0, max_size=12), min_size=1, max_size=20))
def test_what_is_no_decimal_is_doubtful(parts: list[str]) -> None:
    for text in [part.replace(".", "").replace(" ", "").encode("latin-1") for part in parts]:
        for at in {0, len(text) // 2, len(text)}:
            _check([text[:at] + b"." + text[at:]]) if text else None


@pytest.mark.parametrize(
    "text",
    [b".", b"-.", b"1.e5", b"1.5e-05", b"a.b", b"1.2x", b"+.5", b"--.5", b"1.-5", b"\xff.1", b"1.\xb1", b"1./", b"1.:"],
)
def test_each_of_these_is_doubtful(text: bytes) -> None:
    assert _parse([text])[1].all()


@pytest.mark.parametrize("form", ["%.5f", "%.6f", "%.8f", "%.10f", "%.15f", "%8.4f"])
def test_what_files_of_vectors_hold_is_never_doubtful(form: str) -> None:
    source = random.Random(0)
    assert not _check([(form % source.gauss(0, 0.5)).strip().encode() for _ in range(20_000)]).any()


def test_float32_in_its_shortest_form_is_seldom_doubtful() -> None:
    numbers = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    texts = [text for text in (str(x).encode() for x in numbers) if b"." in text]
    assert _check(texts).mean() < 0.01  # those with an exponent


def test_no_numbers_at_all() -> None:
    empty = np.empty((0, 3), np.int64)
    values, doubtful = parse_decimals(np.zeros(PADDING, np.uint8), empty, empty, empty)
    assert values.shape == doubtful.shape == (0, 3)
