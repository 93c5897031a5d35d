"""Sentence Transformers directories: the folder that modules.json names, its table, and no head."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import uncone
from uncone import InputError, UnsupportedModel
from uncone.model.open import open_subjects

V, D = 16, 4
TABLE = torch.arange(V * D, dtype=torch.float32).reshape(V, D)
TRANSFORMER, STATIC, BOW = (f"sentence_transformers.models.{k}" for k in ("Transformer", "StaticEmbedding", "BoW"))
OUT = ("../outside", "/etc", "a/../..", "..", "a\\b", "a\0b", "a" * 300)


def modules(directory: Path, kind: str, folder: object, *others: str) -> Path:
    directory.mkdir(exist_ok=True)
    pooling = "sentence_transformers.models.Pooling"
    listed = [{"idx": 0, "name": "0", "path": folder, "type": kind}]
    listed += [{"idx": 1, "name": "1", "path": other, "type": pooling} for other in others]
    (directory / "modules.json").write_text(json.dumps(listed))
    return directory


def transformer(folder: Path, architecture: str = "BertModel", **settings: object) -> None:
    folder.mkdir(exist_ok=True)
    config = {"architectures": [architecture], "model_type": "bert", "vocab_size": V, **settings}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"embeddings.word_embeddings.weight": TABLE, "other": torch.ones(3, 3)}, folder / "model.safetensors")
    (folder / "vocab.txt").write_text("".join(f"t{index}\n" for index in range(V)))


def words() -> Tokenizer:
    return Tokenizer(WordLevel({f"w{index}": index for index in range(V)}, unk_token="w0"))


def static(folder: Path, **tensors: torch.Tensor) -> None:
    folder.mkdir(exist_ok=True)
    save_file(tensors or {"embedding.weight": TABLE}, folder / "model.safetensors")
    words().save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("folder", ["", ".", "0_Transformer"])
def test_the_folder_of_the_transformer_is_opened(tmp_path: Path, folder: str) -> None:
    transformer(modules(tmp_path, TRANSFORMER, folder, "1_Pooling") / folder)
    found = open_subjects(tmp_path)
    ((name, rows),) = found.rows
    assert (name, rows.shape) == ("input", (V, D))
    assert list(rows.labels or ())[:2] == ["t0", "t1"]
    assert found.notes == ("BertModel has no output head: this checkpoint holds the model without it",)
    assert np.array_equal(uncone.open_rows(f"{tmp_path}#input").read(0, V), TABLE)
    assert uncone.open_rows(f"{tmp_path}#other").shape == (3, 3)


def test_a_head_that_is_not_used_is_none(tmp_path: Path) -> None:
    """all-mpnet-base-v2 names MPNetForMaskedLM, whose head Sentence Transformers never loads."""
    transformer(modules(tmp_path, TRANSFORMER, ""), "BertForMaskedLM")
    assert [name for name, _ in open_subjects(tmp_path).rows] == ["input"]
    with pytest.raises(InputError, match="Sentence Transformers uses the model without its output head"):
        uncone.open_rows(f"{tmp_path}#head")


def test_a_head_that_is_used_stays(tmp_path: Path) -> None:
    """SPLADE reads its output head."""
    transformer(modules(tmp_path, "sentence_transformers.sparse_encoder.models.MLMTransformer", ""), "BertForMaskedLM")
    assert [name for name, _ in open_subjects(tmp_path).rows] == ["input", "head"]


@pytest.mark.parametrize("folder", ["", "0_StaticEmbedding"])
def test_static_embeddings_are_a_table(tmp_path: Path, folder: str) -> None:
    static(modules(tmp_path, STATIC, folder) / folder)
    ((name, rows),) = open_subjects(tmp_path).rows
    assert name == "input"
    assert np.array_equal(rows.read(0, V), TABLE)
    assert list(rows.labels or ())[:2] == ["w0", "w1"]
    with pytest.raises(InputError, match="StaticEmbedding has no output head"):
        uncone.open_rows(f"{tmp_path}#head")


def test_a_table_of_model2vec(tmp_path: Path) -> None:
    static(modules(tmp_path, STATIC, "."), embeddings=TABLE)
    assert uncone.open_rows(f"{tmp_path}#input").labels is not None
    static(tmp_path, embeddings=TABLE, mapping=torch.zeros(99, dtype=torch.int64))
    assert uncone.open_rows(f"{tmp_path}#input").labels is None  # several tokens share a row


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["static", "transformer"])
def test_what_sentence_transformers_saves_is_opened(tmp_path: Path, kind: str, minilm: Path) -> None:
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    if kind == "static":
        from sentence_transformers.sentence_transformer.modules import StaticEmbedding

        model = library.SentenceTransformer(modules=[StaticEmbedding(words(), embedding_weights=TABLE.numpy())])
    else:
        model = library.SentenceTransformer(str(minilm), device="cpu")
    model.save(str(tmp_path / "model"))
    expected = TABLE if kind == "static" else model[0].auto_model.embeddings.word_embeddings.weight.detach()
    rows = uncone.open_rows(f"{tmp_path / 'model'}#input")
    assert np.array_equal(np.concatenate(list(rows.blocks())), expected)
    assert rows.labels is not None


class TestMessages:
    """Each says what was expected, what came and what to do."""

    @pytest.mark.parametrize(
        ("kind", "folder", "error", "message"),
        [
            *(
                (TRANSFORMER, folder, InputError, r"expected folders inside .* in modules\.json: do not")
                for folder in OUT
            ),
            (TRANSFORMER, "0_Transformer", InputError, "names 0_Transformer, which is missing: download"),
            (TRANSFORMER, "a/b", InputError, "names a/b, which is missing: download"),
            (BOW, "", UnsupportedModel, r"the first module of .* is a BoW without config\.json: .* open a matrix"),
            (STATIC, "", InputError, "got none: download"),
        ],
    )
    def test_a_module(self, tmp_path: Path, kind: str, folder: str, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            open_subjects(modules(tmp_path, kind, folder))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "does not parse"),
            ("{}", "expected a JSON list"),
            ("[]", "expected modules in"),
            ("[3]", "expected a type, a path and a name for each module"),
            ('[{"type": 3}]', "expected a type, a path and a name"),
            ('[{"type": "a.Transformer", "path": 3}]', "expected a type, a path and a name"),
        ],
    )
    def test_a_broken_list(self, tmp_path: Path, text: str, message: str) -> None:
        (tmp_path / "modules.json").write_text(text)
        with pytest.raises(InputError, match=message):
            open_subjects(tmp_path)

    def test_static_embeddings_without_a_table(self, tmp_path: Path) -> None:
        static(modules(tmp_path, STATIC, ""), other=TABLE)
        message = r"no tensor 'embedding\.weight' or 'embeddings' in .*; there are 'other'"
        with pytest.raises(UnsupportedModel, match=message):
            open_subjects(tmp_path)


@given(st.binary(max_size=200))
def test_no_list_raises_anything_but_our_errors(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    directory = tmp_path_factory.mktemp("modules")
    (directory / "modules.json").write_bytes(text)
    with pytest.raises(uncone.UnconeError):
        open_subjects(directory)
