"""What a record reads of the loss that trains: its size, and what pulls and pushes which rows of the head."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from uncone.errors import InputError
from uncone.model.last_states import States
from uncone.training.loss.options import CrossEntropyOptions
from uncone.training.monitor.rows import Groups, Numbers, Pass

Tensor = torch.Tensor
MICRO_BATCHES, EPS = 8, 1e-8  # runs of targets that stand for Adam's steps, and its epsilon
_LARGEST, _MOST_RAISED = 55, 126  # powers of two
_RANK = 1e-10  # of the largest eigenvalue: a smaller direction of the head passes nothing back
_PARTS = ("norm", "pull_norm", "frequent_norm", "rare_norm")
_SUMS = (*_PARTS, "square along", "square", "cosine", "sgd", "adam", "gradients", "pushes")


@dataclass(frozen=True, eq=False)
class Batch:
    """States that a head read, and what the loss made of them. Logits are as `States` has them."""

    states: States  # of M targets
    targets: int  # that these stand for
    options: CrossEntropyOptions
    class_weights: Tensor | None = None  # (V,)

    @property
    def of_target(self) -> Tensor:
        """(M,) float64: the weight of each target's class."""
        labels = self.states.labels
        return torch.ones_like(labels, dtype=torch.float64) if self.class_weights is None else self._classes[labels]

    @property
    def _classes(self) -> Tensor:
        assert self.class_weights is not None
        return self.class_weights.to(self.states.labels.device, torch.float64)

    def factor(self) -> float:
        """What the reduction makes of a target's own loss: 1 over the weights in a mean, else each of M stands for
        several."""
        if self.options.reduction == "mean":
            return 1 / max(float(self.of_target.sum()), 1e-300)
        return self.targets / max(len(self.states.labels), 1)

    def spread(self, rows: slice) -> Tensor | float:
        """What smoothing takes from a target's gradient at each of the rows."""
        of_all = self.options.label_smoothing / len(self.states.head)
        return of_all if self.class_weights is None else of_all * self._classes[rows]

    def mass(self) -> Tensor:
        """(M,): the sum of each target's distribution."""
        smoothing, of = self.options.label_smoothing, self.of_target
        rest = 1.0 if self.class_weights is None else self._classes.mean()
        return (1 - smoothing) * of + smoothing * rest


@dataclass(eq=False)
class LossReader:
    """Follows two passes over the head: the first gives each target's log-sum-exp, the second the gradients

        delta_iv = a (p_iv (mass_i + 2 L w_i lse_i) - E / V w_v - (1 - E) w_i [v = y_i]),  g_v = sum_i delta_iv c_iv h_i

    of the loss with smoothing E, z-loss L and class weights w, by logits and by rows. a is 1 over the sum of weights in
    a mean and 1 in a sum, and c is the slope of a cap, times the scale. The gradient of a row is split as Yu et al.
    (2022) split it: the pull of its own targets, the pushes of frequent and of rare ones.
    """

    batch: Batch
    groups: Groups
    spectrum: bool
    _sums: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        s, k = self.batch.states, len(self.groups.names)
        m, d, device = len(s.labels), s.states.shape[1], s.states.device
        wide = torch.float64
        self._h, self._places = s.states, torch.arange(m, device=device)
        self._unit = 1.0 if s.states.dtype == torch.float64 else _unit_of(float(s.states.abs().max()) * abs(s.scale))
        self._lse = torch.full((m,), -torch.inf, dtype=wide, device=device)
        self._own, self._largest = torch.zeros(m, dtype=wide, device=device), -math.inf
        self._mean_state = s.states.double().mean(0)
        self._direction = self._mean_state / self._mean_state.norm().clamp_min(1e-300)
        self._is_rare = self.groups.rare[s.labels]
        zeros: Any = lambda *shape: torch.zeros(shape, dtype=wide, device=device)  # noqa: E731
        self._pulled, self._pushed = zeros(k), zeros(k, 2)  # by frequent targets, by rare ones
        self._of, self._units = zeros(k, len(_SUMS)), zeros(2, k, d)
        self._steps, self._step_norms, self._size = zeros(2, d), zeros(2), 0.0
        self._back, self._whole = zeros(m, d), 0.0  # the head's transpose times delta; its squared norm
        self._of_mean_row = 0.0
        pieces = torch.tensor_split(self._places, min(MICRO_BATCHES, m))
        self._pieces = [[piece[self._is_rare[piece] == kind] for kind in (False, True)] for piece in pieces]

    def _logits(self, rows: slice, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """(M, n), and the slope of a cap."""
        s = self.batch.states
        z = s.scale * (self._h.to(x.dtype) @ x.T)
        z = z if s.bias is None else z + s.bias[rows].to(x.dtype)
        if s.cap is None:
            return z, None
        bent = torch.tanh(z / s.cap)
        return s.cap * bent, 1 - bent.square()

    def first(self, rows: slice, x: Tensor) -> None:
        z, _ = self._logits(rows, x)
        self._lse = torch.logaddexp(self._lse, z.logsumexp(1).double())
        self._largest = max(self._largest, float(z.max()))
        inside, at = self._at(rows)
        self._own[inside] = z[inside, at].double()

    def _at(self, rows: slice) -> tuple[Tensor, Tensor]:
        labels = self.batch.states.labels
        inside = ((labels >= rows.start) & (labels < rows.stop)).nonzero()[:, 0]
        return inside, labels[inside] - rows.start

    def second(self, rows: slice, x: Tensor, one: Pass) -> None:
        batch, s, options = self.batch, self.batch.states, self.batch.options
        of, a = batch.of_target, batch.factor()
        z, slope = self._logits(rows, x)
        p = torch.exp(z - self._lse.to(z.dtype)[:, None])
        lean = batch.mass() + 2 * options.z_loss * of * self._lse
        delta = a * (p * lean.to(z.dtype)[:, None] - batch.spread(rows))
        delta = delta.to(z.dtype)
        inside, at = self._at(rows)
        pull = delta[inside, at] - (a * (1 - options.label_smoothing) * of[inside]).to(z.dtype)
        delta[inside, at] = 0.0
        places = torch.arange(len(self.groups.names), device=x.device)[:, None]
        of_group = (self.groups.of[rows] == places).to(z.dtype)
        self._pulled -= (of_group[:, at] @ pull).double()
        for kind, mask in enumerate((~self._is_rare, self._is_rare)):
            self._pushed[:, kind] += (of_group @ delta[mask].sum(0)).double()
        slope = s.scale * (torch.ones_like(z) if slope is None else slope)
        delta, pull = delta * slope, pull * slope[inside, at]
        if self.spectrum:
            whole = delta.clone()
            whole[inside, at] = pull
            of_rows = x if s.cap is not None else one.centred(x)
            self._back += (whole @ of_rows).double()
            self._whole += float(whole.double().square().sum())
        self._add(of_group, delta, pull, inside, at)

    def _add(self, of_group: Tensor, delta: Tensor, pull: Tensor, inside: Tensor, at: Tensor) -> None:
        h, n = self._h.to(delta.dtype) / self._unit, delta.shape[1]
        pulls, frequent, rare, second = torch.zeros(4, n, h.shape[1], dtype=delta.dtype, device=delta.device)
        pulls.index_add_(0, at, pull[:, None] * h[inside])
        for pieces in self._pieces:
            of_batch = torch.zeros_like(pulls)
            for piece, total in zip(pieces, (frequent, rare), strict=True):
                if len(piece):
                    part = delta[piece].T @ h[piece]
                    total += part
                    of_batch += part
            size = sum(map(len, pieces))
            mine = torch.isin(inside, torch.cat(pieces))
            of_batch.index_add_(0, at[mine], pull[mine, None] * h[inside[mine]])
            second.addcmul_(of_batch, of_batch, value=len(h) / size)
        push = frequent + rare
        whole, along = push + pulls, self._direction.to(h.dtype)
        adam = whole / (second.sqrt() + EPS / self._unit)
        norms = [torch.linalg.vector_norm(each, dim=1) for each in (whole, pulls, frequent, rare, push, adam)]
        toward, unit, unit_push = whole @ along, *(torch.where(x > 0, 1 / x, 0.0) for x in (norms[0], norms[4]))
        read = [
            *norms[:4],
            toward**2,
            norms[0] ** 2,
            toward * unit,
            -toward,
            -(adam @ along),
            norms[0] > 0,
            norms[4] > 0,
        ]
        self._of += (of_group @ torch.stack([each.to(h.dtype) for each in read], dim=1)).double()
        for i, (rows, inverse) in enumerate(((whole, unit), (push, unit_push))):
            self._units[i] += ((of_group * inverse) @ rows).double()
        for i, (step, norm) in enumerate(((whole, norms[0]), (adam, norms[5]))):
            self._steps[i] -= step.sum(0, dtype=torch.float64)
            self._step_norms[i] += norm.sum(dtype=torch.float64)
        self._size += float((norms[1] + norms[4]).sum())

    def numbers(self, one: Pass) -> tuple[Numbers, Numbers]:
        """Of the loss, and of its gradient."""
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
        """How far a step moves the mean row, and where the means lie."""
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
        if s.cap is not None:  # centring changes what a cap makes of the logits
            gram = gram + n * torch.outer(one.mean, one.mean)
        values, vectors = torch.linalg.eigh(gram)
        keep = values > values.max() * _RANK
        inside = (self._back @ vectors[:, keep]).square() / values[keep]
        chance = int(keep.sum()) / (n - (s.cap is None))
        return {"kept_share": _ratio(inside.sum(), self._whole), "kept_by_chance": chance}


def _unit_of(largest: float) -> float:
    """A power of two by which the largest gradient comes near 2^55: in float32 the squares of numbers 1e38 times smaller
    are then not 0."""
    if not math.isfinite(largest):
        raise InputError("expected finite states, got NaN or inf: look for the layer that made it")
    return math.ldexp(1.0, -min(_LARGEST - math.frexp(largest)[1], _MOST_RAISED))


def _ratio(part: Any, whole: Any) -> float:
    return float(part) / float(whole) if float(whole) > 0 else 0.0
