"""The part of a diagnosis on hidden states: a reading of each layer, and the logits that head and states make
together."""

from uncone.records.blocks import Block, Bullets, Cell, Chart, Cloud, Curve, Figure, Folded, HeatMap, Mark, Table, Text
from uncone.records.brief import part
from uncone.records.layout import section, shown
from uncone.records.parts import Level, Picture
from uncone.records.rebuild import expect
from uncone.records.text import Limits, count, number, optional, percent
from uncone.records.tokens import Estimate

_COSINES: Limits = (-1.0, 1.0)
_SHARES: Limits = (0.0, 1.0)
_LINES = (
    ("raw", "mean cosine"),
    ("centred", "same token, less the mean"),
    ("isotropic", "same segment, less the mean"),
)
_READING = (
    "Mean cosine: of two random states, with its 95% interval over stretches of the text. Self: mean cosine of two "
    "states of one token; intra: of a state and the mean of its segment; MEV: share of the first singular direction of "
    "a token's states. All three are less their baseline: the mean cosine of the layer, and for MEV that of as many "
    "random states. A state is part of the mean of its segment, so that intra is above 0 for random tokens too: that "
    "value is in brackets. Effective rank: of that of an isotropic cloud. First direction: share in the sum of squares "
    "as stored, and of the variance. Rogue: the largest share of the mean cosine that one dimension has. Within "
    "clusters: mean cosine of different tokens once each cluster's mean is taken out."
)


@part
class LayerReading:
    """The states of one layer, special tokens and sinks apart. What is undefined, or lacks a package, is None.

    `self_similarity`, `intra_similarity` and `mev` are values without a baseline taken off; theirs are `mean_cosine`,
    `mean_cosine` (`intra_random` for as many random tokens) and `mev_random`. `histogram` has the share of pairs of
    sampled states in each bin of cosine from -1 to 1.
    """

    name: str  # `embeddings`, `layer 1`, ..., `final norm` or `before the head`
    n: int  # states
    d: int  # columns
    mean_cosine: Estimate  # of two states, with its 95% interval over stretches of the text
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
    self_tokens: int  # tokens that it is the mean of
    intra_similarity: float | None  # mean cosine of a state and the mean of its segment
    intra_random: float | None  # the same of random tokens
    mev: float | None  # share of the first singular direction of a token's states
    mev_random: float | None  # the same of as many random states
    two_nn: Estimate  # TwoNN dimension of the sample
    clusters: int | None  # clusters that k-means finds
    cluster_inter: float | None  # mean cosine of different tokens within a centred cluster
    cluster_intra: float | None  # mean cosine of states of one token within a centred cluster
    histogram: tuple[float, ...]  # share of pairs of states in each bin of cosine

    def less(self, name: str, baseline: str = "mean_cosine") -> float | None:
        """A reading less its baseline; None where one of them is undefined."""
        value, base = getattr(self, name), getattr(self, baseline)
        base = base.value if isinstance(base, Estimate) else base
        return None if value is None or base is None else float(value - base)


@part
class LogitSpectrum:
    """The logits that a head makes of the states of a text, less the mean logit of each state, which no probability
    has.

    `effective_rank` counts the directions in which logits differ between contexts (of the states' covariance), `most`
    is min(V - 1, D), `reference` that of an isotropic head and isotropic states of as many rows. `mean_share` is the
    share of squared logits that all contexts have in common, as a bias would give them; `effective_rank_raw` counts
    that direction too. `head_rank` is the effective rank of the centred head alone.
    """

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
    isotropic: tuple[float, ...]  # those of the isotropic pair

    def blocks(self) -> tuple[Block, ...]:
        limits: Limits = (1.0, float(self.most))
        rows = tuple(
            (name, number(value, limits=limits), percent(value / self.reference) if self.reference else "-")
            for name, value in (
                ("logits, between contexts", self.effective_rank),
                ("logits, with what all contexts share", self.effective_rank_raw),
                ("head alone, mean row subtracted", self.head_rank),
                ("isotropic head and states", self.reference),
            )
        )
        curves = tuple(
            Curve(name, tuple(map(float, range(1, len(values) + 1))), values, style)
            for name, values, style in (("logits", self.values, "raw"), ("isotropic", self.isotropic, "isotropic"))
            if len(values) > 1
        )
        chart = Chart(
            "logit spectrum",
            "Logit spectrum",
            "rank",
            "singular value (root mean square logit)",
            curves,
            log_x=True,
            log_y=True,
        )
        head = "The model caps its logits: its head is read as stored. " if self.capped else ""
        return section(
            "What head and states do together",
            Text(self.verdict, "lead"),
            Table(("effective rank of", "dimensions", "of isotropic"), rows, ("dimensions", "of isotropic")),
            Figure("Logit spectrum", (chart,) if curves else ()),
            Text(
                f"Singular values of the centred logits of {count(self.tokens)} states ({self.layer}) over a "
                f"vocabulary of {count(self.vocabulary)}: at most {count(self.most)} directions. A map between head "
                f"and states, or a row added to all rows of the head, changes none of them. {head}Of the squared "
                f"logits {percent(self.mean_share)} are the same in every context, as a bias would give them.",
                "quiet",
            ),
        )


@part
class LayerProfile:
    """The layers of a model on a text, from its embeddings on, and what its head makes of the states.

    `edges` are those of the bins of cosine; `pictures` are of the layers `pictured`.
    """

    verdict: str  # where in the layers a common direction arises
    name: str  # the model
    tokens: int  # states in the sums, of each layer
    sequences: int  # lines, documents or windows that were read
    special: int  # special tokens, which stand apart
    sinks: int  # first positions of a decoder and giant states, which stand apart
    stopped: bool  # the run ended early, as the intervals were narrow
    layers: tuple[LayerReading, ...]  # from the embeddings on
    edges: tuple[float, ...]  # of the bins of cosine
    logits: LogitSpectrum | None = None  # of head and states together
    no_logits: str = ""  # why there is none
    pictured: tuple[str, ...] = ()  # layers that are drawn
    pictures: tuple[Picture, ...] = ()  # a picture of each
    notes: tuple[str, ...] = ()  # what to know of the run

    def __post_init__(self) -> None:
        expect(
            all(len(layer.histogram) in (0, len(self.edges) - 1) for layer in self.layers),
            "a share for each bin of cosine in each layer, got another number: the file was cut",
        )
        expect(
            len(self.pictured) == len(self.pictures),
            f"a layer for each picture, got {len(self.pictured)} for {len(self.pictures)}",
        )

    def blocks(self) -> tuple[Block, ...]:
        clouds = tuple(
            Cloud(f"cone of {name}", f"Contextual states, {name}", picture)
            for name, picture in zip(self.pictured, self.pictures, strict=True)
        )
        figures = tuple(chart for chart in (self._lines(), self._heat()) if chart is not None)
        return shown(
            section(
                "Hidden states, layer by layer",
                Text(self.verdict, "lead"),
                Text(self._size(), "quiet"),
                self._table(),
                self._directions(),
                Figure("Layers", figures, legend=_LINES, spark="Layers"),
                Folded("Variance, clusters and sinks", shown(self._second_table(), self._third_table())),
                Text(_READING, "quiet"),
                *(Figure(cloud.title, (cloud,)) for cloud in clouds),
                Bullets(self.notes),
            ),
            self.logits.blocks() if self.logits is not None else (),
            Text(f"Logit spectrum: {self.no_logits}." if self.no_logits else "", "quiet"),
        )

    def _size(self) -> str:
        early = "; the run stopped early, as the intervals were narrow" if self.stopped else ""
        return (
            f"{count(self.tokens)} tokens in {count(self.sequences)} sequences; apart: {count(self.special)} special "
            f"tokens and {count(self.sinks)} sinks{early}"
        )

    def _table(self) -> Table:
        columns = ("layer", "mean cosine", "self", "intra", "MEV", "effective rank")
        rows = tuple(
            (
                layer.name,
                _reach(layer.mean_cosine),
                _cosine(layer.less("self_similarity")),
                Cell(_cosine(layer.less("intra_similarity")), _bracketed(layer.less("intra_random"))),
                optional(layer.less("mev", "mev_random"), _COSINES),
                Cell(optional(layer.effective_rank), f"of {optional(layer.effective_rank_isotropic)}"),
            )
            for layer in self.layers
        )
        return Table(columns, rows, columns[1:])

    def _directions(self) -> Table:
        columns = ("layer", "first direction", "rogue", "norm")
        rows = tuple(
            (
                layer.name,
                Cell(
                    optional(layer.anisotropy_raw, shown=percent),
                    f"centred {optional(layer.anisotropy, shown=percent)}",
                ),
                Cell(
                    optional(layer.rogue_share, shown=percent),
                    f"dimension {layer.rogue_dimensions[0]}" if layer.rogue_dimensions else "",
                ),
                Cell(number(layer.mean_norm), f"largest {number(layer.largest_norm)}"),
            )
            for layer in self.layers
        )
        return Table(columns, rows, columns[1:])

    def _second_table(self) -> Table:
        columns = ("layer", "90% of variance", "99%", "alpha-ReQ", "TwoNN", "clusters", "within clusters", "same token")
        rows = tuple(
            (
                layer.name,
                optional(layer.dimensions_90, shown=count),
                optional(layer.dimensions_99, shown=count),
                Cell(optional(layer.alpha), _ranks(layer.alpha_ranks)),
                _estimate(layer.two_nn, (0.0, None)),
                optional(layer.clusters, shown=count),
                _cosine(layer.cluster_inter),
                _cosine(layer.cluster_intra),
            )
            for layer in self.layers
        )
        return Table(columns, rows, columns[1:])

    def _third_table(self) -> Table:
        columns = ("layer", "norm of special tokens", "norm of sinks", "dimensions whose mean stands out")
        rows = tuple(
            (
                layer.name,
                optional(layer.special_norm),
                optional(layer.sink_norm),
                ", ".join(map(str, layer.outlier_dimensions)) or "none",
            )
            for layer in self.layers
        )
        return Table(columns, rows, columns[1:3])

    def _lines(self) -> Chart | None:
        if len(self.layers) < 2:
            return None
        x = tuple(map(float, range(len(self.layers))))
        curves = (
            Curve("mean cosine", x, tuple(layer.mean_cosine.value for layer in self.layers), "raw", dots=True),
            Curve(
                "same token, less the mean", x, tuple(layer.less("self_similarity") for layer in self.layers), "centred"
            ),
            Curve(
                "same segment, less the mean",
                x,
                tuple(layer.less("intra_similarity") for layer in self.layers),
                "isotropic",
            ),
        )
        return Chart(
            "layers",
            "Cosines by layer",
            "layer (0: embeddings)",
            "cosine",
            curves,
            marks=(Mark(0.0, "y", "isotropic"),),
            spark="mean cosine",
        )

    def _heat(self) -> HeatMap | None:
        with_pairs = [(i, layer.histogram) for i, layer in enumerate(self.layers) if layer.histogram]
        if len(with_pairs) < 2:
            return None
        middles = tuple((a + b) / 2 for a, b in zip(self.edges[:-1], self.edges[1:], strict=True))
        return HeatMap(
            "layer cosines",
            "Cosines of pairs of states",
            "cosine",
            "layer (0: embeddings)",
            "share of pairs",
            middles,
            tuple(float(i) for i, _ in with_pairs),
            tuple(histogram for _, histogram in with_pairs),
            caption="Condensation: where pairs of unrelated tokens move to large cosines, the layer is a narrow cone.",
        )


def _estimate(one: Estimate, limits: Limits = _COSINES) -> Cell:
    ends = "" if one.interval is None else " to ".join(number(end, limits=limits) for end in one.interval)
    return Cell(optional(one.value, limits), ends)


def _reach(one: Estimate) -> Cell:
    reach = None if one.interval is None else (one.interval[1] - one.interval[0]) / 2
    return Cell(optional(one.value, _COSINES), "" if reach is None else f"± {number(reach, digits=2)}")


def _cosine(value: float | None) -> str:
    return optional(value, _COSINES)


def _bracketed(value: float | None) -> str:
    return "" if value is None else f"({number(value, limits=_COSINES)})"


def _ranks(ranks: tuple[int, int] | None) -> str:
    return "" if ranks is None else f"ranks {ranks[0]} to {ranks[1]}"
