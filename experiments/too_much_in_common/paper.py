"""What is known here of the figures of the paper, each with where it was found. What is not known stays out.

Biś, Podkorytov and Liu (2021), "Too Much in Common: Shifting of Embeddings in Transformer Language Models and its
Implications", NAACL-HLT 2021, https://aclanthology.org/2021.naacl-main.403. The text of the paper could not be read where this
was written: the figures below were taken from notes on it, and its program from
https://github.com/danielbis/tooMuchInCommon (commit 6598573).

The notes give Table 1 in part. Of one row they give the model; of the seven others only exp(-|mean|) to two or three digits
and I(W), without the names. Of Tables 2 and 3 they give no figure.
"""

import math
from dataclasses import dataclass

SOURCE = "notes on Biś et al. (2021), Table 1"
METHODS = ("original", "center", "scaled_center", "all_but_the_top_2", "all_but_the_top_d100")
"""Of Tables 2 and 3, which have six models (BERT uncased is in Table 1 only).

The paper writes ceil(d / 100) for the number of directions; the released program takes 2 there."""


@dataclass(frozen=True)
class PaperRow:
    """One row of Table 1, as far as it is known."""

    label: str
    norm_of_mean: float
    isotropy: float
    """I(W) of the matrix as it is, one sign of each eigenvector."""
    mean_norm: float | None = None
    ratio: float | None = None


def _unnamed(letter: str, law: float, isotropy: float) -> PaperRow:
    return PaperRow(f"row {letter} (model not known)", -math.log(law), isotropy)


TABLE_1 = (
    _unnamed("a", 0.39, 0.39),
    _unnamed("b", 0.607, 0.59),
    _unnamed("c", 0.449, 0.44),
    _unnamed("d", 0.522, 0.52),
    _unnamed("e", 0.566, 0.50),
    _unnamed("f", 0.080, 0.07),
    _unnamed("g", 0.129, 0.12),
    PaperRow("gpt2-medium", 2.04, 0.52, mean_norm=3.68, ratio=0.55),
)
STATED = {
    "correlation of norms and isotropy": -0.61,
    "mean cosine": 0.33,
    "cosine of the top eigenvector to the mean": 0.99,
}
"""Said in the text of the paper, the last two of RoBERTa-large; no code was released for them."""


def table_1_row(name: str) -> PaperRow | None:
    """The paper's row for a model of this name, where it is known."""
    return next((row for row in TABLE_1 if row.label == name), None)
