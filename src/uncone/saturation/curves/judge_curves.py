from collections.abc import Mapping, Sequence

from uncone.errors import InputError
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
    alpha: float = 0.05,
    progress: Progress | None = None,
) -> CurveVerdicts:
    """Say of each curve over the checkpoints of a training whether it declines late, with the evidence.

    A curve declined where it ends in a fall beyond the jitter between checkpoints, which may be autocorrelated: the
    least chance over several last stretches of it, brought to its level by curves that never decline. Each curve is
    judged alone, and in its family, whose others tell of the correlation of its jitter, corrected after Holm. A family
    is one task, metric, suite and number of shots.

    Args:
        source: a table with a row for each checkpoint (CSV, TSV, JSON lines, Parquet, or a pandas DataFrame), a folder
            of results of lm-evaluation-harness, event files of TensorBoard, or a `trainer_state.json`.
        columns: the columns of a table by what they are for: step, value, stderr, model, task, metric, suite, shots,
            batch_size, weight_decay. By default those of these names.
        lower: metrics of which less is better; by default losses, perplexities, errors and the like, by their names. Of
            a table without metrics, the column of its values. The verdict names the metrics whose direction was
            guessed.
        higher: metrics of which more is better, likewise.
        metric: the metrics to judge, by metric, task or task/metric. By default all of a table or of
            lm-evaluation-harness; of event files and a `trainer_state.json` those whose names are known measures of
            quality, or that `lower` or `higher` names. A note lists what was left out.
        alpha: the level within each family.
        progress: called with (the step, done, in all).

    Raises:
        InputError: a source that cannot be read, or a column that is not there; the columns are listed. A curve that
            cannot be judged is "undecided", with its reason, and the others go on.
    """
    if not 0 < alpha < 1:
        raise InputError(f"expected alpha between 0 and 1, got {alpha}: 0.05 is usual")
    table = open_table(source)
    name = table.short_name
    curves, apart, notes = curves_of(table, columns, lower or (), higher or (), metric or ())
    del table  # what it takes is free for the curves
    verdicts, families = judge(curves, alpha=alpha, progress=progress)
    verdict, made = verdict_of(families, verdicts), {"versions": versions("numpy")}
    verdict += direction_taken(curves, verdicts)
    return CurveVerdicts(verdict, name, alpha, verdicts, families, apart, notes, made)
