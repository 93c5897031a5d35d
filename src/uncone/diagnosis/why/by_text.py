"""Why? What texts say of a model: how often tokens occur, its layers, the direction states avoid, where the push comes
from."""

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
from uncone.model.open import Opened
from uncone.model.text_sources import TextSource
from uncone.model.token_counts import count_tokens
from uncone.roles import Path_, Progress
from uncone.rows import Array
from uncone.tokens.record import TokenFrequencies
from uncone.tokens.token_frequencies import token_frequencies

MOST_TOKENS = 100_000
_CHARACTERS = 16
"""Of a token, at most as a rule: so much of a text is kept from counting to the run of the model."""
NEEDS = "hidden states and gradients need torch and transformers (pip install 'uncone[hf]')"


@dataclass
class TextReading:
    """What was read of a model's texts, part by part; a part that could not be read has its reason in `notes`."""

    model: Opened
    texts: tuple[TextSource, ...]
    counts: Array
    """How often each token occurs: (V,) as given, or in these texts."""
    frequencies: TokenFrequencies
    counted_in: str
    """Where `counts` come from, in words."""
    tokens: int = MOST_TOKENS
    progress: Progress | None = None
    runs: bool = True
    """What runs models is installed."""
    reach: bool = False
    """Search which tokens can be predicted, and which can be set freely."""
    profile: LayerProfile | None = None
    direction: NegativeDirection | None = None
    gradients: GradientLedger | None = None
    margins: MarginClaim | None = None
    unreachable: UnreachableTokens | None = None
    settable: SettableTokens | None = None
    notes: list[str] = field(default_factory=list)
    _layers: Any = None
    """`LayerStates`, once the model has run."""

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
                self.model,
                self.texts,
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
        head = self._head(states)
        if head is not None and not self.reach:
            self.notes.append(_left_out(*head[0].shape))
        elif head is not None:
            with self._or_note("The tokens that can never be predicted"):
                weight, bias = head
                labels = None if self._layers is None else self._layers.labels
                last = None if states is None else states.states
                scale = 1.0 if states is None else states.scale
                self.unreachable = unreachable.unreachable_tokens(
                    weight, bias, labels=labels, states=last, scale=scale, progress=self.progress
                )
            with self._or_note("The tokens that can be set freely"):
                self.settable = settable.settable_tokens(weight, states=last, progress=self.progress)

    def explanation(self, subjects: Sequence[Subject]) -> Explanation:
        """The record; its first clauses are what frequency says of the rows of `subjects`."""
        parts = (self.profile, self.direction, self.gradients, self.margins, self.unreachable, self.settable)
        told = tuple(_first_sentence(part.verdict) for part in parts if part is not None)
        shaped = tuple(f"Rows of {s.name}: {s.by_count.verdict}" for s in subjects if s.by_count is not None)
        return Explanation((*shaped, *told), self.frequencies, *parts, tuple(self.notes))

    def _last_states(self) -> Any:
        """What the head of a causal model reads on the beginning of the texts."""
        if self._layers is None:  # a note has said why
            return None
        if not self._layers.causal or self._layers.head is None:
            why = self._layers.why_no_head if self._layers.head is None else "the model does not predict the next token"
            self.notes.append(f"Questions of an output head were left out: {why}.")
            return None
        if self._layers.why_no_last:
            self.notes.append(f"The gradients could not be read: {self._layers.why_no_last}.")
        return self._layers.last

    def _direction(self, states: Any) -> NegativeDirection | None:
        if states is not None:
            return uniformly_negative_direction(
                states.states, norm=states.norm, windows=states.windows, progress=self.progress
            )
        if self._layers is None:
            return None
        sample, layer = self._layers.sample, self._layers.read
        place = len(self._layers.layers) - 1 if layer is None else layer
        return uniformly_negative_direction(sample.layers[place], windows=sample.segments, progress=self.progress)

    def _head(self, states: Any) -> tuple[Any, Any] | None:
        if states is not None:
            return states.head, states.bias
        of = None if self._layers is None else self._layers.head
        return None if of is None else (of.weight, of.bias)

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
        f"Which tokens of the head ({v:,} x {d:,}) can never be predicted, and which sets can be set freely, was not searched: "
        f"--reach (reach=True) does, with up to {work / 1e12:.0f} trillion multiplications, minutes on two cores."
    )


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.) (?=[A-Z])", text, maxsplit=1)[0]


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
    if not isinstance(spec, Opened) or spec.part is not None or not spec.is_model:
        raise InputError("expected a whole model with a text, got rows alone: name the model's directory")
    texts = (text,) if isinstance(text, str | os.PathLike) else tuple(text)
    for one in filter(is_counts, texts):
        raise InputError(
            f"expected a text, got the counts {Path(one).name}: give them as counts, and a text beside them"
        )
    counted = count_tokens(spec, texts, words=False, keep=_CHARACTERS * tokens, progress=progress)
    notes, of = list[str](), counted.vocabulary
    if counts is not None:
        given = as_counts(counts, of.size, of.labels)
        notes += given.notes
    used = counted.counts if counts is None else given.counts
    runs = all(find_spec(package) is not None for package in ("torch", "transformers"))
    notes += [] if runs else [f"Only frequencies were read: {NEEDS}."]
    counted_in = "in these texts" if counts is None else "in the counts given"
    return TextReading(
        spec, counted.texts, used, token_frequencies(counted), counted_in, tokens, progress, runs, reach, notes=notes
    )
