"""Reading: the queries of a store, on a connection that only reads.

Each function is one transaction, so that what it returns is the store at one instant. The caller sees to it that one
thread at a time uses the connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import lru_cache

import msgspec

from agent_memory_log.backend import check_expiry, decode_cursor, encode_cursor, now_microseconds
from agent_memory_log.errors import CursorOutOfRange, DecodeError, RunDeleted
from agent_memory_log.events import Event, from_microseconds
from agent_memory_log.jsonvalue import JsonValue
from agent_memory_log.payloads import EventType
from agent_memory_log.registry import decode_parts
from agent_memory_log.snapshot import Snapshot, redactions_in
from agent_memory_log.store import ExpireResult, RunHead, RunInfo, RunPage
from agent_memory_log_sqlite.failures import is_busy

SEQ_BITS = 32
MAX_SEQ = (1 << SEQ_BITS) - 1

_UNINDEXED = ("assistant_message", "thinking", "tool_call", "tool_result")
# The condition of the index, word for word, or SQLite does not see that it may use it.
_INDEXED_ONLY = " AND ".join(f"type <> '{one}'" for one in _UNINDEXED)

COLUMNS = "id, event_id, type, timestamp, labels, data, verbatim"
_VERSION = f"(SELECT id & {MAX_SEQ} FROM events WHERE id > runs.id << {SEQ_BITS} AND id < runs.id + 1 << {SEQ_BITS} ORDER BY id DESC LIMIT 1)"  # noqa: E501, S608  # one statement, of constants
_RUN = f"SELECT id, base, deletions, redactions, meta, expires_at, coalesce({_VERSION}, base) FROM runs WHERE agent = ? AND run = ?"  # noqa: E501, S608  # one statement, of constants
_HEADS = f"SELECT number, base, expires_at, coalesce({_VERSION}, base) FROM wanted CROSS JOIN runs ON agent = of AND run = named"  # noqa: E501, S608  # one statement, of constants
_EVENTS = f"SELECT {COLUMNS} FROM events WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"  # noqa: S608  # of constants

_COUNT_EXPIRED = f"SELECT count(*), coalesce(sum(coalesce({_VERSION}, base) - base), 0) FROM runs WHERE expires_at <= ?"  # noqa: S608  # of constants

_NO_LIMIT = -1
_HEADS_AT_ONCE = 499
"""Two variables each, and an SQLite before 3.32 takes 999 in a statement."""
_FOLLOW_BATCH = 64
_FOLLOW_CHARACTERS = 1024 * 1024

Row = tuple[int, str, str, int, str | None, str, str | None]
"""A row of ``COLUMNS``, as a file that nobody damaged gives it."""


class RunRow(msgspec.Struct, frozen=True, gc=False):
    """A run's row, and its version at the read; all zeros, no meta and no end for a run that never was."""

    id: int = 0
    base: int = 0
    deletions: int = 0
    redactions: int = 0
    meta: str | None = None
    expires_at: int | None = None
    version: int = 0

    @property
    def event_count(self) -> int:
        """How many events the run holds."""
        return self.version - self.base

    def row_id(self, seq: int) -> int:
        """The event id of ``seq`` in this run."""
        return self.id << SEQ_BITS | seq


_NEVER = RunHead(0, 1)


class _OneView:
    """A read transaction: several queries see the file at one instant."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")  # a signal's exception came before the last one could be ended
        self._connection.execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")


def find_run(connection: sqlite3.Connection, agent: str, run: str) -> RunRow:
    """A run's row; one with id 0 when it never was."""
    row = connection.execute(_RUN, (agent, run)).fetchone()
    return RunRow(*row) if row else RunRow()


def load(
    connection: sqlite3.Connection, agent: str, run: str, after: int, types: frozenset[str] | None, limit: int | None
) -> Snapshot:
    """See ``Store.load_run``."""
    with _OneView(connection):
        found = find_run(connection, agent, run)
        check_expiry(agent, run, found.expires_at)
        if after > found.version:
            raise CursorOutOfRange(
                f"{agent}/{run} is at version {found.version}; there is nothing after seq {after} yet"
            )
        bounds = (found.row_id(max(after, found.base)), found.row_id(found.version))
        count = _NO_LIMIT if limit is None else min(limit, MAX_SEQ)
        if types is None:
            rows: list[Row] = connection.execute(_EVENTS, (*bounds, count)).fetchall()
        else:
            rows = _of_types(connection, found.id, bounds, types, count)
        last_seq = rows[-1][0] & MAX_SEQ if len(rows) == count else found.version
        markers: list[Row] = []
        if types is not None and found.redactions and EventType.REDACTION not in types:
            end = found.row_id(last_seq)
            markers = _of_types(connection, found.id, (bounds[0], end), {EventType.REDACTION.value}, _NO_LIMIT)
    log = decode_rows(rows, agent, run)
    return Snapshot(
        agent,
        run,
        log,
        version=found.version,
        last_seq=last_seq,
        meta=_meta(found.meta, agent, run),
        after=after,
        types=types,
        first_seq=found.base + 1,
        redactions=redactions_in(decode_rows(markers, agent, run)) if types is not None and markers else None,
    )


def _of_types(
    connection: sqlite3.Connection, run_id: int, bounds: tuple[int, int], types: Iterable[str], count: int
) -> list[Row]:
    wanted = sorted(types)
    marks = ", ".join("?" * len(wanted))
    if any(one in _UNINDEXED for one in wanted):
        where = "id > ? AND id <= ?"
        arguments: tuple[int, ...] = bounds
    else:
        where = f"run = ? AND {_INDEXED_ONLY} AND id > ? AND id <= ?"
        arguments = (run_id, *bounds)
    sql = f"SELECT {COLUMNS} FROM events WHERE {where} AND type IN ({marks}) ORDER BY id LIMIT ?"  # noqa: S608  # of constants and question marks
    rows: list[Row] = connection.execute(sql, (*arguments, *wanted, count)).fetchall()
    return rows


_EPOCH = from_microseconds(0)
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode
_decode_meta = msgspec.json.Decoder(dict[str, JsonValue]).decode


def decode_rows(rows: Iterable[Row], agent: str, run: str) -> list[Event]:
    """Rows of ``COLUMNS`` as events. Raises ``DecodeError`` naming run and seq."""
    events: list[Event] = []
    append = events.append
    for row_id, event_id, event_type, microseconds, labels, data, verbatim in rows:
        try:
            append(
                Event(
                    event_type,
                    _EPOCH + timedelta(0, 0, microseconds),
                    decode_parts(event_type, data, verbatim),
                    _decode_labels(labels) if labels else {},
                    event_id,
                    row_id & MAX_SEQ,
                )
            )
        except Exception as error:  # a registered payload may raise anything of its own
            raise DecodeError(f"{agent}/{run}: event {row_id & MAX_SEQ} cannot be read: {error}") from error
    return events


def follow_on(
    connection: sqlite3.Connection, agent: str, run: str, after: int, last: RunRow | None
) -> tuple[list[Event], RunRow]:
    """The next events of a follower, and the run's row at the read; ``last`` is the row at its read before.

    Raises ``RunExpired``; ``RunDeleted`` when the run was deleted since ``last``; ``CursorOutOfRange`` at a follower's
    first call.
    """
    with _OneView(connection):
        found = find_run(connection, agent, run)
        if last is not None:
            # First what it followed: that may have been deleted because it had expired.
            check_expiry(agent, run, last.expires_at)
            if found.deletions != last.deletions:
                raise RunDeleted(f"{agent}/{run} was deleted while it was followed, after seq {after}")
        check_expiry(agent, run, found.expires_at)
        if last is None and after > found.version:
            raise CursorOutOfRange(f"{agent}/{run} is at version {found.version}; seq {after} is beyond it")
        bounds = (found.row_id(max(after, found.base)), found.row_id(found.version))
        rows: list[Row] = []
        size = 0
        for row in connection.execute(_EVENTS, (*bounds, _FOLLOW_BATCH)):
            rows.append(row)
            size += len(row[5]) + len(row[6] or "")
            if size > _FOLLOW_CHARACTERS:
                break
    return decode_rows(rows, agent, run), found


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


def list_runs(
    connection: sqlite3.Connection, agent: str | None, limit: int, cursor: str | None, include_reserved: bool
) -> RunPage:
    """See ``Store.list_runs``."""
    where = ["created IS NOT NULL", "(expires_at IS NULL OR expires_at > ?)"]
    arguments: list[object] = [now_microseconds()]
    if agent is not None:
        where.append("agent = ?")
        arguments.append(agent)
    elif not include_reserved:
        where.append("substr(agent, 1, 1) <> '@'")
    if cursor is not None:
        where.append("(created, id) < (?, ?)")
        arguments.extend(decode_cursor(cursor))
    sql = (
        f"SELECT id, agent, run, base, created, meta, coalesce({_VERSION}, base) FROM runs "  # noqa: S608  # of constants
        f"WHERE {' AND '.join(where)} ORDER BY created DESC, id DESC LIMIT ?"
    )
    rows = connection.execute(sql, (*arguments, min(limit, MAX_SEQ) + 1)).fetchall()
    page = rows[:limit]
    try:
        runs = tuple(
            RunInfo(name, run, version, from_microseconds(created), version - base, _meta(meta, name, run))
            for _, name, run, base, created, meta, version in page
        )
    except (OverflowError, TypeError) as error:
        raise DecodeError(f"a run's row cannot be read: {error}") from error
    return RunPage(runs, encode_cursor(page[-1][4], page[-1][0]) if len(rows) > limit else None)


def peek(connection: sqlite3.Connection, runs: Sequence[tuple[str, str]]) -> tuple[RunHead | None, ...]:
    """See ``Peeks.peek_runs``."""
    heads: list[RunHead | None] = [_NEVER] * len(runs)
    with _OneView(connection):
        now = now_microseconds()
        for begin in range(0, len(runs), _HEADS_AT_ONCE):
            some = runs[begin : begin + _HEADS_AT_ONCE]
            rows = connection.execute(_heads_of(len(some)), [one for pair in some for one in pair])
            for number, base, expires_at, version in rows:
                has_expired = expires_at is not None and expires_at <= now
                heads[begin + number] = None if has_expired else RunHead(version, base + 1)
    return tuple(heads)


@lru_cache(8)
def _heads_of(count: int) -> str:
    # A row value IN (VALUES ...) would say the same, and scan all runs.
    values = ", ".join(f"({number}, ?, ?)" for number in range(count))
    return f"WITH wanted (number, of, named) AS (VALUES {values}) {_HEADS}"


def count_expired(connection: sqlite3.Connection, before: int) -> ExpireResult:
    """What ``expire_runs`` would remove; ``before`` in microseconds."""
    return ExpireResult(*connection.execute(_COUNT_EXPIRED, (before,)).fetchone())


def versions(connection: sqlite3.Connection) -> dict[int, int]:
    """The version of every run there ever was, by the run's number in the file."""
    return dict(connection.execute(f"SELECT id, coalesce({_VERSION}, base) FROM runs"))  # noqa: S608  # of constants


def _meta(text: str | None, agent: str, run: str) -> dict[str, JsonValue]:
    if text is None:
        return {}
    try:
        return _decode_meta(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise DecodeError(f"{agent}/{run}: the run's meta cannot be read: {error}") from error
