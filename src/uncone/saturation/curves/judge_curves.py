from collections.abc import Mapping, Sequence

from uncone.errors import InputError, nearest
from uncone.roles import Progress, Source
from uncone.saturation.curves.columns import curves_of
from uncone.saturation.curves.decline import direction_taken, judge, verdict_of
from uncone.saturation.curves.record import CurveVerdicts
from uncone.saturation.tables.sources import open_table
from uncone.version import versions


def judge_curves(
    source: Source,
    *,
    columns: Mapping[str, str] | None = None,
    lower: Sequence[str] | None = None,
    higher: Sequence[str] | None = None,
    metric: Sequence[str] | None = None,
    first: Sequence[str] | None = None,
    alpha: float = 0.05,
    progress: Progress | None = None,
) -> CurveVerdicts:
    """Show which curves over the checkpoints of a training decline late, with the evidence.

    A curve declined if it ends in a fall beyond the jitter between checkpoints, which may be autocorrelated. The test
    takes the least chance over several last stretches of the curve, calibrated on curves that never decline. Each curve
    is judged alone and in its family: there the other curves show the correlation of its jitter, and Holm corrects for
    their number. A family is one task, metric, suite and number of shots.

    Args:
        source: a table with a row for each checkpoint (CSV, TSV, JSON lines, Parquet, or a pandas DataFrame), a folder
            of results of lm-evaluation-harness, event files of TensorBoard, or a `trainer_state.json`.
        columns: the columns of a table by their role: step, value, stderr, model, task, metric, suite, shots,
            batch_size, weight_decay. By default the columns with these names.
        lower: metrics for which lower is better; by default losses, perplexities, errors and the like, by their names.
            For a table without metrics, the column of its values. The verdict names the metrics whose direction was
            guessed.
        higher: metrics for which higher is better, in the same way.
        metric: the metrics to judge, by metric, task or task/metric. By default all metrics of a table or of
            lm-evaluation-harness; for event files and a `trainer_state.json`, the metrics whose names are known
            measures of quality or are in `lower` or `higher`. A note lists what was left out.
        first: models to test before the others of their family, in this order: the first by its own jitter at the whole
            `alpha`, the next only if all before it declined. For instance the smallest, if you expect it to saturate.
            Choose them before you look. A model without a verdict is skipped. If a model has several curves, give each
            the name that the result prints.
        alpha: the level within each family.
        progress: called with (the step, done, in all).

    Raises:
        InputError: a source that cannot be read, or a missing column; the message lists the columns. A curve that
            cannot be judged is "undecided", with the reason, and the other curves are judged.
    """
    if not 0 < alpha < 1:
        raise InputError(f"expected alpha between 0 and 1, got {alpha}: 0.05 is usual")
    table = open_table(source)
    name = table.short_name
    curves, apart, notes = curves_of(table, columns, lower or (), higher or (), metric or ())
    del table  # frees its memory for the curves
    first = tuple(dict.fromkeys([first] if isinstance(first, str) else first or ()))
    models = {curve.model for curve in curves}
    if unknown := [name for name in first if name not in models]:
        advice = nearest(unknown[0], models, "the result names its curves")
        raise InputError(f"expected models of this table in first (--first), got {unknown[0]!r}: {advice}")
    verdicts, families = judge(curves, first=first, alpha=alpha, progress=progress)
    verdict, made = verdict_of(families, verdicts), {"versions": versions("numpy")}
    verdict += direction_taken(curves, verdicts)
    return CurveVerdicts(verdict, name, alpha, verdicts, families, apart, first, notes, made)
