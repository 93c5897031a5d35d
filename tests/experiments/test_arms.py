"""experiments/arms against slow loops and closed forms, gradchecked, at the collapsed point, and in training."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import uncone

Tensor = torch.Tensor
Load = Callable[[str], Any]
IGNORED = -100


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def checked(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    assert torch.autograd.gradcheck(function, [x.clone().requires_grad_() for x in inputs])


def finite(function: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    value = function(*leaves)
    value.backward()  # type: ignore[no-untyped-call]
    gradients = [x.grad for x in leaves]
    assert value.isfinite()
    assert all(g is not None and bool(g.isfinite().all()) for g in gradients)
    return [g for g in gradients if g is not None]


def softmax(row: Tensor) -> list[float]:
    powers = [math.exp(float(z)) for z in row]
    return [p / sum(powers) for p in powers]


# --- penalties of the head


@pytest.mark.parametrize(
    ("prior", "by_hand"),
    [("exponential", lambda k: 2.0 * math.exp(-0.1 * k**0.5)), ("polynomial", lambda k: 2.0 * k**-0.5 + 0.1)],
)
def test_spectrum_is_that_of_the_singular_values(arm: Load, prior: str, by_hand: Callable[[int], float]) -> None:
    penalty = arm("spectrum").SpectrumPenalty(
        prior, c1=2.0, c2=0.1, g=0.5 if prior == "exponential" else -0.5, weight=3
    )
    rows = drawn(20, 5)
    sigma = np.linalg.svd(rows.numpy(), compute_uv=False)
    slow = 3 * sum((s - by_hand(k)) ** 2 for k, s in enumerate(sigma, 1))
    assert float(penalty(rows)) == pytest.approx(slow, rel=1e-10)
    checked(penalty, rows)


def test_spectrum_at_the_prior_is_zero(arm: Load) -> None:
    """A head with the prior's singular values, turned at random."""
    penalty = arm("spectrum").SpectrumPenalty()
    left, right = torch.linalg.qr(drawn(30, 6))[0], torch.linalg.qr(drawn(6, 6, seed=1))[0]
    rows = left * penalty.target(6) @ right
    assert float(penalty(rows)) < 1e-20
    assert float(penalty(1.1 * rows)) == pytest.approx(0.01 * float(penalty.target(6).square().sum()))


def test_spectrum_of_collapsed_rows_is_finite(arm: Load) -> None:
    penalty = arm("spectrum").SpectrumPenalty()
    for dtype in (torch.float64, torch.float32):
        finite(penalty, drawn(1, 6).expand(30, 6).to(dtype))
        finite(penalty, torch.ones(30, 6, dtype=dtype))
        assert not finite(penalty, torch.zeros(30, 6, dtype=dtype))[0].any()
    same = torch.eye(6, dtype=torch.float64).repeat(4, 1)  # all singular values equal
    finite(penalty, same)


def test_spectrum_refuses_a_prior_that_rises(arm: Load) -> None:
    for wrong in (
        {"prior": "polynomial", "g": 0.5},
        {"prior": "polynomial", "g": -1.0, "c2": -0.5},
        {"prior": "cubic"},
    ):
        with pytest.raises(ValueError, match="expected"):
            arm("spectrum").SpectrumPenalty(**wrong)(drawn(9, 4))


def test_mu_loss_by_hand(arm: Load) -> None:
    rows = drawn(12, 4)
    mean = [sum(float(rows[i, j]) for i in range(12)) / 12 for j in range(4)]
    penalty = arm("mu_loss").MuLoss(weight=0.3)
    assert float(penalty(rows)) == pytest.approx(0.3 * sum(m * m for m in mean))
    checked(penalty, rows)
    finite(penalty, torch.ones(12, 4, dtype=torch.float64))
    finite(penalty, torch.zeros(12, 4, dtype=torch.float64))


def test_mu_loss_warns_once_of_a_giant_row(arm: Load) -> None:
    """One row takes the cone's mean away: the penalty is 0 and the cone is as it was."""
    rows = torch.ones(50, 4, dtype=torch.float64) + 0.01 * drawn(50, 4)
    rows[7] -= rows.sum(0)
    penalty = arm("mu_loss").MuLoss()
    with pytest.warns(UserWarning, match="row 7 has norm"):
        assert float(penalty(rows)) < 1e-20
    for _ in range(200):
        penalty(rows)  # a second warning would be an error
    late = arm("mu_loss").MuLoss(every=10)
    for _ in range(10):
        late(drawn(50, 4))
    with pytest.warns(UserWarning, match="giant rows"):
        late(rows)


# --- a penalty of states


def test_epps_pulley_is_the_closed_form(arm: Load) -> None:
    """The integral has one (Henze and Zirkler's kernel sums with beta = 1), without an estimated mean and deviation."""
    x = drawn(30, 3)
    found = arm("sigreg").epps_pulley(x)
    for column, value in zip(x.T.tolist(), found, strict=True):
        pairs = sum(math.exp(-((a - b) ** 2) / 2) for a in column for b in column) / 30**2
        single = 2 / 30 * sum(math.exp(-a * a / 4) for a in column) / math.sqrt(2)
        assert float(value) == pytest.approx(30 * (pairs - single + 1 / math.sqrt(3)), abs=1e-4)


def test_sigreg_by_a_slow_sum(arm: Load) -> None:
    states, directions = drawn(7, 4), torch.nn.functional.normalize(drawn(4, 3, seed=1), dim=0)
    grid, step, total = np.linspace(-5, 5, 17), 10 / 16, 0.0
    for s in range(3):
        x = [2 * float(row @ directions[:, s]) / float(row.norm()) for row in states]  # sqrt(4) on unit vectors
        values = []
        for t in grid:
            empirical = sum(complex(math.cos(t * a), math.sin(t * a)) for a in x) / 7
            weight = math.exp(-t * t / 2) / math.sqrt(2 * math.pi)
            values.append(abs(empirical - math.exp(-t * t / 2)) ** 2 * weight)
        total += 7 * step * (sum(values) - (values[0] + values[-1]) / 2)
    sigreg = arm("sigreg").sigreg
    assert float(sigreg(states, directions)) == pytest.approx(total / 3)
    assert float(sigreg(5 * states, directions)) == pytest.approx(total / 3)  # lengths do not count
    checked(lambda x: sigreg(x, directions), states)


def test_sigreg_of_collapsed_states_is_finite_and_large(arm: Load) -> None:
    make = arm("sigreg").SIGReg
    one = drawn(1, 16).expand(64, 16)
    finite(make(), one)
    assert finite(make(), torch.zeros(64, 16, dtype=torch.float64))[0].abs().max() == 0
    assert float(make()(one)) > 10 * float(make()(drawn(64, 16)))


def test_sigreg_sees_unit_vectors_only_with_the_scale(arm: Load) -> None:
    """In 256 dimensions an even cloud of unit vectors is near the Gaussian; unscaled it looks like a single point."""
    unit = torch.nn.functional.normalize(drawn(128, 256), dim=1)
    directions = torch.nn.functional.normalize(drawn(256, 32, seed=1), dim=0)
    scaled = float(arm("sigreg").sigreg(unit, directions))
    plain = float(arm("sigreg").epps_pulley(unit @ directions).mean())
    expected = 1 - 1 / math.sqrt(3)  # under the null: the mean of T is 1 - the integral of exp(-t^2) phi(t)
    assert scaled == pytest.approx(expected, rel=0.4)
    assert plain > 20 * expected


def test_sigreg_draws_new_directions_that_the_seed_repeats(arm: Load) -> None:
    first, second, states = arm("sigreg").SIGReg(), arm("sigreg").SIGReg(), drawn(16, 8)
    runs = [[float(each(states)) for _ in range(2)] for each in (first, second)]
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]


# --- losses


def test_adversarial_margin_by_loops(arm: Load) -> None:
    hidden, weight, targets = drawn(6, 4), drawn(9, 4, seed=1), torch.tensor([3, 3, 0, IGNORED, 8, 1])
    total, lowered = 0.0, 0
    for h, y in zip(hidden, targets.tolist(), strict=True):
        if y == IGNORED:
            continue
        logits = [float(h @ w) for w in weight]
        if logits[y] > 0:
            logits[y] -= 0.3 * float(weight[y].norm()) * float(h.norm())
            lowered += 1
        total += math.log(sum(map(math.exp, logits))) - logits[y]
    assert 0 < lowered < 5  # both cases are in the test
    module = arm("adversarial_margin")
    assert float(module.adversarial_margin(hidden, weight, targets, 0.3)) == pytest.approx(total / 5)
    plain = torch.nn.functional.cross_entropy(hidden @ weight.T, targets)
    assert module.adversarial_margin(hidden, weight, targets, 0.0) == pytest.approx(plain)


def test_adversarial_noise_is_the_worst_of_its_length(arm: Load) -> None:
    """No noise of the length eps |w_y| lowers the logit further."""
    hidden, rows = drawn(1, 5), drawn(1, 5) + 0.1
    noise = arm("adversarial_margin").noise(hidden, rows, 0.2)
    assert float(noise.norm()) == pytest.approx(0.2 * float(rows.norm()))
    others = torch.nn.functional.normalize(drawn(500, 5, seed=2), dim=1) * noise.norm()
    assert float((noise * hidden).sum()) <= float((others @ hidden[0]).min())


def test_adversarial_margin_gradient(arm: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the noise held, as it is detached."""
    module = arm("adversarial_margin")
    hidden, weight, targets = drawn(6, 4), drawn(9, 4, seed=1), torch.tensor([3, 3, 0, IGNORED, 8, 1])
    held = module.noise(hidden[targets >= 0], weight[targets[targets >= 0]], 0.3)
    before = finite(lambda h, w: module.adversarial_margin(h, w, targets, 0.3), hidden, weight)
    monkeypatch.setattr(module, "noise", lambda *_: held)
    after = finite(lambda h, w: module.adversarial_margin(h, w, targets, 0.3), hidden, weight)
    for mine, same in zip(before, after, strict=True):
        torch.testing.assert_close(mine, same)
    checked(lambda h, w: module.adversarial_margin(h, w, targets, 0.3), hidden, weight)


SEQUENCES = torch.tensor([[1, 2, 1, 3, 2, 2], [4, 4, IGNORED, 4, 0, 1]])


def test_seen_before_by_loops(arm: Load) -> None:
    found = arm("seen").seen_before(SEQUENCES, 6)
    for b, sequence in enumerate(SEQUENCES.tolist()):
        for t in range(6):
            assert set(found[b, t].nonzero().flatten().tolist()) == set(sequence[:t]) - {IGNORED}


def test_unlikelihood_by_loops(arm: Load) -> None:
    logits, total, counted = 2 * drawn(2, 6, 6), 0.0, 0
    for b, sequence in enumerate(SEQUENCES.tolist()):
        for t, y in enumerate(sequence):
            if y == IGNORED:
                continue
            p, counted = softmax(logits[b, t]), counted + 1
            total -= math.log(p[y])
            total -= 0.7 * sum(math.log(max(1 - p[c], 1e-5)) for c in set(sequence[:t]) - {y, IGNORED})
    function = arm("unlikelihood").unlikelihood
    assert float(function(logits, SEQUENCES, 0.7)) == pytest.approx(total / counted)
    plain = torch.nn.functional.cross_entropy(logits.flatten(0, 1), SEQUENCES.flatten())
    assert float(function(logits, SEQUENCES, 0.0)) == pytest.approx(float(plain))
    checked(lambda z: function(z, SEQUENCES, 0.7), logits)


def test_unlikelihood_of_a_sure_repeat_is_clamped(arm: Load) -> None:
    logits = torch.zeros(1, 2, 4, dtype=torch.float64)
    logits[0, 1, 2] = 100.0  # the model is sure of token 2 again
    loss = arm("unlikelihood").unlikelihood(logits, torch.tensor([[2, 3]]))
    assert float(loss) == pytest.approx((math.log(4) + 100 - math.log(1e-5)) / 2)


def test_scalegrad_by_loops(arm: Load) -> None:
    logits, total, counted = drawn(2, 6, 6), 0.0, 0
    for b, sequence in enumerate(SEQUENCES.tolist()):
        for t, y in enumerate(sequence):
            if y == IGNORED:
                continue
            p, counted = softmax(logits[b, t]), counted + 1
            scaled = [x * (1 if v in sequence[:t] else 0.2) for v, x in enumerate(p)]
            total -= math.log(scaled[y] / sum(scaled))
    function = arm("scalegrad").scalegrad
    assert float(function(logits, SEQUENCES, 0.2)) == pytest.approx(total / counted)
    plain = torch.nn.functional.cross_entropy(logits.flatten(0, 1), SEQUENCES.flatten())
    assert float(function(logits, SEQUENCES, 1.0)) == pytest.approx(float(plain))
    checked(lambda z: function(z, SEQUENCES, 0.2), logits)
    for wrong in (0.0, 1.5):
        with pytest.raises(ValueError, match="gamma"):
            function(logits, SEQUENCES, wrong)


@pytest.mark.parametrize("masked", [False, True])
def test_contrastive_weight_tying_by_loops(arm: Load, masked: bool) -> None:
    hidden, table, targets = drawn(6, 4), drawn(9, 4, seed=1), torch.tensor([3, 3, 0, IGNORED, 8, 1])
    kept, total = [i for i in range(6) if targets[i] != IGNORED], 0.0
    for i in kept:
        logit = {j: float(hidden[i] @ table[targets[j]]) / 0.5 for j in kept}
        others = [j for j in kept if not masked or j == i or targets[j] != targets[i]]
        total += math.log(sum(math.exp(logit[j]) for j in others)) - logit[i]
    function = arm("weight_tying").contrastive_weight_tying
    found = function(hidden, table, targets, 0.5, mask_duplicates=masked)
    assert float(found) == pytest.approx(total / 5)
    checked(lambda h, e: function(h, e, targets, 0.5, mask_duplicates=masked), hidden, table)


def test_contrastive_weight_tying_duplicates_bound_it_from_below(arm: Load) -> None:
    hidden, targets = 1000 * torch.eye(4, dtype=torch.float64)[[0, 0, 0, 1]], torch.tensor([0, 0, 0, 1])
    function, table = arm("weight_tying").contrastive_weight_tying, torch.eye(4, dtype=torch.float64)
    assert float(function(hidden, table, targets)) == pytest.approx(3 / 4 * math.log(3))
    assert float(function(hidden, table, targets, mask_duplicates=True)) == pytest.approx(0)


def losses(arm: Load) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Each loss arm as a function of hidden (B, T, D), weight (V, D), targets (B, T)."""
    margin, tying = arm("adversarial_margin").adversarial_margin, arm("weight_tying").contrastive_weight_tying
    return {
        "adversarial_margin": lambda h, w, y: margin(h.flatten(0, 1), w, y.flatten(), 0.1),
        "unlikelihood": lambda h, w, y: arm("unlikelihood").unlikelihood(h @ w.T, y),
        "scalegrad": lambda h, w, y: arm("scalegrad").scalegrad(h @ w.T, y),
        "weight_tying": lambda h, w, y: tying(h.flatten(0, 1), w, y.flatten(), mask_duplicates=True),
    }


LOSSES = ("adversarial_margin", "unlikelihood", "scalegrad", "weight_tying")


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_finite_at_the_collapsed_point(arm: Load, name: str) -> None:
    loss = losses(arm)[name]
    point = drawn(1, 1, 4)
    states, rows = point.expand(2, 6, 4), point[0].expand(6, 4)
    zero = torch.zeros_like(states)
    for hidden, weight in ((states, rows), (zero, rows), (states, zero[0]), (zero, zero[0]), (1e4 * states, rows)):
        finite(lambda h, w: loss(h, w, SEQUENCES), hidden, weight)
    nothing = torch.full_like(SEQUENCES, IGNORED)
    assert float(loss(states, rows, nothing)) == 0  # a micro-batch without targets


# --- in training


def trained(arm: Load, name: str, **options: float) -> tuple[list[float], float]:
    """The loss of 20 steps of a tiny GPT-2, and the penalty of the last one."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    shape = {"vocab_size": 50, "n_positions": 16, "n_embd": 32, "n_layer": 1, "n_head": 2}
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, **dropout, bos_token_id=1, eos_token_id=2))
    ids = torch.multinomial((1 / torch.arange(1.0, 51)).expand(8, -1), 16, replacement=True)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    model.train()
    attached: Any = None
    if name in PENALTIES:
        penalty = getattr(arm(name), PENALTIES[name][0])(**options)
        attached = (
            uncone.attach_states(model, penalty) if name == "sigreg" else uncone.attach(model, penalties=[penalty])
        )
    values = []
    for _ in range(20):
        if attached is not None:
            loss = model(input_ids=ids, labels=ids).loss
        else:
            hidden = model.transformer(ids).last_hidden_state
            loss = losses(arm)[name](hidden[:, :-1], model.lm_head.weight, ids[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if attached is not None:
            attached.step()
        values.append(float(loss.detach()))
    added = getattr(attached, "value" if name == "sigreg" else "penalty", None)
    return values, 0.0 if added is None else float(added)


PENALTIES = {
    "spectrum": ("SpectrumPenalty", {"c1": 2.0, "weight": 0.1}),
    "mu_loss": ("MuLoss", {"weight": 10.0}),
    "sigreg": ("SIGReg", {"weight": 0.1}),
}


@pytest.mark.parametrize("name", [*PENALTIES, *LOSSES])
def test_each_arm_trains_a_tiny_gpt2(arm: Load, name: str) -> None:
    """The loss falls; a penalty ends lower than in a run that hardly weighs it."""
    options: dict[str, float] = PENALTIES[name][1] if name in PENALTIES else {}  # type: ignore[assignment]
    values, added = trained(arm, name, **options)
    assert values[-1] < 0.9 * values[0]
    if name in PENALTIES:
        _, without = trained(arm, name, **options | {"weight": 1e-6})
        assert added / options["weight"] < 0.9 * without / 1e-6
