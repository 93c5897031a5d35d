"""Does a threshold found on one half of the texts let the wanted share of random pairs of the other half pass?

    python experiments/calibration/run.py --cache DIR      # encodes with MiniLM the first time, about 15 minutes on one core

Each split cuts the texts in two halves at random: `uncone.calibrate` sees the first, and the second is counted with NumPy alone.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import transformers
from texts import Retrieval, Sentences, scifact, sts

import uncone
from uncone.calibration.drift import drift

Floats = npt.NDArray[np.float64]
RATES = (0.05, 0.01, 0.001)
SPLITS = 20
LOWEST, HIGHEST = 0.7, 1.3  # of the nominal rate
SIZES = (50, 100, 300, 1000, 3000)
NO_MATCH = 1.0  # STS pairs scored at most this share no more than a topic
_BLOCK = 2000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=Path, required=True, help="where the vectors are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    claims, sentences = scifact(options.cache), sts(options.cache)
    results = {
        "command": "python experiments/calibration/run.py --cache DIR",
        "versions": {
            "uncone": uncone.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "splits": SPLITS,
        "halves": {
            "SciFact, claims with abstracts": summary(list(_retrieval_splits(claims))),
            "STS Benchmark, sentences with each other": summary(list(_sentence_splits(sentences))),
        },
        "sizes": _by_size(sentences),
        "labelled": _labelled(sentences),
        "other_texts": _other_texts(claims, sentences),
    }
    target = Path(__file__).parent / "results.json"
    target.write_text(json.dumps(results, indent=1) + "\n")
    sys.stdout.write(tables(results))
    (Path(__file__).parent / "results.md").write_text(tables(results))


def _retrieval_splits(data: Retrieval) -> Iterator[list[float]]:
    for seed in range(SPLITS):
        rng = np.random.default_rng(seed)
        queries, documents = rng.permutation(len(data.queries)), rng.permutation(len(data.documents))
        cut_q, cut_d = len(queries) // 2, len(documents) // 2
        first, second = (queries[:cut_q], documents[:cut_d]), (queries[cut_q:], documents[cut_d:])
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "pairs.tsv"
            inside = _pairs_inside(data.relevant, *first)
            table.write_text("".join(f"{a}\t{b}\n" for a, b in inside.tolist()))
            found = uncone.calibrate(
                data.documents[first[1]], queries=data.queries[first[0]], pairs=table, rates=RATES, seed=seed
            )
        scores = data.queries[second[0]].astype(np.float64) @ data.documents[second[1]].T.astype(np.float64)
        matching = _pairs_inside(data.relevant, *second)
        scores[matching[:, 0], matching[:, 1]] = np.nan
        yield _held(found, np.sort(scores[~np.isnan(scores)]))


def _sentence_splits(data: Sentences) -> Iterator[list[float]]:
    for seed in range(SPLITS):
        order = np.random.default_rng(seed).permutation(len(data.vectors))
        cut = len(order) // 2
        found = uncone.calibrate(data.vectors[order[:cut]], rates=RATES, seed=seed)
        yield _held(found, _scores_within(data.vectors[order[cut:]]))


def _held(found: uncone.Calibration, ordered: npt.NDArray[np.floating]) -> list[float]:
    """For each nominal rate: the rate of its threshold among these scores (ascending)."""
    scores = [one.score for one in found.thresholds]
    assert None not in scores
    return [float(1 - np.searchsorted(ordered, score) / len(ordered)) for score in scores]


def summary(splits: list[list[float]]) -> list[dict[str, float]]:
    """For each nominal rate: mean, extremes and spread of the rate on the other half, relative to it, and how many are within the bar."""
    rows = []
    for number, nominal in enumerate(RATES):
        ratios = np.array([split[number] / nominal for split in splits])
        rows.append(
            {
                "nominal": nominal,
                "mean": float(ratios.mean()),
                "lowest": float(ratios.min()),
                "highest": float(ratios.max()),
                "deviation": float(ratios.std(ddof=1)),
                "within_bar": int(((ratios >= LOWEST) & (ratios <= HIGHEST)).sum()),
            }
        )
    return rows


def _by_size(data: Sentences) -> list[dict[str, float]]:
    """How far the rate of a 1 % threshold strays that was found on few sentences. 8,000 drawn once stand for the truth.

    That they are not the truth makes the intervals look worse, that about half of the few are among them better. For a mean both
    nearly cancel: the variance of the difference is 1/n + 1/8000 - 2/15457 times that of one sentence.
    """
    truth = _scores_within(data.vectors[np.random.default_rng(99).permutation(len(data.vectors))[:8000]])
    rows = []
    for size in SIZES:
        rates, inside = [], 0
        for seed in range(SPLITS):
            chosen = np.random.default_rng(seed).choice(len(data.vectors), size, replace=False)
            (one,) = uncone.calibrate(data.vectors[chosen], rates=(0.01,), seed=seed).thresholds
            assert one.score is not None
            assert one.low is not None
            assert one.high is not None
            rates.append(1 - np.searchsorted(truth, one.score) / len(truth))
            inside += bool(one.low <= truth[int(0.99 * len(truth))] <= one.high)
        rows.append({"rows": size, "lowest": min(rates), "highest": max(rates), "in_interval": inside})
    return rows


def _labelled(data: Sentences) -> dict[str, float]:
    """Thresholds against pairs that people scored as no match: those for random pairs, and one found from half of such pairs."""
    found = uncone.calibrate(data.vectors, rates=RATES)
    pairs = data.pairs[data.scores <= NO_MATCH]
    matching = data.pairs[data.scores >= 4]
    scores, true = _scores_of(data.vectors, pairs), _scores_of(data.vectors, matching)
    kept: dict[str, float] = {"non_matches": len(pairs), "matches": len(matching)}
    for one in found.thresholds:
        assert one.score is not None
        kept[f"non_matches_reaching_{one.wanted:g}"] = float((scores >= one.score).mean())
        kept[f"matches_reaching_{one.wanted:g}"] = float((true >= one.score).mean())
    rates = []
    for seed in range(SPLITS):
        order = np.random.default_rng(seed).permutation(len(scores))
        first, second = scores[order[: len(order) // 2]], scores[order[len(order) // 2 :]]
        rates.append(float((second >= np.quantile(first, 0.99)).mean()))
    return kept | {"own_mean": float(np.mean(rates)), "own_lowest": min(rates), "own_highest": max(rates)}


def _other_texts(claims: Retrieval, sentences: Sentences) -> dict[str, object]:
    """What a threshold does on texts that it was not found on, and whether the drift check says so."""
    saved, now = (uncone.calibrate(sentences.vectors), uncone.calibrate(claims.documents, queries=claims.queries))
    found = drift(saved, now)
    order = np.random.default_rng(0).permutation(len(sentences.vectors))
    halves = [uncone.calibrate(sentences.vectors[order[cut]]) for cut in (slice(0, 7000), slice(7000, 14000))]
    return {
        "level": found.level,
        "summary": found.summary,
        "same_texts": drift(*halves).level,
        "same": drift(*halves).summary,
    }


def _pairs_inside(
    pairs: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The pairs whose both ends are chosen, by their places among the chosen; each once."""
    row, column = ({int(number): place for place, number in enumerate(chosen)} for chosen in (rows, columns))
    inside = {(row[a], column[b]) for a, b in pairs.tolist() if a in row and b in column}
    return np.array(sorted(inside))


def _scores_within(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Cosines of all pairs of different rows, ascending."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    parts = []
    for start in range(0, len(unit), _BLOCK):
        block = unit[start : start + _BLOCK] @ unit[start:].T
        parts.append(block[np.triu_indices(len(block), 1, block.shape[1])])
    return np.sort(np.concatenate(parts))


def _scores_of(vectors: npt.NDArray[np.float32], pairs: npt.NDArray[np.int64]) -> Floats:
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float64)
    scores: Floats = (unit[pairs[:, 0]] * unit[pairs[:, 1]]).sum(axis=1)
    return scores


def tables(results: dict) -> str:  # type: ignore[type-arg]
    """The results as Markdown."""
    lines = [
        "| texts | nominal | rate on the other half, mean | lowest to highest of 20 splits | within 0.7 to 1.3 |",
        "|---|---|---|---|---|",
    ]
    for name, rows in results["halves"].items():
        for row in rows:
            nominal = row["nominal"]
            lines.append(
                f"| {name} | {_percent(nominal)} | {_percent(row['mean'] * nominal)} | "
                f"{_percent(row['lowest'] * nominal)} to {_percent(row['highest'] * nominal)} | {row['within_bar']} of {SPLITS} |"
            )
    lines += [
        "",
        "| sentences | rate of the 1 % threshold, lowest to highest of 20 draws | the right threshold is in the interval |",
        "|---|---|---|",
    ]
    lines += [
        f"| {row['rows']} | {_percent(row['lowest'])} to {_percent(row['highest'])} | {row['in_interval']} of {SPLITS} |"
        for row in results["sizes"]
    ]
    labelled, other = results["labelled"], results["other_texts"]
    lines += [
        "",
        "| threshold for random pairs | STS pairs scored at most 1 that reach it | STS pairs scored 4 or more that reach it |",
        "|---|---|---|",
    ]
    for rate in RATES:
        reaching = (_percent(labelled[f"{kind}_reaching_{rate:g}"]) for kind in ("non_matches", "matches"))
        lines.append(f"| {_percent(rate)} | {' | '.join(reaching)} |")
    lines += [
        "",
        f"{labelled['non_matches']} pairs are scored at most 1, {labelled['matches']} 4 or more. The 99th percentile of one half of the "
        f"former is reached by {_percent(labelled['own_mean'])} of the other half on average "
        f"({_percent(labelled['own_lowest'])} to {_percent(labelled['own_highest'])}).",
        "",
        f'STS to SciFact, drift "{other["level"]}": {other["summary"]}',
        "",
        f'One half of STS to the other, drift "{other["same_texts"]}": {other["same"]}',
    ]
    return "\n".join(lines) + "\n"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


if __name__ == "__main__":
    main()
