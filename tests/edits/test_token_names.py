"""Tokens by name: ids, spans, strings with commas, hyphens, digits and spaces, and names of no token."""

import pytest

from uncone.edits.repair_tokens import TokenNames, are_ids
from uncone.errors import InputError

LABELS = ["<pad>", "a", "-", ",", "a,b", "7", "<|user|>", "<|end-of-turn|>", "Hello", " b ", "a,b,c", None, "3-4", "b"]
NAMES = TokenNames(lambda: LABELS)
LISTS = [("3,8-10", [3, 8, 9, 10]), (" 3 , 4", [3, 4]), ("7", [7]), ("3-4", [3, 4])]  # tokens are named 7 and 3-4, too
LISTS += [("<|user|>", [6]), ("<|user|>, <|end-of-turn|>", [6, 7]), ("1,<|user|>,2-3", [1, 6, 2, 3]), (",", [3])]
LISTS += [("a,b", [4]), ("a,b,c", [10]), ("a,Hello", [1, 8]), ("a,b,a", [4, 1])]
LISTS += [("-", [2]), (" b ", [9]), ("  b", [13])]


@pytest.mark.parametrize(("text", "ids"), LISTS)
def test_a_list_of_names(text: str, ids: list[int]) -> None:
    assert NAMES.in_list(text) == ids


def test_the_lines_of_a_file_are_ids_or_one_string_each() -> None:
    assert NAMES.in_lines(["3 4, 8-9\n", "\n", "a,b\n".rstrip("\n"), " b ", "<|user|>"]) == [3, 4, 8, 9, 4, 9, 6]


def test_a_byte_level_vocabulary_is_read_as_spelled_and_as_text() -> None:
    letters = [*"abcdefghij", "Ġ", *(f"Ġ{c}{d}" for c in "abcdefgh" for d in "abcdefgh")]
    names = TokenNames(lambda: letters)
    assert names.in_list("Ġab") == names.in_list(" ab") == [letters.index("Ġab")]
    assert names.in_list("a") == [0]


def test_a_name_of_no_token_or_of_two_is_refused() -> None:
    for text, message in (
        ("<|usr|>", r"got '<\|usr\|>': did you mean '<\|user\|>'"),
        ("3,zzzzzz", r"got 'zzzzzz': give ids or token strings such as 3,90-99,<\|user\|>"),
        ("5-3", "got '5-3'"),
        ("0-999999", "at most 100,000"),
        ("", "got ''"),
    ):
        with pytest.raises(InputError, match=message):
            NAMES.in_list(text)
    with pytest.raises(InputError, match="expected a token string with one id, got 'x' with ids 0, 1: give the id"):
        TokenNames(lambda: ["x", "x"]).in_list("x")
    with pytest.raises(InputError, match="no tokenizer file that gives its token strings"):
        TokenNames(lambda: None).in_list("x")


def test_ids_alone_need_no_token_strings() -> None:
    def labels() -> None:
        raise AssertionError("the tokenizer was read")

    assert TokenNames(labels).in_list("3,90-92") == [3, 90, 91, 92]
    assert are_ids("3, 90-92")
    assert not are_ids("3,a")
