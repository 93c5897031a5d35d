"""What a run of a model over texts leaves."""

from dataclasses import dataclass
from typing import Any

from uncone.model.state_sums import Sample
from uncone.moments import Moments
from uncone.rows import Array


@dataclass(frozen=True, eq=False)
class Head:
    """Its logits are cap tanh(z / cap) of z = scale (states @ weight.T) + bias."""

    weight: Array  # (V, D) float32
    bias: Array | None  # (V,) float32
    cap: float | None = None
    scale: float = 1.0


@dataclass(frozen=True, eq=False)
class LayerStates:
    """The states of each layer of a model on texts, and the head that reads them."""

    name: str
    layers: tuple[str, ...]
    """"embeddings", "layer 1", ...; of a decoder "final norm" behind the last one, of a masked model "before the
    head"."""
    moments: tuple[Moments, ...]
    intervals: tuple[tuple[float, float] | None, ...]
    """Of the mean cosine of each layer, 95%, over stretches of the text."""
    sample: Sample
    counts: Array  # (V,): how often each id was read
    apart: Array  # (2, 1 + layers): of special positions and of sinks the number, and the mean norm in each layer
    labels: tuple[str | None, ...]  # the token of each id
    causal: bool
    sequences: int
    stopped: bool  # before `most` tokens, as the intervals were narrow
    head: Head | None
    read: int | None  # which of the layers the head reads
    why_no_head: str
    notes: tuple[str, ...]
    last: Any = None  # `States` of the same run, where they were asked for and the model is causal with a linear head
    why_no_last: str = ""
    cut: str = ""  # how the text was cut

    @property
    def tokens(self) -> int:
        """In the sums: without special tokens and sinks."""
        return self.moments[0].n
