"""Opens a file: creates it, recognises its schema and upgrades it to the current schema.

Each schema change is a new file in ``migrations/`` with the next number. Released migrations never change. The database
stores the number in ``user_version``. ``tests/golden`` has a database of every released schema.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import resources
from pathlib import Path
from urllib.parse import quote

import msgspec

from agent_memory_log.backend_kit import DEFAULT_MAX_EVENT_BYTES
from agent_memory_log.capabilities import IndexFolder
from agent_memory_log.errors import SchemaTooNew, StoreCorrupt, StoreUnavailable
from agent_memory_log_sqlite.failures import FAILURES, Failure, is_busy, translated
from agent_memory_log_sqlite.row_format import id_to_store

APPLICATION_ID = 0x414D4C47
"""``AMLG`` in the file's header. This library and the command ``file`` recognise the file by it."""

DEFAULT_BUSY_TIMEOUT_MS = 30_000

_PAUSE_SECONDS = 0.005

_SMALLEST_FILE = 512
# A shorter file may be the rest of a damaged store. SQLite treats a file of one byte as empty, and would create a new
# database in it.

_PAGE_SIZE = 4096
# By measurement, 8 KiB pages make single appends an eighth slower: each append writes a whole page of the table and of
# the index to the write-ahead log.
_CHECKPOINT_PAGES = 512
# 512 pages are 2 MiB, which fit into the processor's cache. Single appends were 10 % faster than with SQLite's default.


class Settings(msgspec.Struct, frozen=True):
    """The settings of a handle, from the options of its URL.

    Attributes:
        path: The absolute path of the file.
        durable: Whether an append is acknowledged only after an fsync.
        read_only: Whether the file is opened without writing to it.
        verify: Whether reads compare events with their checksums.
        busy_timeout_ms: The longest wait for the writes of other processes, in milliseconds.
        max_event_bytes: The size of the largest encoded event, in bytes.
    """

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
"""The number of the schema that this release writes."""


def connect(settings: Settings) -> sqlite3.Connection:
    """Open a connection, and create or upgrade the file if necessary.

    Raises ``StoreUnavailable``, ``StoreCorrupt`` or ``SchemaTooNew``, and then leaves the file unchanged.
    """
    if sqlite3.sqlite_version_info < (3, 35):
        raise StoreUnavailable(
            f"this Python has SQLite {sqlite3.sqlite_version}; use a Python with SQLite 3.35 or newer"
        )
    try:
        _look_at(settings.path)
    except OSError as error:
        raise StoreUnavailable(f"{settings.path}: {error.strerror}") from error
    failure: Failure | None = None
    # SQLite does not wait for locks when it creates a file or switches it to write-ahead logging.
    for _ in attempts(settings.busy_timeout_ms):
        try:
            return _connect(settings)
        except FAILURES as error:
            failure = error
            if not is_busy(error):
                break
    assert failure is not None  # noqa: S101  # at least one attempt was made
    raise translated(failure, settings.path) from failure


def attempts(milliseconds: int) -> Iterator[None]:
    """Yield once, then again after each pause until ``milliseconds`` have passed.

    Callers pass ``busy_timeout_ms``, which is also the time that SQLite waits for a lock.
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
    """A read transaction, in which several queries see the file at one instant."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")  # an exception from a signal interrupted the last transaction
        self._connection.execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")


def index_folder_of(settings: Settings) -> IndexFolder | None:
    """Return the folder for search indexes: the file's name and ``-index``, beside the target of a symlink."""
    if settings.read_only:
        return None
    path = Path(settings.path).resolve()
    try:
        mode = stat.S_IMODE(path.stat().st_mode) & 0o666
    except OSError:
        return None  # the store's own methods raise the error
    return IndexFolder(_index_path(path), mode)


def _index_path(database: Path) -> Path:
    return database.with_name(f"{database.name}-index")


def index_files(database: Path) -> list[Path]:
    """Return the files of the search indexes of a database."""
    folder = _index_path(database)
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _look_at(name: str) -> None:
    path = Path(name)
    if path.is_dir():
        raise StoreUnavailable(f"{name} is a folder; name a file in it")
    if path.is_file() and 0 < path.stat().st_size < _SMALLEST_FILE:
        raise StoreCorrupt(
            f"{name} is too short for an SQLite file and was not changed; name another file or restore a backup"
        )


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
    connection.execute("BEGIN")  # one view of the file, because another process may be creating it
    version = _recognise(connection, settings.path)
    connection.execute("COMMIT")
    connection.execute(f"PRAGMA synchronous = {'FULL' if settings.durable else 'NORMAL'}")
    connection.execute("PRAGMA fullfsync = 1")
    connection.execute("PRAGMA checkpoint_fullfsync = 1")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    if settings.read_only:
        if version < SCHEMA_VERSION:
            raise StoreUnavailable(
                f"{settings.path} has schema {version or 'none'}, older than this release's {SCHEMA_VERSION}; "
                "open it once without ?mode=ro"
            )
        return
    if version == 0:
        connection.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
    (journal,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if journal != "wal":
        raise StoreUnavailable(f"SQLite cannot use write-ahead logging for {settings.path}; move it to a local disk")
    if version < SCHEMA_VERSION:
        _migrate(connection, settings.path)


def _recognise(connection: sqlite3.Connection, path: str) -> int:
    """Return the file's schema version, or 0 for an empty file."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application_id != APPLICATION_ID and (tables or version or application_id):
        raise StoreCorrupt(f"{path} is an SQLite file of another program and was not changed; name another file")
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"{path} has schema {version}, newer than this release's {SCHEMA_VERSION}; upgrade agent-memory-log",
            actual=version,
            supported=SCHEMA_VERSION,
        )
    return int(version)


def _migrate(connection: sqlite3.Connection, path: str) -> None:
    # After any error, the caller closes the connection, which rolls back.
    connection.create_function("id_to_store", 1, id_to_store, deterministic=True)
    connection.execute("BEGIN IMMEDIATE")
    version = _recognise(connection, path)  # again, because another process may have migrated it
    for script in _migrations()[version:]:
        for statement in _statements(script):
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def schema_of(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the SQL of each table, index, view and trigger, by name."""
    return dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


@lru_cache(1)
def schema_of_this_release() -> dict[str, str]:
    """Return the result of ``schema_of`` for a new file of this release."""
    connection = sqlite3.connect(":memory:")
    connection.create_function("id_to_store", 1, id_to_store, deterministic=True)
    for script in _migrations():
        connection.executescript(script)
    schema = schema_of(connection)
    connection.close()
    return schema


def _statements(script: str) -> list[str]:
    """Split a script into statements, because ``executescript`` would commit before the first one."""
    statements: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    assert not pending.strip(), "a migration ends without a semicolon"  # noqa: S101  # a bug of this package
    return statements
