"""`TableAdam`: Adam for token tables and output heads, with a second moment for each entry, column or row."""

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch

from uncone.arguments import finite_number, one_of
from uncone.errors import InputError
from uncone.training.optimisers.rows import blocks, local, new_vector, over_shards, refuse_no_table, square_sums, wide

Tensor = torch.Tensor
KINDS = ("entry", "column", "row", "factored")
DECAYS = ("all", "touched")
_FIRST, _ENTRIES, _ROWS, _COLUMNS = "exp_avg", "exp_avg_sq", "row_sq", "column_sq"
_VECTORS: dict[str, tuple[str, ...]] = {"column": (_COLUMNS,), "row": (_ROWS,), "factored": (_ROWS, _COLUMNS)}


class TableAdam(torch.optim.Optimizer):
    """AdamW for tables (V, D), with a second moment that is shared according to `second_moment`.

    With the gradient g (V, D), m <- beta1 m + (1 - beta1) g, both moments divided by 1 - beta ** t:

        row i, column j: w <- w - lr m / (sqrt(v) + eps)

    | second_moment | v follows, with beta2 | floats of state | source |
    |---|---|---|---|
    | "entry" | g_ij^2 | 2 V D | `torch.optim.AdamW`, the same to rounding |
    | "column" | mean of g_ij^2 over all rows i | V D + D | Coupled Adam, Stollenwerk 2025, arXiv 2502.08441 |
    | "row" | mean of g_ij^2 over the columns j | V D + V | for comparison |
    | "factored" | r_i c_j / mean of r (below) | V + D | Ember, arXiv 2607.01455 |

    "column" is exact without the V D second moments that the published code keeps, because the mean over rows commutes
    with the moving average. Its mean is over all rows, including padding rows. If all rows move by the same factor and
    their gradients add up to 0, as for an untied head, the mean row stays where it is. In "factored", r_i is as in
    "row", and c_j follows the mean of g_ij^2 over the rows with a gradient in this step. "factored" has no first
    moment, as in Ember's code: its betas are (0, 0.999) by default, the other kinds' (0.9, 0.999). With beta1 = 0 no
    kind stores a first moment.

    A per-row second moment ("entry", "row", "factored") fades between two targets of a rare token, so the model
    predicts that token too rarely: `uncone.kappa_by_frequency` estimates for which tokens, and by how much.

    Cost of a step: the gradient is read twice (once with "entry"), the table and the first moment are read and written
    once, in blocks that stay in a cache; no temporary of V x D. Moments of bfloat16 and float16 tables are float32, and
    an update is rounded once. Tables that are DTensors stay sharded: a D-vector is summed over their shards of rows.

    Args:
        params: parameters of shape (V, D) only, or groups of them, each with its own options.
        second_moment: one of the four.
        lr: learning rate, a number or a tensor.
        betas: for the first and the second moment; None for the defaults above.
        eps: added to the root of the second moment.
        weight_decay: w <- w - lr weight_decay w, before the update, as in AdamW; 0 turns it off.
        decay: "all" rows, or only the rows "touched" by a gradient other than 0 in this step. Decay pulls rows that no
            target and no input touches to 0. Under a softmax every row of a head is touched. "touched" takes one more
            pass over the gradient.
        max_row_norm: rows that are longer after a step are scaled back to this length. Two more passes over the table.

    Raises:
        InputError: another shape, an option out of range, a sparse gradient, or the state of another kind.
    """

    def __init__(
        self,
        params: Iterable[Any],
        second_moment: str = "column",
        *,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] | None = None,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decay: str = "all",
        max_row_norm: float | None = None,
    ) -> None:
        options = {"second_moment": second_moment, "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, options | {"decay": decay, "max_row_norm": max_row_norm})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        _check(self.defaults | param_group)
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if group["betas"] is None:
            group["betas"] = (0.0 if group["second_moment"] == "factored" else 0.9, 0.999)
        for table in group["params"]:
            refuse_no_table(table)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._move(table, table.grad, group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """InputError for the state of another kind of second moment."""
        kinds = [group.get("second_moment") for group in state_dict["param_groups"]]
        own = [group["second_moment"] for group in self.param_groups]
        if kinds != own:
            got = f"got {kinds}: make the optimiser with the checkpoint's kind, or start without its state"
            raise InputError(f"expected a state of second_moment {own} by group, {got}")
        super().load_state_dict(state_dict)
        saved = [i for group in state_dict["param_groups"] for i in group["params"]]
        tables = [table for group in self.param_groups for table in group["params"]]
        for i, table in zip(saved, tables, strict=True):
            if wide(table.dtype) != table.dtype:  # torch has rounded the moments to the table's own dtype
                state = state_dict["state"].get(i, {})
                self.state[table] |= {k: v.to(device=table.device) for k, v in state.items() if k != "step"}

    def _move(self, table: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        refuse_no_table(table)  # an engine may have flattened it
        if gradient.layout != torch.strided:
            how = "make the embedding with sparse=False, or use torch.optim.SparseAdam"
            raise InputError(f"expected a dense gradient, got one of layout {gradient.layout}: {how}")
        if getattr(gradient, "placements", None) != getattr(table, "placements", None):
            gradient = cast(Any, gradient).redistribute(placements=cast(Any, table).placements)
        (beta1, beta2), state = group["betas"], self.state[table]
        if not state:
            state |= _new_state(table, group["second_moment"], beta1)
        state["step"] += 1
        t = state["step"].double() if torch.compiler.is_compiling() else float(state["step"])
        if _FIRST not in state:
            beta1 = 0.0  # whatever a scheduler has set
        size, correction = -group["lr"] / (1 - beta1**t), 1 - beta2**t
        moments = {name: local(value) for name, value in state.items() if name != "step"}
        weight, slope = local(table), local(gradient)
        vectors: tuple[Tensor, ...] = ()
        if group["second_moment"] != "entry":
            vectors = _observe(moments, slope, table, beta2, correction)
            if len(vectors) == 1:
                vectors = (size / (vectors[0] + group["eps"]),)
        fades = group["lr"] * group["weight_decay"]
        touched = _touched(slope, table) if group["weight_decay"] and group["decay"] == "touched" else None
        for at in blocks(weight):
            whole = weight[at]
            w, g = whole.to(wide(whole.dtype)), slope[at].to(wide(whole.dtype))
            if touched is not None:
                w.mul_(1 - fades * touched[at, None])
            elif group["weight_decay"]:
                w.mul_(1 - fades)
            m = moments[_FIRST][at].lerp_(g, 1 - beta1) if _FIRST in moments else g
            _update(w, m, g, at, vectors, moments, (size, beta2, correction, group["eps"]))
            if w is not whole:
                whole.copy_(w)
        if group["max_row_norm"] is not None:
            _cap(weight, table, group["max_row_norm"])


def _new_state(table: Tensor, kind: str, beta1: float) -> dict[str, Tensor]:
    """`step` is on the CPU, as in AdamW, so that nothing waits for a device."""
    state = {"step": torch.tensor(0.0)}
    if beta1:
        state[_FIRST] = torch.zeros_like(table, dtype=wide(table.dtype), memory_format=torch.preserve_format)
    if kind == "entry":
        state[_ENTRIES] = torch.zeros_like(table, dtype=wide(table.dtype), memory_format=torch.preserve_format)
    return state | {name: new_vector(table, int(name == _COLUMNS)) for name in _VECTORS.get(kind, ())}


def _observe(moments: dict[str, Tensor], g: Tensor, table: Tensor, beta2: float, correction: Any) -> tuple[Tensor, ...]:
    """Follow the gradient: a single vector is the root of the second moment; two vectors have it as outer product."""
    rows, columns = moments.get(_ROWS), moments.get(_COLUMNS)
    of_rows, of_columns = square_sums(g, by_row=rows is not None, by_column=columns is not None)
    v, d = table.shape
    if of_rows is None or rows is None:
        assert columns is not None
        assert of_columns is not None
        columns.mul_(beta2).add_(over_shards(of_columns, table, 0), alpha=(1 - beta2) / v)
        return ((columns / correction).sqrt(),)
    rows.mul_(beta2).add_(over_shards(of_rows, table, 1), alpha=(1 - beta2) / d)
    if of_columns is None or columns is None:
        return ((rows / correction).sqrt()[:, None],)
    touched = (of_rows > 0).sum(dtype=rows.dtype)
    sums = over_shards(torch.cat([of_columns, torch.stack([touched, rows.sum()])]), table, 0)
    columns.mul_(beta2).add_(sums[:-2] / sums[-2].clamp(min=1), alpha=1 - beta2)
    return (rows / (sums[-1] / v).clamp(min=1e-30)).sqrt()[:, None], (columns / correction).sqrt()


def _update(w: Tensor, m: Tensor, g: Tensor, at: slice, vectors: Any, moments: Any, numbers: Any) -> None:
    size, beta2, correction, eps = numbers
    if len(vectors) == 1:
        w.addcmul_(m, vectors[0] if vectors[0].ndim == 1 else vectors[0][at])
        return
    if vectors:
        root = (vectors[0][at] * vectors[1]).add_(eps)
    else:
        root = moments[_ENTRIES][at].mul_(beta2).addcmul_(g, g, value=1 - beta2).sqrt()
        root.div_(correction**0.5).add_(eps)
    if isinstance(size, Tensor):
        w.add_((m / root).mul_(size))
    else:
        w.addcdiv_(m, root, value=size)


def _touched(gradient: Tensor, table: Tensor) -> Tensor:
    """(N,): 1 for rows with a gradient other than 0, on any shard of their columns, else 0."""
    found = gradient.new_empty(len(gradient), dtype=wide(gradient.dtype))
    for at in blocks(gradient):
        found[at] = (gradient[at] != 0).any(dim=1)
    return over_shards(found, table, 1).clamp(max=1)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # Inductor 2.13 fails to fuse it with "factored"
def _cap(weight: Tensor, table: Tensor, longest: float) -> None:
    norms = torch.linalg.vector_norm(weight, dim=1, dtype=wide(weight.dtype))
    if hasattr(table, "placements"):
        norms = over_shards(norms.square(), table, 1).sqrt()
    factors = longest / norms.clamp(min=longest)
    for at in blocks(weight):
        weight[at].mul_(factors[at, None])


def _check(options: dict[str, Any]) -> None:
    one_of(options["second_moment"], "second_moment", KINDS)
    one_of(options["decay"], "decay", DECAYS)
    betas = options["betas"]
    pair = isinstance(betas, tuple | list) and len(betas) == 2 and all(0 <= beta < 1 for beta in betas)
    if betas is not None and not pair:
        raise InputError(f"expected betas of two numbers from 0 to below 1, got {betas}: (0.9, 0.999) are usual")
    for name, least in (("lr", "from 0 up"), ("weight_decay", "from 0 up"), ("eps", "above 0"), ("max_row_norm", "")):
        if name == "max_row_norm" and options[name] is None:
            continue
        number = finite_number(float(options[name]), name)
        if number < 0 or (number == 0 and least != "from 0 up"):
            raise InputError(f"expected {name} {least or 'above 0'}, got {number:g}: leave it out for the default")
