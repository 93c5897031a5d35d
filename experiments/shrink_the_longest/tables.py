"""The report: Markdown from whatever runs there are."""

from collections.abc import Iterable
from pathlib import Path

import paper
from claims import claims, in_short
from curves import curves
from intervals import intervals
from kept import Kept
from over_steps import pictures as pictures_over_steps
from over_steps import section as section_over_steps
from progress import progress
from runs import Group, at, groups
from scoring import METRICS, Difference, Paired, Spread, spread

KINDS = ("raw", "centred", "within_class")
PLACES = {"training_batch": "training batch", "held_out": "held-out cloud"}


def report(kept: Kept, data: Path) -> tuple[str, dict[str, str]]:
    """`results.md`, and pictures by file name."""
    found, over_steps = groups(kept, data), groups(kept.over_steps, data)
    if not found and not over_steps:
        return "# No runs yet\n\n" + progress(kept) + "\n", {}
    pictures = {f"a1_{group.task}_{group.size}.svg": curves(group) for group in found} | pictures_over_steps(over_steps)
    verdicts = {
        f"claims_{name}.svg": picture
        for name, metric in (("shape", False), ("metric", True))
        if (picture := intervals(found, metric=metric)) is not None
    }
    parts = [
        f"# {kept.folder.name}",
        "Written by `run.py report`.",
        in_short(found),
        "## Which claims hold",
        _CLAIMS,
        *(f"![{_PICTURED[name]}]({name})" for name in verdicts),
        claims(found),
        "## Task metrics",
        _METRICS,
        *(_metrics(group) for group in found),
        "## The paper's second figure: the task metric over the steps",
        section_over_steps(over_steps),
        "## Anisotropy over the last steps",
        _ANISOTROPY,
        *(_anisotropy(group) for group in found),
        *(
            f"![A1 over the steps of {group.task}, {group.size} examples](a1_{group.task}_{group.size}.svg)"
            for group in found
        ),
        "## All held-out items, before and after",
        _HELD_OUT,
        *(_held_out(group) for group in found),
        "## The paper's Table 3 beside these",
        _TABLE_3,
        *(_beside(group) for group in found if group.size == "all"),
        "## Runs",
        progress(kept),
        _made_by([*found, *over_steps]),
    ]
    return "\n\n".join(parts) + "\n", pictures | verdicts


_PICTURED = {
    "claims_shape.svg": "Claims on A1 and on clusters, with their 95 % intervals",
    "claims_metric.svg": "Claims on the task metric, with their 95 % intervals",
}
_CLAIMS = (
    "Each line is decided by its 95 % interval alone: it holds where the whole interval is on the claimed side of 0, is contradicted "
    "where the whole interval is on the other side, and is undecided else. One interval in twenty errs by chance, and there are many: a "
    "single line that holds is weak evidence. Metrics are in hundredths."
)
_METRICS = (
    "Mean over seeds and standard deviation, in hundredths. The difference from the arm `none` is on shared seeds and the same items, "
    "with a 95 % interval: the error is that of a two-way bootstrap (seeds and items), times Student's quantile, as the seeds are few. In "
    "parentheses the smallest true difference that would be found in 80 % of such experiments."
)
_ANISOTROPY = (
    "Mean over seeds. Both clouds have 64 points: the batch with dropout on, as the paper measures, and 64 fixed held-out items with "
    "dropout off. The difference of A1 from the arm `none` is paired by seeds, with Student's 95 % interval. The floor is an isotropic "
    "cloud's A1 of that n and d. In the curves, bold is the held-out cloud and thin the training batch."
)
_HELD_OUT = (
    "`n = 64` is the mean over disjoint clouds of 64 of the same items. Within and between are mean Euclidean distances of pairs of one "
    "class and of two. The first line of a table is the encoder before training, the same for all runs."
)
_TABLE_3 = (
    "A1 / A2 / A3 over the last 30 % of steps on training batches of 64, all examples. The paper's rows are from 5 runs each of its "
    "models; which of its rows are raw and which centred is deduced. Ours has another encoder, so compare the direction of the "
    "differences, not the levels."
)


def _made_by(found: list[Group]) -> str:
    runs = [run for group in found for seeds in group.arms.values() for run in seeds.values()]
    commits = sorted({run["made_by"]["commit"] for run in runs})
    versions = sorted(
        {f"torch {run['made_by']['torch']}, transformers {run['made_by']['transformers']}" for run in runs}
    )
    lines = [
        f"- {group.task}, {group.size} examples: {_said(next(iter(next(iter(group.arms.values())).values()))['asked']['settings'])}"
        for group in found
    ]
    return "\n".join(
        [
            f"Commits {', '.join(commits)}; {'; '.join(versions)}; {', '.join(sorted({r['made_by']['threads'] for r in runs}))} thread.",
            "",
            *dict.fromkeys(lines),
        ]
    )


def _said(settings: dict[str, object]) -> str:
    return (
        f"{settings['steps']} steps of {settings['batch']}, rate {settings['rate']:g}, decay {settings['decay']:g}, "
        f"warm-up {settings['warm_up']:.0%}, at most {settings['longest']} tokens, {settings['precision']}"
    )


def _metrics(group: Group) -> str:
    head = ["arm", "seeds", *METRICS, *(f"{name}, difference (detectable)" for name in METRICS)]
    rows = list[list[str]]()
    for arm, seeds in group.arms.items():
        compared = group.compared("none", arm) if arm != "none" else None
        rows.append(
            [
                arm,
                str(len(seeds)),
                *(_spread(spread(group.metric(arm, name)), 100) for name in METRICS),
                *("" if compared is None else _difference(compared[name]) for name in METRICS),
            ]
        )
    share = 100 * max(group.gold.mean(), 1 - group.gold.mean())
    return f"### {_title(group)}, {len(group.gold)} items, larger class {share:.1f} %\n\n" + _table(head, rows)


def _anisotropy(group: Group) -> str:
    rows = list[list[str]]()
    for place, said in PLACES.items():
        for kind in KINDS:
            for arm, seeds in group.arms.items():
                path = ("training", "last_steps", place, kind)
                scores = [_defined(at(run, (*path, k)) for run in seeds.values()) for k in range(3)]
                change = group.paired("none", arm, *path, 0) if arm != "none" else None
                floor = at(next(iter(seeds.values())), ("training", "last_steps", place, "floor", kind, 0))
                rows.append(
                    [
                        said,
                        kind.replace("_", " "),
                        arm,
                        *(f"{spread(one).mean:.3f}" if one else "undefined" for one in scores),
                        _paired(change, 3),
                        f"{floor:.3f}",
                    ]
                )
    return f"### {_title(group)}\n\n" + _table(
        ["cloud", "kind", "arm", "A1", "A2", "A3", "A1 less that of `none`", "floor"], rows
    )


def _held_out(group: Group) -> str:
    n = len(group.gold)
    head = [
        "arm",
        f"A1 raw, n = {n}",
        "centred",
        "within class",
        "A1 raw, n = 64",
        "centred",
        "within class",
        "silhouette",
        "within",
        "between",
        "ratio",
        "silhouette less that of `none`",
    ]
    paths: list[tuple[str, ...]] = [(cloud, kind) for cloud in ("whole", "clouds_of_64") for kind in KINDS]
    paths += [("clusters", name) for name in ("silhouette", "within", "between", "ratio")]
    rows = list[list[str]]()
    if group.before is not None:
        before = group.before
        rows.append(["before", *(_mean([at(before, _first(path))]) for path in paths), ""])
    for arm, seeds in group.arms.items():
        change = group.paired("none", arm, "held_out", "clusters", "silhouette") if arm != "none" else None
        means = [_mean([at(run, ("held_out", *_first(path))) for run in seeds.values()]) for path in paths]
        rows.append([arm, *means, _paired(change, 3)])
    return f"### {_title(group)}\n\n" + _table(head, rows)


def _first(path: tuple[str, ...]) -> tuple[str | int, ...]:
    return path if path[0] == "clusters" else (*path, 0)


def _beside(group: Group) -> str:
    arms = [arm for arm in paper.ARMS if arm in group.arms]
    rows = list[list[str]]()
    for kind in KINDS:
        place = ("training", "last_steps", "training_batch", kind)
        for model, table in paper.TABLE_3.items():
            known = table.get(f"{group.task} {kind}")
            if known is not None:
                rows.append(
                    [
                        model,
                        kind,
                        *(" / ".join(f"{known[k][paper.ARMS.index(arm)]:.3f}" for k in range(3)) for arm in arms),
                    ]
                )
        ours = [
            " / ".join(_mean([at(run, (*place, k)) for run in group.arms[arm].values()]) for k in range(3))
            for arm in arms
        ]
        rows.append(["this encoder", kind.replace("_", " "), *ours])
    return f"### {group.task}\n\n" + _table(["model", "kind", *arms], rows)


def _title(group: Group) -> str:
    return f"{group.task}, {group.size} training examples"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _defined(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: list[float | None]) -> str:
    defined = _defined(values)
    return f"{spread(defined).mean:.3f}" if defined else "undefined"


def _spread(found: Spread, scale: float) -> str:
    around = "" if found.deviation is None else f" ± {scale * found.deviation:.2f}"
    return f"{scale * found.mean:.2f}{around}"


def _difference(found: Difference) -> str:
    if found.low is None or found.high is None or found.detectable is None:
        return f"{100 * found.value:+.2f} (one seed)"
    return f"{100 * found.value:+.2f} [{100 * found.low:+.2f}, {100 * found.high:+.2f}] ({100 * found.detectable:.2f})"


def _paired(found: Paired | None, digits: int) -> str:
    if found is None:
        return ""
    if found.low is None or found.high is None:
        return f"{found.value:+.{digits}f} (one seed)"
    return f"{found.value:+.{digits}f} [{found.low:+.{digits}f}, {found.high:+.{digits}f}]"
