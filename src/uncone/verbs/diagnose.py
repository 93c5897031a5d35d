"""`diagnose`: from a spec to the `Diagnosis`."""

from typing import Any

from uncone import explain
from uncone.explain.advice import with_whole_paths as with_whole_paths
from uncone.explain.examination import Examination, Progress
from uncone.model.open import open_subjects
from uncone.records import Diagnosis
from uncone.version import versions


def diagnose(
    spec: Any,
    *,
    counts: Any = None,
    neighbours: bool = False,
    skip_nonfinite: bool = False,
    progress: Progress | None = None,
) -> Diagnosis:
    """Say how degenerate the rows of `spec` are, why, and what to do next.

    Args:
        spec: a model directory (its token table and output head), or anything `open_rows` takes.
        counts: how often each token occurs in some text: a file (a table `id token count` or `token count`,
            or `.npy`), or a tensor or array (N,). Without it tokens are ranked by their ids.
        neighbours: also take the measures of nearest neighbours (`two_nn`, `levina_bickel`, `hubness` and
            `uniformity_exact`): about 1.5 N^2 D multiply-adds.
        skip_nonfinite: leave out rows with NaN or inf instead of refusing them.
        progress: called with (the step, rows done, rows in all); the last is 0 for a step without rows.

    Returns:
        A `Diagnosis`: the verdict in one sentence, and each matrix's measurements, findings and picture.

    Raises:
        InputError: the source cannot be opened or holds rows that are not finite, or counts do not fit it.
        UnsupportedModel: the table or the head cannot be found in the model's files.
    """
    if progress is not None:
        progress("opening", 0, 0)
    opened = open_subjects(spec, skip_nonfinite=skip_nonfinite, progress=progress)
    subjects = tuple(
        Examination(
            name, rows, progress, explain.role_of(name, rows, opened.rows), counts, neighbours,
            advice=explain.advice_for(spec, name, opened.editable), capped=opened.cap is not None,
        ).run()
        for name, rows in opened.rows
    )  # fmt: skip
    subjects = explain.placed_among_known(subjects)
    verdict = explain.give_verdict(subjects)
    return Diagnosis(opened.name, verdict, subjects, notes=opened.notes, versions=versions("numpy"))
