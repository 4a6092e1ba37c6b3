"""Giving unused space back, and erasing for good what was redacted or deleted."""

from __future__ import annotations

from pathlib import Path

from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.store import CompactResult
from agent_memory_log_sqlite.failures import translating
from agent_memory_log_sqlite.file import OpenFile


def compact(file: OpenFile) -> CompactResult:
    """See ``Compacts.compact``; on a connection that is in no transaction."""
    before = _size(file)
    with translating(file.path):
        file.connection.execute("VACUUM")
        busy, _, _ = file.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise StoreUnavailable(
            f"{file.path}: another connection was at work, so that not all could be removed: compact again later"
        )
    return CompactResult(before, _size(file))


def _size(file: OpenFile) -> int:
    paths = (Path(file.path), Path(file.wal_path))
    return sum(path.stat().st_size for path in paths if path.exists())
