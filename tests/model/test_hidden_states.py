"""States of every layer, summed as they come: against storing everything, however they are batched, cut and resumed."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

import transformers

from tests.edited import edited
from tests.edits.language_models import TEXT, add_tokenizer, drifted
from uncone.errors import InputError, UndefinedMeasure
from uncone.model import hidden_states
from uncone.model.hidden_states import hidden_states_of
from uncone.model.layer_states import LayerStates
from uncone.model.layered_model import LayeredModel, open_layered
from uncone.model.state_sums import SEGMENT, StateSums
from uncone.model.text_sources import open_texts
from uncone.rows.bytes import LocalFile
from uncone.rows.safetensors import read_header

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "saw", "log", "a", "man", "and"]
FRAME = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random masked model in bert/ whose tokenizer frames a text, with a table of unequal columns; and lines.txt."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    place, random = tmp_path_factory.mktemp("states"), np.random.default_rng(0)
    text = [" ".join(random.choice(WORDS, random.integers(1, 40))) for _ in range(120)]
    (place / "lines.txt").write_text("\n".join(text) + "\n")
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
    sizes |= {"vocab_size": len(FRAME + WORDS), "max_position_embeddings": 40}
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(transformers.BertConfig(**sizes, initializer_range=0.5))
    model.eval().save_pretrained(place / "bert")
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(FRAME + WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(FRAME)
    special = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    tokenizer.save(str(place / "bert" / "tokenizer.json"))
    return place


@pytest.fixture(scope="module")
def whole(place: Path) -> LayerStates:
    return hidden_states_of(place / "bert", open_texts(place / "lines.txt"), width=None)


@pytest.fixture
def lines(place: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copy2(place / "lines.txt", tmp_path))


@pytest.fixture
def bert(place: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copytree(place / "bert", tmp_path / "bert"))


def _decoder(path: Path, name: str, **config: Any) -> Path:
    drifted(name, **config).save_pretrained(path)
    add_tokenizer(path)
    return path


def _stored(path: Path, lines: Path, longest: int) -> list[np.ndarray[Any, Any]]:
    """The states of each layer of the encoder by transformers, each sequence alone, without its frame."""
    model, tokenizer = transformers.AutoModelForMaskedLM.from_pretrained(path).eval(), open_layered(path).tokenizer
    kept = list[tuple[torch.Tensor, ...]]()
    for line in lines.read_text().splitlines():
        ids = tokenizer.encode(line, add_special_tokens=False).ids
        for part in np.array_split(ids, -(-len(ids) // (longest - 2))):
            with torch.no_grad():
                out = model(torch.tensor([[2, *part.tolist(), 3]]), output_hidden_states=True)
                transformed = model.cls.predictions.transform(out.hidden_states[-1])
            kept.append(tuple(x[0, 1:-1] for x in (*out.hidden_states, transformed)))
    return [torch.cat(layer).double().numpy() for layer in zip(*kept, strict=True)]


def test_an_encoders_sums_are_those_of_all_states_stored(place: Path, whole: LayerStates) -> None:
    assert whole.layers == ("embeddings", "layer 1", "layer 2", "layer 3", "before the head")
    assert (whole.causal, whole.read) == (False, 4)
    for x, m in zip(_stored(place / "bert", place / "lines.txt", 36), whole.moments, strict=True):
        assert m.n == len(x) == whole.tokens
        np.testing.assert_allclose(m.mean(), x.mean(0), atol=1e-5)
        np.testing.assert_allclose(m.covariance(), np.cov(x.T), atol=1e-4)
        np.testing.assert_allclose(m.unit_sums()[0], (x / np.linalg.norm(x, axis=1, keepdims=True)).sum(0), atol=1e-2)
    assert whole.apart[:, 0].tolist() == [2 * whole.sequences, 0]
    assert whole.counts[2] == whole.counts[3] == whole.sequences
    assert int(whole.counts.sum()) == whole.tokens + 2 * whole.sequences
    assert any("longer than 36 ids" in note for note in whole.notes)


def test_the_head_makes_the_models_logits_of_what_it_reads(place: Path, whole: LayerStates) -> None:
    head, ids, found = whole.head, torch.tensor([[2, 7, 8, 9, 3]]), open_layered(place / "bert")
    assert head is not None
    assert (head.cap, head.scale) == (None, 1.0)
    with torch.no_grad():
        states = found.states(ids, torch.ones_like(ids))[4]
        own = transformers.AutoModelForMaskedLM.from_pretrained(place / "bert").eval()(ids).logits
    ours = states @ torch.from_numpy(head.weight.T) + torch.from_numpy(head.bias)
    torch.testing.assert_close(ours, own, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM", "OPTForCausalLM", "GPTNeoXForCausalLM"])
def test_a_decoders_layers_are_before_and_after_its_final_norm(tmp_path: Path, lines: Path, name: str) -> None:
    path = _decoder(tmp_path / "m", name)
    found = open_layered(path)
    assert found.causal
    assert found.names[-2:] == (f"layer {len(found.names) - 2}", "final norm")
    assert found.read == len(found.names) - 1
    ids = torch.arange(20)[None]
    with torch.no_grad():
        *_, last, normed = found.states(ids, torch.ones_like(ids))
        own = found.model(ids).logits
    assert not torch.allclose(last, normed)
    assert found._norm is not None
    torch.testing.assert_close(found._norm(last), normed)
    torch.testing.assert_close(normed @ found.linear.weight.T, own, atol=1e-4, rtol=1e-4)  # type: ignore[union-attr]
    states = hidden_states_of(path, open_texts(lines), width=None)
    assert states.apart[1, 0] >= states.sequences  # what stands first in a window
    assert states.tokens + states.apart[:, 0].sum() == states.counts.sum()


@pytest.mark.parametrize("batch", [1, 50, 10**6])
def test_neither_batches_nor_padding_change_the_sums(place: Path, whole: LayerStates, batch: int) -> None:
    other = hidden_states_of(place / "bert", open_texts(place / "lines.txt"), width=None, batch=batch)
    for a, b in zip(whole.moments, other.moments, strict=True):
        np.testing.assert_allclose(a.covariance(), b.covariance(), atol=1e-5)
    np.testing.assert_array_equal(whole.sample.ids, other.sample.ids)
    for a, b in zip(whole.sample.layers, other.sample.layers, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches of few tokens, so that a small text has several."""
    monkeypatch.setattr(hidden_states, "_LEAST", 64)
    monkeypatch.setattr(hidden_states, "_STRETCH_BYTES", 1)
    monkeypatch.setattr(hidden_states, "_SAVED_EVERY", 1)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(("kind", "most"), [("encoder", 100_000), ("decoder", 700)])
def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit(
    bert: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, most: int
) -> None:
    model, text = bert, str(lines)
    if kind == "decoder":  # of each document the first position is in no sum
        model, text = _decoder(tmp_path / "m", "GPT2LMHeadModel"), f"{tmp_path / 'd.jsonl'}#text"
        rows = [f'{{"text": "{one}"}}' for one in lines.read_text().splitlines() if one]
        (tmp_path / "d.jsonl").write_text("\n".join(rows))
    state, calls, stop, states = tmp_path / "sums", 0, 10**9, LayeredModel.states

    def counted(self: LayeredModel, ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        nonlocal calls
        calls += 1
        if calls == stop:
            raise KeyboardInterrupt
        return states(self, ids, mask)

    def run(resume: Path | None) -> LayerStates:
        nonlocal calls
        calls = 0
        return hidden_states_of(model, open_texts(text), width=None, most=most, sample=200, resume=resume)

    monkeypatch.setattr(LayeredModel, "states", counted)
    whole, needed = run(None), calls
    stop = needed // 2
    with pytest.raises(KeyboardInterrupt):
        run(state)
    assert state.exists()
    stop = 10**9
    resumed, rest = run(state), calls
    again, none = run(state), calls
    assert none < rest < needed
    for other in (resumed, again):
        assert other.sequences == whole.sequences
        assert other.intervals == whole.intervals
        for a, b in zip(whole.moments, other.moments, strict=True):
            for name, tensor in a.tensors().items():
                assert tensor.tobytes() == b.tensors()[name].tobytes(), name
        for a, b in zip(whole.sample.layers, other.sample.layers, strict=True):
            assert a.tobytes() == b.tobytes()
        np.testing.assert_array_equal(whole.counts, other.counts)
        np.testing.assert_array_equal(whole.apart, other.apart)


@pytest.mark.usefixtures("short")
def test_a_file_of_another_run_is_refused(bert: Path, lines: Path, tmp_path: Path) -> None:
    state = tmp_path / "sums"

    def refused(message: str, **options: Any) -> None:
        with pytest.raises(InputError, match=message):
            hidden_states_of(bert, open_texts(lines), resume=state, **options)

    hidden_states_of(bert, open_texts(lines), resume=state)
    refused("expected the states of this model and text, got other states", sample=77)
    for path in (lines, bert / "model.safetensors"):  # written again, of the same size
        kept, before = path.stat(), path.read_bytes()
        path.write_bytes(before[:-1] + b"!")
        refused("expected the states of this model and text")
        path.write_bytes(before)
        os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    own = state.read_bytes()
    state.write_bytes(own.replace(b"uncone.hidden_states/4", b"uncone.hidden_states/3"))
    refused(r"got .* of format 'uncone.hidden_states/3': remove it, or resume")
    state.write_bytes(own[:-9])
    refused(r"expected sums of hidden states, got .* which cannot be read")


@pytest.mark.usefixtures("short")
def test_no_edited_file_is_gone_on_with(bert: Path, lines: Path, tmp_path: Path) -> None:
    state, refused = tmp_path / "sums", 0
    found = hidden_states_of(bert, open_texts(lines), resume=state)
    widths, digest = [m.d for m in found.moments], read_header(LocalFile(state))[1]["digest"]

    def sums() -> StateSums:
        return StateSums(widths, len(found.counts), sample=hidden_states.SAMPLE)

    whole = sums()
    whole.load(state, digest)
    whole.save(tmp_path / "again", digest)
    assert (tmp_path / "again").read_bytes() == state.read_bytes()
    for content in edited(tmp_path / "again", 320):
        state.write_bytes(content)
        again = sums()
        try:
            again.load(state, digest)
        except InputError as error:
            refused += str(state) in str(error) and "remove it, or resume" in str(error)
        else:
            again.save(state, digest)
            assert state.read_bytes() == (tmp_path / "again").read_bytes()
    assert refused > 250


@pytest.mark.usefixtures("short")
def test_a_run_stops_once_intervals_are_narrow(place: Path, lines: Path) -> None:
    lines.write_text(4 * lines.read_text())
    whole, narrow = (hidden_states_of(place / "bert", open_texts(lines), width=width) for width in (None, 0.5))
    assert (whole.stopped, narrow.stopped) == (False, True)
    assert 20 * 16 <= narrow.tokens < whole.tokens  # spectra need rows
    assert all(one is not None and one[1] - one[0] < 0.5 for one in narrow.intervals)


def test_no_more_tokens_than_asked_for(place: Path, tmp_path: Path) -> None:
    assert 0 < hidden_states_of(place / "bert", open_texts(place / "lines.txt"), most=100).tokens <= 100
    (tmp_path / "long.txt").write_text("the cat sat on the mat")
    assert hidden_states_of(place / "bert", open_texts(tmp_path / "long.txt"), most=4).tokens == 4


def test_the_sample_is_whole_segments_and_bounded(place: Path, whole: LayerStates) -> None:
    found = hidden_states_of(place / "bert", open_texts(place / "lines.txt"), width=None, sample=300).sample
    assert 300 <= len(found.ids) < 300 + SEGMENT
    assert found.layers[0].shape == (len(found.ids), 16)
    assert (np.diff(found.segments) >= 0).all()
    for segment in np.unique(found.segments):
        own = found.segments == segment
        assert len(set(found.sequences[own])) == 1
        assert (np.diff(found.positions[own]) == 1).all()
    assert len(whole.sample.ids) == whole.tokens


def test_giant_states_stand_apart(tmp_path: Path, lines: Path) -> None:
    """Of one token the table has a row a thousand times as long: a sink wherever it stands."""
    path = _decoder(tmp_path / "m", "LlamaForCausalLM")
    plain = hidden_states_of(path, open_texts(lines), width=None)
    giant, model = int(np.argsort(plain.counts)[-2]), transformers.AutoModelForCausalLM.from_pretrained(path)
    with torch.no_grad():
        model.get_input_embeddings().weight[giant] *= 1000
    model.save_pretrained(path)
    found = hidden_states_of(path, open_texts(lines), width=None)
    assert found.apart[1, 0] - plain.apart[1, 0] >= 0.9 * plain.counts[giant]
    assert found.apart[1, 1] > 10 * plain.apart[1, 1]


def _no_memory(most: int) -> Callable[..., list[torch.Tensor]]:
    states = LayeredModel.states

    def run(self: LayeredModel, ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        if self.names and ids.shape[0] > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return states(self, ids, mask)

    return run


def test_without_memory_batches_are_halved(place: Path, whole: LayerStates, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(LayeredModel, "states", _no_memory(10))
        found = hidden_states_of(place / "bert", open_texts(place / "lines.txt"), width=None)
    assert any("had no memory for a batch" in note for note in found.notes)
    np.testing.assert_allclose(found.moments[3].covariance(), whole.moments[3].covariance(), atol=1e-5)
    monkeypatch.setattr(LayeredModel, "states", _no_memory(0))
    with pytest.raises(UndefinedMeasure, match=r"expected memory for a sequence of \d+ ids, got none"):
        hidden_states_of(place / "bert", open_texts(place / "lines.txt"))


def test_bfloat16_is_near(place: Path, whole: LayerStates) -> None:
    narrow = hidden_states_of(place / "bert", open_texts(place / "lines.txt"), dtype="bfloat16")
    for a, b in zip(whole.moments, narrow.moments, strict=True):
        np.testing.assert_allclose(a.mean(), b.mean(), atol=0.1)
        assert (a.mean() != b.mean()).all()
    with pytest.raises(InputError, match="expected a dtype to run the model in, got 'int3'"):
        hidden_states_of(place / "bert", open_texts(place / "lines.txt"), dtype="int3")


def test_bad_input_is_refused(bert: Path, lines: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(
        UndefinedMeasure, match="expected at least two tokens that are not special, first in a window or sinks, got 0"
    ):
        hidden_states_of(bert, open_texts(tmp_path / "empty.txt"))
    with pytest.raises(InputError, match="expected at least 2 tokens to read, got 1"):
        hidden_states_of(bert, open_texts(lines), most=1)
    other = _decoder(tmp_path / "other", "GPT2LMHeadModel")
    add_tokenizer(other, added=tuple(f"new{i}" for i in range(99)))
    (tmp_path / "new.txt").write_text("new98 " + TEXT)
    with pytest.raises(InputError, match=r"expected ids below \d+, got \d+: the tokenizer belongs to another"):
        hidden_states_of(other, open_texts(tmp_path / "new.txt"))
    (bert / "tokenizer.json").unlink()
    with pytest.raises(InputError, match="expected a tokenizer in"):
        hidden_states_of(bert, open_texts(lines))


def test_documents_of_a_decoder_are_not_joined(tmp_path: Path) -> None:
    path = _decoder(tmp_path / "m", "GPT2LMHeadModel")
    (tmp_path / "t.jsonl").write_text(f'{{"text": "{TEXT[:100]}"}}\n' * 3)
    (tmp_path / "t.txt").write_text((TEXT[:100] + "\n") * 3)
    found, joined = (hidden_states_of(path, open_texts(tmp_path / name)) for name in ("t.jsonl", "t.txt"))
    assert found.sequences == 3 > joined.sequences
