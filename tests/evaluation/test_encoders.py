"""Encoders: means of words by hand, transformers and Sentence Transformers against themselves; the cache."""

import io
import json
import resource
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from uncone.errors import InputError, UnsupportedModel
from uncone.evaluation.encoding import Encoding, files_digest, open_encoder, word_means
from uncone.model.open import open_rows

refused = partial(pytest.raises, InputError)

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "water", "time", "house", "people", "small", "."]


def _words(tmp_path: Path) -> Encoding:
    file = tmp_path / "words.vec"
    file.write_text("3 2\nwater 1 0\nTime 0 1\nhouse 3 3\n")
    return word_means(open_rows(file), "words")


def test_means_of_words_by_hand(tmp_path: Path) -> None:
    vectors = _words(tmp_path).encode(["water house", "Water, (house)!", "Time time", "nothing known", ""])
    assert vectors.tolist() == [[2, 1.5], [2, 1.5], [0, 1], [0, 0], [0, 0]]
    with refused(match=r"expected words of .*words\.vec in the texts, got none in 2: another"):
        _words(tmp_path).encode(["nothing", "known"])
    with refused(match="expected word vectors with words, got array without"):
        word_means(open_rows(np.ones((3, 2), np.float32)), "")


class _Counting:
    """What an encoder does, and how often it did it."""

    calls = 0

    def __call__(self, texts: Sequence[str], *, role: str | None = None, tick: object = None) -> np.ndarray:
        self.calls += 1
        return np.array([[len(text), 1.0] for text in texts], np.float32)


def test_a_damaged_cache_is_made_anew(tmp_path: Path) -> None:
    encode, pickled = _Counting(), io.BytesIO()
    encoder = Encoding("counting", "1", encode, cache=tmp_path)
    first = encoder.vectors(["a", "bb"])
    (file,) = tmp_path.iterdir()
    shape = b'{"descr": "<f4", "fortran_order": False, "shape": (2, 99999999999999), }'
    np.save(pickled, np.array([{"a": 1}], dtype=object), allow_pickle=True)  # no code of it is run
    header = b"\x93NUMPY\x01\x00v\x00" + shape.ljust(118)
    for calls, damaged in enumerate((b"", b"PK\x03\x04", header, file.read_bytes()[:-1], pickled.getvalue()), start=2):
        file.write_bytes(damaged)
        assert np.array_equal(encoder.vectors(["a", "bb"]), first)
        assert encode.calls == calls


def test_the_cache_keeps_what_depends_on_nothing_else(tmp_path: Path) -> None:
    encode, cache = _Counting(), tmp_path / "cache"
    encoder = Encoding("counting", "1", encode, cache=cache)
    first = encoder.vectors(["a", "bb"])
    assert np.array_equal(encoder.vectors(["a", "bb"]), first)
    assert encode.calls == 1
    encoder.vectors(["a", "bb"], role="query")
    encoder.vectors(["ab", "b"])
    replace(encoder, digest="2").vectors(["a", "bb"])
    assert encode.calls == 4
    for _ in range(2):
        replace(encoder, cache=None).vectors(["a"])
    assert encode.calls == 6


def test_a_cache_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refused(match="cannot keep vectors in"):
        Encoding("counting", "1", _Counting(), cache=tmp_path / "file").vectors(["a"])
    with refused(match="expected texts to encode, got none"):
        Encoding("counting", "1", _Counting()).vectors([])


def test_a_cache_on_a_full_disk_is_said(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with refused(match=r"cannot write .*npy: File too large: nothing was written; free some space"):
            Encoding("counting", "1", _Counting(), cache=tmp_path).vectors(["a"] * 5000)
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
    with refused(match=r"expected an encoder of sentences, got .* without modules\.json and config\.json"):
        open_encoder(tmp_path)
    (tmp_path / "modules.json").write_text("{}x")
    with refused(match=r"expected JSON, got .*modules\.json"):
        open_encoder(tmp_path)
    (tmp_path / "modules.json").write_text(json.dumps([{"type": "os.system", "path": "", "name": "0"}]))
    with pytest.raises(UnsupportedModel, match=r"got 'os\.system': uncone never runs a model's code"):
        open_encoder(tmp_path)


def _bert(directory: Path) -> Path:
    from transformers import BertConfig, BertModel, BertTokenizerFast

    torch.manual_seed(0)
    directory.mkdir()
    (directory / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    BertTokenizerFast(str(directory / "vocab.txt")).save_pretrained(directory)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(VOCABULARY), max_position_embeddings=12, **sizes)).save_pretrained(directory)
    return directory


@pytest.mark.slow
def test_a_transformers_model_is_pooled_over_its_tokens(tmp_path: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    directory = _bert(tmp_path / "bert")
    texts = ["water time .", "house", "people small water time house people small water time house people small time"]
    ticks: list[tuple[int, int]] = []
    vectors = open_encoder(directory).encode(texts, tick=lambda *done: ticks.append(done))
    assert ticks == [(3, 3)]
    model, tokenizer = AutoModel.from_pretrained(directory).eval(), AutoTokenizer.from_pretrained(directory)
    for text, vector in zip(texts, vectors, strict=True):
        tokens = tokenizer(text, truncation=True, max_length=12, return_tensors="pt")
        with torch.no_grad():
            alone = model(**tokens).last_hidden_state[0].mean(0)
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
    theirs = sentence_transformers.SentenceTransformer(str(minilm), device="cpu").encode(texts, show_progress_bar=False)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    assert encoder.normalizes
    assert np.abs(norms - 1).max() > 0.1
    assert vectors / norms == pytest.approx(theirs, abs=1e-6)
