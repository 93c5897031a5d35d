"""The tables in Markdown, from the kept results, beside the paper's own figures."""

import math
from collections.abc import Sequence
from typing import Any

import paper

DASH = "–"
SETS = ("men", "rw", "simlex999", "wordsim_sim", "wordsim_rel")
WORDSIM = ("wordsim_sim", "wordsim_rel")
"""Halves of WordSim-353 that share 103 pairs: their differences vary together."""


def all_tables(models: Sequence[dict[str, Any]], planted: dict[str, Any] | None) -> str:
    parts = []
    if models:
        parts += [table_1(models), beside_table_1(models)]
        read = [one for one in models if one.get("words")]
        parts += [table_2(read), table_3(read), field(read)] if read else []
    if planted:
        parts.append(planted_table(planted))
    return "\n\n".join(parts) + "\n"


def table_1(models: Sequence[dict[str, Any]]) -> str:
    """I(W) by the authors' program and by uncone, and the norms; the paper's row under a model of its name, then the others."""
    head = (
        "model",
        "raw, one sign",
        "centred",
        "removed",
        "raw, both signs",
        "centred",
        "removed",
        "mean norm",
        "norm of the mean",
        "ratio",
    )
    lines = []
    for one in models:
        t = one["table_1"]
        single = [f"{_four(t[v].get('authors'))} / {_four(t[v].get('same_signs_as_the_authors'))}" for v in _VARIANTS]
        both = [_four(t[v]["both_signs"]) for v in _VARIANTS]
        lines.append([one["name"], *single, *both, *(f"{t[k]:.4g}" for k in ("mean_norm", "norm_of_mean", "ratio"))])
        known = paper.table_1_row(one["name"])
        if known is not None:
            lines.append(_paper_line(known))
    named = {one["name"] for one in models}
    lines += [_paper_line(row) for row in paper.TABLE_1 if row.label not in named]
    return (
        "### Table 1\n\nI(W): the first three columns with one sign of each eigenvector, by the authors' program / by uncone over the same "
        "eigenvectors; the next three with both signs. `removed` is without the mean and ceil(d / 100) directions. Rows of the paper: "
        f"{paper.SOURCE.format(1)}.\n\n" + _markdown(head, lines)
    )


_VARIANTS = ("raw", "centred", "removed")


def _paper_line(row: paper.PaperRow) -> list[str]:
    isotropy = f"{row.isotropy:.2f}", f"{row.isotropy_centred:.2f}", f"{row.isotropy_removed:.3f}"
    norms = [f"{value:.2f}" for value in (row.mean_norm, row.norm_of_mean, row.ratio)]
    return [f"paper: {row.label}", *isotropy, *[DASH] * 3, *norms]


def beside_table_1(models: Sequence[dict[str, Any]]) -> str:
    head = (
        "model",
        "rows x d",
        "D removed",
        "I(W), one sign: lowest to highest",
        "c . mean >= 0",
        "variance along the mean",
        "mean cosine",
        "cosine of the top eigenvector to the mean",
        "Spearman of norm and id",
    )
    lines = []
    for one in models:
        t = one["table_1"]
        lines.append(
            [
                one["name"],
                f"{one['n']} x {one['d']}",
                str(t["directions_removed"]),
                f"{_four(t['raw']['low'])} to {_four(t['raw']['high'])}",
                _four(t["raw"]["toward_the_mean"]),
                f"{t['variance_along_mean']:.3g}",
                f"{t['mean_cosine']:.4f}",
                f"{t['cosine_of_top_eigenvector_to_mean']:.4f}",
                f"{t['spearman_of_norm_and_id']:.3f}",
            ]
        )
    cosine, top = (f"{paper.STATED[key]:.2f}" for key in ("mean cosine", "cosine of the top eigenvector to the mean"))
    lines.append(["paper: roberta-large", *[DASH] * 5, cosine, top, DASH])
    text = "### Beside Table 1\n\n" + _markdown(head, lines)
    return text + "\n\n" + _across(models)


_FEWEST = 3
"""Models over which a correlation says anything: two always lie on a line."""
_FEW = 8
"""The paper's number of models."""


def _across(models: Sequence[dict[str, Any]]) -> str:
    """The paper's -0.61: the correlation of the mean norms with I(W), from its Table 1 and over the models here."""
    of_paper = _correlations([(row.mean_norm, row.norm_of_mean, row.isotropy) for row in paper.TABLE_1])
    sentences = [
        f"Correlation with I(W) over the paper's eight models, from its Table 1: {of_paper[0]:.2f} for the mean norm "
        f"(the paper states {paper.STATED['correlation of mean norms and isotropy']:.2f}), {of_paper[1]:.2f} for the norm of the mean."
    ]
    if len(models) >= _FEWEST:
        tables = [one["table_1"] for one in models]
        ours = _correlations([(t["mean_norm"], t["norm_of_mean"], t["raw"]["both_signs"]) for t in tables])
        sentences.append(
            f"Over the {len(models)} models here, I(W) with both signs: {ours[1]:.2f} for the norm of the mean, "
            f"{ours[0]:.2f} for the mean norm." + (" So few models say little." if len(models) < _FEW else "")
        )
    return " ".join(sentences)


def _correlations(rows: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Of I(W), the third of each row, with the first and with the second."""
    return tuple(_pearson([(row[at], row[2]) for row in rows]) for at in (0, 1))  # type: ignore[return-value]


def _pearson(pairs: Sequence[tuple[float, float]]) -> float:
    n = len(pairs)
    x, y = sum(a for a, _ in pairs) / n, sum(b for _, b in pairs) / n
    products = sum((a - x) * (b - y) for a, b in pairs)
    squares = sum((a - x) ** 2 for a, _ in pairs) * sum((b - y) ** 2 for _, b in pairs)
    return products / math.sqrt(squares) if squares > 0 else math.nan


def table_2(models: Sequence[dict[str, Any]]) -> str:
    """Our means beside the paper's of a model of the same name; the paper's other models after ours."""
    head = ("model", "method", "<.,.>", "cos", "paper <.,.>", "paper cos", "cos less original (95 %)")
    lines = []
    for one in models:
        measured = one["words"]["paper"]
        for method in paper.METHODS:
            means = [_mean(measured["results"], method, key) for key in _PEARSON]
            change = mean_differences(measured["differences"]).get(method)
            theirs = _pair(paper.TABLE_2.get(one["name"], {}).get(method))
            lines.append([one["name"], method, *means, *theirs, DASH if change is None else _change(change)])
    for name in _others(models, paper.TABLE_2):
        for method, pair in paper.TABLE_2[name].items():
            lines.append([f"paper: {name}", method, DASH, DASH, *_pair(pair), DASH])
    return (
        "### Table 2\n\nPearson's correlation x 100 with the gold scores, unweighted mean over the five sets; pairs of single tokens. "
        "Intervals of the mean take MEN, RW, SimLex-999 and WordSim-353 as independent; the two halves of WordSim share 103 pairs, so "
        "their widths are added, which makes the interval too wide rather than too narrow. Columns and rows of the paper: "
        f"{paper.SOURCE.format(2)}.\n\n" + _markdown(head, lines)
    )


_PEARSON = ("pearson_inner", "pearson_cosine")


def _pair(pair: tuple[float, float] | None) -> list[str]:
    return [DASH, DASH] if pair is None else [f"{value:.2f}" for value in pair]


def _others(models: Sequence[dict[str, Any]], of_paper: Sequence[str] | dict[str, Any]) -> list[str]:
    """The paper's models that are not among ours."""
    return [name for name in of_paper if name not in {one["name"] for one in models}]


def table_3(models: Sequence[dict[str, Any]]) -> str:
    """Set by set, as Table 2; under each of our models the paper's rows for its name."""
    head = ("model", "method", *(f"{name} <.,.> / cos" for name in SETS))
    lines = []
    for one in models:
        results = one["words"]["paper"]["results"]
        originals = [results.get(name, {}).get("original") for name in SETS]
        sizes = [DASH if of is None else f"n = {of['n']} of {of['pairs']}" for of in originals]
        lines.append([one["name"], "pairs", *sizes])
        for method in paper.METHODS:
            cells = [" / ".join(_two(results, name, method, key) for key in _PEARSON) for name in SETS]
            lines.append([one["name"], method, *cells])
        lines += _paper_lines_3(one["name"])
    for name in _others(models, paper.TABLE_3):
        lines += _paper_lines_3(name)
    return (
        f"### Table 3\n\nThe same set by set. Rows of the paper: {paper.SOURCE.format(3)}, which has no centred rows.\n\n"
        + _markdown(head, lines)
    )


def _paper_lines_3(name: str) -> list[list[str]]:
    rows = paper.TABLE_3.get(name, {}).items()
    return [[f"paper: {name}", method, *(" / ".join(_pair(pair)) for pair in pairs)] for method, pairs in rows]


def field(models: Sequence[dict[str, Any]]) -> str:
    """The usual protocol, every repair, the difference from the original with its interval."""
    head = ("model", "repair", *(f"{name} (n)" for name in SETS), "mean", "less original (95 %)")
    lines = []
    for one in models:
        found = one["words"]["field"]
        results = found["results"]
        for repair in next(iter(results.values())):
            cells = [_with_n(results, name, repair) for name in SETS]
            change = mean_differences(found["differences"]).get(repair)
            lines.append(
                [
                    one["name"],
                    repair,
                    *cells,
                    _mean(results, repair, "spearman_cosine"),
                    DASH if change is None else _change(change),
                ]
            )
    return (
        "### The usual protocol\n\nSpearman's correlation x 100 of the cosine; a word of several tokens is the mean of their rows.\n\n"
        + _markdown(head, lines)
    )


def mean_differences(differences: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Of the unweighted mean over the sets, by repair; none unless every set has a difference.

    Widths of intervals of independent sets add as squares. Those of the halves of WordSim-353 add as they are, the most that
    two differences which vary together can give.
    """
    if not differences or not all(differences.values()):
        return {}
    found = {}
    for repair in next(iter(differences.values())):
        each = {name: one[repair] for name, one in differences.items() if repair in one}
        if len(each) == len(differences):
            middle = sum(one["difference"] for one in each.values()) / len(each)
            below = _width({name: one["difference"] - one["low"] for name, one in each.items()})
            above = _width({name: one["high"] - one["difference"] for name, one in each.items()})
            found[repair] = {"difference": middle, "low": middle - below, "high": middle + above}
    return found


def _width(widths: dict[str, float]) -> float:
    """Of the mean, from the half-widths of the sets."""
    together = sum(widths.get(name, 0.0) for name in WORDSIM)
    apart = (width for name, width in widths.items() if name not in WORDSIM)
    return math.hypot(together, *apart) / len(widths)


def planted_table(planted: dict[str, Any]) -> str:
    head = (
        "matrix",
        "rows x d",
        "norm of the mean",
        "mean norm",
        "paper",
        "exp(-m)",
        "authors' program",
        "c . mean >= 0",
        "c . mean < 0",
        "exp(-2m)",
        "both signs",
        "one sign: lowest to highest",
    )
    lines = []
    for name, one in planted.items():
        runs = one["runs"]
        spread = {
            key: _spread([run[key] for run in runs])
            for key in ("authors", "toward_the_mean", "away_from_the_mean", "both_signs")
        }
        lines.append(
            [
                name,
                f"{one['n']} x {one['d']}",
                f"{runs[0]['norm_of_mean']:.3f}",
                f"{runs[0]['mean_norm']:.3f}",
                f"{one['paper']:.2f}",
                _four(one["law_one_sign"]),
                spread["authors"],
                spread["toward_the_mean"],
                spread["away_from_the_mean"],
                _four(one["law_both_signs"]),
                spread["both_signs"],
                f"{_four(min(run['low'] for run in runs))} to {_four(max(run['high'] for run in runs))}",
            ]
        )
    seeds = len(next(iter(planted.values()))["runs"])
    return (
        f"### Planted matrices of the paper's norms\n\nm is the norm of the mean. Each number is the range over {seeds} seeds.\n\n"
        + _markdown(head, lines)
    )


def _spread(values: Sequence[float]) -> str:
    low, high = _four(min(values)), _four(max(values))
    return low if low == high else f"{low} to {high}"


def _four(value: float | None) -> str:
    if value is None:
        return DASH
    return f"{value:.4f}" if value >= 0.001 else f"{value:.2e}"


def _change(one: dict[str, float]) -> str:
    return f"{one['difference']:+.2f} ({one['low']:+.2f} to {one['high']:+.2f})"


def _value(results: dict[str, Any], name: str, repair: str, key: str) -> float | None:
    value: float | None = results.get(name, {}).get(repair, {}).get(key)
    return value


def _two(results: dict[str, Any], name: str, repair: str, key: str) -> str:
    value = _value(results, name, repair, key)
    return DASH if value is None else f"{value:.2f}"


def _with_n(results: dict[str, Any], name: str, repair: str) -> str:
    if name not in results:
        return DASH
    return f"{_two(results, name, repair, 'spearman_cosine')} ({results[name][repair]['n']})"


def _mean(results: dict[str, Any], repair: str, key: str) -> str:
    values = [_value(results, name, repair, key) for name in SETS]
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.2f}" if len(known) == len(SETS) else DASH


def _markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *lines)])
