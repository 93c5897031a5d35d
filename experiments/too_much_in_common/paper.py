"""The figures of the paper's Tables 1, 2 and 3, as printed there.

Bis, Podkorytov and Liu (2021), "Too Much in Common: Shifting of Embeddings in Transformer Language Models and its
Implications", NAACL-HLT 2021, https://aclanthology.org/2021.naacl-main.403. Its program is
https://github.com/danielbis/tooMuchInCommon (commit 6598573). Models have the names that the Hugging Face Hub gives them:
`gpt2` has 12 layers, `gpt2-medium` 24.
"""

from dataclasses import dataclass

SOURCE = "Bis et al. (2021), Table {}"
METHODS = ("original", "center", "scaled_center", "all_but_the_top_2", "all_but_the_top_d100")
"""Rows of Tables 2 and 3. "Post-processed" there removes ceil(d / 100) directions; the released program removes 2."""


@dataclass(frozen=True)
class PaperRow:
    """One row of Table 1: I(W) of the rows as they are, centred, and without ceil(d / 100) components; and the norms."""

    label: str
    shape: tuple[int, int]
    """Rows and features: not in the paper, but of the released models."""
    isotropy: float
    isotropy_centred: float
    isotropy_removed: float
    mean_norm: float
    norm_of_mean: float
    ratio: float


TABLE_1 = (
    PaperRow("bert-base-uncased", (30522, 768), 0.39, 0.98, 0.998, 1.40, 0.94, 0.67),
    PaperRow("bert-base-cased", (28996, 768), 0.59, 0.98, 0.996, 1.29, 0.50, 0.39),
    PaperRow("bert-large-uncased", (30522, 1024), 0.44, 0.97, 0.997, 1.45, 0.80, 0.55),
    PaperRow("bert-large-cased", (28996, 1024), 0.52, 0.96, 0.995, 1.53, 0.65, 0.42),
    PaperRow("roberta-base", (50265, 768), 0.50, 0.87, 0.959, 3.65, 0.57, 0.16),
    PaperRow("roberta-large", (50265, 1024), 0.07, 0.64, 0.956, 4.36, 2.53, 0.58),
    PaperRow("gpt2", (50257, 768), 0.12, 0.91, 0.969, 3.96, 2.05, 0.52),
    PaperRow("gpt2-medium", (50257, 1024), 0.52, 0.95, 0.981, 3.68, 2.04, 0.55),
)
Pair = tuple[float, float]
"""Pearson's correlation x 100 of the inner product, and of the cosine."""
TABLE_2: dict[str, dict[str, Pair]] = {
    "bert-base-cased": {
        "original": (60.91, 62.29),
        "center": (60.08, 60.44),
        "scaled_center": (62.41, 62.32),
        "all_but_the_top_d100": (66.10, 65.57),
    },
    "bert-large-cased": {
        "original": (59.42, 61.90),
        "center": (57.99, 58.66),
        "scaled_center": (61.05, 61.18),
        "all_but_the_top_d100": (65.89, 65.72),
    },
    "roberta-base": {
        "original": (66.01, 66.81),
        "center": (67.03, 66.85),
        "scaled_center": (66.95, 67.02),
        "all_but_the_top_d100": (67.15, 66.87),
    },
    "roberta-large": {
        "original": (44.79, 61.29),
        "center": (63.78, 64.09),
        "scaled_center": (64.16, 65.49),
        "all_but_the_top_d100": (65.17, 64.38),
    },
    "gpt2": {
        "original": (59.45, 64.71),
        "center": (66.04, 64.95),
        "scaled_center": (67.32, 66.57),
        "all_but_the_top_d100": (67.67, 67.85),
    },
    "gpt2-medium": {
        "original": (59.20, 65.53),
        "center": (67.90, 66.83),
        "scaled_center": (68.22, 67.95),
        "all_but_the_top_d100": (67.81, 68.05),
    },
}
TABLE_3: dict[str, dict[str, tuple[Pair, Pair, Pair, Pair, Pair]]] = {
    "bert-base-cased": {
        "original": ((65.53, 67.07), (61.22, 63.72), (52.52, 52.37), (75.03, 75.57), (50.27, 52.70)),
        "scaled_center": ((69.32, 68.36), (63.57, 63.94), (47.34, 47.96), (78.58, 77.36), (53.23, 53.96)),
        "all_but_the_top_d100": ((72.20, 70.91), (67.71, 68.20), (53.60, 52.53), (79.38, 78.15), (57.63, 58.04)),
    },
    "bert-large-cased": {
        "original": ((64.64, 67.20), (58.94, 61.89), (52.68, 52.91), (73.44, 76.32), (47.40, 51.16)),
        "scaled_center": ((68.63, 67.69), (61.67, 62.19), (48.66, 48.53), (77.47, 77.45), (48.81, 50.02)),
        "all_but_the_top_d100": ((72.12, 71.07), (67.22, 68.07), (55.41, 53.77), (78.80, 78.88), (55.90, 56.79)),
    },
    "roberta-base": {
        "original": ((72.83, 72.70), (64.72, 66.61), (55.17, 54.84), (78.00, 78.62), (59.31, 61.27)),
        "scaled_center": ((74.18, 73.33), (65.38, 66.35), (54.16, 53.77), (79.35, 79.10), (61.66, 62.53)),
        "all_but_the_top_d100": ((74.22, 73.13), (65.45, 66.11), (53.87, 53.35), (79.64, 79.08), (62.58, 62.70)),
    },
    "roberta-large": {
        "original": ((42.92, 63.44), (49.72, 64.31), (45.75, 54.54), (58.09, 73.46), (27.47, 50.69)),
        "scaled_center": ((70.55, 70.95), (63.09, 65.63), (55.24, 54.18), (75.72, 77.34), (56.19, 59.35)),
        "all_but_the_top_d100": ((72.01, 70.55), (63.11, 63.64), (52.48, 50.93), (77.87, 77.09), (60.36, 59.71)),
    },
    "gpt2": {
        "original": ((65.55, 71.16), (58.08, 63.99), (50.43, 51.45), (72.98, 78.32), (50.19, 58.63)),
        "scaled_center": ((75.55, 74.10), (64.05, 64.94), (51.60, 50.36), (81.41, 80.61), (63.98, 62.86)),
        "all_but_the_top_d100": ((76.00, 75.34), (65.30, 66.56), (53.74, 53.15), (80.70, 80.79), (62.62, 63.40)),
    },
    "gpt2-medium": {
        "original": ((65.01, 71.55), (58.55, 65.22), (51.13, 52.51), (72.67, 78.48), (48.65, 59.90)),
        "scaled_center": ((76.10, 75.02), (64.14, 65.34), (54.22, 53.30), (80.85, 80.56), (65.79, 65.51)),
        "all_but_the_top_d100": ((75.92, 75.25), (64.80, 66.11), (54.65, 54.19), (79.99, 80.25), (63.71, 64.43)),
    },
}
"""MEN, RW, SimLex-999, and the similarity and relatedness halves of WordSim-353. Centred rows are not in it."""
STATED = {
    "correlation of mean norms and isotropy": -0.61,
    "mean cosine": 0.33,
    "cosine of the top eigenvector to the mean": 0.99,
}
"""Said in the text (Appendix C and footnotes of Table 1), the last two of RoBERTa-large; no code was released for them."""


def table_1_row(name: str) -> PaperRow | None:
    """The paper's row for a model of this name, if it is one of the paper's."""
    return next((row for row in TABLE_1 if row.label == name), None)
