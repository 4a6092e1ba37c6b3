"""Checks that the open file of a connection is still the file at its path.

SQLite continues to write to a file that was removed, moved or overwritten, and reports no error. Such writes are lost.
So each handle checks the path before each read, and after each commit before it acknowledges the commit.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from stat import S_ISREG
from time import monotonic, time

import msgspec

from agent_memory_log.backend_kit import Handle
from agent_memory_log.errors import StoreUnavailable
from agent_memory_log_sqlite.failures import translating
from agent_memory_log_sqlite.row_format import SEQ_BITS, RunRow
from agent_memory_log_sqlite.schema import Settings, attempts, close_all, connect

# Removing, moving, replacing or adding a file changes the time of its folder. So the handle first checks only the
# folder, and checks the file and its write-ahead log if the folder changed. Checking the write-ahead log after each
# commit made appends 1.4 times as slow, because Linux writes a file's time more precisely, and more slowly, after
# someone reads it. The checks call os.stat because Path.stat takes twice as long.

_SECONDS_A_LOOK = 0.001
"""The seconds between two checks of the file itself. They detect that it was overwritten or got a hard link."""

_SETTLED_SECONDS = 0.1
"""The age in seconds from which a folder's time is reliable. A newer folder may change again in the same clock tick,
which leaves its time unchanged.

If the folder's time is newer, or if the path is a symlink, each check of the file also checks the write-ahead log.
"""

_TO_DO = (
    "This handle writes nothing more to it. Close every handle on it, put back the file together with its -wal, or "
    "restore a backup (see docs/sqlite.md). Then open it again and append the same events again"
)


_MOST_RUNS = 10_000

_RUNS_COMPARED = 8
_EVENTS_COMPARED = 8
"""The number of recent runs, and of events of each run, to look up after the file changed."""


FORK_PATIENCE_SECONDS = 10.0
"""The longest time that a fork waits for a thread inside SQLite. After it, the child cannot close the connections."""


class OpenFile:
    """A connection and its open file, for one thread at a time.

    ``lost`` is true if the last check did not find the open file at the path.
    """

    def __init__(
        self, connection: sqlite3.Connection, settings: Settings, file: os.stat_result, overwritten: list[str]
    ) -> None:
        """Take over ``connection``. ``file`` describes its open file.

        All connections of a handle share ``overwritten``. It is empty until a check finds that the file was
        overwritten, and then has the reason for the error.
        """
        self.connection = connection
        self.path = settings.path
        self.wal_path = _wal_of(settings.path)
        self.lost = False
        self._read_only = settings.read_only
        self._overwritten = overwritten
        self._file_inode = _inode_of(file)
        wal = _stat(self.wal_path)
        # A read-only file can be without a write-ahead log.
        self._wal_inode = None if wal is None else _inode_of(wal)
        self._folder = os.path.dirname(settings.path)  # noqa: PTH120  # a Path is slower, see above
        self._folder_inode: int = 0
        self._folder_modified: int = 0
        self._folder_is_settled = False
        self._look_again_at = 0.0
        with translating(self.path):
            (self._page_size,) = connection.execute("PRAGMA page_size").fetchone()
            self._remember(file)

    @property
    def state(self) -> tuple[int, int]:
        """The file's modification time and size at the last check. SQLite does not notice an overwritten file."""
        return self._modified, self._size

    def is_unchanged(self) -> bool:
        """Return whether the folder proves that the file is unchanged. If not, call ``check``."""
        try:
            folder = os.stat(self._folder)  # noqa: PTH116  # see above
        except OSError:
            return False
        return (
            folder.st_mtime_ns == self._folder_modified
            and folder.st_ino == self._folder_inode
            and monotonic() < self._look_again_at
        )

    def check(self) -> bool:
        """Check that the file and its write-ahead log are the open ones, and return whether the file changed.

        A checkpoint changes the file, and so does a copy over it. SQLite then drops its cached pages. Raises
        ``StoreUnavailable`` if another file or no file is at the path.
        """
        file = self.check_place()
        if file is None or (file.st_mtime_ns == self._modified and file.st_size == self._size):
            return False
        with translating(self.path):
            # Only a VACUUM shrinks a file, and it increases the schema version first.
            self.connection.execute("PRAGMA shrink_memory")
            (schema,) = self.connection.execute("PRAGMA schema_version").fetchone()
            if file.st_size < self._least_size and schema == self._schema:
                raise self.overwritten_error(f"its size changed from {self._size:,} to {file.st_size:,} bytes")
            self._remember(file)
        return True

    def check_place(self) -> os.stat_result | None:
        """Do the part of ``check`` that does not call SQLite. Return None if the file needed no check."""
        if self.is_unchanged():
            return None
        try:
            folder = os.stat(self._folder)  # noqa: PTH116  # see above
        except OSError as error:
            raise self._missing_error(self._folder, error) from error
        is_as_it_was = folder.st_mtime_ns == self._folder_modified and folder.st_ino == self._folder_inode
        self.lost, self._look_again_at = True, 0.0
        file = self._look_at(self.path, self._file_inode)
        if file.st_nlink > 1 and not self._read_only:
            raise _hard_link_error(self.path, file)
        if self._overwritten:
            raise self.overwritten_error(self._overwritten[0])
        if not (is_as_it_was and self._folder_is_settled):
            if self._wal_inode is not None:
                self._look_at(self.wal_path, self._wal_inode)
            self._folder_inode, self._folder_modified = folder.st_ino, folder.st_mtime_ns
            self._folder_is_settled = time() - folder.st_mtime > _SETTLED_SECONDS and not os.path.islink(self.path)  # noqa: PTH114  # see above
        self.lost, self._look_again_at = False, monotonic() + _SECONDS_A_LOOK
        return file

    def _look_at(self, path: str, inode: tuple[int, int]) -> os.stat_result:
        try:
            file = os.stat(path)  # noqa: PTH116  # see above
        except OSError as error:
            raise self._missing_error(path, error) from error
        if _inode_of(file) != inode:
            raise StoreUnavailable(f"{path} was replaced by another file while it was open. {_TO_DO}")
        return file

    def _missing_error(self, path: str, error: OSError) -> StoreUnavailable:
        self.lost, self._look_again_at = True, 0.0
        return StoreUnavailable(f"{path} was removed or moved away while it was open ({error.strerror}). {_TO_DO}")

    def overwritten_error(self, why: str) -> StoreUnavailable:
        """Return the error for an overwritten file. Every later check raises it too."""
        self.lost, self._look_again_at = True, 0.0
        self._overwritten[:] = [why]
        return StoreUnavailable(
            f"{self.path} was overwritten while it was open: {why}. This handle writes nothing more to it. Close "
            "every handle on it, remove its -wal and -shm, restore a backup (see docs/sqlite.md), and open it again"
        )

    def _remember(self, file: os.stat_result) -> None:
        # In this order, a VACUUM between the two statements only makes the least size smaller.
        (self._schema,) = self.connection.execute("PRAGMA schema_version").fetchone()
        (pages,) = self.connection.execute("PRAGMA page_count").fetchone()
        self._least_size = min(file.st_size, pages * self._page_size)
        self._modified, self._size = file.st_mtime_ns, file.st_size


class RememberedRun(msgspec.Struct, gc=False):
    """The state of a run after the handle's last append. ``name`` is the ``name_sum`` of its agent and run."""

    name: int
    run_id: int
    base: int
    version: int
    expires_at: int | None


class RememberedRuns(dict[tuple[str, str], RememberedRun]):
    """The runs that a handle appended to, by agent and run."""

    def __init__(self, file: OpenFile) -> None:
        super().__init__()
        self._file = file

    def remember(self, agent: str, run: str, remembered: RememberedRun) -> None:
        """Remember a run, and forget the oldest one if there are too many."""
        if len(self) >= _MOST_RUNS and (agent, run) not in self:
            del self[next(iter(self))]
        self[agent, run] = remembered

    def check_file(self) -> None:
        """Raise ``StoreUnavailable`` if the file at the path lacks committed events."""
        if self._file.check():
            with translating(self._file.path):
                for name, _ in zip(reversed(self), range(_RUNS_COMPARED), strict=False):
                    self._compare(name, self[name])

    def check_version(self, agent: str, run: str, run_row: RunRow) -> None:
        """Raise ``StoreUnavailable`` if the version of a run decreased. Even a deletion does not decrease it."""
        remembered = self.get((agent, run))
        if remembered is not None and run_row.version < remembered.version:
            raise self._file.overwritten_error(
                f"{agent}/{run} is at version {run_row.version}, but was at {remembered.version}"
            )

    def _compare(self, name: tuple[str, str], remembered: RememberedRun) -> None:
        event_seqs = range(remembered.base + 1, remembered.version + 1)
        seqs = {remembered.version, *random.sample(event_seqs, min(_EVENTS_COMPARED, len(event_seqs)))}
        row = self._file.connection.execute(
            f"SELECT base_seq, (SELECT count(*) FROM events WHERE id IN ({', '.join('?' * len(seqs))})) FROM runs WHERE id = ?",  # noqa: E501, S608  # only constants and question marks
            (*(remembered.run_id << SEQ_BITS | seq for seq in seqs), remembered.run_id),
        ).fetchone()
        # After a deletion, the events are missing and the base is higher.
        if row is None or (row[0] <= remembered.base and row[1] < len(seqs)):
            raise self._file.overwritten_error(f"{'/'.join(name)} has lost events")


class HoldsFile(Handle):
    """A handle with connections to a file. Each connection has a lock, and a forked child closes all connections.

    SQLite in the child believes that it holds the parent's file locks, but the kernel did not pass them on. If the
    child opened the file again beside these connections, SQLite would set no locks, and parent and child could write at
    the same time. The child can close the connections only if no thread is inside SQLite during the fork.
    """

    _locks: tuple[threading.Lock, ...] = ()
    _connections: tuple[sqlite3.Connection, ...] = ()
    _locked: tuple[threading.Lock, ...] = ()

    def pause_for_fork(self) -> None:
        """See ``Handle.pause_for_fork``."""
        self._locked = tuple([lock for lock in self._locks if lock.acquire(timeout=FORK_PATIENCE_SECONDS)])

    def resume_after_fork(self) -> None:
        """See ``Handle.resume_after_fork``."""
        for lock in self._locked:
            lock.release()

    def disown(self) -> None:
        """See ``Handle.disown``."""
        was_open = self._unusable is None
        super().disown()
        if was_open and len(self._locked) == len(self._locks):
            close_all(self._connections)
        self.resume_after_fork()


def open_all(settings: Settings, count: int) -> list[OpenFile]:
    """Open ``count`` connections to the same file, or raise an error of ``connect`` and open no connection."""
    for _ in attempts(settings.busy_timeout_ms):
        before = _stat(settings.path)
        if before is not None and before.st_nlink > 1 and not settings.read_only:
            raise _hard_link_error(settings.path, before)
        connections: list[sqlite3.Connection] = []
        try:
            while len(connections) < count:
                connections.append(connect(settings))
            after = _stat(settings.path)
            is_whole = settings.read_only or _stat(_wal_of(settings.path)) is not None
            if after is not None and is_whole and (before is None or _inode_of(before) == _inode_of(after)):
                overwritten: list[str] = []
                return [OpenFile(connection, settings, after, overwritten) for connection in connections]
        except BaseException:
            close_all(connections)
            raise
        close_all(connections)
    raise StoreUnavailable(
        f"{settings.path} was replaced by another file during each attempt to open it; stop that and open it again"
    )


def _inode_of(file: os.stat_result) -> tuple[int, int]:
    return file.st_dev, file.st_ino


def _hard_link_error(path: str, file: os.stat_result) -> StoreUnavailable:
    return StoreUnavailable(
        f"{path} has {file.st_nlink} names (hard links). SQLite would use one write-ahead log for each name, and would "
        "lose writes. Remove the other names, or open it with ?mode=ro; to make a copy, use amlog backup"
    )


def _wal_of(path: str) -> str:
    return f"{os.path.realpath(path)}-wal"  # SQLite keeps the log beside the file, not beside a symlink to it


def _stat(path: str) -> os.stat_result | None:
    """Return the status of a regular file, or None for any other path. Opening such a path raises the error."""
    try:
        file = os.stat(path)  # noqa: PTH116  # see above
    except OSError:
        return None
    return file if S_ISREG(file.st_mode) else None
