"""The states of every layer of a language model on texts, summed as they come: nothing but a bounded sample is kept."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from uncone.errors import InputError, UndefinedMeasure, UnsupportedModel
from uncone.memory import check_memory, give_back
from uncone.model.head_map import undisturbed
from uncone.model.last_states import States, described
from uncone.model.layer_states import LayerStates
from uncone.model.layered_model import LayeredModel, open_layered
from uncone.model.open import open_spec
from uncone.model.sequences import Sequences, template_of
from uncone.model.state_sums import StateSums
from uncone.model.text_sources import TextSource
from uncone.moments import NotFiniteError
from uncone.roles import Path_, Progress
from uncone.rows import GRID, Array
from uncone.tensors import is_out_of_memory

Tensor = torch.Tensor
GIANT = 10.0
"""A state so many times as long as the median of its layer is a sink, as massive activations make them."""
SAMPLE = 8192
"""Tokens of the sample, or fewer where the layers are wide."""
_SAMPLE_BYTES, _STRETCH_BYTES = 2**29, 2**28
_LEAST = 512
_FEWEST = 2
_PADDED = {"cpu": 4096, "cuda": 2**15}
"""Ids of a batch, padding counted."""
_ENOUGH = 20
"""Tokens for each column, before a run may stop early: spectra need more than a mean cosine does."""
_MOVED = 512
"""Rows that are moved at once."""
_SAVED_EVERY = 4
"""Stretches between two writes of a run that can be resumed."""


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

    Args:
        model: a directory of transformers or Sentence Transformers, or the name of a cached one.
        sources: as `open_texts` gives them.
        most: tokens in the sums, at most.
        width: the run stops once the 95% interval of each layer's mean cosine is narrower; None reads on.
        resume: a file to keep the sums in, and to go on from where it is there.
        device: such as "cuda"; the CPU by default. dtype: such as "bfloat16"; float32 by default.
        batch: ids of a batch with padding; fewer are taken where a device has no memory for them.
        sample: tokens of the sample, fewer where the layers are wide; `seed` is of the sample.
        last: keep what the head of a causal model reads before each next token, as `states_of` gives it, N x D numbers.
        progress: called with (step, tokens done, most).

    Raises:
        InputError: no such model or device, a tokenizer of another one, or a file to resume from of another run.
        UndefinedMeasure: no passage of two tokens, states that are not finite, or no memory for one sequence.
        UnsupportedModel: a model that does not run or does not tell of its hidden states.
    """
    opened = open_spec(model)
    if opened.part is not None:
        raise InputError(f"expected a whole model, got its part #{opened.part}: leave that out")
    if most < 2:
        raise InputError(f"expected at least 2 tokens to read, got {most}: 100,000 is usual")
    found = open_layered(opened, device=device, dtype=dtype)
    per_token = 4 * sum(found.widths)
    kept = min(sample, max(_LEAST, _SAMPLE_BYTES // per_token))
    sums = StateSums(found.widths, found.rows, sample=kept, seed=seed)
    stretch = max(_LEAST, min(GRID, 1 << (max(1, _STRETCH_BYTES // per_token).bit_length() - 1)))
    keeps = last and found.causal and found.read is not None
    if keeps:
        assert found.read is not None
        size = 4 * most * found.widths[found.read]
        check_memory(
            2 * size, f"states of {most} tokens and {found.widths[found.read]} columns", "ask for fewer tokens"
        )
    run = _Run(found, sums, batch or _PADDED.get(found.device.type, 4096), stretch, found.read if keeps else None)
    digest = _digest(found, sources, (stretch, kept, seed, str(dtype)))
    if resume is not None and Path(resume).exists():
        sums.load(resume, digest)
    source = Sequences(sources, found.tokenizer, template_of(found.tokenizer), found.longest, found.causal, found.rows)
    stopped = run.over(source, most, width, stretch, resume, digest, progress)
    if sums.tokens < 2:
        raise UndefinedMeasure(
            f"expected at least two tokens beside those that stand apart, got {sums.tokens}: give a longer text"
        )
    return _states(opened.name, found, sums, source, stopped, run)


class _Run:
    def __init__(self, found: LayeredModel, sums: StateSums, batch: int, stretch: int, kept: int | None) -> None:
        self.found, self.sums, self.batch, self.kept = found, sums, batch, kept
        self.windows, self.states = list[Tensor](), list[Tensor]()
        # One buffer for all stretches: buffers of many sizes would leave holes in memory that add up.
        self._room = [torch.empty((stretch + found.longest, d), device=found.device) for d in found.widths]
        self.special = np.array(sorted(template_of(found.tokenizer).special), np.int64)

    def over(
        self,
        source: Sequences,
        most: int,
        width: float | None,
        stretch: int,
        resume: Path_ | None,
        digest: str,
        progress: Progress | None,
    ) -> bool:
        """Read until the texts end, `most` tokens are summed or the intervals are narrow, which is told."""
        if self.kept is not None:  # of what an earlier run has summed there are no states
            self._read_again(_stretches(source, 0, most, stretch), self.sums.sequences)
        if width is not None and self.sums.sequences and self._narrow(width):  # a run that had ended is resumed
            return True
        saved = 0
        left = most - self.sums.read
        for turn, (part, read) in enumerate(_stretches(source, self.sums.sequences, left, stretch), 1):
            with undisturbed(self.found.model):
                self._add(part)
            self.sums.read += read
            give_back()
            if progress is not None:
                progress("reading hidden states", min(self.sums.tokens, most), most)
            stop = width is not None and self._narrow(width)
            if resume is not None and (stop or turn % _SAVED_EVERY == 0):
                self.sums.save(resume, digest)
                saved = self.sums.sequences
            if stop:
                return True
        if resume is not None and saved != self.sums.sequences:
            self.sums.save(resume, digest)
        return False

    def _read_again(self, stretches: Iterator[tuple[list[Array], int]], sequences: int) -> None:
        """Keep what the head reads of the first `sequences`, in the batches of the run that summed them."""
        while sequences > 0:
            part, _ = next(stretches)
            with undisturbed(self.found.model):
                self._run(part)
            sequences -= len(part)

    def _narrow(self, width: float) -> bool:
        if self.sums.tokens < _ENOUGH * max(self.found.widths):
            return False
        ends = [self.sums.blocks.mean_cosine_interval(layer) for layer in range(len(self.found.widths))]
        return all(one is not None and one[1] - one[0] < width for one in ends)

    def _run(self, sequences: list[Array]) -> list[Tensor]:
        """The states (N, D) of each layer on whole sequences, in the order of the text; what the head reads is kept."""
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
        """The states of whole sequences into the sums."""
        lengths = np.array([len(ids) for ids in sequences])
        ids, starts = np.concatenate(sequences), np.append(0, lengths.cumsum())
        self.sums.counts += np.bincount(ids, minlength=len(self.sums.counts))
        places = np.column_stack(
            [
                ids,
                np.repeat(np.arange(len(sequences)), lengths) + self.sums.sequences,
                np.arange(len(ids)) - np.repeat(starts[:-1], lengths),
            ]
        )
        is_special = np.isin(ids, self.special)
        layers = self._run(sequences)
        self._sum(layers, places, is_special)
        self.sums.sequences += len(sequences)

    def _batch(self, sequences: list[Array], starts: Array, order: list[int], layers: list[Tensor]) -> list[int]:
        """Run the longest sequences that fit into a batch; the others are returned."""
        size = max(1, self.batch // len(sequences[order[0]]))
        taken, left = order[:size], order[size:]
        rows = [torch.from_numpy(sequences[i]) for i in taken]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(self.found.device)
        lengths = torch.tensor([len(row) for row in rows], device=self.found.device)
        mask = torch.arange(ids.shape[1], device=self.found.device) < lengths[:, None]
        try:
            states = self.found.states(ids, mask.long())
        except (UnsupportedModel, RuntimeError) as error:
            if not is_out_of_memory(error.__cause__ or error):
                raise
            return self._smaller(ids.shape, order)
        keep = mask.reshape(-1)
        at = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in taken])
        places = torch.from_numpy(at).to(self.found.device)
        for into, x in zip(layers, states, strict=True):
            into[places] = x.reshape(-1, x.shape[-1])[keep].float()
        return left

    def _smaller(self, shape: tuple[int, ...], order: list[int]) -> list[int]:
        """Half of the batch, which the device had no memory for."""
        if self.found.device.type == "cuda":
            torch.cuda.empty_cache()
        if shape[0] == 1:
            raise UndefinedMeasure(
                f"expected memory for a sequence of {shape[1]} ids, got none on {self.found.device}: choose another "
                "device, a smaller dtype (bfloat16), or a shorter text"
            )
        self.batch = shape[0] * shape[1] // 2
        self.found.notes.append(
            f"{self.found.device} had no memory for a batch of {shape[0]} x {shape[1]} ids: smaller ones were run."
        )
        return order

    def _sum(self, layers: list[Tensor], places: Array, is_special: Array) -> None:
        norms = torch.stack([torch.linalg.vector_norm(x, dim=1) for x in layers]).cpu().numpy()
        for layer, one in enumerate(norms):
            if not np.isfinite(one).all():
                how = "the model is damaged" if self.found.dtype == torch.float32 else "run it in float32"
                raise UndefinedMeasure(f"expected finite states, got NaN or inf in {self.found.names[layer]}: {how}")
        is_sink = ~is_special & (places[:, 2] == 0) if self.found.causal else np.zeros(len(places), bool)
        ordinary = ~is_special & ~is_sink
        if ordinary.any():
            medians = np.median(norms[:, ordinary], axis=1)
            is_sink |= ~is_special & (norms > GIANT * medians[:, None]).any(0)
        for kind, chosen in enumerate((is_special, is_sink)):
            self.sums.apart[kind] += [chosen.sum(), *norms[:, chosen].astype(np.float64).sum(1)]
        kept = ~is_special & ~is_sink
        chosen = torch.from_numpy(np.flatnonzero(kept)).to(self.found.device)
        states = (_moved_up(x, chosen) for x in layers)
        on_gpu = self.found.device.type == "cuda"
        try:
            self.sums.update([x if on_gpu else x.cpu().numpy() for x in states], norms[:, kept], places[kept])
        except NotFiniteError as error:
            raise UndefinedMeasure(str(error)) from error


def _moved_up(x: Tensor, chosen: Tensor) -> Tensor:
    """The rows `chosen` (ascending) of `x`, moved to its beginning in place, some at a time."""
    if len(chosen) < len(x):
        for begin in range(0, len(chosen), _MOVED):
            rows = chosen[begin : begin + _MOVED]
            x[begin : begin + len(rows)] = x[rows]
    return x[: len(chosen)]


def _stretches(source: Sequences, begun: int, left: int, stretch: int) -> Iterator[tuple[list[Array], int]]:
    """Runs of whole sequences of some `stretch` ids, each with the tokens of the text in it.

    At most `left` tokens behind the first `begun` sequences, those in no sum among them; of the first sequence as many
    as fit.
    """
    special = template_of(source.tokenizer)
    frame = len(special.before) + len(special.after)
    part, size, read = list[Array](), 0, 0
    for number, ids in enumerate(source):
        if number < begun:
            continue
        tokens = len(ids) - frame
        if tokens > left:
            if number == 0:
                yield [ids[: len(special.before) + left]], left
                return
            break
        left -= tokens
        part.append(ids)
        size, read = size + len(ids), read + tokens
        if size >= stretch:
            yield part, read
            part, size, read = [], 0, 0
    if part:
        yield part, read


def _digest(found: LayeredModel, sources: Sequence[TextSource], options: tuple[Any, ...]) -> str:
    """Of what the sums depend on: the tokenizer, the options, and when the files of model and texts were written."""
    digest = hashlib.sha256(repr(options).encode())
    digest.update(found.tokenizer.to_str().encode())
    for path, part in [*((path, None) for path in found.files), *((one.path, one.part) for one in sources)]:
        told = path.stat()
        digest.update(f"{path.name}{part}{told.st_size}{told.st_mtime_ns}".encode())
    return digest.hexdigest()


def _states(
    name: str, found: LayeredModel, sums: StateSums, source: Sequences, stopped: bool, run: _Run
) -> LayerStates:
    with undisturbed(found.model):
        head = found.head()
        last, why = _last(name, found, run)
    notes = list(dict.fromkeys(found.notes))
    if source.cut:
        notes.append(f"{source.cut:,} passages were longer than {found.longest} ids and cut into windows.")
    number = np.maximum(sums.apart[:, :1], 1)
    labels = tuple(found.tokenizer.id_to_token(i) for i in range(found.rows))
    return LayerStates(
        name=name,
        layers=found.names,
        moments=tuple(m.finish() for m in sums.moments),
        intervals=tuple(sums.blocks.mean_cosine_interval(layer) for layer in range(len(found.names))),
        sample=sums.sample(),
        counts=sums.counts,
        apart=np.concatenate([sums.apart[:, :1], sums.apart[:, 1:] / number], axis=1),
        labels=labels,
        causal=found.causal,
        sequences=sums.sequences,
        stopped=stopped,
        head=head,
        read=found.read,
        why_no_head=found.why_no_head,
        notes=tuple(notes),
        last=last,
        why_no_last=why,
    )


def _last(name: str, found: LayeredModel, run: _Run) -> tuple[States | None, str]:
    """What the head read, checked against the model's own logits; None, and why, where its logits do not follow."""
    windows = [window for window in run.windows if len(window) > 1]
    if run.kept is None or found._head is None or sum(map(len, windows)) - len(windows) < _FEWEST:
        return None, ""
    states = torch.cat(run.states)
    run.states = []
    try:
        return described(found.model, found._head, states, windows, name), ""
    except UnsupportedModel as error:
        return None, str(error)
