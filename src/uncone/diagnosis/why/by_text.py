"""What texts show about a model: one part for each question."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from uncone.diagnosis.record import Subject
from uncone.diagnosis.why.direction.negative_direction import uniformly_negative_direction
from uncone.diagnosis.why.layers.record import LayerProfile, LogitSpectrum
from uncone.diagnosis.why.reach import settable, unreachable
from uncone.diagnosis.why.record import Explanation
from uncone.errors import InputError, UnconeError, UndefinedMeasure, UnsupportedModel
from uncone.model.counts import as_counts, is_counts
from uncone.model.open import Opened
from uncone.model.text_sources import TextSource
from uncone.model.token_counts import count_tokens
from uncone.roles import Path_, Progress
from uncone.rows import Array
from uncone.rows.parts import Engine
from uncone.tokens.record import TokenFrequencies
from uncone.tokens.token_frequencies import token_frequencies

MOST_TOKENS, MOST_TARGETS = 100_000, 8192  # for a run of the model, and for the gradients, which cost more per token
_CHARACTERS = 16  # the usual most per token: this much of a text is kept for the run of the model
NEEDS = "hidden states and gradients need torch and transformers (pip install 'uncone[hf]')"


@dataclass
class TextReading:
    """`notes` give the reason if a part could not be read."""

    model: Opened
    texts: tuple[TextSource, ...]
    counts: Array  # (V,), from `counted_in`
    frequencies: TokenFrequencies
    counted_in: str
    tokens: int
    progress: Progress | None
    reach: bool
    notes: list[str]
    parts: dict[str, Any] = field(default_factory=dict)  # of `Explanation`
    _layers: Any = None  # `LayerStates`, once the model has run

    @property
    def logits(self) -> LogitSpectrum | None:
        profile: LayerProfile | None = self.parts.get("layers")
        return profile.logits if profile else None

    def read_layers(
        self, *, resume: Path_ | None, device: str | None, dtype: str | None, engine: Engine | None
    ) -> None:
        """Run the model over the texts, and read the states of every layer."""
        if any(find_spec(package) is None for package in ("torch", "transformers")):
            self.notes.append(f"Only frequencies were read: {NEEDS}.")
            return
        from uncone.diagnosis.why.layers.layers import describe
        from uncone.model.hidden_states import hidden_states_of

        how: dict[str, Any] = {"resume": resume, "device": device, "dtype": dtype, "engine": engine}
        try:
            self._layers = hidden_states_of(
                self.model, self.texts, most=self.tokens, last=True, progress=self.progress, **how
            )
            of = describe(self._layers, counts=self.counts, progress=self.progress)
            self.parts["layers"] = replace(of, text_tokens=self.frequencies.tokens.total)
        except (UnsupportedModel, UndefinedMeasure) as error:  # other errors concern the whole diagnosis
            self.notes.append(f"The layers could not be read: {error}.")

    def read_head(self) -> None:
        """The direction that states avoid, gradients, margins, and tokens out of reach."""
        layers = self._layers
        if not layers:  # a note gives the reason
            return
        states, sample = self._last_states(), layers.sample
        hidden, norm, windows = sample.layers[-1 if layers.read is None else layers.read], None, sample.segments
        head = layers.head and (layers.head.weight, layers.head.bias)
        last, scale = None, 1.0
        if states:
            hidden, norm, windows, last = states.states, states.norm, states.windows, states.states
            head, scale = (states.head, states.bias), states.scale
        avoided = "The direction that all states avoid"
        self._read("direction", avoided, uniformly_negative_direction, hidden, norm=norm, windows=windows)
        if states:
            from uncone.diagnosis.why.gradients.gradients import gradient_ledger
            from uncone.diagnosis.why.margins.margins import margin_claim

            some, n = states.some(MOST_TARGETS), len(states.labels)
            if len(some.labels) < n:
                self.notes.append(f"The gradients cover {MOST_TARGETS:,} of {n:,} targets, evenly spaced in the text.")
            how = {"counts": self.counts, "counted_in": self.counted_in}
            self._read("gradients", "The gradients", gradient_ledger, some, **how)
            self._read("margins", "The margins", margin_claim, states)
        if head and not self.reach:
            (v, d), work = head[0].shape, unreachable.MOST_WORK + settable.MOST_WORK
            self.notes.append(
                f"We did not search the head ({v:,} x {d:,}) for tokens that can never be predicted or sets that can "
                f"be set freely. --reach (reach=True) does so with up to {work / 1e12:.0f} trillion multiplications, "
                "minutes on two cores."
            )
        elif head:
            what, of = "The tokens that can never be predicted", {"labels": layers.labels, "scale": scale}
            self._read("unreachable", what, unreachable.unreachable_tokens, *head, states=last, **of)
            self._read("settable", "The tokens that can be set freely", settable.settable_tokens, head[0], states=last)

    def explanation(self, subjects: Sequence[Subject]) -> Explanation:
        """The record. Its first clauses describe how frequency shapes the rows of `subjects`."""
        verdicts = (part.verdict for part in self.parts.values())
        first = (re.split(r"(?<=\.) (?=[A-Z])", verdict, maxsplit=1)[0] for verdict in verdicts)
        shaped = (f"Rows of {s.name}: {s.by_count.verdict}" for s in subjects if s.by_count)
        return Explanation((*shaped, *first), self.frequencies, **self.parts, notes=tuple(self.notes))

    def _last_states(self) -> Any:
        """The states that the head of a causal model reads at the beginning of the texts."""
        layers = self._layers
        if not layers.causal or not layers.head:
            why = "the model does not predict the next token" if layers.head else layers.why_no_head
            self.notes.append(f"Questions about the output head were left out: {why}.")
            return None
        if layers.why_no_last:
            self.notes.append(f"The gradients could not be read: {layers.why_no_last}.")
        return layers.last

    def _read(self, name: str, what: str, read: Callable[..., Any], *of: Any, **options: Any) -> None:
        """Read one part. If a model has no answer, the reason becomes a note."""
        try:
            self.parts[name] = read(*of, **options, progress=self.progress)
        except UnconeError as error:
            self.notes.append(f"{what} could not be read: {error}.")


def begin(
    spec: Any, text: Path_ | Sequence[Path_], *, counts: Any, tokens: int, progress: Progress | None, reach: bool
) -> TextReading:
    """Count the tokens of texts. InputError: no whole model with a tokenizer, no text, an empty text or a text not in
    UTF-8."""
    if not isinstance(spec, Opened) or spec.part is not None or not spec.is_model:
        raise InputError("expected a whole model with a text, got only rows: give the model's directory")
    texts = (text,) if isinstance(text, str | os.PathLike) else tuple(text)
    for one in filter(is_counts, texts):
        raise InputError(f"expected a text, got the counts {Path(one).name}: pass them as counts, and a text as well")
    counted = count_tokens(spec, texts, words=False, keep=_CHARACTERS * tokens, progress=progress)
    used, notes, counted_in = counted.counts, list[str](), "in these texts"
    if counts is not None:
        given = as_counts(counts, counted.vocabulary.size, counted.vocabulary.labels)
        used, notes, counted_in = given.counts, [*given.notes], "in the counts given"
    of = token_frequencies(counted)
    return TextReading(spec, counted.texts, used, of, counted_in, tokens, progress, reach, notes)
