"""Numbers for the texts that many documents share: kinds, languages, speakers and sessions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import msgspec
import numpy as np

from agent_memory_log.recall.index.columns import Columns
from agent_memory_log.recall.index.database import Database
from agent_memory_log.recall.nicknames import names_like
from agent_memory_log.recall.words import fold, words

_ROW_BITS = 32


class Names:
    """The names of one property of documents, with a number each. A name that no document has any more is deleted.

    The empty name has the number 0, which is never stored.

    Attributes:
        end: The least number that is larger than all numbers.
    """

    def __init__(self, database: Database, columns: Columns, column: str, place: int) -> None:
        """Name the property ``column``. Its rows have numbers from ``place << 32``."""
        self._database = database
        self._columns = columns
        self._column = column
        self._first_row = place << _ROW_BITS
        self.clear()

    def clear(self) -> None:
        """Forget all names."""
        self.end = 1
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._holders: dict[int, int] = {}
        self._free: list[int] = []
        self._by_word: dict[str, list[int]] | None = None

    def load(self) -> int:
        """Read all names. Return how many there are."""
        self.clear()
        last_row = self._first_row + (1 << _ROW_BITS) - 1
        for row, data in self._database.read_range("names", self._first_row, last_row):
            self._names[row - self._first_row] = msgspec.msgpack.decode(data, type=str)
        used = self._columns[self._column][self._columns["alive"]]
        holders = np.bincount(used) if len(used) else np.zeros(1, np.int64)
        self.end = max(len(holders), 1)
        self._holders = {number: int(holders[number]) for number in np.flatnonzero(holders).tolist() if number}
        if self._holders.keys() != self._names.keys():
            raise self._database.damaged(f"names of the property {self._column} are missing")
        self._numbers = {name: number for number, name in self._names.items()}
        self._free = [number for number in range(1, self.end) if number not in self._names]
        return len(self._numbers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __getitem__(self, number: int) -> str:
        return self._names[number] if number else ""

    def find(self, name: str) -> int | None:
        """Return the number of a name, or None if no document has it."""
        return self._numbers.get(name) if name else 0

    def take(self, name: str) -> int:
        """Return the number of a name for one more document."""
        if not name:
            return 0
        number = self._numbers.get(name)
        if number is None:
            number = self._free.pop() if self._free else self.end
            self._numbers[name], self._names[number], self._holders[number] = number, name, 0
            self.end = max(self.end, number + 1)
            self._database.write("names", self._first_row + number, msgspec.msgpack.encode(name))
            self._database.facts.names += 1
            self._by_word = None
        self._holders[number] += 1
        return number

    def release(self, number: int) -> None:
        """Note that a document with this name was removed."""
        if not number:
            return
        self._holders[number] -= 1
        if not self._holders[number]:
            del self._holders[number]
            del self._numbers[self._names.pop(number)]
            self._free.append(number)
            self._database.delete("names", self._first_row + number)
            self._database.facts.names -= 1
            self._by_word = None

    def with_word(self, word: str) -> list[int]:
        """Return the numbers of the names that have this word, or a first name that it may stand for."""
        if self._by_word is None:
            self._by_word = {}
            for name, number in self._numbers.items():
                parts = words(fold(name))
                for part in dict.fromkeys([*parts, *chain.from_iterable(map(names_like, parts))]):
                    self._by_word.setdefault(part, []).append(number)
        return self._by_word.get(word, [])
