"""Centring a head: the same probabilities, on models that transformers builds and loads again."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.edits.language_models import TEXT, V, add_tokenizer, drifted, saved
from uncone.edits import rounding
from uncone.edits.center_head import center_head
from uncone.edits.record import HeadEdit
from uncone.edits.tokens import reinitialise_tokens
from uncone.errors import InputError, UnsupportedModel
from uncone.rows import as_rows

transformers = pytest.importorskip("transformers")
FOLDED = {
    "GPT2LMHeadModel": "transformer.wpe.weight",
    "OPTForCausalLM": "model.decoder.embed_positions.weight",
    "BertForMaskedLM": "bert.embeddings.token_type_embeddings.weight",
    "RobertaForMaskedLM": "roberta.embeddings.token_type_embeddings.weight",
}


def also_slow(*values, is_slow: bool = True):
    """A case for the slow tests, which hold all of them."""
    return pytest.param(*values, marks=[pytest.mark.slow] if is_slow else [])


def loaded(path: Path, **options):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(path, output_loading_info=True, **options)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    return model.eval()


def log_probabilities(path: Path, name: str, dtype=torch.float64) -> torch.Tensor:
    model, info = getattr(transformers, name).from_pretrained(path, dtype=dtype, output_loading_info=True)
    assert not info["missing_keys"], info
    ids = torch.randint(0, V, (3, 17), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        return model.eval()(input_ids=ids).logits.log_softmax(-1)


def head_of(path: Path, name: str) -> torch.Tensor:
    return getattr(transformers, name).from_pretrained(path).get_output_embeddings().weight.detach()


@settings(max_examples=15)
@given(st.integers(2, 40), st.integers(1, 12), st.integers(0, 2**31))
def test_a_vector_subtracted_from_every_row_changes_no_probability(v, d, seed):
    random = torch.Generator().manual_seed(seed)
    shapes = ((v, d), (5, d), (v,), (d,))
    weight, hidden, bias, vector = (torch.randn(*s, generator=random, dtype=torch.float64) * 3 for s in shapes)
    before, after = ((hidden @ w.T + bias).log_softmax(-1) for w in (weight, weight - vector))
    torch.testing.assert_close(after, before, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    "name", [also_slow(name, is_slow=name in ("OPTForCausalLM", "RobertaForMaskedLM")) for name in FOLDED]
)
def test_the_mean_of_a_tied_table_goes_where_it_is_added_again(tmp_path, name):
    edit = center_head(saved(tmp_path / "m", name), tmp_path / "o")
    assert (edit.way, edit.folded_into, edit.added) == ("folded", (FOLDED[name],), ())
    assert_same(tmp_path, name, edit)


@pytest.mark.parametrize("name", [also_slow("LlamaForCausalLM"), also_slow("GPTNeoXForCausalLM"), "GraniteForCausalLM"])
def test_a_head_of_its_own_is_centred_alone(tmp_path, name):
    edit = center_head(saved(tmp_path / "m", name), tmp_path / "o")
    assert (edit.way, edit.folded_into, edit.added) == ("untied", (), ())
    assert_same(tmp_path, name, edit)
    assert any("multiplies its logits by 0.125" in note for note in edit.notes) == (name == "GraniteForCausalLM")


@pytest.mark.parametrize(
    ("name", "config", "added"),
    [
        ("LlamaForCausalLM", {"tie_word_embeddings": True}, ("lm_head.weight",)),
        also_slow("CohereForCausalLM", {}, ("lm_head.weight",)),
        also_slow("GPTNeoXForCausalLM", {"tie_word_embeddings": True}, ("embed_out.weight",)),
        ("BertForMaskedLM", {}, ("cls.predictions.decoder.bias", "cls.predictions.decoder.weight")),
    ],
)
def test_a_tied_head_is_stored_apart_on_request(tmp_path, name, config, added):
    saved(tmp_path / "m", name, **config)
    edit = center_head(tmp_path / "m", tmp_path / "o", untie=True)
    assert (edit.way, edit.added) == ("parted", added)
    assert json.loads((tmp_path / "o" / "config.json").read_text())["tie_word_embeddings"] is False
    table = getattr(transformers, name).from_pretrained(tmp_path / "o").get_input_embeddings().weight
    assert torch.equal(table, head_of(tmp_path / "m", name))  # the lookup is as it was
    assert_same(tmp_path, name, edit)


def assert_same(folder: Path, name: str, edit: HeadEdit) -> None:
    """In float64, where the original's rounding is gone, only the one rounding of the stored numbers is left."""
    before, after = (log_probabilities(folder / which, name) for which in ("m", "o"))
    assert float((before - after).abs().max()) < 2e-5
    head = head_of(folder / "o", name).double()
    assert float(head.mean(0).abs().max()) < 1e-7
    original = head_of(folder / "m", name).double()
    assert torch.equal(head.float(), (original - original.mean(0)).float())
    proof = edit.proof
    assert proof.same_first == proof.positions
    assert 0 < proof.difference <= proof.rounding + proof.rounding_edited
    assert proof.rounding_edited <= proof.rounding  # the drift made the original round more
    assert 1.5 * proof.rounding < proof.allowed < 3.5 * proof.rounding
    assert edit.before.norm_of_mean > 1 > 1e-6 > edit.after.norm_of_mean
    assert HeadEdit.from_json(edit.to_json()) == edit


def test_models_that_cannot_be_centred_are_refused_with_their_reason(tmp_path):
    apart = r"store the head separately with --untie \(untie=True\), which adds 97 x 32 numbers"
    for name, options, untie, message in (
        ("Gemma2ForCausalLM", {}, True, "caps them softly at 2 "),
        ("LlamaForCausalLM", {"tie_word_embeddings": True}, False, apart),
        ("T5ForConditionalGeneration", {}, False, "The head cannot be stored separately either"),
    ):
        with pytest.raises(UnsupportedModel, match=message):
            center_head(saved(tmp_path / name, name, **options), tmp_path / "o", untie=untie)
    drifted("BertForMaskedLM").bert.save_pretrained(tmp_path / "encoder")
    with pytest.raises(UnsupportedModel, match="expected a model with an output head in its files"):
        center_head(tmp_path / "encoder", tmp_path / "o")
    assert not (tmp_path / "o").exists()


def set_config(path: Path, **changes: object) -> None:
    (path / "config.json").write_text(json.dumps(json.loads((path / "config.json").read_text()) | changes))


def test_adapters_and_quantised_weights_are_refused(tmp_path):
    model, alone = saved(tmp_path / "m", "LlamaForCausalLM"), tmp_path / "adapter"
    alone.mkdir()
    for path in (model, alone):
        (path / "adapter_config.json").write_text("{}")
        with pytest.raises(UnsupportedModel, match="merge the adapter first"):
            center_head(path, tmp_path / "o")
    (model / "adapter_config.json").unlink()
    set_config(model, quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(UnsupportedModel, match=r"has a quantization_config: give the model before quantisation"):
        center_head(model, tmp_path / "o")


def test_a_failed_proof_writes_nothing(tmp_path, monkeypatch):
    """Planted faults: a table that takes too little of the mean, and one that takes none."""
    saved(tmp_path / "m", "GPT2LMHeadModel")
    for found in ({"transformer.wpe.weight": 0.99}, {}):
        monkeypatch.setattr("uncone.edits.head.find_compensation", lambda *_, found=found: found)
        with pytest.raises(UnsupportedModel, match=r"got an error of .* so nothing was written"):
            center_head(tmp_path / "m", tmp_path / "o")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_where_it_cannot_be_written_is_said_before_the_model_is_loaded(tmp_path, monkeypatch):
    saved(tmp_path / "m", "LlamaForCausalLM")
    monkeypatch.setattr("uncone.edits.head.load_model", lambda *_, **__: pytest.fail("loaded first"))
    monkeypatch.setattr("uncone.edits.head.open_directory", lambda *_: pytest.fail("opened first"))
    monkeypatch.setattr("uncone.edits.tokens.open_directory", lambda *_: pytest.fail("opened first"))
    for out, message in (
        (tmp_path / "no" / "o", "there is no folder"),
        (tmp_path / "m", "which exists"),
        (tmp_path / "m" / "o", "outside the model"),
    ):
        for edit in (center_head, lambda model, out: reinitialise_tokens(model, out, [1])):
            with pytest.raises(InputError, match=message):
                edit(tmp_path / "m", out)


def test_what_reads_raw_logits_is_warned_of(tmp_path):
    model = saved(tmp_path / "m", "LlamaForCausalLM")
    before = (model / "config.json").read_text()
    set_config(model, z_loss_coefficient=1e-4, router_z_loss_coef=1.0)
    (model / "generation_config.json").write_text(json.dumps({"repetition_penalty": 1.2, "temperature": 0.7}))
    penalty, loss = center_head(model, tmp_path / "o").warnings
    assert "repetition_penalty to 1.2" in penalty
    assert "'z_loss_coefficient'. A z-loss" in loss
    (model / "generation_config.json").write_text(json.dumps({"repetition_penalty": 1.0}))
    (model / "config.json").write_text(before)
    assert center_head(model, tmp_path / "p").warnings == ()


def test_token_types_looked_up_in_the_token_table_are_told(tmp_path):
    for name in ("GPT2LMHeadModel", "BertForMaskedLM"):
        notes = center_head(saved(tmp_path / name, name), tmp_path / f"{name}-centred").notes
        assert any("token_type_ids" in note for note in notes) == (name == "GPT2LMHeadModel")


def test_the_proof_runs_on_text_where_there_is_a_tokenizer(tmp_path):
    model, text = saved(tmp_path / "m", "LlamaForCausalLM"), tmp_path / "t.txt"

    def refused(message: str, **options: object) -> None:
        with pytest.raises(InputError, match=message):
            center_head(model, tmp_path / "p", **options)

    refused(r"expected a tokenizer in .* \(the model has no tokenizer\): leave the text out", text=__file__)
    assert center_head(model, tmp_path / "a").proof.text.startswith("random ids")
    add_tokenizer(model)
    text.write_text(TEXT)
    assert center_head(model, tmp_path / "o", text=text).proof.text == "t.txt"
    assert (tmp_path / "o" / "tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()
    (tmp_path / "empty.txt").write_text("")
    refused("at least two tokens, got 0", text=tmp_path / "empty.txt")
    refused(r"cannot read .*unheard_of.md: no such file: give a text in UTF-8", text=tmp_path / "unheard_of.md")
    packed = shutil.copy(text, tmp_path / "t.xz")
    refused(r"cannot read .*t.xz: Input format not supported.*: give a text in UTF-8", text=packed)
    refused("expected the dtype of the proof to be one of", dtype="float64")  # nothing wider is left


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", also_slow("LlamaForCausalLM")])
def test_a_model_in_float64_is_proven_in_float32(tmp_path, name):
    edit = center_head(saved(tmp_path / "m", name, dtype=torch.float64), tmp_path / "o")
    assert (edit.dtype, edit.proof.dtype) == ("float64", "float32")
    before, after = (log_probabilities(tmp_path / which, name) for which in ("m", "o"))
    assert float((before - after).abs().max()) < 1e-12


def test_rows_that_are_not_finite_are_refused(tmp_path):
    model = drifted("LlamaForCausalLM")
    with torch.no_grad():
        model.lm_head.weight[5, 3] = float("nan")
    model.save_pretrained(tmp_path / "m")
    with pytest.raises(
        InputError, match=r"NaN or inf in 1 \(5\): give them new rows first, with `uncone repair-tokens`"
    ):
        center_head(tmp_path / "m", tmp_path / "o")


def test_rounding_errors_against_a_loop():
    random = torch.Generator().manual_seed(1)
    weight, hidden = torch.randn(50, 8, generator=random) + 2, torch.randn(6, 8, generator=random)
    mean = weight.double().mean(0)
    centred = (weight.double() - mean).float()
    sides, largest = (as_rows(weight), as_rows(centred)), (float(weight.abs().max()), float(centred.abs().max()))
    found = {e.kind: e for e in rounding.rounding_errors(sides, mean, hidden, largest)}
    assert list(found) == ["int8_tensor", "int8_rows", "float16", "bfloat16", "logits_bfloat16"]

    def error(rows: torch.Tensor, rounded: torch.Tensor) -> float:
        errors, spread = [], []
        for h in hidden.double():
            z = rows.double() @ h
            e = rounded.double() @ h - z
            errors.append(float(((e - e.mean()) ** 2).mean()))
            spread.append(float(((z - z.mean()) ** 2).mean()))
        return (sum(errors) / sum(spread)) ** 0.5

    stepped = torch.round(weight.double() / (largest[0] / 127)) * (largest[0] / 127)
    assert found["int8_tensor"].before == pytest.approx(error(weight, stepped), rel=1e-4)
    assert found["bfloat16"].before == pytest.approx(error(weight, weight.bfloat16()), rel=1e-4)
    assert found["bfloat16"].after == pytest.approx(error(weight.double() - mean, centred.bfloat16()), rel=1e-2)
    assert all(e.after < e.before for e in found.values())  # the mean is most of these rows


def test_head_rows_against_a_loop():
    x = torch.randn(20, 5, generator=torch.Generator().manual_seed(2)).double() + 1
    found, unit = rounding.head_rows(as_rows(x)), x / x.norm(dim=1, keepdim=True)
    cosines = [float(unit[i] @ unit[j]) for i in range(20) for j in range(20) if i != j]
    assert found.mean_cosine == pytest.approx(sum(cosines) / len(cosines))
    assert found.largest == float(x.abs().max())
    assert found.norm_of_mean == pytest.approx(float(x.mean(0).norm()))
    x[3] = 0
    assert rounding.head_rows(as_rows(x)).mean_cosine is None


MASKED, CAUSAL = "Bert Roberta DistilBert Albert Electra DebertaV2", "Llama GPTNeoX OPT GPTNeo"
PLAIN = ["GPT2LMHeadModel", "XLMWithLMHeadModel", *(f"{name}ForMaskedLM" for name in MASKED.split())]
PLAIN += [f"{name}ForCausalLM" for name in CAUSAL.split()]
TIED = {"tie_word_embeddings": True}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("name", "config", "untie"),
    [
        *((name, {}, False) for name in PLAIN),
        ("GPT2LMHeadModel", {"tie_word_embeddings": False}, False),
        ("LlamaForCausalLM", TIED, True),
        ("CohereForCausalLM", {}, True),
        ("BartForConditionalGeneration", {}, False),
        ("BartForConditionalGeneration", {"scale_embedding": True}, False),
        ("BartForConditionalGeneration", {}, True),
        ("MarianMTModel", {}, True),
        ("MarianMTModel", {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": V}, True),
        ("Qwen2ForCausalLM", TIED, True),
        ("MambaForCausalLM", {}, True),
    ],
)
def test_every_architecture_in_both_dtypes(tmp_path, name, config, untie, dtype):
    proof = center_head(saved(tmp_path / "m", name, dtype=dtype, **config), tmp_path / "o", untie=untie).proof
    assert proof.dtype == str(dtype).removeprefix("torch.")
    assert 0 < proof.rounding_edited <= proof.allowed
    assert proof.same_first + proof.ties == proof.positions
    assert dtype != torch.float32 or proof.ties == 0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [None, "bfloat16", "float16"])
def test_the_real_model_of_260_thousand_parameters(stories, tmp_path, dtype):
    edit = center_head(stories, tmp_path / "o", untie=True, dtype=dtype)
    assert edit.proof.text == "a sample of text"
    assert edit.proof.positions > 1000
    effects = {e.kind: e.after - e.before for e in edit.effects}
    assert effects["int8_rows"] < 0 < effects["int8_tensor"]  # the largest number grew: a loss that the record shows
    start = transformers.AutoTokenizer.from_pretrained(tmp_path / "o")("Once upon a time", return_tensors="pt")
    said = [loaded(path).generate(**start, max_new_tokens=40, do_sample=False) for path in (stories, tmp_path / "o")]
    assert torch.equal(*said)
