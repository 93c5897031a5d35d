"""The instructions in a checkpoint, looked at before torch follows them: `weights_only` runs no code, but it can be kept busy for ever.

A pickle names an object once and fetches it again, so a few hundred bytes can stand for a tuple of 2^100 parts, whose hash takes as
many steps, or for a text of as many characters. Checkpoints fetch what is small: names, sizes, a pair of numbers.
"""

import io
import pickletools

from uncone.errors import InputError

_ATOM, _REBUILD, _GLOBAL, _FLAT, _NEAR, _DEEP = range(6)
"""What an instruction leaves on the stack: one value or tensor; the name of a function that makes tensors; that of another; up to 16
of these; up to 16 of all these; anything."""
_FEW = 16
_MOST_FETCHES = 32
"""Of lists, dicts and deep tuples, in one file."""
_PUSHED = dict.fromkeys(
    ["BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING", "NONE", "NEWTRUE", "NEWFALSE"], _ATOM
) | dict.fromkeys(["EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET"], _DEEP)
_DROPPED = {"APPEND": 1, "SETITEM": 2, "BUILD": 1}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def check_instructions(content: io.BytesIO | io.BufferedReader, name: str) -> None:
    """Look through one pickle of the file called `name`, running nothing. `content` stands behind it afterwards.

    Raises:
        InputError: instructions that `weights_only` does not follow either, or that stand for far more than the file holds.
    """
    machine = _Machine(name)
    try:
        for instruction, argument, _ in pickletools.genops(content):
            machine.step(instruction.name, argument)
    except InputError:
        raise
    except Exception as error:  # whatever is no pickle
        raise InputError(
            f"expected a PyTorch checkpoint, got {name}, whose instructions do not parse ({str(error)[:200]}): copy it again"
        ) from error


class _Machine:
    """The stack of an unpickler with kinds of objects in the place of objects."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stack: list[int] = []
        self._marks: list[int] = []
        self._memo: dict[int, int] = {}
        self._fetched = 0

    def step(self, name: str, argument: object) -> None:
        if name in _PUSHED:
            self._stack.append(_PUSHED[name])
        elif name == "GLOBAL":
            self._name_function(str(argument))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[int(str(argument))] = self._stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self._fetch(self._memo[int(str(argument))])
        elif name == "MARK":
            self._marks.append(len(self._stack))
        elif name in _TUPLES or name == "TUPLE":
            self._stack.append(_kind_of(self._pop(_TUPLES[name]) if name in _TUPLES else self._pop_to_mark()))
        elif name in ("APPENDS", "SETITEMS"):
            self._pop_to_mark()
        elif name in _DROPPED:
            self._pop(_DROPPED[name])
        elif name in ("REDUCE", "NEWOBJ"):
            self._call(*self._pop(2))
        elif name == "BINPERSID":
            self._require(self._pop(1)[0] in (_FLAT, _NEAR), "a storage")
            self._stack.append(_ATOM)
        else:
            self._require(name in ("PROTO", "STOP"), f"the instruction {name}")

    def _name_function(self, function: str) -> None:
        self._require(function.rpartition(" ")[2] != "bytearray", "a bytearray")  # torch calls it, with any size
        self._stack.append(_REBUILD if function.rpartition(" ")[2].startswith("_rebuild") else _GLOBAL)

    def _fetch(self, kind: int) -> None:
        self._fetched += kind >= _NEAR
        self._require(self._fetched <= _MOST_FETCHES, "objects within objects without end")
        self._stack.append(kind)

    def _call(self, function: int, _: int) -> None:
        self._require(function in (_REBUILD, _GLOBAL), "a call of what is no function")
        self._stack.append(_ATOM if function == _REBUILD else _DEEP)

    def _pop(self, count: int) -> list[int]:
        if count > len(self._stack):
            raise IndexError("more is taken from the stack than lies there")
        items = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return items

    def _pop_to_mark(self) -> list[int]:
        return self._pop(len(self._stack) - self._marks.pop())

    def _require(self, holds: bool, came: str) -> None:
        if not holds:
            raise InputError(
                f"expected a PyTorch checkpoint of tensors and plain values, got {came} in {self._name}: do not trust this file"
            )


def _kind_of(items: list[int]) -> int:
    if len(items) > _FEW:
        return _DEEP
    return _FLAT if all(item <= _GLOBAL for item in items) else _NEAR if all(item <= _FLAT for item in items) else _DEEP
