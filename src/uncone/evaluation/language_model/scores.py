"""What a language model predicts for each token of a text: the loss, the likeliest token, the probability of groups."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from uncone.measure.group_comparison import frequency_membership
from uncone.model.last_states import States
from uncone.roles import Progress
from uncone.rows import Array

Tensor = torch.Tensor
SHARES = (0.29, 0.19)  # of the ids that occur: frequent, and rare (Yu et al. 2022)
BEFORE = 128  # tokens among which a repeated one is looked for


@dataclass(frozen=True, eq=False)
class Scores:
    """Of N targets. `masses` are probabilities of the groups of one or more cuts of the ids (V,), side by side."""

    loss: Array  # (N,) nats, float64
    likeliest: Array  # (N,) ids
    masses: Array  # (N, K) float32


def by_ids(counts: Array) -> Array:
    """(V,): 0 frequent, 1 medium, 2 rare, 3 never, by shares of the ids that occur; equal counts are together."""
    return np.minimum(frequency_membership(len(counts), counts=counts, shares=SHARES).groups, 3)


def by_mass(counts: Array) -> Array:
    """(V,): as `by_ids`, by equal parts of the training text, as near as whole ids allow."""
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order] / 2
    found = np.empty(len(counts), np.int64)
    found[order] = np.minimum(3 * before / max(int(counts.sum()), 1), 2).astype(np.int64)
    found[counts == 0] = 3
    return found


def score(
    states: States, cuts: list[Array], progress: Progress | None = None, device: torch.device | None = None
) -> Scores:
    """The scores of each target, from states and head; each of `cuts` (V,) has four groups, with a mass each."""
    n, v = len(states.labels), len(states.head)
    member = torch.zeros(v, 4 * len(cuts))
    for place, cut in enumerate(cuts):
        member[torch.arange(v), 4 * place + torch.from_numpy(cut)] = 1
    member, head = member.to(device), states.head.to(device)
    on = replace(states, head=head, bias=None if states.bias is None else states.bias.to(device))
    loss, likeliest = torch.empty(n, dtype=torch.float64), torch.empty(n, dtype=torch.int64)
    masses = torch.empty(n, member.shape[1])
    for at in states.chunks():
        z = on.logits(states.states[at].to(device))
        lse = z.logsumexp(1, keepdim=True)
        own = z.gather(1, states.labels[at, None].to(device))
        loss[at], likeliest[at] = (lse - own)[:, 0].double().cpu(), z.argmax(1).cpu()
        masses[at] = (z.sub_(lse).exp_() @ member).cpu()
        if progress is not None:
            progress("scoring tokens", at.stop, n)
    return Scores(loss.numpy(), likeliest.numpy(), masses.numpy())


def repeated(tokens: Array, inputs: Array, windows: Array) -> Array:
    """(N,) whether each of `tokens` is among the last `BEFORE` ids of its window, up to the id before it."""
    found = np.zeros(len(tokens), np.bool_)
    for back in range(min(BEFORE, len(tokens))):
        here = slice(back, None)
        earlier = slice(0, len(tokens) - back)
        found[here] |= (tokens[here] == inputs[earlier]) & (windows[here] == windows[earlier])
    return found
