import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from uncone.errors import InputError
from uncone.memory import check_memory
from uncone.model.last_states import States
from uncone.records.text import count, number, percent
from uncone.records.tokens import Estimate
from uncone.roles import Progress
from uncone.rows import Array
from uncone.saturation.head.rank import answers
from uncone.saturation.head.rank.record import (
    NAMES,
    CutBounds,
    Method,
    RankCurve,
    RankLine,
    Refitting,
    SmallestRank,
    Start,
    TextFit,
)
from uncone.saturation.head.rank.refit import Factors, Objective, cut, full_rank, of_rank, random_head
from uncone.saturation.head.rank.truncation import (
    Nested,
    Tensor,
    Text,
    bounds,
    data_aware,
    gauge,
    losses,
    plain,
    second_moment,
)
from uncone.statistics.blocks import FEWEST_BLOCKS, block_means
from uncone.tensors import alone

SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1)
"""Of D: the usual ranks, close to the ranks of Godey et al. 2024."""
MARGIN = 0.01  # of the full head's loss: the usual margin
FEWEST, _MOST_BLOCKS, _SHORTEST, _EVERY = 128, 200, 16, 4
_LOGITS, _A_COLUMN = 2**23, 8
"""Logits whose targets are in memory at once, and the least tokens per column of refits, in a long text."""
_NOISE_NATS = 0.001
"""The noise of labels costs a refit about (share of labels)^2 V D / (2 N) nats: this sets their share."""
EVALUATIONS, _STARTS, _TRIALS, _TRIED, _STATIONARY = 20, 5, 8, 4, 1e-3
_ROUNDS, _FEWEST_STEPS, _STILL = 5, 10, 0.1
"""The refit of full rank doubles its gradients each round, up to 16 times those of other refits, until its held-out
loss changes by at most this share of the margin."""


@dataclass(frozen=True, eq=False)
class _Read:
    text: Text
    head: Tensor  # float64, centred where that changes nothing
    fit: Tensor  # (N,) bool
    blocks: Array  # (N,)

    @property
    def held(self) -> Tensor:
        return ~self.fit

    def means(self, found: Tensor) -> Array:
        """Block means (R, blocks) of losses (R, held-out tokens)."""
        return block_means(found.numpy(), self.blocks[self.held.numpy()])


def rank_curve(
    states: States,
    *,
    ranks: Sequence[int] | None = None,
    margin_nats: float | None = None,
    refits: bool = True,
    teacher: float | None = None,
    evaluations: int = EVALUATIONS,
    remedies: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> RankCurve:
    """The loss of heads of lower rank on the text that gave `states`: how small the head may be.

    Every fourth block of consecutive tokens is held out. Truncations and refits are fitted on the other blocks, and all
    are read on the held-out blocks, as is the full head.

    We compare the full head's loss with the loss of the text's token frequencies and of the refit of full rank. If the
    frequencies are better, or a head that was read gains more than the margin, both with 95 % intervals over blocks,
    the model does not fit the text. Then the full head is no reference, and only refits have a smallest rank, over
    their own full rank. If the refit of full rank has not converged, or fewer than 10 blocks are held out, no head has
    a smallest rank.

    Args:
        ranks, margin_nats, remedies: as in `uncone.examine_head`.
        refits: train heads as well.
        teacher: the share of the refits' target that is the full head's own probability, in [0, 1]; the rest is the
            next token. By default labels get as much as their noise allows. 0 is as in the paper.
        evaluations: gradients that each start of a refit may take; the convex refit of full rank takes up to 16 times
            as many, until it has converged.

    Raises:
        InputError: fewer than 128 tokens, states that are not finite, or ranks beyond the head's.
    """
    chosen = _checked_ranks(ranks, states)
    _check(states, margin_nats, teacher, evaluations)
    read = _read(states)

    def measure() -> tuple[list[_Measured], Array, Refitting | None]:
        moment = second_moment(read.text.x[read.fit])
        heads: dict[Method, Nested] = {"plain": plain(read.head), "data_aware": data_aware(read.head, moment)}
        cut_off, full = _truncated(read, chosen, heads, progress)
        if not refits:
            return cut_off, full, None
        nats = margin_nats or MARGIN * float(full.mean())
        refitted, trained = _refits(read, chosen, moment, teacher, evaluations, seed, progress, heads, nats)
        return cut_off + refitted, full, trained

    with torch.no_grad():
        measured, full, trained = alone(measure)
    loss, remedy = float(full.mean()), None
    margin = MARGIN * loss if margin_nats is None else margin_nats
    fit = _fit(read, full, measured, trained, margin)
    answered = tuple(_line(one, full, chosen, margin, seed, fit, measured, trained) for one in measured)
    if remedies:
        from uncone.saturation.head.rank.mixture import compare

        remedy = compare(read.text, read.head, read.fit, read.blocks, progress=progress)
    held, block = int(read.held.sum()), int(np.bincount(read.blocks)[0])
    sizes = (len(read.head), chosen[-1], len(states.labels), held, block)
    of_full = (loss, float(answers.standard_errors(full)[0]), margin)
    notes = _notes(states, refits, answered, margin)
    curve = RankCurve("", *sizes, chosen, *of_full, answered, trained, remedy, notes, fit)
    return replace(curve, verdict=_verdict(curve, fit))


def _checked_ranks(ranks: Sequence[int] | None, states: States) -> tuple[int, ...]:
    d = states.head.shape[1]
    if ranks is None:
        return tuple(sorted({max(1, round(share * d)) for share in SHARES}))
    if not ranks or min(ranks) < 1 or max(ranks) > d:
        came = ", ".join(map(str, ranks)) or "none"
        raise InputError(f"expected ranks from 1 to the head's {d} columns, got {came}: give some of these")
    return tuple(sorted({*ranks, d}))


def _check(states: States, margin: float | None, teacher: float | None, evaluations: int) -> None:
    x, head, n = states.states, states.head, len(states.labels)
    if n < FEWEST:
        raise InputError(f"expected a text of at least {FEWEST} tokens, got {n}: give a longer text")
    if not bool(torch.isfinite(x).all() and torch.isfinite(head).all()):
        raise InputError("expected finite states and a finite head, got NaN or inf: the model is damaged")
    if x.shape != (n, head.shape[1]):
        shapes = f"states {tuple(x.shape)}, head {tuple(head.shape)} and {n} labels"
        raise InputError(f"expected a state of the head's columns for each label, got {shapes}: use states_of")
    low, high = (int(end) for end in states.labels.aminmax())
    if low < 0 or high >= len(head):
        came = f"got {low} to {high}: the tokenizer belongs to another model"
        raise InputError(f"expected labels from 0 to {len(head) - 1}, {came}")
    if margin is not None and not margin > 0:
        raise InputError(f"expected a margin above 0 nats, got {margin}: 0.01 is usual")
    if teacher is not None and not 0 <= teacher <= 1:
        raise InputError(f"expected the teacher's share in [0, 1], got {teacher}: leave it out for the usual share")
    if evaluations < 1:
        raise InputError(f"expected at least 1 evaluation, got {evaluations}: {EVALUATIONS} is usual")


def _read(states: States) -> _Read:
    n = len(states.labels)
    length = max(_SHORTEST, math.ceil(n / _MOST_BLOCKS))
    # the rest joins the last block, unless the last block is held out: held-out blocks weigh the same
    last = n // length - (n // length % _EVERY != 0)
    blocks = np.minimum(np.arange(n) // length, last)
    bias = None if states.bias is None else states.bias.float()
    text = Text(states.scale * states.states.float(), states.labels, bias, states.cap)
    fit = torch.from_numpy(blocks % _EVERY != _EVERY - 1)
    return _Read(text, gauge(states.head, states.cap), fit, blocks)


@dataclass(frozen=True, eq=False)
class _Measured:
    method: Method
    means: Array  # (ranks, blocks), on the held-out part
    whole: tuple[float, ...] = ()
    bounds: tuple[CutBounds, ...] = ()
    starts: tuple[tuple[Start, ...], ...] = ()


def _truncated(
    read: _Read, ranks: tuple[int, ...], heads: dict[Method, Nested], progress: Progress | None
) -> tuple[list[_Measured], Array]:
    held = read.text.x[read.held]
    moment, norm = second_moment(held), float(held.norm(dim=1).mean(dtype=torch.float64))
    measured, full = list[_Measured](), torch.empty(0, len(read.fit), dtype=torch.float64)
    for method, one in heads.items():
        below = ranks[:-1] if len(full) else ranks  # both have the same full head
        notify = None if progress is None else partial(progress, f"reading the {NAMES[method]}")
        found = torch.cat([losses(one, below, read.text, notify), full]) if below else full
        full = found[-1:]
        cuts = tuple(bounds(read.head, one, rank, moment, norm) for rank in ranks)
        measured.append(_Measured(method, read.means(found[:, read.held]), tuple(found.mean(1).tolist()), cuts))
    return measured, read.means(full[:, read.held])


def _refits(
    read: _Read,
    ranks: tuple[int, ...],
    moment: Tensor,
    teacher: float | None,
    evaluations: int,
    seed: int,
    progress: Progress | None,
    truncated: dict[Method, Nested],
    margin: float,
) -> tuple[list[_Measured], Refitting]:
    """Refits of each rank, from the highest down, tried from all starts and trained from the best one."""
    (v, d), inside = read.head.shape, torch.nonzero(read.fit)[:, 0]
    n = min(len(inside), max(_LOGITS // v, _A_COLUMN * d))
    check_memory(8 * n * v, f"targets of {n:,} tokens and {v:,} ids", "leave refits out (refits=False)")
    order = torch.randperm(len(inside), generator=torch.Generator().manual_seed(seed))[:n]
    if teacher is None:
        teacher = 1 - min(1.0, math.sqrt(2 * _NOISE_NATS * n / (v * d)))
    problem = Objective.of(read.text.part(inside[order]), read.head, teacher, moment)
    weighted = data_aware(read.head, moment, problem.scale[:, 0].square())
    held = read.text.part(torch.nonzero(read.held)[:, 0])
    most = max(evaluations, _FEWEST_STEPS) * 2 ** (_ROUNDS - 1)
    full = replace(problem, tick=_ticks(progress, f"refitting rank {d}", most))
    whole, trained = _full_refit(full, read.head, held, Refitting(n, teacher, evaluations, 0.0, 0.0), margin)
    heads, randoms = {d: (whole, torch.eye(d, dtype=torch.float64))}, dict[int, Factors]()
    of_full = (Start("the full head", trained.objective),)
    starts: dict[int, tuple[Start, ...]] = {d: of_full}
    for place, rank in enumerate(reversed(ranks)):
        most = evaluations + (rank < d) * (_STARTS * _TRIALS + evaluations)
        problem = replace(problem, tick=_ticks(progress, f"refitting rank {rank}, {place + 1} of {len(ranks)}", most))
        random = random_head(v, d, rank, moment, seed + place)
        if rank < d:
            above = min(heads)
            a, b = problem.enter(heads[above])
            by_name = {
                "random A B": random,
                **{NAMES[method]: cut(one, rank) for method, one in truncated.items()},
                "data-aware, rows by frequency": cut(weighted, rank),
                f"the refit of rank {above}": problem.leave(a[:, :rank], b[:rank]),
            }
            trial = problem.first(max(1, n // _TRIED))
            tried = {name: of_rank(trial, start, _TRIALS) for name, start in by_name.items()}
            best, _ = min(tried.values(), key=lambda one: one[1].objective)
            heads[rank], _ = of_rank(problem, best, evaluations)
            starts[rank] = tuple(Start(name, one.objective) for name, (_, one) in tried.items())
        randoms[rank], _ = of_rank(problem, random, evaluations)
    refit, random_start = (
        read.means(torch.cat([losses(Nested(*of[rank]), [rank], held) for rank in ranks])) for of in (heads, randoms)
    )
    of_refit = _Measured("refit", refit, starts=tuple(starts[rank] for rank in ranks))
    return [of_refit, _Measured("random_start", random_start)], trained


def _ticks(progress: Progress | None, step: str, most: int) -> Callable[[], None]:
    """Reports gradients, of which there are at most so many."""
    done = itertools.count(1)
    return lambda: None if progress is None else progress(step, min(next(done), most), most)


def _full_refit(problem: Objective, head: Tensor, held: Text, of: Refitting, margin: float) -> tuple[Tensor, Refitting]:
    """Refit in rounds, each with as many gradients as all earlier rounds, until the held-out loss stays."""
    point, spent, loss, identity = head, 0, math.inf, torch.eye(head.shape[1], dtype=torch.float64)
    least = _STATIONARY * (1 - of.teacher)  # only labels move the full head
    for _ in range(_ROUNDS):
        point, fit = full_rank(problem, point, spent or max(of.evaluations, _FEWEST_STEPS), least)
        before, loss = loss, float(losses(Nested(point, identity), [len(identity)], held).mean())
        spent += fit.evaluations
        of = replace(of, objective=fit.objective, gradient=fit.gradient, spent=spent, moved=abs(loss - before))
        if abs(loss - before) <= _STILL * margin or fit.gradient <= least:
            return point, replace(of, moved=of.moved if math.isfinite(before) else 0.0, converged=True)
    return point, replace(of, converged=False)


def _fit(read: _Read, full: Array, measured: list[_Measured], trained: Refitting | None, margin: float) -> TextFit:
    v, labels = len(read.head), read.text.labels
    counts = torch.bincount(labels[read.fit], minlength=v) + 0.5
    by_frequency = -torch.log(counts / counts.sum()).double()[labels[read.held]]
    frequent = read.means(by_frequency[None])
    over = _interval(frequent[0] - full[0])
    refits = [one.means[-1] for one in measured if one.method == "refit"]
    others = np.stack([*(row for one in measured if one.whole for row in one.means), *refits])
    gain = _interval(full[0] - others[int(others.mean(1).argmin())])
    refit = float(refits[0].mean()) if trained is not None and trained.converged else None
    (_, above), (least, _) = (one.interval or (-math.inf, math.inf) for one in (over, gain))
    misfit = full.shape[1] >= FEWEST_BLOCKS and (above < 0 or least > margin)
    return TextFit(misfit, float(frequent.mean()), refit, over, gain)


def _interval(differences: Array) -> Estimate:
    """The mean over blocks with its interval, approximately by Student's t."""
    value, error = float(differences.mean()), float(answers.standard_errors(differences[None])[0])
    half = (1.96 + 2.7 / max(len(differences) - 1, 1)) * error
    return Estimate(value, (value - half, value + half))


def _line(
    one: _Measured,
    full: Array,
    ranks: tuple[int, ...],
    margin: float,
    seed: int,
    fit: TextFit,
    measured: list[_Measured],
    trained: Refitting | None,
) -> RankLine:
    """A refit that gains at full rank, as on text that the model was not made for, gains at low ranks as well, so the
    cost of its rank is read against the refit of full rank."""
    over, own = one.means - full, one.method in ("refit", "random_start")
    full_refit = next((of.means[-1:] for of in measured if of.method == "refit"), full)
    costs = one.means - min((full, full_refit) if own else (full,), key=np.mean)
    excess, drawn = costs.mean(1), answers.resampled(costs, seed=seed)
    is_converged = trained is None or trained.converged
    is_measure = is_converged and full.shape[1] >= FEWEST_BLOCKS and (own or not fit.misfit)
    small = (
        answers.smallest(ranks, excess, drawn, margin, len(measured)) if is_measure else SmallestRank(None, None, None)
    )
    bent = answers.kink(ranks[:-1], ranks[-1], excess[:-1], drawn[:, :-1])
    numbers = one.means.mean(1), over.mean(1), answers.standard_errors(over)
    found, above, errors = (tuple(of.tolist()) for of in numbers)
    return RankLine(one.method, found, above, errors, small, bent, one.whole, one.bounds, one.starts)


def _verdict(curve: RankCurve, fit: TextFit) -> str:
    said, answer, trained = _said(curve, fit), curve.answer, curve.refitting
    if trained and not trained.converged:
        return f"{said} No smallest rank is given, because the refit of the full head has not converged."
    if curve.held_out < FEWEST_BLOCKS * curve.block:
        needs = f"at least {FEWEST_BLOCKS} blocks of {curve.block} held-out tokens"
        return f"{said} No smallest rank is given: that needs {needs}."
    if answer is None and fit.misfit:
        return f"{said} So we cannot tell what a smaller head costs."
    whose = "its own full rank" if fit.misfit else "the full rank"
    nats = f"{number(curve.margin_nats)} nats per token"
    if answer is None or answer[0] == curve.d:
        if all(line.smallest.low in (curve.d, None) for line in curve.lines):
            return f"{said} Every head of a lower rank that was read loses more than {nats} against {whose}."
        return f"{said} No head of a lower rank that was read was shown to stay within {nats} of {whose}."
    worth, (rank, method) = "no parameters, because a product A B has more", answer
    if (saved := curve.saved(rank)) > 0:
        worth = f"{percent(saved)} of its parameters"
    of = f"rank {count(rank)} of {count(curve.d)} ({NAMES[method]})"
    head = "A head that is refitted for this text" if fit.misfit else "The head"
    return f"{said} {head} may have {of}. Its loss stays within {nats} of {whose}, and it saves {worth}."


def _said(curve: RankCurve, fit: TextFit) -> str:
    """How well the model fits the text."""
    refit = "" if fit.refit is None else f", refitted head {number(fit.refit)}"
    losses = f"loses {number(curve.full_loss)} nats per token (unigram {number(fit.unigram)}{refit})"
    return f"The model does not fit this text: it {losses}." if fit.misfit else f"On this text the model {losses}."


def _notes(states: States, refits: bool, lines: tuple[RankLine, ...], margin: float) -> tuple[str, ...]:
    notes = list[str]()
    for gain in (-line.excess[-1] for line in lines if line.method == "refit" and line.excess[-1] < 0):
        unfit = ", as if the model was not made for it" if gain > margin else ""
        gains = f"Refitted at full rank, the head gains {number(gain)} nats on this text{unfit}"
        notes.append(f"{gains}. The margin of refits counts from that refit.")
    notes.append("The smallest rank is one of the ranks that were read: give more ranks for a finer answer.")
    if states.cap is not None:
        notes.append("Logits are capped: the head is cut as stored, not centred.")
        if refits:
            notes.append("With capped logits the refit of full rank is not convex.")
    return tuple(notes)
