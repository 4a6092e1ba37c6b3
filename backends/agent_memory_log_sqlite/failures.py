"""Converts SQLite's errors to errors of this library."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from agent_memory_log.errors import DecodeError, StoreCorrupt, StoreUnavailable

Failure = sqlite3.Error | UnicodeDecodeError

_HINTS = {
    sqlite3.SQLITE_FULL: "the disk is full, and this write was not stored; free some space and try again",
    sqlite3.SQLITE_READONLY: "it is read-only; make it writable, or open it with ?mode=ro, which still needs write "
    "access to the -shm file beside it",
    sqlite3.SQLITE_BUSY: "other processes kept it locked for longer than busy_timeout_ms; try again",
    sqlite3.SQLITE_LOCKED: "other processes kept it locked for longer than busy_timeout_ms; try again",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that the folder exists and that this user may write to it",
    sqlite3.SQLITE_PERM: "this user may not open it",
    sqlite3.SQLITE_IOERR: "reading or writing it failed",
    # Also a read needs this file, and SQLite reports a full disk as an I/O error here.
    sqlite3.SQLITE_IOERR_SHMSIZE: "the -shm file beside it cannot grow, which a read needs too: the disk is probably "
    "full; free some space and try again",
    sqlite3.SQLITE_TOOBIG: "a value is larger than SQLite can store",
}
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_NOT_TEXT = "Could not decode to UTF-8"
_NOT_OUR_SCHEMA = ("no such ", "duplicate column", "already exists", "unsupported file format")
# Every statement fits the schema. An unknown table or column therefore means that the schema is damaged.
_NOT_TEXT_OF_AN_EVENT = tuple(
    f"{_NOT_TEXT} column '{column}'" for column in ("event_id", "type", "labels", "data", "verbatim")
)


FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""The exceptions that ``sqlite3`` raises: ``UnicodeDecodeError`` if an error message quotes a damaged schema."""


def is_busy(error: Failure) -> bool:
    """Return whether another connection held a lock."""
    return _primary(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def is_damage(error: Failure) -> bool:
    """Return whether the error means that the file is damaged."""
    if isinstance(error, UnicodeDecodeError) or _primary(error) in _DAMAGED:
        return True
    return any(word in str(error) for word in (_NOT_TEXT, *_NOT_OUR_SCHEMA))


def translated(error: Failure, path: str) -> StoreUnavailable | DecodeError:
    """Return this library's error for SQLite's ``error`` on the file at ``path``. Raise it ``from`` the original."""
    if str(error).startswith(_NOT_TEXT_OF_AN_EVENT):
        return DecodeError(f"{path}: a stored event is not UTF-8 text: {error}")
    if is_damage(error):
        return StoreCorrupt(
            f"{path} is damaged, or not an SQLite file ({error}); restore it from a backup, or recover the readable "
            "rows with the sqlite3 shell's .recover"
        )
    hint = _HINTS.get(_code(error)) or _HINTS.get(_primary(error))
    return StoreUnavailable(f"{path}: {hint} ({error})" if hint else f"{path}: {error}")


def _code(error: Failure) -> int:
    # Only errors that SQLite reports have a code. Errors of Python's sqlite3 module itself have none.
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code


def _primary(error: Failure) -> int:
    return _code(error) & 0xFF


@contextmanager
def translating(path: str) -> Generator[None]:
    """Convert SQLite's errors to this library's errors."""
    try:
        yield
    except FAILURES as error:
        raise translated(error, path) from error
