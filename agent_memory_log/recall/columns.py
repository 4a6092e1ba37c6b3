"""Growing arrays for an index, one for each property of the documents. An append does not copy the whole array."""

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
    """The values of one property, indexed by document number."""

    def __init__(self, kind: type[_Scalar]) -> None:
        self._room: NDArray[_Scalar] = np.zeros(16, kind)
        self._used = 0

    def append(self, value: float) -> None:
        """Append the value of the next document."""
        if self._used == len(self._room):
            self._room = np.concatenate([self._room, np.zeros_like(self._room)])
        self._room[self._used] = value
        self._used += 1

    @property
    def values(self) -> NDArray[_Scalar]:
        """The values of all documents, as a view. Do not keep it: a later append may replace the array."""
        return self._room[: self._used]

    def keeping(self, numbers: Sequence[int]) -> Column[_Scalar]:
        """Return a column with only these documents, renumbered in their order."""
        column: Column[_Scalar] = Column(self._room.dtype.type)
        column._room = np.concatenate([self._room[np.asarray(numbers, np.int64)], column._room])
        column._used = len(numbers)
        return column
