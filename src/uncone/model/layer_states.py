"""The result of running a model over texts."""

from dataclasses import dataclass
from typing import Any

from uncone.model.state_sums import Sample
from uncone.moments import Moments
from uncone.rows import Array


@dataclass(frozen=True, eq=False)
class Head:
    """Its logits are cap tanh(z / cap), with z = scale (states @ weight.T) + bias."""

    weight: Array  # (V, D) float32
    bias: Array | None  # (V,) float32
    cap: float | None = None
    scale: float = 1.0


@dataclass(frozen=True, eq=False)
class LayerStates:
    """The states of each layer of a model on texts, and the head that reads them."""

    name: str
    layers: tuple[str, ...]
    """"embeddings", "layer 1", ..., and after the last layer "final norm" in a decoder, "before the head" in a masked
    model."""
    moments: tuple[Moments, ...]
    intervals: tuple[tuple[float, float] | None, ...]
    """95% intervals of the mean cosine of each layer, over stretches of the text."""
    sample: Sample
    counts: Array  # (V,): how often each id was read
    apart: Array  # (2, 1 + layers): for special positions and for sinks their number, and the mean norm in each layer
    labels: tuple[str | None, ...]  # the token of each id
    causal: bool
    sequences: int
    stopped: bool  # before `most` tokens, because the intervals were narrow
    head: Head | None
    read: int | None  # the index of the layer that the head reads
    why_no_head: str
    notes: tuple[str, ...]
    last: Any = None  # `States` of the same run, if requested and the model is causal with a linear head
    why_no_last: str = ""
    cut: str = ""  # how the text was cut

    @property
    def tokens(self) -> int:
        """Tokens in the sums, without special tokens and sinks."""
        return self.moments[0].n
