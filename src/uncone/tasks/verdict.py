"""What an evaluation comes to, in one sentence."""

from collections.abc import Mapping

from uncone.records import Interval

PRIMARY = {"wordsim": "spearman_cosine", "sts": "spearman_cosine", "retrieval": "ndcg10", "ann": "recall10"}
TITLES = {
    "spearman_cosine": "Spearman x 100",
    "pearson_cosine": "Pearson x 100",
    "ndcg10": "nDCG@10",
    "recall10": "recall@10",
}
_NAMES = {
    "wordsim": "word similarity",
    "sts": "sentence similarity",
    "retrieval": "retrieval",
    "ann": "quantised search",
}
_DIGITS = {"spearman_cosine": 2, "pearson_cosine": 2}


def primary(task: str, protocol: str) -> str:
    """The number that a task is judged by."""
    return "pearson_cosine" if task == "wordsim" and protocol == "paper" else PRIMARY[task]


def verdict(
    name: str, task: str, measure: str, differences: Mapping[str, Mapping[str, Mapping[str, Interval]]]
) -> str:
    """Which repair does best over the sets, on which its interval lies above 0 or below, and whether any does anything.

    The repair named is that with the highest mean difference; if any helps, among those that rise on a set beyond chance. It was
    chosen by looking, so that its intervals are no proof: `select_repair` is for that.
    """
    per_repair = dict[str, dict[str, Interval]]()
    for set_name, repairs in differences.items():
        for repair, measures in repairs.items():
            if measure in measures:
                per_repair.setdefault(repair, {})[set_name] = measures[measure]
    start = f"{name}, {_NAMES[task]}:"
    if not per_repair:
        return f"{start} no repair could be compared with the original."
    most = max(len(intervals) for intervals in per_repair.values())
    full = {repair: intervals for repair, intervals in per_repair.items() if len(intervals) == most}
    highest = max(full, key=lambda repair: _mean(full[repair]))
    rose = [repair for repair, intervals in full.items() if any(one.low > 0 for one in intervals.values())]
    helping = [repair for repair in rose if _mean(full[repair]) > 0]
    if helping:
        best = max(helping, key=lambda repair: _mean(full[repair]))
        among = "" if best == highest else " of those that rise beyond chance"
        who = f"of {len(full)} repairs {best} does best{among}; it" if len(full) > 1 else best
        return f"{start} {who} {_change(full[best], measure)}."
    change = _change(full[highest], measure)
    if rose:
        return f"{start} no repair helps on the whole; the best, {highest}, {change}."
    return f"{start} no repair helps; the best, {highest}, {change}. Leave it as it is."


def _change(intervals: Mapping[str, Interval], measure: str) -> str:
    digits = _DIGITS.get(measure, 4)
    mean = f"changes {TITLES[measure]} by {_mean(intervals):+.{digits}f}"
    if len(intervals) == 1:
        (one,) = intervals.values()
        return f"{mean} (95 %: {one.low:+.{digits}f} to {one.high:+.{digits}f})"
    rose = [name for name, one in intervals.items() if one.low > 0]
    fell = [name for name, one in intervals.items() if one.high < 0]
    moved = [f"{way} on {', '.join(names)}" for way, names in (("up", rose), ("down", fell)) if names]
    beyond = f"; beyond chance {' and '.join(moved)}" if moved else ", on none beyond chance"
    low, high = (
        sum(limits) / len(limits)
        for limits in zip(*((one.low, one.high) for one in intervals.values()), strict=True)
    )
    # the deviation of a mean is at most the mean of the deviations, so this is wide enough whatever pairs the sets share
    return f"{mean} on average over {len(intervals)} sets (95 %, at the widest: {low:+.{digits}f} to {high:+.{digits}f}){beyond}"


def _mean(intervals: Mapping[str, Interval]) -> float:
    return sum(one.difference for one in intervals.values()) / len(intervals)
