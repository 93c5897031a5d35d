"""A record of every kind with every part in it, made from the types of its fields: numbers and words come from the caller."""

import base64
import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
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
    """Makes instances of dataclasses: each float is one of `floats` in turn, each integer one of `integers`, each text one
    of `words`, and each tuple of any length has `length` items. What may be None is, where it is `sparse`."""

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
        for base, fit in _FITS.items():
            if cls is base:
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
    return {
        "ids": tuple(range(n)),
        "groups": tuple(place % n for place in range(n)),
        "total": n,
        **scales,
        "raw": _int16(3 * n),
        "centered": _int16(3 * n),
        "norms": None if maker.sparse else _int16(n),
    }


def _results(maker: Maker, values: dict[str, Any]) -> dict[str, Any]:
    """Every repair has the numbers of the original, and a difference of each."""
    sets, repairs = ("stsb", "sick"), ("original", "center", "whiten")

    def each(of: tuple[str, ...], value: Callable[[], Any]) -> dict[str, Any]:
        return {task: {one: {repair: value() for repair in of} for one in sets} for task in ("sts",)}

    of_number = {"results": lambda: {"spearman_cosine": maker.value(float), "n": maker.value(int)}}
    differences = each(repairs[1:], lambda: {"spearman_cosine": maker.make(parts.Interval)})
    prices = {one: {repair: maker.make(parts.Price) for repair in repairs[1:]} for one in sets}
    return {"results": each(repairs, of_number["results"]), "differences": differences, "prices": prices}


_FITS: dict[type, Callable[[Maker, dict[str, Any]], dict[str, Any]]] = {
    parts.Estimate: _estimate,
    parts.Interval: lambda _, v: dict(
        zip(("low", "difference", "high"), _rising((v["low"], v["difference"], v["high"])), strict=True)
    ),
    parts.Share: lambda _, v: dict(
        zip(("low", "value", "high"), _rising((v["low"], v["value"], v["high"])), strict=True)
    ),
    parts.Group: lambda m, v: {"start": 10 * v["n"], "stop": 10 * v["n"] + 10},
    parts.Norms: lambda m, v: {"edges": _rising((*v["edges"], m.value(float)))},
    parts.Picture: _picture,
    parts.RankCurve: lambda m, v: {
        "lines": tuple(
            dataclasses.replace(one, smallest=dataclasses.replace(one.smallest, rank=v["ranks"][0]))
            for one in v["lines"]
        )
    },
    parts.LayerProfile: lambda m, v: {"edges": _rising((*v["edges"], m.value(float)))},
    parts.ScoreHistogram: lambda m, v: {"width": abs(v["width"])},
    parts.Calibration: lambda _, v: {
        "variance": abs(v["variance"]),
        "knots": tuple({knot.score: knot for knot in sorted(v["knots"], key=lambda knot: knot.score)}.values()),
    },
    parts.LawRun: lambda _, v: {name: abs(v[name]) for name in ("n", "t", "loss")},
    parts.ScalingLaw: lambda _, v: {
        "constants": tuple(
            dataclasses.replace(one, name=name)
            for one, name in zip(v["constants"], ("A", "alpha", "B", "beta", "E"), strict=False)
        )
    },
    parts.Repaired: lambda _, v: {
        "after": tuple(
            dataclasses.replace(one, name=other.name) for one, other in zip(v["after"], v["before"], strict=True)
        )
    },
    parts.Checkpoint: lambda m, v: {"values": {name: m.value(float) for name in NAMED}},
    parts.SeriesTurn: lambda m, _: {"name": "head_entropy"},
    parts.CheckpointTrace: lambda m, v: {
        "checkpoints": tuple(
            dataclasses.replace(one, step=step, failed="" if place else one.failed)
            for place, (one, step) in enumerate(
                zip(v["checkpoints"], accumulate(1 + one.step for one in v["checkpoints"]), strict=True)
            )
        )
    },
    parts.CurveVerdict: lambda _, v: {"peak_step": v["steps"][0] if v["steps"] else None},
    parts.Evaluation: _results,
}
