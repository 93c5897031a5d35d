"""Which parameters are tables, and several optimisers as one."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from uncone.arguments import shown
from uncone.errors import InputError, UnsupportedModel
from uncone.training.heads import check_matrix
from uncone.training.optimisers.table_adam import TableAdam

Parameters = list[torch.nn.Parameter]
Optimizers = tuple[torch.optim.Optimizer, ...]
_HOW = "name its modules: table_parameters(model, model.table, model.head)"


def table_parameters(model: torch.nn.Module, *modules: Any) -> tuple[Parameters, Parameters]:
    """The trainable token tables and output heads of `model`, and all its other trainable parameters.

    Tables are what `get_input_embeddings()` and `get_output_embeddings()` return, for the model or any module in it: a
    transformers model, alone or in a Sentence Transformer, a LightningModule, DDP or PEFT. A table that is tied to a
    head is listed once. Position tables and token-type tables are among the other parameters. Of a model without these
    functions, name the `modules` of the table and the head.

        tables, others = uncone.table_parameters(model)
        torch.optim.AdamW([{"params": tables, "weight_decay": 0.0}, {"params": others, "weight_decay": 0.1}])

    UnsupportedModel where there is no such table, or no such table trains.
    """
    for module in modules:
        check_matrix(module, "a table or head")
    matrices = {id(weight) for module in modules or _tables(model) for weight in _trained(module)}
    if not matrices:
        raise UnsupportedModel(
            f"expected a model with get_input_embeddings() and a token table that trains, got {type(model).__name__}: "
            f"unfreeze it, or {_HOW}"
        )
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [p for p in trained if id(p) in matrices], [p for p in trained if id(p) not in matrices]


def with_table_adam(
    model: torch.nn.Module,
    other: Callable[[Parameters], torch.optim.Optimizer] | None = None,
    *,
    matrices: Callable[[Parameters], torch.optim.Optimizer] | None = None,
    modules: Sequence[torch.nn.Module] = (),
    **options: Any,
) -> "JoinedOptimizer":
    """One optimiser for `model`: `TableAdam` for its token table and head, another for the rest.

        uncone.with_table_adam(model, lr=1e-3)
        uncone.with_table_adam(model, partial(torch.optim.AdamW, lr=3e-4), second_moment="column", lr=1e-3)
        uncone.with_table_adam(model, matrices=partial(torch.optim.Muon, lr=0.02), lr=1e-3)

    Args:
        model: as for `table_parameters`; move and shard it first, as for any optimiser.
        other: makes the optimiser of the other parameters from their list: a torch class, a `partial` of a class with
            its options, or a function. By default torch's AdamW at the tables' `lr`.
        matrices: the same for the other parameters of shape (M, N): `torch.optim.Muon`, which takes only matrices.
        modules: the modules of the table and the head, as for `table_parameters`.
        options: options of `TableAdam`.

    InputError for options out of range; UnsupportedModel where no table is found.
    """
    for name, make in (("other", other), ("matrices", matrices)):
        if make is not None and not callable(make):
            how = "give its class, or functools.partial(torch.optim.AdamW, lr=...), which is called with the parameters"
            raise InputError(f"expected a class or function for {name}, got {shown(make)}: {how}")
    other = other or partial(torch.optim.AdamW, lr=options.get("lr", 1e-3))
    tables, others = table_parameters(model, *modules)
    flat = [p for p in others if matrices is None or p.ndim != 2]
    square = [p for p in others if matrices is not None and p.ndim == 2]
    made: list[torch.optim.Optimizer] = [TableAdam(tables, **options)]
    made += [make(kept) for make, kept in ((matrices, square), (other, flat)) if make is not None and kept]
    return JoinedOptimizer(*made)


class JoinedOptimizer(torch.optim.Optimizer):
    """Several optimisers as one: all their groups in one list, with one state.

    A learning-rate scheduler, a Trainer (`optimizers=(joined, None)`), Lightning's `configure_optimizers`, a gradient
    scaler and Accelerate treat it like any torch optimiser. A scheduler scales every group from the group's own initial
    rate. An optimiser that calls a closure many times (LBFGS) is refused. `optimizers` are the joined optimisers; no
    longer use or save them separately.

    InputError where two optimisers share a parameter, or where a state has other groups.
    """

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        for one in optimizers:
            if not isinstance(one, torch.optim.Optimizer) or isinstance(one, torch.optim.LBFGS):
                got = f"got {type(one).__name__}: pass optimisers of torch other than LBFGS"
                raise InputError(f"expected optimisers that step once, {got}")
        parameters = [id(p) for one in optimizers for group in one.param_groups for p in group["params"]]
        if not parameters or len(parameters) != len(set(parameters)):
            got = f"got {len(parameters) - len(set(parameters))} repeated of {len(parameters)}"
            raise InputError(f"expected each parameter in one optimiser, {got}: uncone.table_parameters splits a model")
        self.optimizers: Optimizers = optimizers
        shared = set.intersection(*(set(one.defaults) for one in optimizers))
        super().__init__([{"params": []}], {name: optimizers[0].defaults[name] for name in shared})
        self._share()

    def _share(self) -> None:
        """Share one state, and each optimiser's own groups: a learning rate changed here also changes there."""
        self.param_groups = [group for one in self.optimizers for group in one.param_groups]
        state: defaultdict[torch.Tensor, Any] = defaultdict(dict)
        for one in self.optimizers:
            state.update(one.state)
        for one in (self, *self.optimizers):
            one.state = state

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for one in self.optimizers:
            one.step()
        return loss

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused except for the empty group at the start: a group does not show which optimiser it belongs to."""
        if param_group["params"]:
            how = "call joined.optimizers[i].add_param_group(group) before joining"
            raise InputError(f"expected all groups before optimisers are joined, got another group: {how}")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """InputError for the state of other optimisers."""
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            got = f"got {len(groups)}: join the optimisers of the checkpoint"
            raise InputError(f"expected a state of {len(self.param_groups)} groups, {got}")
        first = 0
        for one in self.optimizers:
            own = groups[first : (first := first + len(one.param_groups))]
            ids = {i for group in own for i in group["params"]}
            one.load_state_dict(
                {"state": {i: value for i, value in state_dict["state"].items() if i in ids}, "param_groups": own}
            )
        self._share()

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"optimizers": self.optimizers}


def _tables(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    for module in model.modules():
        for name in ("get_input_embeddings", "get_output_embeddings"):
            with suppress(NotImplementedError, AttributeError):  # an image model has no table
                found = getattr(module, name)()
                if isinstance(found, torch.nn.Module) and getattr(getattr(found, "weight", None), "ndim", 0) == 2:
                    yield found


def _trained(module: Any) -> Iterable[torch.nn.Parameter]:
    """Trained weights of the module's shape: also the copy that PEFT trains, but not its adapters."""
    return (p for p in module.parameters() if p.requires_grad and p.shape == module.weight.shape)
