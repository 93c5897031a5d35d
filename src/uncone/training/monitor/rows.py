"""What a record reads from a table's or a head's rows: two passes, and every so often their spectrum."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from uncone.measure.group_comparison import NAMES, frequency_membership
from uncone.training.monitor.participation import PROBES, Participation

Tensor = torch.Tensor
Numbers = dict[str, float]
ALL, NEVER = "all", "never"
DEAD = 1e-6  # of the median norm: a shorter row is dead
OPPOSITE = -0.5  # cosine of a row's last two moves from which it oscillates
_BLOCK, _SAMPLED = 2**19, 2**18  # numbers held of a block, and of rows that are kept from record to record
_FEW = 512  # rows whose spectrum each record has
_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows grouped by the count of their ids: frequent, medium, rare and, with counts, never. Without counts there are
    no groups."""

    of: Tensor  # (V,) int64: the place of each row's group in `names`
    names: tuple[str, ...]  # a single "all" where no counts are known

    @classmethod
    def by_count(cls, counts: Tensor) -> "Groups":
        known = counts.cpu().numpy()
        if not known.any():
            return cls(torch.zeros_like(counts, dtype=torch.int64), (ALL,))
        of = np.minimum(frequency_membership(len(known), counts=known).groups, 3)
        kept = np.unique(of)
        names = tuple((*NAMES[:3], NEVER)[group] for group in kept)
        return cls(torch.from_numpy(np.searchsorted(kept, of)).to(counts.device), names)

    def named(self, sums: Tensor) -> Iterator[tuple[str, Tensor]]:
        """("", the sum of all rows), then (a group's name and a dot, its sum), from sums (K, ...) over groups."""
        yield "", sums.sum(0)
        if self.names != (ALL,):
            yield from ((f"{name}.", of_group) for name, of_group in zip(self.names, sums, strict=True))

    @property
    def rare(self) -> Tensor:
        """(V,) bool: rare as targets."""
        places = [place for place, name in enumerate(self.names) if name in (NAMES[2], NEVER)]
        return torch.isin(self.of, torch.tensor(places, dtype=self.of.dtype, device=self.of.device))


def blocks(weight: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Rows (n, D) in float32 at least. Each call is one pass over the matrix."""
    size = max(1, _BLOCK // weight.shape[1])
    wide = torch.promote_types(weight.dtype, torch.float32)
    for start in range(0, len(weight), size):
        rows = slice(start, min(start + size, len(weight)))
        yield rows, weight[rows].detach().to(wide)


@dataclass(eq=False)
class Kept:
    """What the next record compares with, from the previous record."""

    first_mean: Tensor | None = None
    prints: Tensor | None = None  # (2, V): a row that has not moved has the same two numbers
    counts: Tensor | None = None
    sample: Tensor | None = None  # rows (S, D)
    moves: Tensor | None = None  # of the sample, (S, D)

    def state_dict(self) -> dict[str, Tensor]:
        found = {name: x.cpu() for name, x in vars(self).items() if x is not None}
        return {name: x.float() if x.dtype == torch.bfloat16 else x for name, x in found.items()}

    @classmethod
    def of(cls, state: Mapping[str, Tensor], weight: Tensor) -> "Kept":
        """ValueError where the state belongs to other rows."""
        v, d = weight.shape
        shapes = {"first_mean": (d,), "prints": (2, v), "counts": (v,)}
        shapes |= dict.fromkeys(("sample", "moves"), (_sample_size(v, d), d))
        if differ := [name for name, x in state.items() if tuple(x.shape) != shapes[name]]:
            raise ValueError(f"{differ[0]} belongs to other rows")
        narrow = dict.fromkeys(("sample", "moves"), weight.dtype)
        return cls(**{name: x.to(weight.device, narrow.get(name, x.dtype)) for name, x in state.items()})


@dataclass(eq=False)
class RowsReader:
    """Reads the rows of one matrix, as they are or, for a head, without their mean, which changes no probability."""

    kept: Kept = field(default_factory=Kept)

    def read(
        self, weight: Tensor, groups: Groups, *, counts: Tensor | None, is_head: bool, spectrum: bool, also: Any = None
    ) -> tuple[dict[bool, Numbers], "Pass"]:
        """The numbers of the rows as they are under False, and without the mean row under True, for a head or a tied
        head. `also` has methods `first` and `second` for each block of the two passes."""
        one = Pass(weight, groups, spectrum=spectrum)
        for rows, x in blocks(weight):
            one.first(rows, x)
            if also is not None:
                also.first(rows, x)
        one.end_first()
        for rows, x in blocks(weight):
            one.second(rows, x)
            if also is not None:
                also.second(rows, x, one)
        shared = self._moved(one, weight, counts, all_pushed=is_head)
        shared |= one.directions()
        return {centred: one.numbers(centred) | shared for centred in (False, True)}, one

    def _moved(self, one: "Pass", weight: Tensor, counts: Tensor | None, *, all_pushed: bool) -> Numbers:
        kept, found = self.kept, Numbers()
        median_norm = float(one.norms.median())
        zero = one.norms <= DEAD * median_norm
        if kept.first_mean is None:
            kept.first_mean = one.mean
        found["mean_drift"] = float((one.mean - kept.first_mean).norm()) / max(float(one.norms.mean()), _TINY)
        dead = zero
        if kept.prints is not None:
            still = (one.prints == kept.prints).all(0)
            found["still"] = float(still.double().mean())
            if all_pushed:
                dead = zero | still
            elif counts is not None and kept.counts is not None:
                dead = zero | (still & (counts > kept.counts))
        found["dead"] = float(dead.double().mean())
        if counts is not None:
            found["untouched"] = float((counts == 0).double().mean())
        kept.prints, kept.counts = one.prints, None if counts is None else counts.clone()
        if kept.sample is not None:
            moves = one.sample - kept.sample
            if kept.moves is not None:
                found["oscillating"] = _oscillating(moves, kept.moves)
            kept.moves = moves
        kept.sample = one.sample
        return found


class Pass:
    """Sums over groups of rows, in float64, from two passes."""

    def __init__(self, weight: Tensor, groups: Groups, *, spectrum: bool) -> None:
        (v, d), device = weight.shape, weight.device
        wide = torch.promote_types(weight.dtype, torch.float32)
        self.groups, self._k = groups, len(groups.names)
        zeros: Callable[..., Tensor] = lambda *shape: torch.zeros(shape, dtype=torch.float64, device=device)  # noqa: E731
        self._probe = torch.randn(d, generator=torch.Generator().manual_seed(0)).to(device, wide)
        self.prints = torch.empty(2, v, dtype=wide, device=device)
        self.norms, self.centred_norms = torch.empty(2, v, dtype=wide, device=device)
        self.rows = torch.bincount(groups.of, minlength=self._k).double()
        self._sums, self._units, self._centred_units = zeros(3, self._k, d)
        self._squares, self._along, self._directed, self._centred_directed = zeros(4, self._k)
        self._grams = [zeros(d, d) for _ in self.groups.names] if spectrum else None
        self._participation = Participation(d, device, wide)
        self.sample = torch.empty(_sample_size(v, d), d, dtype=weight.dtype, device=device)  # rows, evenly spaced
        self.mean = zeros(d)
        self._direction: Tensor | None = None

    def _one_hot(self, rows: slice, like: Tensor) -> Tensor:
        """(K, n)"""
        places = torch.arange(self._k, device=like.device)[:, None]
        return (self.groups.of[rows] == places).to(like.dtype)

    def first(self, rows: slice, x: Tensor) -> None:
        norms = torch.linalg.vector_norm(x, dim=1)
        images = x @ torch.cat([self._probe[:, None], self._participation.probes], 1)
        prints, images = torch.split(images, [1, PROBES], 1)
        self.norms[rows], self.prints[0, rows], self.prints[1, rows] = norms, norms, prints[:, 0]
        of, inverse = self._one_hot(rows, x), torch.where(norms > 0, 1 / norms, 0.0)
        images = self._participation.shifted(images)
        products = (torch.cat([of, of * inverse, images.T]) @ x).double()
        sums, units, products = torch.split(products, [self._k, self._k, PROBES])
        self._sums += sums
        self._units += units
        self._participation.add(products, images)
        self._squares += (of @ norms.square()).double()
        self._directed += (of @ (norms > 0).to(x.dtype)).double()
        v, size = len(self.norms), len(self.sample)
        few = torch.arange(-(-rows.start * size // v), -(-rows.stop * size // v), device=x.device)
        self.sample[few] = x[few * v // size - rows.start].to(self.sample.dtype)

    def end_first(self) -> None:
        self.mean = self._sums.sum(0) / len(self.norms)
        self._direction = self.mean / self.mean.norm().clamp_min(_TINY)
        self._participation.end_first(self.mean)

    def centred(self, x: Tensor) -> Tensor:
        return x - self.mean.to(x.dtype)

    def second(self, rows: slice, x: Tensor) -> None:
        assert self._direction is not None
        of, c = self._one_hot(rows, x), self.centred(x)
        norms = torch.linalg.vector_norm(c, dim=1)
        self.centred_norms[rows], inverse = norms, torch.where(norms > 0, 1 / norms, 0.0)
        images = c @ torch.cat([self._direction.to(x.dtype)[:, None], self._participation.probes], 1)
        along, images = torch.split(images, [1, 2 * PROBES], 1)
        along = along[:, 0] + (self.mean @ self._direction).to(x.dtype)
        self._along += (of @ along.square()).double()
        products = (torch.cat([of * inverse, images.T]) @ c).double()
        units, products = torch.split(products, [self._k, 2 * PROBES])
        self._centred_units += units
        self._participation.add(products, images)
        self._centred_directed += (of @ (norms > 0).to(x.dtype)).double()
        if self._grams is not None:
            for place, gram in enumerate(self._grams):
                inside = c if self._k == 1 else c[of[place] > 0]
                gram += inside.T @ inside

    def gram(self) -> Tensor | None:
        """The Gram matrix (D, D) of all rows without their mean."""
        return None if self._grams is None else sum(self._grams[1:], self._grams[0])

    def numbers(self, centred: bool) -> Numbers:
        units = self._centred_units if centred else self._units
        directed = self._centred_directed if centred else self._directed
        norms = (self.centred_norms if centred else self.norms).cpu().numpy()
        of, found = self.groups.of.cpu().numpy(), Numbers()
        counted = dict(self.groups.named(self.rows))
        totals = {name: (n, counted[name]) for name, n in self.groups.named(directed)}
        for name, total in self.groups.named(units):
            n = float(totals[name][0])
            if n >= 2:
                found[f"{name}mean_cosine"] = (float(total @ total) - n) / (n * (n - 1))
        squares = dict(self.groups.named(self._squares))
        for name, along in self.groups.named(self._along):
            found[f"{name}mean_share"] = float(along) / max(float(squares[name]), _TINY)
        for place, (name, rows) in enumerate(counted.items(), -1):
            inside = norms if place < 0 else norms[of == place]
            found[f"{name}norm_median"], found[f"{name}norm_largest"] = float(np.median(inside)), float(inside.max())
            if name:
                found[f"{name}rows"] = int(rows)
        return found

    def directions(self) -> Numbers:
        """The participation ratio of all rows; Roy and Vetterli's effective rank of a sample, which gives small
        directions more weight; and, with spectra, the effective rank of each group's rows without the group's mean."""
        found = Numbers()
        trace = float(self.centred_norms.double().square().sum())
        if (ratio := self._participation.ratio(trace)) is not None:
            found["participation_ratio"] = ratio
        n = min(len(self.sample), _FEW)
        few = self.sample[torch.arange(n, device=self.sample.device) * len(self.sample) // n].double()
        few = few - few.mean(0)
        gram = few @ few.T if len(few) < few.shape[1] else few.T @ few
        if bool(gram.isfinite().all()) and (rank := effective_rank(torch.linalg.eigvalsh(gram).clamp_min(0))):
            found["sample_rank"] = rank
        if self._grams is None or not math.isfinite(trace):
            return found
        sums = dict(self.groups.named(self._sums))
        rows = dict(self.groups.named(self.rows))
        whole = self._grams[0].clone()
        for gram in self._grams[1:]:
            whole += gram
        for name, gram in zip(rows, [whole, *self._grams], strict=False):
            if int(rows[name]) < 2:
                continue  # rounding alone
            if name:
                offset = sums[name] / rows[name] - self.mean
                gram.addr_(offset, offset, alpha=-float(rows[name]))  # in place, as these matrices take much memory
            values = torch.linalg.eigvalsh(gram).clamp_min(0)
            if (rank := effective_rank(values)) is not None:
                found[f"{name}effective_rank"] = rank
        self._grams = [whole]
        return found


def _sample_size(v: int, d: int) -> int:
    return min(v, max(1, _SAMPLED // d))


def effective_rank(squares: Tensor) -> float | None:
    """exp of the entropy of singular values, given their squares; None where all are 0."""
    s = squares.sqrt()
    s = torch.where(squares > squares.max() * 1e-14, s, 0.0)  # rounding of float64 is no direction
    total = float(s.sum())
    return float(torch.exp(torch.special.entr(s / total).sum())) if total > 0 else None


def _oscillating(moves: Tensor, before: Tensor) -> float:
    """Of the rows that moved both times, the share whose two moves oppose each other."""
    a, b = moves.double(), before.double()
    both = (a.norm(dim=1) > 0) & (b.norm(dim=1) > 0)
    cosines = torch.nn.functional.cosine_similarity(a[both], b[both], dim=1)
    return float((cosines < OPPOSITE).double().mean()) if bool(both.any()) else 0.0
