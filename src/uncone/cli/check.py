"""`uncone check`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from uncone.cli.failures import UntoldError
from uncone.cli.files import Html, Json, Role, hand_over, load_diagnosis
from uncone.errors import InputError, UnconeError

BEYOND = 2


def check(
    diagnosis: Annotated[Path, Role.READ],
    /,
    *,
    max: Annotated[
        list[str] | None,
        Parameter(
            negative="", help="NAME=VALUE: the number NAME must not be above VALUE. Can be given again."
        ),
    ] = None,
    min: Annotated[
        list[str] | None,
        Parameter(
            negative="", help="NAME=VALUE: the number NAME must not be below VALUE. Can be given again."
        ),
    ] = None,
    json: Json = None,
    html: Html = None,
) -> None:
    """Hold numbers of a saved diagnosis against bars: exit status 0 within all, 1 could not be measured, 2 beyond one.

    Parameters
    ----------
    diagnosis
        A file written by `uncone diagnose SPEC --json FILE`. Its numbers are called SUBJECT.MEASURE, such as
        input.isoscore, or SUBJECT.MEASURE.DETAIL; SUBJECT may be left out where there is one.
    """
    from uncone.verbs.check import check as run

    result = run(load_diagnosis(diagnosis), maxima=_bars(max, "--max"), minima=_bars(min, "--min"))
    try:
        hand_over(result, json=json, html=html)
    except (OSError, UnconeError, SystemExit) as error:  # rich leaves the program at a closed pipe
        if result.ok:
            raise
        raise UntoldError(BEYOND) from error
    if not result.ok:
        raise SystemExit(BEYOND)


def _bars(given: list[str] | None, flag: str) -> dict[str, float]:
    """NAME=VALUE of a repeated flag."""
    bars = dict[str, float]()
    for text in given or []:
        name, _, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            name = ""
        if not name.strip():
            raise InputError(
                f"expected {flag} NAME=VALUE, got {text!r}: give one such as {flag} head.mean_cosine=0.3"
            )
        if name.strip() in bars:
            raise InputError(
                f"expected one {flag} of {name.strip()}, got two: the second would hide the first"
            )
        bars[name.strip()] = number
    return bars
