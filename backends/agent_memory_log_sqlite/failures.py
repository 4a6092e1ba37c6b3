"""What SQLite's errors mean to a caller of the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from agent_memory_log.errors import DecodeError, StoreCorrupt, StoreUnavailable

_HINTS = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space and try again; nothing of this write was stored",
    sqlite3.SQLITE_READONLY: "it is read-only: make it writable, or open it with ?mode=ro, for which SQLite must still "
    "be able to write the -shm file beside it",
    sqlite3.SQLITE_BUSY: "other processes kept it locked for longer than busy_timeout_ms: try again",
    sqlite3.SQLITE_LOCKED: "other processes kept it locked for longer than busy_timeout_ms: try again",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check that the folder exists and that this user may write to it",
    sqlite3.SQLITE_PERM: "this user may not open it",
    sqlite3.SQLITE_IOERR: "reading or writing it failed",
    sqlite3.SQLITE_TOOBIG: "a value is larger than SQLite holds",
}
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection held a lock."""
    return _primary(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def translated(error: sqlite3.Error, path: str) -> StoreUnavailable | DecodeError:
    """The error of this library for SQLite's ``error`` on the file at ``path``; raise it ``from`` the original."""
    code = _primary(error)
    if str(error).startswith("Could not decode to UTF-8"):
        return DecodeError(f"{path}: a stored event is not UTF-8 text: {error}")
    if code in _DAMAGED:
        return StoreCorrupt(
            f"{path} is damaged, or not an SQLite file ({error}): restore it from a backup, or recover what can be "
            "read with the sqlite3 shell's .recover"
        )
    hint = _HINTS.get(code)
    return StoreUnavailable(f"{path}: {hint} ({error})" if hint else f"{path}: {error}")


def _primary(error: sqlite3.Error) -> int:
    # Errors raised by the sqlite3 module itself, and not by SQLite, carry no code.
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


@contextmanager
def translating(path: str) -> Generator[None]:
    """Raise this library's errors for SQLite's."""
    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, path) from error
