"""The loss by its definition, with all logits: the oracle of the chunked one."""

import torch

from uncone.training.loss.options import CrossEntropyOptions

Tensor = torch.Tensor
Gates = tuple[Tensor, Tensor, Tensor]


class FixedGate:
    """Gates that somebody chose."""

    def __init__(self, rare: Tensor, g1: Tensor, g2: Tensor) -> None:
        self._gates = rare, torch.where(rare, g1, 1.0), torch.where(rare, g2, 1.0)

    def gates(self) -> Gates:
        return self._gates


def logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, options: CrossEntropyOptions) -> Tensor:
    z = options.logit_scale * hidden @ weight.T
    z = z if bias is None else z + bias
    return z if options.softcap is None else options.softcap * torch.tanh(z / options.softcap)


def losses(z: Tensor, labels: Tensor, options: CrossEntropyOptions) -> Tensor:
    """One value a target, written out from the definitions."""
    valid = labels != options.ignore_index
    y = torch.where(valid, labels, 0)
    log_p = z.log_softmax(dim=-1)
    e = options.label_smoothing
    value = -(1 - e) * log_p.gather(-1, y[:, None])[:, 0] - e * log_p.mean(dim=-1)
    value += options.z_loss * z.logsumexp(-1).square()
    return torch.where(valid, value, 0.0)


def reduce(values: Tensor, labels: Tensor, options: CrossEntropyOptions) -> Tensor:
    if options.reduction == "none":
        return values
    if options.reduction == "sum":
        return values.sum()
    items = (labels != options.ignore_index).sum() if options.num_items is None else options.num_items
    return values.sum() / items if items else values.sum() * 0


def gated(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    bias: Tensor | None,
    options: CrossEntropyOptions,
    gates: Gates | None,
) -> Tensor:
    """The published device, two copies of the logits: one whose gradient goes to the states and the bias, one gated, to the head.

    z~ = G z + (1 - G) stopgrad(z) has the value of z and G times its gradient.
    """
    to_states = logits(hidden, weight.detach(), bias, options)
    to_head = logits(hidden.detach(), weight, None if bias is None else bias.detach(), options)
    if gates is not None:
        rare, g1, g2 = (g.to(weight.device) for g in gates)
        y = labels.clamp(0, len(rare) - 1)
        gate = torch.where(rare[y][:, None], g2, g1).to(to_head.dtype).scatter(1, y[:, None], 1.0)
        to_head = gate * to_head + (1 - gate) * to_head.detach()
    values = reduce(losses(to_states, labels, options), labels, options)
    again = reduce(losses(to_head, labels, options), labels, options)
    return values + again - again.detach()
