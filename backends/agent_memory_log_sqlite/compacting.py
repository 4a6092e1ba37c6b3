"""Giving unused space back, and erasing for good what was redacted or deleted."""

from __future__ import annotations

from pathlib import Path
from time import monotonic, sleep

from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.store import CompactResult
from agent_memory_log_sqlite.failures import translating
from agent_memory_log_sqlite.file import OpenFile

_PAUSE_SECONDS = 0.005


def compact(file: OpenFile) -> CompactResult:
    """See ``Compacts.compact``; on a connection that is in no transaction."""
    before = _size(file)
    with translating(file.path):
        file.connection.execute("VACUUM")
        (milliseconds,) = file.connection.execute("PRAGMA busy_timeout").fetchone()
        deadline = monotonic() + milliseconds / 1000
        # SQLite waits for readers by itself, but not for another connection's checkpoint, which is soon over.
        while not (is_done := _checkpoint(file)) and monotonic() < deadline:
            sleep(_PAUSE_SECONDS)
    if not is_done:
        raise StoreUnavailable(
            f"{file.path}: another connection was at work, so that not all could be removed: compact again later"
        )
    return CompactResult(before, _size(file))


def _checkpoint(file: OpenFile) -> bool:
    (busy, _, _) = file.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def _size(file: OpenFile) -> int:
    paths = (Path(file.path), Path(file.wal_path))
    return sum(path.stat().st_size for path in paths if path.exists())
