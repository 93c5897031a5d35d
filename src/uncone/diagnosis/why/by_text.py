"""Why? What texts say of a model: a part for each question."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from uncone.diagnosis.record import Subject
from uncone.diagnosis.why.direction.negative_direction import uniformly_negative_direction
from uncone.diagnosis.why.direction.record import NegativeDirection
from uncone.diagnosis.why.gradients.record import GradientLedger
from uncone.diagnosis.why.layers.record import LayerProfile, LogitSpectrum
from uncone.diagnosis.why.margins.record import MarginClaim
from uncone.diagnosis.why.reach import settable, unreachable
from uncone.diagnosis.why.reach.record import SettableTokens, UnreachableTokens
from uncone.diagnosis.why.record import Explanation
from uncone.errors import InputError, UnconeError, UndefinedMeasure, UnsupportedModel
from uncone.model.counts import as_counts, is_counts
from uncone.model.open import is_model, split
from uncone.model.text_sources import open_texts
from uncone.model.token_counts import count_tokens
from uncone.roles import Path_, Progress
from uncone.rows import Array
from uncone.tokens.record import TokenFrequencies
from uncone.tokens.token_frequencies import token_frequencies

MOST_TOKENS = 100_000
NEEDS = "hidden states and gradients need torch and transformers (pip install 'uncone[hf]')"


@dataclass
class TextReading:
    """What was read of a model's texts, part by part; a part that could not be read has its reason in `notes`."""

    spec: Path_
    texts: tuple[Path_, ...]
    counts: Array  # (V,) as given, or in these texts
    frequencies: TokenFrequencies
    counted_in: str  # where `counts` come from, in words
    tokens: int
    progress: Progress | None
    runs: bool  # what runs models is installed
    reach: bool  # search which tokens can be predicted, and which can be set freely
    profile: LayerProfile | None = None
    direction: NegativeDirection | None = None
    gradients: GradientLedger | None = None
    margins: MarginClaim | None = None
    unreachable: UnreachableTokens | None = None
    settable: SettableTokens | None = None
    notes: list[str] = field(default_factory=list)
    _layers: Any = None  # `LayerStates`, once the model has run

    @property
    def logits(self) -> LogitSpectrum | None:
        """What head and states do together, where the model has a linear head."""
        return None if self.profile is None else self.profile.logits

    def read_layers(self, *, resume: Path_ | None, device: str | None, dtype: str | None) -> None:
        """Run the model over the texts, and read the states of every layer."""
        if not self.runs:
            return
        from uncone.diagnosis.why.layers.layers import describe
        from uncone.model.hidden_states import hidden_states_of

        # a device, a dtype or a file to resume from may be wrong: that is an error of the whole
        with self._or_note("The layers", (UnsupportedModel, UndefinedMeasure)):
            self._layers = hidden_states_of(
                self.spec,
                open_texts(self.texts),
                most=self.tokens,
                resume=resume,
                last=True,
                progress=self.progress,
                device=device,
                dtype=dtype,
            )
            self.profile = describe(self._layers, counts=self.counts, progress=self.progress)

    def read_head(self) -> None:
        """The direction that states avoid, the gradients of the head, and the tokens that it can never predict."""
        if not self.runs:
            return
        states = self._last_states()
        with self._or_note("The direction that all states avoid"):
            self.direction = self._direction(states)
        if states is not None:
            from uncone.diagnosis.why.gradients.gradients import gradient_ledger
            from uncone.diagnosis.why.margins.margins import margin_claim

            with self._or_note("The gradients"):
                self.gradients = gradient_ledger(
                    states, counts=self.counts, counted_in=self.counted_in, progress=self.progress
                )
            with self._or_note("The margins"):
                self.margins = margin_claim(states, progress=self.progress)
        layers = self._layers
        of = None if layers is None else layers.head
        head = (states.head, states.bias) if states is not None else None if of is None else (of.weight, of.bias)
        if head is not None and not self.reach:
            self.notes.append(_left_out(*head[0].shape))
        elif head is not None:
            with self._or_note("The tokens that can never be predicted"):
                weight, bias = head
                labels = None if self._layers is None else self._layers.labels
                last, scale = (None, 1.0) if states is None else (states.states, states.scale)
                self.unreachable = unreachable.unreachable_tokens(
                    weight, bias, labels=labels, states=last, scale=scale, progress=self.progress
                )
            with self._or_note("The tokens that can be set freely"):
                self.settable = settable.settable_tokens(weight, states=last, progress=self.progress)

    def explanation(self, subjects: Sequence[Subject]) -> Explanation:
        """The record; its first clauses are what frequency says of the rows of `subjects`."""
        parts = (self.profile, self.direction, self.gradients, self.margins, self.unreachable, self.settable)
        verdicts = (part.verdict for part in parts if part is not None)
        told = tuple(re.split(r"(?<=\.) (?=[A-Z])", verdict, maxsplit=1)[0] for verdict in verdicts)
        shaped = tuple(f"Rows of {s.name}: {s.by_count.verdict}" for s in subjects if s.by_count is not None)
        return Explanation((*shaped, *told), self.frequencies, *parts, tuple(self.notes))

    def _last_states(self) -> Any:
        """What the head of a causal model reads on the beginning of the texts."""
        layers = self._layers
        if layers is None:  # a note has said why
            return None
        if not layers.causal or layers.head is None:
            why = layers.why_no_head if layers.head is None else "the model does not predict the next token"
            self.notes.append(f"Questions of an output head were left out: {why}.")
            return None
        if layers.why_no_last:
            self.notes.append(f"The gradients could not be read: {layers.why_no_last}.")
        return layers.last

    def _direction(self, states: Any) -> NegativeDirection | None:
        norm = None
        if states is not None:
            hidden, norm, windows = states.states, states.norm, states.windows
        elif self._layers is not None:
            sample, layer = self._layers.sample, self._layers.read
            hidden, windows = sample.layers[-1 if layer is None else layer], sample.segments
        else:
            return None
        return uniformly_negative_direction(hidden, norm=norm, windows=windows, progress=self.progress)

    @contextmanager
    def _or_note(self, what: str, asked: Any = UnconeError) -> Iterator[None]:
        """A question that a model has no answer to becomes a note, and the others are asked."""
        try:
            yield
        except asked as error:
            self.notes.append(f"{what} could not be read: {error}.")


def _left_out(v: int, d: int) -> str:
    """That the searches of a head were not asked for, and what they take at most."""
    work = unreachable.MOST_WORK + settable.MOST_WORK
    return (
        f"Which tokens of the head ({v:,} x {d:,}) can never be predicted, and which sets can be set freely, was not "
        f"searched: --reach (reach=True) does, with up to {work / 1e12:.0f} trillion multiplications, minutes on two cores."
    )


def begin(
    spec: Any,
    text: Path_ | Sequence[Path_],
    *,
    counts: Any = None,
    tokens: int = MOST_TOKENS,
    progress: Progress | None = None,
    reach: bool = False,
) -> TextReading:
    """Count the tokens of texts, which are checked first.

    Raises:
        InputError: no whole model with a tokenizer, no text, or one that is empty or no UTF-8.
    """
    place, part = split(spec) if isinstance(spec, str | os.PathLike) else (None, None)
    if place is None or part is not None or not is_model(place):
        raise InputError("expected a whole model with a text, got rows alone: name the model's directory")
    texts = (text,) if isinstance(text, str | os.PathLike) else tuple(text)
    for one in filter(is_counts, texts):
        named = f"the counts {Path(one).name}: give them as counts, and a text beside them"
        raise InputError(f"expected a text, got {named}")
    open_texts(texts)
    counted = count_tokens(spec, texts, words=False, progress=progress)
    used, notes, of, counted_in = counted.counts, list[str](), counted.vocabulary, "in these texts"
    if counts is not None:
        given = as_counts(counts, of.size, of.labels)
        used, notes, counted_in = given.counts, [*given.notes], "in the counts given"
    runs = all(find_spec(package) is not None for package in ("torch", "transformers"))
    notes += [] if runs else [f"Only frequencies were read: {NEEDS}."]
    often = token_frequencies(counted)
    return TextReading(spec, texts, used, often, counted_in, tokens, progress, runs, reach, notes=notes)
