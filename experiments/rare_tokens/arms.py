"""What each arm changes about the plain training, by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import uncone

Tensor = torch.Tensor
Options = dict[str, Any]
BETAS, SLOW = (0.9, 0.95), (0.9, 0.999)
WINDOW = 1000  # steps that gates count over
FREQUENT, RARE = 0.29, 0.19  # shares of the ids in order of their counts (Yu et al. 2022); between them is medium


@dataclass(frozen=True)
class Arm:
    text: str  # in tables
    attached: Callable[[Tensor], Options] = lambda counts: {}  # given to `attach`
    optimizer: Callable[[Any, float], torch.optim.Optimizer] = lambda model, lr: adamw(model.parameters(), lr=lr)
    callbacks: Callable[[Any], list[Any]] = lambda model: []
    base: str = ""  # the arm whose best rate it takes; by default its own
    frozen: float = 0.0  # the part of the training in which rare rows of table and head stay as they are


def adamw(parameters: Any, *, lr: float, betas: tuple[float, float] = BETAS, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=lr, betas=betas, **{"weight_decay": 0.0} | options)


def slow(model: Any, lr: float) -> torch.optim.Optimizer:
    return adamw(model.parameters(), lr=lr, betas=SLOW)


def tables(**options: Any) -> Callable[[Any, float], torch.optim.Optimizer]:
    """Table and head in `TableAdam`, the rest in the AdamW of the plain arm."""
    return lambda model, lr: uncone.with_table_adam(model, partial(adamw, lr=lr), lr=lr, **options)


def sgd_tables(model: Any, lr: float) -> torch.optim.Optimizer:
    """Table and head by SGD with momentum, at a rate of their own: a mean over targets has small gradients."""
    found, rest = uncone.table_parameters(model)
    return uncone.JoinedOptimizer(torch.optim.SGD(found, lr=500 * lr, momentum=0.9), adamw(rest, lr=lr))


def decay_off_tables(model: Any, lr: float) -> torch.optim.Optimizer:
    found, rest = uncone.table_parameters(model)
    return adamw([{"params": found}, {"params": rest, "weight_decay": 0.1}], lr=lr)


def groups(counts: Tensor) -> Tensor:
    """(V,): 0 frequent, 1 medium, 2 rare, by `FREQUENT` and `RARE`; of equal counts the higher ids are the rarer."""
    v, found = len(counts), torch.ones(len(counts), dtype=torch.int64)
    order = torch.argsort(counts, descending=True, stable=True)
    found[order[: int(FREQUENT * v)]] = 0
    found[order[v - int(RARE * v) :]] = 2
    return found


class Fixed:
    """Gates that stay: what passes of the push on rare rows by other targets (part b), and by rare ones (part c)."""

    def __init__(self, counts: Tensor, b: float, c: float) -> None:
        rare = groups(counts) == 2
        self._gates = rare, *(torch.where(rare, part, 1.0) for part in (b, c))

    def gates(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._gates


def without(b: float, c: float) -> Callable[[Tensor], Options]:
    return lambda counts: {"gate": Fixed(counts, b, c)}


def gate(mode: str) -> Callable[[Tensor], Options]:
    return lambda counts: {"gate": uncone.RareTokenGate(len(counts), mode=mode, window=WINDOW)}


class OneGate(uncone.RareTokenGate):
    """The paper's gate with g1 or g2 alone; the other one lets all pass."""

    def __init__(self, v: int, *, first: bool) -> None:
        super().__init__(v, mode="paper", window=WINDOW)
        self._first = first

    def gates(self) -> tuple[Tensor, Tensor, Tensor]:
        rare, g1, g2 = super().gates()
        return (rare, g1, torch.ones_like(g2)) if self._first else (rare, torch.ones_like(g1), g2)


def penalty(make: Callable[[], Any] = uncone.CosinePenalty) -> Callable[[Tensor], Options]:
    return lambda counts: {"penalties": [make()]}


def z_loss(counts: Tensor) -> Options:
    return {"options": uncone.CrossEntropyOptions(z_loss=1e-4)}


def freeze(tables: Sequence[Any], counts: Tensor, is_frozen: Callable[[], bool]) -> None:
    """Rare rows have no gradient, and Adam without decay no step, while `is_frozen` says so."""
    rare = (groups(counts) == 2)[:, None]
    for table in tables:
        table.register_hook(
            lambda gradient: gradient.masked_fill(rare.to(gradient.device), 0.0) if is_frozen() else gradient
        )


column = tables(second_moment="column", betas=BETAS)
ARMS = {
    "adamw95": Arm("AdamW, beta2 .95"),
    "adamw999": Arm("AdamW, beta2 .999", optimizer=slow),
    "column": Arm("second moment a column", optimizer=column),
    "cosreg": Arm("CosReg", penalty()),
    "agg": Arm("AGG", gate("paper")),
    "agg-column": Arm("AGG, second moment a column", gate("paper"), column),
    "center": Arm("CenterRows", callbacks=lambda model: [uncone.CenterRows(model).callback]),
    "amsgrad": Arm("AMSGrad", optimizer=lambda m, lr: adamw(m.parameters(), lr=lr, amsgrad=True), base="adamw95"),
    "factored": Arm("factored second moment", optimizer=tables(second_moment="factored"), base="adamw999"),
    "sgd-table": Arm("SGD with momentum on tables", optimizer=sgd_tables, base="column"),
    "cosreg999": Arm("CosReg, beta2 .999", penalty(), slow, base="adamw999"),
    "agg999": Arm("AGG, beta2 .999", gate("paper"), slow, base="adamw999"),
    "agg-hard": Arm("no push on rare rows", gate("hard"), base="agg"),
    "agg-relative": Arm("gate by shares of the targets", gate("relative"), base="agg"),
    "agg-g1": Arm("AGG, g1 alone", lambda counts: {"gate": OneGate(len(counts), first=True)}, base="agg"),
    "agg-g2": Arm("AGG, g2 alone", lambda counts: {"gate": OneGate(len(counts), first=False)}, base="agg"),
    "row": Arm("second moment a row", optimizer=tables(second_moment="row", betas=BETAS), base="adamw95"),
    "orthogonal": Arm("orthogonality penalty", penalty(uncone.OrthogonalPenalty), base="adamw95"),
    "isoscore": Arm("IsoScore penalty", penalty(uncone.IsoScorePenalty), base="adamw95"),
    "z-loss": Arm("z-loss 1e-4", z_loss, base="adamw95"),
    "decay-off": Arm("decay .1, none of tables", optimizer=decay_off_tables, base="adamw95"),
    "freeze-half": Arm("rare rows frozen for half of it", base="adamw95", frozen=0.5),
    "freeze-all": Arm("rare rows frozen", base="adamw95", frozen=1.0),
    "column-freeze-all": Arm("rare rows frozen, second moment a column", optimizer=column, base="column", frozen=1.0),
    "without-b": Arm("no push on rare rows by other targets", without(0, 1), base="adamw95"),
    "without-c": Arm("no push on rare rows by rare targets", without(1, 0), base="adamw95"),
    "column-without-b": Arm("no push by others, second moment a column", without(0, 1), column, base="column"),
    "column-without-c": Arm("no push by rare ones, second moment a column", without(1, 0), column, base="column"),
}
