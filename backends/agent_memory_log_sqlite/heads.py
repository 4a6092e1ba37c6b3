"""Where many runs stand: looked up once, and told from memory while nothing is written to the file.

Memory asks before each search where every linked run stands, and these are the same thousands each time.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agent_memory_log.backend_kit.checks import check_runs
from agent_memory_log.backend_kit.expiry import now_microseconds
from agent_memory_log.store import RunHead
from agent_memory_log_sqlite import reads
from agent_memory_log_sqlite.file import OpenFile

_KEPT = 8
"""How many lists of runs are remembered."""


class _Look(msgspec.Struct, frozen=True):
    """What a look found: where ``runs`` stood in the file's ``state``, and ``until`` the next run expires."""

    runs: tuple[tuple[str, str], ...]
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
        self._watch = reads.Watch(file.connection)
        self._looks: tuple[_Look, ...] = ()

    def checked(self, runs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """The pairs that are asked for. Raises what ``check_runs`` raises."""
        for look in self._looks:
            if look.runs == runs:
                return look.runs
        return tuple(check_runs(runs))

    def peek(self, runs: tuple[tuple[str, str], ...]) -> tuple[RunHead | None, ...]:
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
        heads = reads.peek(self._connection, runs, verify=self._verify)
        self._looks = (_Look(runs, heads, state, until), *self._looks)[:_KEPT]
        return heads
