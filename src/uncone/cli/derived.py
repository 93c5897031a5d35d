"""Commands that are derived from functions: `uncone.cli.derived:judge_curves` is the command of `uncone.judge_curves`.

Of the function's signature the first argument is the subject of the command, and the others are its options. Sequences
take several values, mappings NAME=VALUE, callables are left out, and `--json` and `--html` are added. The sentence of an
option is that of the docstring.
"""

import collections.abc
import inspect
import operator
import os
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union

from uncone.cli.answer import answer
from uncone.cli.files import Html, Json, Several
from uncone.errors import InputError
from uncone.questions import QUESTIONS
from uncone.regular import number_in
from uncone.roles import Role

_SECTIONS = re.compile(r"^(Args|Returns|Raises|Example|Attributes):$", re.MULTILINE)
_ARGUMENT = re.compile(r"^    (\w+): ", re.MULTILINE)


def __getattr__(name: str) -> Callable[..., None]:
    """The command of the function `name`."""
    if name not in QUESTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return command_of(getattr(import_module(f"uncone.{QUESTIONS[name][0]}"), name))


def command_of(function: Callable[..., Any]) -> Callable[..., None]:
    """The command that parses, calls the function under a progress bar, prints its record and writes the files asked for."""
    hints = typing.get_type_hints(function, include_extras=True)
    taken = {
        name: (parameter, hints[name])
        for name, parameter in inspect.signature(function).parameters.items()
        if not _is_callable(hints[name])
    }
    pairs = {name: of for name, (_, hint) in taken.items() if (of := _values_of_pairs(hint)) is not None}
    written = [name for name, (_, hint) in taken.items() if _role(hint) in (Role.WRITE, Role.OUT)]

    def command(*subjects: Any, json: Path | None = None, html: Path | None = None, **options: Any) -> None:
        for name in pairs.keys() & options.keys():
            options[name] = None if options[name] is None else dict(_pairs(name, options[name], pairs[name]))
        named = dict(zip(taken, subjects, strict=False)) | options
        answer(partial(function, *subjects, **options), json, html, *(named.get(name) for name in written))

    parameters = [
        parameter.replace(
            kind=parameter.kind if place else Parameter.POSITIONAL_ONLY, annotation=_option(hint)
        )
        for place, (parameter, hint) in enumerate(taken.values())
    ]
    files = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=of)
        for name, of in (("json", Json), ("html", Html))
    ]
    command.__name__ = command.__qualname__ = function.__name__
    command.__annotations__ = {one.name: one.annotation for one in (*parameters, *files)}
    command.__doc__ = _help(function.__doc__ or "", list(taken))
    command.__signature__ = inspect.Signature([*parameters, *files])  # type: ignore[attr-defined]
    return command


def _help(documentation: str, names: list[str]) -> str:
    """What a function's docstring says to a user of the command: its first paragraphs, and the arguments that are options."""
    text = inspect.cleandoc(documentation)
    found = list(_SECTIONS.finditer(text))
    sections = {
        one[1]: text[one.end() : after.start() if after else None]
        for one, after in zip(found, [*found[1:], None], strict=True)
    }
    arguments = re.split(_ARGUMENT, sections.get("Args", "").partition("\n\n")[0])
    sentences = zip(arguments[1::2], arguments[2::2], strict=True)
    kept = [f"    {name}: {_sentence(said)}" for name, said in sentences if name in names]
    return "\n".join([text[: found[0].start() if found else None].rstrip(), "", "Args:", *kept])


def _sentence(said: str) -> str:
    said = " ".join(said.split()).replace("`", "")
    return said[:1].upper() + said[1:]


def _option(hint: Any) -> Any:
    """The annotation of an option, as cyclopts reads it."""
    role, bare = _role(hint), _bare(hint)
    marks: list[Any] = [role] if role else []
    several = next(
        (
            one
            for one in _choices(bare)
            if _is_sequence(one) and (not role or _is_path(typing.get_args(one)[0]))
        ),
        None,
    )
    if _values_of_pairs(hint) is not None:
        several = collections.abc.Sequence[str]
    if several is not None:
        many = typing.cast(Any, list)[_item(typing.get_args(several)[0], role)]
        return Annotated[many if _is_required(bare) else many | None, *marks, Several]
    kind = reduce(operator.or_, (_item(one, role) for one in _choices(bare)))
    return Annotated[kind, *marks] if marks else kind


def _item(kind: Any, role: Role | None) -> Any:
    """The type of one value: a file has a path, a spec is a string, and what may be anything is either."""
    if role in (Role.SPEC, Role.OUT) and kind is not type(None):
        return str
    if role is not None and kind is not type(None):
        return Path
    return str if kind is Any or _is_path(kind) else kind


def _is_path(kind: Any) -> bool:
    return any(one is os.PathLike or typing.get_origin(one) is os.PathLike for one in _choices(kind))


def _choices(bare: Any) -> tuple[Any, ...]:
    return typing.get_args(bare) if typing.get_origin(bare) in (Union, UnionType) else (bare,)


def _bare(hint: Any) -> Any:
    return hint.__origin__ if typing.get_origin(hint) is Annotated else hint


def _is_required(bare: Any) -> bool:
    return type(None) not in _choices(bare)


def _role(hint: Any) -> Role | None:
    """The role in an annotation, or in one of the types that it allows."""
    marks = getattr(hint, "__metadata__", ())
    found = next((mark for mark in marks if isinstance(mark, Role)), None)
    inner = typing.get_args(hint) if found is None and typing.get_origin(hint) is not Annotated else ()
    return found or next((role for one in inner if (role := _role(one))), None)


def _is_callable(hint: Any) -> bool:
    return any(typing.get_origin(one) is collections.abc.Callable for one in _choices(_bare(hint)))


def _is_sequence(kind: Any) -> bool:
    return typing.get_origin(kind) in (collections.abc.Sequence, list, tuple)


def _values_of_pairs(hint: Any) -> type | None:
    """The type of a mapping's values; a mapping where a file may stand is one in memory."""
    if _role(hint):
        return None
    found = next(
        (one for one in _choices(_bare(hint)) if typing.get_origin(one) is collections.abc.Mapping), None
    )
    return None if found is None else typing.get_args(found)[1]


def _pairs(option: str, given: Iterable[str], of: type) -> Iterator[tuple[str, Any]]:
    """NAME=VALUE, each name once."""
    seen = set[str]()
    for text in given:
        name, _, value = (piece.strip() for piece in text.rpartition("="))
        number = number_in(value) if of is float else None
        flag = f"--{option.replace('_', '-')}"
        if not name or not value or (of is float and number is None):
            example = "NAME=0.3" if of is float else "NAME=VALUE"
            raise InputError(
                f"expected {flag} NAME=VALUE, got {text!r}: give {'a number' if of is float else 'both'}, as in {example}"
            )
        if name in seen:
            raise InputError(f"expected one {flag} of {name}, got two: the second would hide the first")
        seen.add(name)
        yield name, value if number is None else number
