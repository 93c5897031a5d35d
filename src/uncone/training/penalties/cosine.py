"""Push the directions of a table's rows apart (Gao et al. 2019, MLE-CosReg)."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from uncone.arguments import shown
from uncone.errors import InputError
from uncone.training.bars.clouds import INTEGERS, kind
from uncone.training.loss.problem import shard_of
from uncone.training.penalties.checked import factor

Tensor = torch.Tensor
Part = slice | Tensor
_ON_CPU, _ELSEWHERE = 2**19, 2**26  # numbers of a block: on a CPU it stays in the cache, elsewhere launches are few


class CosinePenalty:
    """A penalty on rows that point the same way: `attach(model, penalties=[CosinePenalty()])`. With w_i the V rows,

        R = weight / V^2 sum over i and j != i of cos(w_i, w_j) = weight / V^2 (|s|^2 - V)
        dR / dw_i = 2 weight / (V^2 |w_i|) (s - u_i u_i's),    u_i = w_i / |w_i|,  s = sum of u_i

    This is the regulariser of "Representation Degeneration Problem in Training Natural Language Generation Models" (Gao
    et al. 2019), whose weight is 1. R / weight is the mean cosine of two rows times (V - 1) / V, in [-1 / V, 1). Bis et
    al. 2021 write |s|^2 / V^2 - V (Appendix A, 13 and 14); that constant should be 1 / V, and has no gradient.

    The penalty removes a common direction of the rows and nothing else, and promises no better loss.

    Cost, not compiled: value and gradient read the matrix twice and write it once, O(V D), in float32 at least, in any
    dtype and autocast. The penalty keeps V numbers for the gradient. Ranks that share rows exchange one vector of D + 1
    numbers, and with `group` their numbers of rows.

    A row of zeros (shorter than 1e-19) has no direction: its cosines and its gradient count as 0. At the collapsed
    point, where all rows are alike, the gradient is 0 and R is at its maximum.

    Args:
        weight: from 0 up.
        rows: penalise only these rows, with V their number: a bool mask of the table's rows, or their ids. Other rows
            have gradient 0.
        group: the ranks over which the table is sharded by rows, in order (torch.distributed). A DTensor brings its own
            group; its rows may be sharded, but not its columns.

    InputError for settings out of range; when called, for anything but a matrix in floating point, for a matrix with
    other rows, and for NaN, infinity or lengths that overflow. Under `torch.compile` the last three make the penalty
    NaN instead.
    """

    def __init__(self, weight: float = 1.0, *, rows: Any = None, group: Any = None) -> None:
        self.weight, self.group = factor(weight, "weight"), group
        self._rows: Tensor | None
        self._mask_of: int | None
        self._rows, self._mask_of = (None, None) if rows is None else _ids(rows)
        self._last = -1 if self._rows is None else int(self._rows[-1])

    def __repr__(self) -> str:
        return f"CosinePenalty({self.weight:g}{'' if self._rows is None else f', rows={len(self._rows)} rows'})"

    def __call__(self, weight: Tensor) -> Tensor:
        """The penalty, a scalar in float32 or float64, of a table (V, D)."""
        is_table = isinstance(weight, Tensor) and weight.ndim == 2 and len(weight) > 0 and weight.is_floating_point()
        if not is_table or weight.is_meta:
            got = kind(weight) + (" on meta" if is_table else "")
            raise InputError(f"expected the rows of a table (V, D) in floating point, got {got}: pass its weight")
        cut = _cut(weight, self.group)
        rows = None if self._rows is None else self._here(cut, self._rows)
        count = cut.total if self._rows is None else len(self._rows)
        scale = self.weight / count**2
        with torch.autocast(cut.own.device.type, enabled=False):
            value: Tensor = _CosineSum.apply(cut.own, rows, cut.groups, scale)  # type: ignore[no-untyped-call]
        if not torch.compiler.is_compiling() and not bool(torch.isfinite(value)):
            _refuse(cut, rows)
        return value

    def _here(self, cut: "_Cut", rows: Tensor) -> Tensor:
        if self._mask_of not in (None, cut.total) or self._last >= cut.total:
            of = f"a mask of {self._mask_of}" if self._mask_of else f"id {self._last}"
            raise InputError(f"expected rows among the {cut.total} of the table, got {of}: name rows of this table")
        self._rows = rows = rows.to(cut.own.device)  # once
        if not cut.groups:
            return rows
        if cut.start is None:
            got = "got one that FSDP sharded within tensor parallelism: leave rows out"
            raise InputError(f"expected a table whose rows are in order over the ranks, {got}")
        here: Tensor = rows[(rows >= cut.start) & (rows < cut.start + len(cut.own))] - cut.start
        return here


class _Cut(NamedTuple):
    own: Tensor  # this rank's rows
    groups: tuple[Any, ...]  # groups to sum over, one after another
    start: int | None  # the table's row that comes first on this rank; None where rows are not in order
    total: int


def _cut(weight: Any, group: Any) -> _Cut:
    if not hasattr(weight, "placements"):
        if group is None:
            return _Cut(weight, (), 0, len(weight))
        shard = shard_of(weight, group)
        return _Cut(weight, (group,), shard.start, shard.total)
    if group is not None:
        raise InputError("expected no group with a DTensor, got one: leave it out, as the tensor names its ranks")
    mesh, groups, start, size, in_order = weight.device_mesh, list[Any](), 0, len(weight), True
    for dim, placement in enumerate(weight.placements):
        if placement.is_replicate():
            continue
        if getattr(placement, "dim", None) != 0:
            how = "redistribute it to Shard(0) or Replicate()"
            raise InputError(f"expected a table that is whole or sharded by rows (Shard(0)), got {placement}: {how}")
        each = -(-size // mesh.size(dim))
        first = min(each * mesh.get_local_rank(dim), size)
        start, size = start + first, min(each, size - first)
        groups.append(mesh.get_group(dim))
        in_order &= type(placement).__name__ == "Shard"  # FSDP within tensor parallelism cuts in another order
    own: Tensor = weight.to_local()
    return _Cut(own, tuple(groups), start if in_order else None, len(weight))


class _CosineSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: Tensor | None, groups: tuple[Any, ...], scale: float) -> Tensor:
        wide = torch.promote_types(weight.dtype, torch.float32)
        inverses, sums = [weight.new_zeros(0, dtype=wide)], [weight.new_zeros(weight.shape[1], dtype=wide)]
        for part in _parts(weight, rows):
            block = weight[part].to(wide)
            norms = torch.linalg.vector_norm(block, dim=1)
            squares = norms.square()  # NaN where a length overflows
            inverses.append(torch.where(squares < torch.finfo(wide).tiny, 0.0, norms / squares))
            sums.append(inverses[-1] @ block)
        inverse = torch.cat(inverses)
        total = torch.cat([torch.stack(sums).sum(0), (inverse != 0).sum(dtype=wide)[None]])
        for group in groups:
            dist.all_reduce(total, group=group)
        s, count = total[:-1], total[-1]
        ctx.save_for_backward(weight, inverse, s, *([] if rows is None else [rows]))
        ctx.scale = scale
        return scale * (s.dot(s) - count)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        weight, inverse, s, *rows = ctx.saved_tensors
        found = torch.zeros_like(weight) if rows else torch.empty_like(weight)
        at = 0
        for part in _parts(weight, *rows):
            block = weight[part].to(s.dtype)
            lengths = inverse[at : at + len(block)]
            at += len(block)
            outward = (2 * ctx.scale * grad) * lengths
            with torch.autocast(weight.device.type, enabled=False):  # of a backward pass within the user's
                along = (block @ s) * lengths * lengths * outward
            in_place = isinstance(part, slice) and weight.dtype == s.dtype and not torch.compiler.is_compiling()
            outer = torch.outer(outward, s, out=found[part]) if in_place else torch.outer(outward, s)
            outer.addcmul_(block, along[:, None], value=-1)
            if not in_place:
                found[part] = outer.to(weight.dtype)
        return found, None, None, None


def _parts(weight: Tensor, rows: Tensor | None = None) -> Iterator[Part]:
    """Blocks that fit a cache, which a compiler would only unroll: it fuses for itself."""
    count, size = len(weight) if rows is None else len(rows), _ON_CPU if weight.device.type == "cpu" else _ELSEWHERE
    size = max(1, count if torch.compiler.is_compiling() else size // max(1, weight.shape[1]))
    for start in range(0, count, size):
        part = slice(start, min(start + size, count))
        yield part if rows is None else rows[part]


def _ids(rows: Any) -> tuple[Tensor, int | None]:
    """Ascending ids, and, for a mask, its number of rows."""
    try:
        given = torch.as_tensor(rows)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"expected rows as a bool mask or ids, got {shown(rows)}: pass a tensor") from error
    if given.ndim != 1 or given.dtype not in (torch.bool, *INTEGERS) or given.is_meta:
        raise InputError(f"expected rows as a bool mask (V,) or ids (n,), got {kind(given)}: pass one of them")
    ids = given.nonzero().flatten() if given.dtype == torch.bool else given.long().sort().values
    if len(ids) == 0 or int(ids[0]) < 0 or bool((ids[1:] == ids[:-1]).any()):
        got = "none" if len(ids) == 0 else "a negative id" if int(ids[0]) < 0 else "an id twice"
        raise InputError(f"expected rows to name at least one row, each once, got {got}: check the mask or the ids")
    return ids, len(given) if given.dtype == torch.bool else None


def _refuse(cut: _Cut, rows: Tensor | None) -> None:
    own = cut.own.detach() if rows is None else cut.own.detach()[rows]
    lengths = torch.linalg.vector_norm(own, dim=1, dtype=torch.promote_types(own.dtype, torch.float32))
    wrong = (~torch.isfinite(lengths.square())).nonzero().flatten()
    got = "a row on another rank that is not finite: that rank's message names it"
    if len(wrong):
        first = int(wrong[0] if rows is None else rows[wrong[0]]) + (cut.start or 0)
        got = f"{len(wrong)} of {len(own)} rows with NaN, infinity or a length that overflows, first row {first}"
        got += ": look for the step that made it (a lower learning rate or clipped gradients help)"
    raise InputError(f"expected finite rows, got {got}")
