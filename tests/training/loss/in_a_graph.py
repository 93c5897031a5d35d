"""Under a compiler the loss is one operator of the graph: the same numbers to the bit, refusals, and breaks as the page counts them.

`../test_compiled.py` runs this in a process of its own, without tests/conftest.py: its checks of types are code that the compiler cannot read.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import uncone
from uncone import CrossEntropyOptions, InputError, RareTokenGate, gated_linear_cross_entropy
from uncone.training.loss import compiled

from .dense import FixedGate
from .test_exactness import a_gate, gradients, problem

Tensor = torch.Tensor
PAGE = Path(__file__).parents[3] / "docs" / "cross_entropy.md"


class Recording(FixedGate):
    """A gate that is told how much it held back."""

    def record(self, gated: Tensor, total: Tensor) -> None:
        assert not gated.requires_grad
        self.told = (gated, total)


def _recording(v: int) -> Recording:
    return Recording(*a_gate(v, 0.4).gates())


def _whole(step: Any, backend: str = "aot_eager") -> Any:
    torch._dynamo.reset()
    return torch.compile(step, fullgraph=True, backend=backend)


CASES: dict[str, tuple[bool, dict[str, Any]]] = {
    "plain": (False, {}),
    "gate, all options": (
        True,
        {"reduction": "sum", "label_smoothing": 0.1, "z_loss": 1e-3, "softcap": 5.0, "logit_scale": 0.7, "chunk": 7},
    ),
    "gate, one loss a target": (True, {"reduction": "none"}),
    "gate, number of items": (True, {"num_items": 17}),
    "gate, weights": (True, {"label_smoothing": 0.1, "z_loss": 1e-3, "reduction": "none"}),
    "items in a tensor, nothing ignored": (False, {"num_items": torch.tensor(17.0), "ignore_index": None}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_whole_graph_has_the_numbers_of_the_loss_to_the_bit(case: str) -> None:
    hidden, weight, bias, labels = problem(dtype=torch.float32)
    has_gate, settings = CASES[case]
    labels = labels.clamp(min=0) if "ignore_index" in settings else labels
    options = CrossEntropyOptions(**settings)
    of = {"class_weights": torch.rand(len(weight)), "token_weights": torch.randn(len(labels))}
    of = of if "weights" in case else {}
    found = []
    for compiler in (lambda step: step, _whole):
        gate, stats = _recording(len(weight)) if has_gate else None, list[Tensor]()

        def step(h: Tensor, w: Tensor, b: Tensor, gate: Any = gate, stats: Any = stats) -> Tensor:
            of_loss = {"gate": gate, "bias": b, "options": options, **of}
            loss, noted = gated_linear_cross_entropy(torch.tanh(h * 2), w, labels, return_stats=True, **of_loss)
            stats.append(noted.numbers)
            return loss.sum()

        value, given = gradients(compiler(step), hidden, weight, bias)
        found.append(
            (value, *given, *stats, *(gate.told if gate is not None and settings.get("reduction") != "none" else ()))
        )
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_options_can_be_made_inside_and_sizes_may_change() -> None:
    hidden, weight, _, labels = problem(dtype=torch.float32)

    def step(h: Tensor, labels: Tensor, items: float) -> Tensor:
        return uncone.linear_cross_entropy(h, weight, labels, options=CrossEntropyOptions(num_items=items))

    whole = _whole(step)
    for n, items in ((len(labels), 3), (7, 5), (6, 2.5)):
        assert torch.equal(whole(hidden[:n], labels[:n], items), step(hidden[:n], labels[:n], items))
    with torch.no_grad():
        assert torch.equal(whole(hidden, labels, 3), step(hidden, labels, 3))


def test_a_gate_that_learns_is_the_same_to_the_bit() -> None:
    hidden, weight, _, labels = problem(dtype=torch.float32)
    eager, graph = (RareTokenGate(len(weight), rare_share=0.5) for _ in range(2))

    def step(h: Tensor, w: Tensor, gate: Any) -> Tensor:
        return gated_linear_cross_entropy(h, w, labels, gate=gate)

    whole = _whole(step)
    for _ in range(3):
        found = []
        for run, gate in ((step, eager), (whole, graph)):
            gate.observe(labels)
            value, given = gradients(lambda h, w, run=run, gate=gate: run(h, w, gate), hidden, weight)
            gate.step()
            found.append((value, *given))
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert eager.status == graph.status
    assert eager.status.gated_share


def test_autocast_decides_the_products_of_a_graph() -> None:
    hidden, weight, _, labels = problem(dtype=torch.float32)

    def step(h: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return uncone.linear_cross_entropy(h, w, labels)

    (value, found), (known, given) = (gradients(run, hidden, weight) for run in (_whole(step), step))
    assert torch.equal(value, known)
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(found, given, strict=True))


def test_faults_are_named_when_the_graph_runs() -> None:
    hidden, weight, _, labels = problem(dtype=torch.float32)
    whole = _whole(uncone.linear_cross_entropy)
    wrong = labels.clone()
    wrong[2] = len(weight)
    with pytest.raises(InputError, match=rf"got {len(weight)} at position 2"):
        whole(hidden, weight, wrong)
    with pytest.raises(InputError, match="expected hidden states without NaN"):
        whole(hidden * torch.nan, weight, labels)


def test_second_derivatives_are_refused_and_a_second_pass_is_right() -> None:
    hidden, weight, _, labels = problem(dtype=torch.float32)
    h = hidden.clone().requires_grad_()
    loss = _whole(uncone.linear_cross_entropy)(h, weight, labels)
    once, again = (torch.autograd.grad(loss, h, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(once, again)
    loss = _whole(uncone.linear_cross_entropy, "eager")(h, weight, labels)
    with pytest.raises(RuntimeError, match="create_graph=True would treat them as constants"):
        torch.autograd.grad(loss, h, create_graph=True)


@pytest.mark.parametrize("backend", ["wrap:torch", "wrap:liger", "wrap:cce", "triton"])
def test_other_backends_are_refused_by_name_in_a_whole_graph(backend: str) -> None:
    hidden, weight, _, labels = problem(dtype=torch.float32)
    options = CrossEntropyOptions(backend=backend)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="loss_of_a_backend_that_is_not_compiled"):
        _whole(uncone.linear_cross_entropy)(hidden, weight, labels, options=options)


def test_the_operators_keep_what_torch_asks_of_one() -> None:
    hidden, weight, bias, labels = problem(dtype=torch.float32)
    h, w, b = (t.clone().requires_grad_() for t in (hidden, weight, bias))
    gates = a_gate(len(weight), 0.4).gates()
    settings = (-100, 0.1, 1e-3, 5.0, 0.7)
    for reduction, factors, needs in (
        ("mean", None, [True] * 3),
        ("none", None, [True] * 3),
        ("none", torch.ones(len(hidden)), [True, False, True]),
    ):
        of = (torch.rand(len(weight)), torch.rand(len(hidden)))
        call = (h, w, b, labels, *gates, *of, factors, *settings, reduction, None, 5, torch.float32, needs, True)
        tests = ("test_schema", "test_faketensor", "test_autograd_registration")
        torch.library.opcheck(compiled._loss, call, test_utils=tests)


@pytest.mark.filterwarnings("ignore")
def test_machine_code_has_the_same_numbers() -> None:
    hidden, weight, bias, labels = problem(dtype=torch.float32)
    gate = a_gate(len(weight), 0.4)

    def step(h: Tensor, w: Tensor, b: Tensor) -> Tensor:
        h = torch.tanh(h * 2)
        plain, gated = (gated_linear_cross_entropy(h, w, labels, gate=g, bias=b) for g in (None, gate))
        return plain + 2 * gated

    (value, found), (known, given) = (gradients(run, hidden, weight, bias) for run in (_whole(step, "inductor"), step))
    torch.testing.assert_close(value, known, rtol=1e-6, atol=1e-6)
    for a, b in zip(found, given, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_the_page_counts_the_breaks_of_a_graph() -> None:
    transformers = pytest.importorskip("transformers")
    hidden, weight, _, labels = problem(dtype=torch.float32)
    v, ids = 50, torch.arange(24).view(2, 12)
    sizes = {"vocab_size": v, "n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 1}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)

    def breaks(step: Any) -> int:
        """With work before and after the loss, so that each break parts two graphs."""
        torch._dynamo.reset()
        return int(torch._dynamo.explain(step)().graph_break_count)

    def loss(**options: Any) -> int:
        chosen, gate, h = CrossEntropyOptions(**options), a_gate(len(weight), 0.4), hidden
        return breaks(lambda: gated_linear_cross_entropy(h.tanh(), weight, labels, gate=gate, options=chosen) * 2)

    def attached(gate: Any) -> int:
        model = transformers.GPT2LMHeadModel(config).train()
        with uncone.attach(model, gate=gate, penalties=[lambda w: w.square().mean()]) as handle:
            model(input_ids=ids, labels=ids).loss.backward()
            handle.step()
            found = breaks(lambda: model(input_ids=ids, labels=ids).loss * 2)
            handle.step()
        return found

    counted = [loss(), loss(backend="wrap:torch"), attached(None), attached(RareTokenGate(v))]
    table = PAGE.read_text(encoding="utf-8").partition("| compiled | graph breaks |")[2].partition("\n\n")[0]
    assert [int(n) for n in re.findall(r"\| (\d+) \|$", table, re.MULTILINE)] == counted
    assert attached(RareTokenGate(v, mode="official")) > 0


@pytest.mark.filterwarnings("ignore")
def test_a_step_with_gate_and_penalties_is_one_graph_with_the_eager_weights() -> None:
    """Two micro-batches a step, three steps; and no step is compiled again."""
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 50, "n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 1}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0)
    found = []
    for compiler in (lambda model: model, _whole):
        torch.manual_seed(0)
        model, gate = transformers.GPT2LMHeadModel(config).train(), RareTokenGate(50, rare_share=0.5, gate_max=0.5)
        penalties = [lambda w: w.mean(0).square().sum(), lambda w: w.square().mean()]
        with uncone.attach(model, gate=gate, penalties=penalties) as attached:
            run, optimizer = compiler(model), torch.optim.SGD(model.parameters(), lr=0.5)
            torch._dynamo.utils.counters.clear()
            for step in range(3):
                for ids in torch.arange(48).view(2, 2, 12).roll(step, -1):
                    (run(input_ids=ids, labels=ids).loss / 2).backward()
                optimizer.step()
                optimizer.zero_grad()
                attached.step()
            counters = torch._dynamo.utils.counters
            found.append((dict(model.named_parameters()), attached.logs()))
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] <= 2
    (eager, logs), (graph, their_logs) = found
    assert their_logs == pytest.approx(logs, rel=1e-6)
    assert logs["uncone/gated_share"] > 0.05
    for name, value in eager.items():
        torch.testing.assert_close(graph[name], value, rtol=1e-6, atol=1e-7)


def test_a_loss_and_a_penalty_are_one_graph() -> None:
    hidden, weight, _, labels = problem(dtype=torch.float32)
    gate = a_gate(len(weight), 0.4)

    def step(h: Tensor, w: Tensor) -> Tensor:
        loss, stats = gated_linear_cross_entropy(h, w, labels, gate=gate, return_stats=True)
        return loss + w.mean(0).square().sum() + 0 * stats.cross_entropy

    (value, found), (known, given) = (gradients(run, hidden, weight) for run in (_whole(step), step))
    torch.testing.assert_close(value, known)
    for a, b in zip(found, given, strict=True):
        torch.testing.assert_close(a, b)


def test_a_gate_counts_in_a_graph_and_refuses_there_too() -> None:
    gate, labels = RareTokenGate(40), torch.tensor([[3, -100], [39, 3]])
    whole = _whole(lambda labels: gate.observe(labels) or labels + 1)
    whole(labels)
    whole(labels.int())
    assert torch.equal(gate._current, 2 * torch.bincount(torch.tensor([3, 39, 3]), minlength=40))
    with pytest.raises(InputError, match=r"expected labels from 0 to 39 or -100 \(ignored\), got 40: make the gate"):
        whole(labels.clone().fill_(40))
    torch.library.opcheck(compiled.target_counts, (labels, -100, 40, 40))


def test_a_compiled_model_calls_it() -> None:
    hidden, weight, _, labels = problem(dtype=torch.float32)
    gate = a_gate(len(weight), 0.4)

    def step(h: Tensor, w: Tensor) -> Tensor:
        return gated_linear_cross_entropy(torch.tanh(h * 2), w, labels, gate=gate)

    eager = gradients(step, hidden, weight)
    compiled = gradients(torch.compile(step, backend="aot_eager"), hidden, weight)
    assert float(eager[0]) == pytest.approx(float(compiled[0]), rel=1e-6)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(eager[1], compiled[1], strict=True))
