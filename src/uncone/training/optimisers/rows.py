"""Passes over a table's rows in blocks, and sums over its shards."""

from collections.abc import Iterator

import torch

from uncone.errors import InputError

Tensor = torch.Tensor
_IN_CACHE = 1 << 18  # numbers per block on a CPU: 1 MB of float32, so that table, gradient and moment stay in its cache
_AT_MOST = 1 << 25  # elsewhere, where each block is a launch


def local(table: Tensor) -> Tensor:
    """The rows, or columns, that this rank holds."""
    part: Tensor = table.to_local() if hasattr(table, "to_local") else table
    return part


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a table of `dtype` is summed: float32 at least."""
    return torch.promote_types(dtype, torch.float32)


def blocks(rows: Tensor) -> Iterator[slice]:
    """Slices over the rows of (N, D); a single slice under a compiler."""
    n, d = rows.shape
    at_once = max(n, 1)
    if not torch.compiler.is_compiling():
        at_once = max(1, (_IN_CACHE if rows.device.type == "cpu" else _AT_MOST) // max(d, 1))
    return (slice(first, min(first + at_once, n)) for first in range(0, n, at_once))


def column_sums(rows: Tensor) -> Tensor:
    """Column sums (D,) in `wide` numbers, in one pass without a second (N, D): each place of a block is summed
    separately."""
    places = _block(rows).zero_()
    for at in blocks(rows):
        block = rows[at]
        places[: len(block)] += block
    return places.sum(0)


def square_sums(rows: Tensor, *, by_row: bool, by_column: bool) -> tuple[Tensor | None, Tensor | None]:
    """Sums of squares (N,) and (D,), or None, in one pass as in `column_sums`."""
    if torch.compiler.is_compiling():  # which makes one loop of it
        whole = rows.to(wide(rows.dtype)).square()
        return whole.sum(1) if by_row else None, whole.sum(0) if by_column else None
    places, squares = (_block(rows).zero_(), _block(rows))  # no new blocks, which would fragment memory
    of_rows = places.new_empty(len(rows))
    for at in blocks(rows):
        block = rows[at].to(places.dtype)
        n = len(block)
        if not by_row:
            places[:n].addcmul_(block, block)
            continue
        torch.mul(block, block, out=squares[:n])
        torch.sum(squares[:n], 1, out=of_rows[at])
        if by_column:
            places[:n] += squares[:n]
    return of_rows if by_row else None, places.sum(0) if by_column else None


def _block(rows: Tensor) -> Tensor:
    most = next(blocks(rows), slice(0, 0)).stop
    return rows.new_empty((most, rows.shape[1]), dtype=wide(rows.dtype))


def over_shards(values: Tensor, table: Tensor, axis: int) -> Tensor:
    """`values` plus the values of the other shards of `table` along `axis`, in place; unchanged without shards."""
    for at, placement in enumerate(getattr(table, "placements", ())):
        if placement.is_shard(axis):
            torch.distributed.all_reduce(values, group=table.device_mesh.get_group(at))  # type: ignore[attr-defined]
    return values


def new_vector(table: Tensor, axis: int) -> Tensor:
    """Zeros, one for each index along `axis` of `table`, sharded as that axis is."""
    values = local(table).new_zeros(local(table).shape[axis], dtype=wide(table.dtype))
    if not hasattr(table, "placements"):
        return values
    from torch.distributed.tensor import DTensor, Replicate, Shard

    shape = (table.shape[axis],)
    placements = [Shard(0) if one.is_shard(axis) else Replicate() for one in table.placements]
    mesh: torch.distributed.device_mesh.DeviceMesh = table.device_mesh  # type: ignore[attr-defined]
    return DTensor.from_local(values, mesh, placements, run_check=False, shape=torch.Size(shape), stride=(1,))


def refuse_no_table(table: Tensor) -> None:
    if table.ndim != 2:
        raise InputError(
            f"expected tables of shape (V, D), got a parameter of shape {tuple(table.shape)}: leave other parameters "
            "to another optimiser, as uncone.with_table_adam(model, torch.optim.AdamW) does"
        )
    if not table.is_floating_point():
        raise InputError(f"expected a table in floating point, got {table.dtype}: exempt it from quantisation")
