"""The properties of documents as growing arrays, one for each property, which an index stores in blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int32]

BLOCK: Final = 1024
"""The number of documents in a block. A changed document rewrites its block, about 80 KB."""

NONE: Final = -1
"""The value of a document's neighbour or talk if it has none."""

PROPERTIES: Final[Mapping[str, DTypeLike]] = {
    "alive": np.bool_,
    "kind": np.int32,
    "language": np.int32,
    "speaker": np.int32,
    "session": np.int32,
    "position": np.int64,
    "before": np.int32,
    "after": np.int32,
    "talk": np.int32,
    "question": np.bool_,
    "timed": np.bool_,
    "time": np.float64,
    "fade": np.float64,
    "role": np.int8,
    "length": np.uint32,
    "stars": np.float32,
    "score_stars": np.float32,
    "confidence": np.float32,
    "expires": np.float64,
    "vectors": np.int8,
    "signs": np.uint8,
}
"""The type of each property. Its order is part of the format of an index file."""

_BYTES: Final = sum(np.dtype(kind).itemsize for kind in PROPERTIES.values())


class Columns:
    """The properties of all documents, by document number. All properties of a removed document are 0.

    Attributes:
        count: The number of document numbers in use, including those of removed documents.
        changed: The blocks that changed since they were written.
    """

    def __init__(self) -> None:
        self.count = 0
        self.changed: set[int] = set()
        self._room: dict[str, NDArray[Any]] = {name: np.zeros(16, kind) for name, kind in PROPERTIES.items()}

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return the values of a property, as a view. Do not keep it: growth replaces the array."""
        return self._room[name][: self.count]

    def put(self, name: str, number: int, value: float) -> None:
        """Set a property of a document that has been added."""
        self._room[name][number] = value
        self.changed.add(number // BLOCK)

    def add(self, number: int, **properties: float) -> None:
        """Set the properties of a new document."""
        self._grow(number + 1)
        for name, value in properties.items():
            self._room[name][number] = value
        self.changed.add(number // BLOCK)

    def clear(self, number: int) -> None:
        """Set all properties of a document to 0."""
        for values in self._room.values():
            values[number] = 0
        self.changed.add(number // BLOCK)

    def _grow(self, count: int) -> None:
        self.count = max(self.count, count)
        for name, values in self._room.items():
            if count > len(values):
                room = np.zeros(max(count, 2 * len(values)), values.dtype)
                room[: len(values)] = values
                self._room[name] = room

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.count // BLOCK)

    @property
    def size(self) -> int:
        """The bytes of all arrays."""
        return sum(values.nbytes for values in self._room.values())

    def block(self, number: int) -> bytes:
        """Return the bytes of a block: its values of each property, one property after another."""
        begin, end = number * BLOCK, min((number + 1) * BLOCK, self.count)
        return b"".join([values[begin:end].tobytes() for values in self._room.values()])

    def put_block(self, number: int, data: bytes) -> None:
        """Replace a block. Raises ``ValueError`` if the data is no block."""
        count, rest = divmod(len(data), _BYTES)
        if rest or not 0 < count <= BLOCK:
            raise ValueError(f"block {number} has {len(data)} bytes")
        begin, offset = number * BLOCK, 0
        self._grow(begin + count)
        for values in self._room.values():
            values[begin : begin + count] = np.frombuffer(data, values.dtype, count, offset)
            offset += count * values.itemsize
