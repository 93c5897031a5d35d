"""`uncone compare`."""

from pathlib import Path
from typing import Annotated, Literal

from uncone.cli.answer import judge
from uncone.cli.files import Html, Json, Role, load
from uncone.records import Diagnosis


def compare(
    *diagnoses: Annotated[Path, Role.READ],
    names: str | None = None,
    fail_on: Literal["worse"] | None = None,
    json: Json = None,
    html: Html = None,
) -> None:
    """Say which defects came or went between saved diagnoses and what changed, and draw them over each other.

    Args:
        diagnoses: Two to six files written by `uncone diagnose SPEC --json FILE`; the first is the baseline.
        names: What to call them, in their order and separated by commas; else their own names.
        fail_on: Give exit status 2 if one of them is worse than the baseline, for scripts.
    """
    from uncone.verbs.compare import compare as run

    loaded = [load(Diagnosis, path) for path in diagnoses]
    result = run(loaded, names=None if names is None else names.split(","))
    judge(result, json, html, beyond=fail_on == "worse" and result.worse)
