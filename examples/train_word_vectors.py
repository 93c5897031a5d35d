"""Train word vectors on a text and write them as word2vec text, to be diagnosed.

    python examples/train_word_vectors.py TEXT.txt[.xz|.gz] OUT.vec
    uncone diagnose OUT.vec

The vectors are the classical ones without a network: positive pointwise mutual information of words at most four apart, and its
leading singular directions, each scaled by the root of its singular value (Levy, Goldberg & Dagan 2015). Words come by
falling count, as in the files of word2vec, GloVe and fastText.
"""
# ruff: noqa: T201 - what a script prints is its result

import argparse
import gzip
import lzma
import re
from collections import Counter
from pathlib import Path

import torch

Tensor = torch.Tensor
WINDOW = 4


def read_words(path: Path) -> list[str]:
    """The words of a text, plain or compressed, in lower case."""
    opener = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    with opener(path, "rt", encoding="utf-8") as file:
        return re.findall(r"[^\W\d_]+", file.read().lower())


def cooccurrences(words: list[str], vocabulary: list[str]) -> Tensor:
    """How often two words of the vocabulary stand at most `WINDOW` words apart, symmetric, float64 (V, V)."""
    index, v = {word: i for i, word in enumerate(vocabulary)}, len(vocabulary)
    ids = torch.tensor([index.get(word, -1) for word in words])
    counts = torch.zeros(v * v, dtype=torch.float64)
    for gap in range(1, WINDOW + 1):
        left, right = ids[:-gap], ids[gap:]
        both = (left >= 0) & (right >= 0)
        counts += torch.bincount(left[both] * v + right[both], minlength=v * v)
    return counts.view(v, v) + counts.view(v, v).T


def embed(counts: Tensor, d: int) -> Tensor:
    """One row of d numbers a word, float32 (V, d)."""
    total = counts.sum(0)
    information = (counts * counts.sum() / (total[:, None] * total)).log().clamp_min(0).nan_to_num(0).float()
    torch.manual_seed(0)
    vectors, values, _ = torch.svd_lowrank(information, q=d + 10, niter=4)
    return vectors[:, :d] * values[:d].sqrt()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train word vectors on a text.")
    parser.add_argument("text", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--words", type=int, default=5000, help="the most common words, so many")
    parser.add_argument("--width", type=int, default=100, help="numbers a word")
    chosen = parser.parse_args(arguments)
    words = read_words(chosen.text)
    vocabulary = [word for word, _ in Counter(words).most_common(chosen.words)]
    x = embed(cooccurrences(words, vocabulary), min(chosen.width, len(vocabulary) - 10))
    lines = (f"{word} {' '.join(map(str, row))}\n" for word, row in zip(vocabulary, x.numpy(), strict=True))
    with open(chosen.out, "w", encoding="utf-8") as file:
        file.write(f"{len(x)} {x.shape[1]}\n")
        file.writelines(lines)
    print(
        f"wrote {len(x):,} words of {x.shape[1]} numbers to {chosen.out}, from {len(words):,} words of {chosen.text.name}"
    )


if __name__ == "__main__":
    main()
