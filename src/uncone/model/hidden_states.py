"""The states of every layer of a language model on texts, summed as they come, and a bounded sample."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from uncone.errors import InputError, UndefinedMeasure, UnsupportedModel
from uncone.memory import check_memory, give_back
from uncone.model.head_map import undisturbed
from uncone.model.last_states import States, described
from uncone.model.layer_reader import LayerReader, Maker, ReadUnit, Stretch, Unit
from uncone.model.layer_states import LayerStates
from uncone.model.layered_model import LayeredModel, open_layered
from uncone.model.open import open_whole
from uncone.model.sequences import Sequences, template_of
from uncone.model.state_sums import StateSums
from uncone.model.text_sources import TextSource
from uncone.roles import Path_, Progress
from uncone.rows import GRID, Array
from uncone.rows.parts import Engine

SAMPLE = 8192  # tokens of the sample, or fewer where the layers are wide
_STRETCH_BYTES = 2**28
_LEAST = 512
_ENOUGH = 20  # tokens per column before a run may stop: spectra need more than mean cosines
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
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> LayerStates:
    """Run a model over texts in batches of like lengths, and sum the states of each layer.

    An encoder reads each line or document as a sequence; a decoder reads running text in windows. A longer passage is
    cut into windows of at most 512 ids, or of the positions that the model has. Special tokens, the first position of a
    decoder and giant states (sinks) are left out of the sums and counted separately.

    At most `most` tokens are summed, `sample` of them kept, and `batch` ids with padding run at once. The run stops
    once the 95% interval of each layer's mean cosine is narrower than `width`. The sums are kept in the file `resume`.
    With `last`, the states that the head of a causal model reads are kept too, as in `states_of`. With an `engine`,
    several workers run the model, each on units of at least 20 tokens per column. Their sums are merged in the order of
    the text, so any number of workers gives the same bytes, but may stop a little later than this process alone.
    """
    opened = open_whole(model)
    if most < 2:
        raise InputError(f"expected at least 2 tokens to read, got {most}: 100,000 is usual")
    found = open_layered(opened, device=None if engine else device, dtype=dtype)
    per_token = 4 * sum(found.widths)
    kept = min(sample, max(_LEAST, 2**29 // per_token))
    stretch = max(_LEAST, min(GRID, 1 << (max(1, _STRETCH_BYTES // per_token).bit_length() - 1)))
    sums = StateSums(found.widths, found.rows, sample=kept, seed=seed)
    read = found.read if last and found.causal else None
    if read is not None:
        d = found.widths[read]
        check_memory(8 * most * d, f"states of {most} tokens and {d} columns", "read fewer tokens")
    digest = _digest(found, sources, (stretch, kept, seed, str(dtype)))
    if resume is not None and Path(resume).exists():
        sums.load(resume, digest)
    source = Sequences(sources, found.tokenizer, template_of(found.tokenizer), found.longest, found.causal, found.rows)
    on_gpu = found.device.type == "cuda" or (device or "").startswith("cuda")
    at_once = batch or (2**15 if on_gpu else 4096)
    maker = Maker(os.path.abspath(opened.path), device, dtype, at_once, stretch, kept, seed, read)
    run = _Run(found, sums, source, maker)
    save = None if resume is None else lambda: sums.save(resume, digest)
    stopped = run.over(most, width, engine, save, progress)
    if sums.tokens < 2:
        few = f"got {sums.tokens}: give a longer text"
        raise UndefinedMeasure(f"expected at least two tokens that are not special, first in a window or sinks, {few}")
    with undisturbed(found.model):
        head = found.head()
        last_states, why_no_last = run.last(opened.name)
    cut = f"{source.cut:,} passages were longer than {found.longest} ids and were cut into windows."
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
    """A run over texts, in this process or by an engine."""

    def __init__(self, found: LayeredModel, sums: StateSums, source: Sequences, maker: Maker) -> None:
        self.found, self.sums, self.source, self.maker = found, sums, source, maker
        self.windows, self.states = list[Array](), list[torch.Tensor]()
        self._reader: LayerReader | None = None

    def over(
        self,
        most: int,
        width: float | None,
        engine: Engine | None,
        save: Callable[[], None] | None,
        progress: Progress | None,
    ) -> bool:
        """Read until the texts end, `most` tokens are summed or the intervals are narrow (then True)."""
        work = self._here if engine is None else partial(self._by, engine)
        if self.maker.kept is not None and self.sums.sequences:  # an earlier run saved sums but no states
            for _ in work(self._begun(most), 0, is_counted=False):
                pass
        if self.sums.sequences and self._is_narrow(width):  # this resumes a run that had ended
            return True
        saved, stop, begun = 0, False, self.sums.sequences
        stretches = self._stretches(begun, most - self.sums.read)
        for turn, _ in enumerate(work(stretches, begun, is_counted=True), 1):
            give_back()
            if progress is not None:
                progress("reading hidden states", min(self.sums.tokens, most), most)
            stop = self._is_narrow(width)
            if save is not None and (stop or engine is not None or turn % _SAVED_EVERY == 0):
                save()
                saved = self.sums.sequences
            if stop:
                break
        if save is not None and saved != self.sums.sequences:
            save()
        return stop

    def _here(self, stretches: Iterator[Stretch], first: int, *, is_counted: bool) -> Iterator[None]:
        if self._reader is None:
            of = self.maker
            self._reader = LayerReader(self.found, of.batch, of.stretch, of.kept)
        for stretch in stretches:
            self._take(self._reader.read([stretch], self.sums if is_counted else None))
            yield

    def _by(self, engine: Engine, stretches: Iterator[Stretch], first: int, *, is_counted: bool) -> Iterator[None]:
        least = _ENOUGH * max(self.found.widths)

        def units() -> Iterator[Unit]:
            number, unit = first, list[Stretch]()
            for stretch in stretches:
                unit.append(stretch)
                if sum(read for _, read in unit) >= least:
                    yield Unit(tuple(unit), number, is_counted)
                    number, unit = number + sum(len(sequences) for sequences, _ in unit), []
            if unit:
                yield Unit(tuple(unit), number, is_counted)

        on_gpu = (self.maker.device or "").startswith("cuda")
        for one in engine.each(self.maker, units(), on_gpu=on_gpu):
            if one.sums is not None:
                self.sums.absorb(one.sums)
            self._take(one)
            yield

    def _take(self, one: ReadUnit) -> None:
        self.windows += one.windows
        self.states += one.states
        self.found.notes[:] = dict.fromkeys([*self.found.notes, *one.notes])

    def _begun(self, most: int) -> Iterator[Stretch]:
        """The stretches that the sums already hold."""
        left = self.sums.sequences
        for stretch in self._stretches(0, most):
            if left <= 0:
                return
            yield stretch
            left -= len(stretch[0])

    def last(self, name: str) -> tuple[States | None, str]:
        windows, head = [torch.tensor(window) for window in self.windows if len(window) > 1], self.found.linear
        if self.maker.kept is None or head is None or sum(map(len, windows)) - len(windows) < 2:
            return None, ""
        states, self.states = torch.cat(self.states), []
        try:
            return described(self.found.model, head, states, windows, name), ""
        except UnsupportedModel as error:
            return None, str(error)

    def _stretches(self, begun: int, left: int) -> Iterator[Stretch]:
        """Whole sequences of about `stretch` ids, and how many tokens of the text are in them.

        At most `left` tokens after the first `begun` sequences. The first sequence of all is cut to fit.
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
            if size >= self.maker.stretch:
                yield part, read
                part, size, read = [], 0, 0
        if part:
            yield part, read

    def _is_narrow(self, width: float | None) -> bool:
        if width is None or self.sums.tokens < _ENOUGH * max(self.found.widths):
            return False
        ends = map(self.sums.blocks.mean_cosine_interval, range(len(self.found.widths)))
        return all(one is not None and one[1] - one[0] < width for one in ends)


def _digest(found: LayeredModel, sources: Sequence[TextSource], options: tuple[Any, ...]) -> str:
    """Digest of all that the sums depend on. Files count by name, part, size and time of writing."""
    digest = hashlib.sha256(repr(options).encode())
    digest.update(found.tokenizer.to_str().encode())
    for path, part in [*((path, None) for path in found.files), *((one.path, one.part) for one in sources)]:
        stat = path.stat()
        digest.update(f"{path.name}{part}{stat.st_size}{stat.st_mtime_ns}".encode())
    return digest.hexdigest()
