"""A feed-forward language model (Bengio et al. 2003) whose training step is written out, since autograd would take half the time.

    x = sum_j E[c_j] M_j,   y = x + tanh(x A + b) B,   h = g y / rms(y),   logits = W h

Contexts of a batch that are equal are computed once: the gradient is that of the whole batch, for a fraction of its price.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

Tensor = torch.Tensor
BETAS, EPS, CLIP, LEAST, RMS_EPS = (0.9, 0.95), 1e-8, 1.0, 0.1, 1e-6
"""As Pythia: AdamW's numbers, the largest gradient norm, and the share of the learning rate at the end of the cosine."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a model: V tokens, D numbers a token, n tokens of context."""

    vocabulary: int
    width: int
    context: int = 2

    def parts(self) -> dict[str, tuple[int, ...]]:
        """Tensors in the order in which they lie in the one vector of parameters; matrices are decayed."""
        v, d, n = self.vocabulary, self.width, self.context
        return {"E": (v, d), "M": (n, d, d), "A": (d, d), "B": (d, d), "W": (v, d), "b": (d,), "g": (d,)}

    @property
    def parameters(self) -> int:
        return sum(math.prod(one) for one in self.parts().values())


@dataclass(frozen=True)
class Batch:
    """Distinct contexts (U, n), the share of the batch that each has (U, 1), and the place in (U, V) of every target (B,)."""

    contexts: Tensor
    shares: Tensor
    targets: Tensor

    @classmethod
    def of(cls, contexts: np.ndarray, tokens: np.ndarray, vocabulary: int) -> "Batch":
        """From the numbers of contexts of two tokens (B,), or rows of contexts (B, n), which are not looked through for equals."""
        if contexts.ndim == 2:
            distinct, at, shares = (contexts, np.arange(len(contexts)), np.full(len(contexts), 1 / len(contexts)))
        else:
            counts = np.bincount(contexts, minlength=vocabulary**2)
            numbers = np.flatnonzero(counts)
            shares = counts[numbers] / len(contexts)
            counts[numbers] = np.arange(len(numbers))
            distinct, at = np.stack(np.divmod(numbers, vocabulary), 1), counts[contexts]
        shares = torch.from_numpy(shares.astype(np.float32)[:, None])
        return cls(torch.from_numpy(distinct), shares, torch.from_numpy(at * vocabulary + tokens))


class Model:
    """Its parameters are views of one vector, so that one AdamW step is a few operations."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        self.vector = torch.zeros(shape.parameters)
        self.gradient, self.first, self.second = (torch.zeros_like(self.vector) for _ in range(3))
        self.p, self.d = self._views(self.vector), self._views(self.gradient)
        self.steps = 0
        sigma, generator = math.sqrt(2 / (5 * shape.width)), torch.Generator().manual_seed(seed)
        for name in "EMABW":
            self.p[name].normal_(0, sigma, generator=generator)
        self.p["g"].fill_(1)
        self.matrices = shape.parameters - 2 * shape.width

    def _views(self, vector: Tensor) -> dict[str, Tensor]:
        parts = self.shape.parts()
        cut = vector.split([math.prod(one) for one in parts.values()])
        return {name: piece.view(size) for (name, size), piece in zip(parts.items(), cut, strict=True)}

    def states(self, contexts: Tensor) -> tuple[Tensor, ...]:
        """What the head gets, (U, D), and what the backward pass needs."""
        p = self.p
        tables = p["E"] @ p["M"]  # (n, V, D): mixing is then a sum of rows
        x = tables[0].index_select(0, contexts[:, 0])
        for j in range(1, self.shape.context):
            x += tables[j].index_select(0, contexts[:, j])
        t = product(x, p["A"]).add_(p["b"]).tanh_()
        y = product(t, p["B"]).add_(x)
        r = y.square().mean(1, keepdim=True).add_(RMS_EPS).rsqrt_()
        n = y * r
        return n * p["g"], x, t, r, n

    def gradients(self, batch: Batch) -> None:
        """Write the gradient of the mean loss of a batch."""
        p, d, contexts = self.p, self.d, batch.contexts
        h, x, t, r, n = self.states(contexts)
        z = torch.softmax(product(h, p["W"].T), 1).mul_(batch.shares)
        each = z.new_full((), -1 / len(batch.targets)).expand(len(batch.targets))
        z.view(-1).index_add_(0, batch.targets, each)
        d["W"].copy_(product(z.T, h))
        dh = product(z, p["W"])
        torch.sum(dh * n, 0, out=d["g"])
        dh *= p["g"]
        dy = dh.sub_(n * (dh * n).mean(1, keepdim=True)).mul_(r)
        d["B"].copy_(product(t.T, dy))
        dt = product(dy, p["B"].T).mul_(1 - t * t)
        d["A"].copy_(product(x.T, dt))
        torch.sum(dt, 0, out=d["b"])
        dx = product(dt, p["A"].T).add_(dy)
        d["E"].zero_()
        for j in range(self.shape.context):
            rows = torch.zeros_like(p["E"]).index_add_(0, contexts[:, j], dx)
            torch.mm(p["E"].T, rows, out=d["M"][j])
            d["E"].addmm_(rows, p["M"][j].T)

    def adamw(self, rate: float, decay: float) -> None:
        """One step, with the gradient's norm clipped and decoupled decay of the matrices."""
        self.steps += 1
        one, two = BETAS
        self.gradient.mul_((CLIP / (self.gradient.norm() + 1e-6)).clamp_(max=1))
        self.first.lerp_(self.gradient, 1 - one)
        self.second.mul_(two).addcmul_(self.gradient, self.gradient, value=1 - two)
        self.vector[: self.matrices].mul_(1 - rate * decay)
        scale = (self.second / (1 - two**self.steps)).sqrt_().add_(EPS)
        self.vector.addcdiv_(self.first, scale, value=-rate / (1 - one**self.steps))

    def log_probabilities(self, contexts: Tensor) -> Tensor:
        """(U, V), in nats."""
        return torch.log_softmax(self.states(contexts)[0] @ self.p["W"].T, 1)


def product(a: Tensor, b: Tensor) -> Tensor:
    """A product of matrices; of narrow ones by NumPy, whose BLAS is then up to ten times faster than torch's."""
    if min(*a.shape, *b.shape) > 8:
        return a @ b
    return torch.from_numpy(a.numpy() @ b.numpy())


def learning_rate(step: int, steps: int, peak: float, warm_up: float = 0.01) -> float:
    """Linear warm-up over 1 % of the steps, then a cosine down to a tenth, as Pythia; `step` counts from 0."""
    warm = max(1, round(steps * warm_up))
    if step < warm:
        return peak * (step + 1) / warm
    share = (step - warm) / max(1, steps - warm)
    return peak * (LEAST + (1 - LEAST) * (1 + math.cos(math.pi * share)) / 2)
