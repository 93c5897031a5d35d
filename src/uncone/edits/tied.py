"""Tables that the model always adds to a tied table, so that they can take its mean: positions, token types. To test a
candidate, a vector is added to it and the model is run."""

import inspect
import itertools
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from uncone.edits.proof import ProofText, batches, run
from uncone.errors import UnsupportedModel
from uncone.model.head_map import is_seq2seq, run_model

Tensor = torch.Tensor
_SAME = {torch.float64: 1e-7, torch.float32: 1e-3}  # of the change where nothing is added back
_MOST_CANDIDATES, _MOST_TABLES = 8, 2


def find_compensation(model: Any, proof: ProofText, stored: Container[str]) -> dict[str, float] | None:
    """The fewest tables, by parameter name, that undo a vector subtracted from all token rows, and how many times the
    vector is added to each; None where no two tables do. Tables that are not `stored`, such as sinusoids, are left out,
    because the model computes them."""
    table = model.get_output_embeddings().weight
    few = ProofText(proof.name, None if proof.text is None else proof.text[:1], proof.random[:1])
    random = torch.Generator().manual_seed(0)
    vector = torch.randn(table.shape[1], generator=random, dtype=torch.float64)
    vector = (vector * table.detach().double().square().mean().sqrt()).to(table.dtype)
    exact, factor = run(model, few).logits.log_softmax(-1), _scale(model)

    def change(names: Iterable[str]) -> float:
        with _added({table: -vector} | {candidates[name]: factor * vector for name in names}):
            return float((run(model, few).logits.log_softmax(-1) - exact).abs().max())

    candidates = {name: rows for name, rows in _candidates(model).items() if name in stored}
    effect = change(())
    for count in range(1 + _MOST_TABLES):
        for names in itertools.combinations(candidates, count):
            if (change(names) if names else effect) <= _SAME[table.dtype] * effect:
                return dict.fromkeys(names, factor)
    return None


def reads_token_types(model: Any, proof: ProofText, compensation: Mapping[str, float]) -> bool:
    """Whether the model looks up token types in the token table too (GPT-2): the edit would move them."""
    if is_seq2seq(model) or "token_type_ids" not in inspect.signature(model.forward).parameters:
        return False
    table = model.get_output_embeddings().weight
    vector = table.detach().mean(0)
    batch = next(batches(ProofText(proof.name, None, proof.random[:1])))
    batch["token_type_ids"] = torch.zeros_like(batch["input_ids"])
    named = dict(model.named_parameters())

    def run_with(vectors: dict[Tensor, Tensor]) -> Any:
        with torch.no_grad(), _added(vectors):
            return run_model(model, batch).logits.log_softmax(-1)

    try:
        exact, effect = run_with({}), run_with({table: -vector})
        folded = {named[name]: n * vector for name, n in compensation.items()}
        moved = run_with({table: -vector} | folded)
    except UnsupportedModel:
        return False  # the model takes no such token types
    return bool((moved - exact).abs().max() > 0.1 * (effect - exact).abs().max())


def _candidates(model: Any) -> dict[str, Tensor]:
    """Other lookup tables with as many features, the smallest first, because an edit should touch little."""
    table = model.get_output_embeddings().weight
    lookups = ((f"{name}.weight", x.weight) for name, x in model.named_modules() if isinstance(x, torch.nn.Embedding))
    tables = [(len(x), name, x) for name, x in lookups if x is not table and x.shape[1] == table.shape[1]]
    return {name: x for _, name, x in sorted(tables, key=lambda one: one[:2])[:_MOST_CANDIDATES]}


def lookups(model: Any) -> list[torch.nn.Embedding]:
    """The lookups that share the head's rows."""
    head = model.get_output_embeddings().weight
    return [x for x in model.modules() if isinstance(x, torch.nn.Embedding) and x.weight is head]


def _scale(model: Any) -> float:
    """The factor by which the lookup scales rows: the square root of D in some models (BART with scale_embedding)."""
    lookup = lookups(model)[-1]
    row = lookup.weight.detach()[:8]
    with torch.no_grad():
        looked_up = lookup(torch.arange(len(row)))
    return float((looked_up * row).sum() / (row * row).sum().clamp_min(torch.finfo(row.dtype).tiny))


@contextmanager
def _added(vectors: dict[Tensor, Tensor]) -> Iterator[None]:
    """Each vector is added to all rows of its table, and the tables are put back to the bit."""
    before = {table: table.detach().clone() for table in vectors}
    try:
        with torch.no_grad():
            for table, vector in vectors.items():
                table += vector
        yield
    finally:
        with torch.no_grad():
            for table, rows in before.items():
                table.copy_(rows)
