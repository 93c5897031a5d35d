"""The paper's second figure: the task metric over the steps, and averaged over the last of them, as its tables are."""

import numpy as np
import paper
from claims import MAIN_METRIC
from curves import metric_curves
from plan import SEEDS_OVER_STEPS, cells
from runs import Group, judged
from scoring import Difference, Paired, paired

REPORTED = {"mrpc": ("accuracy", "f1", "loss"), "cola": ("matthews", "loss")}
COMPARED = (("none", "selected"), ("none", "all"), ("all", "selected"))
_TEXT = (
    "The arms `none`, `selected` and `all` are trained again, and all held-out items are judged at each probe, dropout off. The paper averages "
    "its metrics over the last 30 % of steps. The first difference is of that mean over the probes there, the second is of the metric where "
    "the same runs end. Metrics are in hundredths. Their 95 % intervals are those of the section Task metrics; the interval of the loss is "
    "Student's over seeds. In parentheses: the smallest true difference that 80 % of such experiments would find. Levels are means over the "
    "seeds that both arms have."
)
_VERDICTS = (
    "The paper says that its metric grows slightly, but its number is unknown: the text that we have lacks the curves of Fig. 2 and the cells of "
    "Table 2. Confirmed: the interval is above 0 on every task. Weakened: above 0 on some tasks only. Contradicted: below 0 on a task, and "
    "above 0 on none. Otherwise these runs cannot decide. The encoder has this report's name, and its schedule stands under Runs."
)


def pictures(found: list[Group]) -> dict[str, str]:
    """The metric over the steps of each task, by file name."""
    return {f"metric_{one.task}_{one.size}.svg": metric_curves(one, REPORTED[one.task]) for one in found}


def section(found: list[Group]) -> str:
    """The pictures, the table of differences, and what they say of the paper's claims."""
    shown = (f"![The task metric over the steps of {name[7:-4]}]({name})" for name in pictures(found))
    names = (
        "task",
        "number",
        "comparison",
        "pairs of seeds",
        "over the last 30 %",
        "difference",
        "at the end",
        "difference",
    )
    head = f"| {' | '.join(names)} |\n" + "|---" * len(names) + "|"
    kinds = dict.fromkeys([*((c.task, c.size) for c in cells() if c.over_steps), *((g.task, g.size) for g in found)])
    of_kind = {(group.task, group.size): group for group in found}
    rows = [row for kind in kinds for row in _rows(kind, of_kind.get(kind))]
    said = "| claim | the paper's number | ours, over the last 30 % | verdict |\n" + "|---" * 4 + "|"
    claims = [
        _claim(*claim, {kind[0]: of_kind.get(kind) for kind in kinds if kind[1] == "all"}) for claim in paper.FIGURE_2
    ]
    return "\n\n".join([_TEXT, *shown, "\n".join([head, *rows]), _VERDICTS, "\n".join([said, *claims])])


def verdict(results: dict[str, Difference | Paired | None]) -> str:
    """What the differences of all tasks say of a claim that each is above 0."""
    missing = [task for task, one in results.items() if one is None or one.low is None]
    above = [task for task, one in results.items() if one is not None and one.low is not None and one.low > 0]
    below = [task for task, one in results.items() if one is not None and one.high is not None and one.high < 0]
    if above and len(above) == len(results):
        return "confirmed"
    if below and not above:
        return f"contradicted ({', '.join(below)})"
    if missing:
        return f"cannot be decided: fewer than two seeds of both arms on {', '.join(missing)}"
    if above:
        return f"weakened: on {', '.join(above)} only"
    least = ", ".join(
        f"{100 * (one.detectable or 0):.1f} on {task}" for task, one in results.items() if one is not None
    )
    return f"cannot be decided at this size: this design detects differences of at least {least}"


def _rows(kind: tuple[str, str], group: Group | None) -> list[str]:
    task, size = kind
    name = task if size == "all" else f"{task}, {size} examples"
    return [_row(name, group, number, *arms) for arms in COMPARED for number in REPORTED[task]]


def _row(task: str, group: Group | None, number: str, first: str, second: str) -> str:
    shared = [] if group is None else group.shared(first, second)
    start = f"| {task} | {number} | {second} minus {first} | {len(shared)} of {SEEDS_OVER_STEPS} |"
    if group is None or not shared:
        return f"{start} not run | not run | not run | not run |"
    last = [[group.over_last(arm, number)[seed] for seed in shared] for arm in (first, second)]
    end = [[judged(group.arms[arm][seed], number) for seed in shared] for arm in (first, second)]
    metrics = group.compared_over_last(first, second) or {}, group.compared(first, second) or {}
    of_last, of_end = metrics[0].get(number) or paired(*last), metrics[1].get(number) or paired(*end)
    scale, digits = (1, 3) if number == "loss" else (100, 2)
    levels = [
        ", ".join(f"{arm} {scale * np.mean(one):.{digits}f}" for arm, one in zip((first, second), pair, strict=True))
        for pair in (last, end)
    ]
    return f"{start} {levels[0]} | {_said(of_last, scale, digits)} | {levels[1]} | {_said(of_end, scale, digits)} |"


def _claim(text: str, first: str, second: str, of_task: dict[str, Group | None]) -> str:
    results: dict[str, Difference | Paired | None] = {}
    for task, group in of_task.items():
        found = None if group is None else group.compared_over_last(first, second)
        results[task] = None if found is None else found[MAIN_METRIC[task]]
    ours = ", ".join(
        f"{task} {MAIN_METRIC[task]} {'not run' if one is None else _said(one, 100, 2)}"
        for task, one in results.items()
    )
    return f"| {text} | {paper.NUMBER_OF_FIGURE_2} | {ours} | {verdict(results)} |"


def _said(found: Difference | Paired, scale: float, digits: int) -> str:
    if found.low is None or found.high is None or found.detectable is None:
        return f"{scale * found.value:+.{digits}f} (one seed)"
    low, high = (f"{scale * end:+.{digits}f}" for end in (found.low, found.high))
    return f"{scale * found.value:+.{digits}f} [{low}, {high}] ({scale * found.detectable:.{digits}f})"
