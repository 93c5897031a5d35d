"""Push and pull of the loss that trains, against its own gradient, the ledger of a plain mean, and slow loops."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import uncone
from uncone import CrossEntropyOptions
from uncone.diagnosis.why.gradients.gradients import gradient_ledger
from uncone.model.last_states import States
from uncone.saturation.head.gradient.gradient_share import kept_gradient_share
from uncone.training.monitor import rows as read
from uncone.training.monitor.loss import Batch, LossReader
from uncone.training.monitor.rows import Groups, Pass, RowsReader
from uncone.training.monitor.states import states_numbers

Tensor = torch.Tensor
V, D, N = 61, 6, 37
COUNTS = torch.tensor([max(0, 300 // (i + 1) - 5) for i in range(V)])


def states(*, cap: float | None = None, scale: float = 1.0, bias: bool = True) -> States:
    random = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    h, w, b = draw(N, D) + 0.3, draw(V, D) + 0.2, draw(V)
    labels = torch.randint(0, V, (N,), generator=random)
    return States(h, labels, w, b if bias else None, cap, scale, "", torch.arange(N))


def numbers(s: States, options: Any = None, **more: Any) -> tuple[dict[str, float], dict[str, float]]:
    groups = Groups.by_count(COUNTS)
    reader = LossReader(Batch(s, more.pop("targets", N), options or CrossEntropyOptions(), **more), groups, True)
    one: Pass = RowsReader().read(s.head, groups, counts=COUNTS, is_head=True, spectrum=True, also=reader)[1]
    return reader.numbers(one)


OF_GROUP = ("norm", "pull_norm", "frequent_norm", "rare_norm", "pulled", "pushed_by_frequent", "pushed_by_rare")
OF_GROUP += ("cosine", "push_cosine", "along", "toward", "sgd", "adam")


@pytest.mark.parametrize("block", [D, 7 * D, 2**19])
@pytest.mark.parametrize(("cap", "scale", "labels"), [(None, 1, "all"), (None, 0.25, "few"), (3, 1, "rare")])
def test_of_a_plain_mean_they_are_the_ledgers(
    monkeypatch: Any, block: int, cap: float | None, scale: float, labels: str
) -> None:
    monkeypatch.setattr(read, "_BLOCK", block)
    s = states(cap=cap, scale=scale)
    if labels != "all":
        s = replace(s, labels=s.labels % 4 if labels == "few" else 40 + s.labels % 20)
    ledger = gradient_ledger(s, counts=COUNTS)
    loss, found = numbers(s)
    assert loss["cross_entropy"] == pytest.approx(ledger.nats)
    for group in ledger.groups:
        at = "" if group.name == "all" else f"{group.name}."
        for name in OF_GROUP:
            assert found[f"{at}{name}"] == pytest.approx(getattr(group, name), rel=1e-6, abs=1e-12), (at, name)
        assert found[f"{at}net"] == pytest.approx(group.net.value, abs=1e-12)
    for name in ("zero_sum", "mean_state_share", "mean_row_share", "state_to_minus_row", "logit_of_mean_row"):
        assert found[name] == pytest.approx(getattr(ledger, name), abs=1e-12)
    for drift in ledger.drifts[:2]:
        assert found[f"drift_{drift.optimiser.lower()}"] == pytest.approx(drift.share, abs=1e-9)


OPTIONS = {
    "smoothed": {"label_smoothing": 0.2},
    "z": {"z_loss": 0.05},
    "sum": {"reduction": "sum"},
    "all": {"label_smoothing": 0.3, "z_loss": 0.02, "reduction": "sum"},
}


@pytest.mark.parametrize("weighted", ["", "classes", "tokens", "both"])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("cap", [None, 2.0])
def test_of_other_losses_they_are_their_own_gradients(name: str, weighted: str, cap: float | None) -> None:
    s, options = states(cap=cap, scale=0.5), CrossEntropyOptions(**OPTIONS[name])
    weights = torch.linspace(0.1, 3, V, dtype=torch.float64) if weighted in ("classes", "both") else None
    of_tokens = torch.linspace(0, 2, N, dtype=torch.float64) if weighted in ("tokens", "both") else None
    own = replace(options, softcap=cap, logit_scale=0.5)
    head = s.head.clone().requires_grad_()
    given: Any = {"class_weights": weights, "token_weights": of_tokens}
    uncone.linear_cross_entropy(s.states, head, s.labels, bias=s.bias, options=own, **given).backward()
    read_loss, found = numbers(s, options, **given)
    groups = Groups.by_count(COUNTS)
    for place, group in enumerate(groups.names):
        of = head.grad[groups.of == place]
        assert found[f"{group}.norm"] == pytest.approx(float(of.norm(dim=1).mean()), rel=1e-6)
    assert found["norm"] == pytest.approx(float(head.grad.norm(dim=1).mean()), rel=1e-6)
    z = s.logits(s.states).requires_grad_()
    lse = z.logsumexp(1)
    smoothing = {"label_smoothing": options.label_smoothing, "weight": weights, "reduction": "none"}
    each = torch.ones(N, dtype=torch.float64) if weights is None else weights[s.labels]
    of_token = torch.ones(N, dtype=torch.float64) if of_tokens is None else of_tokens
    over = (of_token * each).sum() if options.reduction == "mean" else 1.0
    whole = torch.nn.functional.cross_entropy(z, s.labels, **smoothing) + options.z_loss * each * lse.square()
    ((of_token * whole).sum() / over).backward()
    at = torch.arange(N), s.labels
    pulled = -float(z.grad[at].sum())
    assert found["pulled"] == pytest.approx(pulled)
    assert found["pushed_by_frequent"] + found["pushed_by_rare"] == pytest.approx(float(z.grad.sum()) + pulled)
    assert read_loss["largest_logit"] == pytest.approx(float(z.detach().max()))
    assert read_loss["logsumexp"] == pytest.approx(float(lse.detach().mean()))
    assert read_loss["cross_entropy"] == pytest.approx(float((lse - z[at]).detach().mean()))
    assert read_loss["largest_logsumexp"] == pytest.approx(float(lse.detach().max()))
    assert read_loss["z_loss"] == pytest.approx(options.z_loss * float(lse.detach().square().mean()))


def test_few_targets_stand_for_all_in_a_sum_and_not_in_a_mean() -> None:
    s = states()
    once, twice = (numbers(s, CrossEntropyOptions(reduction="sum"), targets=n)[1]["pulled"] for n in (N, 3 * N))
    assert twice == pytest.approx(3 * once)
    assert numbers(s, targets=3 * N)[1]["pulled"] == pytest.approx(once / N)


@pytest.mark.parametrize("cap", [None, 3.0])
def test_the_kept_share_is_that_of_the_whole_matrix(cap: float | None) -> None:
    s = states(cap=cap)
    narrow = replace(s, states=s.states.float(), head=s.head.float(), bias=s.bias.float())
    share = kept_gradient_share(narrow)
    found = numbers(s)[1]
    assert found["kept_share"] == pytest.approx(share.groups[0].sum_squares.value, rel=1e-4)
    assert found["kept_by_chance"] == pytest.approx(D / (V - (cap is None)))
    z = s.logits(s.states).requires_grad_()
    torch.nn.functional.cross_entropy(z, s.labels).backward()
    slope = 1 if cap is None else 1 - (z.detach() / cap).square()
    columns, _ = torch.linalg.qr(s.head - s.head.mean(0) if cap is None else s.head)
    by_product = z.grad * slope
    kept = float((by_product @ columns).square().sum() / by_product.square().sum())
    assert found["kept_share"] == pytest.approx(kept, rel=1e-6)


def test_states_of_a_batch_have_the_measures_of_their_matrix() -> None:
    x, labels = states().states, torch.arange(N) % 3
    found, scores = states_numbers(x, labels), uncone.anisotropy_scores(x, labels)
    assert found["mean_cosine"] == pytest.approx(uncone.measure.mean_cosine(x).value)
    assert found["effective_rank"] == pytest.approx(uncone.measure.effective_rank(x).value)
    values = torch.linalg.eigvalsh(torch.cov(x.T))
    assert found["participation_ratio"] == pytest.approx(float(values.sum() ** 2 / values.square().sum()))
    norms, mean = [float(row.norm()) for row in x], x.mean(0)
    assert found["norm_median"] == pytest.approx(float(np.median(norms)))
    assert found["norm_largest"] == pytest.approx(max(norms))
    along = sum(float(row @ mean) ** 2 for row in x) / float(mean @ mean)
    assert found["mean_share"] == pytest.approx(along / sum(norm**2 for norm in norms))
    assert found["n"] == N
    assert [found[f"within_class_{i}"] for i in (1, 2, 3)] == pytest.approx(list(scores.within_class))
    assert [found[f"centred_floor_{i}"] for i in (1, 2, 3)] == pytest.approx(list(scores.centred_floor))
    assert "within_class_1" not in states_numbers(x)
