"""The synchronous store: it calls SQLite on the caller's thread, without an event loop."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeVar

from agent_memory_log.backend_kit import (
    Append,
    ChangeSignal,
    SyncSurface,
    check_after,
    check_expiry,
    check_ids,
    seconds_left,
)
from agent_memory_log.capabilities import BackupResult, CompactResult, IndexFolder
from agent_memory_log.events.event import Event
from agent_memory_log.store import AppendResult
from agent_memory_log_sqlite.failures import FAILURES, translated
from agent_memory_log_sqlite.maintenance import back_up
from agent_memory_log_sqlite.open_file import HoldsFile, open_all
from agent_memory_log_sqlite.reads import Reader
from agent_memory_log_sqlite.row_format import RunRow
from agent_memory_log_sqlite.schema import Settings, close_all, index_folder_of
from agent_memory_log_sqlite.watching import POLL_SECONDS, Watch
from agent_memory_log_sqlite.writes import Writer

_T = TypeVar("_T")


class SyncSqliteStore(HoldsFile, SyncSurface[Reader, Writer]):
    """A ``SyncStore`` on an SQLite file. Use ``open_sync_store("sqlite:///…")``, or pass the settings."""

    def __init__(self, settings: Settings) -> None:
        """Open the file. Raises ``StoreUnavailable``, ``StoreCorrupt`` or ``SchemaTooNew``."""
        super().__init__()
        self._settings = settings
        self._max_event_bytes = settings.max_event_bytes
        self._changed = ChangeSignal()
        # Reads have their own connection, so they see only committed events and do not wait for an fsync.
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        written, self._read_file = open_all(settings, 2)
        self._write_connection, self._read_connection = written.connection, self._read_file.connection
        self._locks = (self._writing, self._reading)
        self._connections = (self._read_connection, self._write_connection)
        self._writer = Writer(written)
        self._reader = Reader(self._read_file, verify=settings.verify)
        self._watch = Watch(self._read_connection)

    def _append(self, append: Append) -> AppendResult:
        with self._writing:
            if self._unusable is not None:
                self._check_open()
            result = self._writer.append_one(append) or self._writer.append(append)
        if result.inserted:
            self._changed.notify()
        return result

    def follow(self, agent: str, run: str, *, after: int = 0) -> Generator[Event]:
        """See ``Store.follow``."""
        check_ids(agent, run)
        check_after(after)
        last: RunRow | None = None
        while True:
            seen = self._changed.count
            version = self._read(self._watch.version)
            events, run_row = self._read(lambda: self._reader.follow_on(agent, run, after, last))  # noqa: B023  # the lambda runs before the loop continues
            last = run_row
            for event in events:
                now = self._ask(self._watch.version)
                if now != version and not self._read(lambda: self._watch.is_current(agent, run, run_row)):  # noqa: B023  # as above
                    break  # a redaction or deletion changed these events: read them again
                check_expiry(agent, run, run_row.expires_at)
                version, after = now, event.seq
                yield event
            if not events:
                self._wait(seen, version, run_row.expires_at)

    def _wait(self, seen: int, version: int, expires_at: int | None) -> None:
        """Wait until the file may have new events, or until the run's end.

        A write of this handle ends the wait at once. Polling finds the writes of other handles.
        """
        left = seconds_left(expires_at)
        while left is None or left > 0:
            if self._changed.wait(seen, POLL_SECONDS if left is None else min(POLL_SECONDS, left)):
                return
            if self._read(self._watch.version) != version:
                return
            left = seconds_left(expires_at)

    def backup(self, target: str | os.PathLike[str]) -> BackupResult:
        """See ``BacksUp``. Other reads of this handle wait."""
        return self._read(lambda: back_up(self._read_file, target))

    def compact(self) -> CompactResult:
        """See ``Compacts``."""
        self._read(lambda: None)  # ends an interrupted read transaction, which would prevent a compaction
        return self._write(self._writer.compact)

    def close(self) -> None:
        """See ``Store.aclose``."""
        if not self._mark_closed():
            return
        self._changed.notify()
        with self._writing, self._reading:
            close_all(self._connections)

    @property
    def index_folder(self) -> IndexFolder | None:
        """See ``KeepsIndexes``."""
        return index_folder_of(self._settings)

    def _checked_runs(self, runs: Iterable[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        return self._reader.heads.checked(runs)

    def _read(self, work: Callable[[], _T]) -> _T:
        def look_and_read() -> _T:
            self._read_file.check()
            return work()

        return self._ask(look_and_read)

    def _ask(self, work: Callable[[], _T]) -> _T:
        """Read without checking that the file is still at its path."""
        self._check_open()
        with self._reading:
            self._check_open()
            try:
                if self._read_connection.in_transaction:
                    self._read_connection.execute(
                        "ROLLBACK"
                    )  # an exception from a signal interrupted the last transaction
                return work()
            except FAILURES as error:
                raise translated(error, self._settings.path) from error

    def _write(self, work: Callable[[], _T]) -> _T:
        self._check_open()
        with self._writing:
            self._check_open()
            done = work()
        self._changed.notify()
        return done
