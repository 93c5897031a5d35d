"""`check`: numbers of a diagnosis or an evaluation against bars, for scripts."""

import math
import numbers
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, SupportsFloat

from uncone.comparison.bars.record import Bar, Check
from uncone.diagnosis.record import Diagnosis
from uncone.errors import InputError
from uncone.evaluation.record import Evaluation
from uncone.records.names import LONGEST, detail
from uncone.records.parts import DEFECTS
from uncone.records.rebuild import parsed, read_text, schema_of
from uncone.records.text import shortened
from uncone.roles import Path_, Role


def check(
    record: Annotated[Diagnosis | Evaluation | Path_, Role.READ],
    *,
    max: Mapping[str, SupportsFloat] | None = None,
    min: Mapping[str, SupportsFloat] | None = None,
    fail_on: Literal["severe", "warning"] | None = None,
) -> Check:
    """Check whether numbers of a diagnosis or an evaluation are within bars, and whether a diagnosis found a defect.

    In a diagnosis a number is named SUBJECT.MEASURE, such as `input.isoscore`; its details SUBJECT.MEASURE.DETAIL,
    items of a list by their place, from 0; a reading of a group of tokens SUBJECT.GROUP.READING, such as
    `input.rare.cosine_to_reserved`; a head's reading that changes no probability head.without_effect.MEASURE. SUBJECT
    may be left out if there is only one. In an evaluation it is named SET.REPAIR.MEASURE, such as
    `scifact.center.ndcg10`, and its change SET.REPAIR.MEASURE.low (or .difference, .high); the only set may be left
    out, and so may the repair of vectors as they are: `ndcg10`. A number equal to its bar is within it.

    Args:
        record: the result of `uncone.diagnose` or of `uncone.evaluate`, or the file that it was saved to.
        max: for each name the largest value that is within the bar, as in head.mean_cosine=0.3.
        min: for each name the smallest, as in ndcg10=0.3.
        fail_on: for a diagnosis, the mildest defect that fails, "warning" or "severe"; None checks bars alone.

    Returns:
        A `Check`.

    Raises:
        InputError: no bar at all, a bar that is not finite, an unknown name, a number that is undefined or not finite,
            or `fail_on` with an evaluation.

    Example:
        >>> import numpy, uncone
        >>> d = uncone.diagnose(numpy.eye(64))
        >>> result = uncone.check(d, max={"mean_cosine": 0.1}, min={"rows.isoscore": 0.5})
        >>> result.ok, result.bars[0].name, result.bars[0].value
        (True, 'rows.mean_cosine', 0.0)
    """
    if not isinstance(record, Diagnosis | Evaluation):
        record = _loaded(record)
    bars = [_bar(record, *one, "max") for one in (max or {}).items()]
    bars += [_bar(record, *one, "min") for one in (min or {}).items()]
    if fail_on not in (None, *DEFECTS):
        raise InputError(f"expected fail_on severe or warning, got {fail_on!r}: choose one, or leave it out")
    if not bars and fail_on is None:
        how = "--max mean_cosine=0.3 (max={...}), --min ndcg10=0.3 of an evaluation, or --fail-on severe"
        raise InputError(f"expected at least one bar or fail_on, got neither: give one such as {how}")
    if isinstance(record, Evaluation):
        if fail_on is not None:
            how = "a task shows no defect of geometry; give bars alone, such as --min ndcg10=0.3 (min={...})"
            raise InputError(f"expected a diagnosis with fail_on, got the evaluation {record.name}: {how}")
        return Check(record.name, all(bar.ok for bar in bars), tuple(bars), record.verdict)
    unjudged = [one.name for one in record.subjects if any(f.cause == "not_measured" for f in one.findings)]
    if fail_on is not None and unjudged:
        got = f"{unjudged[0]} with too little to judge: diagnose more rows, or give bars alone"
        raise InputError(f"expected a diagnosis that could judge all its subjects with fail_on, got {got}")
    held = Check(record.name, all(bar.ok for bar in bars), tuple(bars), record.verdict, record.level, fail_on)
    return replace(held, ok=held.ok and not held.is_defective)


def _loaded(path: Path_) -> Diagnosis | Evaluation:
    """An evaluation if the file's schema says so, otherwise a diagnosis."""
    how = f"{Diagnosis.HOW}` or `{Evaluation.HOW}"
    try:
        schema = schema_of(parsed(read_text(path, how), what="diagnosis or evaluation", how=how))
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from error
    return (Evaluation if schema == Evaluation.SCHEMA else Diagnosis).load(path)


def _bar(record: Diagnosis | Evaluation, name: str, limit: SupportsFloat, kind: Literal["max", "min"]) -> Bar:
    if not _is_finite(limit):
        raise InputError(f"expected a finite number as the {kind} of {name}, got {limit!r}: give one such as 0.3")
    value: Any
    if isinstance(record, Evaluation):
        (full, value), path, reason = record.find(name), "", ""
    else:
        full, measurement, path = record.find(name)
        value, reason = measurement.value, measurement.reason
        if path:
            full, value = f"{full}.{path}", detail(full, measurement, path)
    if value is None and not path:
        raise InputError(f"{full} is undefined here: {reason or 'no reason is given'}: remove its bar")
    if not _is_finite(value):
        shown = shortened(value if isinstance(value, str) else repr(value), LONGEST)
        raise InputError(f"expected a finite number at {full}, got {shown}: name a number")
    number, bar = float(value), float(limit)
    return Bar(full, number, kind, bar, number <= bar if kind == "max" else number >= bar)


def _is_finite(value: Any) -> bool:
    """Whether a float holds this real number, of Python or NumPy."""
    try:  # before anything is compared: a float16 holds no bound of a float
        is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return is_real and math.isfinite(float(value))
    except OverflowError:
        return False
