"""The sums of a tensor on its own device, by torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from uncone.moments.cell import SHORTEST, NotFiniteError, cuts
from uncone.roles import Ticks
from uncone.rows import GRID

Tensor = torch.Tensor
_SAFE = {torch.float32: (1e-11, 1e15), torch.float64: (SHORTEST, 1 / SHORTEST)}


def add(sums: Any, x: Tensor, weights: Any, progress: Ticks) -> None:
    """Add the rows of `x` (N, D) in cells of the grid: products in the dtype of the rows, all else in float64."""
    sums.sum_products()
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    first = x[:512].to(wide).mean(0).double()
    if sums.shift is not None:
        first = torch.from_numpy(sums.shift).to(x.device)
    elif sums.second is None or not bool(torch.isfinite(first).all()):
        first = torch.zeros_like(first)
    w = None if weights is None else torch.as_tensor(weights, dtype=torch.float64, device=x.device)
    total, extremes = dict[str, Any](), []
    if sums.drawn is not None:
        sums.drawn.expect(len(x))
    with torch.no_grad(), _whole_products():
        for cut in cuts(len(x), GRID):
            cell = _cell(x[cut].to(wide), None if w is None else w[cut], first, sums)
            extremes.append(cell.pop("norms"))
            squares = cell.pop("squares")
            if sums.drawn is not None:
                sums.drawn.add(squares.cpu().numpy(), partial(_taken, x[cut]))
            for name, value in cell.items():
                add_up = torch.hypot if name == "rounding" else torch.add
                total[name] = add_up(total[name], value) if name in total else value
            if progress is not None:
                progress(cut.stop)
    for name, value in total.items():
        found, known = value.cpu().numpy() if value.ndim else value.item(), getattr(sums, name)
        setattr(sums, name, np.hypot(known, found) if name == "rounding" else known + found)
    low, high = torch.stack(extremes).T.cpu()
    sums.shift = first.cpu().numpy() if sums.shift is None else sums.shift
    sums.n += len(x)
    eps, ends = torch.finfo(wide).eps, {"norm_min": float(low.min()), "norm_max": float(high.max())}
    sums.widen(SimpleNamespace(epsilon=eps, unit_epsilon=eps, **ends))


def _cell(x: Tensor, w: Tensor | None, shift: Tensor, sums: Any) -> dict[str, Tensor]:
    """Add a block; rows that float32 cannot square, or that are far out, are summed in float64."""
    norms = torch.linalg.vector_norm(x, dim=1)
    low, high = _SAFE[x.dtype]
    if not bool(((norms > low) & (norms < high)).all()):
        if not bool(torch.isfinite(x).all()):
            raise NotFiniteError("expected finite rows, got some with NaN or inf: correct or drop them")
        x = x.double()
        largest = x.abs().amax(1)
        scaled = torch.where(largest > 0, largest, 1.0)
        norms = largest * torch.linalg.vector_norm(x / scaled[:, None], dim=1)
    norms, counts = norms.double(), torch.ones(len(x), dtype=torch.float64, device=x.device) if w is None else w
    inverse = torch.where(norms > 0, 1 / norms, 0.0)
    unit, weight = counts * (norms > 0), counts.sum()
    y = x - shift.to(x.dtype)
    # What the shift lost in the dtype of the rows is added in float64.
    lost = shift.to(x.dtype).double() - shift
    first = counts @ y.double()
    found = {
        "first": first + weight * lost,
        "zero_rows": (norms == 0).sum(),
        "weight": weight,
        "weight_square": counts @ counts,
        "unit_weight": unit.sum(),
        "unit_weight_square": unit @ unit,
        "norm_sum": counts @ norms,
        "norm_square_sum": counts @ norms.square(),
        "norms": torch.stack([norms.min(), norms.max()]),
        "squares": y.double().square().sum(1),
    }
    if sums.second is not None:
        z = y if w is None else y * w.sqrt().to(y.dtype)[:, None]
        product = (z.T @ z).double()
        half = first + weight * lost / 2
        found["second"] = product + torch.outer(half, lost) + torch.outer(lost, half)
        found["rounding"] = torch.finfo(z.dtype).eps * product.diagonal()
    if sums.unit_first is not None:
        u = x * inverse.to(x.dtype)[:, None]
        found["unit_first"] = counts @ u.double()
        found["unit_square"] = counts.square() @ u.double().square()
        if sums.unit_second is not None:
            v = u if w is None else u * w.sqrt().to(u.dtype)[:, None]
            found["unit_second"] = (v.T @ v).double()
    return found


def _taken(x: Tensor, at: Any) -> Any:
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return x[torch.from_numpy(at).to(x.device)].to(wide).cpu().numpy()


@contextmanager
def _whole_products() -> Iterator[None]:
    """Products of float32 without TF32, which has 11 bits."""
    of_cuda = torch.backends.cuda.matmul
    before, of_cuda.allow_tf32 = of_cuda.allow_tf32, False
    try:
        yield
    finally:
        of_cuda.allow_tf32 = before
