"""The curve of loss against rank: planted heads, bad input, its record, and a real model."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.saturation.heads_made import made
from uncone.errors import InputError
from uncone.model.last_states import States
from uncone.records.blocks import Figure, Folded, Table
from uncone.records.rebuild import build_record
from uncone.saturation.head.rank import rank_curve as rank_curve_file
from uncone.saturation.head.rank.mixture import compare, widths
from uncone.saturation.head.rank.rank_curve import rank_curve
from uncone.saturation.head.rank.record import RankCurve
from uncone.saturation.head.rank.truncation import Text, gauge


def _line(curve: RankCurve, method: str):  # type: ignore[no-untyped-def]
    return next(line for line in curve.lines if line.method == method)


@pytest.fixture(scope="module")
def planted() -> RankCurve:
    return rank_curve(made(6000, 60, 24, rank=8, size=4.0), ranks=[1, 2, 4, 6, 8, 12, 16])


def test_a_planted_rank_is_found_by_every_method(planted: RankCurve) -> None:
    assert planted.ranks == (1, 2, 4, 6, 8, 12, 16, 24)
    for line in planted.lines[:3]:
        assert line.smallest.rank == 8, line.method
        assert line.excess[5] == pytest.approx(0, abs=1e-5 if line.whole else planted.margin_nats)
    for method in ("plain", "data_aware"):
        line = _line(planted, method)
        assert line.kink.found, line.kink.reason
        assert (line.kink.low, line.kink.high) == (6, 8)
    assert "may have rank 8 of 24" in planted.verdict
    assert planted.saved(8) == pytest.approx(1 - 8 * (60 + 24) / (60 * 24))


def test_a_head_that_gains_by_a_refit_is_not_called_small_for_it() -> None:
    states = made(6000, 60, 24, rank=8, size=4.0)
    wrong = replace(states, head=states.head.flip(0))  # as on a text that it was not trained for
    curve = rank_curve(wrong, ranks=[2, 4, 8], teacher=0.0)
    refit = _line(curve, "refit")
    assert max(refit.excess) < 0  # all gain
    assert refit.smallest.rank == 8
    assert curve.fit is not None
    assert curve.fit.misfit
    assert curve.verdict.startswith("The model does not fit this text")
    assert [line.smallest.rank for line in curve.lines[:2]] == [None, None]  # the full head is no measure here
    assert "refitted for this text may have rank 8 of 24" in curve.verdict
    assert any("the model was not made for it" in note for note in curve.notes)


def test_the_fit_to_the_text_is_that_of_a_loop(planted: RankCurve) -> None:
    s, fit, block = made(6000, 60, 24, rank=8, size=4.0), planted.fit, planted.block
    held = np.arange(6000) // block % 4 == 3
    labels = s.labels.numpy()
    share = (np.bincount(labels[~held], minlength=60) + 0.5) / ((~held).sum() + 30)
    assert fit is not None
    assert not fit.misfit
    assert fit.unigram == pytest.approx(float(-np.log(share[labels[held]]).mean()))
    assert fit.over_unigram.value == pytest.approx(fit.unigram - planted.full_loss)
    assert fit.refit == pytest.approx(planted.lines[2].losses[-1])
    best = min(*planted.lines[0].excess, *planted.lines[1].excess, planted.lines[2].excess[-1])
    assert fit.gain.value == pytest.approx(-best)
    assert planted.verdict.startswith("On this text the model loses ")


def test_a_short_text_gives_no_margin() -> None:
    curve = rank_curve(made(400, 30, 8), ranks=[2, 8], refits=False)
    assert curve.ranks == (2, 8)
    assert curve.answer is None
    assert "at least 10 blocks of 16 held-out tokens" in curve.verdict


def test_a_refit_that_has_not_converged_gives_no_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_curve_file, "_ROUNDS", 2)
    s = made(6000, 60, 24, rank=8, size=4.0)
    wrong = replace(s, head=s.head.flip(0))
    curve = rank_curve(wrong, ranks=[4, 8], evaluations=1, margin_nats=1e-6)
    assert curve.refitting is not None
    assert curve.refitting.converged is False
    assert curve.refitting.teacher == pytest.approx(1 - math.sqrt(0.002 * curve.refitting.tokens / (60 * 24)))
    assert all(line.smallest.rank is None for line in curve.lines)
    assert "No smallest rank is given" in curve.verdict
    right = rank_curve(s, ranks=[4, 8], evaluations=1, teacher=0.0, margin_nats=1e-6)
    assert right.fit is not None
    assert not right.fit.misfit
    assert right.fit.refit is None
    assert "the refit of the full head has not converged" in right.verdict


def test_the_refit_of_full_rank_goes_on_until_it_has_converged() -> None:
    s = made(6000, 60, 24, rank=8, size=4.0)
    one, other = (rank_curve(replace(s, head=s.head.flip(0)), ranks=[8], evaluations=n) for n in (20, 80))
    assert one.refitting is not None
    assert other.refitting is not None
    assert one.refitting.converged
    assert one.refitting.spent > 20
    assert one.lines[2].losses[-1] == pytest.approx(other.lines[2].losses[-1], abs=0.3 * one.margin_nats)


def test_refits_are_better_than_truncations_and_truncations_stay_within_their_bounds(planted: RankCurve) -> None:
    plain, aware, refit = planted.lines[:3]
    for i in range(4):
        assert refit.losses[i] < min(plain.losses[i], aware.losses[i]) - 0.01
        assert len(refit.starts[i]) == 5
        assert {"random A B", "plain truncation", "data-aware truncation"} <= {one.name for one in refit.starts[i]}
    for line in (plain, aware):
        for excess, bound in zip(line.excess, line.bounds, strict=True):
            assert abs(excess) <= bound.on_states + 1e-6
            assert abs(excess) <= bound.spectral + 1e-6 <= bound.frobenius + 2e-6


@pytest.mark.parametrize("n", [200, 1000])  # 200 tokens: the last block of 16 is held out, and 8 tokens are left over
def test_every_column_is_what_its_heading_says(n: int) -> None:
    s = made(n, 30, 8)
    s = replace(s, states=s.states * torch.linspace(0.5, 2, n)[:, None])  # the end of the text is unlike its start
    curve = rank_curve(s, ranks=[2, 5], refits=False)
    x, head = s.states.double().numpy(), s.head.double().numpy()
    head = head - head.mean(0)
    count = n // curve.block
    held = [i for i in range(n) if i // curve.block % 4 == 3 and i // curve.block < count]
    assert curve.held_out == len(held)

    def loss(weight: np.ndarray, i: int) -> float:
        z = weight @ x[i]
        return float(np.log(np.exp(z - z.max()).sum()) + z.max() - z[s.labels[i]])

    def mean(weight: np.ndarray, of: Iterable[int]) -> float:
        return float(np.mean([loss(weight, i) for i in of]))

    assert curve.full_loss == pytest.approx(mean(head, held), abs=1e-5)
    u, sizes, v = np.linalg.svd(head, full_matrices=False)
    plain = _line(curve, "plain")
    tables = [t for block in curve.blocks() if isinstance(block, Folded) for t in block.blocks if isinstance(t, Table)]
    wholes = next(t for t in tables if t.title.startswith("Plain truncation"))
    for i, rank in enumerate((2, 5)):
        cut = (u[:, :rank] * sizes[:rank]) @ v[:rank]
        norms = [float(np.linalg.norm(x[j])) for j in held]
        moved = [float(np.sum(((head - cut) @ x[j]) ** 2)) for j in held]
        on_states = math.sqrt(2 * sum(moved) / len(moved))
        spectral = math.sqrt(2) * np.mean(norms) * sizes[rank]
        frobenius = math.sqrt(2) * np.mean(norms) * math.sqrt(sum(sizes[rank:] ** 2))
        change, whole = mean(cut, held) - mean(head, held), mean(cut, range(n))
        errors = [loss(cut, j) - loss(head, j) for j in held]
        by_block = [np.mean(errors[at : at + curve.block]) for at in range(0, len(held), curve.block)]
        assert plain.losses[i] == pytest.approx(mean(cut, held), abs=1e-5)
        assert plain.excess[i] == pytest.approx(change, abs=1e-5)
        assert plain.errors[i] == pytest.approx(np.std(by_block, ddof=1) / math.sqrt(len(by_block)), abs=1e-5)
        assert plain.whole[i] == pytest.approx(whole, abs=1e-5)
        found = (plain.bounds[i].on_states, plain.bounds[i].spectral, plain.bounds[i].frobenius)
        assert found == pytest.approx((on_states, spectral, frobenius), rel=1e-5)
        told = (whole, whole - mean(head, range(n)), change, on_states, spectral, frobenius)
        assert [float(str(cell)) for cell in wholes.rows[i][1:]] == pytest.approx(told, rel=0.006, abs=0.006)


def test_a_head_that_uses_every_direction_needs_them_all() -> None:
    curve = rank_curve(made(3000, 60, 16, size=4.0), refits=False)
    assert "Every head of a lower rank that was read loses more than" in curve.verdict
    assert [line.smallest.rank for line in curve.lines] == [16, 16]
    assert not any(line.kink.found for line in curve.lines)


def test_no_answer_depends_on_a_row_added_to_all_or_on_how_states_are_scaled() -> None:
    s = made(1000, 30, 8)
    base = rank_curve(s, refits=False)
    scaled = replace(s, scale=0.25, states=4 * s.states), replace(s, head=s.head / 4, scale=4.0)
    for other in (replace(s, head=s.head + torch.randn(8)), *scaled):
        for one, two in zip(base.lines, rank_curve(other, refits=False).lines, strict=True):
            assert two.losses == pytest.approx(one.losses, abs=1e-4)


@pytest.mark.parametrize(("cap", "bias"), [(5.0, False), (None, True), (5.0, True)])
def test_bias_and_cap_are_honoured(cap: float | None, bias: bool) -> None:
    s = made(1500, 30, 8, cap=cap, bias=bias)
    z = s.states.double() @ s.head.double().T + (0 if s.bias is None else s.bias.double())
    z = z if cap is None else cap * torch.tanh(z / cap)
    own = torch.nn.functional.cross_entropy(z, s.labels)
    curve = rank_curve(s, evaluations=5)
    assert [line.whole[-1] for line in curve.lines[:2]] == pytest.approx([float(own)] * 2, abs=1e-5)
    assert any("capped" in note for note in curve.notes) == (cap is not None)


def test_the_margin_moves_the_answer() -> None:
    s = made(2000, 40, 12, size=2.0)
    tight, wide = (rank_curve(s, margin_nats=m, refits=False).lines[1].smallest.rank for m in (1e-6, 100.0))
    assert (tight, wide) == (12, 1)


def test_the_same_seed_gives_the_same_curve_and_progress_is_told() -> None:
    s, told = made(600, 30, 8), []
    assert rank_curve(s, evaluations=4, progress=lambda *step: told.append(step)) == rank_curve(s, evaluations=4)
    steps = list(dict.fromkeys(step for step, _, _ in told))
    assert steps[0] == "reading the plain truncation"
    assert steps[2:5] == ["refitting rank 8", "refitting rank 8, 1 of 6", "refitting rank 6, 2 of 6"]
    assert all(0 <= done <= of for _, done, of in told)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"states": torch.full((400, 8), float("nan"))}, "expected finite states"),
        ({"labels": torch.full((400,), 30)}, "expected labels from 0 to 29, got 30 to 30"),
        ({"states": torch.zeros(400, 7)}, "expected a state of the head's columns"),
        ({"states": torch.zeros(1, 8), "labels": torch.zeros(1, dtype=torch.int64)}, "at least 128 tokens, got 1"),
    ],
)
def test_damaged_states_are_refused(change: dict[str, torch.Tensor], told: str) -> None:
    s = made(400, 30, 8)
    with pytest.raises(InputError, match=told):
        rank_curve(States(**{**vars(s), **change}))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ranks": [9]}, "expected ranks from 1 to the head's 8 columns, got 9"),
        ({"ranks": []}, "got none"),
        ({"ranks": [0, 2]}, "got 0, 2"),
        ({"margin_nats": 0.0}, "a margin above 0"),
        ({"teacher": 1.5}, "share in"),
        ({"evaluations": 0}, "at least 1 evaluation"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        rank_curve(made(400, 30, 8), **options)  # type: ignore[arg-type]


def test_states_of_zero_and_one_token_that_always_comes_are_read() -> None:
    empty = replace(made(400, 30, 8), states=torch.zeros(400, 8), labels=torch.zeros(400, dtype=torch.int64))
    curve = rank_curve(empty, evaluations=3)
    for line in curve.lines:
        assert all(torch.isfinite(torch.tensor(line.losses)))


def test_the_part_is_read_back_from_json_and_its_losses_are_drawn(planted: RankCurve) -> None:
    data = json.loads(json.dumps(asdict(planted)))
    assert build_record(RankCurve, data, "part") == planted
    (figure,) = (block for block in planted.blocks() if isinstance(block, Figure))
    assert len(figure.charts[0].curves) >= 4
    data["ranks"] = data["ranks"][1:]
    with pytest.raises(InputError, match="a loss for each of 7 ranks"):
        build_record(RankCurve, data, "part")


def test_a_mixture_has_as_many_parameters_as_its_rival_and_is_read_on_the_same_tokens() -> None:
    width, mixture, wider = widths(1000, 64, 3)
    assert mixture == 1000 * 64 + 3 * 64 * 64 + 3 * 64
    assert abs(mixture - wider) <= (1000 + 64) / 2
    assert width > 64
    s = made(800, 30, 6)
    blocks = torch.arange(800).numpy() // 40
    fit = torch.from_numpy(blocks % 4 != 3)
    told = list[tuple[str, int, int]]()
    text, head = Text(s.states, s.labels), gauge(s.head, None)
    found = compare(text, head, fit, blocks, steps=20, progress=lambda *step: told.append(step))
    assert len(found.mixture) == len(found.wider) == 3
    assert found.low < found.difference < found.high
    assert found.difference == pytest.approx(sum(found.mixture) / 3 - sum(found.wider) / 3)
    assert told[-1] == ("training remedies", 10, 10)
    with pytest.raises(InputError, match="3 to 10 seeds"):
        compare(text, head, fit, blocks, seeds=(0,))


@pytest.mark.slow
@pytest.mark.long
def test_a_mixture_wins_where_the_source_is_one() -> None:
    """Two experts, chosen by the sign of a column, whose logits no softmax of so few columns can both follow."""
    random = torch.Generator().manual_seed(0)
    n, v, d = 6000, 40, 3
    x = torch.randn(n, d, generator=random)
    head = torch.randn(v, d, generator=random) * 2
    left, right = (torch.softmax(torch.tanh(x @ torch.randn(d, d, generator=random) * 2) @ head.T * 2, 1) for _ in "ab")
    p = 0.5 * left + 0.5 * right
    labels = torch.multinomial(p, 1, generator=random)[:, 0]
    blocks = torch.arange(n).numpy() // 60
    found = compare(Text(x, labels), gauge(head, None), torch.from_numpy(blocks % 4 != 3), blocks, steps=300)
    assert found.high < 0, found


@pytest.mark.slow
def test_stories260k_has_the_losses_of_the_note(stories: Path) -> None:
    """Of another text: the note (section 6) has the losses below at ranks 4 to 64, of plain truncation."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(stories, local_files_only=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(stories, local_files_only=True)
    torch.manual_seed(0)
    options = {"do_sample": True, "top_k": 0, "max_new_tokens": 200, "pad_token_id": 0, "eos_token_id": None}
    ids = model.generate(torch.full((24, 1), 1), **options)
    from uncone.model.last_states import states_of

    states = states_of(stories, tokenizer.batch_decode(ids, skip_special_tokens=True))
    curve = rank_curve(states, ranks=[4, 8, 16, 32, 48, 64], evaluations=15)
    note = torch.tensor([5.30, 4.57, 3.69, 2.25, 1.48, 0.99])
    ours = torch.tensor(curve.lines[0].whole)
    assert bool((ours.diff() < 0).all())
    assert float(torch.corrcoef(torch.stack([note, ours]))[0, 1]) > 0.99
    plain, aware, refit = (torch.tensor(line.losses) for line in curve.lines[:3])
    assert bool((refit[:-1] < aware[:-1]).all())
    assert bool((aware[1:-1] < plain[1:-1]).all())
    assert curve.lines[0].smallest.rank == 64
