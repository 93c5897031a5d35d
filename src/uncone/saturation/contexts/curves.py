from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count as count_up
from typing import Any

import numpy as np

from uncone.arguments import shown, whole_number
from uncone.errors import InputError, needed
from uncone.records.text import count, number
from uncone.records.tokens import Estimate
from uncone.roles import Progress
from uncone.rows import Array, as_array
from uncone.saturation.contexts.record import ContextCurve, ContextDifference, ContextRank, Kind
from uncone.statistics.blocks import FEWEST_BLOCKS, draws
from uncone.statistics.leading import leading_pairs
from uncone.threads import share

Spectrum = tuple[Array, Array]  # of `ContextMatrix.spectrum`
KINDS: tuple[Kind, ...] = ("all", "seen", "weighted")
NULLS = ("shuffled", "next shuffled")
SEEN = 5  # occurrences from which on a context's distribution is informative
HALF = 0.5
_BLOCKS, _ROWS_AT_ONCE = 40, 8192
_SURE = (0.005, 0.995)
"""For the difference from a null: we compare two numbers of dimensions, and draws of few blocks are too narrow."""


@dataclass(frozen=True, eq=False)
class Followers:
    """How often each token follows each context, for each of P pairs that occur, sorted by context."""

    context: Array  # (P,) int64, from 0
    token: Array  # (P,) int64
    count: Array  # (P,) int64
    total: Array  # (C,) int64: occurrences of each context
    where: Array  # (N,) int64: the context at each place that has one
    vocabulary: int


def context_rank(
    texts: Sequence[Any], order: int, dimensions: int, name: str, tokenizer: str, seed: int, progress: Progress | None
) -> ContextRank:
    """The W-error of the matrix of n-grams, compared with shuffled tokens.

    The matrix W* (C, V) has a row for every context of `order` - 1 tokens: the distribution of the token after it
    (Godey et al. 2024, section 5.1). With its singular values sigma_i, descending,

        W-error(d) = sqrt(sum_(i > d) sigma_i^2) / ||W*||_F

    is the least relative error of a matrix of rank d (Eckart and Young 1936). We compute it for all contexts, for
    contexts seen at least 5 times, and for rows times the root of their counts, and compare it with two nulls: the same
    tokens in a random order ("shuffled"), and the contexts with the tokens after them in a random order ("next
    shuffled"). Only the difference reflects language: without any structure, sigma_i^2 of contexts seen once is the
    number of times that a token follows.

    Intervals are over 40 blocks of the stream; a context in several blocks gets one at random. The singular vectors are
    held fixed, which is right to first order. Each side of a difference draws blocks of its own: the shuffled tokens
    are random too.
    """
    ids, ends = _joined(texts, whole_number(order, "order"))
    whole_number(seed, "seed", 0)
    if whole_number(dimensions, "dimensions") < 1:
        raise InputError(f"expected at least one dimension, got {dimensions}: 500 is usual")
    random = np.random.default_rng(seed)
    counted = {
        "text": count_followers(ids, ends, order),
        "shuffled": count_followers(random.permutation(ids), ends, order),
        "next shuffled": count_followers(ids, ends, order, random.permutation),
    }
    wanted, done = [(kind, source) for source in counted for kind in KINDS], count_up(1)

    def measure(kind: Kind, source: str) -> tuple[ContextCurve, Spectrum] | None:
        matrix = ContextMatrix(counted[source], kind)
        spectrum = matrix.spectrum(min(dimensions, matrix.columns), seed) if matrix.contexts else None
        if progress is not None:
            progress("singular values of contexts", next(done), len(wanted))
        return None if spectrum is None else (_curve(kind, source, matrix, *spectrum), spectrum)

    measured = zip(wanted, share([partial(measure, *of) for of in wanted]), strict=True)
    found = {of: result for of, result in measured if result is not None}
    curves = tuple(curve for curve, _ in found.values())
    differences = tuple(_differences({of: spectrum for of, (_, spectrum) in found.items()}))
    verdict = _verdict(name, order, [curve for curve in curves if curve.kind == "all"], differences)
    numbers = (len(ids), len(np.unique(ids)), order, dimensions, SEEN, seed)
    return ContextRank(verdict, name, tokenizer, *numbers, curves, differences)


def _joined(texts: Sequence[Any], order: int) -> tuple[Array, Array]:
    """All ids (N,), and where each text ends."""
    if order < 2:
        raise InputError(f"expected n-grams of at least 2 tokens, got {order}: 5 is usual")
    came = f"got {shown(texts)}"
    try:
        arrays = [np.asarray(as_array(text)) for text in texts]
    except ValueError as error:
        raise InputError(f"expected texts of token ids, {came} that cannot become arrays: pass flat lists") from error
    if any(a.ndim != 1 or (len(a) and (a.dtype.kind not in "iu" or int(a.min()) < 0)) for a in arrays):
        raise InputError(f"expected texts of token ids, whole numbers from 0 up, {came}: pass arrays (n,) of them")
    arrays = [a for a in arrays if len(a)]
    if (largest := max((int(a.max()) for a in arrays), default=0)) >= 10**8:
        raise InputError(f"expected token ids below 100,000,000, got {largest}: number the tokens from 0")
    if max(map(len, arrays), default=0) < order:
        raise InputError(f"expected a text of at least {order} tokens, got fewer: give more text")
    return np.concatenate([a.astype(np.int64) for a in arrays]), np.cumsum([*map(len, arrays)])


def count_followers(ids: Array, ends: Array, order: int, shuffle: Callable[[Array], Array] | None = None) -> Followers:
    """Contexts have `order` - 1 ids; `shuffle` puts the tokens that follow into another order."""
    length, vocabulary = order - 1, int(ids.max()) + 1
    starts = np.arange(len(ids) - length)
    # a context and its next token are in one text
    starts = starts[np.searchsorted(ends, starts, "right") == np.searchsorted(ends, starts + length, "right")]
    where = np.zeros(len(starts), np.int64)
    for step in range(length):
        # numbered again, so that context and token fit into 64 bits
        where = np.unique(where * vocabulary + ids[starts + step], return_inverse=True)[1].astype(np.int64)
    token = ids[starts + length]
    keys, counts = np.unique(where * vocabulary + (shuffle(token) if shuffle else token), return_counts=True)
    return Followers(keys // vocabulary, keys % vocabulary, counts, np.bincount(where), where, vocabulary)


class ContextMatrix:
    """W* of one kind: rows with a single token as weights of that token, the other rows as a sparse matrix.

    Rows with a single 1 add to the diagonal of W*^T W*. A token that occurs only in such rows is an eigenvector. So the
    products need only the other tokens and rows.
    """

    def __init__(self, found: Followers, kind: Kind) -> None:
        sparse = needed("scipy.sparse", "the rank of contexts needs scipy, got none: pip install 'uncone[cluster]'")
        weight = np.sqrt(found.total) if kind == "weighted" else np.ones(len(found.total))
        if kind == "seen":
            weight[found.total < SEEN] = 0
        self.contexts, self.columns = int(np.count_nonzero(weight)), found.vocabulary
        n, c = len(found.where), len(weight)
        first, last, at = np.empty(c, np.int64), np.empty(c, np.int64), np.arange(n) * _BLOCKS // n
        first[found.where[::-1]], last[found.where] = at[::-1], at
        block = np.where(first == last, first, np.random.default_rng(0).integers(_BLOCKS, size=c))
        shares = sparse.csr_array((np.ones(c), (block, np.arange(c))), shape=(_BLOCKS, c))
        alone = (np.bincount(found.context, minlength=c) == 1)[found.context]
        of_alone = found.context[alone]
        self.single = int(np.count_nonzero(weight[of_alone]))
        ones = (weight[of_alone] ** 2, (of_alone, found.token[alone]))
        self.diagonal = (shares @ sparse.csr_array(ones, shape=(c, self.columns))).toarray()
        left = ~alone & (weight[found.context] > 0)
        context = found.context[left]
        rows, row = np.unique(context, return_inverse=True)
        value = found.count[left] / found.total[context] * weight[context]
        self.coupled, column = np.unique(found.token[left], return_inverse=True)
        self.shares = shares.tocsc()[:, rows].tocsr()
        self.matrix = sparse.csr_array((value, (row, column)), shape=(len(rows), len(self.coupled)))
        self.energy = self.diagonal.sum(1) + self.shares @ np.bincount(row, value**2, len(rows))
        """||W*||_F^2 of the rows of each block."""

    def spectrum(self, k: int, seed: int = 0) -> Spectrum:
        """W-error at 0 to k dimensions, and the squares that remain in each block's rows: (blocks, k + 1)."""
        own, transposed = self.diagonal.sum(0), self.matrix.T.tocsr()
        inner = own[self.coupled][:, None]

        def product(x: Array) -> Array:
            result: Array = inner * x + transposed @ (self.matrix @ x)
            return result

        n = len(self.coupled)
        values, vectors = leading_pairs(product, n, min(k, n), seed=seed) if n else (np.zeros(0), np.zeros((0, 0)))
        apart = np.setdiff1d(np.arange(self.columns), self.coupled)
        every = np.concatenate([values, own[apart]])
        chosen = np.argsort(-every, kind="stable")[:k]
        within = np.concatenate([self._within(vectors), self.diagonal[:, apart]], axis=1)
        energy, taken = self.energy[:, None], np.cumsum(within[:, chosen], axis=1)
        left = np.concatenate([energy, np.maximum(energy - taken, 0)], axis=1)
        share = 1 - np.append(0, np.cumsum(every[chosen])) / self.energy.sum()
        return np.sqrt(np.where(share > 1e-12, share, 0)), left  # below it is rounding

    def _within(self, vectors: Array) -> Array:
        result = self.diagonal[:, self.coupled] @ vectors**2
        for start in range(0, self.matrix.shape[0], _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            result += self.shares[:, part] @ (self.matrix[part] @ vectors) ** 2
        return np.asarray(result)


def half_dimension(errors: Array) -> int | None:
    """The least dimension whose W-error is at most one half, if it was computed."""
    below = np.flatnonzero(errors <= HALF)
    return int(below[0]) if len(below) else None


def _drawn(left: Array, seed: int = 0) -> Array:
    sums = draws(len(left), seed) @ left
    return np.asarray(np.sqrt(sums / np.maximum(sums[:, :1], np.finfo(float).tiny)))


def _curve(kind: Kind, source: str, matrix: ContextMatrix, errors: Array, left: Array) -> ContextCurve:
    half, interval = half_dimension(errors), None
    if half is not None and np.count_nonzero(left[:, 0]) >= FEWEST_BLOCKS:
        drawn = _drawn(left)
        crossed = np.where((drawn <= HALF).any(1), (drawn <= HALF).argmax(1), drawn.shape[1])
        low, high = np.quantile(crossed, [0.025, 0.975])
        # no upper end where a draw does not cross within the dimensions computed
        interval = (min(float(low), half), max(float(high), half)) if high < drawn.shape[1] else None
    at = [0, *np.unique(np.geomspace(1, max(len(errors) - 1, 1), 120).round().astype(int)).tolist()]
    estimate = Estimate(None if half is None else float(half), interval)
    return ContextCurve(kind, source, matrix.contexts, matrix.single, tuple(at), tuple(errors[at].tolist()), estimate)


def _differences(errors: dict[tuple[Kind, str], Spectrum]) -> Iterator[ContextDifference]:
    """The text less each null, at the dimension where the null's W-error is one half and at the last dimension."""
    for kind in KINDS:
        for source in NULLS:
            if (kind, "text") not in errors or (kind, source) not in errors:
                continue
            (text, left), (null, null_left) = errors[kind, "text"], errors[kind, source]
            # up to the ranks of both
            k = min(len(text), len(null), int(max(np.count_nonzero(text), np.count_nonzero(null)))) - 1
            halves = half_dimension(text), half_dimension(null)
            # chosen by the null alone: the largest difference would be chosen by chance
            for d in sorted({min(halves[1] or k, k), k}):
                # separate draws: shuffled followers are random too, and shared blocks would hide their chance
                other = _drawn(null_left[:, [0, d]], seed=1)[:, 1]
                drawn = _drawn(left[:, [0, d]])[:, 1] - other
                value, (low, high) = float(text[d] - null[d]), np.quantile(drawn, _SURE).tolist()
                difference = Estimate(value, (min(low, value), max(high, value)))
                yield ContextDifference(kind, source, d, float(text[d]), float(null[d]), difference, *halves)


def _verdict(name: str, order: int, curves: Sequence[ContextCurve], differences: Sequence[ContextDifference]) -> str:
    """Based on the differences from shuffled tokens; if several are beyond chance, on the last of them."""
    rows = [d for d in differences if (d.kind, d.source) == ("all", "shuffled")]
    last = next((d for d in reversed(rows) if _way(d)), rows[-1])
    sizes, at = f"Contexts of {order - 1} tokens in {name or 'the text'}", f"at {count(last.dimension)} dimensions"
    halves = [curve.half.value for curve in curves if curve.source in ("text", "shuffled")]
    if None not in halves and len(halves) == 2:
        text, null = (f"at {half:,.0f}" for half in halves)
        sizes += f" halve their W-error {text} dimensions, the same tokens shuffled {null}."
    else:
        sizes += f" have a W-error of {number(last.text)} {at}, the same tokens shuffled {number(last.null)}."
    if way := _way(last):
        size = f"{number(abs(last.difference.value or 0))} {'higher' if way == 'more' else 'lower'}"
        error = f"its W-error (the relative error of a fit with that many dimensions) {at} is {size}"
        verdict = f"Language takes {way} dimensions than frequencies alone: {error}. {sizes}"
    else:
        at = " or ".join(count(d.dimension) for d in rows)
        verdict = f"No difference from shuffled tokens was detected at {at} dimensions. {sizes}"
    often = [d for d in differences if (d.kind, d.source) == ("seen", "next shuffled") and _way(d)]
    for d in often[-1:]:
        verdict += f" Contexts seen {SEEN} times or more take {_way(d)} dimensions than with their followers shuffled"
        verdict += f" (W-error {number(d.text)} and {number(d.null)} at {count(d.dimension)})."
    return verdict


def _way(one: ContextDifference) -> str | None:
    """More or fewer dimensions than the null; None if the interval holds 0."""
    low, high = one.difference.interval or (0.0, 0.0)
    return None if low <= 0 <= high else "more" if low > 0 else "fewer"


def token_arrays(read: Any, texts: Sequence[str]) -> list[Array]:
    """The ids by a `tokenizers.Tokenizer`; of words between white space where it is None."""
    if read is not None:
        encoded = read.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(one.ids, np.int64) for one in encoded]
    number_of = dict[str, int]()
    return [np.array([number_of.setdefault(w, len(number_of)) for w in text.split()], np.int64) for text in texts]
