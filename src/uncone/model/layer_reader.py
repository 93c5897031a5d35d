"""States of every layer on some sequences, by a model in this process: summed, and kept where a head reads them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from uncone.errors import UndefinedMeasure, UnsupportedModel
from uncone.model.head_map import undisturbed
from uncone.model.last_states import padded
from uncone.model.layered_model import LayeredModel, open_layered
from uncone.model.sequences import template_of
from uncone.model.state_sums import StateSums
from uncone.moments import NotFiniteError
from uncone.rows import Array
from uncone.tensors import is_out_of_memory

Tensor = torch.Tensor
Stretch = tuple[list[Array], int]
"""Sequences, and how many tokens of the text are in them."""
GIANT = 10.0  # a state this many times as long as the median of its layer is a sink


class LayerReader:
    """`kept` is the layer whose states are kept with their `windows`, except the last state of each sequence."""

    def __init__(self, found: LayeredModel, batch: int, stretch: int, kept: int | None) -> None:
        self.found, self.batch, self.stretch, self.kept = found, batch, stretch, kept
        self.windows, self.states = list[Array](), list[Tensor]()
        # Buffers of many sizes would leave holes in memory that add up.
        self._room = [torch.empty((stretch + found.longest, d), device=found.device) for d in found.widths]
        self._special = np.array(sorted(template_of(found.tokenizer).special), np.int64)

    def read(self, stretches: Iterable[Stretch], sums: StateSums | None) -> "ReadUnit":
        """Run the stretches, and add their states to `sums` unless it is None."""
        for sequences, read in stretches:
            if sums is None:
                self.run(sequences)
            else:
                self._add(sums, sequences, read)
        made = ReadUnit(sums, self.windows, self.states, list(self.found.notes))
        self.windows, self.states = [], []
        return made

    def _add(self, sums: StateSums, sequences: list[Array], read: int) -> None:
        lengths, ids = np.array([len(ids) for ids in sequences]), np.concatenate(sequences)
        sums.counts += np.bincount(ids, minlength=len(sums.counts))
        numbers = np.repeat(np.arange(len(sequences)), lengths) + sums.sequences
        positions = np.arange(len(ids)) - np.repeat(lengths.cumsum() - lengths, lengths)
        layers, places = self.run(sequences), np.column_stack([ids, numbers, positions])
        self._sum(sums, layers, places, np.isin(ids, self._special))
        sums.sequences, sums.read = sums.sequences + len(sequences), sums.read + read

    def run(self, sequences: list[Array]) -> list[Tensor]:
        """The states (n, D) of each layer, in memory that the next run reuses."""
        with undisturbed(self.found.model):
            return self._run(sequences)

    def _run(self, sequences: list[Array]) -> list[Tensor]:
        lengths = np.array([len(ids) for ids in sequences])
        n, starts = lengths.sum(), np.append(0, lengths.cumsum())
        layers = [room[:n] for room in self._room]
        order = np.argsort(-lengths, kind="stable").tolist()
        while order:
            order = self._batch(sequences, starts, order, layers)
        if self.kept is not None:
            self.windows += sequences
            is_last = np.zeros(n, bool)
            is_last[starts[1:] - 1] = True
            self.states.append(layers[self.kept][torch.from_numpy(~is_last).to(self.found.device)].cpu())
        return layers

    def _batch(self, sequences: list[Array], starts: Array, order: list[int], layers: list[Tensor]) -> list[int]:
        """Run the longest sequences that fit; return the others."""
        device, size = self.found.device, max(1, self.batch // len(sequences[order[0]]))
        taken, left = order[:size], order[size:]
        ids, mask = padded([torch.from_numpy(sequences[i]) for i in taken], device)
        try:
            states = self.found.states(ids, mask)
        except (UnsupportedModel, RuntimeError) as error:
            if not is_out_of_memory(error.__cause__ or error):
                raise
            self._make_smaller(*ids.shape)
            return order
        keep = slice(None) if bool(mask.all()) else mask.reshape(-1).bool()
        places = torch.from_numpy(np.concatenate([np.arange(starts[i], starts[i + 1]) for i in taken])).to(device)
        for into, x in zip(layers, states, strict=True):
            into.index_copy_(0, places, x.reshape(-1, x.shape[-1])[keep].float())
        return left

    def _make_smaller(self, n: int, length: int) -> None:
        device = self.found.device
        if device.type == "cuda":
            torch.cuda.empty_cache()
        if n == 1:
            got = f"got none on {device}: choose another device, a smaller dtype (bfloat16), or a shorter text"
            raise UndefinedMeasure(f"expected memory for a sequence of {length} ids, {got}")
        self.batch = n * length // 2
        self.found.notes.append(f"{device} had no memory for a batch of {n} x {length} ids: smaller batches were run.")

    def _sum(self, sums: StateSums, layers: list[Tensor], places: Array, is_special: Array) -> None:
        norms = torch.stack([torch.linalg.vector_norm(x, dim=1) for x in layers]).cpu().numpy()
        for name, of_layer in zip(self.found.names, norms, strict=True):
            if not np.isfinite(of_layer).all():
                how = "the model is damaged" if self.found.dtype == torch.float32 else "run it in float32"
                raise UndefinedMeasure(f"expected finite states, got NaN or inf in {name}: {how}")
        is_sink = ~is_special & (places[:, 2] == 0) if self.found.causal else np.zeros(len(places), bool)
        ordinary = ~is_special & ~is_sink
        if ordinary.any():
            medians = np.median(norms[:, ordinary], axis=1)
            is_sink |= ~is_special & (norms > GIANT * medians[:, None]).any(0)
        for kind, apart in enumerate((is_special, is_sink)):
            sums.apart[kind] += [apart.sum(), *norms[:, apart].astype(np.float64).sum(1)]
        kept = ~is_special & ~is_sink
        chosen = torch.from_numpy(np.flatnonzero(kept)).to(self.found.device)
        states = (_moved_up(x, chosen) for x in layers)
        on_gpu = self.found.device.type == "cuda"
        try:
            sums.update([x if on_gpu else x.cpu().numpy() for x in states], norms[:, kept], places[kept])
        except NotFiniteError as error:
            raise UndefinedMeasure(str(error)) from error


@dataclass(frozen=True, eq=False)
class Unit:
    """Sequences of a text for one worker; `is_counted` unless an earlier run has summed them."""

    stretches: tuple[Stretch, ...]
    first: int  # the number of the first sequence
    is_counted: bool = True

    @property
    def name(self) -> str:
        return f"the text from sequence {self.first:,} on"


@dataclass(eq=False)
class ReadUnit:
    sums: StateSums | None
    windows: list[Array]
    states: list[Tensor]
    notes: list[str]


@dataclass(frozen=True)
class Maker:
    """Opens the model in the process that works on a unit."""

    model: str
    device: str | None
    dtype: str | None
    batch: int
    stretch: int
    sample: int
    seed: int
    kept: int | None

    def __call__(self) -> Callable[[Unit], ReadUnit]:
        reader = LayerReader(
            open_layered(self.model, device=self.device, dtype=self.dtype), self.batch, self.stretch, self.kept
        )
        return partial(self._read, reader)

    def _read(self, reader: LayerReader, unit: Unit) -> ReadUnit:
        sums = StateSums(reader.found.widths, reader.found.rows, sample=self.sample, seed=self.seed)
        sums.sequences = unit.first
        return reader.read(unit.stretches, sums if unit.is_counted else None)


def _moved_up(x: Tensor, chosen: Tensor) -> Tensor:
    """The rows `chosen` (ascending) of `x`, moved to its beginning in place."""
    if len(chosen) < len(x):
        for begin in range(0, len(chosen), 512):
            rows = chosen[begin : begin + 512]
            x[begin : begin + len(rows)] = x[rows]
    return x[: len(chosen)]
