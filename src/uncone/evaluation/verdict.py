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
_NAMES = {"wordsim": "word similarity", "sts": "sentence similarity", "retrieval": "retrieval", "ann": "quantised search"}
_DIGITS = {"spearman_cosine": 2, "pearson_cosine": 2}


def primary(task: str, protocol: str) -> str:
    """The number that a task is judged by."""
    return "pearson_cosine" if task == "wordsim" and protocol == "paper" else PRIMARY[task]


def verdict(name: str, task: str, measure: str, differences: Mapping[str, Mapping[str, Mapping[str, Interval]]]) -> str:
    """Which repair does best over the sets, on how many its interval lies above 0 or below, and whether any does anything.

    The repair named is that with the highest mean difference. It was chosen by looking, so that its intervals are no proof:
    `select_repair` is for that.
    """
    per_repair = dict[str, list[Interval]]()
    for repairs in differences.values():
        for repair, measures in repairs.items():
            if measure in measures:
                per_repair.setdefault(repair, []).append(measures[measure])
    where, what = _NAMES[task], TITLES[measure]
    if not per_repair:
        return f"{name}, {where}: no repair could be compared with the original."
    most = max(len(intervals) for intervals in per_repair.values())
    full = {repair: intervals for repair, intervals in per_repair.items() if len(intervals) == most}
    best = max(full, key=lambda repair: sum(one.difference for one in full[repair]))
    rose = sum(one.low > 0 for one in full[best])
    digits = _DIGITS.get(measure, 4)
    if most == 1:
        one = full[best][0]
        change = f"changes {what} by {one.difference:+.{digits}f} (95 %: {one.low:+.{digits}f} to {one.high:+.{digits}f})"
    else:
        mean = sum(one.difference for one in full[best]) / most
        fell = sum(one.high < 0 for one in full[best])
        change = (
            f"changes {what} by {mean:+.{digits}f} on average over {most} sets, up on {rose} and down on {fell} beyond chance"
        )
    if rose == 0:
        return f"{name}, {where}: no repair helps; the best, {best}, {change}. Leave it as it is."
    return f"{name}, {where}: of {len(full)} repairs {best} does best; it {change}."
