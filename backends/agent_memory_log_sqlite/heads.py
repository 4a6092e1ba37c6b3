"""Where many runs stand: looked up once, and told from memory while nothing is written to the file.

Memory asks before each search where every linked run stands, and these are the same thousands each time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import msgspec

from agent_memory_log.backend.checks import check_runs
from agent_memory_log.backend.expiry import now_microseconds
from agent_memory_log.store import RunHead
from agent_memory_log_sqlite import reads

_KEPT = 8
"""How many lists of runs are remembered."""


class _Look(msgspec.Struct, frozen=True):
    """What a look found: where ``runs`` stood while the file was at ``version``, and ``until`` the next run expires."""

    runs: tuple[tuple[str, str], ...]
    heads: tuple[RunHead | None, ...]
    version: int
    until: int | None


class Heads:
    """Answers ``peek_runs``, always as the file is now."""

    def __init__(self, connection: sqlite3.Connection, *, verify: bool) -> None:
        """Read through ``connection``, which must not be one that writes."""
        self._connection = connection
        self._verify = verify
        self._watch = reads.Watch(connection)
        self._looks: tuple[_Look, ...] = ()

    def checked(self, runs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """The pairs that are asked for. Raises what ``check_runs`` raises."""
        for look in self._looks:
            if look.runs == runs:
                return look.runs
        return tuple(check_runs(runs))

    def peek(self, runs: tuple[tuple[str, str], ...]) -> tuple[RunHead | None, ...]:
        """Where ``runs`` stand."""
        # Read before the heads are: what is written in between gives the file another version the next time.
        version, now = self._watch.version(), now_microseconds()
        self._looks = tuple(
            look for look in self._looks if look.version == version and (look.until is None or now < look.until)
        )
        for look in self._looks:
            if look.runs == runs:
                return look.heads
        (until,) = self._connection.execute("SELECT min(expires_at) FROM runs WHERE expires_at > ?", (now,)).fetchone()
        heads = reads.peek(self._connection, runs, verify=self._verify)
        self._looks = (_Look(runs, heads, version, until), *self._looks)[:_KEPT]
        return heads
