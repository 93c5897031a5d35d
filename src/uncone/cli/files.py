"""What each option of a command does with the file that it names, and what may be written."""

from inspect import BoundArguments, Parameter
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from cyclopts import Parameter as Option

from uncone.atomic import check_apart, writable
from uncone.errors import InputError
from uncone.roles import Role

Several = Option(consume_multiple=True)
Json = Annotated[Path | None, Role.WRITE, Option(help="Write the whole result to this file as JSON.")]
Html = Annotated[Path | None, Role.WRITE, Option(help="Write a page with charts to this file as HTML.")]

_BRIEF = "Print only the verdict, the findings and what to do (of a calibration, its thresholds too)."
Brief = Annotated[bool, Option(help=_BRIEF, negative="")]

_ENDINGS = {"html": (".html", ".htm"), "json": (".json",), "markdown": (".md", ".markdown")}
"""Programs rely on endings: none opens a page that is called report.json."""


def check_files(bound: BoundArguments) -> None:
    """Refuse, by the roles in the annotations, to write over a source or where nothing can be written."""
    files, kept, out, read = (
        [Path(name) for name in _given(bound, role)] for role in (Role.WRITE, Role.KEEP, Role.OUT, Role.READ)
    )
    targets = [*files, *map(_whole, out)]
    if not targets and not kept:
        return
    sources = list(map(_whole, read))
    if _given(bound, Role.SPEC):
        from uncone.model.open import open_spec
        from uncone.model.targets import check_targets_apart

        for name, value in bound.arguments.items():  # opened once, for the command too
            if role_of(bound.signature.parameters[name]) is Role.SPEC and value is not None:
                several = isinstance(value, tuple | list)
                bound.arguments[name] = type(value)(map(open_spec, value)) if several else open_spec(value)
        specs = _given(bound, Role.SPEC)
        check_targets_apart([*targets, *kept], specs, sources)
    else:
        check_apart([*targets, *kept], sources)
    check_apart(targets, kept)
    for file in files:
        writable(file)
    for option, endings in _ENDINGS.items():
        path = bound.arguments.get(option)
        if path is not None and path.suffix.casefold() not in endings:
            what = f"a name that ends in {' or '.join(endings)} for --{option}"
            raise InputError(f"expected {what}, got {path}: say {path.with_suffix(endings[0])}")


def role_of(parameter: Parameter) -> Role | None:
    return role_in(parameter.annotation)


def role_in(hint: Any) -> Role | None:
    marks = getattr(hint, "__metadata__", ())
    found = next((mark for mark in marks if isinstance(mark, Role)), None)
    inner = get_args(hint) if found is None and get_origin(hint) is not Annotated else ()
    return found or next((role for one in inner if (role := role_in(one))), None)


def _given(bound: BoundArguments, role: Role) -> list[Any]:
    parameters = bound.signature.parameters
    values = [value for name, value in bound.arguments.items() if role_of(parameters[name]) is role]
    several = (value if isinstance(value, tuple | list) else [value] for value in values)
    return [one for value in several for one in value if one is not None]


def _whole(out: Path) -> Path:
    """The file of FILE#PART."""
    return out if out.exists() else out.with_name(out.name.partition("#")[0] or out.name)
