"""Repairs of MiniLM's own unit vectors of SciFact, by SciFact's judgements, and what the commands cost on 100,000 documents.

    python experiments/repair_evaluation/own_vectors.py --model NAME=DIR --retrieval DIR --cache DIR --out DIR
    python experiments/repair_evaluation/own_vectors.py --size --out DIR

The first writes vectors, ids and judgements into the folder --out, and keeps two records in `results/`: by the judgements of
all splits, and by those of the test split. The second makes 100,000 documents out of these vectors, runs each command in a
process of its own, and keeps its processor time and its peak memory in `results/own_vectors_size.json`.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from run import RESAMPLES, RESULTS, keep

REPAIRS = ("center", "remove_mean_direction", "standardize", "whiten")
SIZE, QUERIES = 100_000, 1_000
COMMANDS = {
    "all repairs": (),
    "center": ("--method", "center"),
    "cluster_center": ("--method", "cluster_center"),
    "auto": ("--method", "auto"),
}
"""Options of `uncone evaluate`, by a name."""
_MEASURED = """
import json, pathlib, sys, time
from uncone.cli import main
main(sys.argv[1:])
import torch
status = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
print(json.dumps({
    "processor_s": round(time.process_time(), 1), "peak_mib": int(status["VmHWM"].split()[0]) // 1024,
    "threads": torch.get_num_threads(),
}))
"""  # VmHWM begins with the program itself; getrusage would count what the parent held


def write_vectors(directory: str, retrieval: Path, cache: Path, out: Path) -> None:
    """The model's own vectors of the documents and queries, their ids, and the judgements of all splits and of each."""
    from uncone.evaluation.encoding import open_encoding
    from uncone.evaluation.retrieval import read_retrieval

    out.mkdir(parents=True, exist_ok=True)
    data, encoding = read_retrieval(retrieval), open_encoding(directory, cache=cache)
    asked = list(data.queries)
    for name, role, ids, texts in (
        ("documents", "document", data.document_ids, data.documents),
        ("queries", "query", asked, data.texts_of(asked)),
    ):
        np.save(out / f"{name}.npy", encoding.texts(texts, role=role).inner)
        (out / f"{name}.ids").write_text("".join(f"{one}\n" for one in ids))
    for name, splits in {"all": data.judged.values(), "test": [data.judged["test"]]}.items():
        lines = [
            (query, document, rank)
            for judged in splits
            for query, of in judged.items()
            for document, rank in of.items()
        ]
        _write_judgements(out / f"{name}.tsv", lines)


def _write_judgements(file: Path, lines: list[tuple[str, str, int]]) -> None:
    written = "".join(f"{query}\t{document}\t{rank}\n" for query, document, rank in lines)
    file.write_text(f"query-id\tcorpus-id\tscore\n{written}")


def write_sample(out: Path) -> None:
    """Mixtures of two documents with noise, unit rows (SIZE, D); queries are some of them with more noise, each answered by its own."""
    x, generator = np.load(out / "documents.npy"), np.random.default_rng(0)
    first, second = generator.integers(0, len(x), (2, SIZE))
    share = generator.uniform(0.3, 0.7, (SIZE, 1)).astype(np.float32)
    documents = _unit(_noisy(x[first] * share + x[second] * (1 - share), 0.02, generator))
    asked = generator.choice(SIZE, QUERIES, replace=False)
    np.save(out / "sample.npy", documents)
    np.save(out / "sample_queries.npy", _unit(_noisy(documents[asked], 0.08, generator)))
    _write_judgements(out / "sample.tsv", [(str(query), str(document), 1) for query, document in enumerate(asked)])


def _noisy(x: np.ndarray, scale: float, generator: np.random.Generator) -> np.ndarray:
    return x + np.float32(scale) * generator.standard_normal(x.shape).astype(np.float32)


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def measured(command: list[str]) -> dict[str, float]:
    """Processor seconds of all threads, start included, and peak resident MiB of `uncone COMMAND` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, *command],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},  # a thread that waits takes no time
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_size(out: Path) -> Mapping[str, object]:
    """What each of COMMANDS takes on the sample."""
    from uncone.version import versions

    files = {"queries": "sample_queries.npy", "documents": "sample.npy", "qrels": "sample.tsv"}
    own = [word for option, file in files.items() for word in (f"--{option}", str(out / file))]
    commands = {}
    for name, options in COMMANDS.items():
        commands[name] = measured(["evaluate", *own, *options])
        print(f"{name}: {commands[name]}", flush=True)
    return {
        "documents": SIZE,
        "queries": QUERIES,
        "d": int(np.load(out / "sample.npy", mmap_mode="r").shape[1]),
        "commands": commands,
        "machine": f"{platform.machine()}, {os.cpu_count()} processors",
        "versions": versions("scikit-learn", "ir-measures"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="NAME=DIR of a Sentence Transformers model")
    parser.add_argument("--retrieval", type=Path, help="a directory in the layout of BEIR")
    parser.add_argument("--cache", type=Path, help="where vectors of texts are kept")
    parser.add_argument("--out", type=Path, required=True, help="where vectors and judgements are written")
    parser.add_argument("--size", action="store_true", help=f"measure the commands on {SIZE:,} documents instead")
    given = parser.parse_args()
    if given.size:
        write_sample(given.out)
        found = json.dumps(measure_size(given.out), indent=1)
        (RESULTS / "own_vectors_size.json").write_text(f"{found}\n")
        return
    if not (given.model and given.retrieval and given.cache):
        parser.error("expected --model, --retrieval and --cache, or --size after a run with them")
    from uncone import evaluate

    name, _, directory = given.model.partition("=")
    write_vectors(directory, given.retrieval, given.cache, given.out)
    for judgements, kind in (("all", "own_vectors"), ("test", "own_vectors_test")):
        record = evaluate(
            queries=given.out / "queries.npy",
            query_ids=given.out / "queries.ids",
            documents=given.out / "documents.npy",
            ids=given.out / "documents.ids",
            qrels=given.out / f"{judgements}.tsv",
            method=REPAIRS,
            resamples=RESAMPLES,
        )
        keep(record, f"{name}.{kind}")


if __name__ == "__main__":
    main()
