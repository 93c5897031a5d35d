"""The states of every layer of a language model on texts, summed as they come, and a bounded sample."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from uncone.errors import InputError, UndefinedMeasure, UnsupportedModel
from uncone.memory import check_memory, give_back
from uncone.model.head_map import undisturbed
from uncone.model.last_states import States, described, padded
from uncone.model.layer_states import LayerStates
from uncone.model.layered_model import LayeredModel, open_layered
from uncone.model.open import open_whole
from uncone.model.sequences import Sequences, template_of
from uncone.model.state_sums import StateSums
from uncone.model.text_sources import TextSource
from uncone.moments import NotFiniteError
from uncone.roles import Path_, Progress
from uncone.rows import GRID, Array
from uncone.tensors import is_out_of_memory

Tensor = torch.Tensor
GIANT = 10.0  # a state so many times as long as the median of its layer is a sink
SAMPLE = 8192  # tokens of the sample, or fewer where the layers are wide
_STRETCH_BYTES = 2**28
_LEAST = 512
_ENOUGH = 20  # tokens a column before a run may stop: spectra need more than mean cosines
_SAVED_EVERY = 4  # stretches between two writes of a file to resume from


def hidden_states_of(
    model: Path_,
    sources: Sequence[TextSource],
    *,
    most: int = 100_000,
    width: float | None = 0.005,
    resume: Path_ | None = None,
    device: str | None = None,
    dtype: str | None = None,
    batch: int | None = None,
    sample: int = SAMPLE,
    seed: int = 0,
    last: bool = False,
    progress: Progress | None = None,
) -> LayerStates:
    """Run a model over texts in batches of like lengths, and sum the states of each layer.

    An encoder reads each line or document as a sequence; a decoder reads running text in windows. A longer passage is
    cut into windows of at most 512 ids, or of the positions that the model has. Special tokens, the first position of a
    decoder and giant states (sinks) are in no sum: they are counted apart.

    At most `most` tokens are summed, `sample` of them kept, and `batch` ids with padding run at once. The run stops
    once the 95% interval of each layer's mean cosine is narrower than `width`. The sums are kept in the file `resume`.
    With `last` what the head of a causal model reads is kept too, as `states_of` does.
    """
    opened = open_whole(model)
    if most < 2:
        raise InputError(f"expected at least 2 tokens to read, got {most}: 100,000 is usual")
    found = open_layered(opened, device=device, dtype=dtype)
    per_token = 4 * sum(found.widths)
    kept = min(sample, max(_LEAST, 2**29 // per_token))
    stretch = max(_LEAST, min(GRID, 1 << (max(1, _STRETCH_BYTES // per_token).bit_length() - 1)))
    sums = StateSums(found.widths, found.rows, sample=kept, seed=seed)
    read = found.read if last and found.causal else None
    if read is not None:
        d = found.widths[read]
        check_memory(8 * most * d, f"states of {most} tokens and {d} columns", "ask for fewer tokens")
    digest = _digest(found, sources, (stretch, kept, seed, str(dtype)))
    if resume is not None and Path(resume).exists():
        sums.load(resume, digest)
    source = Sequences(sources, found.tokenizer, template_of(found.tokenizer), found.longest, found.causal, found.rows)
    ids_at_once = batch or (2**15 if found.device.type == "cuda" else 4096)
    run = _Run(found, sums, source, ids_at_once, stretch, read)
    save = None if resume is None else lambda: sums.save(resume, digest)
    stopped = run.over(most, width, save, progress)
    if sums.tokens < 2:
        few = f"got {sums.tokens}: give a longer text"
        raise UndefinedMeasure(f"expected at least two tokens beside those that stand apart, {few}")
    with undisturbed(found.model):
        head = found.head()
        last_states, why_no_last = run.last(opened.name)
    cut = f"{source.cut:,} passages were longer than {found.longest} ids and cut into windows."
    number = np.maximum(sums.apart[:, :1], 1)
    return LayerStates(
        name=opened.name,
        layers=found.names,
        moments=tuple(m.finish() for m in sums.moments),
        intervals=tuple(map(sums.blocks.mean_cosine_interval, range(len(found.names)))),
        sample=sums.sample(),
        counts=sums.counts,
        apart=np.concatenate([sums.apart[:, :1], sums.apart[:, 1:] / number], axis=1),
        labels=tuple(found.tokenizer.id_to_token(i) for i in range(found.rows)),
        causal=found.causal,
        sequences=sums.sequences,
        stopped=stopped,
        head=head,
        read=found.read,
        why_no_head=found.why_no_head,
        notes=(*dict.fromkeys(found.notes), *([cut] if source.cut else [])),
        last=last_states,
        why_no_last=why_no_last,
        cut=f"{'windows of running text' if found.causal else 'lines or documents'} of at most {found.longest} ids",
    )


class _Run:
    def __init__(
        self, found: LayeredModel, sums: StateSums, source: Sequences, batch: int, stretch: int, kept: int | None
    ) -> None:
        self.found, self.sums, self.source, self.batch, self.stretch = found, sums, source, batch, stretch
        self.kept, self.windows, self.states = kept, list[Tensor](), list[Tensor]()
        # Buffers of many sizes would leave holes in memory that add up.
        self._room = [torch.empty((stretch + found.longest, d), device=found.device) for d in found.widths]
        self._special = np.array(sorted(source.template.special), np.int64)

    def over(self, most: int, width: float | None, save: Callable[[], None] | None, progress: Progress | None) -> bool:
        """Read until the texts end, `most` tokens are summed or the intervals are narrow (then True)."""
        if self.kept is not None:  # an earlier run has left no states
            left, again = self.sums.sequences, self._stretches(0, most)
            while left > 0:
                part, _ = next(again)
                with undisturbed(self.found.model):
                    self._run(part)
                left -= len(part)
        if self.sums.sequences and self._is_narrow(width):  # a run that had ended is resumed
            return True
        saved, stop = 0, False
        for turn, (part, read) in enumerate(self._stretches(self.sums.sequences, most - self.sums.read), 1):
            with undisturbed(self.found.model):
                self._add(part)
            self.sums.read += read
            give_back()
            if progress is not None:
                progress("reading hidden states", min(self.sums.tokens, most), most)
            stop = self._is_narrow(width)
            if save is not None and (stop or turn % _SAVED_EVERY == 0):
                save()
                saved = self.sums.sequences
            if stop:
                break
        if save is not None and saved != self.sums.sequences:
            save()
        return stop

    def last(self, name: str) -> tuple[States | None, str]:
        windows, head = [window for window in self.windows if len(window) > 1], self.found.linear
        if self.kept is None or head is None or sum(map(len, windows)) - len(windows) < 2:
            return None, ""
        states, self.states = torch.cat(self.states), []
        try:
            return described(self.found.model, head, states, windows, name), ""
        except UnsupportedModel as error:
            return None, str(error)

    def _stretches(self, begun: int, left: int) -> Iterator[tuple[list[Array], int]]:
        """Whole sequences of some `stretch` ids, and how many tokens of the text are in them.

        At most `left` tokens behind the first `begun` sequences; of the first sequence as many as fit.
        """
        before, after = self.source.template.before, self.source.template.after
        part, size, read = [], 0, 0
        for number, ids in enumerate(self.source):
            if number < begun:
                continue
            tokens = len(ids) - len(before) - len(after)
            if tokens > left:
                if number == 0:
                    yield [ids[: len(before) + left]], left
                    return
                break
            left -= tokens
            part.append(ids)
            size, read = size + len(ids), read + tokens
            if size >= self.stretch:
                yield part, read
                part, size, read = [], 0, 0
        if part:
            yield part, read

    def _is_narrow(self, width: float | None) -> bool:
        if width is None or self.sums.tokens < _ENOUGH * max(self.found.widths):
            return False
        ends = map(self.sums.blocks.mean_cosine_interval, range(len(self.found.widths)))
        return all(one is not None and one[1] - one[0] < width for one in ends)

    def _run(self, sequences: list[Array]) -> list[Tensor]:
        lengths = np.array([len(ids) for ids in sequences])
        n, starts = lengths.sum(), np.append(0, lengths.cumsum())
        layers = [room[:n] for room in self._room]
        order = np.argsort(-lengths, kind="stable").tolist()
        while order:
            order = self._batch(sequences, starts, order, layers)
        if self.kept is not None:
            self.windows += map(torch.from_numpy, sequences)
            is_last = np.zeros(n, bool)
            is_last[starts[1:] - 1] = True
            self.states.append(layers[self.kept][torch.from_numpy(~is_last).to(self.found.device)].cpu())
        return layers

    def _add(self, sequences: list[Array]) -> None:
        lengths, ids = np.array([len(ids) for ids in sequences]), np.concatenate(sequences)
        self.sums.counts += np.bincount(ids, minlength=len(self.sums.counts))
        numbers = np.repeat(np.arange(len(sequences)), lengths) + self.sums.sequences
        positions = np.arange(len(ids)) - np.repeat(lengths.cumsum() - lengths, lengths)
        self._sum(self._run(sequences), np.column_stack([ids, numbers, positions]), np.isin(ids, self._special))
        self.sums.sequences += len(sequences)

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
        self.found.notes.append(f"{device} had no memory for a batch of {n} x {length} ids: smaller ones were run.")

    def _sum(self, layers: list[Tensor], places: Array, is_special: Array) -> None:
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
            self.sums.apart[kind] += [apart.sum(), *norms[:, apart].astype(np.float64).sum(1)]
        kept = ~is_special & ~is_sink
        chosen = torch.from_numpy(np.flatnonzero(kept)).to(self.found.device)
        states = (_moved_up(x, chosen) for x in layers)
        on_gpu = self.found.device.type == "cuda"
        try:
            self.sums.update([x if on_gpu else x.cpu().numpy() for x in states], norms[:, kept], places[kept])
        except NotFiniteError as error:
            raise UndefinedMeasure(str(error)) from error


def _moved_up(x: Tensor, chosen: Tensor) -> Tensor:
    """The rows `chosen` (ascending) of `x`, moved to its beginning in place."""
    if len(chosen) < len(x):
        for begin in range(0, len(chosen), 512):
            rows = chosen[begin : begin + 512]
            x[begin : begin + len(rows)] = x[rows]
    return x[: len(chosen)]


def _digest(found: LayeredModel, sources: Sequence[TextSource], options: tuple[Any, ...]) -> str:
    """Of all that the sums depend on; files count by the time when they were written."""
    digest = hashlib.sha256(repr(options).encode())
    digest.update(found.tokenizer.to_str().encode())
    for path, part in [*((path, None) for path in found.files), *((one.path, one.part) for one in sources)]:
        stat = path.stat()
        digest.update(f"{path.name}{part}{stat.st_size}{stat.st_mtime_ns}".encode())
    return digest.hexdigest()
