"""MRPC and CoLA with and without the penalty of "Shrink the longest", many seeds, one result file a run.

    python experiments/shrink_the_longest/run.py all                      # every missing run, then the report
    python experiments/shrink_the_longest/run.py run --task mrpc --arm selected --seed 0 --examples all
    python experiments/shrink_the_longest/run.py pilot --task cola        # arm none, judged by items that are not reported
    python experiments/shrink_the_longest/run.py plan                     # what is done, what is missing, how long it takes
    python experiments/shrink_the_longest/run.py report                   # results.md and the curves from what there is

--model NAME=DIR takes any encoder of a directory; without it the packaged MiniLM. Each run is kept in results/NAME/ and is not done
again while its settings and data are the same; runs judged over the steps are in results/NAME/over_steps/.
"""

import argparse
import math
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

PACKAGED = "all-MiniLM-L6-v2"
MOST_CPU_HOURS = 11.0


def main(arguments: list[str] | None = None) -> None:
    chosen = _parse(arguments)
    import torch

    torch.set_num_threads(chosen.threads)
    COMMANDS[chosen.command](chosen)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    from arms import ARMS
    from glue import TASKS
    from plan import default_data
    from schedules import PRECISIONS, names

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("command", choices=list(COMMANDS))
    parser.add_argument("--task", choices=list(TASKS), help="for run and pilot")
    parser.add_argument("--arm", choices=list(ARMS), default="none", help="for run")
    parser.add_argument("--seed", type=int, default=0, help="for run and pilot")
    parser.add_argument("--examples", default="all", metavar="N|all", help="training examples, for run and pilot")
    parser.add_argument(
        "--over-steps",
        action="store_true",
        help="for run: judge all held-out items at each probe, not at the end alone",
    )
    parser.add_argument("--model", metavar="NAME=DIR", help=f"an encoder; by default the packaged {PACKAGED}")
    parser.add_argument(
        "--data", type=Path, default=default_data(HERE), metavar="DIR", help="the folder of MRPC/ and CoLA/"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results", metavar="DIR", help="where results are kept")
    parser.add_argument("--precision", choices=PRECISIONS, help="of the encoder's products, other than the schedule's")
    parser.add_argument(
        "--schedule",
        metavar="NAME|FILE",
        help=f"rates, steps and more, a TOML file or one of {', '.join(names())}: the paper's for --model, else the packaged model's",
    )
    parser.add_argument("--steps", type=int, help="other than the schedule's; for run and pilot")
    parser.add_argument("--rate", type=float, help="a learning rate other than the schedule's; for pilot")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--cpu-hours", type=float, default=MOST_CPU_HOURS, help="for all: start no run once the kept ones took so much"
    )
    chosen = parser.parse_args(arguments)
    if chosen.command in ("run", "pilot") and chosen.task is None:
        parser.error(f"{chosen.command} needs a --task")
    if chosen.command != "pilot" and chosen.rate is not None:
        parser.error("--rate is for pilot: a run takes its rate from the schedule, so that runs can be compared")
    if chosen.command == "all" and chosen.steps is not None:
        parser.error("all takes its --steps from the schedule: choose one with --schedule")
    if chosen.seed < 0 or chosen.threads < 1 or (chosen.steps is not None and chosen.steps < 1):
        parser.error("expected a --seed from 0 up, and --threads and --steps from 1 up")
    return chosen


def _model(chosen: argparse.Namespace) -> tuple[str, str]:
    """Name and directory."""
    from encoder import packaged

    from uncone.errors import InputError

    if chosen.model is None:
        return PACKAGED, packaged()
    name, equals, directory = chosen.model.partition("=")
    if (
        not equals
        or not name
        or not all(letter.isalnum() or letter in "-_." for letter in name)
        or name.startswith(".")
    ):
        raise InputError(f"expected --model NAME=DIR with a name of letters, digits, - _ and ., got {chosen.model!r}")
    return name, directory


def _schedule(chosen: argparse.Namespace) -> str:
    return str(chosen.schedule or ("packaged" if chosen.model is None else "paper"))


def _run(chosen: argparse.Namespace) -> None:
    from plan import Cell, parse_examples

    examples = parse_examples(chosen.examples)
    _one(Cell(chosen.task, chosen.arm, chosen.seed, examples, over_steps=chosen.over_steps), chosen, {})


def _all(chosen: argparse.Namespace) -> None:
    from plan import cells

    tasks = dict[str, Any]()
    for cell in cells():
        if not _one(cell, chosen, tasks, hours=chosen.cpu_hours):
            break
    _report(chosen)


def _one(cell: Any, chosen: argparse.Namespace, tasks: dict[str, Any], hours: float = math.inf) -> bool:
    """Run a cell unless it is kept, and the states before training if no cell of its task has asked for them.

    False where something is missing and what is kept has taken that many CPU hours.
    """
    from glue import load
    from kept import Kept
    from schedules import schedule

    from training import start, train

    name, directory = _model(chosen)
    if cell.task not in tasks:
        tasks[cell.task] = load(cell.task, chosen.data)
    task, kept, how = (
        tasks[cell.task],
        Kept(chosen.out / name),
        schedule(_schedule(chosen)).settings(
            cell, len(tasks[cell.task].train), steps=chosen.steps, precision=chosen.precision
        ),
    )
    before = {"task": cell.task, "longest": how.longest, "precision": how.precision, "data": task.digest}
    asked = {
        "task": cell.task,
        "arm": cell.arm,
        "seed": cell.seed,
        "examples": cell.size,
        "settings": how.as_json(),
        "data": task.digest,
    }
    states, run = kept.found(f"{cell.task}_before", before), kept.found(cell.name, asked)
    spent = kept.cpu_seconds() / 3600
    if (states is None or run is None) and spent >= hours:
        _tell(f"stopped before {cell.name}: the kept runs took {spent:.2f} CPU hours, the limit is {hours}")
        return False
    if states is None:
        kept.save(f"{cell.task}_before", before, start(task, directory, how) | {"made_by": _made_by()})
    if run is not None:
        return True
    began = time.perf_counter()
    found = train(cell, how, task, directory, _tell)
    kept.save(cell.name, asked, found | {"made_by": _made_by()})
    _tell(
        f"{cell.name} done in {found['cpu_seconds']['whole']:.0f} CPU seconds, {time.perf_counter() - began:.0f} of the clock"
    )
    return True


def _pilot(chosen: argparse.Namespace) -> None:
    """Arm none on items that are not reported, to see how many steps and which rate it needs."""
    from dataclasses import replace

    from glue import load
    from kept import Kept
    from plan import Cell, parse_examples
    from schedules import schedule
    from scoring import metrics

    from training import train

    name, directory = _model(chosen)
    cell = Cell(chosen.task, "none", chosen.seed, parse_examples(chosen.examples))
    task = load(chosen.task, chosen.data, pilot=True)
    how = schedule(_schedule(chosen)).settings(cell, len(task.train), steps=chosen.steps, precision=chosen.precision)
    how = how if chosen.rate is None else replace(how, rate=chosen.rate)
    found = train(cell, how, task, directory, _tell)
    asked = {
        "task": cell.task,
        "arm": "none",
        "seed": cell.seed,
        "examples": cell.size,
        "settings": how.as_json(),
        "data": task.digest,
    }
    Kept(chosen.out / name / "pilot").save(
        f"{cell.name}_{how.rate:g}_{how.steps}_{how.precision}", asked, found | {"made_by": _made_by()}
    )
    values = ", ".join(f"{what} {value:.4f}" for what, value in metrics(found["confusion"]).items())
    _tell(
        f"pilot {cell.name}, rate {how.rate:g}, {how.steps} steps, {how.precision}: {values}, loss {found['loss']:.4f}, "
        f"{found['cpu_seconds']['training'] / how.steps:.2f} CPU seconds a step"
    )


def _plan(chosen: argparse.Namespace) -> None:
    from kept import Kept
    from progress import progress

    print(progress(Kept(chosen.out / _model(chosen)[0])))


def _report(chosen: argparse.Namespace) -> None:
    from kept import Kept
    from tables import report

    from uncone.atomic import write_text

    kept = Kept(chosen.out / _model(chosen)[0])
    text, pictures = report(kept, chosen.data)
    kept.folder.mkdir(parents=True, exist_ok=True)
    write_text(kept.folder / "results.md", text)
    for name, svg in pictures.items():
        write_text(kept.folder / name, svg)
    print(text)


COMMANDS = {"all": _all, "run": _run, "pilot": _pilot, "plan": _plan, "report": _report}


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _made_by() -> dict[str, str]:
    import torch
    import transformers

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, cwd=HERE, check=False).stdout.strip()

    return {
        "commit": git("rev-parse", "--short", "HEAD"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "machine": platform.machine(),
        "threads": str(torch.get_num_threads()),
    }


if __name__ == "__main__":
    from uncone.errors import UnconeError

    try:
        main()
    except UnconeError as error:
        sys.exit(str(error))
