"""Tokens as text: byte-level vocabularies against the tokenizers library, and all others left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, pre_tokenizers

from uncone.records.token_text import is_byte_level, shown_token, token_texts

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
WORDS = ("Ġthe", "Ġof", "ing", "ĠSanta", "âĢĻ", "<|endoftext|>", "Ċ", "Ġ", "ĠĠĠĠ", "é", "Ã©", "æĹ¥æľ¬", "âĢ")
VOCABULARY = [*ALPHABET, *WORDS]


def _texts(*labels: str) -> list[str | None]:
    """The texts of these tokens in a byte-level vocabulary."""
    return token_texts([*VOCABULARY, *labels], range(len(VOCABULARY), len(VOCABULARY) + len(labels)))


def test_byte_level_tokens_by_hand() -> None:
    texts = _texts("Ġthe", "âĢĻ", "Ã©", "æĹ¥æľ¬", "Ċ", "ĠĠ", "<|endoftext|>", "<added one>", "###", "")
    assert texts == [" the", "’", "é", "日本", "\n", "  ", "<|endoftext|>", "<added one>", "###", ""]
    assert _texts("âĢ", "ĠâĢ", "é") == ["\\xe2\\x80", " \\xe2\\x80", "\\xe9"]


@given(st.text(max_size=40))
def test_spelled_bytes_are_read_as_the_tokenizers_library_reads_them(text: str) -> None:
    spelling = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelled = "".join(piece for piece, _ in spelling.pre_tokenize_str(text))
    assert _texts(spelled) == [decoders.ByteLevel().decode([spelled])] == [text]


WORD_PIECES = ["the", "##ing", "é", "ą", "Ġ", *map(str, range(100))]
SENTENCE_PIECES = ["▁the", "▁of", "ing", "é", "Ġ", *(f"▁{n}" for n in range(100))]
EVERY_LETTER = [*ALPHABET, *(f"▁{n}" for n in range(300))]  # among other tokens
MALTESE = ["Ġgant", "ħobż", "żejt", "ċavetta", "Għawdex"]


@pytest.mark.parametrize("labels", [WORD_PIECES, SENTENCE_PIECES, EVERY_LETTER, MALTESE, [None, None], [], [""]])
def test_other_vocabularies_are_left_alone(labels: list[str | None]) -> None:
    assert not is_byte_level(labels)
    assert token_texts(labels, range(len(labels))) == labels


def test_a_byte_level_vocabulary_is_known_by_its_spaces_or_its_letters() -> None:
    assert is_byte_level(["Ġthe", "Ġof", "ing", "a"])
    assert is_byte_level([*ALPHABET, None, "日".join(ALPHABET[:3])])
    assert not is_byte_level(ALPHABET[:-1])
    assert is_byte_level([f"Ġ{n}" for n in range(50_000)])


def test_texts_are_cut_and_missing_labels_stay_missing() -> None:
    assert token_texts(None, [3, 4]) == [None, None]
    assert token_texts([*VOCABULARY, None], [len(VOCABULARY)]) == [None]
    assert len(_texts("Ġ" + "a" * 1000)[0] or "") == 200


def test_spaces_are_seen_at_an_end_and_beside_each_other() -> None:
    shown = {" the": "␣the", "the ": "the␣", "    ": "␣␣␣␣", "New York": "New York", "a  b": "a␣␣b", "\n": "\\n"}
    shown |= {"▁the": "▁the", "##ing": "##ing", "\u202e": "\\u202e", "": ""}
    assert {token: shown_token(token) for token in shown} == shown
    assert shown_token(" " + "a" * 60, 24) == "␣" + "a" * 22 + "…"
