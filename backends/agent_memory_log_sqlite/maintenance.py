"""Backup and compaction.

A backup is a verified copy, made while others write. Compaction frees disk space and erases removed data from the file.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from agent_memory_log.capabilities import BackupResult, CompactResult
from agent_memory_log.errors import InvalidArgument, StoreCorrupt, StoreUnavailable
from agent_memory_log_sqlite.checks import flaws
from agent_memory_log_sqlite.failures import translated, translating
from agent_memory_log_sqlite.open_file import OpenFile
from agent_memory_log_sqlite.row_format import VERSION
from agent_memory_log_sqlite.schema import Settings, attempts, connect

_BESIDE = ("-wal", "-shm", "-journal")


def back_up(file: OpenFile, target: str | os.PathLike[str]) -> BackupResult:
    """See ``BacksUp.backup``. The connection must not be in a transaction."""
    path = Path(target).absolute()
    _check_target(file, path)
    temporary: Path | None = None
    try:
        # Use a new file in the target's folder, so that it can be renamed later. VACUUM accepts an empty file.
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:50]}.", suffix=".part", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        before = _versions(file.connection)
        # VACUUM leaves out redacted and deleted data. Copied pages could still hold it.
        file.connection.execute("VACUUM INTO ?", (f"file://{quote(os.fsencode(name))}",))
        after = _versions(file.connection)
        file.check()
        runs, events = _verify(temporary, file.path, before, after)
        temporary.chmod(Path(file.path).stat().st_mode & 0o777)
        _sync(temporary)
        _check_target(file, path)
        size = temporary.stat().st_size
        temporary.rename(path)
        _sync(path.parent)
    except sqlite3.Error as error:
        raise translated(error, f"the backup of {file.path} to {path} failed") from error
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be written ({error.strerror})") from error
    finally:
        if temporary is not None:
            for suffix in ("", *_BESIDE):
                Path(f"{temporary}{suffix}").unlink(missing_ok=True)
    return BackupResult(runs=runs, events=events, size=size)


def _check_target(file: OpenFile, path: Path) -> None:
    """Raise ``InvalidArgument`` if the target is a file of the store or exists."""
    store = os.path.realpath(file.path)
    if os.path.realpath(path) in {store, *(f"{store}{suffix}" for suffix in _BESIDE)}:
        raise InvalidArgument(f"{path} belongs to the store itself; name another file")
    for suffix in ("", *_BESIDE):
        if os.path.lexists(f"{path}{suffix}"):
            raise InvalidArgument(f"{path}{suffix} exists, and a backup overwrites no file; name another file")


def _verify(copy: Path, store: str, before: dict[int, int], after: dict[int, int]) -> tuple[int, int]:
    """Verify a copy and return the numbers of its runs and events.

    Raises ``StoreCorrupt`` if the copy is damaged, or if a run's version is not between its versions in ``before`` and
    ``after``.
    """
    with closing(connect(Settings(path=str(copy), read_only=True))) as connection:
        damage = next((flaw for flaw in flaws(connection, None, None) if flaw and flaw.is_damage), None)
        if damage is not None:
            run = "" if damage.run_id is None else f"{damage.agent_id}/{damage.run_id}: "
            event = "" if damage.seq is None else f"event {damage.seq} "
            raise StoreCorrupt(
                f"{store}: the copy is damaged and was removed; check the store with amlog verify: "
                f"{run}{event}{damage.message}"
            )
        copied = _versions(connection)
        if not before.keys() <= copied.keys() <= after.keys() or not all(
            before.get(run, 0) <= version <= after[run] for run, version in copied.items()
        ):
            raise StoreCorrupt(f"{store}: the backup differs from the store and was removed; back it up again")
        (events,) = connection.execute("SELECT count(*) FROM events").fetchone()
        (runs,) = connection.execute("SELECT count(*) FROM runs WHERE created IS NOT NULL").fetchone()
    return int(runs), int(events)


def _sync(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk with an fsync."""
    if os.name != "posix" and path.is_dir():
        return  # only POSIX systems can open a folder
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _versions(connection: sqlite3.Connection) -> dict[int, int]:
    """Return the version of every run, including deleted runs, by the run's number in the file."""
    return dict(connection.execute(f"SELECT id, coalesce({VERSION}, base_seq) FROM runs"))  # noqa: S608  # only constants


def compact(file: OpenFile) -> CompactResult:
    """See ``Compacts.compact``. The connection must not be in a transaction."""
    before = _size(file)
    with translating(file.path):
        file.connection.execute("VACUUM")
        (milliseconds,) = file.connection.execute("PRAGMA busy_timeout").fetchone()
        # SQLite waits for readers, but not for another connection's checkpoint. A checkpoint ends soon.
        if not any(_checkpoint(file) for _ in attempts(milliseconds)):
            raise StoreUnavailable(
                f"{file.path}: another connection was busy, so some data was not removed; compact again later"
            )
    return CompactResult(before, _size(file))


def _checkpoint(file: OpenFile) -> bool:
    (busy, _, _) = file.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def _size(file: OpenFile) -> int:
    paths = (Path(file.path), Path(file.wal_path))
    return sum(path.stat().st_size for path in paths if path.exists())
