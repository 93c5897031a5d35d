"""Vectors of the abstracts and of the queries of SciFact by a sentence encoder, for make_table.py.

python experiments/known_runs/encode.py ENCODER ../shared/data/retrieval/scifact ../shared/data/vectors/e5-small-scifact OUT
"""

import argparse
import json
import lzma
from pathlib import Path

import numpy as np

LETTERS = 400  # of title and text, as in the vectors of E5


def main() -> None:
    """Write OUT/documents.npy and OUT/queries.npy: the texts whose ids the vectors given have, in their order."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("encoder", help="a directory of Sentence Transformers")
    for name in ("scifact", "like", "out"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(given.encoder, device="cpu")
    with lzma.open(given.scifact / "corpus.jsonl.xz", "rt", encoding="utf-8") as corpus:
        documents = {one["_id"]: f"{one['title']} {one['text']}"[:LETTERS] for one in map(json.loads, corpus)}
    with (given.scifact / "queries.jsonl").open(encoding="utf-8") as lines:
        queries = {one["_id"]: one["text"] for one in map(json.loads, lines)}
    given.out.mkdir(parents=True, exist_ok=True)
    for name, texts in (("documents", documents), ("queries", queries)):
        ids = (given.like / f"{name}.ids").read_text(encoding="utf-8").split()
        np.save(given.out / f"{name}.npy", model.encode([texts[i] for i in ids]))


if __name__ == "__main__":
    main()
