"""The paper's pictures of token tables.

Figure 1: the rows along their first two directions, and their singular values. Figure 3: cosines to the unused tokens. Figure 5:
kernel densities of the rows' norms, one curve a model. Figure 6: the same before and after centring.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uncone.measure import reserved_rows
from uncone.measure.projections import project
from uncone.moments import Moments, inverse, row_norms
from uncone.rows import Rows
from uncone.transforms import repair_named

BIN = 1000
POINTS = 200
ORIGINAL, CENTRED, BETWEEN = "#0072b2", "#d55e00", "viridis"  # told apart without seeing red or green
COLORS = (ORIGINAL, CENTRED, "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
STYLES = ("-", "--", ":")


def draw(name: str, rows: Rows, moments: Moments, out: Path) -> list[str]:
    """Write NAME_figure_1.png and, where tokens are unused by their names, NAME_figure_3.png; return the names."""
    import matplotlib

    matplotlib.use("Agg")
    centred = repair_named("center", d=rows.shape[1]).fit(moments).transform(rows)
    pairs = {"as they are": (rows, moments), "centred": (centred, Moments.of(centred))}
    files = [_figure_1(name, pairs, out)]
    bins = cosines_to_unused(rows, centred)
    return files if bins is None else [*files, _figure_3(name, bins, out)]


def _figure_1(name: str, pairs: dict[str, tuple[Rows, Moments]], out: Path) -> str:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for axis, (title, (rows, moments)) in zip(axes, pairs.items(), strict=False):
        along = project(rows, _oriented(moments.directions()[:, :2], moments))
        drawn = axis.scatter(
            *along.T,
            c=np.arange(len(along)),
            s=min(12, max(1, 8000 / len(along))),
            cmap=BETWEEN,
            alpha=0.5,
            edgecolors="none",
            rasterized=True,
        )
        axis.set(title=f"{name}, rows {title}", xlabel="along the first singular vector", ylabel="along the second")
        axis.axhline(0, lw=0.5, color="0.6")
        axis.axvline(0, lw=0.5, color="0.6")
    bar = figure.colorbar(drawn, ax=axes[1], label="row id")
    bar.solids.set_alpha(1)
    for (title, (_, moments)), color, style in zip(pairs.items(), (ORIGINAL, CENTRED), ("--", "-"), strict=True):
        values = np.sqrt(moments.spectrum(centered=False))
        axes[2].plot(np.arange(1, len(values) + 1), values / values[0], style, color=color, label=title)
    axes[2].set(title="singular values", xlabel="index", ylabel="share of the largest", ylim=(0, 1.02))
    axes[2].legend(frameon=False)
    return _saved(figure, out / f"{name}_figure_1.png")


def _oriented(directions: Any, moments: Moments) -> Any:
    """The same directions, each with the mean row on its positive side: no library chooses the sign."""
    return directions * np.where(moments.mean() @ directions < 0, -1.0, 1.0)


def cosines_to_unused(rows: Rows, centred: Rows) -> dict[str, Any] | None:
    """Mean cosine of the rows of each 1,000 ids to the unused tokens, for the rows as they are and centred; None without any.

    The mean of all pairwise cosines is the product of the two mean unit rows. Unused tokens are those so named: in BERT 994. The
    authors' program takes rows 0 to 999 but five, and with them id 999, "!": `of_paper` is its choice.
    """
    unused = reserved_rows(rows.labels, rows.shape[0])
    if not unused.by_name:
        return None
    found: dict[str, Any] = {"unused": len(unused.indices), "described": unused.description}
    for title, matrix in (("original", rows), ("centred", centred)):
        unit = np.concatenate([block * inverse(row_norms(block))[:, None] for block in matrix.blocks()])
        means = np.stack([unit[start : start + BIN].mean(0) for start in range(0, len(unit), BIN)])
        found[title] = (means @ unit[unused.indices].mean(0)).tolist()
        if len(unused.indices) == 994:
            theirs = np.ones(BIN, np.bool_)
            theirs[[0, 100, 101, 102, 103]] = False
            found[f"{title}_of_paper"] = (means @ unit[:BIN][theirs].mean(0)).tolist()
    return found


def _figure_3(name: str, bins: dict[str, Any], out: Path) -> str:
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(5.5, 3.6), layout="constrained")
    x = (np.arange(len(bins["original"])) + 0.5) * BIN
    axis.plot(x, bins["original"], color=ORIGINAL, label=name)
    axis.plot(x, bins["centred"], "--", color=CENTRED, label=f"{name}, centred")
    axis.axhline(0, lw=0.5, color="0.6")
    axis.set(xlabel="row id, bins of 1,000", ylabel=f"mean cosine to {bins['unused']} unused tokens")
    axis.legend(frameon=False)
    return _saved(figure, out / f"{name}_figure_3.png")


def norm_densities(rows: Rows, centred: Rows) -> dict[str, list[float]]:
    """Gaussian kernel densities of the rows' norms before and after centring, at points from 0 to beyond the largest norm.

    The bandwidth is SciPy's rule of Scott. The paper does not state its own.
    """
    from scipy.stats import gaussian_kde

    norms = {
        name: np.concatenate([row_norms(block) for block in matrix.blocks()])
        for name, matrix in (("original", rows), ("centred", centred))
    }
    at = np.linspace(0, 1.1 * max(one.max() for one in norms.values()), POINTS)
    densities = {name: gaussian_kde(one)(at) for name, one in norms.items()}
    return {name: [float(f"{x:.5g}") for x in column] for name, column in {"at": at, **densities}.items()}


def draw_norms(models: Sequence[dict[str, Any]], out: Path) -> list[str]:
    """Write figure_5.png and figure_6.png of the kept numbers of some models; return their names."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for number, one in enumerate(models):
        norms, style = one["norms"], STYLES[number // len(COLORS) % len(STYLES)]
        color = COLORS[number % len(COLORS)]
        axis.plot(norms["at"], norms["original"], style, color=color, label=one["name"])
    axis.set(title="norms of the rows", xlabel="norm", ylabel="density", ylim=(0, None))
    axis.legend(frameon=False)
    files = [_saved(figure, out / "figure_5.png")]
    figure, row = plt.subplots(1, len(models), figsize=(4 * len(models), 3.4), layout="constrained", squeeze=False)
    for axis, one in zip(row[0], models, strict=True):
        norms = one["norms"]
        axis.plot(norms["at"], norms["original"], "--", color=ORIGINAL, label="as they are")
        axis.plot(norms["at"], norms["centred"], color=CENTRED, label="centred")
        axis.set(title=one["name"], xlabel="norm", ylabel="density", ylim=(0, None))
    row[0][0].legend(frameon=False)
    return [*files, _saved(figure, out / "figure_6.png")]


def _saved(figure: Any, path: Path) -> str:
    from matplotlib import pyplot as plt

    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
    return path.name
