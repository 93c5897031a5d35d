import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from uncone.records.text import cut_label
from uncone.rows import Array

MOST_AS_GIVEN, MOST_TEXTS = 2**16, 2**18
"""Different cells that are kept. Beyond these limits, numbers become float64, and texts None."""


def number_of(cell: Any) -> float | None:
    """None if the cell holds no number; NaN if it is empty."""
    if is_empty(cell):
        return math.nan
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def text_of(cell: Any) -> str:
    """A cell as a name; empty for a NaN too."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return cut_label(str(cell).strip()) or ""


class Cells(Sequence[Any]):
    """4 bytes per cell, and 8 more for each of many different numbers."""

    def __init__(self, cells: Iterable[Any] = ()) -> None:
        self._place: dict[Any, int] = {}
        self._given: list[Any] = []
        self._codes, self._numbers = array("i"), array("d")  # below 0 a code counts `_numbers` from its end
        self.extend(cells)

    def extend(self, cells: Iterable[Any]) -> None:
        find, append = self._place.get, self._codes.append
        for cell in cells:
            code = find(cell) if type(cell) is str else find(_key(cell))
            append(self._new(cell) if code is None else code)

    def _new(self, cell: Any) -> int:
        if len(self._given) >= MOST_AS_GIVEN and not is_empty(cell):
            number = number_of(cell)
            if number is not None:
                self._numbers.append(number)
                return -len(self._numbers)
            if len(self._given) >= MOST_TEXTS:
                cell = None
        self._given.append(cell)
        return self._place.setdefault(_key(cell), len(self._given) - 1)

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, at: Any) -> Any:
        code = self._codes[at]
        return self._given[code] if code >= 0 else self._numbers[-1 - code]

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    def numbers(self) -> tuple[Array, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """(n,): each cell as a number, NaN if it has none; whether it is empty; and whether it is not a number."""
        read, none = [number_of(cell) for cell in self._given], np.zeros(len(self._numbers), bool)
        empty = self._spread(np.array(list(map(is_empty, self._given)), bool), none)
        wrong = self._spread(np.array([one is None for one in read], bool), none)
        return self._spread(np.array(read, float), np.frombuffer(self._numbers)), empty, wrong

    def codes(self) -> npt.NDArray[np.int32]:
        """(n,): numbers from 0 on that are equal where the cells' texts are."""
        of = dict[str, int]()
        given = np.array([of.setdefault(text_of(cell), len(of)) for cell in self._given], np.int32)
        numbers = np.unique(np.frombuffer(self._numbers), return_inverse=True)[1]
        return self._spread(given, (numbers + len(of)).astype(np.int32))

    def _spread(self, given: npt.NDArray[Any], numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.concatenate([given, numbers[::-1]])[np.frombuffer(self._codes, np.intc)]


def _key(cell: Any) -> Any:
    """True, 1 and 1.0 are different cells."""
    if type(cell) is str:
        return cell
    try:
        hash(cell)
    except TypeError:
        cell = repr(cell)
    return type(cell), cell
