"""What every repair does to an encoder on sentence similarity, retrieval and quantised search, and whether one is chosen.

    python experiments/repair_evaluation/run.py --model NAME=DIR --sts DIR --retrieval DIR --cache DIR

Keeps each record as JSON and as text in `results/`, and prints the texts. Texts are encoded once; the cache is read afterwards.
"""

import argparse
import io
from pathlib import Path

from rich.console import Console

from uncone import report
from uncone.evaluation.evaluate import evaluate
from uncone.evaluation.select_repair import select_repair

RESULTS = Path(__file__).parent / "results"
KINDS = ("select_retrieval", "select_sts", "retrieval", "ann", "sts")
WIDTH = 100
RESAMPLES = 10_000


def keep(record: object, name: str) -> None:
    """The record as JSON and as text."""
    RESULTS.mkdir(exist_ok=True)
    record.save(RESULTS / f"{name}.json")
    text = io.StringIO()
    report.print_record(record, Console(file=text, width=WIDTH, highlight=False))
    printed = "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
    (RESULTS / f"{name}.txt").write_text(printed, encoding="utf-8")
    print(f"== {name}\n{printed}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="NAME=DIR of a Sentence Transformers model")
    parser.add_argument("--sts", type=Path, required=True, help="the directory of STS12 to 16 and the STS Benchmark")
    parser.add_argument("--retrieval", type=Path, required=True, help="a directory in the layout of BEIR")
    parser.add_argument("--cache", type=Path, required=True, help="where vectors of texts are kept")
    parser.add_argument("--only", nargs="*", choices=KINDS, help="the records to make; all by default")
    given = parser.parse_args()
    name, _, directory = given.model.partition("=")
    data = {"retrieval": given.retrieval, "ann": given.retrieval, "sts": given.sts}
    for kind in given.only or KINDS:
        task = kind.removeprefix("select_")
        if kind.startswith("select_"):
            keep(select_repair(directory, task=task, data=data[task], cache=given.cache), f"{name}.{kind}")
        else:
            keep(
                evaluate(directory, task=task, data=data[task], cache=given.cache, resamples=RESAMPLES),
                f"{name}.{kind}",
            )


if __name__ == "__main__":
    main()
