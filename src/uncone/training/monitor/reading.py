"""What a record reads from a model, and what the next record compares it with."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from uncone.diagnosis.why.gradients.gradients import gradient_ledger
from uncone.diagnosis.why.gradients.record import GradientLedger
from uncone.errors import InputError
from uncone.model.last_states import States
from uncone.training import resume
from uncone.training.gate import GateStatus
from uncone.training.heads import whole_bias
from uncone.training.loss.options import CrossEntropyOptions
from uncone.training.monitor.loss import Batch, LossReader
from uncone.training.monitor.rows import Groups, Kept, Numbers, RowsReader
from uncone.training.monitor.states import states_numbers
from uncone.training.monitor.taps import Taps
from uncone.training.optimisers.kappa import kappa_by_frequency

Tensor = torch.Tensor
Guarded = Callable[..., Any]
_OF_GATE = ("rare_ids", "rare_share", "rare_mass", "gated_share", "mean_g1", "mean_g2")
_OF_PENALTY = {"penalty": "penalty.total", "states_penalty": "penalty.states"}


class Reading:
    """The numbers of table, head, states, loss and attached losses, from what `taps` noted."""

    def __init__(
        self,
        taps: Taps,
        guard: Guarded,
        *,
        counts: Tensor | None,
        options: CrossEntropyOptions | None,
        class_weights: Tensor | None,
        beta2: float,
    ) -> None:
        self._taps, self._guard, self._counts, self.beta2 = taps, guard, counts, beta2
        self.options, self._class_weights = options, class_weights
        self._matrix: Tensor = (taps.head or taps.table).weight
        self._readers = {"table": RowsReader(), "head": RowsReader()}
        self._groups: tuple[int, dict[int, Groups]] = (0, {})  # how many targets groups were cut by, and groups by V
        self._batch: Batch | None = None
        self._followed: dict[int, tuple[Any, Any]] = {}  # by id: an attachment, and the means that follow it
        self.before = 0  # steps whose targets were not counted

    def follow(self, *, begins: bool) -> None:
        """Follow what is attached now; where a step `begins`, forget the numbers of the previous step."""
        for handle in self._taps.attachments():
            if id(handle) not in self._followed:
                followers = getattr(handle, "_followers", None)
                if followers is not None:
                    followers.append(self._take_points)
                self._followed[id(handle)] = handle, handle._means.followed()
            if (options := getattr(handle, "options", None)) is not None:
                self._taps.ignored = options.ignore_index
        if begins:
            for _, means in self._followed.values():
                means.clear()

    def _take_points(self, points: Tensor, classes: Tensor | None) -> None:
        self._taps.points, self._taps.classes = points, classes

    @torch.no_grad()
    def read(self, steps: int, *, spectrum: bool, states: Tensor | None = None, **given: Tensor | None) -> Numbers:
        """After so many `steps`, with the `labels` and `token_weights` given to `Monitor.measure`."""
        taps, found, guard = self._taps, Numbers(), self._guard
        with torch.autocast(self._matrix.device.type, enabled=False):
            batch = self._batch = guard("read the batch", self._batch_of, **given)
            for part, one in (("head", taps.head), ("table", taps.table)):
                if one is not None and not (part == "table" and self._is_tied):
                    found |= guard(f"read the {part}", self._matrix_numbers, part, one, batch, spectrum) or {}
            points = taps.points if states is None else states
            points = taps.hidden if points is None else points
            if points is not None and len(points):
                classes = None if states is not None or points is not taps.points else taps.classes
                found |= _named("states", guard("read states", states_numbers, points, classes) or {})
        found |= guard("read the attached loss", self._attached_numbers) or {}
        found |= guard("read kappa", self._kappa, steps) or {}
        taps.clear()
        return found

    @property
    def _is_tied(self) -> bool:
        head, table = self._taps.head, self._taps.table
        return head is not None and table is not None and head.weight is table.weight

    def _matrix_numbers(self, part: str, one: Any, batch: Batch | None, spectrum: bool) -> Numbers:
        groups, is_head = self._groups_of(len(one.weight)), part == "head"
        also = None
        if is_head and batch is not None:
            also = self._guard("read the loss", LossReader, batch, groups, spectrum)
        counts = self._taps.counted("targets" if is_head else "ids")
        if counts is not None and (not bool(counts.any()) or (is_head and not self._taps.counts_all)):
            counts = None  # the model does not see the labels
        given: dict[str, Any] = {"counts": counts, "is_head": is_head, "spectrum": spectrum, "also": also}
        read, passed = self._readers[part].read(one.weight, groups, **given)
        found = _named(part, read[is_head])
        if is_head and self._is_tied:
            found |= _named("table", read[False])
            if (ids := self._taps.counted("ids")) is not None and bool(ids.any()):
                found["table.untouched"] = float((ids == 0).double().mean())
        if also is not None:
            loss, gradient = also.numbers(passed)
            found |= _named("loss", loss) | _named("gradient", gradient)
        return found

    def _groups_of(self, v: int) -> Groups:
        """The groups of V rows, cut again once twice as many targets were seen."""
        counts = self._known_counts()
        if counts is None or len(counts) != v:
            counts = self._taps.counted("ids")
        if counts is None or len(counts) != v:
            counts = torch.zeros(v, dtype=torch.int64)
        total, cut = self._groups
        now = int(counts.sum())
        if now >= 2 * total and self._counts is None:
            total, cut = now, {}
        if v not in cut:
            cut[v] = Groups.by_count(counts.to(self._matrix.device))
        self._groups = total, cut
        return cut[v]

    def _known_counts(self) -> Tensor | None:
        if self._counts is not None:
            return self._counts
        counts = self._taps.counted("targets")
        return counts if counts is not None and bool(counts.any()) else None

    def _batch_of(self, labels: Tensor | None = None, token_weights: Tensor | None = None) -> Batch | None:
        taps, options = self._taps, self.options or CrossEntropyOptions()
        options = next((h.options for h in taps.attachments() if hasattr(h, "options")), options)
        if taps.head is None or taps.hidden is None or taps.places is None:
            return None
        targets, count = taps.labels, taps.count
        if labels is not None:
            whole = labels.reshape(-1).to(taps.places.device)
            targets, count = whole[taps.places], (whole != taps.ignored).sum()
        if targets is None or count is None:
            return None
        kept = (targets != taps.ignored).nonzero()[:, 0]
        if not len(kept):
            return None
        own, weight = taps.head.bias, taps.head.weight
        bias = whole_bias(None if own is None else own.detach().float(), taps.map, weight.device)
        hidden, targets = taps.hidden[kept].to(weight.device), targets[kept].to(weight.device)
        hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        cap = taps.map.cap if options.softcap is None else options.softcap
        scale = taps.map.scale if options.logit_scale == 1 else options.logit_scale
        of_head = weight.detach(), bias, cap, scale, type(taps.head).__name__
        weights = token_weights
        if weights is not None:
            weights = weights.reshape(-1)[taps.places[kept].to(weights.device)]
        states = States(hidden, targets, *of_head, torch.zeros_like(targets))
        return Batch(states, int(count), options, self._class_weights, weights)

    def ledger(self) -> GradientLedger:
        if self._batch is None:
            raise InputError("expected a record with targets, got none: train with labels, then call step() or measure")
        s, counts = self._batch.states, self._known_counts()
        whole = States(s.states.float(), s.labels, s.head.float(), s.bias, s.cap, s.scale, s.name, s.windows)
        by = "in the targets read so far" if self._counts is None else "in the counts given"
        return gradient_ledger(whole, counts=counts, counted_in=by)

    def _attached_numbers(self) -> Numbers:
        found = Numbers()
        for handle, means in self._followed.values():
            for name, value in means.take(across_ranks=False).items():
                kind, _, penalty = name.partition("/")
                found[f"penalty.{penalty}" if penalty else _OF_PENALTY.get(kind, f"loss.{kind}")] = value
            status = getattr(getattr(handle, "gate", None), "status", None)
            if isinstance(status, GateStatus):
                of_gate = {name: getattr(status, name) for name in _OF_GATE}
                found |= _named("gate", {name: float(x) for name, x in of_gate.items() if x is not None})
        return found

    def _kappa(self, steps: int) -> Numbers:
        seen, counts, done = self._taps.counted("targets"), self._known_counts(), steps - self.before
        if seen is None or counts is None or done < 1 or not (targets := int(seen.sum()) / done):
            return {}
        table = kappa_by_frequency(counts.cpu().numpy(), targets, beta2=self.beta2)
        return {f"gradient.{group.name}.kappa": group.kappa for group in table.groups}

    def detach(self) -> None:
        for handle, means in self._followed.values():
            handle._means._followers.remove(means)
            if self._take_points in getattr(handle, "_followers", ()):
                handle._followers.remove(self._take_points)
        self._followed.clear()

    def state_dict(self) -> dict[str, Any]:
        """The state, including the last record: a resumed run knows which rows moved since, and the groups."""
        counts = {name: self._taps.counted(name) for name in ("ids", "targets")}
        found: dict[str, Any] = {name: x.cpu().clone() for name, x in counts.items() if x is not None}
        total, cut = self._groups
        found |= {"before": self.before, "cut": total, "names": {str(v): list(of.names) for v, of in cut.items()}}
        found["groups"] = {str(v): of.of.to("cpu", torch.uint8) for v, of in cut.items()}
        return found | {name: reader.kept.state_dict() for name, reader in self._readers.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Errors of a damaged state change nothing."""
        taps, device, before, total = self._taps, self._matrix.device, int(state["before"]), int(state["cut"])
        counts = {name: own for name in ("ids", "targets") if (own := taps.counted(name)) is not None}
        new = {name: resume.like(state[name].to(own.device), own) for name, own in counts.items()}
        names, of = state["names"], state["groups"]
        cut = {int(v): Groups(of[v].to(device, torch.int64), tuple(map(str, of_v))) for v, of_v in names.items()}
        if any(len(groups.of) != v or int(groups.of.max()) >= len(groups.names) for v, groups in cut.items()):
            raise ValueError("groups belong to other rows")
        parts = {"table": taps.table, "head": taps.head}
        kept = {name: Kept.of(state[name], part.weight) for name, part in parts.items() if part is not None}
        for name, own in counts.items():
            own.copy_(new[name])
        for name, of_part in kept.items():
            self._readers[name].kept = of_part
        self.before, self._groups = before, (total, cut)


def _named(part: str, numbers: Numbers) -> Numbers:
    return {f"{part}.{name}": value for name, value in numbers.items()}
