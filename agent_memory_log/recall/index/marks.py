"""Small values that the caller of an index keeps with it, such as how far it has read the sources of the documents."""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

from agent_memory_log.recall.index.database import Database
from agent_memory_log.recall.index.database_format import checked


class Marks:
    """Bytes by name, in spaces. They change in the transactions of the index."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._spaces: dict[str, dict[str, bytes]] = {}

    def forget(self) -> None:
        """Read the marks again when they are needed next, because another process changed them."""
        self._spaces.clear()

    def of(self, space: str) -> Mapping[str, bytes]:
        """Return the marks of a space."""
        return self._marks_of(space)

    def _marks_of(self, space: str) -> dict[str, bytes]:
        marks = self._spaces.get(space)
        if marks is None:
            rows = self._database.execute("SELECT name, data, sum FROM marks WHERE space = ?", (space,))
            marks = {name: checked(_number(space, name), data, total) for name, data, total in rows}
            if len(marks) != self._database.facts.marks.get(space, 0):
                raise self._database.damaged("marks are missing")
            self._spaces[space] = marks
        return marks

    def put(self, space: str, name: str, data: bytes) -> None:
        """Set a mark."""
        marks = self._marks_of(space)
        marks[name] = data
        self._database.facts.marks[space] = len(marks)
        self._database.execute(
            "INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)", (space, name, data, crc32(data, _number(space, name)))
        )

    def remove(self, space: str, name: str) -> None:
        """Remove a mark if it exists."""
        marks = self._marks_of(space)
        if marks.pop(name, None) is not None:
            self._database.facts.marks[space] = len(marks)
            self._database.execute("DELETE FROM marks WHERE space = ? AND name = ?", (space, name))


def _number(space: str, name: str) -> int:
    return crc32(f"{space}\0{name}".encode("utf-8", "surrogatepass"))
