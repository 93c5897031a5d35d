"""What a record reads from the training loss: its size, and what pulls and pushes which rows of the head."""

import math
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import torch

from uncone.errors import InputError
from uncone.model.last_states import States
from uncone.training.loss.options import CrossEntropyOptions
from uncone.training.monitor.rows import Groups, Numbers, Pass

Tensor = torch.Tensor
MICRO_BATCHES, EPS = 8, 1e-8  # runs of targets that represent Adam's steps, and Adam's epsilon
_LARGEST, _MOST_RAISED = 55, 126  # powers of two
_RANK = 1e-10  # of the largest eigenvalue: a smaller direction of the head passes nothing back
_PARTS = ("norm", "pull_norm", "frequent_norm", "rare_norm")
_SUMS = (*_PARTS, "square along", "square", "cosine", "sgd", "adam", "gradients", "pushes")


@dataclass(frozen=True, eq=False)
class Batch:
    """States that a head read, and how the loss uses them. Logits are as in `States`."""

    states: States  # of M targets
    targets: int  # number of targets that these M represent
    options: CrossEntropyOptions
    class_weights: Tensor | None = None  # (V,)
    token_weights: Tensor | None = None  # (M,)

    @property
    def of_token(self) -> Tensor:
        """(M,) float64: each target's own weight."""
        labels, own = self.states.labels, self.token_weights
        return torch.ones_like(labels, dtype=torch.float64) if own is None else own.to(labels.device, torch.float64)

    @property
    def of_target(self) -> Tensor:
        """(M,) float64: each target's own weight times the weight of its class."""
        own = self.of_token
        return own if self.class_weights is None else own * self._classes[self.states.labels]

    @property
    def _classes(self) -> Tensor:
        assert self.class_weights is not None
        return self.class_weights.to(self.states.labels.device, torch.float64)

    def factor(self) -> float:
        """The factor of a target's own loss in the reduction: 1 over the sum of weights in a mean; in a sum each of the
        M targets represents several."""
        if self.options.reduction == "mean":
            return 1 / max(float(self.of_target.sum()), 1e-300)
        return self.targets / max(len(self.states.labels), 1)

    def spread(self, rows: slice) -> Tensor | float:
        """What smoothing subtracts from the gradient of a target of weight 1, at each of the rows."""
        of_all = self.options.label_smoothing / len(self.states.head)
        return of_all if self.class_weights is None else of_all * self._classes[rows]

    def mass(self) -> Tensor:
        """(M,): the sum of each target's distribution."""
        smoothing, of = self.options.label_smoothing, self.of_target
        rest = 1.0 if self.class_weights is None else self._classes.mean()
        return (1 - smoothing) * of + smoothing * rest * self.of_token


@dataclass(eq=False)
class LossReader:
    """Follows two passes over the head: the first gives each target's log-sum-exp, the second the gradients

        delta_iv = a (p_iv (mass_i + 2 L w_i lse_i) - E / V w_v - (1 - E) w_i [v = y_i]),  g_v = sum_i delta_iv c_iv h_i

    of the loss with smoothing E, z-loss L and class weights w, by logits and by rows. a is 1 over the sum of weights in
    a mean and 1 in a sum, and c is the slope of a cap, times the scale. The gradient of a row is split as in Yu et al.
    (2022): the pull of its own targets, and the pushes of frequent and of rare targets.
    """

    batch: Batch
    groups: Groups
    spectrum: bool
    _sums: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        s, k = self.batch.states, len(self.groups.names)
        m, d, device = len(s.labels), s.states.shape[1], s.states.device
        wide = torch.float64
        self._unit = 1.0 if s.states.dtype == wide else _unit_of(float(s.states.abs().max()) * abs(s.scale))
        is_rare = self.groups.rare[s.labels]
        self._sizes = [len(piece) for piece in torch.tensor_split(s.labels, min(MICRO_BATCHES, m))]
        self._kinds = torch.stack([~is_rare, is_rare])
        self._fewer = int(self._kinds[1].sum() <= m / 2)  # 1 where rare targets are fewer
        self._few = self._kinds[self._fewer].nonzero()[:, 0]
        self._h, self._labels = s.states, s.labels
        self._of_target, self._of_token, self._mass = self.batch.of_target, self.batch.of_token, self.batch.mass()
        self._lse = torch.full((m,), -torch.inf, dtype=wide, device=device)
        self._own, self._largest = torch.zeros(m, dtype=wide, device=device), -math.inf
        self._mean_state = s.states.double().mean(0)
        self._direction = self._mean_state / self._mean_state.norm().clamp_min(1e-300)
        zeros: Any = lambda *shape: torch.zeros(shape, dtype=wide, device=device)  # noqa: E731
        self._pulled, self._pushed = zeros(k), zeros(k, 2)  # by frequent targets, by rare ones
        self._of, self._units = zeros(k, len(_SUMS)), zeros(2, k, d)
        self._steps, self._step_norms, self._size = zeros(2, d), zeros(2), 0.0
        self._back, self._whole = zeros(m, d), 0.0  # the head's transpose times delta; its squared norm
        self._buffers = torch.empty(3, 0, d)

    def _logits(self, rows: slice, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits (M, n), and the slope of a cap."""
        s = self.batch.states
        z = self._h.to(x.dtype) @ x.T
        z = z if s.scale == 1 else z.mul_(s.scale)
        z = z if s.bias is None else z.add_(s.bias[rows].to(x.dtype))
        if s.cap is None:
            return z, None
        bent = z.div_(s.cap).tanh_()
        return s.cap * bent, 1 - bent.square()

    def first(self, rows: slice, x: Tensor) -> None:
        z, _ = self._logits(rows, x)
        self._lse = torch.logaddexp(self._lse, z.logsumexp(1).double())
        self._largest = max(self._largest, float(z.max()))
        inside, at = self._at(rows)
        self._own[inside] = z[inside, at].double()

    def _at(self, rows: slice) -> tuple[Tensor, Tensor]:
        inside = ((self._labels >= rows.start) & (self._labels < rows.stop)).nonzero()[:, 0]
        return inside, self._labels[inside] - rows.start

    def second(self, rows: slice, x: Tensor, one: Pass) -> None:
        batch, s, options = self.batch, self.batch.states, self.batch.options
        a, spread = batch.factor(), batch.spread(rows)
        delta, slope = self._logits(rows, x)
        delta.sub_(self._lse.to(delta.dtype)[:, None]).exp_()
        lean = self._mass + 2 * options.z_loss * self._of_target * self._lse
        delta.mul_((a * lean).to(delta.dtype)[:, None])
        if options.label_smoothing:
            delta.sub_((a * self._of_token[:, None] * spread).to(delta.dtype))
        inside, at = self._at(rows)
        pull = delta[inside, at] - (a * (1 - options.label_smoothing) * self._of_target[inside]).to(delta.dtype)
        delta[inside, at] = 0.0
        places = torch.arange(len(self.groups.names), device=x.device)[:, None]
        of_group = (self.groups.of[rows] == places).to(delta.dtype)
        self._pulled -= (of_group[:, at] @ pull).double()
        self._pushed += (of_group @ (self._kinds.to(delta.dtype) @ delta).T).double()
        if slope is not None:
            delta, pull = delta.mul_(slope), pull * slope[inside, at]
        if s.scale != 1:
            delta, pull = delta.mul_(s.scale), pull * s.scale
        if self.spectrum:
            whole = delta.clone()
            whole[inside, at] = pull
            of_rows = x if s.cap is not None else one.centred(x)
            self._back += (whole @ of_rows).double()
            self._whole += float(whole.double().square().sum())
        self._add(of_group, delta, pull, inside, at)
        if rows.stop == len(s.head):
            self._buffers = self._buffers[:, :0].clone()

    def _add(self, of_group: Tensor, delta: Tensor, pull: Tensor, inside: Tensor, at: Tensor) -> None:
        """Add gradients: the pushes of the kind with fewer targets are summed, the other kind's are the rest."""
        h, n = self._h.to(delta.dtype) / self._unit, delta.shape[1]
        if self._buffers.shape[1] < n or self._buffers.dtype != delta.dtype:
            self._buffers = torch.empty(3, n, h.shape[1], dtype=delta.dtype, device=delta.device)
        whole, squares, part = self._buffers[:, :n]
        whole, squares = whole.zero_(), squares.zero_()
        pulls, ends = pull[:, None] * h[inside], list(accumulate(self._sizes, initial=0))
        mine = torch.searchsorted(inside, torch.tensor(ends, device=at.device)).tolist()
        for (begin, end), (first, last) in zip(pairwise(ends), pairwise(mine), strict=True):
            torch.mm(delta[begin:end].T, h[begin:end], out=part)
            whole += part
            part.index_add_(0, at[first:last], pulls[first:last])
            squares.addcmul_(part, part, value=len(h) / (end - begin))
        push_norm = torch.linalg.vector_norm(whole, dim=1)
        fewer = torch.linalg.vector_norm(torch.mm(delta[self._few].T, h[self._few], out=part), dim=1)
        kinds = [torch.linalg.vector_norm(torch.sub(whole, part, out=part), dim=1)]
        kinds.insert(self._fewer, fewer)
        unit_push = torch.where(push_norm > 0, 1 / push_norm, 0.0)
        self._units[1] += ((of_group * unit_push) @ whole).double()
        pulled, place = torch.unique(at, return_inverse=True)
        pull_norm, norm = torch.zeros_like(push_norm), push_norm.clone()
        pull_norm[pulled] = pulls.new_zeros(len(pulled), pulls.shape[1]).index_add_(0, place, pulls).norm(dim=1)
        whole.index_add_(0, at, pulls)
        norm[pulled] = whole[pulled].norm(dim=1)
        adam = torch.div(whole, squares.sqrt_().add_(EPS / self._unit), out=squares)
        unit, adam_norm = torch.where(norm > 0, 1 / norm, 0.0), torch.linalg.vector_norm(adam, dim=1)
        along, ones = self._direction.to(h.dtype), torch.ones_like(norm)[None]
        toward = whole @ along
        of_steps = -toward, -(adam @ along), norm > 0, push_norm > 0
        read = [norm, pull_norm, *kinds, toward**2, norm**2, toward * unit, *of_steps]
        self._of += (of_group @ torch.stack([each.to(h.dtype) for each in read], dim=1)).double()
        *units, step = torch.cat([of_group * unit, ones]) @ whole
        self._units[0] += torch.stack(units).double()
        self._steps -= torch.cat([step[None], ones @ adam]).double()
        self._step_norms += torch.stack([norm.sum(), adam_norm.sum()]).double()
        self._size += float((pull_norm + push_norm).sum())

    def numbers(self, one: Pass) -> tuple[Numbers, Numbers]:
        """The numbers of the loss, and the numbers of its gradient."""
        nll, options = self._lse - self._own, self.batch.options
        loss = {"cross_entropy": float(nll.mean()), "logsumexp": float(self._lse.mean())}
        loss |= {"largest_logsumexp": float(self._lse.max()), "largest_logit": self._largest}
        loss["z_loss"] = options.z_loss * float(self._lse.square().mean())
        loss["targets"] = len(nll)
        found = self._budgets() | self._of_groups(one) | self._drifts(one)
        return loss, found | (self._kept(one) if self.spectrum else {})

    def _budgets(self) -> Numbers:
        pulled, found = dict(self.groups.named(self._pulled)), Numbers()
        for name, pushed in self.groups.named(self._pushed):
            by_frequent, by_rare = pushed.tolist()
            of = {"pulled": float(pulled[name]), "pushed_by_frequent": by_frequent, "pushed_by_rare": by_rare}
            of["net"] = of["pulled"] - by_frequent - by_rare
            found |= {f"{name}{what}": value for what, value in of.items()}
        return found

    def _of_groups(self, one: Pass) -> Numbers:
        found, rows = Numbers(), dict(self.groups.named(one.rows))
        units = [dict(self.groups.named(each)) for each in self._units]
        for name, sums in self.groups.named(self._of):
            of, n = dict(zip(_SUMS, sums.tolist(), strict=True)), float(rows[name])
            of |= {what: of[what] * self._unit for what in (*_PARTS, "sgd")}
            found |= {f"{name}{what}": of[what] / n for what in (*_PARTS, "sgd", "adam")}
            if of["square"] > 0:
                found[f"{name}along"] = of["square along"] / of["square"]
                found[f"{name}toward"] = of["cosine"] / of["gradients"]
            for what, total, count in (
                ("cosine", units[0][name], "gradients"),
                ("push_cosine", units[1][name], "pushes"),
            ):
                if (m := of[count]) >= 2:
                    found[f"{name}{what}"] = min(1.0, (float(total @ total) - m) / (m * (m - 1)))
        return found

    def _drifts(self, one: Pass) -> Numbers:
        """How far a step moves the mean row, and where the means are."""
        found, s = Numbers(), self.batch.states
        found["zero_sum"] = _ratio(self._steps[0].norm(), self._size)
        for name, step, norm in zip(("sgd", "adam"), self._steps, self._step_norms, strict=True):
            found[f"drift_{name}"] = _ratio(step.norm(), norm)
        found["mean_state_share"] = _ratio(self._mean_state.norm(), self._h.double().norm(dim=1).mean())
        found["mean_row_share"] = _ratio(one.mean.norm(), one.norms.double().mean())
        found["state_to_minus_row"] = -float(self._direction @ one.mean) / max(float(one.mean.norm()), 1e-300)
        found["logit_of_mean_row"] = float((self._h.double() @ one.mean).abs().mean()) * abs(s.scale)
        return found

    def _kept(self, one: Pass) -> Numbers:
        """The share of the squared norm of the gradient by logits that the head's columns keep, and by chance (Godey
        and Artzi 2026)."""
        gram, s = one.gram(), self.batch.states
        assert gram is not None
        n = len(s.head)
        if s.cap is not None:  # centring changes how a cap bends the logits
            gram = gram + n * torch.outer(one.mean, one.mean)
        values, vectors = torch.linalg.eigh(gram)
        keep = values > values.max() * _RANK
        inside = (self._back @ vectors[:, keep]).square() / values[keep]
        chance = int(keep.sum()) / (n - (s.cap is None))
        return {"kept_share": _ratio(inside.sum(), self._whole), "kept_by_chance": chance}


def _unit_of(largest: float) -> float:
    """A power of two that brings the largest gradient near 2^55: then in float32 the squares of numbers 1e38 times
    smaller are not 0."""
    if not math.isfinite(largest):
        raise InputError("expected finite states, got NaN or inf: look for the layer that made it")
    return math.ldexp(1.0, -min(_LARGEST - math.frexp(largest)[1], _MOST_RAISED))


def _ratio(part: Any, whole: Any) -> float:
    return float(part) / float(whole) if float(whole) > 0 else 0.0
