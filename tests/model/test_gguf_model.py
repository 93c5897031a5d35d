"""A GGUF file as a model: where its table and head lie, what its tokens are, and what is said of quantised rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uncone
from uncone import InputError, UnsupportedModel
from uncone.model.open import open_subjects

from ..gguf_files import write_gguf

gguf = pytest.importorskip("gguf", reason="the extra [gguf] is not installed")
V, D = 40, 32
Q8 = gguf.GGMLQuantizationType.Q8_0
TABLE = np.random.default_rng(0).standard_normal((V, D)).astype("f4")
HEAD = np.random.default_rng(1).standard_normal((V, D)).astype("f4")


def planted(
    path: Path, tensors: Any, *, arch: str = "llama", tokens: int = V, quantised: bool = False, **keys: Any
) -> Path:
    kind = Q8 if quantised else None
    content = {name: (gguf.quants.quantize(value, Q8) if quantised else value, kind) for name, value in tensors.items()}
    told = {key.replace("__", "."): value for key, value in keys.items()}
    return write_gguf(path, content, arch=arch, tokens=[f"▁{index}" for index in range(tokens)], keys=told)


def names(spec: str | Path) -> list[str]:
    return [name for name, _ in open_subjects(spec).rows]


def test_table_and_head_with_their_tokens(tmp_path: Path) -> None:
    tensors = {"token_embd.weight": TABLE, "output.weight": HEAD, "blk.0.attn_q.weight": TABLE[:D]}
    path = planted(tmp_path / "x.gguf", tensors)
    found = open_subjects(path)
    assert (names(path), names(f"{path}#output.weight"), found.notes) == (["input", "head"], ["head"], ())
    for (_, rows), expected in zip(found.rows, (TABLE, HEAD), strict=True):
        assert np.array_equal(rows.read(0, V), expected)
        assert list(rows.labels or ()) == [f"▁{index}" for index in range(V)]
    assert uncone.open_rows(f"{path}#blk.0.attn_q.weight").labels is None
    with pytest.raises(InputError, match=r"expected one matrix of .*, got the whole model: give .*x\.gguf#input"):
        uncone.open_rows(path)


@pytest.mark.parametrize("keys", [{}, {"split__no": 0, "split__count": 1}], ids=["whole", "of one part"])
def test_a_missing_head_is_the_table(tmp_path: Path, keys: dict[str, int]) -> None:
    path = planted(tmp_path / "x.gguf", {"token_embd.weight": TABLE}, **keys)
    assert names(path) == names(tmp_path) == ["input", "head"]
    assert "is tied to the token table" in open_subjects(path).notes[0]
    assert np.array_equal(uncone.open_rows(f"{path}#head").read(0, V), TABLE)
    blob = path.rename(tmp_path / "blob")  # known by what is in it
    assert uncone.open_rows(f"{blob}#input").shape == (V, D)


@pytest.mark.parametrize(
    ("arch", "keys"),
    [("bert", {}), ("nomic-bert", {}), ("t5encoder", {}), ("qwen3", {"qwen3__attention__causal": False})],
)
def test_an_encoder_has_no_head(tmp_path: Path, arch: str, keys: dict[str, bool]) -> None:
    path = planted(tmp_path / "x.gguf", {"token_embd.weight": TABLE}, arch=arch, **keys)
    why = f"{arch} is an encoder: the GGUF file holds no output head over the vocabulary"
    assert (names(path), open_subjects(path).notes) == (["input"], (why,))
    with pytest.raises(
        InputError, match=r"expected a model with an output head, got .*; open its token table as .*#input"
    ):
        uncone.open_rows(f"{path}#head")


def test_quantised_rows_are_said_to_be(tmp_path: Path) -> None:
    path = planted(tmp_path / "x.gguf", {"token_embd.weight": TABLE, "output.weight": HEAD}, quantised=True)
    found = open_subjects(path)
    assert found.notes == ("The rows are stored as Q8_0 and dequantised for reading.",)
    assert np.allclose(found.rows[0][1].read(0, V), TABLE, atol=0.02)


def test_a_diagnosis_reads_a_quantised_file(tmp_path: Path) -> None:
    table = np.random.default_rng(0).standard_normal((300, D)).astype("f4")
    d = uncone.diagnose(planted(tmp_path / "x.gguf", {"token_embd.weight": table}, tokens=300, quantised=True))
    assert [subject.dtype for subject in d.subjects] == ["Q8_0", "Q8_0"]
    exact = uncone.diagnose(table).subjects[0]
    for measurement, other in zip(d.subjects[0].measurements, exact.measurements, strict=True):
        if measurement.name in ("isoscore", "effective_rank", "mean_cosine"):
            assert measurement.value == pytest.approx(other.value, abs=0.02, rel=0.01)


@pytest.mark.parametrize("tokens", [V - 5, V + 5])
def test_another_number_of_tokens_than_rows(tmp_path: Path, tokens: int) -> None:
    path = planted(tmp_path / "x.gguf", {"token_embd.weight": TABLE}, tokens=tokens)
    labels = uncone.open_rows(f"{path}#input").labels or ()
    assert (len(labels), labels[34], labels[-1] is None) == (V, "▁34", tokens < V)


def test_a_folder_of_several_files_and_a_file_that_is_none(tmp_path: Path) -> None:
    planted(tmp_path / "x.gguf", {"token_embd.weight": TABLE})
    (tmp_path / "y.gguf").write_bytes(b"hello")
    with pytest.raises(InputError, match=r"one GGUF model in .*, got 2 \('x\.gguf', 'y\.gguf'\): give the file"):
        open_subjects(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"got 'x\.gguf', 'y\.gguf': give the file, .*x\.gguf"):
        open_subjects(tmp_path)
    with pytest.raises(InputError, match="expected a GGUF file"):
        open_subjects(tmp_path / "y.gguf")


def test_a_file_without_a_table(tmp_path: Path) -> None:
    path = planted(tmp_path / "x.gguf", {"blk.0.attn_q.weight": TABLE})
    message = r"no tensor 'token_embd\.weight' in .*: give a model with a token table, or .*'blk\.0\.attn_q"
    with pytest.raises(UnsupportedModel, match=message):
        open_subjects(path)
    assert uncone.open_rows(f"{path}#blk.0.attn_q.weight").shape == (V, D)
