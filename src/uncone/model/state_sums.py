"""The sums that are kept of the states of a text, and their file."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np

from uncone import atomic
from uncone.errors import InputError
from uncone.memory import check_memory
from uncone.moments import Moments, inverse
from uncone.moments.sums import products_bytes
from uncone.moments.unit_blocks import UnitBlocks
from uncone.roles import Path_
from uncone.rows import Array, as_array
from uncone.rows.floats import is_tensor
from uncone.rows.safetensors import read_tensors, sealed_bytes

SEGMENT = 64  # tokens of a segment: a longer sequence has several
_SEGMENTS = 2**16  # the most segments of a sequence
_FORMAT = "uncone.hidden_states/4"
_HOW = "remove it, or resume with the same model, texts and options"


@dataclass(frozen=True, eq=False)
class Sample:
    """Whole segments of the text, drawn at random."""

    layers: tuple[Array, ...]  # of each layer (n, D) float32
    ids: Array  # (n,) int64
    sequences: Array  # (n,) int64: from 0 in the order of the text
    positions: Array  # (n,) int64, in the sequence, special tokens counted
    segments: Array  # (n,) int64, ascending: tokens of one segment are adjacent


class StateSums:
    """Sums of each layer, blocks, counts of ids and a bounded sample."""

    def __init__(self, widths: Sequence[int], rows: int, *, sample: int, seed: int = 0) -> None:
        size = sum(map(products_bytes, widths))
        check_memory(size, f"the products of the columns of {len(widths)} layers", "diagnose a smaller model")
        self.moments = [Moments(d) for d in widths]
        for m in self.moments:
            m.sum_products()  # these are saved, so that few states have the same readings after resuming
        self._share()
        self.blocks = UnitBlocks(widths)
        self.counts = np.zeros(rows, np.int64)  # (V,): how often each id was read, special ids too
        self.apart = np.zeros((2, 1 + len(widths)))
        """For special positions and for sinks, their number and the sum of their norms in each layer."""
        self.sequences = 0  # sequences read so far
        self.read = 0  # tokens of the text, including tokens in no sum
        self._most, self._seed = sample, seed
        # Rows of one buffer are reused: copies, kept and dropped, would leave holes in memory that add up.
        room = sample + 2 * SEGMENT
        self._buffers = [np.empty((room, d), np.float32) for d in widths]
        self._free = np.arange(room)
        self._kept = list[tuple[int, Array, Array]]()  # the key, buffer rows and places of each segment

    @property
    def tokens(self) -> int:
        return self.moments[0].n

    def update(self, layers: Sequence[Any], norms: Array, places: Array) -> None:
        """Add the states (n, D) of each layer, with their norms (layers, n), in the order of the text.

        Tensors on a GPU are summed there. `places` (n, 3) are ids, sequences (numbered on from earlier calls) and
        positions.
        """
        if not len(places):
            return
        for m, x in zip(self.moments, layers, strict=True):
            if is_tensor(x):
                from uncone.moments.on_device import add

                add(m, x, None, None)
            else:
                m.update(x)
        inverses = [inverse(one.astype(np.float64)).astype(np.float32) for one in norms]
        self.blocks.update(layers, inverses, places[:, 1] - places[0, 1])
        self._sample(layers, places)

    def absorb(self, later: Self) -> None:
        """Add the sums of the next part of the text."""
        self.moments = [one.absorb(other) for one, other in zip(self.moments, later.moments, strict=True)]
        self._share()
        self.blocks.absorb(later.blocks)
        self.counts += later.counts
        self.apart += later.apart
        self.sequences, self.read = later.sequences, self.read + later.read
        for key, rows, places in later._kept:
            self._offer(key, [buffer[rows] for buffer in later._buffers], places)

    def __getstate__(self) -> dict[str, Any]:
        """Only the rows in use leave the buffers."""
        rows = np.concatenate([np.zeros(0, np.int64), *(rows for _, rows, _ in self._kept)])
        begins = np.cumsum([0, *(len(rows) for _, rows, _ in self._kept)])
        spans = (np.arange(a, b) for a, b in pairwise(begins.tolist()))
        kept = [(key, span, places) for (key, _, places), span in zip(self._kept, spans, strict=True)]
        buffers, none = [buffer[rows] for buffer in self._buffers], np.zeros(0, np.int64)
        return vars(self) | {"_kept": kept, "_buffers": buffers, "_free": none}

    def sample(self) -> Sample:
        kept = sorted(self._kept, key=lambda one: int(one[2][0, 3]))
        rows = np.concatenate([np.zeros(0, np.int64), *(rows for _, rows, _ in kept)])
        places = np.concatenate([np.zeros((0, 4), np.int64), *(places for _, _, places in kept)])
        return Sample(tuple(buffer[rows] for buffer in self._buffers), *places.T)

    def _share(self) -> None:
        """Let layers of one width share one working memory."""
        for m in self.moments[1:]:
            if m.d == self.moments[0].d:
                m.work_with(self.moments[0])

    def _sample(self, layers: Sequence[Any], places: Array) -> None:
        """Keep the segments with the lowest keys, as many as fit (bottom-k): the same however the text is cut."""
        segment = places[:, 2] // SEGMENT
        numbers = places[:, 1] * _SEGMENTS + segment  # independent of what is left out and of what was read before
        for begin, end in pairwise([*np.flatnonzero(np.diff(numbers, prepend=-1)).tolist(), len(places)]):
            own = np.column_stack([places[begin:end], numbers[begin:end]])
            self._offer(_key(int(numbers[begin]), self._seed), [x[begin:end] for x in layers], own)

    def _offer(self, key: int, layers: Sequence[Any], places: Array) -> None:
        if sum(len(one[2]) for one in self._kept) >= self._most and key > self._kept[-1][0]:
            return
        self._keep(key, [as_array(x) for x in layers], places)
        while len(self._kept) > 1 and sum(len(one[2]) for one in self._kept[:-1]) >= self._most:
            self._free = np.concatenate([self._free, self._kept.pop()[1]])

    def _keep(self, key: int, layers: Sequence[Array], places: Array) -> None:
        rows, self._free = self._free[: len(places)], self._free[len(places) :]
        for buffer, x in zip(self._buffers, layers, strict=True):
            buffer[rows] = x
        self._kept.append((key, rows, places))
        self._kept.sort(key=lambda one: one[0])

    def save(self, path: Path_, digest: str) -> None:
        tensors: dict[str, Array] = {"counts": self.counts, "apart": self.apart, "block_counts": self.blocks.counts}
        tensors["place"] = np.array([self.sequences, self.read, self.blocks.size], np.int64)
        for i, m in enumerate(self.moments):
            tensors |= {f"{i}.{name}": tensor for name, tensor in m.tensors().items()}
            tensors[f"{i}.blocks"] = self.blocks.sums[i]
        found = self.sample()
        tensors |= {f"{i}.sample": x for i, x in enumerate(found.layers)}
        tensors["sample_places"] = np.stack([found.ids, found.sequences, found.positions, found.segments])
        atomic.write_bytes(path, sealed_bytes(tensors, {"format": _FORMAT, "digest": digest}))

    def load(self, path: Path_, digest: str) -> None:
        tensors, metadata = read_tensors(path, format=_FORMAT, what="sums of hidden states", how=_HOW, sealed=True)
        if metadata["digest"] != digest:
            raise InputError(f"expected the states of this model and text, got other states in {path}: {_HOW}")
        for i, m in enumerate(self.moments):
            own = {name.partition(".")[2]: x for name, x in tensors.items() if name.startswith(f"{i}.")}
            self.blocks.sums[i], _ = own.pop("blocks").reshape(-1, m.d), own.pop("sample")
            self.moments[i] = Moments.from_tensors(own, "the file")
        self._share()
        self.counts, self.apart, self.blocks.counts = (tensors[name] for name in ("counts", "apart", "block_counts"))
        self.sequences, self.read, self.blocks.size = map(int, tensors["place"])
        places, self._kept, self._free = tensors["sample_places"].T, [], np.arange(len(self._buffers[0]))
        for begin, end in pairwise([*np.flatnonzero(np.diff(places[:, 3], prepend=-1)).tolist(), len(places)]):
            states = [tensors[f"{i}.sample"][begin:end] for i in range(len(self.moments))]
            self._keep(_key(int(places[begin, 3]), self._seed), states, places[begin:end].copy())


def _key(number: int, seed: int) -> int:
    """A random number for a segment, the same in every run."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{number}".encode(), digest_size=8).digest(), "big")
