"""The runs on an endless stream: the source's rank and frequencies, the gradient, and runs that go on after a kill."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uncone

torch = pytest.importorskip("torch")
Load = Callable[[str], Any]
KEPT = Path(__file__).parents[2] / "experiments" / "saturation"
CELL = {"width": 4, "batch": 64, "decay": 0.1, "seed": 1}


@pytest.fixture
def small(saturation: Load) -> Any:
    return saturation("source").Source(vocabulary=12, rank=5)


@pytest.mark.parametrize(("vocabulary", "rank"), [(12, 5), (20, 8)])
def test_the_log_probabilities_have_the_planted_rank(saturation: Load, vocabulary: int, rank: int) -> None:
    log_p = saturation("source").Source(vocabulary=vocabulary, rank=rank).log_p
    np.testing.assert_allclose(np.exp(log_p).sum(1), 1)
    assert np.linalg.matrix_rank(log_p - log_p.mean(1, keepdims=True), tol=1e-8) == rank


def test_the_stationary_contexts_stay_as_they_are(small: Any) -> None:
    v = small.vocabulary
    p, now = np.exp(small.log_p), small.stationary
    then = np.zeros(v * v)
    for context, share in enumerate(now):
        for token in range(v):
            then[context % v * v + token] += share * p[context, token]
    np.testing.assert_allclose(then, now, atol=1e-12)


def test_alias_tables_hold_the_probabilities(small: Any) -> None:
    keep, other = small.alias
    v, found = small.vocabulary, np.zeros((small.vocabulary**2, small.vocabulary))
    for at in range(v**3):
        found[at // v, at % v] += keep[at] / v
        found[at // v, other[at]] += (1 - keep[at]) / v
    np.testing.assert_allclose(found, np.exp(small.log_p), atol=1e-6)


def test_streams_have_the_frequencies_of_the_source(saturation: Load, small: Any) -> None:
    streams, v = saturation("source").Streams(small, 4000, seed=3), small.vocabulary
    seen = np.zeros((v * v, v))
    for _ in range(100):
        before = streams.contexts
        contexts, tokens = streams.next()
        assert contexts is before
        assert (streams.contexts == contexts % v * v + tokens).all()
        np.add.at(seen, (contexts, tokens), 1)
    expected = small.stationary[:, None] * np.exp(small.log_p) * seen.sum()
    often = expected > 50
    z = (seen[often] - expected[often]) / np.sqrt(expected[often])
    assert abs(z.mean()) < 0.15
    assert 0.8 < z.std() < 1.2


@pytest.mark.parametrize("context", [2, 3])
def test_the_written_out_gradient_is_that_of_autograd(saturation: Load, context: int) -> None:
    module, generator = saturation("network"), np.random.default_rng(0)
    model = module.Model(module.Shape(12, 6, context), seed=0)
    model.p["g"].uniform_(0.5, 2)
    model.p["b"].normal_()
    contexts, tokens = generator.integers(0, 12, (50, context)), generator.integers(0, 12, 50)
    contexts[25:] = contexts[:25]
    given = contexts if context > 2 else contexts @ [12, 1]  # by number: equal ones are put together
    model.gradients(module.Batch.of(given, tokens, 12))
    p = {name: one.double().requires_grad_() for name, one in model.p.items()}
    x = sum(p["E"][contexts[:, j]] @ p["M"][j] for j in range(context))
    y = x + torch.tanh(x @ p["A"] + p["b"]) @ p["B"]
    h = torch.nn.functional.rms_norm(y, (6,), p["g"], module.RMS_EPS)
    torch.nn.functional.cross_entropy(h @ p["W"].T, torch.from_numpy(tokens)).backward()
    for name, one in p.items():
        torch.testing.assert_close(model.d[name].double(), one.grad, atol=1e-7, rtol=1e-4)


def test_the_step_is_that_of_torch(saturation: Load) -> None:
    module = saturation("network")
    model = module.Model(module.Shape(12, 6), seed=0)
    parts = {name: one.clone().requires_grad_() for name, one in model.p.items()}
    decays = {"EMABW": 0.1, "bg": 0.0}
    groups = [{"params": [parts[name] for name in of], "weight_decay": decay} for of, decay in decays.items()]
    rival = torch.optim.AdamW(groups, lr=0.01, betas=module.BETAS, eps=module.EPS)
    for seed in range(5):
        model.gradient.normal_(generator=torch.Generator().manual_seed(seed))
        for name, one in parts.items():
            one.grad = model.d[name].clone()
        torch.nn.utils.clip_grad_norm_(list(parts.values()), module.CLIP)
        rival.step()
        model.adamw(0.01, 0.1)
    for name, one in parts.items():
        torch.testing.assert_close(model.p[name], one.detach())


def test_the_mean_row_of_the_head_moves_and_nothing_depends_on_it(saturation: Load, small: Any) -> None:
    network, runs = saturation("network"), saturation("runs")
    models = [network.Model(network.Shape(12, 4), seed=0) for _ in range(2)]
    streams = [runs.Stream(small, 32, seed=0) for _ in models]
    drift = 0.0
    for _ in range(200):
        for model, stream in zip(models, streams, strict=True):
            model.gradients(stream.batch())
            assert model.d["W"].mean(0).abs().max() < 1e-7
            model.adamw(0.01, 0.1)
        mean = models[1].p["W"].mean(0, keepdim=True)
        drift = max(drift, float(mean.norm()))
        models[1].p["W"] -= mean
    left, centred = (model.p["W"] - model.p["W"].mean(0) for model in models)
    assert drift > 1e-3
    torch.testing.assert_close(left, centred, atol=2e-3, rtol=1e-2)
    judge = runs.Judge(small, unseen=1 << 15)
    assert judge(models[0])["excess"] == pytest.approx(judge(models[1])["excess"], rel=1e-3)


def test_the_learning_rate_warms_up_and_ends_at_a_tenth(saturation: Load) -> None:
    rates = [saturation("network").learning_rate(step, 1000, 2.0) for step in range(1000)]
    assert rates[0] == pytest.approx(0.2)
    assert rates[9] == max(rates) == 2.0
    assert rates[-1] == pytest.approx(0.2, rel=1e-4)


def test_the_exact_excess_agrees_with_the_sampled_loss(saturation: Load, small: Any) -> None:
    runs, model = saturation("runs"), saturation("network")
    found = runs.Judge(small, unseen=1 << 17)(model.Model(model.Shape(12, 4), seed=2))
    assert found["loss"] - small.entropy == pytest.approx(found["excess"], abs=4 * found["loss_error"] + 0.01)
    assert 0.001 < found["loss_error"] < 0.01


def test_singular_entropy_is_the_divergence_from_a_flat_spectrum(saturation: Load) -> None:
    entropy = saturation("training").singular_entropy
    assert entropy(np.ones(8)) == pytest.approx(0, abs=1e-12)
    assert entropy(np.array([3.0, 0, 0, 0])) == pytest.approx(np.log(4))
    assert entropy(np.array([2.0, 1.0])) == pytest.approx(np.log(2) + 0.8 * np.log(0.8) + 0.2 * np.log(0.2))


def test_checkpoints_are_thirty_and_end_with_the_run(saturation: Load) -> None:
    found = saturation("training").checkpoints(10_000)
    assert found == sorted(set(found))
    assert (found[0], found[-1]) == (0, 10_000)
    assert 28 <= len(found) <= 34


def test_a_killed_run_goes_on_to_the_same_bytes(
    saturation: Load, small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, training = saturation("runs"), saturation("training")
    monkeypatch.setattr(runs, "PEAKS", {64: {4: 0.01}})
    monkeypatch.setattr(runs, "PER_PARAMETER", 1)
    monkeypatch.setattr(training, "checkpoints", lambda steps: list(range(0, steps + 1, 100)))
    judge, cell = runs.Judge(small, unseen=1 << 15), runs.Cell(**CELL)

    class KilledError(Exception):
        pass

    def kill(text: str) -> None:
        if text.startswith("step 300 "):
            raise KilledError

    whole = runs.run(cell, judge, tmp_path / "whole.npz", lambda text: None, least=1)
    with pytest.raises(KilledError):
        runs.run(cell, judge, tmp_path / "killed.npz", kill, least=1)
    resumed = runs.run(cell, judge, tmp_path / "killed.npz", lambda text: None, tmp_path / "kept", least=1)
    training.write_lines(tmp_path / "whole.jsonl", whole)
    training.write_lines(tmp_path / "resumed.jsonl", resumed)
    assert (tmp_path / "whole.jsonl").read_bytes() == (tmp_path / "resumed.jsonl").read_bytes()
    assert whole[-1]["excess"] < whole[1]["excess"] / 2
    head = np.concatenate(list(uncone.open_rows(f"{tmp_path / 'kept' / 'step500'}#head").blocks()))
    values = np.linalg.svd(head.astype(float), compute_uv=False)
    np.testing.assert_allclose(values, resumed[-1]["head"]["singular_values"], rtol=1e-5)


def test_a_cell_is_claimed_once(saturation: Load, tmp_path: Path) -> None:
    claimed = saturation("training").claimed
    with claimed(tmp_path / "a.lock") as first, claimed(tmp_path / "a.lock") as second:
        assert (first, second) == (True, False)


def test_every_cell_of_the_plan_keeps_to_the_bars(saturation: Load) -> None:
    cells = list(saturation("runs").plan())
    assert len({cell.name for cell in cells}) == len(cells) == 60
    for cell in cells:
        one = cell.training(128)
        assert one.shape.parameters <= 100_000
        assert one.steps * one.batch >= 10_000 * one.shape.parameters
    assert len({json.dumps([cell.width, cell.training(128).steps * cell.batch]) for cell in cells}) == 5


def made_run(saturation: Load, **curves: np.ndarray) -> Any:
    lines = []
    for i, (loss, raw, centred) in enumerate(zip(*curves.values(), strict=True)):
        head = {"singular_entropy": raw, "singular_entropy_centred": centred}
        lines.append({"step": 10 * i, "excess": loss, "head": head})
    return saturation("analyse").Run({"steps": lines[-1]["step"], "width": 8}, lines)


def test_the_turns_and_their_order_are_those_that_were_planted(saturation: Load) -> None:
    shares, generator = np.linspace(0, 1, 30), np.random.default_rng(5)

    def curve(turns: float, after: float) -> np.ndarray:
        rise = np.where(shares < turns, 1 - shares / turns, after * (shares - turns) / (1 - turns))
        return np.asarray(1 + rise + 0.005 * generator.standard_normal(30))

    run = made_run(saturation, loss=curve(0.75, 0.5), raw=curve(0.3, 2.0), centred=curve(0.9, 0.0))
    assert run.order("raw") == "spectrum first"
    assert run.order("centred") == "loss alone"
    assert run.turns["head_entropy"].at == pytest.approx(0.3 * 290, abs=15)
    assert (run.doubled("raw"), run.doubled("centred")) == (True, False)
    flat = made_run(saturation, loss=curve(0.9, 0.0), raw=curve(0.3, 0.3), centred=curve(0.9, 0.0))
    assert [flat.order(kind) for kind in ("raw", "centred")] == ["spectrum alone", "neither"]
    assert not flat.doubled("raw")


def test_the_kept_runs_keep_to_the_bars_and_one_width_gives_its_rows(saturation: Load) -> None:
    analyse = saturation("analyse")
    runs = analyse.read(KEPT / "results" / "runs")
    for run in runs:
        assert run.settings["parameters"] <= 100_000
        assert run.settings["tokens"] >= 10_000 * run.settings["parameters"]
        assert run.of("step")[-1] == run.settings["steps"]
        assert np.isfinite(run.of("excess")).all()
    some = analyse.turns([run for run in runs if run.settings["width"] == 32])
    assert {*some.splitlines()} <= {*(KEPT / "RUNS.md").read_text().splitlines()}


@pytest.mark.slow
@pytest.mark.long
def test_the_kept_runs_give_the_kept_tables(saturation: Load) -> None:
    analyse = saturation("analyse")
    runs, kept = analyse.read(KEPT / "results" / "runs"), (KEPT / "RUNS.md").read_text()
    assert analyse.in_short(runs) in kept
    assert analyse.turns(runs) in kept


def test_wiki_is_read_once_and_judged_on_the_other_articles(saturation: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    wiki, network = saturation("wiki"), saturation("network")
    monkeypatch.setattr(wiki, "BATCH", 10)
    monkeypatch.setattr(wiki, "VOCABULARY", 512)
    tokens = np.arange(66, dtype=np.int16)
    pages = wiki.Pages(tokens, seed=1)
    batches = [pages.batch() for _ in range(6)]
    assert sorted(torch.cat([batch.contexts[:, 0] for batch in batches]).tolist()) == list(range(60))
    for batch in batches:
        targets = batch.targets - torch.arange(10) * 512
        assert (batch.contexts == batch.contexts[:, :1] + torch.arange(wiki.CONTEXT)).all()
        assert (targets == batch.contexts[:, 0] + wiki.CONTEXT).all()
    model = network.Model(network.Shape(512, 4, wiki.CONTEXT), seed=0)
    model.p["W"].zero_()
    assert wiki.Judge(tokens)(model)["loss"] == pytest.approx(np.log(512), abs=1e-5)
