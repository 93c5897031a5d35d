"""Remedies on trial against loops and closed forms, gradchecked, at the collapsed point, and in training."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

Arms = Callable[[str], Any]
TARGETS = torch.tensor([[1, 3, 1, -100, 3], [0, 0, 2, 4, 0]])


def _drawn(*shape: int, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def _finite(function: Callable[..., Any], *inputs: Any) -> None:
    inputs = tuple(each.detach().clone().requires_grad_() for each in inputs)
    value = function(*inputs)
    value.backward()
    assert value.isfinite()
    assert all(each.grad.isfinite().all() for each in inputs)


@pytest.mark.parametrize("kind", ["exponential", "polynomial"])
def test_spectrum_is_that_of_the_singular_values(arms: Arms, kind: str) -> None:
    penalty = arms("spectrum").SpectrumPenalty(3.0, kind, 0.2, 1.5)
    rows = _drawn(9, 4)
    wanted = 0.0
    for k, sigma in enumerate(torch.linalg.svdvals(rows).tolist()):
        to = 3 * (math.exp(-0.2 * k**1.5) if kind == "exponential" else (k + 1) ** -1.5)
        to += 0.2 * (kind == "polynomial")
        wanted += (sigma - to) ** 2
    assert penalty(rows).item() == pytest.approx(wanted, rel=1e-9)
    assert torch.autograd.gradcheck(penalty, rows)
    for collapsed in (torch.zeros(9, 4), torch.ones(9, 4)):
        _finite(penalty, collapsed)


def test_mu_loss_and_its_warning(arms: Arms) -> None:
    rows = _drawn(9, 4)
    penalty = arms("mu_loss").MuLoss(0.5)
    means = [sum(row[place].item() for row in rows) / 9 for place in range(4)]
    assert penalty(rows).item() == pytest.approx(0.5 * sum(mean**2 for mean in means))
    assert torch.autograd.gradcheck(penalty, rows)
    _finite(penalty, torch.ones(9, 4))
    giant = torch.ones(9, 4)
    giant[5] = -8
    giant[5] *= 8
    with pytest.warns(UserWarning, match="row 5 has norm"):
        arms("mu_loss").MuLoss()(giant)


def test_sigreg_is_the_closed_form(arms: Arms) -> None:
    file = arms("sigreg")
    values = _drawn(12, 1)
    x = values.detach()[:, 0].tolist()
    pairs = sum(math.exp(-((a - b) ** 2) / 2) for a in x for b in x) / 144
    alone = sum(math.exp(-a * a / 4) for a in x) / 12
    assert file.epps_pulley(values).item() == pytest.approx(pairs - math.sqrt(2) * alone + 1 / math.sqrt(3), abs=1e-7)
    assert torch.autograd.gradcheck(lambda points: file.SIGReg(slices=5)(points), _drawn(6, 3))
    for collapsed in (torch.zeros(6, 3), torch.ones(6, 3)):
        _finite(file.SIGReg(), collapsed)
    sphere = torch.nn.functional.normalize(torch.randn(2000, 32, generator=torch.Generator().manual_seed(1)), dim=1)
    assert float(file.SIGReg()(sphere)) < 0.01 < float(file.SIGReg(unit=False)(sphere))


def test_adversarial_lowers_targets_that_agree(arms: Arms) -> None:
    file = arms("adversarial")
    hidden, weight, targets = _drawn(6, 3), _drawn(5, 3, seed=1), torch.tensor([0, 1, 2, 3, -100, 4])
    losses = []
    for h, y in zip(hidden.detach(), targets.tolist(), strict=True):
        if y >= 0:
            z = weight.detach() @ h
            if z[y] > 0:
                z[y] = z[y] - 0.3 * weight[y].detach().norm() * h.norm()
            losses.append(float(z.logsumexp(0) - z[y]))
    assert file.adversarial_loss(hidden, weight, targets, 0.3).item() == pytest.approx(sum(losses) / 5)
    moved = file.noise(hidden, weight, targets, 0.3)
    assert torch.autograd.gradcheck(lambda h, w: file.adversarial_loss(h, w, targets, moved=moved), (hidden, weight))
    known = torch.autograd.grad(file.adversarial_loss(hidden, weight, targets, 0.3, moved), (hidden, weight))
    found = torch.autograd.grad(file.adversarial_loss(hidden, weight, targets, 0.3), (hidden, weight))
    assert all(torch.equal(a, b) for a, b in zip(found, known, strict=True)), "the noise is detached"
    _finite(lambda h, w: file.adversarial_loss(h, w, targets), torch.zeros(6, 3), torch.zeros(5, 3))


def test_losses_of_the_context(arms: Arms) -> None:
    file = arms("context")
    logits = _drawn(2, 5, 6)
    unlikely, scaled, count = 0.0, 0.0, 0
    for row, targets in zip(logits.detach(), TARGETS.tolist(), strict=True):
        for t, y in enumerate(targets):
            if y < 0:
                continue
            before, p = {c for c in targets[:t] if c >= 0}, row[t].softmax(0).tolist()
            unlikely -= math.log(p[y]) + 0.7 * sum(math.log(1 - p[c]) for c in before - {y})
            m = [each * (1 if v in before else 0.2) for v, each in enumerate(p)]
            scaled -= math.log(m[y] / sum(m))
            count += 1
    assert file.unlikelihood_loss(logits, TARGETS, 0.7).item() == pytest.approx(unlikely / count)
    assert file.scalegrad_loss(logits, TARGETS).item() == pytest.approx(scaled / count)
    for loss in (file.unlikelihood_loss, file.scalegrad_loss):
        assert torch.autograd.gradcheck(lambda z, loss=loss: loss(z, TARGETS), logits)
        _finite(lambda z, loss=loss: loss(z, TARGETS), torch.zeros(2, 5, 6))


@pytest.mark.parametrize("mask", [False, True])
def test_contrastive_against_loops(arms: Arms, mask: bool) -> None:
    loss = arms("contrastive").contrastive_loss
    hidden, weight, targets = _drawn(10, 3), _drawn(5, 3, seed=1), TARGETS.flatten()
    used = [i for i, y in enumerate(targets.tolist()) if y >= 0]
    total = 0.0
    for i in used:
        others = [j for j in used if not mask or j == i or targets[j] != targets[i]]
        scores = [(hidden[i] @ weight[targets[j]]).item() for j in others]
        total += math.log(sum(map(math.exp, scores))) - (hidden[i] @ weight[targets[i]]).item()
    assert loss(hidden, weight, targets, mask).item() == pytest.approx(total / len(used))
    assert torch.autograd.gradcheck(lambda h, w: loss(h, w, targets, mask), (hidden, weight))
    _finite(lambda h, w: loss(h, w, targets, mask), torch.zeros(10, 3), torch.zeros(5, 3))


@pytest.mark.parametrize("arm", ["spectrum", "mu", "sigreg", "adversarial", "unlikelihood", "scalegrad", "contrastive"])
def test_it_trains(arms: Arms, arm: str) -> None:
    transformers = pytest.importorskip("transformers")
    import uncone

    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=30, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    model = transformers.GPT2LMHeadModel(config).train()
    ids = torch.randint(0, 30, (4, 12))
    attached: Any = None
    if arm == "spectrum":
        attached = uncone.attach(model, penalties=[arms("spectrum").SpectrumPenalty(1.0, weight=0.1)])
    elif arm == "mu":
        attached = uncone.attach(model, penalties=[arms("mu_loss").MuLoss()])
    elif arm == "sigreg":
        attached = uncone.attach_states(model, arms("sigreg").SIGReg(), pooling="mean", labels=None)
    optimizer, losses = torch.optim.AdamW(model.parameters(), 1e-2), []
    for _ in range(20):
        if attached is not None:
            loss = model(input_ids=ids, labels=ids).loss
        else:
            hidden, weight, targets = model.transformer(ids).last_hidden_state[:, :-1], model.lm_head.weight, ids[:, 1:]
            if arm in ("unlikelihood", "scalegrad"):
                loss = getattr(arms("context"), f"{arm}_loss")(hidden @ weight.T, targets)
            else:
                loss = getattr(arms(arm), f"{arm}_loss")(hidden.flatten(0, 1), weight, targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if attached is not None:
            attached.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    if attached is not None:
        attached.detach()
