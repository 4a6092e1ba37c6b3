"""Backup, a verified copy made while others write; compaction, which gives space back and erases for good."""

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
    """See ``BacksUp.backup``; on a connection that is in no transaction."""
    path = Path(target).absolute()
    _check_target(file, path)
    temporary: Path | None = None
    try:
        # A name that nobody has, in the folder of the target, where it can be renamed; VACUUM takes an empty file.
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:50]}.", suffix=".part", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        before = _versions(file.connection)
        # VACUUM, as it leaves out what was redacted or deleted, which pages that are copied may still hold.
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
        raise translated(error, f"{file.path}, which was to be backed up to {path}") from error
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be written: {error.strerror}") from error
    finally:
        if temporary is not None:
            for suffix in ("", *_BESIDE):
                Path(f"{temporary}{suffix}").unlink(missing_ok=True)
    return BackupResult(runs=runs, events=events, size=size)


def _check_target(file: OpenFile, path: Path) -> None:
    """Raise ``InvalidArgument`` for a target that is the store, or is there."""
    store = os.path.realpath(file.path)
    if os.path.realpath(path) in {store, *(f"{store}{suffix}" for suffix in _BESIDE)}:
        raise InvalidArgument(f"{path} belongs to the store that is to be backed up: name another file")
    for suffix in ("", *_BESIDE):
        if os.path.lexists(f"{path}{suffix}"):
            raise InvalidArgument(f"{path}{suffix} is there already, and is not overwritten: name another file")


def _verify(copy: Path, store: str, before: dict[int, int], after: dict[int, int]) -> tuple[int, int]:
    """How many runs and events a copy holds.

    Raises ``StoreCorrupt`` unless it is whole, and each of its runs stands where it stood while the copy was made.
    """
    with closing(connect(Settings(path=str(copy), read_only=True))) as connection:
        damage = next((flaw for flaw in flaws(connection, None, None) if flaw and flaw.is_damage), None)
        if damage is not None:
            place = "" if damage.run_id is None else f"{damage.agent_id}/{damage.run_id}: "
            event = "" if damage.seq is None else f"event {damage.seq} "
            raise StoreCorrupt(
                f"{store}: its copy is damaged and was not kept (amlog verify says whether the store is too): "
                f"{place}{event}{damage.message}"
            )
        copied = _versions(connection)
        if not before.keys() <= copied.keys() <= after.keys() or not all(
            before.get(run, 0) <= version <= after[run] for run, version in copied.items()
        ):
            raise StoreCorrupt(f"{store}: the backup does not hold what the store does, and was not kept")
        (events,) = connection.execute("SELECT count(*) FROM events").fetchone()
        (runs,) = connection.execute("SELECT count(*) FROM runs WHERE created IS NOT NULL").fetchone()
    return int(runs), int(events)


def _sync(path: Path) -> None:
    """Have the disk keep a file, or a folder's names."""
    if os.name != "posix" and path.is_dir():
        return  # only there can a folder be opened
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _versions(connection: sqlite3.Connection) -> dict[int, int]:
    """The version of every run there ever was, by the run's number in the file."""
    return dict(connection.execute(f"SELECT id, coalesce({VERSION}, base_seq) FROM runs"))  # noqa: S608  # of constants


def compact(file: OpenFile) -> CompactResult:
    """See ``Compacts.compact``; on a connection that is in no transaction."""
    before = _size(file)
    with translating(file.path):
        file.connection.execute("VACUUM")
        (milliseconds,) = file.connection.execute("PRAGMA busy_timeout").fetchone()
        # SQLite waits for readers by itself, but not for another connection's checkpoint, which is soon over.
        if not any(_checkpoint(file) for _ in attempts(milliseconds)):
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
