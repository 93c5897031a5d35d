"""The part of a diagnosis about hidden states: each layer, and the logits of head and states together."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from uncone.records.blocks import (
    Blocks,
    Bullets,
    Cell,
    Chart,
    Cloud,
    Curve,
    Figure,
    Folded,
    HeatMap,
    Mark,
    Row,
    Table,
    Text,
)
from uncone.records.brief import part
from uncone.records.layout import numbers, section, shown
from uncone.records.parts import Level, Picture
from uncone.records.rebuild import expect
from uncone.records.text import Limits, count, number, optional, percent
from uncone.records.tokens import Estimate

_COSINES: Limits = (-1.0, 1.0)
_LINES = ("raw", "mean cosine"), ("centred", "same token, less the mean"), ("isotropic", "same segment, less the mean")
_READING = (
    "Mean cosine: of two random states, with a 95% interval from states of different stretches. Self: mean cosine of "
    "two states of the same token. Intra: mean cosine of a state and its segment's mean. MEV: share of the first "
    "singular direction of a token's states. A baseline is subtracted from all three: the layer's mean cosine, or for "
    "MEV its value for as many random states. A state is part of its segment's mean, so intra is above 0 for random "
    "tokens too: brackets show that value. Effective rank: next to the value of an isotropic cloud. First direction: "
    "its share of the sum of squares as stored, and of the variance. Rogue: the largest share of the mean cosine in "
    "one dimension. Within clusters: mean cosine of different tokens after subtracting each cluster's mean."
)


@part
class LayerReading:
    """The states of one layer, without special tokens and sinks. None: undefined, or a package is missing.

    No baseline is subtracted from `self_similarity`, `intra_similarity` and `mev`. Their baselines are `mean_cosine`,
    `mean_cosine` (`intra_random` for as many random tokens) and `mev_random`.
    """

    name: str  # `embeddings`, `layer 1`, ..., `final norm` or `before the head`
    n: int  # states
    d: int  # columns
    mean_cosine: Estimate  # of two states, with a 95% interval from states of different stretches
    anisotropy_raw: float | None  # share of the first direction in the sum of squares
    anisotropy: float | None  # share of the first direction in the variance
    effective_rank: float | None  # of the centred states
    effective_rank_isotropic: float | None  # of as many isotropic rows
    rogue_share: float | None  # largest share of the mean cosine that one dimension has
    rogue_dimensions: tuple[int, ...]  # the leading three
    outlier_dimensions: tuple[int, ...]  # dimensions whose mean stands out, eight at most
    mean_norm: float  # of a state
    largest_norm: float  # of a state
    special_norm: float | None  # mean norm of special tokens
    sink_norm: float | None  # mean norm of sinks
    alpha: float | None  # alpha-ReQ of the variances
    alpha_ranks: tuple[int, int] | None  # first and last rank that were fitted
    dimensions_90: int | None  # directions with 90% of the variance
    dimensions_99: int | None  # directions with 99%
    self_similarity: float | None  # mean cosine of two states of one token
    self_tokens: int  # tokens that the mean is over
    intra_similarity: float | None  # mean cosine of a state and the mean of its segment
    intra_random: float | None  # the same for random tokens
    mev: float | None  # share of the first singular direction of a token's states
    mev_random: float | None  # the same for as many random states
    two_nn: Estimate  # TwoNN dimension of the sample
    clusters: int | None  # clusters that k-means finds
    cluster_inter: float | None  # mean cosine of different tokens within a centred cluster
    cluster_intra: float | None  # mean cosine of states of one token within a centred cluster
    histogram: tuple[float, ...]  # share of pairs of states in each bin of cosine

    def less(self, name: str, baseline: str = "mean_cosine") -> float | None:
        value, base = getattr(self, name), getattr(self, baseline)
        base = base.value if isinstance(base, Estimate) else base
        return None if value is None or base is None else float(value - base)


@part
class LogitSpectrum:
    """Without the mean logit of each state, which changes no probability."""

    verdict: str  # whether logits use their directions
    level: Level  # `healthy`, `warning` or `severe`
    layer: str  # the layer that the head reads
    vocabulary: int  # rows of the head
    dimensions: int  # columns of the head
    tokens: int  # states
    effective_rank: float  # of logits, between contexts
    effective_rank_raw: float  # with what all contexts share
    head_rank: float  # of the head alone, its mean row subtracted
    most: int  # the smaller of V - 1 and D
    reference: float  # of an isotropic head and isotropic states
    mean_share: float  # share of squared logits that are the same in every context
    capped: bool  # the model caps its logits: its head was read as stored
    values: tuple[float, ...]  # singular values, falling
    isotropic: tuple[float, ...]  # singular values of the isotropic pair

    def blocks(self) -> Blocks:
        ranks = {
            "logits, between contexts": self.effective_rank,
            "logits, with what all contexts share": self.effective_rank_raw,
            "head alone, mean row subtracted": self.head_rank,
            "isotropic head and states": self.reference,
        }
        limits, of = (1.0, float(self.most)), self.reference
        rows = ((name, number(rank, limits=limits), percent(rank / of) if of else "-") for name, rank in ranks.items())
        curves = tuple(
            Curve(name, tuple(map(float, range(1, len(values) + 1))), values, style)
            for name, values, style in (("logits", self.values, "raw"), ("isotropic", self.isotropic, "isotropic"))
            if len(values) > 1
        )
        names = ("logit spectrum", "Logit spectrum", "rank", "singular value (root mean square logit)")
        chart = Chart(*names, curves, log_x=True, log_y=True)
        head = "The model caps its logits, so its head is read as stored. " * self.capped
        about = (
            f"Singular values of the centred logits of {count(self.tokens)} states ({self.layer}) over a vocabulary of "
            f"{count(self.vocabulary)}: at most {count(self.most)} directions. A map between head and states, or a row "
            f"added to all rows of the head, changes none of them. {head}A share of "
            f"{percent(self.mean_share)} of the squared logits is the same in every context, like a bias."
        )
        return section(
            "What head and states do together",
            Text(self.verdict, "lead"),
            numbers(("effective rank of", "dimensions", "of isotropic"), rows),
            Figure("Logit spectrum", (chart,) if curves else ()),
            Text(about, "quiet"),
        )


@part
class LayerProfile:
    verdict: str  # where in the layers a common direction arises
    name: str  # the model
    tokens: int  # states in the sums, of each layer
    sequences: int  # lines, documents or windows that were read
    special: int  # special tokens, which are kept apart
    sinks: int  # first positions of a decoder and giant states, which are kept apart
    stopped: bool  # whether the run ended early because the intervals were narrow
    layers: tuple[LayerReading, ...]  # from the embeddings on
    edges: tuple[float, ...]  # of the bins of cosine
    logits: LogitSpectrum | None = None  # of head and states together
    no_logits: str = ""  # why there is no logit spectrum
    pictured: tuple[str, ...] = ()  # layers that are drawn
    pictures: tuple[Picture, ...] = ()  # a picture of each
    notes: tuple[str, ...] = ()  # remarks on the run
    cut: str = ""  # how the text was cut for the run
    text_tokens: int = 0  # tokens of the whole text; 0 if they were not counted

    def __post_init__(self) -> None:
        are_whole = all(len(layer.histogram) in (0, len(self.edges) - 1) for layer in self.layers)
        expect(are_whole, "a share for each bin of cosine in each layer, got another number: the file was cut")
        pictured, drawn = len(self.pictured), len(self.pictures)
        expect(pictured == drawn, f"a layer for each picture, got {pictured} for {drawn}")

    def blocks(self) -> Blocks:
        clouds = (
            Cloud(f"cone of {name}", f"Contextual states, {name}", picture)
            for name, picture in zip(self.pictured, self.pictures, strict=True)
        )
        similarities, directions, variance, apart = map(self._table, *_TABLES)
        figures = tuple(chart for chart in (self._lines(), self._heat()) if chart)
        return shown(
            section(
                "Hidden states, layer by layer",
                Text(self.verdict, "lead"),
                Text(self._size(), "quiet"),
                similarities,
                directions,
                Figure("Layers", figures, legend=_LINES, spark="Layers"),
                Folded("Variance, clusters and sinks", shown(variance, replace(apart, numbers=apart.columns[1:3]))),
                Text(_READING, "quiet"),
                *(Figure(cloud.title, (cloud,)) for cloud in clouds),
                Bullets(self.notes),
            ),
            self.logits.blocks() if self.logits else (),
            Text(self.no_logits and f"Logit spectrum: {self.no_logits}.", "quiet"),
        )

    def _size(self) -> str:
        apart = f"kept apart: {count(self.special)} special tokens and {count(self.sinks)} sinks"
        apart += "; the run stopped early because the intervals were narrow" * self.stopped
        read, cut = self.tokens + self.sinks, f", {self.cut}" if self.cut else ""
        which = f"The first {count(read)} of {count(self.text_tokens)} tokens"
        if read >= self.text_tokens:
            which = f"All {count(read)} tokens" if self.text_tokens else f"{count(read)} tokens"
        return f"{which} in {count(self.sequences)} sequences{cut}; {apart}"

    def _table(self, columns: Sequence[str], row: Callable[[LayerReading], Sequence[str | Cell]]) -> Table:
        return numbers(("layer", *columns), ((layer.name, *row(layer)) for layer in self.layers))

    def _lines(self) -> Chart | None:
        if len(self.layers) < 2:
            return None
        x = tuple(map(float, range(len(self.layers))))
        cosines = (
            (one.mean_cosine.value, one.less("self_similarity"), one.less("intra_similarity")) for one in self.layers
        )
        curves = tuple(
            Curve(name, x, y, style, dots=style == "raw")
            for (style, name), y in zip(_LINES, zip(*cosines, strict=True), strict=True)
        )
        labels, marks = ("Cosines by layer", "layer (0: embeddings)", "cosine"), (Mark(0.0, "y", "isotropic"),)
        return Chart("layers", *labels, curves, marks=marks, spark="mean cosine")

    def _heat(self) -> HeatMap | None:
        with_pairs = {float(i): layer.histogram for i, layer in enumerate(self.layers) if layer.histogram}
        if len(with_pairs) < 2:
            return None
        middles = tuple((a + b) / 2 for a, b in pairwise(self.edges))
        names = ("layer cosines", "Cosines of pairs of states", "cosine", "layer (0: embeddings)", "share of pairs")
        caption = "Condensation: where pairs of unrelated tokens move to large cosines, the layer is a narrow cone."
        return HeatMap(*names, middles, tuple(with_pairs), tuple(with_pairs.values()), caption=caption)


def _similar(layer: LayerReading) -> Row:
    ends, at_random = layer.mean_cosine.interval, layer.less("intra_random")
    own, intra = (optional(layer.less(name), _COSINES) for name in ("self_similarity", "intra_similarity"))
    return (
        Cell(
            optional(layer.mean_cosine.value, _COSINES),
            f"± {number((ends[1] - ends[0]) / 2, digits=2)}" if ends else "",
        ),
        own,
        Cell(intra, "" if at_random is None else f"({number(at_random, limits=_COSINES)})"),
        optional(layer.less("mev", "mev_random"), _COSINES),
        Cell(optional(layer.effective_rank), f"of {optional(layer.effective_rank_isotropic)}"),
    )


def _directions(layer: LayerReading) -> tuple[Cell, ...]:
    raw, centred, rogue = (
        optional(share, shown=percent) for share in (layer.anisotropy_raw, layer.anisotropy, layer.rogue_share)
    )
    dimension = f"dimension {layer.rogue_dimensions[0]}" if layer.rogue_dimensions else ""
    norm = Cell(number(layer.mean_norm), f"largest {number(layer.largest_norm)}")
    return Cell(raw, f"centred {centred}"), Cell(rogue, dimension), norm


def _variance(layer: LayerReading) -> Row:
    most, all_, clusters = (
        optional(n, shown=count) for n in (layer.dimensions_90, layer.dimensions_99, layer.clusters)
    )
    ranks, limits = layer.alpha_ranks, (0.0, None)
    ends = " to ".join(number(end, limits=limits) for end in layer.two_nn.interval or ())
    alpha = Cell(optional(layer.alpha), f"ranks {ranks[0]} to {ranks[1]}" if ranks else "")
    within = (optional(cosine, _COSINES) for cosine in (layer.cluster_inter, layer.cluster_intra))
    return most, all_, alpha, Cell(optional(layer.two_nn.value, limits), ends), clusters, *within


def _apart(layer: LayerReading) -> tuple[str, ...]:
    outliers = ", ".join(map(str, layer.outlier_dimensions)) or "none"
    return optional(layer.special_norm), optional(layer.sink_norm), outliers


_TABLES = (
    (
        ("mean cosine", "self", "intra", "MEV", "effective rank"),
        ("first direction", "rogue", "norm"),
        ("90% of variance", "99%", "alpha-ReQ", "TwoNN", "clusters", "within clusters", "same token"),
        ("norm of special tokens", "norm of sinks", "dimensions whose mean stands out"),
    ),
    (_similar, _directions, _variance, _apart),
)
