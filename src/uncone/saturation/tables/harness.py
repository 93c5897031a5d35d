"""Results of lm-evaluation-harness: one results_*.json for each checkpoint, in folders."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from uncone.errors import InputError
from uncone.records.text import counted
from uncone.regular import open_regular
from uncone.saturation.tables.tables import LARGEST_JSON, Table, of_rows, parsed

HOW = "give the folder that lm_eval wrote with --output_path, one result for each checkpoint"
_STEP = re.compile(r"(?:step|checkpoint|ckpt|iter|iteration)[-_]?(\d{1,15})(?!\d)", re.IGNORECASE)


def is_results(name: str) -> bool:
    return name.startswith("results") and name.endswith(".json")


def read_results(files: list[Path], source: Path) -> Table:
    """The newest result of a checkpoint counts. A note names files without a step."""
    rows, unread, again = dict[tuple[Any, ...], dict[str, Any]](), list[str](), 0
    lower = dict[tuple[str, str], bool]()
    for file in files:
        content = read_json(file)
        if not isinstance(content, dict) or not isinstance(content.get("results"), dict):
            unread.append(f"{file.name} has no results of lm-evaluation-harness")
            continue
        model, step = _checkpoint(content, file)
        if step is None:
            unread.append(f"{file.parent.name}/{file.name} names no step (revision=step1000, or a folder of that name)")
            continue
        for task, metrics in _part(content, "higher_is_better").items():
            known = metrics.items() if isinstance(metrics, dict) else ()
            lower |= {(task, name): not is_higher for name, is_higher in known if isinstance(is_higher, bool)}
        for row in _rows(content):
            key = (model, row["task"], row["metric"], row["shots"], step)
            again += key in rows
            rows[key] = {"model": model, "step": step} | row
    if not rows:
        raise InputError(f"expected results with steps in {source}, got {'; '.join(unread[:3])}: {HOW}")
    notes = [f"Left out: {one}." for one in unread[:20]]
    if again:
        came = f"{counted(again, 'result')} with the same checkpoint, task and metric as another"
        notes.append(f"{came}: the file that sorts last counts.")
    return of_rows(rows.values(), str(source), notes, lower=lower)


def read_json(file: Path) -> Any:
    with open_regular(file, how=HOW) as opened:
        content = opened.read(LARGEST_JSON + 1)
    if len(content) > LARGEST_JSON:
        raise InputError(f"expected JSON of at most {LARGEST_JSON} bytes, got more in {file}: {HOW}")
    try:
        return parsed(content.decode("utf-8-sig"), str(file))
    except UnicodeDecodeError as error:
        raise InputError(f"expected JSON in UTF-8, got {file}, which is not: {HOW}") from error


def _part(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return part if isinstance(part := content.get(name), dict) else {}


def _rows(content: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Keys are `acc,none` and `acc_stderr,none`, or before version 0.4 `acc` and `acc_stderr`."""
    everywhere = _part(content, "config").get("num_fewshot")
    for task in content["results"]:
        numbers, shot = _part(content["results"], task), _part(content, "n-shot").get(task, everywhere)
        for key, value in numbers.items():
            name, comma, which = key.partition(",")
            if name.endswith("_stderr") or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            metric, error = name if which in ("", "none") else key, numbers.get(f"{name}_stderr{comma}{which}")
            row = {"task": task, "metric": metric, "value": value}
            row["stderr"] = error if isinstance(error, int | float) else None
            yield row | {"shots": "" if shot is None else str(shot)}


def _checkpoint(content: Mapping[str, Any], file: Path) -> tuple[str, int | None]:
    """The model's name, and the step in the revision, in the model's path, or in the nearest folder that names one."""
    config = _part(content, "config")
    arguments, given = _part(config, "model_args"), config.get("model_args")
    if isinstance(given, str):
        arguments = dict(pair.split("=", 1) for pair in given.split(",") if "=" in pair)
    model = str(arguments.get("pretrained") or content.get("model_name") or "")
    for text in (str(arguments.get("revision", "")), model, file.name, *reversed(file.parent.parts)):
        if found := _STEP.search(text):
            name = _STEP.sub("", model).rstrip("/-_ ")
            return name.rpartition("/")[2] or name, int(found[1])
    return model, None
