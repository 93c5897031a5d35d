"""What is done, what is missing, and how long that takes."""

from kept import Kept
from plan import Cell, cells
from scoring import spread


def progress(kept: Kept) -> str:
    """A table of the kinds of runs, with CPU hours spent and, from the mean of what is done, to come."""
    done = {
        _key(one["asked"], over_steps): float(one["cpu_seconds"]["whole"])
        for over_steps, place in ((False, kept), (True, kept.over_steps))
        for one in place.runs()
    }
    lines = ["| task | examples | runs | done | CPU seconds a run | CPU hours missing |", "|---|---|---|---|---|---|"]
    missing_hours, unknown = 0.0, False
    planned = list(cells())
    for kind in dict.fromkeys((cell.task, cell.size, cell.over_steps) for cell in planned):
        of_kind = [cell for cell in planned if (cell.task, cell.size, cell.over_steps) == kind]
        seconds = [done[_of(cell)] for cell in of_kind if _of(cell) in done]
        missing = len(of_kind) - len(seconds)
        each = spread(seconds).mean if seconds else None
        hours = None if each is None else each * missing / 3600
        missing_hours, unknown = missing_hours + (hours or 0), unknown or (hours is None and missing > 0)
        lines.append(
            f"| {kind[0]} | {kind[1]}{', judged over the steps' * kind[2]} | {len(of_kind)} | {len(seconds)} | {'' if each is None else f'{each:.0f}'} "
            f"| {'not known' if hours is None else f'{hours:.2f}'} |"
        )
    spent = kept.cpu_seconds() / 3600
    to_come = f"at least {missing_hours:.2f}, kinds without a run not counted" if unknown else f"{missing_hours:.2f}"
    return "\n".join([*lines, "", f"Spent {spent:.2f} CPU hours, pilot included; missing {to_come}."])


def _key(asked: dict[str, object], over_steps: bool) -> tuple[object, ...]:
    return asked["task"], asked["examples"], asked["arm"], asked["seed"], over_steps


def _of(cell: Cell) -> tuple[object, ...]:
    return cell.task, cell.size, cell.arm, cell.seed, cell.over_steps
