"""`uncone compare`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from uncone.cli.files import Html, Json, Role, hand_over, load_diagnosis


def compare(
    *diagnoses: Annotated[Path, Role.READ],
    names: Annotated[
        str | None,
        Parameter(help="What to call them, in their order and separated by commas; else their own names."),
    ] = None,
    json: Json = None,
    html: Html = None,
) -> None:
    """Say what became better or worse between saved diagnoses, and draw them over each other.

    Parameters
    ----------
    diagnoses
        Two to six files written by `uncone diagnose SPEC --json FILE`; the first is the baseline.
    """
    from uncone.verbs.compare import compare as run

    comparison = run(
        [load_diagnosis(path) for path in diagnoses], names=None if names is None else names.split(",")
    )
    hand_over(comparison, json=json, html=html)
