"""Which tokens can never be the most likely one, whatever the state? With a certificate for every answer.

Demeter et al. (2020, stolen probability): a row inside the hull of the others never has the largest logit. Grivas et al.
(2022) ask it of each token by a linear programme, with the bias: token v can be the most likely if and only if a state h
has <w_v - w_u, h> + b_v - b_u > 0 for every other u.
"""

import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from uncone.arguments import finite_number, shown, whole_number
from uncone.errors import InputError
from uncone.explain.faces import EPSILON, Answer, HeadSpace, Progress, seek
from uncone.measure.groups import are_labels
from uncone.records.text import counted, plural
from uncone.records.token_text import token_texts
from uncone.records.unreachable import UnreachableToken, UnreachableTokens
from uncone.rows import Array
from uncone.rows.samples import as_numbers

_NAMED = 3
_CHUNK = 2**24


def unreachable_tokens(
    head: Any,
    bias: Any = None,
    *,
    labels: Sequence[str | None] | None = None,
    states: Any = None,
    scale: float = 1.0,
    most_seconds: float = 300.0,
    most_listed: int = 100,
    progress: Progress | None = None,
) -> UnreachableTokens:
    """The tokens that no state makes the most likely (unargmaxable), each answer proven.

    A token is proven reachable by a state whose logits were computed, its logit above all others beyond their rounding. It
    is proven unreachable by a mixture of other rows that its row lies below. Nothing is assumed of the states: a token that
    is reachable may still need a state that the layers before the head cannot make.

    Args:
        head: (V, D), an array or tensor: the output rows.
        bias: (V,) of the logits. A positive scale or a cap of the logits changes no answer.
        labels: the token strings.
        states: (N, D) of a text: how many tokens were the most likely for one of them is told beside.
        scale: what the products of states and rows are times, before the bias is added.
        most_seconds: what is open then counts as undecided.
        most_listed: unreachable tokens with their certificates.
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
        raise InputError(
            f"expected a text or None for each of {len(rows):,} rows, got {shown(labels)}: pass a list of tokens"
        )
    offsets = None if bias is None else as_numbers(bias).astype(np.float64)
    space = HeadSpace.of(rows, offsets)
    first, copies = distinct(rows, offsets)
    answers = list[Answer]()
    if len(first) > 1:
        kept = (
            space
            if len(first) == len(rows)
            else HeadSpace.of(rows[first], None if offsets is None else offsets[first])
        )
        until = time.monotonic() + most_seconds
        told = None if progress is None else lambda done, n: progress("seeking states for tokens", done, n)
        sets = [(place,) for place in range(len(first))]
        answers = sorted(seek(kept, sets, until=until, progress=told), key=lambda one: one.own)
    told_states = None if states is None else checked_states(states, rows.shape[1])
    seen = (0, 0) if told_states is None else (_seen(space, told_states, scale), len(told_states))
    return _recorded(space, answers, first, copies, labels, seen, most_listed)


def plain(rows: Array) -> Array:
    """As float32 or float64, row after row in memory."""
    return np.ascontiguousarray(rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float32))


def distinct(rows: Array, bias: Array | None) -> tuple[Array, Array]:
    """The first places of distinct rows (with their bias), and for each row which of them it is."""
    keys, step = np.empty(len(rows), "V16"), max(1, _CHUNK // rows.shape[1])
    numbers = np.zeros(len(rows)) if bias is None else bias + 0.0
    for at in range(0, len(rows), step):
        block = rows[at : at + step] + rows.dtype.type(0)  # -0 is 0
        for i, row in enumerate(block, at):
            keys[i] = np.void(blake2b(row.tobytes() + numbers[i].tobytes(), digest_size=16).digest())
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return first[order], place[which.ravel()]


def checked_states(states: Any, d: int) -> Array:
    """The states of a text as (N, d), at least one.

    Raises:
        InputError: another shape, or numbers that are not finite.
    """
    h = as_numbers(states)
    if h.ndim != 2 or not len(h) or h.shape[1] != d:
        raise InputError(f"expected states (N, {d}), got shape {h.shape}: pass those that the head reads")
    if not np.isfinite(h).all():
        raise InputError("expected finite states, got NaN or inf: leave them out")
    return h


def _recorded(
    space: HeadSpace, answers: Sequence[Answer], first: Array, copies: Array, labels: Sequence[str | None] | None,
    seen_of: tuple[int, int], most_listed: int,
) -> UnreachableTokens:  # fmt: skip
    status = np.array([one.status for one in answers] or ["exposed"])
    sizes = np.bincount(copies)
    hidden, open_ = status == "hidden", status == "undecided"
    tied = np.flatnonzero((sizes > 1)[copies] & (status == "exposed")[copies])
    open_ids = np.flatnonzero(open_[copies])
    reachable = int(((sizes == 1) & (status == "exposed")).sum())
    exact = np.array([one.exact for one in answers] or [False])
    of_id = [(int(i), answers[copies[i]]) for i in np.flatnonzero(hidden[copies])[:most_listed]]
    seen, n = seen_of
    v, d = space.rows.shape
    unreachable, never = int(hidden[copies].sum()), int((hidden & exact)[copies].sum())
    return UnreachableTokens(
        verdict=_verdict(v, never, unreachable - never, len(tied), len(open_ids)), vocabulary=v, dimensions=d,
        biased=space.bias is not None, reachable=reachable, unreachable=unreachable,
        exact=never, tied=len(tied), undecided=len(open_ids),
        zero=int((~space.rows.any(1)).sum()), epsilon=EPSILON,
        tokens=tuple(_token(i, one, first, labels) for i, one in of_id),
        tied_ids=tuple(map(int, tied[:most_listed])), undecided_ids=tuple(map(int, open_ids[:most_listed])),
        states=n, seen=seen, definition=_definition(space, n, seen),
    )  # fmt: skip


def _token(place: int, answer: Answer, first: Array, labels: Sequence[str | None] | None) -> UnreachableToken:
    others = tuple(int(first[other]) if other >= 0 else -1 for other in answer.places)
    heaviest = [others[i] for i in np.lexsort((others, answer.weights))[::-1][:_NAMED]]
    named = token_texts(labels, [max(0, other) for other in heaviest])
    return UnreachableToken(
        place,
        token_texts(labels, [place])[0],
        answer.exact,
        answer.bound,
        others,
        answer.weights,
        tuple(named),
    )


def _seen(space: HeadSpace, h: Array, scale: float) -> int:
    """How many tokens are the most likely for one of the states."""
    winners, step = np.zeros(len(space.rows), bool), max(1, _CHUNK // len(space.rows))
    for at in range(0, len(h), step):
        logits = (scale * h[at : at + step]).astype(space.rows.dtype) @ space.rows.T
        if space.bias is not None:
            logits += space.bias.astype(logits.dtype)
        winners[logits.argmax(1)] = True
    return int(winners.sum())


def _verdict(v: int, never: int, hardly: int, tied: int, undecided: int) -> str:
    """`never` tokens are proven beyond all rounding; `hardly` ones to a margin of epsilon."""
    parts = list[str]()
    if never:
        parts.append(
            f"{never:,} of {counted(v, 'token')} can never be the most likely one, whatever the state"
        )
    if hardly:
        parts.append(
            f"{hardly:,} of {counted(v, 'token')} can lead all others by no more than {EPSILON:g} of what a typical token "
            "can, if at all"
        )
    if tied:
        parts.append(f"{counted(tied, 'token')} can only tie, as another token has an equal row")
    if undecided:
        parts.append(f"{counted(undecided, 'token')} {plural(undecided, 'is', 'are')} undecided")
    if not parts:
        return f"Each of {counted(v, 'token')} is the most likely one for some state, proven token by token."
    return "; ".join(parts) + "."


def _definition(space: HeadSpace, states: int, seen: int) -> str:
    text = (
        "Any vector counts as a state, so the layers before the head may reach fewer tokens. A token is unreachable if a "
        "mixture of other rows has a logit at least as large for every state"
        f"{', biases included' if space.bias is not None else ''}."
    )
    if states:
        text += f" On the text {counted(seen, 'token')} {plural(seen, 'was', 'were')} the most likely one for one of {counted(states, 'state')}."
    return text
