"""What tells a handle that reads of news: whether anything was written, and where many runs stand now.

Memory asks before each search where every linked run stands, and these are the same thousands each time: they are
looked up once, and told from memory while nothing is written to the file.
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
"""How often a waiting follower asks SQLite whether another connection has written, which takes microseconds."""

_KEPT = 8
"""How many lists of runs are remembered."""

_HEADS = f"SELECT number, base_seq, expires_at, {VERSION} FROM wanted CROSS JOIN runs ON agent = of AND run = named"  # noqa: S608  # of constants
_HEADS_AT_ONCE = 499
"""Two variables each, and an SQLite before 3.32 takes 999 in a statement."""

_NEVER = RunHead(0, 1)


class Watch:
    """Whether anything was written to the file, by this process or another, since the last look.

    A look costs microseconds and never waits: a file that is locked at that moment counts as written to.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Watch through ``connection``, which must not be one that writes: it does not see its own writes."""
        self._connection = connection
        self._times_busy = 0

    def version(self) -> int:
        """A number that is another one after each write, and each time the file is locked."""
        try:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.OperationalError as error:
            if is_busy(error):
                self._times_busy += 1
                return -self._times_busy
            raise
        return int(version)

    def stands(self, agent: str, run: str, found: RunRow) -> bool:
        """Whether nothing of the run was redacted or deleted since ``found`` was read."""
        try:
            row = self._connection.execute(
                "SELECT deletions, redactions FROM runs WHERE agent = ? AND run = ?", (agent, run)
            ).fetchone()
        except sqlite3.OperationalError as error:
            if is_busy(error):
                return False
            raise
        return bool(row == (found.deletions, found.redactions))


class _Look(msgspec.Struct, frozen=True):
    """What a look found: where ``runs`` stood in the file's ``state``, and ``until`` the next run expires."""

    runs: Sequence[tuple[str, str]]
    heads: tuple[RunHead | None, ...]
    state: tuple[int, ...]
    until: int | None


class Heads:
    """Answers ``peek_runs``, always as the file is now."""

    def __init__(self, file: OpenFile, *, verify: bool) -> None:
        """Read ``file`` through its connection, which must not be one that writes."""
        self._file = file
        self._connection = file.connection
        self._verify = verify
        self._watch = Watch(file.connection)
        self._looks: tuple[_Look, ...] = ()

    def checked(self, runs: Iterable[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """The pairs that are asked for. Raises what ``check_runs`` raises."""
        for look in self._looks:
            if look.runs == runs:
                return look.runs
        return tuple(check_runs(runs))

    def peek(self, runs: Sequence[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """Where ``runs`` stand."""
        # Read before the heads are: what is written in between gives the file another state the next time.
        state, now = (self._watch.version(), *self._file.state), now_microseconds()
        self._looks = tuple(
            look for look in self._looks if look.state == state and (look.until is None or now < look.until)
        )
        for look in self._looks:
            if look.runs == runs:
                return look.heads
        (until,) = self._connection.execute("SELECT min(expires_at) FROM runs WHERE expires_at > ?", (now,)).fetchone()
        heads = _peek(self._connection, runs, verify=self._verify)
        self._looks = (_Look(runs, heads, state, until), *self._looks)[:_KEPT]
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
        for begin in range(0, len(runs), _HEADS_AT_ONCE):
            some = runs[begin : begin + _HEADS_AT_ONCE]
            rows = connection.execute(_heads_of(len(some)), [one for pair in some for one in pair])
            for number, base, expires_at, version in rows:
                heads[begin + number] = _head(base, expires_at, version, now)
    return tuple(heads)


def _head(base: int, expires_at: int | None, version: int, now: int) -> RunHead | None:
    return None if expires_at is not None and expires_at <= now else RunHead(version, base + 1)


@lru_cache(8)
def _heads_of(count: int) -> str:
    # A row value IN (VALUES ...) would say the same, and scan all runs.
    values = ", ".join(f"({number}, ?, ?)" for number in range(count))
    return f"WITH wanted (number, of, named) AS (VALUES {values}) {_HEADS}"
