"""What the header, config.json and well-known names say, without transformers."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uncone.errors import InputError, UnconeError, UnsupportedModel
from uncone.model import ModelFiles, Places, find_places, open_model_files
from uncone.model import places as places_module
from uncone.rows.bytes import LocalFile
from uncone.rows.safetensors import Entry

V, D = 16, 4


def refused(files):
    """Any question to transformers fails as if it were not installed."""
    raise UnsupportedModel("needs transformers 5: pip install 'uncone[hf]'")


@pytest.fixture
def no_transformers(monkeypatch):
    monkeypatch.setattr(places_module, "locate", refused)


def config(architecture, **more):
    return {"architectures": [architecture], "vocab_size": V, **more}


@pytest.mark.usefixtures("no_transformers")
@pytest.mark.parametrize(
    ("settings", "table"),
    [
        (config("GPT2LMHeadModel", model_type="gpt2"), "wte.weight"),
        (config("GPT2LMHeadModel", model_type="gpt2", tie_word_embeddings=True), "transformer.wte.weight"),
        (config("BertForMaskedLM", model_type="bert", type_vocab_size=2), "bert.embeddings.word_embeddings.weight"),
        (config("LlamaForCausalLM", model_type="llama", tie_word_embeddings=True), "model.embed_tokens.weight"),
        (config("T5ForConditionalGeneration", model_type="t5"), "shared.weight"),
        (config("BartForConditionalGeneration", model_type="bart", tie_word_embeddings=True), "model.shared.weight"),
        (config("GemmaForCausalLM", model_type="gemma"), "model.embed_tokens.weight"),
        (config("MyForCausalLM", auto_map={"AutoModel": "m.M"}, tie_word_embeddings=True), "some.table"),
    ],
)
def test_one_matrix_of_a_tied_language_model_is_table_and_head(plant, settings, table):
    places = find_places(open_model_files(plant(settings, {table: (V, D), "other": (D, D), "bias": (V,)})))
    assert (places.input, places.head, places.tied) == (table, table, True)
    assert settings["architectures"][0] in places.why


@pytest.mark.usefixtures("no_transformers")
@pytest.mark.parametrize(
    ("architecture", "why"),
    [
        *((f"{kind}Model", ": this checkpoint holds the model without it") for kind in ("Bert", "GPT2", "Llama")),
        *((f"{kind}Model", ": this checkpoint holds the model without it") for kind in ("T5Encoder", "Albert")),
        ("BertForSequenceClassification", " over the vocabulary"),
    ],
)
def test_a_bare_model_and_a_classifier_have_no_head(plant, architecture, why):
    tensors = {"table": (V, D), "other": (D, V), "classifier.weight": (2, D)}
    places = find_places(open_model_files(plant(config(architecture), tensors)))
    assert places == Places("table", None, False, f"{architecture} has no output head{why}")


@pytest.mark.usefixtures("no_transformers")
@pytest.mark.parametrize(
    ("settings", "tensors"),
    [
        (config("LlamaForCausalLM", model_type="llama"), {}),  # untied by default: where is the head?
        (config("LlamaForCausalLM", model_type="llama", tie_word_embeddings=False), {}),
        (config("GPT2LMHeadModel", model_type="gpt2", tie_word_embeddings="yes"), {}),
        (config("GPT2LMHeadModel", model_type="gpt2"), {"lm_head.weight": (V, D)}),
        (config("GPT2LMHeadModel", model_type="gpt2"), {"position": (V, D), "table": (V, D)}),
        (config("GPT2LMHeadModel", model_type="gpt2"), {"padded": (V + 3, D), "less": (D, D)}),
        (config("MarianMTModel", model_type="marian", tie_word_embeddings=True), {}),
        (config("BartForConditionalGeneration", model_type="bart", decoder_vocab_size=9), {}),
        (config("WhisperForConditionalGeneration", model_type="whisper", tie_word_embeddings=True), {}),
        (config("ElectraForPreTraining", model_type="electra"), {}),
        (config("GPT2DoubleHeadsModel", model_type="gpt2"), {}),
        (config("EncoderDecoderModel"), {}),
        (config("GPT2LMHeadModel", model_type="gpt2", text_config={"tie_word_embeddings": True}), {}),
        (config("BertModel") | {"architectures": ["BertModel", "BertForMaskedLM"]}, {}),
        (config("BertModel") | {"architectures": None, "model_type": ["bert"]}, {}),
        (config("BertModel") | {"architectures": "BertModel"}, {}),
        (config("BertModel") | {"vocab_size": None}, {}),
    ],
)
def test_where_there_is_a_doubt_transformers_is_asked(plant, settings, tensors):
    directory = plant(settings, tensors or {"table": (V, D)})
    name = next(iter(tensors), "table")
    asked = rf"pip install 'uncone\[hf\]'; or name the tensor yourself, .*#{name}.*'{name}'"
    with pytest.raises(UnsupportedModel, match=asked):
        find_places(open_model_files(directory))


@pytest.mark.usefixtures("no_transformers")
def test_a_checkpoint_without_float_matrices_says_so(plant):
    directory = plant(config("GPT2LMHeadModel", model_type="gpt2"), {"table": torch.zeros(V, D, dtype=torch.int8)})
    with pytest.raises(UnsupportedModel, match="is a matrix of floats: dequantise or convert it first"):
        find_places(open_model_files(directory))


@pytest.mark.usefixtures("no_transformers")
@pytest.mark.parametrize(
    ("table", "head"),
    [
        ("model.embed_tokens.weight", "lm_head.weight"),
        ("gpt_neox.embed_in.weight", "embed_out.weight"),
        ("transformer.wte.weight", "lm_head.weight"),
        ("tok_embeddings.weight", "output.weight"),
        ("shared.weight", "lm_head.weight"),
        ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
    ],
)
def test_without_transformers_well_known_names_decide(plant, table, head):
    places = find_places(open_model_files(plant(config("FooForCausalLM"), {table: (V, D), head: (V, D)})))
    assert (places.input, places.head, places.tied) == (table, head, False)
    assert places.why.startswith("found by the names of the tensors")


@pytest.mark.usefixtures("no_transformers")
def test_two_equal_matrices_are_tied_whatever_the_flag_says(plant):
    weight = torch.ones(V, D)
    files = open_model_files(plant(config("X"), {"embed_tokens.weight": weight, "lm_head.weight": weight.clone()}))
    places = find_places(files)
    assert (places.input, places.head, places.tied) == ("embed_tokens.weight", "lm_head.weight", True)


@pytest.mark.usefixtures("no_transformers")
@pytest.mark.parametrize("third", ["shared.weight", "decoder.embed_tokens.weight", "positions.weight"])
def test_names_that_leave_a_choice_do_not_decide(plant, third):
    names = ["embed_tokens.weight", third, "lm_head.weight"]
    with pytest.raises(UnsupportedModel, match=r"there are 'decoder\.embed|there are 'embed_tokens") as raised:
        find_places(open_model_files(plant(config("X"), dict.fromkeys(names, (V, D)))))
    assert all(repr(name) in str(raised.value) for name in names)


@pytest.mark.usefixtures("no_transformers")
def test_of_a_custom_encoder_the_table_is_known_and_the_head_is_not(plant):
    files = open_model_files(plant(config("FooModel", auto_map={"AutoModel": "foo.FooModel"}), {"table": (V, D)}))
    places = find_places(files)
    assert (places.input, places.head) == ("table", None)
    assert places.why.startswith("it is not known whether FooModel has an output head, since")


def test_an_input_error_of_the_class_is_not_hidden_by_names(plant, monkeypatch):
    def contradict(files):
        raise InputError("config and file contradict each other")

    monkeypatch.setattr(places_module, "locate", contradict)
    with pytest.raises(InputError, match="contradict"):
        find_places(open_model_files(plant(config("X"), {"embed_tokens.weight": (V, D), "lm_head.weight": (V, D)})))


ODD = st.none() | st.booleans() | st.integers(-1, V) | st.sampled_from(["gpt2", "BertModel", "GPT2LMHeadModel", ""])
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "vocab_size": ODD | st.just(V) | st.lists(ODD, max_size=2),
        "architectures": ODD | st.lists(ODD, max_size=2),
        "model_type": ODD | st.lists(ODD, max_size=2) | st.dictionaries(st.just("a"), ODD),
        "tie_word_embeddings": ODD | st.lists(ODD, max_size=2),
        "text_config": ODD | st.dictionaries(st.sampled_from(["vocab_size", "tie_word_embeddings"]), ODD),
        "decoder_vocab_size": ODD | st.lists(ODD, max_size=2),
    },
)


@given(SETTINGS)
def test_an_odd_config_gives_an_answer_or_our_error(settings):
    files = ModelFiles(Path("nowhere"), settings, {"table": (LocalFile(__file__), Entry("F32", (V, D), 0, 4 * V * D))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places_module, "locate", refused)
        try:
            places = find_places(files)
        except UnconeError:
            return
    assert places.input == "table"
    assert places.head in ("table", None)
    assert places.tied == (places.head == "table")


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_the_header_alone_does_not_import_transformers(plant):
    directory = plant(config("GPT2LMHeadModel", model_type="gpt2"), {"wte.weight": (V, D)})
    (directory / "vocab.txt").write_text("a\n")
    run(f"""
        import sys
        from uncone.model import find_places, open_model_files, rows_of
        files = open_model_files({str(directory)!r})
        places = find_places(files)
        assert rows_of(files, places.head, with_tokens=True).labels[0] == "a"
        assert "transformers" not in sys.modules and "tokenizers" not in sys.modules
    """)


def test_a_missing_transformers_is_named_with_its_extra(plant):
    run(f"""
        import sys
        sys.modules["transformers"] = None
        from uncone.errors import UnsupportedModel
        from uncone.model import find_places, open_model_files
        try:
            find_places(open_model_files({str(plant(config("FooForCausalLM"), {"a": (V, D), "b": (V, D)}))!r}))
        except UnsupportedModel as error:
            assert "pip install 'uncone[hf]'" in str(error) and "'a', 'b'" in str(error), error
        else:
            raise SystemExit("no error")
    """)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_model_types_said_to_tie_do_tie():
    transformers = pytest.importorskip("transformers")
    from uncone.model.places import TIED_BY_DEFAULT

    kinds = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    assert [kind for kind in sorted(TIED_BY_DEFAULT) if not kinds[kind]().tie_word_embeddings] == []
