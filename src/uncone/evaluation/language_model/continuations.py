"""How a model continues a text: its different n-grams, and its repeated n-grams."""

from collections.abc import Sequence

import torch

from uncone.model.last_states import Causal, States
from uncone.roles import Progress

LENGTHS = (1, 2, 3, 4)
PROMPT, CONTINUED = 32, 64  # tokens


def continued(
    causal: Causal, states: States, many: int, progress: Progress | None = None
) -> tuple[list[list[int]], list[list[int]]]:
    """How the model continues the first 32 tokens of at most `many` evenly spaced windows of the text, always by the
    likeliest token, and how the text continues. Windows that are too short are left out."""
    assert states.inputs is not None
    counts = torch.unique_consecutive(states.windows, return_counts=True)[1]
    length = min(PROMPT + CONTINUED, int(counts.max()))
    prompt = length // 3
    long = (counts >= length).nonzero()[:, 0]
    starts = (counts.cumsum(0) - counts)[long]
    starts = starts[torch.arange(k := min(many, len(starts))) * len(starts) // max(k, 1)]
    model, head = causal.model, causal.head
    made, own = list[list[int]](), list[list[int]]()
    for some in torch.split(starts, 16) if prompt else ():
        ids = torch.stack([states.inputs[start : start + prompt] for start in some.tolist()]).to(head.weight.device)
        with torch.no_grad():
            more = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                num_beams=1,
                max_new_tokens=length - prompt,
                min_new_tokens=length - prompt,
                pad_token_id=0,
            )
        made += more[:, prompt:].tolist()
        own += [states.inputs[start + prompt : start + length].tolist() for start in some.tolist()]
        if progress is not None:
            progress("continuing the text", len(made), len(starts))
    return made, own


def distinct(sequences: Sequence[Sequence[int]]) -> dict[str, float]:
    """By n, the share of different n-grams among all n-grams (distinct-n of Li et al. 2016)."""
    found = {}
    for n in LENGTHS:
        grams = [gram for one in sequences for gram in _grams(one, n)]
        if grams:
            found[str(n)] = len(set(grams)) / len(grams)
    return found


def repeated_4(sequences: Sequence[Sequence[int]]) -> float | None:
    """The mean over sequences of 1 minus the share of different 4-grams (seq-rep-4 of Welleck et al. 2019)."""
    of = [1 - len(set(grams)) / len(grams) for one in sequences if (grams := _grams(one, 4))]
    return sum(of) / len(of) if of else None


def _grams(tokens: Sequence[int], n: int) -> list[tuple[int, ...]]:
    return list(zip(*(tokens[i:] for i in range(n)), strict=False))
