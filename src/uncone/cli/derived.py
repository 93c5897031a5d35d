"""The attribute `judge_curves` is the command of `uncone.judge_curves`.

The first argument is the subject, the others are options. Sequences take several values, mappings NAME=VALUE, callables
are left out. The help of an option is its sentence in the docstring.
"""

import inspect
import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from cyclopts import Parameter as Option

from uncone.cli.answer import follow, hand_over, judge, progress_bar, tell
from uncone.cli.files import Brief, Html, Json, Several, role_in
from uncone.errors import InputError
from uncone.questions import QUESTIONS
from uncone.regular import number_in
from uncone.roles import Role

_FAILS = "Exit with status 2 if one of them is worse than the baseline, for scripts."
_FOLLOWS = "Keep redrawing the runs while they go on, until Ctrl-C."
_OWN: dict[str, dict[str, Any]] = {
    "compare": {"fail_on": Annotated[Literal["worse"] | None, Option(help=_FAILS)]},
    "watch": {"follow": Annotated[bool | None, Option(help=_FOLLOWS, negative="")]},
}
"""Options that a command has and its function does not."""
_BEYOND: dict[str, Callable[[Any, Mapping[str, Any]], bool]] = {
    "calibrate": lambda record, _: record.drift is not None and record.drift.found,
    "check": lambda record, _: not record.ok,
    "compare": lambda record, arguments: arguments.get("fail_on") == "worse" and record.worse,
}  # where a result is beyond its bar: the command ends with status 2
_IN_FULL = {"diagnose": "diagnosis.advice.with_whole_paths", "repair": "repairs.repair.with_whole_names"}
"""Records hold the ends of paths, because they are shared; commands on a terminal hold whole paths, to be pasted."""
_SEQUENCES = (Sequence, Iterable, list, tuple)
_SECTIONS = re.compile(r"^(Args|Returns|Raises|Example|Attributes):$", re.MULTILINE)
_ARGUMENT = re.compile(r"^    (\w+): ", re.MULTILINE)


def __getattr__(name: str) -> Callable[..., None]:
    if name not in QUESTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return command_of(getattr(import_module(f"uncone.{QUESTIONS[name][0]}"), name))


def command_of(function: Callable[..., Any]) -> Callable[..., None]:
    hints = get_type_hints(function, include_extras=True)
    given = inspect.signature(function).parameters
    accepted = {name: hints[name] for name in given if Callable not in _origins(hints[name])}
    pairs = {name: of for name, hint in accepted.items() if (of := _values_of_pairs(hint)) is not None}
    own = _OWN.get(function.__name__, {})

    def command(*subjects: Any, json: Any = None, html: Any = None, brief: bool = False, **options: Any) -> None:
        for name, value in options.items():
            if value == []:
                raise InputError(f"expected a value after {_flag(name)}, got none: give one, or leave the option out")
        for name in pairs.keys() & options.keys():
            options[name] = None if options[name] is None else dict(_pairs(name, options[name], pairs[name]))
        own_options = {name: options.pop(name) for name in own if name in options}
        arguments = dict(zip(accepted, subjects, strict=False)) | options
        with progress_bar() as progress:
            if "progress" in given:
                options["progress"] = progress
            call = partial(function, *subjects, **options)
            record = follow(call) if own_options.get("follow") else call()
        _hand_over(function.__name__, record, arguments | own_options, json, html, accepted, brief=brief)

    options = {name: _option(name, hint, given[name].default) for name, hint in accepted.items()}
    subject, *parameters = (given[name].replace(annotation=option) for name, option in options.items())
    parameters.insert(0, subject.replace(kind=Parameter.POSITIONAL_ONLY))
    added = {**own, "json": Json, "html": Html}
    parameters += [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=of) for name, of in added.items()]
    parameters.append(Parameter("brief", Parameter.KEYWORD_ONLY, default=False, annotation=Brief))
    command.__name__ = command.__qualname__ = function.__name__
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__ = _help(function.__doc__ or "", list(accepted))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _hand_over(
    name: str, record: Any, arguments: Mapping[str, Any], json: Any, html: Any, hints: Mapping[str, Any], *, brief: bool
) -> None:
    """With what only a command has: whole paths, the files written, an exit status."""
    written = [arguments.get(one) for one, hint in hints.items() if role_in(hint) in (Role.WRITE, Role.OUT)]
    is_own = type(record).__name__ == QUESTIONS[name][1].rpartition(".")[2]
    if not is_own and name not in _BEYOND:  # the answer is to write nothing
        hand_over(record, json, html, brief=brief)
        tell(arguments.get("out"), did="nothing was written to")  # why is printed above
        return
    if name in _BEYOND:
        judge(record, json, html, beyond=_BEYOND[name](record, arguments), brief=brief)
        return
    shown = record
    if getattr(record, "selection", None) is not None:
        hand_over(record.selection, brief=brief)  # the selection is printed alone, and kept with the rest
        shown = replace(record, selection=None)
    if name in _IN_FULL:
        file, _, function = _IN_FULL[name].rpartition(".")
        shown = getattr(import_module(f"uncone.{file}"), function)(shown, arguments)
    hand_over(record, json, html, shown=shown, written=written, brief=brief)


def _help(documentation: str, names: list[str]) -> str:
    first, *rest = _SECTIONS.split(inspect.cleandoc(documentation))
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    arguments = _ARGUMENT.split(sections.get("Args", "").partition("\n\n")[0])
    sentences = zip(arguments[1::2], arguments[2::2], strict=True)
    kept = [f"    {name}: {_sentence(text, names)}" for name, text in sentences if name in names]
    return "\n".join([first.rstrip(), "", "Args:", *kept])


def _sentence(text: str, names: list[str]) -> str:

    def in_a_shell(match: re.Match[str]) -> str:
        name = match[1]
        return (name.upper() if name == names[0] else _flag(name)) if name in names else name

    text = re.sub(r"`([^`]+)`", in_a_shell, " ".join(text.split()))
    return text[:1].upper() + text[1:]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _option(name: str, hint: Any, default: Any) -> Any:
    role, bare = role_in(hint), _bare(hint)
    marks: list[Any] = [role] if role else []
    several = [get_args(one)[0] for one in _choices(bare) if get_origin(one) in _SEQUENCES]
    if role is Role.READ:  # a sequence is in memory, unless of paths
        several = list(filter(_is_path, several))
    if _values_of_pairs(hint) is not None:
        several = [str]
    if several:
        many = cast(Any, list)[_item(several[0], role)]
        return Annotated[many if type(None) not in _choices(bare) else many | None, *marks, Several]
    if default is True:
        marks.append(Option(negative=_flag(f"no_{name}")))
    kind = reduce(operator.or_, _kinds(bare, role))
    return Annotated[kind, *marks] if marks else kind


def _kinds(bare: Any, role: Role | None) -> list[Any]:
    choices, nothing = _choices(bare), type(None)
    if any(map(_is_path, choices)):  # a path is a string or more
        choices = tuple(one for one in choices if one is not str)
    elif role is Role.READ and str in choices:
        choices = tuple(one for one in choices if one in (str, nothing))
    kinds = [one if one is nothing else _item(one, role) for one in choices]
    return sorted(dict.fromkeys(kinds), key=lambda kind: kind is not int)  # anything can be read as a string


def _item(kind: Any, role: Role | None) -> Any:
    if role in (Role.SPEC, Role.OUT) or kind is str:
        return str
    if get_origin(kind) is Literal:  # words in the place of a file
        return kind
    if role is not None:
        return Path
    if kind is Any or _is_path(kind):
        return str
    return reduce(operator.or_, _kinds(kind, None)) if len(_choices(kind)) > 1 else kind


def _is_path(kind: Any) -> bool:
    return any(one is os.PathLike or get_origin(one) is os.PathLike for one in _choices(kind))


def _choices(bare: Any) -> tuple[Any, ...]:
    return get_args(bare) if get_origin(bare) in (Union, UnionType) else (bare,)


def _bare(hint: Any) -> Any:
    return hint.__origin__ if get_origin(hint) is Annotated else hint


def _origins(hint: Any) -> dict[Any, Any]:
    return {get_origin(one): one for one in _choices(_bare(hint))}


def _values_of_pairs(hint: Any) -> type | None:
    found = _origins(hint).get(Mapping)
    if role_in(hint) or found is None:
        return None
    return str if get_args(found)[1] is str else float


def _pairs(option: str, given: Iterable[str], of: type) -> Iterator[tuple[str, Any]]:
    seen, flag = set[str](), _flag(option)
    for text in given:
        name, _, value = (piece.strip() for piece in text.rpartition("="))
        read = number_in(value) if of is float else value
        if not name or not value or read is None:
            way_out = "give a number, as in NAME=0.3" if of is float else "give both, as in NAME=VALUE"
            raise InputError(f"expected {flag} NAME=VALUE, got {text!r}: {way_out}")
        if name in seen:
            raise InputError(f"expected one {flag} for {name}, got two: the second would hide the first")
        seen.add(name)
        yield name, read
