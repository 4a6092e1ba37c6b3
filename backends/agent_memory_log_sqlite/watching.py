"""Detects writes to the file, and returns the heads of runs.

Before each search, memory peeks at every linked run, often at the same thousands of runs. The handle therefore
remembers their heads until something writes to the file or a run expires.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from agent_memory_log.backend_kit import check_runs, now_microseconds
from agent_memory_log.store import RunHead
from agent_memory_log_sqlite.checks import find_verified_run
from agent_memory_log_sqlite.failures import is_busy
from agent_memory_log_sqlite.open_file import OpenFile
from agent_memory_log_sqlite.row_format import VERSION, RunRow
from agent_memory_log_sqlite.schema import OneView

POLL_SECONDS = 0.01
"""The pause of a waiting follower between two checks for writes of other connections. A check takes microseconds."""

_MOST_RECENT = 8
"""The number of peeks whose results are remembered."""

_HEADS = f"SELECT number, base_seq, expires_at, {VERSION} FROM wanted CROSS JOIN runs ON agent = of AND run = named"  # noqa: S608  # only constants
_RUNS_A_QUERY = 499
"""The number of runs in one query. Each needs two variables, and SQLite before 3.32 allows 999 in a statement."""

_NEVER = RunHead(0, 1)


class Watch:
    """A check for writes to the file by other connections, in this process or in another one.

    A check takes microseconds and never waits. A locked file counts as changed.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Watch through ``connection``. It must not write, because SQLite reports only the writes of others to it."""
        self._connection = connection
        self._times_busy = 0

    def version(self) -> int:
        """Return a number that changes with each write, and each time the file is locked."""
        try:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.OperationalError as error:
            if is_busy(error):
                self._times_busy += 1
                return -self._times_busy
            raise
        return int(version)

    def is_current(self, agent: str, run: str, run_row: RunRow) -> bool:
        """Return whether the run had no redaction and no deletion since the read of ``run_row``."""
        try:
            row = self._connection.execute(
                "SELECT removals, redactions FROM runs WHERE agent = ? AND run = ?", (agent, run)
            ).fetchone()
        except sqlite3.OperationalError as error:
            if is_busy(error):
                return False
            raise
        return bool(row == (run_row.removals, run_row.redactions))


class _Peek(msgspec.Struct, frozen=True):
    """The result of a peek at ``runs``: their heads in the file's ``state``, valid ``until`` the next run expires."""

    runs: Sequence[tuple[str, str]]
    heads: tuple[RunHead | None, ...]
    state: tuple[int, ...]
    until: int | None


class Heads:
    """The heads of runs for ``peek_runs``, always as they are in the file now."""

    def __init__(self, file: OpenFile, *, verify: bool) -> None:
        """Read ``file`` through its connection, which must not write."""
        self._file = file
        self._connection = file.connection
        self._verify = verify
        self._watch = Watch(file.connection)
        self._recent: tuple[_Peek, ...] = ()

    def checked(self, runs: Iterable[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """Return the checked pairs of ids. Raises the errors of ``check_runs``."""
        for recent in self._recent:
            if recent.runs == runs:
                return recent.runs
        return tuple(check_runs(runs))

    def peek(self, runs: Sequence[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """Return the heads of ``runs``."""
        # Read the state before the heads, so that a write in between changes the state at the next peek.
        state, now = (self._watch.version(), *self._file.state), now_microseconds()
        self._recent = tuple(
            recent for recent in self._recent if recent.state == state and (recent.until is None or now < recent.until)
        )
        for recent in self._recent:
            if recent.runs == runs:
                return recent.heads
        (until,) = self._connection.execute("SELECT min(expires_at) FROM runs WHERE expires_at > ?", (now,)).fetchone()
        heads = _peek(self._connection, runs, verify=self._verify)
        self._recent = (_Peek(runs, heads, state, until), *self._recent)[:_MOST_RECENT]
        return heads


def _peek(
    connection: sqlite3.Connection, runs: Sequence[tuple[str, str]], *, verify: bool
) -> tuple[RunHead | None, ...]:
    heads: list[RunHead | None] = [_NEVER] * len(runs)
    with OneView(connection):
        now = now_microseconds()
        if verify:
            each = [find_verified_run(connection, *pair) for pair in runs]
            return tuple(_head(row.base, row.expires_at, row.version, now) for row in each)
        for begin in range(0, len(runs), _RUNS_A_QUERY):
            some = runs[begin : begin + _RUNS_A_QUERY]
            rows = connection.execute(_heads_of(len(some)), [name for pair in some for name in pair])
            for number, base, expires_at, version in rows:
                heads[begin + number] = _head(base, expires_at, version, now)
    return tuple(heads)


def _head(base: int, expires_at: int | None, version: int, now: int) -> RunHead | None:
    return None if expires_at is not None and expires_at <= now else RunHead(version, base + 1)


@lru_cache(8)
def _heads_of(count: int) -> str:
    # A row value IN (VALUES ...) is equivalent, but scans all runs.
    values = ", ".join(f"({number}, ?, ?)" for number in range(count))
    return f"WITH wanted (number, of, named) AS (VALUES {values}) {_HEADS}"
