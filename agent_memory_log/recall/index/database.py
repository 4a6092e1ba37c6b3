"""The SQLite database of an index: in memory, or in a file that several processes use at the same time.

The file can be made again from the log, so damage never raises an error: the database is emptied, and ``IndexLost``
tells the caller to fill it again. Each row has a checksum, and rows that have to exist are counted. So the index
notices changed and missing rows. A file that cannot be used, for example on a full disk, is replaced by memory.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any, Final
from zlib import crc32

import msgspec

from agent_memory_log.backend_kit import Handle
from agent_memory_log.recall.index.database_format import (
    APPLICATION,
    FORMAT,
    SCHEMA,
    Damaged,
    Facts,
    IndexFile,
    checked,
    create_tables,
    files_of,
    find_row,
    place_of,
    read_facts,
    read_row,
    write_row,
)

_BUSY_MS: Final = 60_000
"""The longest wait for another process that writes to the file. A writer commits at least every few seconds."""

_CHECKPOINT_PAGES: Final = 1_000

_REBUILDS: Final = 3
"""After this many damaged files in a row, the index stays in memory."""

_UNUSABLE: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_NOLFS,
    }
)
"""The primary result codes of a file that cannot be used but need not be damaged."""


class IndexLost(Exception):  # not an error of the caller: the index is empty and has to be filled again
    """The index was damaged or removed, or its file cannot be used. It is empty now."""


class Database(Handle):
    """A connection to the database of an index. One thread at a time may use it, under ``lock``."""

    def __init__(self, file: IndexFile | None) -> None:
        """Open the file, or an empty database in memory for None."""
        super().__init__()
        self.lock = threading.RLock()
        self.file = file
        self.facts = Facts()
        self._rebuilt = 0
        self._place: tuple[int, int] | None = None
        self._paused = False
        self._connection = self._open()

    @property
    def generation_on_disk(self) -> int:
        """The generation of the last commit of any process. The transaction has begun."""
        return self._stored_facts().generation

    def _open(self) -> sqlite3.Connection:
        file = self.file
        while file is not None:
            try:
                return self._open_file(file)
            except (sqlite3.Error, OSError, ValueError) as error:
                self._after(error)
                file = self.file
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.executescript(SCHEMA)
        self.facts = Facts()
        self._place = None
        return connection

    def _open_file(self, file: IndexFile) -> sqlite3.Connection:
        folder = file.path.parent
        with suppress(FileExistsError):
            folder.mkdir(mode=file.mode | (file.mode & 0o444) >> 2)
        os.close(os.open(file.path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), file.mode))
        file.path.chmod(file.mode)  # the umask may have removed permissions that the store's file has
        before = place_of(file.path)
        connection = sqlite3.connect(file.path, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            connection.execute("PRAGMA journal_mode = WAL")
            create_tables(connection, file.owner)
            kinds = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
            facts = read_facts(read_row(connection, "facts", 1))
        except BaseException:
            connection.close()
            raise
        # The file may have been replaced while it was opened.
        if (
            kinds != [APPLICATION, FORMAT]
            or facts.owner != file.owner
            or before is None
            or place_of(file.path) != before
        ):
            connection.close()
            raise ValueError(f"{file.path} is another index")
        self._place, self.facts = before, facts
        return connection

    def _after(self, error: Exception) -> None:
        """After an error, remove the damaged file, or stop using a file that cannot be used."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        self._rebuilt += 1
        is_unusable = isinstance(error, OSError) or code in _UNUSABLE or self._rebuilt > _REBUILDS
        if is_unusable or self.file is None:
            self.file = None
            return
        for path in files_of(self.file.path):
            with suppress(OSError):
                path.unlink()

    @contextmanager
    def reading(self) -> Generator[None]:
        """Read in one view of the database. Raises ``IndexLost``, also if the block meets damage."""
        with self._guarded():
            if self.file is None or self._connection.in_transaction:
                yield
                return
            self._check_place()
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._end()

    @contextmanager
    def changing(self) -> Generator[None]:
        """Write in one transaction, which is rolled back if the block fails. Raises ``IndexLost`` as ``reading``."""
        with self._guarded():
            if self.file is None:
                yield
                self.facts.generation += 1
                return
            self._check_place()
            self._connection.execute("BEGIN IMMEDIATE")
            changes, facts = self._connection.total_changes, msgspec.msgpack.encode(self.facts)
            try:
                yield
                if self._connection.total_changes != changes or msgspec.msgpack.encode(self.facts) != facts:
                    self.facts.generation += 1
                    self.write("facts", 1, msgspec.msgpack.encode(self.facts))
                    self._connection.execute("COMMIT")
            finally:
                self._end()
        self._rebuilt = 0

    def _end(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    @contextmanager
    def _guarded(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, Damaged) as error:
            self._lose(error)
            raise IndexLost(str(error)) from error

    def _lose(self, error: Exception) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()
        self._after(error)
        self._connection = self._open()

    def _check_place(self) -> None:
        if self.file is not None and place_of(self.file.path) != self._place:
            raise Damaged("the file was removed or replaced")

    def clear(self) -> None:
        """Empty the index, in the transaction of ``changing``."""
        for table in ("names", "blocks", "buckets", "postings", "pooled", "tokens", "documents", "marks"):
            self._connection.execute(f"DELETE FROM {table}")  # noqa: S608  # a constant
        self.facts = Facts(self.facts.owner, self.facts.generation, may_hold_erased=True)

    def load_facts(self) -> None:
        """Read the facts of the last commit."""
        self.facts = self._stored_facts()

    def _stored_facts(self) -> Facts:
        try:
            return read_facts(self.read("facts", 1))
        except msgspec.DecodeError as error:
            raise Damaged("the facts cannot be read") from error

    def scrub(self) -> None:
        """Write the file again and empty its write-ahead log, if they may hold removed rows.

        ``secure_delete`` is not enough: when SQLite moves rows between pages, copies of them stay in unused parts of
        pages. Readers of other processes may prevent the erasure.
        """
        if self.file is None:
            return
        with self._guarded():
            self._check_place()
            before = self.generation_on_disk
            self._connection.execute("VACUUM")
            ((is_busy, *_),) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if is_busy:
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                facts = self._stored_facts()
                if facts.generation == before:  # no process has removed rows meanwhile
                    facts.may_hold_erased = False
                    self.write("facts", 1, msgspec.msgpack.encode(facts))
                    self._connection.execute("COMMIT")
                    self.facts.may_hold_erased = False
            finally:
                self._end()

    def damaged(self, reason: str) -> Damaged:
        """Return the error to raise for damage in a block of ``reading`` or ``changing``."""
        return Damaged(reason)

    def execute(self, sql: str, arguments: Iterable[Any] = ()) -> sqlite3.Cursor:
        """Execute a statement."""
        return self._connection.execute(sql, tuple(arguments))

    def read(self, table: str, number: int) -> bytes:
        """Return the data of a row that has to exist."""
        return read_row(self._connection, table, number)

    def find(self, table: str, number: int) -> bytes | None:
        """Return the data of a row, or None if it does not exist."""
        return find_row(self._connection, table, number)

    def read_range(self, table: str, first: int, last: int) -> list[tuple[int, bytes]]:
        """Return the numbers and data of the rows from ``first`` to ``last``, in order."""
        rows = self._connection.execute(
            f"SELECT id, data, sum FROM {table} WHERE id BETWEEN ? AND ? ORDER BY id",  # noqa: S608  # a constant
            (first, last),
        )
        return [(number, checked(number, data, total)) for number, data, total in rows]

    def write(self, table: str, number: int, data: bytes) -> None:
        """Add or replace a row."""
        write_row(self._connection, table, number, data)

    def write_block(self, number: int, data: bytes) -> None:
        """Add or replace a block in the generation of this transaction."""
        self._connection.execute(
            "INSERT OR REPLACE INTO blocks (id, generation, data, sum) VALUES (?, ?, ?, ?)",
            (number, self.facts.generation + 1, data, crc32(data, number)),
        )

    def delete(self, table: str, number: int) -> None:
        """Delete a row if it exists."""
        self._connection.execute(f"DELETE FROM {table} WHERE id = ?", (number,))  # noqa: S608  # a constant

    @property
    def size(self) -> int:
        """The bytes of memory of a database in memory, or 0 for a file."""
        if self.file is not None:
            return 0
        ((pages,), (page,)) = (
            self._connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
        )
        return int(pages) * int(page)

    def close(self) -> None:
        """Close the connection."""
        if self._mark_closed():
            with self.lock:
                self._connection.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # the file could not be opened
            self._connection.close()

    def pause_for_fork(self) -> None:
        """See ``Handle.pause_for_fork``."""
        self._paused = self.lock.acquire(timeout=10)

    def resume_after_fork(self) -> None:
        """See ``Handle.resume_after_fork``."""
        if self._paused:
            self._paused = False
            self.lock.release()

    def disown(self) -> None:
        """See ``Handle.disown``. The child closes a file, because it does not have the locks of its parent."""
        if self.file is not None:
            super().disown()
            if self._paused:
                self._connection.close()
        self.resume_after_fork()
