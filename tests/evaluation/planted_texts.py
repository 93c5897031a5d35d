"""Texts whose likeness is known, and word vectors that show it, or that a common direction spoils."""

import json
from pathlib import Path

import numpy as np

TOPICS, WORDS, D = 12, 10, 16


def word(topic: int, number: int) -> str:
    return f"t{topic}w{number}"


def write_word_vectors(path: Path, *, spoiled: bool) -> Path:
    """Words of a topic are near each other. Spoiled, every word also lies more or less far out along one direction."""
    generator = np.random.default_rng(0)
    topics = generator.standard_normal((TOPICS, D))
    vectors = topics.repeat(WORDS, 0) + 0.5 * generator.standard_normal((TOPICS * WORDS, D))
    if spoiled:
        vectors = vectors + np.outer(generator.uniform(-40, 80, len(vectors)), np.ones(D) / np.sqrt(D))
    names = [word(topic, number) for topic in range(TOPICS) for number in range(WORDS)]
    lines = [f"{name} {' '.join(f'{x:.5f}' for x in row)}" for name, row in zip(names, vectors, strict=True)]
    path.write_text(f"{len(lines)} {D}\n" + "\n".join(lines) + "\n")
    return path


def _text(generator: np.random.Generator, topic: int, length: int = 4) -> str:
    return " ".join(word(topic, number) for number in generator.integers(0, WORDS, length))


def write_sts(directory: Path, *, pairs: int = 120) -> Path:
    """Pairs score 5 for the same topic, 0 for others, something between for half of each; train, dev and test."""
    directory.mkdir()
    generator = np.random.default_rng(1)
    for split in ("train", "dev", "test"):
        rows = ["sentence1\tsentence2\tscore"]
        for _ in range(pairs):
            first, second = generator.integers(0, TOPICS, 2)
            shared = int(generator.integers(0, 5))
            left = _text(generator, first)
            right = " ".join([_text(generator, first, shared), _text(generator, second, 4 - shared)]).strip()
            rows.append(f"{left}\t{right}\t{5 if first == second else 1.25 * shared}")
        (directory / f"stsb_{split}.tsv").write_text("\n".join(rows) + "\n")
    return directory


def write_retrieval(directory: Path, *, documents: int = 240, queries: int = 80, train: bool = True) -> Path:
    """Each query asks for the documents of its topic."""
    (directory / "qrels").mkdir(parents=True)
    generator = np.random.default_rng(2)
    topics = generator.integers(0, TOPICS, documents)
    corpus = [{"_id": f"d{at}", "title": "", "text": _text(generator, topic, 6)} for at, topic in enumerate(topics)]
    (directory / "corpus.jsonl").write_text("".join(json.dumps(one) + "\n" for one in corpus))
    asked = generator.integers(0, TOPICS, queries)
    lines = [{"_id": f"q{at}", "text": _text(generator, topic, 3)} for at, topic in enumerate(asked)]
    (directory / "queries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    for split, part in (("train", range(0, queries, 2)), ("test", range(1, queries, 2))):
        if split == "test" or train:
            rows = [f"q{q}\td{d}\t1" for q in part for d in range(documents) if topics[d] == asked[q]]
            (directory / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(rows) + "\n")
    return directory
