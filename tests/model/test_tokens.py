import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from uncone.model import token_labels


def test_tokenizer_json_gives_its_tokens_added_ones_too(tmp_path):
    tokenizer = Tokenizer(WordLevel({"a": 0, "b": 1, "Ġc": 3}, unk_token="a"))
    tokenizer.add_tokens(["<added>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    found = token_labels(tmp_path, 7)
    assert found.labels == ["a", "b", None, "<added>", None, None, None]  # the added token took the id of "Ġc"
    assert found.labels == [tokenizer.id_to_token(index) for index in range(7)]
    assert found.note is None


def test_ids_beyond_n_are_left_out(tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "far": 10**12, "below": -1}))
    assert token_labels(tmp_path, 1).labels == ["a"]


def test_vocab_txt_is_one_token_a_line_and_separators_are_tokens(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n\u2028\n##ing\n", encoding="utf-8")
    assert token_labels(tmp_path, 3).labels == ["[PAD]", "\u2028", "##ing"]


def test_vocab_json_takes_added_tokens_along(tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0}))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<new>": 1}))
    assert token_labels(tmp_path, 2).labels == ["a", "<new>"]


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"model": {"type": "BPE"}}', b'{"version": "1.0", "model": 3}']
)
def test_a_broken_tokenizer_is_passed_over_and_said(tmp_path, text):
    assert "no tokenizer.json, vocab.txt or vocab.json in" in token_labels(tmp_path, 3).note
    (tmp_path / "tokenizer.json").write_bytes(text)
    alone = token_labels(tmp_path, 2)
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    beside = token_labels(tmp_path, 2)
    assert (alone.labels, beside.labels) == (None, ["a", "b"])
    assert all("no tokens could be read from" in found.note for found in (alone, beside))


class PanicException(BaseException):
    """What pyo3 raises is no Exception either."""


class SignalError(BaseException):
    """As a command's own, which asks it to end."""


@pytest.mark.parametrize(
    "error", [PanicException("called `unwrap()` on a `None` value"), KeyboardInterrupt, SignalError]
)
def test_a_panic_in_rust_is_passed_over_and_an_interrupt_is_not(tmp_path, monkeypatch, error):
    def fails(path):
        raise error

    monkeypatch.setattr("tokenizers.Tokenizer", type("Tokenizer", (), {"from_file": staticmethod(fails)}))
    (tmp_path / "tokenizer.json").write_text("{}")
    if isinstance(error, PanicException):
        assert "PanicException: called" in token_labels(tmp_path, 2).note
    else:
        with pytest.raises(error):
            token_labels(tmp_path, 2)


def test_a_huge_tokenizer_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr("uncone.model.files.LARGEST_TOKENIZER", 3)
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    assert "expected at most 3 bytes, got 4" in token_labels(tmp_path, 2).note


def test_half_a_surrogate_pair_can_still_be_written_down(tmp_path):
    (tmp_path / "vocab.json").write_text('{"\\ud800x": 0}')
    assert token_labels(tmp_path, 1).labels[0].encode("utf-8") == b"?x"


@given(st.binary(max_size=100), st.sampled_from(["vocab.txt", "vocab.json"]), st.integers(0, 5))
def test_whatever_lies_there_there_are_n_labels_or_none(tmp_path_factory, content, name, n):
    directory = tmp_path_factory.mktemp("tokens")
    (directory / name).write_bytes(content)
    found = token_labels(directory, n)
    assert found.labels is None or len(found.labels) == n
    assert found.labels is not None or found.note
