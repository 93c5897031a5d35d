"""The bench of remedies for rare tokens: its arms, its resumable cells, its measurements against loops."""

import json
import lzma
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers", reason="the extra [hf] is not installed")

import torch
from scipy import stats

import uncone
from tests.training.models import V, build
from uncone import InputError
from uncone.model.last_states import States

Load = Callable[[str], Any]
CONFIG = {
    "name": "tiny",
    "text": {"vocabulary": 300, "tokenizer_shards": 1},
    "model": {"width": 16, "layers": 1, "heads": 2, "length": 16},
    "training": {"steps": 24, "batch": 8, "warm_up": 0.1, "clip": 1.0, "monitor_every": 6},
    "picture": {"steps": [1, 24], "arms": ["column"]},
    "cells": [
        {"arms": ["adamw95", "column"], "rates": [1e-3, 4e-3], "seeds": [0]},
        {"arms": ["column", "freeze-all"], "rates": ["best"], "seeds": [1]},
    ],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    random, folder = np.random.default_rng(0), tmp_path / "data"
    folder.mkdir()
    words = [f"w{i}x{i * 7 % 13}" for i in range(120)]
    weights = 1 / np.arange(1, 121)
    for name, many in (("train-00", 60), ("valid", 12)):
        lines = []
        for article in range(many):
            drawn = random.choice(words, size=80, p=weights / weights.sum())
            lines += [f"= Title {article} =", "", " ".join(drawn[:40]), " ".join(drawn[40:]), ""]
        (folder / f"{name}.txt.xz").write_bytes(lzma.compress("\n".join(lines).encode()))
    return folder


@pytest.fixture
def bench(rare: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """train.py, whose results go to a folder of the test, saved after every 8 steps."""
    train = rare("train")
    monkeypatch.setattr(train, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(train, "SAVE_EVERY", 8)
    monkeypatch.setattr(train, "LOG_EVERY", 4)
    return train


def _trained(bench: Any, rare: Load, data: Path, work: Path, arm: str = "agg-column", **change: Any) -> Any:
    text = rare("text").Text(data, work, 300, 1)
    cell = bench.Cell("tiny", arm, 2e-3, 0, **change)
    return bench.train(cell, CONFIG, text, work), cell, text


def _weights(work: Path, cell: Any) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(work / "cells" / cell.name / "model" / "model.safetensors")


def test_articles_are_whole_and_a_missing_file_is_named(rare: Load, data: Path) -> None:
    found = list(rare("text").articles(data, "valid"))
    assert len(found) == 12
    assert found[3].startswith("= Title 3 =\n")
    assert "Title 4" not in found[3]
    (data / "empty.txt.xz").write_bytes(lzma.compress(b"\n\n"))
    with pytest.raises(InputError, match="empty file"):
        list(rare("text").articles(data, "empty"))
    with pytest.raises(InputError, match=r"train-09\.txt\.xz"):
        list(rare("text").articles(data, "train-09"))


def test_windows_predict_each_id_once(rare: Load, data: Path, tmp_path: Path) -> None:
    text = rare("text").Text(data, tmp_path / "work", 300, 1)
    windows, ids = text.windows(1, 16), text.ids("train-00")
    assert windows[:, 1:].flatten().tolist() == ids[1 : 1 + windows[:, 1:].numel()].tolist()
    assert int(text.counts().sum()) == len(ids)
    assert int((ids == text.tokenizer.token_to_id("<|endoftext|>")).sum()) == 60


def test_groups_are_the_rarest_and_the_most_frequent(rare: Load) -> None:
    counts = torch.tensor([5, 0, 9, 9, 1, 7, 3, 2, 8, 4])
    assert rare("arms").groups(counts).tolist() == [1, 2, 0, 0, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(("arm", "kept"), [("without-b", "other"), ("without-c", "rare"), ("adamw95", "both")])
def test_a_part_of_the_push_is_removed(rare: Load, arm: str, kept: str) -> None:
    """The gradient of a rare row that no target has: pushes of targets that are rare, and of others."""
    counts = torch.arange(V, 0, -1)
    model, arms = build("GPT2LMHeadModel", dtype=torch.float64, tie_word_embeddings=False), rare("arms")
    groups = arms.groups(counts)
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(0, V - 1, (2, 8), generator=random)
    ids[:, 3] = V - 2  # a rare target; the last row is no target
    assert int(groups[V - 1]) == int(groups[V - 2]) == 2
    with uncone.attach(model, **arms.ARMS[arm].attached(counts)):
        model(input_ids=ids, labels=ids).loss.backward()
    found = model.lm_head.weight.grad[V - 1].clone()
    model.zero_grad()
    states = model.transformer(ids).last_hidden_state[:, :-1].flatten(0, 1).detach()
    p = (states @ model.lm_head.weight.T).softmax(-1)[:, V - 1] / len(states)
    is_rare = groups[ids[:, 1:].flatten()] == 2
    push = {"other": is_rare, "rare": ~is_rare, "both": torch.ones_like(is_rare)}[kept]
    torch.testing.assert_close(found, (p[push, None] * states[push]).sum(0), rtol=1e-5, atol=1e-9)


def test_each_config_names_arms_that_there_are_and_cells_once(rare: Load, bench: Any) -> None:
    arms, fill = rare("arms").ARMS, rare("fill")
    for path in Path(fill.__file__).parent.glob("*.toml"):
        config = bench.read_config(path)
        assert config["name"] == path.stem
        assert {arm for block in config["cells"] for arm in block["arms"]} <= set(arms)
        assert {arm.base for arm in arms.values()} - {""} <= set(arms)
        names = [cell.name for cell in fill.cells(config)]
        assert len(names) == len(set(names)) > 0


def test_best_is_the_rate_of_the_lowest_last_losses(rare: Load, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fill = rare("fill")
    monkeypatch.setattr(fill, "read_config", lambda path: CONFIG)
    names = [cell.name for cell in fill.cells(CONFIG)]
    assert names == ["tiny-adamw95-0.001-0", "tiny-adamw95-0.004-0", "tiny-column-0.001-0", "tiny-column-0.004-0"]
    bench.RESULTS.joinpath("cells").mkdir(parents=True)
    for cell, (early, late) in zip(list(fill.cells(CONFIG)), [(5, 4), (3, 4.5), (5, 2), (4, 1)], strict=True):
        result = {"losses": [[4, early], [24, late]], "config": CONFIG, "diverged": late == 1}
        cell.result.write_text(json.dumps(result))
    found = {cell.name for cell in fill.cells(CONFIG)}
    assert "tiny-column-0.001-1" in found  # the other rate diverged
    assert "tiny-freeze-all-0.001-1" in found  # the rate of its base, AdamW


def test_a_cell_is_trained_by_one_process(rare: Load, bench: Any, tmp_path: Path) -> None:
    fill, cell = rare("fill"), bench.Cell("tiny", "column", 1e-3, 0)
    lock = fill.locked(tmp_path, cell)
    assert lock is not None
    assert fill.locked(tmp_path, cell) is None
    lock.close()
    with fill.locked(tmp_path, cell) as again:
        assert again is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_stopped_cell_ends_as_one_that_was_not(rare: Load, bench: Any, data: Path, tmp_path: Path) -> None:
    whole, cell, _ = _trained(bench, rare, data, tmp_path / "a")

    class StopError(Exception):
        pass

    class Stopping(bench.Windows):  # type: ignore[misc, name-defined]
        def __getitem__(self, i: int) -> Any:
            if i == 4 * 13:
                raise StopError
            return super().__getitem__(i)

    windows = bench.Windows
    bench.Windows = Stopping
    with pytest.raises(StopError):
        _trained(bench, rare, data, tmp_path / "b")
    bench.Windows = windows
    again, _, _ = _trained(bench, rare, data, tmp_path / "b")
    for name, weight in _weights(tmp_path / "a", cell).items():
        assert torch.equal(weight, _weights(tmp_path / "b", cell)[name]), name
    assert [step for step, _ in again["losses"]] == [4, 8, 12, 16, 20, 24]
    assert whole["losses"] == again["losses"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_frozen_rows_stay_and_a_folder_of_another_config_is_refused(
    rare: Load, bench: Any, data: Path, tmp_path: Path
) -> None:
    _, cell, text = _trained(bench, rare, data, tmp_path / "work", "freeze-all")
    start = bench.make_model(CONFIG, text.vocabulary, cell)
    is_rare = rare("arms").groups(text.counts()) == 2
    after = _weights(tmp_path / "work", cell)
    for name, weight in start.state_dict().items():
        if name in ("lm_head.weight", "transformer.wte.weight"):
            assert torch.equal(weight[is_rare], after[name][is_rare])
            assert not torch.equal(weight[~is_rare], after[name][~is_rare])
    with pytest.raises(InputError, match="another"):
        bench.train(cell, CONFIG | {"training": CONFIG["training"] | {"clip": 2.0}}, text, tmp_path / "work")  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_run_that_diverges_is_stopped_and_marked(rare: Load, bench: Any, data: Path, tmp_path: Path) -> None:
    text = rare("text").Text(data, tmp_path / "work", 300, 1)
    cell = bench.Cell("tiny", "adamw95", 30.0, 0)
    result = bench.train(cell, CONFIG, text, tmp_path / "work")
    assert result["diverged"]
    assert len(result["losses"]) < 6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_measurements_are_those_of_loops(rare: Load, bench: Any, data: Path, tmp_path: Path) -> None:
    measure, (result, cell, text) = rare("measure"), _trained(bench, rare, data, tmp_path / "work", "column")
    watched = uncone.watch(cell.result.with_name(result["monitor"]))
    assert watched.runs[0].readings[0].steps[-1] == 24
    measure.SHARED = tmp_path  # without word pairs and passages
    found = measure.measure(cell, CONFIG, text, tmp_path / "work")
    documents = np.array(found["documents"])
    record = found["evaluation"]
    assert documents[:, :4].sum() == record["targets"]
    assert documents[:, 4:8].sum() / documents[:, :4].sum() == pytest.approx(record["loss"]["value"], abs=1e-4)
    groups = {one["name"]: one for one in record["groups"] if one["by"] == "ids"}
    sums = documents.sum(0)
    assert math.log(sums[10] / sums[2]) == pytest.approx(groups["rare"]["log_ratio"]["value"], abs=1e-3)
    assert found["shifted"]["loss_at_each"][12] == pytest.approx(record["loss"]["value"], rel=1e-5)  # no shift
    assert [len(one) for one in found["generated"]] == [2, 2, 2]
    head = _weights(tmp_path / "work", cell)["lm_head.weight"].double()
    norms = torch.tensor(found["plane"]["steps"]["24"]).norm(dim=1)
    assert list(found["plane"]["steps"]) == ["1", "24"]
    assert (norms <= head[found["plane"]["ids"]].norm(dim=1) + 1e-2).all()
    _, axes = np.linalg.eigh((head.T @ head).numpy())
    assert norms.tolist() == pytest.approx(
        np.linalg.norm(head[found["plane"]["ids"]].numpy() @ axes[:, -2:], axis=1).tolist(), abs=2e-3
    )
    tables = rare("tables")
    run = tables.Run(cell, {"measured": found})
    assert run.loss() == pytest.approx(record["loss"]["value"], abs=1e-4)


def test_what_kappa_foretells_is_a_sum_over_ids(rare: Load) -> None:
    counts, cut = np.array([50, 30, 12, 6, 2, 0]), np.array([0, 0, 1, 1, 2, 2])
    found = rare("measure").predicted(counts, cut, 8)["0.95"]
    for g in range(3):
        true = foretold = 0.0
        for count in counts[cut == g]:
            true += (q := count / 100)
            if count:
                kappa = 0.05 / (q * 8)
                foretold += q * kappa / (2 * (math.exp(kappa / 2) - 1))
        assert found[g] == pytest.approx(math.log(foretold / true))


def test_one_bias_on_rare_logits_is_that_of_a_loop(rare: Load) -> None:
    random = torch.Generator().manual_seed(0)
    states, head = torch.randn(40, 5, generator=random), torch.randn(12, 5, generator=random)
    labels, texts = torch.randint(0, 12, (40,), generator=random), torch.arange(40) // 4
    is_rare = np.arange(12) >= 9
    measure = rare("measure")
    given = States(states, labels, head, None, None, 1.0, "", texts, texts=texts)
    own = torch.nn.functional.cross_entropy((states @ head.T).double(), labels, reduction="none")
    rare_mass = (states @ head.T).double().softmax(1)[:, 9:].sum(1)
    found = measure.with_shift(given, own.numpy(), rare_mass.numpy(), is_rare)
    logits = (states @ head.T).double()
    losses = []
    for shift in measure.SHIFTS.tolist():
        moved = logits.clone()
        moved[:, 9:] += shift
        losses.append(torch.nn.functional.cross_entropy(moved, labels, reduction="none"))
    every = torch.stack(losses)
    assert found["loss_at_each"] == pytest.approx(every.mean(1).tolist(), rel=1e-5)
    odd = texts % 2 == 1
    best = [int(every[:, ~half].mean(1).argmin()) for half in (odd, ~odd)]
    assert found["shifts"] == pytest.approx([float(measure.SHIFTS[one]) for one in best])
    kept = torch.where(odd, every[best[0]], every[best[1]])
    assert found["loss"] == pytest.approx(float(kept.mean()), rel=1e-5)
    mass = torch.stack(
        [
            (logits[i] + measure.SHIFTS[best[int(~odd[i])]] * torch.from_numpy(is_rare)).softmax(0)[9:].sum()
            for i in range(40)
        ]
    )
    share = float((labels >= 9).double().mean())
    assert found["log_ratio"] == pytest.approx(math.log(float(mass.mean()) / share), abs=1e-5)


def test_an_effect_is_a_t_interval_with_what_it_could_have_seen(rare: Load) -> None:
    of = [0.3, 0.1, 0.2, 0.25, 0.05]
    found = rare("tables").effect(of)
    low, high = stats.t.interval(0.95, 4, loc=np.mean(of), scale=stats.sem(of))
    assert (found.value, found.low, found.high) == pytest.approx((np.mean(of), low, high))
    error = stats.sem(of)
    power = 1 - stats.t.cdf(stats.t.ppf(0.975, 4) - found.smallest / error, 4)
    assert power == pytest.approx(0.8)
    assert rare("tables").effect([0.1]).low is None


def _measured(tables: Any, rare_loss: float = 12.0, cosine: float = 0.5) -> dict[str, Any]:
    groups = [{"by": "ids", "name": "rare", "unique_predicted": 3}]
    groups += [{"by": "input", "name": name, "loss": {"value": 2.0}} for name in ("frequent", "medium", "rare")]
    head = dict.fromkeys(
        ("mean_cosine", "mean_cosine_centred", "partition_isotropy", "partition_isotropy_centred", "mean_row"), cosine
    )
    head |= {name: {"mean_cosine": cosine} for name in ("frequent", "medium", "rare")}
    return {
        "documents": [[10, 5, 2, 0, 20.0, 15.0, rare_loss, 0.0, 9.0, 6.0, 1.0, 1.0]],
        "evaluation": {"groups": groups},
        "generated": [["Once", " upon | a <time>"]],
        "head": head,
        "plane": {"steps": {"1": [[1, 0], [0, 1], [-1, 0]]}, "ids": [0, 1, 2], "groups": [0, 1, 2]},
        "predicted": {"0.95": [0.0, -0.1, -0.7], "0.999": [0.0, 0.0, -0.1]},
        "shifted": {"rare_loss": 5.0},
        "word_similarity": {name: {"original": {"spearman_cosine": 12.0, "n": 9}} for name in tables.SETS},
    }


def _result(cell: Any, measured: Any = None) -> dict[str, Any]:
    told = {"cell": asdict(cell), "config": CONFIG, "losses": [[24, 3.0]], "diverged": False, "seconds": 7.0}
    return told | {"monitor": "none"} | ({"measured": measured} if measured else {})


def test_tables_come_from_results_and_name_what_was_not_run(
    rare: Load, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill, tables = rare("fill"), rare("tables")
    monkeypatch.setattr(fill, "read_config", lambda path: CONFIG)
    bench.RESULTS.joinpath("cells").mkdir(parents=True)
    cell = next(fill.cells(CONFIG))
    cell.result.write_text(json.dumps(_result(cell, _measured(tables))))
    replace(cell, rate=4e-3).result.write_text(json.dumps(_result(cell) | {"diverged": True}))
    said = tables.report(CONFIG)
    assert f"{47 / 17:.3f}" in said
    assert f"{math.log(1 / 2):+.2f}" in said
    assert "| tiny-adamw95-0.004-0 | diverged" in said
    assert "| second moment a column | not run |" in said
    assert "| Once | AdamW, beta2 .95 | upon \\| a &lt;time> |" in said
    assert "| AdamW, beta2 .95 | rare | -0.700 | -0.693 |" in said
    assert (
        tables.picture(
            CONFIG | {"picture": {"steps": [1], "arms": ["adamw95"]}}, tables.runs_of(fill.cells(CONFIG))
        ).count("h0")
        == 3
    )


@pytest.mark.parametrize(
    ("ours", "control", "said"),
    [
        ([-2.0, -2.1, -1.9], [-1.0, -1.1, -0.95], "confirmed"),
        ([-2.0, -2.1, -1.9], [-2.1, -2.2, -1.8], "weakened: the control does as much"),
        ([2.0, 2.1, 1.9], [0.0, 0.1, -0.1], "contradicted"),
        ([-0.1, 0.2, 0.05], [0.0, 0.1, -0.1], "cannot be decided at this size"),
        ([-2.0], [0.0], "cannot be decided: one seed"),
        ([-2.0, -2.1, -1.9], [], "the effect is there; the control is not run"),
        ([], [], "not run"),
    ],
)
def test_a_verdict_follows_from_our_interval_and_the_controls(
    rare: Load, bench: Any, ours: list[float], control: list[float], said: str
) -> None:
    claims, tables = rare("claims"), rare("tables")

    def runs(arm: str, losses: list[float]) -> list[Any]:
        cells = [bench.Cell("tiny", arm, 1e-3, seed) for seed in range(len(losses))]
        return [
            tables.Run(cell, _result(cell, _measured(tables, 2 * (9 + x))))
            for cell, x in zip(cells, losses, strict=True)
        ]

    best = {"adamw95": runs("adamw95", [0.0] * 3), "agg": runs("agg", ours), "adamw999": runs("adamw999", control)}
    claim = next(one for one in claims.CLAIMS if one.text == "The gate lowers the perplexity of rare tokens")
    row = claims.claims_table({arm: some for arm, some in best.items() if some}, [claim])[2]
    assert row.split(" | ")[-1].startswith(said)


@pytest.mark.parametrize("name", ["core", "v16k-d128", "v16k-d256"])
def test_kept_tables_are_what_the_kept_results_say(rare: Load, name: str) -> None:
    tables = rare("tables")
    assert tables.report(tables.read_config(tables.path_of(name))) == (tables.RESULTS / f"{name}.md").read_text()
