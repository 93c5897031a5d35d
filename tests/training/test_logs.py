"""What an attached model logs: the plain loss and each penalty, as means since the last log, against sums by hand."""

import math
from functools import partial
from typing import Any

import pytest
import torch

import uncone
from uncone import CrossEntropyOptions, InputError, RareTokenGate
from uncone.training.means import Means, names_of

from .models import V, batch, gpt2

Tensor = torch.Tensor
F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore")


def by_hand(model: Any, batches: list[dict[str, Tensor]], z_loss: float) -> dict[str, float]:
    """Over the targets of all batches, from the logits of an evaluation."""
    model.eval()
    with torch.no_grad():
        pairs = [(model(**one).logits[:, :-1].reshape(-1, V), one["labels"][:, 1:].flatten()) for one in batches]
    model.train()
    z, y = (torch.cat(parts) for parts in zip(*pairs, strict=True))
    z, y = z[y != -100], y[y != -100]
    log_sums = z.logsumexp(-1)
    found = {"cross_entropy": F.cross_entropy(z, y), "z_loss": z_loss * log_sums.square().mean()}
    found |= {"accuracy": (z.argmax(-1) == y).double().mean()}
    found |= {"logsumexp": log_sums.mean(), "largest_logsumexp": log_sums.max()}
    return {f"uncone/{name}": float(value) for name, value in found.items()}


def batches() -> list[dict[str, Tensor]]:
    """Of different numbers of targets; some targets are those that the model predicts."""
    found = [batch(seed, rows=rows) for seed, rows in ((1, 1), (2, 3), (3, 2))]
    model = gpt2().eval()
    for one in found:
        one["labels"][:, 3:6] = model(**one).logits[:, 2:5].argmax(-1)
    return found


class Down:
    """A penalty that hides the loss."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, weight: Tensor) -> Tensor:
        self.calls += 1
        return -100.0 * self.calls + 0 * weight.sum()


def test_a_penalty_does_not_hide_the_loss_and_all_micro_batches_count() -> None:
    model, data = gpt2(), batches()
    known = by_hand(model, data, 1e-2)
    options, items = CrossEntropyOptions(label_smoothing=0.2, z_loss=1e-2), sum(one["labels"].numel() for one in data)
    with uncone.attach(model, penalties=[Down(), lambda w: w.square().mean(), Down()], options=options) as attached:
        for one in data:
            model(**one, num_items_in_batch=items).loss.backward()
        logs = attached.logs()
        square = float(attached.head.weight.square().mean())
        penalties = {"Down": -200.0, "<lambda>": square, "Down 2": -200.0}
        known |= {f"uncone/penalty/{name}": value for name, value in penalties.items()}
        assert logs == pytest.approx(known | {"uncone/penalty": square - 400}, rel=1e-6)
        assert 0.1 < logs["uncone/accuracy"] < 0.9
        assert attached.logs() == {}, "nothing since the last log"
        model(**data[0]).loss.backward()
        assert attached.logs()["uncone/cross_entropy"] == pytest.approx(
            by_hand(model, data[:1], 0)["uncone/cross_entropy"]
        )
        assert float(attached.stats.targets) == float((data[0]["labels"][:, 1:] != -100).sum())


def test_logs_hold_the_gates_status_and_no_z_loss_without_one() -> None:
    model, one = gpt2(), batches()[0]
    with uncone.attach(model, gate=RareTokenGate(V)) as attached:
        model(**one).loss.backward()
        attached.step()
        logs = attached.logs()
    assert logs["uncone/step"] == 1
    known = by_hand(model, [one], 0)
    assert known.pop("uncone/z_loss") == 0
    assert "uncone/z_loss" not in logs
    assert {name: logs[name] for name in known} == pytest.approx(known)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_another_packages_kernel_says_what_it_says(smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    from uncone.training.loss import wrapped

    monkeypatch.setitem(wrapped._LACKS, "wrap:torch", ())  # as if it smoothed: the others do
    model, data = gpt2(), batches()
    options = CrossEntropyOptions(backend="wrap:torch", label_smoothing=smoothing)
    with uncone.attach(model, options=options) as attached:
        for one in data:
            model(**one).loss.backward()
        logs = attached.logs()
    name = "uncone/cross_entropy"
    assert logs == ({} if smoothing else {name: pytest.approx(by_hand(model, data, 0)[name])})


def test_nothing_is_read_off_the_device_but_by_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Tensor.item` and its kin, counted with and without the numbers of a log."""
    from uncone.training import attach

    counted = []
    for kept in (True, False):
        with monkeypatch.context() as patch:
            calls: list[str] = []
            for name in ("item", "tolist", "__float__", "__bool__", "__int__", "cpu"):
                own = getattr(Tensor, name)

                def counting(self: Tensor, *args: Any, own: Any = own, name: str = name, calls: Any = calls) -> Any:
                    calls.append(name)
                    return own(self, *args)

                patch.setattr(Tensor, name, counting)
            if not kept:
                plain = attach.gated_linear_cross_entropy
                patch.setattr(attach.Means, "add", lambda *_: None)
                patch.setattr(
                    attach,
                    "gated_linear_cross_entropy",
                    lambda *a, return_stats, plain=plain, **o: (plain(*a, **o), None),
                )
            model = gpt2()
            with uncone.attach(model, penalties=[lambda w: w.mean(), torch.sum]):
                calls.clear()
                model(**batch()).loss.backward()
                counted.append(list(calls))
    assert counted[0] == counted[1]
    assert counted[0], "labels are checked"


def test_names() -> None:
    penalties = [Down(), test_names, partial(torch.sum), Down(), Down(), lambda w: w]
    assert names_of(penalties) == ["Down", "test_names", "partial", "Down 2", "Down 3", "<lambda>"]


def test_values_without_a_loss_are_means_over_micro_batches() -> None:
    means = Means(["states_penalty"], torch.device("cpu"))
    for value in (1.0, 2.0, 6.0):
        means.add(None, torch.tensor([value]))
    assert means.take() == {"states_penalty": 3.0}
    assert means.take() == {}


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_loss_that_diverged_is_logged_and_is_no_hit(broken: int) -> None:
    """One micro-batch of three whose logits overflow."""
    model = gpt2().float().train()
    with uncone.attach(model) as attached:
        for i, one in enumerate(batches()):
            factors = {model.transformer.ln_f.weight: 1e38, model.lm_head.weight: 1e4} if i == broken else {}
            for weight, large in factors.items():
                weight.data.mul_(large)
            model(**one)
            for weight, large in factors.items():
                weight.data.div_(large)
        logs = attached.logs()
    assert not math.isfinite(logs["uncone/cross_entropy"])
    assert logs["uncone/accuracy"] < 1


def test_one_penalty_needs_no_brackets_and_a_class_is_refused() -> None:
    model = gpt2().train()
    with uncone.attach(model, penalties=uncone.CosinePenalty()) as attached:
        model(**batch())
        assert "uncone/penalty" in attached.logs()
    for given in ([uncone.CosinePenalty], uncone.CosinePenalty):
        with pytest.raises(
            InputError, match=r"expected penalties to be called with the head's weight, got .*CosinePenalty"
        ):
            uncone.attach(model, penalties=given)
