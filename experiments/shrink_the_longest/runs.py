"""The kept runs of one task and size, by arm and seed, for tables and curves."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from glue import load
from kept import Kept
from plan import cells
from scoring import Difference, Flags, Paired, compare, metrics, paired

from training import unpacked
from uncone.errors import InputError

Run = dict[str, Any]


@dataclass(frozen=True)
class Group:
    """The runs of one task and number of examples."""

    task: str
    size: str
    arms: dict[str, dict[int, Run]]
    """Runs by arm and seed; arms without runs are absent, the arm "none" first where it is there."""
    gold: Flags
    """(N,), whether each held-out item is of class 1."""
    before: Run | None

    def metric(self, arm: str, name: str) -> list[float]:
        return [metrics(run["confusion"])[name] for run in self.arms[arm].values()]

    def compared(self, first: str, second: str) -> dict[str, Difference] | None:
        """Metrics of the second arm less the first's; None without a seed that both have."""
        seeds = self.shared(first, second)
        if not seeds:
            return None
        a, b = (np.stack([self._correct(arm, seed) for seed in seeds]) for arm in (first, second))
        return compare(a, b, self.gold)

    def last_looks(self, arm: str, seed: int) -> list[Run]:
        """What a run judged over the steps answered at its probes of the last share of steps."""
        training = self.arms[arm][seed]["training"]
        first = training["last_steps"]["from_step"]
        return [one["judged"] for one in training["probes"] if one["step"] >= first]

    def over_last(self, arm: str, name: str) -> dict[int, float]:
        """A metric, or the loss, averaged over the last looks, by seed."""
        looks = {seed: self.last_looks(arm, seed) for seed in self.arms.get(arm, {})}
        return {seed: float(np.mean([judged(one, name) for one in each])) for seed, each in looks.items()}

    def compared_over_last(self, first: str, second: str) -> dict[str, Difference] | None:
        """`compared`, of the metrics averaged over the last looks."""
        seeds = self.shared(first, second)
        if not seeds:
            return None
        a, b = (np.stack([self._looks(arm, seed) for seed in seeds], 1) for arm in (first, second))
        return compare(a, b, self.gold)

    def _looks(self, arm: str, seed: int) -> Flags:
        n = self.arms[arm][seed]["items"]
        return np.stack([unpacked(one["correct"], n).numpy() for one in self.last_looks(arm, seed)])

    def paired(self, first: str, second: str, *path: str | int) -> Paired | None:
        """A number of the second arm's runs less the first's; None without a seed where both have it."""
        found = [
            (at(self.arms[first][seed], path), at(self.arms[second][seed], path)) for seed in self.shared(first, second)
        ]
        pairs = [(a, b) for a, b in found if a is not None and b is not None]
        return paired([a for a, _ in pairs], [b for _, b in pairs]) if pairs else None

    def shared(self, first: str, second: str) -> list[int]:
        return sorted(set(self.arms.get(first, {})) & set(self.arms.get(second, {})))

    def _correct(self, arm: str, seed: int) -> Flags:
        run = self.arms[arm][seed]
        found: Flags = unpacked(run["correct"], run["items"]).numpy()
        return found


def judged(answers: Run, name: str) -> float:
    """A metric by its name, or the loss, of a run or of one of its looks."""
    return float(answers["loss"]) if name == "loss" else metrics(answers["confusion"])[name]


def at(run: Run, path: tuple[str | int, ...]) -> float | None:
    """The number at the end of a path of keys; None where something on it is None."""
    place: Any = run
    for key in path:
        if place is None:
            return None
        place = place[key]
    return None if place is None else float(place)


def groups(kept: Kept, data: Path) -> list[Group]:
    """All groups that have runs, in the order of the plan, then others.

    Raises:
        InputError: runs on other data than there is, or of one kind and different settings.
    """
    found: dict[tuple[str, str], dict[str, dict[int, Run]]] = {}
    for run in kept.runs():
        asked = run["asked"]
        found.setdefault((asked["task"], asked["examples"]), {}).setdefault(asked["arm"], {})[asked["seed"]] = run
    kinds = [*dict.fromkeys((cell.task, cell.size) for cell in cells()), *found]
    tasks = {name: load(name, data) for name in {kind[0] for kind in found}}
    made = list[Group]()
    for task, size in dict.fromkeys(kind for kind in kinds if kind in found):
        arms = found[task, size]
        _check([run for seeds in arms.values() for run in seeds.values()], tasks[task].digest)
        order = [*dict.fromkeys([cell.arm for cell in cells()]), *arms]
        sorted_arms = {arm: dict(sorted(arms[arm].items())) for arm in dict.fromkeys(order) if arm in arms}
        made.append(Group(task, size, sorted_arms, (tasks[task].evaluation.labels == 1).numpy(), kept.before(task)))
    return made


def _check(runs: list[Run], digest: str) -> None:
    first = runs[0]["asked"]
    what = f"{first['task']} with {first['examples']} examples"
    if any(run["asked"]["data"] != digest for run in runs):
        raise InputError(
            f"expected runs on the data at hand, got runs of {what} on other files: name theirs with --data"
        )
    if any(run["asked"]["settings"] != first["settings"] for run in runs):
        raise InputError(f"expected one setting for {what}, got runs of several: move the others away")
