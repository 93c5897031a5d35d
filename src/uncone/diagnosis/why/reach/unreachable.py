"""Which tokens can never be the most likely, whatever the state? Every answer comes with a certificate.

A row inside the hull of the others never has the largest logit (Demeter et al. 2020, stolen probability). Grivas et al.
(2022) decide each token by a linear programme, with the bias: token v can be the most likely if and only if a state h
has <w_v - w_u, h> + b_v - b_u > 0 for every other u.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from uncone.arguments import finite_number, shown, whole_number
from uncone.diagnosis.why.reach.faces import EPSILON, Answer, HeadSpace, Work, check_head, levels, seek
from uncone.diagnosis.why.reach.record import UnreachableToken, UnreachableTokens
from uncone.errors import InputError
from uncone.measure.groups import are_labels
from uncone.records.text import counted, plural
from uncone.records.token_text import token_texts
from uncone.roles import Progress
from uncone.rows import Array
from uncone.rows.samples import as_numbers

MOST_WORK = 5e12  # multiplications: some five minutes on two cores
_NAMED, _CHUNK = 3, 2**24


def unreachable_tokens(
    head: Any,
    bias: Any = None,
    *,
    labels: Sequence[str | None] | None = None,
    states: Any = None,
    scale: float = 1.0,
    most_work: float = MOST_WORK,
    most_listed: int = 100,
    progress: Progress | None = None,
) -> UnreachableTokens:
    """Find the tokens that no state makes the most likely (unargmaxable), with a proof for each token.

    A state whose logits were computed proves that a token is reachable; a mixture of other rows above it proves that it
    is not. A reachable token may still need a state that the layers before the head cannot make.

    Args:
        head: (V, D), an array or tensor: the output rows.
        bias: (V,) of the logits. A positive scale or a cap of the logits changes no answer.
        labels: the token strings.
        states: (N, D) of a text, to count how many tokens were the most likely for one of them.
        scale: multiplies the products of states and rows before the bias is added.
        most_work: the most multiplications, the same on every machine; what is still open counts as undecided.
        most_listed: the most unreachable tokens to list with their certificates.
        progress: called with (step, done, in all).

    Raises:
        InputError: not a matrix of at least two rows, a bias of another length, or numbers that are not finite.

    >>> corners = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [0.2, 0.3]])
    >>> found = unreachable_tokens(corners)
    >>> found.reachable, [(one.id, one.exact) for one in found.tokens]
    (4, [(4, True)])
    """
    finite_number(scale, "scale")
    whole_number(most_listed, "most_listed", 0)
    rows = plain(as_numbers(head))
    if labels is not None and not are_labels(labels, len(rows)):
        expected = f"expected a text or None for each of {len(rows):,} rows"
        raise InputError(f"{expected}, got {shown(labels)}: pass a list of tokens")
    offsets = None if bias is None else as_numbers(bias).astype(np.float64)
    check_head(rows, offsets)
    first, copies = distinct(rows, offsets)
    answers = _answers(rows[first], None if offsets is None else offsets[first], Work(most_work), progress)
    text = rows[:0] if states is None else checked_states(states, rows.shape[1])
    seen, n = _seen(rows, offsets, text, scale), len(text)
    status, are_copies = np.array([one.status for one in answers] or ["exposed"]), np.bincount(copies) > 1
    hidden, exposed = status == "hidden", status == "exposed"
    tied, undecided = (np.flatnonzero(of[copies]) for of in (are_copies & exposed, status == "undecided"))
    exact = np.array([one.exact for one in answers] or [False])
    listed = np.flatnonzero(hidden[copies])[:most_listed].tolist()
    is_biased = offsets is not None and bool(offsets.min() < offsets.max())
    (v, d), unreachable, never = rows.shape, int(hidden[copies].sum()), int((hidden & exact)[copies].sum())
    return UnreachableTokens(
        verdict=_verdict(v, never, unreachable - never, len(tied), len(undecided)),
        vocabulary=v,
        dimensions=d,
        biased=is_biased,
        reachable=int((~are_copies & exposed).sum()),
        unreachable=unreachable,
        exact=never,
        tied=len(tied),
        undecided=len(undecided),
        zero=int((~rows.any(1)).sum()),
        epsilon=EPSILON,
        tokens=tuple(_token(i, answers[copies[i]], first, labels, offsets) for i in listed),
        tied_ids=tuple(tied[:most_listed].tolist()),
        undecided_ids=tuple(undecided[:most_listed].tolist()),
        states=n,
        seen=seen,
        definition=_definition(is_biased, n, seen),
    )


def _answers(rows: Array, bias: Array | None, work: Work, progress: Progress | None) -> list[Answer]:
    if len(rows) < 2:
        return []
    answers, n = list[Answer](), len(rows)
    for places, spread in [(np.arange(n), 0.0)] if bias is None else levels(bias):
        done = len(answers)
        tick = None if progress is None else lambda k, _, done=done: progress("seeking states for tokens", done + k, n)
        space = HeadSpace.of(rows, bias, spread)
        answers += seek(space, [(int(place),) for place in places], work=work, progress=tick)
    return sorted(answers, key=lambda answer: answer.own)


def plain(rows: Array) -> Array:
    return np.ascontiguousarray(rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float32))


def distinct(rows: Array, bias: Array | None) -> tuple[Array, Array]:
    """The first places of distinct rows (with their bias), and which of these each row is."""
    keys, step = np.empty(len(rows), "V16"), max(1, _CHUNK // rows.shape[1])
    numbers = np.zeros(len(rows)) if bias is None else bias + 0.0
    for at in range(0, len(rows), step):
        block = rows[at : at + step] + rows.dtype.type(0)  # -0 is 0
        for i, row in enumerate(block, at):
            keys[i] = np.void(blake2b(row.tobytes() + numbers[i].tobytes(), digest_size=16).digest())
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[which.ravel()]


def checked_states(states: Any, d: int) -> Array:
    """(N, d). InputError: another shape, none, or numbers that are not finite."""
    h = as_numbers(states)
    if h.ndim != 2 or not len(h) or h.shape[1] != d:
        raise InputError(f"expected states (N, {d}), got shape {h.shape}: pass the states that the head reads")
    if not np.isfinite(h).all():
        raise InputError("expected finite states, got NaN or inf: leave them out")
    return h


def _token(
    place: int, answer: Answer, first: Array, labels: Sequence[str | None] | None, bias: Array | None
) -> UnreachableToken:
    others = tuple(first[list(answer.places)].tolist())
    heaviest = [others[i] for i in np.lexsort((others, answer.weights))[::-1][:_NAMED]]
    higher = 0.0
    if bias is not None and answer.is_lower:
        higher = max(0.0, float(np.asarray(answer.weights) @ (bias[list(others)] - bias[place])))
    token, *texts = token_texts(labels, [place, *heaviest])
    return UnreachableToken(place, token, answer.exact, answer.bound, others, answer.weights, tuple(texts), higher)


def _seen(rows: Array, bias: Array | None, h: Array, scale: float) -> int:
    winners, step = np.zeros(len(rows), bool), max(1, _CHUNK // len(rows))
    for at in range(0, len(h), step):
        logits = (scale * h[at : at + step]).astype(rows.dtype) @ rows.T
        if bias is not None:
            logits += bias.astype(logits.dtype)
        winners[logits.argmax(1)] = True
    return int(winners.sum())


def _verdict(v: int, never: int, hardly: int, tied: int, undecided: int) -> str:
    """`never` tokens are proven beyond all rounding; `hardly` ones to a margin of epsilon."""
    tokens, little = counted(v, "token"), f"no more than {EPSILON:g} of what a typical token can, if at all"
    parts = {
        f"{never:,} of {tokens} can never be the most likely, whatever the state": never,
        f"{hardly:,} of {tokens} can lead all others by {little}": hardly,
        f"{counted(tied, 'token')} can only tie, as another token has an equal row": tied,
        f"{counted(undecided, 'token')} {plural(undecided, 'is', 'are')} undecided": undecided,
    }
    found = ". ".join(part for part, n in parts.items() if n)
    return f"{found or f'Each of {tokens} is the most likely for some state, proven token by token'}."


def _definition(is_biased: bool, states: int, seen: int) -> str:
    tokens = counted(seen, "token was", "tokens were")
    on_text = f" On this text {tokens} the most likely for one of {counted(states, 'state')}."
    return (
        "Any vector counts as a state here, so the layers before the head may reach fewer tokens. A token is "
        "unreachable if a mixture of other rows has a logit at least as large for every "
        f"state{', biases included' * is_biased}.{on_text * bool(states)}"
    )
