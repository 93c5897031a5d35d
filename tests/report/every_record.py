"""A record of every kind with every part in it, made from the types of its fields."""

import base64
import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from itertools import accumulate, cycle
from typing import Any, Literal

from tests.every_part import parts
from uncone.saturation.checkpoints.record import NAMED

_LEAST = {parts.Comparison: 2, parts.ScalingLaw: 5}
"""Items of each list, where one is too few."""
_MEASURES = ("mean_cosine", "effective_rank", "isoscore")
_hints = cache(typing.get_type_hints)


class Maker:
    """Makes instances of dataclasses: `floats`, `integers` and `words` are taken in turn, and each tuple of any length
    has `length` items. What may be None is, where it is `sparse`."""

    def __init__(
        self,
        floats: tuple[float, ...],
        integers: tuple[int, ...] = (1, 2, 5),
        length: int = 3,
        words: tuple[str, ...] = _MEASURES,
        sparse: bool = False,
    ) -> None:
        self.floats, self.integers, self.words = cycle(floats), cycle(integers), cycle(words)
        self.length, self.sparse, self.made = length, sparse, set[type]()

    def make(self, cls: type) -> Any:
        """An instance; InputError where the class refuses what came."""
        before, self.length = self.length, max(self.length, _LEAST.get(cls, 0))
        hints = _hints(cls)
        fields = [field for field in dataclasses.fields(cls) if field.name != "schema"]
        values = {field.name: self.value(hints[field.name]) for field in fields}
        if fit := _FITS.get(cls):
            values |= fit(self, values)
        self.length = before
        self.made.add(cls)
        return cls(**values)

    def value(self, kind: Any) -> Any:
        """A value of the annotated type."""
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if dataclasses.is_dataclass(kind):
            return self.make(typing.cast(type, kind))
        if origin in (types.UnionType, typing.Union):
            if self.sparse and types.NoneType in arguments:
                return None
            return self.value(next(one for one in arguments if one is not types.NoneType))
        if origin is Literal:
            return arguments[0]
        if origin is tuple:
            of = [arguments[0]] * self.length if arguments[-1] is Ellipsis else arguments
            return tuple(map(self.value, of))
        if origin is not None and issubclass(origin, Mapping):
            return {next(self.words): self.value(arguments[1])}
        made: dict[Any, Callable[[], Any]] = {
            float: lambda: next(self.floats),
            int: lambda: next(self.integers),
            bool: lambda: True,
            str: lambda: next(self.words),
            Any: lambda: next(self.floats),
            object: lambda: next(self.floats),
        }
        return made[kind]()

    def several(self, cls: type) -> tuple[Any, ...]:
        return tuple(self.make(cls) for _ in range(self.length))


Fit = Callable[[Maker, dict[str, Any]], dict[str, Any]]


def _rising(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(sorted(values))


def _int16(count: int) -> str:
    values = bytes(byte for place in range(count) for byte in (place * 37 % 251, place % 7))
    return base64.b64encode(values).decode("ascii")


def _estimate(maker: Maker, values: dict[str, Any]) -> dict[str, Any]:
    if maker.sparse:
        return {}
    low, value, high = _rising((values["value"], *values["interval"]))
    return {"value": value, "interval": (low, high)}


def _picture(maker: Maker, values: dict[str, Any]) -> dict[str, Any]:
    n = maker.length
    scales = {name: min(abs(values[name]) or 1.0, 1e289) for name in ("raw_scale", "centered_scale", "norm_scale")}
    places = {"ids": tuple(range(n)), "groups": tuple(range(n)), "total": n}
    drawn = {"raw": _int16(3 * n), "centered": _int16(3 * n), "norms": None if maker.sparse else _int16(n)}
    return scales | places | drawn


def _results(maker: Maker, values: dict[str, Any]) -> dict[str, Any]:
    """Every repair has the numbers of the original, and a difference of each."""
    sets, repairs = ("stsb", "sick"), ("original", "center", "whiten")

    def each(of: tuple[str, ...], value: Callable[[], Any]) -> dict[str, Any]:
        return {task: {one: {repair: value() for repair in of} for one in sets} for task in ("sts",)}

    differences = each(repairs[1:], lambda: {"spearman_cosine": maker.make(parts.Interval)})
    prices = {one: {repair: maker.make(parts.Price) for repair in repairs[1:]} for one in sets}
    results = each(repairs, lambda: {"spearman_cosine": maker.value(float), "n": maker.value(int)})
    return {"results": results, "differences": differences, "prices": prices}


def _sorted(*names: str) -> Fit:
    return lambda _, values: dict(zip(names, _rising(tuple(values[name] for name in names)), strict=True))


def _edges(maker: Maker, values: dict[str, Any]) -> dict[str, Any]:
    return {"edges": _rising((*values["edges"], maker.value(float)))}


def _named(field: str, names: Callable[[dict[str, Any]], Iterable[str]]) -> Fit:
    """The parts in a field get these names."""
    return lambda _, values: {
        field: tuple(replace(one, name=name) for one, name in zip(values[field], names(values), strict=False))
    }


def _ranks(maker: Maker, values: dict[str, Any]) -> dict[str, Any]:
    first = values["ranks"][0] if values["lines"] else 0
    return {"lines": tuple(replace(one, smallest=replace(one.smallest, rank=first)) for one in values["lines"])}


def _knots(maker: Maker, values: dict[str, Any]) -> dict[str, Any]:
    knots = {knot.score: knot for knot in sorted(values["knots"], key=lambda knot: knot.score)}
    return {"variance": abs(values["variance"]), "knots": tuple(knots.values())}


def _trace(maker: Maker, values: dict[str, Any]) -> dict[str, Any]:
    steps = list(accumulate(1 + one.step for one in values["checkpoints"]))
    first = [one.failed for one in values["checkpoints"][:1]]
    placed = zip(values["checkpoints"], steps, [*first, *[""] * (len(steps) - 1)], strict=True)
    return {"checkpoints": tuple(replace(one, step=step, failed=failed) for one, step, failed in placed)}


_FITS: dict[type, Fit] = {
    parts.Estimate: _estimate,
    parts.Interval: _sorted("low", "difference", "high"),
    parts.Share: _sorted("low", "value", "high"),
    parts.Ratio: lambda m, v: {} if m.sparse else _sorted("low", "value", "high")(m, v),
    parts.Group: lambda m, v: {"start": 10 * v["n"], "stop": 10 * v["n"] + 10},
    parts.Norms: _edges,
    parts.Picture: _picture,
    parts.RankCurve: _ranks,
    parts.LayerProfile: _edges,
    parts.ScoreHistogram: lambda m, v: {"width": abs(v["width"])},
    parts.Calibration: _knots,
    parts.LawRun: lambda _, v: {name: abs(v[name]) for name in ("n", "t", "loss")},
    parts.ScalingLaw: _named("constants", lambda _: ("A", "alpha", "B", "beta", "E")),
    parts.Repaired: _named("after", lambda values: (one.name for one in values["before"])),
    parts.Checkpoint: lambda m, v: {"values": {name: m.value(float) for name in NAMED}},
    parts.SeriesTurn: lambda m, _: {"name": "head_entropy"},
    parts.CheckpointTrace: _trace,
    parts.CurveVerdict: lambda _, v: {"peak_step": v["steps"][0] if v["steps"] else None},
    parts.Evaluation: _results,
}
