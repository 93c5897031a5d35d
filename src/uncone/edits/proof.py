"""The proof that an edit changes no probability: the edited model must be as near to the original in a wider dtype as
the original itself is. The original's distance is its rounding."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from uncone.edits.record import HeadProof
from uncone.errors import InputError, UnsupportedModel
from uncone.model import ModelFiles
from uncone.model.head_map import decoder_inputs, forward_of, is_seq2seq, run_model
from uncone.model.text_sources import read_texts
from uncone.model.texts import cut, longest_input, token_ids
from uncone.roles import Path_, Progress

Tensor = torch.Tensor
FACTOR = (
    1.5  # how much larger the edited model's error may be: a largest error is chance, and its rows are rounded again
)
_BATCH, _ROWS_AT_ONCE = 4, 64


@dataclass(frozen=True)
class ProofText:
    name: str
    text: Tensor | None
    random: Tensor


def proof_text(files: ModelFiles, model: Any, n: int, text: Path_ | None) -> ProofText:
    """Ids below `n`: at most 1,024 of text and 256 random ids, fewer where their logits would be more than 2**25
    numbers each, but at least two windows of a long enough text and a random one."""
    length = longest_input(model)
    count = max(2 * length, min(1024, 2**25 // n) // length * length)
    generator = torch.Generator().manual_seed(0)
    random = torch.randint(0, n, (min(count, 256) // length or 1, length), generator=generator)
    sample = resources.files("uncone.edits").joinpath("sample.txt")
    ids, why = token_ids(files, sample.read_text("utf-8") if text is None else "\n".join(read_texts(text)), n)
    if ids is None and text is not None:
        raise InputError(f"expected a tokenizer in {files.path} for the text, got none ({why}): leave the text out")
    if ids is None:
        return ProofText(f"random ids, as {why}", None, random)
    windows = cut(ids[:count], length)
    if windows is None:
        raise InputError(f"expected a text of at least two tokens, got {len(ids)} in {text}: give a longer one")
    return ProofText("a sample of text" if text is None else Path(text).name, windows, random)


@dataclass(frozen=True)
class Run:
    """Logits (T, V) and the head's inputs (T, D), at the positions that count."""

    logits: Tensor
    hidden: Tensor
    dtype: torch.dtype  # of the head's product; some models widen its output


def batches(proof: ProofText) -> Iterator[dict[str, Tensor]]:
    """At most four windows each; the first random one ends in two masked positions."""
    for ids in (proof.text, proof.random):
        if ids is None:
            continue
        for start in range(0, len(ids), _BATCH):
            part = ids[start : start + _BATCH]
            mask = torch.ones_like(part)
            if ids is proof.random and start == 0 and part.shape[1] > 4:
                mask[0, -2:] = 0
            yield {"input_ids": part, "attention_mask": mask}


def run(
    model: Any, proof: ProofText, *, product: Callable[[Tensor], Tensor] | None = None, tell: Progress | None = None
) -> Run:
    """Run `model` on all ids, with `product` replacing the head's own product, for a wider dtype."""
    head = model.get_output_embeddings()
    logits, hidden, taken = list[Tensor](), list[Tensor](), list[Tensor]()
    hook = head.register_forward_pre_hook(lambda _, inputs: taken.append(inputs[0].detach()))
    inputs = list(batches(proof))
    try:
        with torch.no_grad(), forward_of(head, product or head.forward):
            for done, batch in enumerate(inputs, 1):
                taken.clear()
                keep = batch["attention_mask"].bool()
                given = batch | (decoder_inputs(model, batch["input_ids"]) if is_seq2seq(model) else {})
                out = getattr(run_model(model, given), "logits", torch.empty(0))
                fits = len(taken) == 1 and taken[0].shape[:-1].numel() == keep.numel()
                if not fits or out.shape[:2] != keep.shape:
                    got = f"got {len(taken)} and shape {tuple(out.shape)}: probabilities come from more than one head"
                    raise UnsupportedModel(f"expected one product with the head, and logits at each position, {got}")
                logits.append(out[keep].detach())
                hidden.append(taken[0].reshape(*keep.shape, -1)[keep])
                if tell is not None:
                    tell("running the model", done, len(inputs))
    finally:
        hook.remove()
    return Run(torch.cat(logits), torch.cat(hidden), head.weight.dtype)


def wide_product(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    wide, wide_bias = weight.double(), None if bias is None else bias.double()
    return lambda hidden: torch.nn.functional.linear(hidden.double(), wide, wide_bias)


def compare(before: Run, after: Run, reference: Run, *, text: str, how: str) -> HeadProof:
    worst, others = list[tuple[float, float, float, float]](), list[tuple[int, int, int]]()
    for start in range(0, len(before.logits), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        a, b, exact = (x.logits[part].double().log_softmax(-1) for x in (before, after, reference))
        size = max(float(x.logits[part].nan_to_num(0, 0, 0).abs().max()) for x in (before, after))
        worst.append((_largest(a, b), _largest(a, exact), _largest(b, exact), size))
        first, second = a.argmax(-1), b.argmax(-1)
        at = (first != second).nonzero().flatten().tolist()
        others += [(start + i, int(first[i]), int(second[i])) for i in at]
    # Python's max could lose a NaN
    difference, rounding, edited, largest = torch.tensor(worst, dtype=torch.float64).amax(0).tolist()
    writing = torch.finfo(before.dtype).eps / 2 * largest
    ties, n = 0, len(before.logits)
    for row, one, other in others:
        exact = reference.logits[row].double()
        ties += bool((exact[one] - exact[other]).abs() <= 2 * (rounding + writing))
    errors = difference, rounding, edited, FACTOR * rounding + writing
    return HeadProof(text, n, str(before.dtype).removeprefix("torch."), how, *errors, n - len(others), ties)


def require(proof: HeadProof) -> None:
    if not proof.rounding_edited <= proof.allowed < math.inf:  # also refuses NaN
        raise UnsupportedModel(
            f"expected log-probabilities of the edited model within {proof.allowed:.2g} nats of exact ones (the "
            f"original's error is {proof.rounding:.2g} in {proof.dtype}), got an error of {proof.rounding_edited:.2g} "
            f"({proof.difference:.2g} between the models): the edit would change probabilities, so nothing was written"
        )
    changed = proof.positions - proof.same_first - proof.ties
    if changed:
        got = f"got another at {changed} without a tie: the edit would change choices, so nothing was written"
        raise UnsupportedModel(f"expected the same first token at all {proof.positions} positions, {got}")


def _largest(x: Tensor, other: Tensor) -> float:
    """The largest difference: 0 for equal infinities, NaN where only one side is NaN."""
    return float(torch.where(x == other, 0, x - other).abs().max())
