"""Tokens of texts: as many as the tokenizer's own batch encoding gives, whatever the packing, the cut or a stop."""

import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.edited import edited
from tests.planted import healthy, write_model
from uncone.errors import InputError
from uncone.model import token_counts
from uncone.model.token_counts import MOST_BLOCKS, WORD, count_tokens
from uncone.model.vocabulary import open_vocabulary

_WORDS = ["[UNK]", *(f"w{i}" for i in range(199))]


def _tokenizer(folder: Path, words: list[str] = _WORDS) -> Path:
    """A tokenizer of white space, in a directory of its own."""
    folder.mkdir(exist_ok=True)
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def _text(n: int = 400_000, seed: int = 0) -> str:
    """Lines of ten words, most of them of the vocabulary."""
    words = [f"w{i}" for i in np.random.default_rng(seed).zipf(1.5, n).clip(max=250)]
    return "".join(" ".join(words[i : i + 10]) + "\n" for i in range(0, n, 10))


def _expected(text: str) -> list[int]:
    """A slow loop."""
    places, counts = {word: i for i, word in enumerate(_WORDS)}, [0] * len(_WORDS)
    for word in text.split():
        counts[places.get(word, 0)] += 1
    return counts


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _tokenizer(tmp_path_factory.mktemp("count") / "tokenizer")


def test_counts_of_every_kind_of_file(tokenizer: Path, tmp_path: Path) -> None:
    text = _text(60_000)
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress(text.encode()))
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "d.jsonl").write_text("\n".join(json.dumps({"body": line}) for line in text.splitlines()))
    for name in ("a.txt", "b.txt.xz", "c.txt.gz", "d.jsonl#body"):
        found = count_tokens(tokenizer, tmp_path / name)
        assert found.counts.tolist() == _expected(text), name
        assert found.words == Counter(WORD.findall(text.lower()))
        assert found.blocks is not None
        assert found.blocks.sum(0).tolist() == found.counts.tolist()
    all_four = count_tokens(tokenizer, [tmp_path / "a.txt", tmp_path / "b.txt.xz"], words=False)
    assert all_four.counts.tolist() == [2 * n for n in _expected(text)]
    assert (all_four.words, all_four.sources) == (None, ("a.txt", "b.txt.xz"))


def test_the_stretches_are_few_and_consecutive(tokenizer: Path, tmp_path: Path) -> None:
    with patch.object(token_counts, "FIRST_BLOCK", 2**10), patch.object(token_counts, "_BATCH", 2**17):
        (tmp_path / "a.txt").write_text("w1\n" * 200_000 + "w2\n" * 400_000)
        with patch("uncone.model.text_sources.PIECE_BYTES", 2**12):
            found = count_tokens(tokenizer, tmp_path / "a.txt")
    assert found.blocks is not None
    assert MOST_BLOCKS // 2 <= len(found.blocks) <= MOST_BLOCKS
    share = found.blocks[:, 2] / found.blocks.sum(1)
    assert np.count_nonzero((share > 0) & (share < 1)) <= 1
    assert np.all(np.diff(share) <= 0)
    assert found.counts[[2, 3]].tolist() == [200_000, 400_000]


def test_counts_are_merged(tokenizer: Path, tmp_path: Path) -> None:
    text = _text(5_000)
    (tmp_path / "a.txt").write_text(text)
    np.save(tmp_path / "b.npy", np.arange(200))
    (tmp_path / "c.tsv").write_text("token\tcount\nw3\t5\n")
    found = count_tokens(tokenizer, [tmp_path / name for name in ("a.txt", "b.npy", "c.tsv")])
    added = np.array(_expected(text)) + np.arange(200)
    added[4] += 5
    assert found.counts.tolist() == added.tolist()
    assert found.blocks is None
    assert found.words is None
    assert count_tokens(tokenizer, tmp_path / "b.npy").counts.tolist() == list(range(200))


def test_bad_input(tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "blank.txt").write_text("\n \n")
    (tmp_path / "latin.txt").write_bytes(b"w1 w2\n" * 30_000 + b"caf\xe9\n")
    np.save(tmp_path / "short.npy", np.arange(199))
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    for model, texts, message in (
        (tokenizer, tmp_path / "empty.txt", "expected a text, got nothing in empty.txt"),
        (tokenizer, tmp_path / "blank.txt", "at least one token, got none"),
        (tokenizer, tmp_path / "latin.txt", "got byte 0xe9 at position 180,003"),
        (tokenizer, tmp_path / "short.npy", "expected 200 counts"),
        (tokenizer, [], "expected a text, got none"),
        (tmp_path, tmp_path / "blank.txt", "expected a tokenizer in .*, got none"),
        (
            tmp_path / "blank.txt",
            tmp_path / "blank.txt",
            "expected a tokenizer in .*: give a model with tokenizer.json",
        ),
        (tmp_path / "a.gguf", tmp_path / "short.npy", "got a GGUF file, which gives only token strings"),
    ):
        with pytest.raises(InputError, match=message):
            count_tokens(model, texts)


def test_the_vocabulary_has_a_row_for_each_row_of_the_table(tmp_path: Path) -> None:
    """A padded table has more rows than the tokenizer has ids; one that has fewer is of another model."""
    (tmp_path / "a.txt").write_text("w1 w150 w7 w7")
    for rows in (256, 200, 100):
        folder = _tokenizer(write_model(tmp_path / f"rows{rows}", healthy(v=rows)))
        assert open_vocabulary(folder).size == rows
        if rows >= 200:
            counts = count_tokens(folder, tmp_path / "a.txt").counts
            assert (len(counts), counts[[2, 8, 151]].tolist()) == (rows, [1, 2, 1])
            continue
        with pytest.raises(InputError, match=r"ids below 100, the rows .* got 151 \('w150'\) in a.txt"):
            count_tokens(folder, tmp_path / "a.txt")
    assert open_vocabulary(tmp_path / "rows256" / "tokenizer.json").size == 200


_RUN = """
import sys
from pathlib import Path
from unittest.mock import patch
from uncone.model import token_counts
with patch.object(token_counts, "_SAVE_AFTER_S", 0.0), patch.object(token_counts, "_SHARE_OF_SAVING", 1e9), \\
     patch.object(token_counts, "_BATCH", 2**16):
    token_counts.count_tokens(sys.argv[1], sys.argv[3:], resume=Path(sys.argv[2]))
"""


def test_a_killed_run_goes_on_and_equals_the_uninterrupted(tokenizer: Path, tmp_path: Path) -> None:
    texts, state = [tmp_path / "a.txt.xz", tmp_path / "b.txt"], tmp_path / "counts.npy.part"
    texts[0].write_bytes(lzma.compress(_text(400_000).encode(), preset=0))
    texts[1].write_text(_text(1_500_000, seed=1))
    whole = count_tokens(tokenizer, texts)
    child = subprocess.Popen([sys.executable, "-c", _RUN, tokenizer, state, *texts], env={**os.environ})
    for _ in range(4000):
        if state.exists() or child.poll() is not None:
            break
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    steps = list[int]()
    again = count_tokens(tokenizer, texts, resume=state, progress=lambda what, done, total: steps.append(done))
    assert steps[0] > 2**16, "it began anew"
    for name in ("notes", "words", "characters"):
        assert getattr(again, name) == getattr(whole, name)
    for name in ("counts", "blocks"):
        assert np.array_equal(getattr(again, name), getattr(whole, name))


def test_only_the_state_of_this_count_is_gone_on_with(tokenizer: Path, tmp_path: Path) -> None:
    """What else is there stays as it is, and is replaced only if asked."""
    text, state = tmp_path / "a.txt", tmp_path / "state"
    text.write_text(_text(3_000))
    count_tokens(tokenizer, text, resume=state)
    assert count_tokens(tokenizer, text, resume=state).counts.tolist() == _expected(_text(3_000))
    own = state.read_bytes()
    for content, options, message in (
        (own, {"words": False}, "expected the state of these texts and options, got another state"),
        (own[:-5], {}, "expected the state of an earlier count .* which cannot be read"),
        (own[:-5] + own[-4:] + b"!", {}, "got .* with another checksum"),
        (own.replace(b"uncone.count/2", b"uncone.count/1"), {}, "got .* of format 'uncone.count/1'"),
        (b"PK a file of someone", {}, "which cannot be read"),
    ):
        state.write_bytes(content)
        with pytest.raises(InputError, match=message) as caught:
            count_tokens(tokenizer, text, resume=state, **options)
        assert "--overwrite (overwrite=True)" in str(caught.value)
        assert state.read_bytes() == content
        found = count_tokens(tokenizer, text, resume=state, overwrite=True, **options)
        assert found.counts.tolist() == _expected(_text(3_000))
        assert found.notes == ()
        assert state.read_bytes() != content


def test_no_edited_state_is_gone_on_with_to_other_counts(tokenizer: Path, tmp_path: Path) -> None:
    texts, state = [tmp_path / "a.txt", tmp_path / "b.txt"], tmp_path / "state"
    for path in texts:
        path.write_text(_text(500, seed=len(path.name)))
    whole = count_tokens(tokenizer, texts, resume=state)
    own = state.read_bytes()
    assert count_tokens(tokenizer, texts, resume=state).counts.tolist() == whole.counts.tolist()
    refused = 0
    for content in edited(state, 320):
        state.write_bytes(content)
        try:
            again = count_tokens(tokenizer, texts, resume=state)
        except InputError as error:
            refused += str(state) in str(error) and "--overwrite" in str(error)
        else:
            assert (again.counts.tolist(), again.words) == (whole.counts.tolist(), whole.words)
            assert again.characters == whole.characters
        state.write_bytes(own)
    assert refused > 250


def test_wordpiece_as_its_library_counts(minilm: Path, tmp_path: Path) -> None:
    text = Path(__file__).parents[2] / "../shared/data/lm/wiki-en-2018/valid.txt.xz"
    if not text.exists():
        pytest.skip("the shared data is not there")
    lines = lzma.decompress(text.read_bytes()).decode().splitlines()[:400]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    encoded = open_vocabulary(minilm).tokenizer.encode_batch(lines, add_special_tokens=False)
    expected = np.bincount([i for one in encoded for i in one.ids], minlength=30_522)
    assert count_tokens(minilm, tmp_path / "lines.txt").counts.tolist() == expected.tolist()
