"""The table of an index's documents."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import msgspec

from agent_memory_log.recall.documents import Document
from agent_memory_log.recall.index.database import Database


class Stored(msgspec.Struct, array_like=True, frozen=True):
    """A document in the database.

    Attributes:
        id: The document's id.
        terms: Its terms, without repetitions.
        note: Its note.
    """

    id: str
    terms: Sequence[str]
    note: bytes


_read_document = msgspec.msgpack.Decoder(Stored).decode


class Documents:
    """The documents by number, by id, by place in a session, and by key."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def number_of(self, document_id: str) -> int | None:
        """Return the number of a document, or None if the index does not hold it."""
        row = self._database.execute("SELECT id FROM documents WHERE name = ?", (document_id,)).fetchone()
        return None if row is None else int(row[0])

    def read(self, number: int) -> Stored:
        """Return the document with a number."""
        try:
            return _read_document(self._database.read("documents", number))
        except msgspec.DecodeError as error:
            raise self._database.damaged(f"document {number} cannot be read") from error

    def write(self, number: int, document: Document, session: int, terms: Sequence[str]) -> None:
        """Add a document. ``session`` is the number of its session."""
        data = msgspec.msgpack.encode(Stored(document.id, terms, document.note))
        self._database.execute(
            "INSERT INTO documents (id, name, session, position, key, data, sum) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (number, document.id, session, document.position, document.key, data, crc32(data, number)),
        )

    def delete(self, number: int) -> None:
        """Delete a document."""
        self._database.delete("documents", number)

    def ids_of(self, session: int, up_to: int) -> list[str]:
        """Return the ids of the documents of a session with a position of at most ``up_to``, in their order."""
        sql = "SELECT name FROM documents WHERE session = ? AND session > 0 AND position <= ? ORDER BY position, name"
        return [name for (name,) in self._database.execute(sql, (session, up_to))]

    def with_key(self, key: str) -> list[int]:
        """Return the numbers of the documents with a key."""
        sql = "SELECT id FROM documents WHERE key = ? AND key > ''"
        return [number for (number,) in self._database.execute(sql, (key,))]

    def beside(self, session: int, position: int, name: str) -> tuple[int | None, int | None]:
        """Return the numbers of the documents before and after a place in a session."""
        rows = (self._database.execute(sql, (session, position, name)).fetchone() for sql in (_BEFORE, _AFTER))
        before, after = (None if row is None else int(row[0]) for row in rows)
        return before, after


_BEFORE = """
SELECT id FROM documents
WHERE session = ? AND session > 0 AND (position, name) < (?, ?) ORDER BY position DESC, name DESC LIMIT 1
"""
_AFTER = """
SELECT id FROM documents
WHERE session = ? AND session > 0 AND (position, name) > (?, ?) ORDER BY position, name LIMIT 1
"""
