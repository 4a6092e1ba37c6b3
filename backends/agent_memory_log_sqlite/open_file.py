"""Whether the file that a connection has open still is the one at its path.

SQLite goes on writing into a file that was removed, moved or copied over, and says nothing: such a write is lost. So
each handle looks at the path after a commit and before it acknowledges, and before each read.
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

# What is removed, moved, replaced or added in a folder changes the folder's time. So one look at the folder tells of
# the file and of its write-ahead log, and these are looked at when something has happened there. (Linux writes a file's
# time more exactly, and more slowly, once someone has asked for it: a look at the write-ahead log after each commit
# made appends 1.4 times as slow. And it is os.stat because a Path costs as much again.)

_SECONDS_A_LOOK = 0.001
"""For how long a look at the file itself is good, which tells of a copy over it and of another name elsewhere."""

_SETTLED_SECONDS = 0.1
"""How long a folder must have been left alone for its time to tell all: two changes at one tick have one time.

Until then, and where the path is a link to a file in another folder, the write-ahead log is looked at with the file.
"""

_TO_DO = (
    "Nothing more is written to it. Close every handle on it, put back the file together with its -wal, or restore a "
    "backup (docs/sqlite.md says how), and open it again; what was just to be written may be appended again then"
)


_MOST_RUNS = 10_000

_RUNS_COMPARED = 8
_EVENTS_COMPARED = 8
"""How many runs, the newest, and how many events of each are looked for when more than an append wrote to the file."""


FORK_PATIENCE_SECONDS = 10.0
"""How long a fork waits for a thread that is writing. One that still is keeps the child from closing what it has."""


class OpenFile:
    """A connection, and the file that it has open. For one thread at a time.

    ``lost`` says that the last look found another file at the path, or none.
    """

    def __init__(
        self, connection: sqlite3.Connection, settings: Settings, file: os.stat_result, overwritten: list[str]
    ) -> None:
        """Take over ``connection``, which has the file open that ``file`` describes.

        ``overwritten`` says why one of a handle's connections found that the file was; they share it.
        """
        self.connection = connection
        self.path = settings.path
        self.wal_path = _wal_of(settings.path)
        self.lost = False
        self._read_only = settings.read_only
        self._overwritten = overwritten
        self._file_place = _place(file)
        wal = _stat(self.wal_path)
        # A file that is only read need not have a write-ahead log.
        self._wal_place = None if wal is None else _place(wal)
        self._folder = os.path.dirname(settings.path)  # noqa: PTH120  # as above
        self._folder_inode: int = 0
        self._folder_modified: int = 0
        self._is_telling = False
        self._look_again_at = 0.0
        with translating(self.path):
            (self._page_size,) = connection.execute("PRAGMA page_size").fetchone()
            self._remember(file)

    @property
    def state(self) -> tuple[int, int]:
        """When the file was last written to, and its size, at the last look; SQLite knows of no copy over it."""
        return self._modified, self._size

    def stands(self) -> bool:
        """Whether a look at the folder suffices to know that nothing has happened to the file; if not, ``check``."""
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
        """Raise ``StoreUnavailable`` unless the file at the path is the one that is open, and the write-ahead log too.

        True when the file was written to since the last look, as a checkpoint does, and as does who copies something
        over it. SQLite forgets then what it has read of the file.
        """
        file = self.check_place()
        if file is None or (file.st_mtime_ns == self._modified and file.st_size == self._size):
            return False
        with translating(self.path):
            # Only a VACUUM makes a log's file smaller, which raises the number of the schema before.
            self.connection.execute("PRAGMA shrink_memory")
            (schema,) = self.connection.execute("PRAGMA schema_version").fetchone()
            if file.st_size < self._least_size and schema == self._schema:
                raise self.overwritten(f"it has {file.st_size:,} bytes, and had {self._size:,}")
            self._remember(file)
        return True

    def check_place(self) -> os.stat_result | None:
        """The part of ``check`` that asks SQLite nothing; None where it was not necessary to look at the file."""
        if self.stands():
            return None
        try:
            folder = os.stat(self._folder)  # noqa: PTH116  # see above
        except OSError as error:
            raise self._gone(self._folder, error) from error
        is_as_it_was = folder.st_mtime_ns == self._folder_modified and folder.st_ino == self._folder_inode
        self.lost, self._look_again_at = True, 0.0
        file = self._look_at(self.path, self._file_place)
        if file.st_nlink > 1 and not self._read_only:
            raise _linked(self.path, file)
        if self._overwritten:
            raise self.overwritten(self._overwritten[0])
        if not (is_as_it_was and self._is_telling):
            if self._wal_place is not None:
                self._look_at(self.wal_path, self._wal_place)
            self._folder_inode, self._folder_modified = folder.st_ino, folder.st_mtime_ns
            self._is_telling = time() - folder.st_mtime > _SETTLED_SECONDS and not os.path.islink(self.path)  # noqa: PTH114  # see above
        self.lost, self._look_again_at = False, monotonic() + _SECONDS_A_LOOK
        return file

    def _look_at(self, path: str, place: tuple[int, int]) -> os.stat_result:
        try:
            file = os.stat(path)  # noqa: PTH116  # see above
        except OSError as error:
            raise self._gone(path, error) from error
        if _place(file) != place:
            raise StoreUnavailable(f"{path} was replaced by another file while it was open. {_TO_DO}")
        return file

    def _gone(self, path: str, error: OSError) -> StoreUnavailable:
        self.lost, self._look_again_at = True, 0.0
        return StoreUnavailable(f"{path} was removed or moved away while it was open ({error.strerror}). {_TO_DO}")

    def overwritten(self, why: str) -> StoreUnavailable:
        """The error for a file that something was copied over; from now on every check raises it."""
        self.lost, self._look_again_at = True, 0.0
        self._overwritten[:] = [why]
        return StoreUnavailable(
            f"{self.path} was overwritten while it was open: {why}. Nothing more is written to it. Close every handle "
            "on it, remove its -wal and -shm, restore a backup (docs/sqlite.md says how), and open it again"
        )

    def _remember(self, file: os.stat_result) -> None:
        # In this order: a VACUUM between the first two only makes the least size smaller.
        (self._schema,) = self.connection.execute("PRAGMA schema_version").fetchone()
        (pages,) = self.connection.execute("PRAGMA page_count").fetchone()
        self._least_size = min(file.st_size, pages * self._page_size)
        self._modified, self._size = file.st_mtime_ns, file.st_size


class Known(msgspec.Struct, gc=False):
    """A run after the handle's last append. ``name`` is ``name_sum`` of its agent and run."""

    name: int
    run_id: int
    base: int
    version: int
    expires_at: int | None


class KnownRuns(dict[tuple[str, str], Known]):
    """What is remembered, by agent and run."""

    def __init__(self, file: OpenFile) -> None:
        super().__init__()
        self._file = file

    def remember(self, agent: str, run: str, known: Known) -> None:
        """Remember a run, and forget another one where there are too many."""
        if len(self) >= _MOST_RUNS and (agent, run) not in self:
            del self[next(iter(self))]
        self[agent, run] = known

    def check_file(self) -> None:
        """Raise ``StoreUnavailable`` unless what was committed stands in the file at the path."""
        if self._file.check():
            with translating(self._file.path):
                for name, _ in zip(reversed(self), range(_RUNS_COMPARED), strict=False):
                    self._compare(name, self[name])

    def check_version(self, agent: str, run: str, found: RunRow) -> None:
        """Raise ``StoreUnavailable`` where a run went back, which not even its deletion does."""
        known = self.get((agent, run))
        if known is not None and found.version < known.version:
            raise self._file.overwritten(f"{agent}/{run} is at version {found.version}, and was at {known.version}")

    def _compare(self, name: tuple[str, str], known: Known) -> None:
        held = range(known.base + 1, known.version + 1)
        seqs = {known.version, *random.sample(held, min(_EVENTS_COMPARED, len(held)))}
        row = self._file.connection.execute(
            f"SELECT base_seq, (SELECT count(*) FROM events WHERE id IN ({', '.join('?' * len(seqs))})) FROM runs WHERE id = ?",  # noqa: E501, S608  # of constants and question marks
            (*(known.run_id << SEQ_BITS | seq for seq in seqs), known.run_id),
        ).fetchone()
        # A deletion raises the base.
        if row is None or (row[0] <= known.base and row[1] < len(seqs)):
            raise self._file.overwritten(f"{'/'.join(name)} has lost events that it held")


class HoldsFile(Handle):
    """A handle on connections to a file, each used under a lock, which a forked child must close.

    The child shares the parent's file locks in its memory, but not in the kernel's: were it to open the same file while
    it still has the parent's connections, SQLite would take none for it, and both would write as if alone. It can close
    them if no other thread is inside SQLite at that moment.
    """

    _locks: tuple[threading.Lock, ...] = ()
    _connections: tuple[sqlite3.Connection, ...] = ()
    _held: tuple[threading.Lock, ...] = ()

    def hold_still(self) -> None:
        """See ``Handle.hold_still``."""
        self._held = tuple([lock for lock in self._locks if lock.acquire(timeout=FORK_PATIENCE_SECONDS)])

    def go_on(self) -> None:
        """See ``Handle.go_on``."""
        for lock in self._held:
            lock.release()

    def disown(self) -> None:
        """See ``Handle.disown``."""
        was_open = self._unusable is None
        super().disown()
        if was_open and len(self._held) == len(self._locks):
            close_all(self._connections)
        self.go_on()


def open_all(settings: Settings, count: int) -> list[OpenFile]:
    """Open ``count`` connections to the one file at the path, or none. Raises as ``connect`` does."""
    for _ in attempts(settings.busy_timeout_ms):
        before = _stat(settings.path)
        if before is not None and before.st_nlink > 1 and not settings.read_only:
            raise _linked(settings.path, before)
        connections: list[sqlite3.Connection] = []
        try:
            while len(connections) < count:
                connections.append(connect(settings))
            after = _stat(settings.path)
            is_whole = settings.read_only or _stat(_wal_of(settings.path)) is not None
            if after is not None and is_whole and (before is None or _place(before) == _place(after)):
                overwritten: list[str] = []
                return [OpenFile(connection, settings, after, overwritten) for connection in connections]
        except BaseException:
            close_all(connections)
            raise
        close_all(connections)
    raise StoreUnavailable(f"{settings.path} is replaced by another file again and again: open it when that is over")


def _place(file: os.stat_result) -> tuple[int, int]:
    return file.st_dev, file.st_ino


def _linked(path: str, file: os.stat_result) -> StoreUnavailable:
    return StoreUnavailable(
        f"{path} has {file.st_nlink} names (hard links), and SQLite would keep a write-ahead log for each: it is not "
        "written to, or what is written through one name is lost for the other. Remove the other names, or open it "
        "with ?mode=ro; to have a copy, use amlog backup"
    )


def _wal_of(path: str) -> str:
    return f"{os.path.realpath(path)}-wal"  # SQLite keeps it beside the file, not beside a link to it


def _stat(path: str) -> os.stat_result | None:
    """None where there is no file; who opens it says why."""
    try:
        file = os.stat(path)  # noqa: PTH116  # see above
    except OSError:
        return None
    return file if S_ISREG(file.st_mode) else None
