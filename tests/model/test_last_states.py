"""The states of a head: the model's own loss follows from them, over no text's boundary."""

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from tests.edits.language_models import TEXT, add_tokenizer, drifted
from uncone.errors import InputError, UnsupportedModel
from uncone.model.last_states import states_of

ENDS = [TEXT[:200], "the cat", TEXT]


def _saved(path: Path, name: str) -> tuple[Any, Any]:
    model = drifted(name)
    head = model.get_output_embeddings()
    with torch.no_grad():
        if head.bias is not None:
            head.bias.copy_(torch.randn(head.bias.shape))
    model.save_pretrained(path)
    return model, add_tokenizer(path)


@pytest.mark.parametrize(
    "name", ["GPT2LMHeadModel", "GPTJForCausalLM", "Gemma2ForCausalLM", "CohereForCausalLM", "GraniteForCausalLM"]
)
def test_the_models_own_loss_follows(tmp_path: Path, name: str) -> None:
    model, tokenizer = _saved(tmp_path, name)
    found = states_of(tmp_path, ENDS)
    losses = list[torch.Tensor]()
    with torch.no_grad():
        for text in ENDS:
            ids = torch.tensor(tokenizer.encode(text).ids)
            for start in range(0, len(ids) - 1, 59):  # 64 positions, less 4, and one shared
                window = ids[start : start + 60]
                logits = model(input_ids=window[None]).logits[0, :-1]
                losses.append(torch.nn.functional.cross_entropy(logits, window[1:], reduction="none"))
    ours = [
        torch.nn.functional.cross_entropy(found.logits(found.states[part]), found.labels[part], reduction="none")
        for part in found.chunks(1000)
    ]
    assert torch.allclose(torch.cat(ours), torch.cat(losses), atol=2e-4)
    assert (found.cap == 2.0) is (name == "Gemma2ForCausalLM")
    assert (found.bias is not None) is (name == "GPTJForCausalLM")
    assert int(found.windows.max()) + 1 == len(losses)


def test_no_more_tokens_than_asked_for_and_a_file_is_one_text(tmp_path: Path) -> None:
    _saved(tmp_path, "GPT2LMHeadModel")
    whole, some = states_of(tmp_path, ENDS), states_of(tmp_path, ENDS, most=70)
    assert len(some.states) == len(some.labels) == 70
    assert torch.allclose(some.states, whole.states[:70], atol=1e-5)
    (tmp_path / "text.txt").write_text(TEXT)
    from_file, from_list = states_of(tmp_path, tmp_path / "text.txt"), states_of(tmp_path, [TEXT])
    assert torch.equal(from_file.labels, from_list.labels)


@pytest.mark.parametrize(
    ("name", "texts", "most", "error", "message"),
    [
        ("BertForMaskedLM", ENDS, 9, UnsupportedModel, "causal model"),
        ("GPT2LMHeadModel", ["t"], 9, InputError, "at least three tokens"),
        ("GPT2LMHeadModel", ENDS, 1, InputError, "predict at least 2"),
        ("without tokenizer", ENDS, 9, InputError, "tokenizer"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tmp_path: Path, name: str, texts: list[str], most: int, error: type[Exception], message: str
) -> None:
    _saved(tmp_path, "GPT2LMHeadModel" if " " in name else name)
    if " " in name:
        (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(error, match=message):
        states_of(tmp_path, texts, most=most)


def test_states_of_a_run_in_bfloat16_are_near(tmp_path: Path) -> None:
    _saved(tmp_path, "GPT2LMHeadModel")
    whole, narrow = states_of(tmp_path, ENDS), states_of(tmp_path, ENDS, dtype="bfloat16", device="cpu")
    assert narrow.states.dtype == narrow.head.dtype == torch.float32
    assert torch.allclose(narrow.states, whole.states, atol=0.3)
    assert not torch.equal(narrow.states, whole.states)
    assert torch.equal(narrow.head, whole.head.bfloat16().float())
    with pytest.raises(InputError, match="expected a dtype to run the model in, got 'int3'"):
        states_of(tmp_path, ENDS, dtype="int3")
