"""Encoders: means of words by hand, a transformers model against its own forward, Sentence Transformers against itself; the cache."""

import json
import resource
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from uncone.errors import InputError, UnsupportedModel
from uncone.model.open import open_rows
from uncone.tasks.encoders import WordMeans, files_digest, open_encoder
from uncone.tasks.encoding import encode_texts

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "water", "time", "house", "people", "small", "."]


def _words(tmp_path: Path) -> WordMeans:
    file = tmp_path / "words.vec"
    file.write_text("3 2\nwater 1 0\nTime 0 1\nhouse 3 3\n")
    return WordMeans(open_rows(file), digest="words")


def test_means_of_words_by_hand(tmp_path: Path) -> None:
    vectors = _words(tmp_path).encode(["water house", "Water, (house)!", "Time time", "nothing known", ""])
    assert vectors.tolist() == [[2, 1.5], [2, 1.5], [0, 1], [0, 0], [0, 0]]
    with pytest.raises(InputError, match=r"expected words of .*words\.vec in the texts, got none in 2 texts"):
        _words(tmp_path).encode(["nothing", "known"])


def test_rows_without_words_encode_nothing() -> None:
    with pytest.raises(InputError, match="expected word vectors with their words, got array without"):
        WordMeans(open_rows(np.ones((3, 2), np.float32)), digest="")


class _Counting:
    """An encoder that counts its calls."""

    kind, digest, normalizes = "counting", "1", False
    calls = 0

    def encode(self, texts: Sequence[str], *, role: str | None = None, tick: object = None) -> np.ndarray:
        self.calls += 1
        return np.array([[len(text), 1.0] for text in texts], np.float32)


def test_a_damaged_cache_is_made_anew(tmp_path: Path) -> None:
    encoder, cache = _Counting(), tmp_path / "cache"
    first = encode_texts(encoder, ["a", "bb"], cache=cache)
    (file,) = cache.iterdir()
    shape = b'{"descr": "<f4", "fortran_order": False, "shape": (2, 99999999999999), }'
    for damaged in (b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00v\x00" + shape.ljust(118), file.read_bytes()[:-1]):
        file.write_bytes(damaged)
        assert np.array_equal(encode_texts(encoder, ["a", "bb"], cache=cache), first)


def test_the_cache_keeps_what_depends_on_nothing_else(tmp_path: Path) -> None:
    encoder, cache = _Counting(), tmp_path / "cache"
    first = encode_texts(encoder, ["a", "bb"], cache=cache)
    assert np.array_equal(encode_texts(encoder, ["a", "bb"], cache=cache), first)
    assert encoder.calls == 1
    encode_texts(encoder, ["a", "bb"], role="query", cache=cache)
    encode_texts(encoder, ["ab", "b"], cache=cache)
    encoder.digest = "2"
    encode_texts(encoder, ["a", "bb"], cache=cache)
    assert encoder.calls == 4
    for file in cache.iterdir():
        file.write_bytes(b"\x93NUMPY damaged")
    assert np.array_equal(encode_texts(encoder, ["a", "bb"], cache=cache), first)
    assert encoder.calls == 5
    encode_texts(encoder, ["a"])
    encode_texts(encoder, ["a"])
    assert encoder.calls == 7


def test_the_cache_runs_no_code(tmp_path: Path) -> None:
    encoder = _Counting()
    encode_texts(encoder, ["a"], cache=tmp_path)
    (file,) = tmp_path.iterdir()
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert encode_texts(encoder, ["a"], cache=tmp_path).tolist() == [[1, 1]]
    assert encoder.calls == 2


def test_a_cache_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot keep vectors in"):
        encode_texts(_Counting(), ["a"], cache=tmp_path / "file")
    with pytest.raises(InputError, match="expected texts to encode, got none"):
        encode_texts(_Counting(), [])


def test_a_cache_on_a_full_disk_is_said(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(
            InputError,
            match=r"cannot write .*npy: File too large: nothing of it was written; free some space",
        ):
            encode_texts(_Counting(), ["a"] * 5000, cache=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_a_digest_is_of_contents(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    (two / "README.md").write_text("words about it")
    assert files_digest(one) == files_digest(two)
    (two / "config.json").write_text("{ }")
    assert files_digest(one) != files_digest(two)


def test_what_is_no_encoder(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"expected an encoder of sentences, got .* without modules\.json and config\.json"
    ):
        open_encoder(tmp_path)
    (tmp_path / "modules.json").write_text("{}x")
    with pytest.raises(InputError, match=r"expected JSON in .*modules\.json"):
        open_encoder(tmp_path)
    (tmp_path / "modules.json").write_text(json.dumps([{"type": "os.system", "path": "", "name": "0"}]))
    with pytest.raises(UnsupportedModel, match=r"got 'os\.system': code of a model is never run"):
        open_encoder(tmp_path)


def _bert(directory: Path) -> Path:
    from transformers import BertConfig, BertModel, BertTokenizerFast

    torch.manual_seed(0)
    directory.mkdir()
    (directory / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    BertTokenizerFast(str(directory / "vocab.txt")).save_pretrained(directory)
    config = BertConfig(
        vocab_size=len(VOCABULARY), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=12,
    )  # fmt: skip
    BertModel(config).save_pretrained(directory)
    return directory


@pytest.mark.slow
def test_a_transformers_model_is_pooled_over_its_tokens(tmp_path: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    directory = _bert(tmp_path / "bert")
    texts = [
        "water time .",
        "house",
        "people small water time house people small water time house people small time",
    ]
    ticks: list[tuple[int, int]] = []
    vectors = open_encoder(directory).encode(texts, tick=lambda *done: ticks.append(done))
    assert ticks == [(3, 3)]
    model, tokenizer = AutoModel.from_pretrained(directory).eval(), AutoTokenizer.from_pretrained(directory)
    for text, vector in zip(texts, vectors, strict=True):
        with torch.no_grad():
            alone = (
                model(**tokenizer(text, truncation=True, max_length=12, return_tensors="pt"))
                .last_hidden_state[0]
                .mean(0)
            )
        assert vector == pytest.approx(alone.numpy(), abs=1e-6)


@pytest.mark.slow
def test_a_damaged_model_is_named(tmp_path: Path) -> None:
    directory = _bert(tmp_path / "bert")
    (directory / "model.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(UnsupportedModel, match=r"transformers cannot load the encoder in .*bert"):
        open_encoder(directory)


@pytest.mark.slow
def test_sentence_transformers_without_their_last_normalisation(minilm: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    texts = ["A man is eating.", "Two dogs run through a very long field of grass and flowers.", "x"]
    encoder = open_encoder(minilm)
    vectors = encoder.encode(texts)
    theirs = sentence_transformers.SentenceTransformer(str(minilm), device="cpu").encode(
        texts, show_progress_bar=False
    )
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    assert encoder.normalizes
    assert np.abs(norms - 1).max() > 0.1
    assert vectors / norms == pytest.approx(theirs, abs=1e-6)
