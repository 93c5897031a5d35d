import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.evaluation.word_tokenizers import SPACE, WORDS, byte_level, metaspace, normalised_spaces, wordpiece
from tests.rows.reading import refuses
from uncone.evaluation.word_vocabulary import vocabulary_of


@pytest.mark.parametrize(
    ("tokenizer", "leading_space", "spelled"),
    [
        (byte_level(), True, "Ġriver"),
        (byte_level(add_prefix_space=True), False, "Ġriver"),  # as RoBERTa saved with add_prefix_space
        (wordpiece(), False, "river"),
        (metaspace(), False, f"{SPACE}river"),
        (metaspace(prepend="never"), True, f"{SPACE}river"),
        (normalised_spaces(), False, f"{SPACE}river"),
    ],
)
def test_a_word_alone_gets_the_piece_that_it_has_in_a_text(tokenizer: Any, leading_space: bool, spelled: str) -> None:
    found = vocabulary_of(tokenizer)
    assert found.leading_space is leading_space
    assert found.ids("river") == (tokenizer.token_to_id(spelled),)
    assert "12 of 12 probe words" in found.described


def test_the_name_of_the_directory_decides_nothing(tmp_path: Path) -> None:
    """The released code reads a copy of GPT-2 under another name without spaces, and one called gpt2 with."""
    for name, tokenizer, leading_space in (("mine", byte_level(), True), ("gpt2-like", wordpiece(), False)):
        (tmp_path / name).mkdir()
        tokenizer.save(str(tmp_path / name / "tokenizer.json"))
        assert vocabulary_of(tmp_path / name).leading_space is leading_space


def test_saved_padding_and_truncation_change_no_word_and_stay_with_the_caller() -> None:
    tokenizer = wordpiece()
    tokenizer.enable_padding(length=8)
    tokenizer.enable_truncation(max_length=1)
    found = vocabulary_of(tokenizer)
    assert found.ids("river") == (tokenizer.token_to_id("river"),)
    assert len(found.ids("rivers")) == 2
    assert tokenizer.padding is not None


def test_unknown_words_have_no_ids() -> None:
    assert vocabulary_of(wordpiece()).ids("naïve") == ()
    assert vocabulary_of(metaspace()).ids("naïve") == ()
    assert vocabulary_of(wordpiece()).ids("") == ()


def test_a_tokenizer_that_fails_on_a_word_has_no_ids_for_it() -> None:
    """WordPiece without its unknown token raises on letters it lacks."""
    tokenizer = Tokenizer(models.WordPiece({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found = vocabulary_of(tokenizer)
    assert found.ids("naïve") == ()
    assert found.ids("river") == (WORDS.index("river"),)
    assert "12 of 12" in found.described


def test_what_the_files_beside_call_unknown_is_refused(tmp_path: Path) -> None:
    """GPT-2 names <|endoftext|> as its unknown token, in the configuration only."""
    byte_level((*WORDS, "rivers")).save(str(tmp_path / "tokenizer.json"))
    assert vocabulary_of(tmp_path).ids("river") != ()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"unk_token": {"content": "Ġriver"}}))
    assert vocabulary_of(tmp_path).ids("river") == ()
    (tmp_path / "tokenizer_config.json").write_text("[" * 100_000)
    assert vocabulary_of(tmp_path).ids("river") != ()


def test_case_is_left_to_the_tokenizer() -> None:
    assert vocabulary_of(wordpiece()).ids("River") == ()  # R is no piece
    lower = wordpiece(lowercase=True)
    assert vocabulary_of(lower).ids("River") == (lower.token_to_id("river"),)


def test_labels_are_matched_exactly_and_the_first_row_counts() -> None:
    found = vocabulary_of(["a", None, "b", "a", "B"])
    assert [found.ids(word) for word in ("a", "b", "B", "A", "c")] == [(0,), (2,), (4,), (), ()]


@given(st.lists(st.one_of(st.none(), st.text(max_size=3)), min_size=1, max_size=20))
@settings(deadline=None, max_examples=50)
def test_a_label_leads_to_a_row_of_that_label(labels: list[str | None]) -> None:
    if all(label is None for label in labels):
        refuses("expected words for the rows", vocabulary_of, labels)
        return
    found = vocabulary_of(labels)
    for label in {label for label in labels if label is not None}:
        assert found.ids(label) == (labels.index(label),)


def test_what_is_no_vocabulary(tmp_path: Path) -> None:
    refuses("expected words for the rows, got rows without labels", vocabulary_of, None)
    refuses(r"expected tokenizer.json in .*put the model's there", vocabulary_of, tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    refuses(r"expected a tokenizer in .*tokenizer.json", vocabulary_of, tmp_path)


@pytest.mark.slow
def test_the_files_of_a_slow_tokenizer_are_opened_by_transformers(minilm: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    for name in ("vocab.txt", "config.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((minilm / name).read_bytes())
    found, whole = vocabulary_of(tmp_path), vocabulary_of(minilm)
    words = ("River", "provincialism", "日本")
    assert [found.ids(word) for word in words] == [whole.ids(word) for word in words]
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe\x00")
    refuses(r"expected a tokenizer in .*vocab.txt, got none .*save it as tokenizer.json", vocabulary_of, tmp_path)


def test_a_transformers_tokenizer_is_taken_as_it_is() -> None:
    transformers = pytest.importorskip("transformers")
    found = vocabulary_of(transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level(), unk_token="Ġcat"))
    assert found.leading_space
    assert found.ids("cat") == ()
    assert found.ids("dog") != ()


def test_the_real_sentencepiece_vocabulary_of_stories260k(stories: Path) -> None:
    found = vocabulary_of(stories)
    assert not found.leading_space
    assert len(found.ids("the")) == 1
    assert len(found.ids("automobile")) > 1
