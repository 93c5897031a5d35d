"""New rows for some tokens: what they are made of, and that no other number changes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

import uncone
from tests.command import run_command
from tests.edits.language_models import TEXT, V, add_tokenizer, drifted, saved
from tests.edits.test_directory import digests
from tests.matrices import gaussian
from tests.planted import rare_tail, write_model
from tests.planted_tokens import plant
from tests.rows.reading import refuses
from uncone.edits.new_rows import SPREAD, alike, new_rows, trained_rows
from uncone.edits.record import TokenEdit
from uncone.edits.tokens import reinitialise_tokens, whole_id
from uncone.errors import InputError
from uncone.rows import as_rows

TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture
def llama(tmp_path):
    """An untied Llama in bfloat16 with a tokenizer; the last of its tokens were added."""
    pytest.importorskip("transformers")
    saved(tmp_path / "m", "LlamaForCausalLM", dtype=torch.bfloat16)
    add_tokenizer(tmp_path / "m", added=("<cat-dog>", "<log>"))
    return tmp_path / "m"


def tensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(path / "model.safetensors")


def ids_of(path: Path, *tokens: str) -> list[int]:
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    return [tokenizer.token_to_id(token) for token in tokens]


def test_an_added_token_gets_the_mean_of_what_its_string_is_split_into(llama, tmp_path):
    plain = Tokenizer.from_file(str(llama / "tokenizer.json"))
    without = Tokenizer.from_str(json.dumps(json.loads(plain.to_str()) | {"added_tokens": []}))
    parts = {i: without.encode(plain.id_to_token(i)).ids for i in sorted(ids_of(llama, "<cat-dog>", "<log>"))}
    edit = reinitialise_tokens(llama, tmp_path / "o", "added")
    made = [(t.id, t.way, list(t.sub_tokens), t.drawn) for t in edit.tokens]
    assert made == [(i, "sub_tokens", parts[i], len(parts[i]) == 1) for i in parts]
    assert sorted(len(part) == 1 for part in parts.values()) == [False, True]
    before, after = tensors(llama), tensors(tmp_path / "o")
    for name in (TABLE, HEAD):
        for i, part in parts.items():
            mean, row = before[name][part].double().mean(0), after[name][i]
            assert torch.equal(row, mean.to(torch.bfloat16)) == (len(part) > 1), "one part's row has an owner"
            assert float((row - mean).norm()) < 0.3 * float(before[name].float().norm(dim=1).mean())
    assert_others_same(llama, tmp_path / "o", edit, parts)
    assert [(t.name, t.role) for t in edit.tensors] == [(TABLE, "table"), (HEAD, "head")]
    assert edit.no_loss == "no text was given"
    assert TokenEdit.from_json(edit.to_json()) == edit


def assert_others_same(before: Path, after: Path, edit: TokenEdit, ids) -> None:
    first, second = digests(before), digests(after)
    assert {name for name in first if first[name] != second[name]} == {t.name for t in edit.tensors}
    assert edit.unchanged == len(first) - len(edit.tensors)
    others = [i for i in range(V) if i not in set(ids)]
    for t in edit.tensors:
        a, b = (tensors(path)[t.name][others].view(torch.int16) for path in (before, after))
        assert torch.equal(a, b)
        assert t.rows_equal == len(others)
        assert not torch.equal(tensors(before)[t.name][list(ids)], tensors(after)[t.name][list(ids)])


@pytest.mark.parametrize("method", ["sub_tokens", "mean", "covariance"])
def test_only_the_rows_that_were_named_change(llama, tmp_path, method):
    ids = ids_of(llama, "cat", "dog", "▁")
    edit = reinitialise_tokens(llama, tmp_path / "o", ids, method=method)
    assert_others_same(llama, tmp_path / "o", edit, ids)
    assert edit.edited == 3
    ways = {"cat": method, "dog": method, "▁": "covariance" if method == "sub_tokens" else method}
    assert {t.token: t.way for t in edit.tokens} == ways
    notes = {"sub_tokens": "1 of 3 tokens cannot be split into others. Their rows are draws around the mean of all"}
    notes["mean"] = (
        "2 of 3 new rows are equal to another new row: nothing distinguishes these tokens. The method 'covari"
    )
    assert len(edit.notes) == (method in notes)
    assert all(note.startswith(notes[method]) for note in edit.notes)
    again = reinitialise_tokens(llama, tmp_path / "p", ids[::-1], method=method)
    assert digests(tmp_path / "p") == digests(tmp_path / "o")
    assert again == edit


def test_which_parts_make_no_row_of_their_own():
    parts = {1: (5, 6), 2: (6, 5), 3: (5, 5, 6, 6), 4: (5, 6, 6), 5: (7,), 6: (8, 8), 7: (), 9: (5, 7)}
    assert alike([*parts, 10], parts) == {1, 2, 3, 5, 6, 7, 10}


def test_new_rows_differ_from_each_other_and_from_those_they_are_made_of():
    """Where sub-tokens alone would make them equal; the others stay the plain mean."""
    x, parts = gaussian(300, 16), {0: (20, 21), 1: (21, 20), 2: (22,), 4: (20, 22)}
    trained = trained_rows(as_rows(x), torch.arange(10, 300), with_covariance=True)
    made = new_rows(as_rows(x), range(8), parts, trained, seed=0)
    assert len(torch.unique(torch.cat([made.float(), x[10:]]), dim=0)) == 8 + 290
    assert torch.equal(made[4], x[[20, 22]].double().mean(0))
    for i, part in parts.items():
        assert float((made[i] - x[list(part)].double().mean(0)).norm()) < 3 * SPREAD * 16**0.5


def test_a_table_is_no_worse_after_new_rows(tmp_path):
    """Of tokens that are anagrams of one another, and of single characters: the advised command on a collapsed tail."""
    pytest.importorskip("transformers")
    tokens = [f"[unused{i}]" if i < 200 else f"token{i}" for i in range(8000)]
    pieces = "".join(dict.fromkeys("token0123456789[]used"))
    tokens[4000 : 4000 + len(pieces)] = pieces
    tokens[7700:8000] = map(chr, range(0x4E00, 0x4E00 + 300))
    model = write_model(tmp_path / "m", rare_tail(), tokens=tokens)
    Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[])).save(
        str(model / "tokenizer.json")
    )
    edit = uncone.repair_tokens(model, tmp_path / "o")
    assert edit.edited >= 500
    assert not any("are equal to another" in note for note in edit.notes)
    table = tensors(tmp_path / "o")["gpt_neox.embed_in.weight"]
    assert len(torch.unique(table, dim=0)) == len(table)
    found = uncone.compare([uncone.diagnose(path) for path in (model, tmp_path / "o")])
    assert not found.worse, found.verdict
    assert " is better than " in found.verdict


@pytest.mark.parametrize("where", ["chat_template.jinja", "tokenizer_config.json"])
def test_tokens_of_the_chat_and_of_the_end_keep_their_rows(tmp_path, where):
    pytest.importorskip("transformers")
    planted = plant(reserved=40, planted=12)
    labels, rows = list(planted.labels), planted.planted.tolist()
    labels[rows[0]], labels[rows[1]], labels[rows[2]] = "<|im_start|>", "<|other|>", "<|end|>"
    model = write_model(tmp_path / "m", planted.table, tokens=labels)
    template = "{{ '<|im_start|>' + message['role'] }}"
    (model / where).write_text(template if where.endswith("jinja") else json.dumps({"chat_template": template}))
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [rows[2]]}))
    edit = uncone.repair_tokens(model, tmp_path / "o", method="mean")
    edited = {token.id for token in edit.tokens}
    assert not {rows[0], rows[2]} & edited
    assert rows[1] in edited
    (note,) = (note for note in edit.notes if "chat template" in note)
    assert note.startswith("2 special tokens of the chat template or the end of a text also look untrained and keep")
    assert "'<|im_start|>'" in note
    assert "'<|end|>'" in note


def test_a_tied_matrix_is_edited_once(tmp_path):
    pytest.importorskip("transformers")
    model, table = saved(tmp_path / "m", "GPT2LMHeadModel"), "transformer.wte.weight"
    edit = reinitialise_tokens(model, tmp_path / "o", [5, 6], method="mean")
    assert [(t.name, t.role) for t in edit.tensors] == [(table, "both")]
    stored, first = tensors(model), tensors(tmp_path / "o")[table]
    mean = stored[table].double()[[i for i in range(V) if i not in (5, 6)]].mean(0)
    assert torch.allclose(first[5].double(), mean, rtol=0, atol=1e-7)
    torch.save(stored | {"lm_head.weight": stored[table]}, model / "pytorch_model.bin")
    (model / "model.safetensors").unlink()
    reinitialise_tokens(model, tmp_path / "p", [5, 6], method="mean")
    found = tensors(tmp_path / "p")
    assert torch.equal(found["lm_head.weight"], found[table])
    assert torch.equal(found["lm_head.weight"], first)


def test_zero_rows_and_rows_that_are_not_finite_are_found(tmp_path):
    pytest.importorskip("transformers")
    model = drifted("LlamaForCausalLM")
    with torch.no_grad():
        model.model.embed_tokens.weight[7] = 0
        model.lm_head.weight[9, 3] = float("nan")
    model.save_pretrained(tmp_path / "m")
    edit = reinitialise_tokens(tmp_path / "m", tmp_path / "o", method="mean")
    assert [t.id for t in edit.tokens] == [7, 9]
    assert edit.tensors[1].mean_norm_before is None
    assert all(bool(torch.isfinite(t).all()) for t in tensors(tmp_path / "o").values())
    with pytest.raises(InputError, match=r"expected a token whose row is zero or not finite in .*, got none: give ids"):
        reinitialise_tokens(tmp_path / "o", tmp_path / "p", method="mean")
    with pytest.raises(InputError, match=r"NaN or inf in 1 \(9\): name these rows too"):
        reinitialise_tokens(tmp_path / "m", tmp_path / "p", [7], method="mean")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "o"]


def test_what_cannot_be(llama, tmp_path):
    for ids, message in (
        ([], "got none: give at least one"),
        ([V], f"expected ids from 0 to {V - 1}, got {V}"),
        ([-1], "got -1"),
        (list(range(V)), "expected trained rows to make new rows from, got none"),
    ):
        refuses(message, reinitialise_tokens, llama, tmp_path / "o", ids)
    (tmp_path / "o").mkdir()
    refuses("expected a new folder", reinitialise_tokens, llama, tmp_path / "o", [1])
    (llama / "tokenizer.json").write_text("{}")
    message = r"expected a tokenizer in .* use the method 'mean' or 'covariance' \(--method mean\)$"
    refuses(message, reinitialise_tokens, llama, tmp_path / "p", [1])
    assert not (tmp_path / "p").exists()


def test_tokens_are_named_by_their_strings(llama, tmp_path, capsys):
    ids = ids_of(llama, "<cat-dog>", "<log>")
    (tmp_path / "names").write_text("<cat-dog>\n3 5-6\n")
    for at, (tokens, expected) in enumerate(
        [
            ("<cat-dog>,<log>", ids),
            (f"<cat-dog>,{ids[1]}", ids),
            (str(tmp_path / "names"), [3, 5, 6, ids[0]]),
            (["<log>", 4], [4, ids[1]]),
        ]
    ):
        edit = uncone.repair_tokens(llama, tmp_path / f"o{at}", tokens=tokens, method="mean")
        assert [token.id for token in edit.tokens] == expected, tokens
    command = ("repair-tokens", capsys, llama, tmp_path / "by-name", "--method", "mean", "--tokens")
    assert run_command(*command, "<cat-dog>")[::2] == (0, "")
    assert tensors(tmp_path / "by-name").keys() == tensors(llama).keys()
    status, out, error = run_command(*command, "<cat-dgo>")
    assert (status, out, "got '<cat-dgo>': did you mean '<cat-dog>'" in error) == (1, "", True)
    assert run_command(*command, f"2,3,4,5,6,7,8,{'x' * 5000}")[0] == 1  # longer than any file's name


def test_ids_are_whole_numbers():
    assert [whole_id(value) for value in (3, np.int64(3), torch.tensor(3))] == [3, 3, 3]
    for value in (1.5, "3", None):
        refuses(r"expected ids of tokens, got .*: give whole numbers", whole_id, value)


def test_the_loss_before_and_after(llama, tmp_path):
    (tmp_path / "t.txt").write_text(TEXT)
    edit = reinitialise_tokens(llama, tmp_path / "o", ids_of(llama, "▁cat"), text=tmp_path / "t.txt")
    assert edit.loss is not None
    assert edit.loss.kind == "next_token"
    transformers = pytest.importorskip("transformers")

    ids = torch.tensor(Tokenizer.from_file(str(llama / "tokenizer.json")).encode(TEXT).ids)
    windows = ids[: len(ids) // 60 * 60].view(-1, 60)
    for path, found in ((llama, edit.loss.before), (tmp_path / "o", edit.loss.after)):
        model = transformers.AutoModelForCausalLM.from_pretrained(path)
        with torch.no_grad():
            assert found == pytest.approx(float(model(input_ids=windows, labels=windows).loss), rel=1e-2)
    assert edit.loss.targets == windows.numel() - len(windows)
    assert edit.loss.with_edited == int((windows[:, 1:] == ids_of(llama, "▁cat")[0]).sum()) > 0


def test_the_loss_of_a_model_that_sees_both_sides(tmp_path):
    pytest.importorskip("transformers")
    model, text = saved(tmp_path / "m", "BertForMaskedLM"), tmp_path / "t.txt"
    tokenizer = add_tokenizer(model)
    text.write_text(TEXT)
    edit = reinitialise_tokens(model, tmp_path / "o", [60], text=text)
    why = "the model sees later tokens, and its tokenizer has no mask token to hide them behind"
    assert (edit.loss, edit.no_loss) == (None, why)
    tokenizer.add_special_tokens(["[MASK]"])
    tokenizer.save(str(model / "tokenizer.json"))
    edit = reinitialise_tokens(model, tmp_path / "p", [60], text=text)
    assert edit.loss is not None
    assert edit.loss.kind == "masked_token"


@settings(max_examples=12)
@given(st.integers(2, 40), st.integers(1, 8), st.integers(0, 2**31))
def test_the_shrunk_covariance_is_that_of_scikit_learn_and_positive_definite(n, d, seed):
    covariance = pytest.importorskip("sklearn.covariance")
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * torch.arange(1, d + 1)
    found = trained_rows(as_rows(x), torch.arange(n), with_covariance=True)
    expected, shrinkage = covariance.ledoit_wolf(x.numpy())
    if d > 1:  # with one feature any share gives the same matrix
        assert found.shrinkage == pytest.approx(max(shrinkage, 1e-6), rel=1e-6, abs=1e-6)
    if shrinkage > 1e-5 or d == 1:
        np.testing.assert_allclose(found.covariance, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())
    torch.linalg.cholesky(found.covariance)


def test_rows_are_drawn_where_the_plain_covariance_has_no_factor():
    """Fewer rows than features: transformers' own initialisation finds no positive definite matrix there (its issue 33325)."""
    x = torch.randn(10, 64, generator=torch.Generator().manual_seed(0)) + 1
    refused = ValueError, torch.linalg.LinAlgError  # rounding decides which
    with pytest.raises(refused, match=r"PositiveDefinite|not positive-definite"):
        torch.distributions.MultivariateNormal(x.double().mean(0), x.double().T.cov())
    trained = trained_rows(as_rows(x), torch.arange(10), with_covariance=True)
    made = new_rows(as_rows(x), range(4000), {}, trained, seed=3)
    torch.testing.assert_close(made.mean(0), trained.mean, rtol=0, atol=0.01)
    drawn = ((made - trained.mean) / SPREAD).T.cov()
    assert float(drawn.trace() / trained.covariance.trace()) == pytest.approx(1, rel=0.05)
    assert torch.equal(made, new_rows(as_rows(x), range(4000), {}, trained, seed=3))


def test_equal_rows_are_their_own_mean():
    x = torch.ones(6, 3)
    trained = trained_rows(as_rows(x), torch.arange(6), with_covariance=True)
    assert torch.equal(new_rows(as_rows(x), [0, 1], {}, trained, seed=0).float(), torch.ones(2, 3))


@pytest.mark.slow
def test_a_damaged_row_of_a_real_model_is_mended(stories, tmp_path):
    """Noise in the place of one trained row costs loss on a text that holds the token; a new row takes most of it back."""
    from safetensors.torch import save_file

    model, text = Path(shutil.copytree(stories, tmp_path / "m")), tmp_path / "t.txt"
    weights, (token,) = tensors(model), ids_of(model, "▁day")
    weights[TABLE][token] = 3 * torch.randn(64, generator=torch.Generator().manual_seed(0))
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    days = "One day, Lily went to the park. It was a sunny day. She was happy all day. The next day, it rained. "
    text.write_text(days * 20)
    for method in ("sub_tokens", "mean", "covariance"):
        loss = reinitialise_tokens(model, tmp_path / method, [token], method=method, text=text).loss
        assert loss is not None
        assert loss.with_edited > 20
        assert loss.after < loss.before
