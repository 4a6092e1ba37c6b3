"""Growing storage for an index: an array for each property of the documents, so that an append costs what is new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int32]

_Scalar = TypeVar("_Scalar", bound=np.generic)


class Column(Generic[_Scalar]):
    """A property of every document, by its number."""

    def __init__(self, kind: type[_Scalar]) -> None:
        self._room: NDArray[_Scalar] = np.zeros(16, kind)
        self._used = 0

    def append(self, value: float) -> None:
        """Give the next number its value."""
        if self._used == len(self._room):
            self._room = np.concatenate([self._room, np.zeros_like(self._room)])
        self._room[self._used] = value
        self._used += 1

    @property
    def values(self) -> NDArray[_Scalar]:
        """The values of all numbers given so far: a view, to be read or written at once and not to be kept."""
        return self._room[: self._used]

    def keeping(self, numbers: Sequence[int]) -> Column[_Scalar]:
        """The same with these numbers alone, numbered anew in their order."""
        kept: Column[_Scalar] = Column(self._room.dtype.type)
        kept._room = np.concatenate([self._room[np.asarray(numbers, np.int64)], kept._room])
        kept._used = len(numbers)
        return kept
