"""`uncone compare`."""

from typing import Annotated, Literal

from uncone.cli.answer import judge, progress_bar
from uncone.cli.files import Html, Json
from uncone.roles import Role


def compare(
    *diagnoses: Annotated[str, Role.SPEC],
    names: str | None = None,
    fail_on: Literal["worse"] | None = None,
    json: Json = None,
    html: Html = None,
) -> None:
    """Show which defects came or went between models or saved diagnoses and what changed, and draw them over
    each other.

    Args:
        diagnoses: Two to six, the baseline first. Each is a file written by `uncone diagnose SPEC --json FILE`,
            or a SPEC, which is diagnosed now: a model's directory, the name of a cached one, or a file of rows.
        names: What to call them, in their order and separated by commas; else their own names.
        fail_on: Give exit status 2 if one of them is worse than the baseline, for scripts.
    """
    from uncone.comparison.compare import compare as run

    with progress_bar() as progress:
        result = run(diagnoses, names=None if names is None else names.split(","), progress=progress)
    judge(result, json, html, beyond=fail_on == "worse" and result.worse)
