"""The entry point of the backend: converts URLs to settings and opens stores."""

from __future__ import annotations

from pathlib import Path

from agent_memory_log.backend_kit import DEFAULT_MAX_EVENT_BYTES, StoreUrl
from agent_memory_log.errors import InvalidArgument
from agent_memory_log_sqlite.schema import DEFAULT_BUSY_TIMEOUT_MS, Settings, index_files
from agent_memory_log_sqlite.store import SqliteStore
from agent_memory_log_sqlite.sync import SyncSqliteStore

_LONGEST_TIMEOUT_MS = 2**31 - 1
# SQLite ignores a larger timeout.


class _SqliteBackend:
    async def open_store(self, url: StoreUrl) -> SqliteStore:
        return await SqliteStore.open(_settings(url))

    def open_sync_store(self, url: StoreUrl) -> SyncSqliteStore:
        return SyncSqliteStore(_settings(url))

    def files(self, url: StoreUrl) -> tuple[Path, ...]:
        """Return the paths of the database, its write-ahead log, the log's index and the rollback journal.

        The files of search indexes follow, if there are any.
        """
        database = Path(_settings(url).path).resolve()  # SQLite creates the others beside the target of a symlink
        beside = (database.with_name(database.name + end) for end in ("-wal", "-shm", "-journal"))
        return database, *beside, *index_files(database)


backend = _SqliteBackend()
"""The entry point for ``sqlite:`` URLs."""


def _settings(url: StoreUrl) -> Settings:
    if not url.location or "\0" in url.location:
        raise InvalidArgument(
            f"{url.masked!r} names no file; write sqlite:///runs.db, or sqlite:////var/runs.db for /var/runs.db"
        )
    if url.location == ":memory:":
        raise InvalidArgument(
            f"{url.masked!r} names no file; use memory: for a store in memory, or ./:memory: for a file"
        )
    settings = Settings(
        path=str(Path(url.location).absolute()),  # the working directory may change
        durable=url.choice("durability", ("full", "os")) == "full",
        read_only=url.choice("mode", ("rw", "ro")) == "ro",
        verify=url.choice("verify", ("off", "on")) == "on",
        busy_timeout_ms=min(url.number("busy_timeout_ms", DEFAULT_BUSY_TIMEOUT_MS, minimum=0), _LONGEST_TIMEOUT_MS),
        max_event_bytes=url.number("max_event_bytes", DEFAULT_MAX_EVENT_BYTES),
    )
    url.finish()
    return settings
