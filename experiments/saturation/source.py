"""A source of text whose rank is known: every token depends on the two before it, and the stream never ends."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

Array = np.ndarray
WARM_UP = 64
"""Tokens that each stream throws away, so that its contexts are as frequent as they will stay."""


@dataclass(frozen=True)
class Source:
    """P(. | a, b) = softmax(M s_ab) with s_ab = (sqrt(.35) u_a + sqrt(.65) g_b, 1) of `rank` numbers; a comes before b.

    Column i of M falls as i^(-1/2), as spectra of texts fall slowly, and the last column is the log of Zipf's law. So log P, with
    its mean over the vocabulary taken off, has exactly the rank `rank`. Context (a, b) has the number a V + b.
    """

    vocabulary: int = 128
    rank: int = 64
    spread: float = 2.0
    """Standard deviation of the logits over contexts, for one token."""
    seed: int = 2024

    @cached_property
    def log_p(self) -> Array:
        """(V^2, V), in nats."""
        v, r = self.vocabulary, self.rank - 1
        draw = np.random.default_rng(self.seed)
        u, g = draw.standard_normal((2, v, r))
        fall = np.arange(1, r + 1) ** -0.5
        columns = draw.standard_normal((v, r)) * fall * (self.spread / np.linalg.norm(fall))
        states = np.sqrt(0.35) * u[:, None] + np.sqrt(0.65) * g[None]
        logits = states.reshape(v * v, r) @ columns.T - np.log(np.arange(1, v + 1))
        top = logits.max(1, keepdims=True)
        return logits - top - np.log(np.exp(logits - top).sum(1, keepdims=True))

    @cached_property
    def stationary(self) -> Array:
        """(V^2,): how often each context comes in an endless stream, by iterating until nothing moves."""
        v = self.vocabulary
        p, now = np.exp(self.log_p).reshape(v, v, v), np.full((v, v), 1 / v**2)
        for _ in range(1000):
            then = np.einsum("ab,abc->bc", now, p)
            if np.abs(then - now).max() < 1e-15:
                break
            now = then
        return then.ravel() / then.sum()

    @cached_property
    def entropy(self) -> float:
        """Of the next token given its context, in nats: the loss of the best model."""
        return float(-(self.stationary @ (np.exp(self.log_p) * self.log_p).sum(1)))

    @cached_property
    def unigram_entropy(self) -> float:
        """The loss of the best model that knows no context, in nats."""
        p = self.stationary.reshape(self.vocabulary, -1).sum(1)
        return float(-(p @ np.log(p)))

    @cached_property
    def alias(self) -> tuple[Array, Array]:
        """Walker's tables, (V^2 V,) each: keep column j of a context with this probability, else take the other token."""
        v = self.vocabulary
        scaled = np.exp(self.log_p) * v
        other = np.tile(np.arange(v), (v * v, 1))
        rows, open_ = np.arange(v * v), np.ones_like(scaled, dtype=bool)
        for _ in range(v - 1):  # of every context: its smallest open column is filled up by its largest
            small = np.where(open_, scaled, np.inf).argmin(1)
            large = np.where(open_, scaled, -np.inf).argmax(1)
            open_[rows, small] = False
            other[rows, small] = large
            scaled[rows, large] -= np.where(large == small, 0, 1 - scaled[rows, small])
        scaled[open_] = 1
        return scaled.astype(np.float32).ravel(), other.astype(np.int16 if v > 256 else np.uint8).ravel()


class Streams:
    """`n` streams side by side, each read once. What comes depends on the seed and on how much was read, so that a run can go on."""

    def __init__(self, source: Source, n: int, seed: int, *, contexts: Array | None = None, read: int = 0) -> None:
        self.source, self.n, self.seed, self.read = source, n, seed, read
        self.contexts = np.zeros(n, dtype=np.int32) if contexts is None else contexts
        for _ in range(WARM_UP if contexts is None else 0):
            self.next()

    def next(self) -> tuple[Array, Array]:
        """One token of each stream: the numbers of the contexts (n,), and the tokens (n,)."""
        v, (keep, other) = self.source.vocabulary, self.source.alias
        draw = np.random.Generator(np.random.SFC64([self.seed, self.n, self.read]))
        uniform = draw.random(self.n) * v
        column = uniform.astype(np.int32)
        contexts = self.contexts
        at = contexts * v + column
        token = np.where(uniform - column < keep[at], column, other[at])
        self.contexts = (contexts % v) * v + token
        self.read += 1
        return contexts, token
