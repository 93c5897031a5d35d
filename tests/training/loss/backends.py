"""A backend against the definition: in float64, or at most as wrong as the definition computed in the same dtype."""

from typing import Any

import torch

from uncone.training.loss.loss import gated_linear_cross_entropy
from uncone.training.loss.options import CrossEntropyOptions

from .dense import FixedGate, gated
from .test_exactness import a_gate, gradients, problem

Tensor = torch.Tensor
GATES: dict[str, float | None] = {"no gate": None, "nothing rare": 0.0, "some rare": 0.4, "all rare": 1.0}
_ALL = {"label_smoothing": 0.2, "z_loss": 1e-2, "softcap": 2.0, "logit_scale": 0.3}
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "smoothing and z-loss": {"label_smoothing": 0.1, "z_loss": 1e-2, "reduction": "sum"},
    "cap": {"softcap": 1.5, "logit_scale": -0.7},
    "all": _ALL | {"reduction": "none", "chunk": 5},
    "items": {"num_items": 50.0, "chunk": 7},
}
FLOOR = 4  # in units of the dtype's epsilon, relative to the norm: what is granted beyond the definition's own error


def a_problem(dtype: torch.dtype, n: int = 23, v: int = 40) -> tuple[Tensor, ...]:
    """(hidden, weight, bias, labels), with targets ignored and targets that stand more than once."""
    hidden, weight, bias, labels = problem(n=n, v=v)
    labels[:6] = torch.tensor([3, 3, -100, 5, 3, 5])
    return hidden.to(dtype), weight.to(dtype), bias.to(dtype), labels


def gate_of(name: str, v: int = 40) -> FixedGate | None:
    share = GATES[name]
    return None if share is None else a_gate(v, share, seed=1)


def compare(
    options: CrossEntropyOptions, gate: Any, given: tuple[Tensor, ...], *, with_bias: bool = True, exact: bool = False
) -> None:
    """Value and gradients by `options` against the definition; with `exact`, to 1e-10."""
    *tensors, labels = given
    tensors = tensors if with_bias else tensors[:2]
    upstream = torch.linspace(0.1, 1, len(labels)) if options.reduction == "none" else torch.tensor(0.7)

    def ours(h: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return gated_linear_cross_entropy(h, w, labels, gate=gate, bias=b, options=options)

    def definition(h: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return gated(h, w, labels, b, options, None if gate is None else gate.gates())

    def found(f: Any, dtype: torch.dtype) -> list[Tensor]:
        leaves = [t.to(dtype) for t in tensors]
        value = f(*leaves)
        value, grads = gradients(f, *leaves, upstream=upstream.to(value.dtype))
        return [value.double(), *(g.double() for g in grads)]

    dtype = tensors[0].dtype
    known = found(definition, torch.float64)
    mine, naive = found(ours, dtype), found(definition, dtype)
    for a, b, k in zip(mine, naive, known, strict=True):
        allowed = 1e-10 if exact else float((b - k).norm()) + FLOOR * torch.finfo(dtype).eps * float(k.norm())
        assert float((a - k).norm()) <= allowed
