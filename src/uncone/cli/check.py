"""`uncone check`."""

from pathlib import Path
from typing import Annotated, Literal

from uncone.cli.answer import judge
from uncone.cli.files import Html, Json, load
from uncone.diagnosis.record import Diagnosis
from uncone.errors import InputError
from uncone.regular import number_in
from uncone.roles import Role


def check(
    diagnosis: Annotated[Path, Role.READ],
    /,
    *,
    max: list[str] | None = None,
    min: list[str] | None = None,
    fail_on: Literal["severe", "warning"] | None = None,
    json: Json = None,
    html: Html = None,
) -> None:
    """Hold a saved diagnosis against bars: exit status 0 within all, 1 could not be measured, 2 beyond one,
    or a defect as bad as --fail-on.

    Args:
        diagnosis: A file written by `uncone diagnose SPEC --json FILE`. A number's name is SUBJECT.MEASURE,
            such as input.isoscore, or SUBJECT.MEASURE.DETAIL; SUBJECT may be left out where there is one.
        max: NAME=VALUE: the number NAME must not be above VALUE. Can be given again.
        min: NAME=VALUE: the number NAME must not be below VALUE. Can be given again.
        fail_on: The mildest defect of the diagnosis that fails, warning or severe.
    """
    from uncone.comparison.bars.check import check as run

    bars = {"maxima": _bars(max, "--max"), "minima": _bars(min, "--min")}
    result = run(load(Diagnosis, diagnosis), fail_on=fail_on, **bars)
    judge(result, json, html, beyond=not result.ok)


def _bars(given: list[str] | None, flag: str) -> dict[str, float]:
    """NAME=VALUE of a repeated flag."""
    bars = dict[str, float]()
    for text in given or []:
        name, _, value = text.rpartition("=")
        name, number = name.strip(), number_in(value)
        if not name or number is None:
            raise InputError(
                f"expected {flag} NAME=VALUE, got {text!r}: give one such as {flag} head.mean_cosine=0.3"
            )
        if name in bars:
            raise InputError(f"expected one {flag} of {name}, got two: the second would hide the first")
        bars[name] = number
    return bars
