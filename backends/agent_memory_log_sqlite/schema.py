"""Connections: how a file is opened, created, recognised and brought to the current schema.

A schema change is a new file in ``migrations/``, numbered one up; released ones never change. The number stands in the
file's ``user_version``. ``tests/golden`` keeps a file of every released schema.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import resources
from pathlib import Path
from urllib.parse import quote

import msgspec

from agent_memory_log.backend_kit import DEFAULT_MAX_EVENT_BYTES
from agent_memory_log.errors import SchemaTooNew, StoreCorrupt, StoreUnavailable
from agent_memory_log_sqlite.failures import FAILURES, Failure, is_busy, translated

APPLICATION_ID = 0x414D4C47
"""``AMLG``, in the file's header: how this library, and ``file``, know its files."""

DEFAULT_BUSY_TIMEOUT_MS = 30_000

_PAUSE_SECONDS = 0.005

_SMALLEST_FILE = 512
# SQLite takes a file of a single byte for an empty one, and would write a new database over what is left of yours.

_PAGE_SIZE = 4096
# Measured: with 8 KiB pages single appends cost an eighth more, as each writes a whole page of the table and of the
# index to the write-ahead log.
_CHECKPOINT_PAGES = 512
# 2 MiB: small enough to stay in the processor's cache, which made single appends 10 % faster than SQLite's default.


class Settings(msgspec.Struct, frozen=True):
    """How to open a file, whose ``path`` is absolute; the options of the URL."""

    path: str
    durable: bool = True
    read_only: bool = False
    verify: bool = False
    busy_timeout_ms: int = DEFAULT_BUSY_TIMEOUT_MS
    max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES


def _migrations() -> list[str]:
    folder = resources.files("agent_memory_log_sqlite").joinpath("migrations")
    files = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    return [file.read_text("utf-8") for file in sorted(files, key=lambda file: file.name)]


SCHEMA_VERSION = len(_migrations())
"""The schema this release writes."""


def connect(settings: Settings) -> sqlite3.Connection:
    """Open a connection, creating or upgrading the file where needed.

    Raises ``StoreUnavailable``, ``StoreCorrupt``, ``SchemaTooNew``; the file is then unchanged.
    """
    if sqlite3.sqlite_version_info < (3, 35):
        raise StoreUnavailable(f"SQLite 3.35 or newer is needed; this Python has {sqlite3.sqlite_version}")
    try:
        _look_at(settings.path)
    except OSError as error:
        raise StoreUnavailable(f"{settings.path}: {error.strerror}") from error
    failure: Failure | None = None
    # Creating a file and switching it to write-ahead logging do not wait for each other's locks by themselves.
    for _ in attempts(settings.busy_timeout_ms):
        try:
            return _connect(settings)
        except FAILURES as error:
            failure = error
            if not is_busy(error):
                break
    assert failure is not None  # noqa: S101  # there is always a first attempt
    raise translated(failure, settings.path) from failure


def attempts(milliseconds: int) -> Iterator[None]:
    """One attempt, and more, with pauses, until ``milliseconds`` have passed.

    They are a handle's ``busy_timeout_ms``: for so long SQLite itself waits where it waits for a lock.
    """
    deadline = time.monotonic() + milliseconds / 1000
    yield
    while time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        yield


def close_all(connections: Iterable[sqlite3.Connection]) -> None:
    """Close connections."""
    for connection in connections:
        connection.close()


class OneView:
    """A read transaction: several queries see the file at one instant."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")  # a signal's exception came before the last one could be ended
        self._connection.execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")


def _look_at(name: str) -> None:
    path = Path(name)
    if path.is_dir():
        raise StoreUnavailable(f"{name} is a folder: name a file in it")
    if path.is_file() and 0 < path.stat().st_size < _SMALLEST_FILE:
        raise StoreCorrupt(f"{name} is too short for an SQLite file; it was left as it is")


def _connect(settings: Settings) -> sqlite3.Connection:
    mode = "ro" if settings.read_only else "rwc"
    connection = sqlite3.connect(
        f"file://{quote(os.fsencode(settings.path))}?mode={mode}",
        uri=True,
        timeout=settings.busy_timeout_ms / 1000,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        _prepare(connection, settings)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, settings: Settings) -> None:
    connection.execute("BEGIN")  # one view of the file, which another process may be creating
    version = _recognise(connection, settings.path)
    connection.execute("COMMIT")
    connection.execute(f"PRAGMA synchronous = {'FULL' if settings.durable else 'NORMAL'}")
    connection.execute("PRAGMA fullfsync = 1")
    connection.execute("PRAGMA checkpoint_fullfsync = 1")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    if settings.read_only:
        if version < SCHEMA_VERSION:
            raise StoreUnavailable(
                f"{settings.path} has schema {version or 'none'}, older than this release's {SCHEMA_VERSION}: "
                "open it once without ?mode=ro"
            )
        return
    if version == 0:
        connection.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
    (journal,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if journal != "wal":
        raise StoreUnavailable(
            f"{settings.path} is where SQLite cannot use write-ahead logging: put it on a local disk"
        )
    if version < SCHEMA_VERSION:
        _migrate(connection, settings.path)


def _recognise(connection: sqlite3.Connection, path: str) -> int:
    """The file's schema version, 0 for an empty file."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application_id != APPLICATION_ID and (tables or version or application_id):
        raise StoreCorrupt(f"{path} is an SQLite file of another program; it was left as it is")
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"{path} has schema {version}, newer than this release's {SCHEMA_VERSION}: upgrade agent-memory-log",
            actual=version,
            supported=SCHEMA_VERSION,
        )
    return int(version)


def _migrate(connection: sqlite3.Connection, path: str) -> None:
    # Whatever goes wrong closes the connection, and that rolls back.
    connection.execute("BEGIN IMMEDIATE")
    version = _recognise(connection, path)  # again: another process may have been first
    for script in _migrations()[version:]:
        for statement in _statements(script):
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def schema_of(connection: sqlite3.Connection) -> dict[str, str]:
    """The text of each table, index, view and trigger, by name."""
    return dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


@lru_cache(1)
def schema_of_this_release() -> dict[str, str]:
    """``schema_of`` a file that this release made."""
    connection = sqlite3.connect(":memory:")
    for script in _migrations():
        connection.executescript(script)
    schema = schema_of(connection)
    connection.close()
    return schema


def _statements(script: str) -> list[str]:
    """The statements of a script; ``executescript`` would commit before the first."""
    statements: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    assert not pending.strip(), "a migration ends without a semicolon"  # noqa: S101  # a fault of ours, not of a caller
    return statements
