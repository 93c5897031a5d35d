"""Draw the README's picture: python docs/pictures.py SmolLM2-135M-Instruct.Q4_1.gguf (extras [gguf] and [plot])"""

import sys
from pathlib import Path

import matplotlib
from matplotlib import pyplot

import uncone

PICTURE = Path(__file__).parent / "pictures/smollm2.png"


def main(model: Path) -> None:
    """The rows of the token table along their first two directions, as stored and without the mean row."""
    matplotlib.use("Agg")
    table = uncone.diagnose(model)
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for name, ax, title in zip(("cone", "cone centred"), axes, ("as stored", "the mean row subtracted"), strict=True):
        table.plot(name, ax=ax)
        ax.set(title=f"Token rows of SmolLM2-135M, {title}")
        for points in ax.collections:
            points.set_rasterized(True)
            points.set_alpha(0.5)
    axes[1].get_legend().remove()
    figure.savefig(PICTURE, dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
