"""Reading: the queries of a store, on a connection that only reads.

Each function is one transaction, so that what it returns is the store at one instant. The caller sees to it that one
thread at a time uses the connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from agent_memory_log.backend_kit import check_expiry, decode_cursor, encode_cursor, now_microseconds
from agent_memory_log.errors import CursorOutOfRange, DecodeError, RunDeleted, StoreCorrupt
from agent_memory_log.events.event import Event, from_microseconds
from agent_memory_log.events.payloads import EventType
from agent_memory_log.snapshot import Snapshot, redactions_in
from agent_memory_log.store import ExpireResult, RunHead, RunInfo, RunPage
from agent_memory_log_sqlite.failures import is_busy
from agent_memory_log_sqlite.rows import (
    COLUMNS,
    MAX_SEQ,
    RUN_COLUMNS,
    SEQ_BITS,
    VERSION,
    WHAT_TO_DO,
    Row,
    RunRow,
    SummedRow,
    check_gapless,
    decode_meta,
    decode_rows,
    find_run,
    out_of_place,
    row_flaw,
    unreadable,
    whole_run,
)
from agent_memory_log_sqlite.sums import name_sum

_UNINDEXED = ("assistant_message", "thinking", "tool_call", "tool_result")
# The condition of the index, word for word, or SQLite does not see that it may use it.
_INDEXED_ONLY = " AND ".join(f"type <> '{one}'" for one in _UNINDEXED)

_HEADS = f"SELECT number, base_seq, expires_at, {VERSION} FROM wanted CROSS JOIN runs ON agent = of AND run = named"  # noqa: S608  # of constants
_EVENTS = f"SELECT {COLUMNS} FROM events WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"  # noqa: S608  # of constants
_SUMMED = f"SELECT {COLUMNS}, sum FROM events WHERE id > ? AND id <= ? ORDER BY id"  # noqa: S608  # of constants

_COUNT_INDEXED = "SELECT count(*) FROM events INDEXED BY events_by_event_id WHERE run = ?"
_UNINDEXED_RUN = "SELECT id FROM runs NOT INDEXED WHERE agent = ? AND run = ?"
_RUN_NUMBERS = "SELECT count(*), coalesce(max(id), 0) FROM runs NOT INDEXED"
_NEWEST_RUN_OF_EVENTS = f"SELECT coalesce(max(id), 0) >> {SEQ_BITS} FROM events"  # noqa: S608  # of constants

_ALL_RUNS = f"SELECT agent, run, {RUN_COLUMNS} FROM runs"  # noqa: S608  # of constants
_COUNT_EXPIRED = f"SELECT count(*), coalesce(sum({VERSION} - base_seq), 0) FROM runs WHERE expires_at <= ?"  # noqa: S608  # of constants

_NO_LIMIT = -1
_HEADS_AT_ONCE = 499
"""Two variables each, and an SQLite before 3.32 takes 999 in a statement."""
_FOLLOW_BATCH = 64
_FOLLOW_CHARACTERS = 1024 * 1024

_NEVER = RunHead(0, 1)


class OneView:
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


def load(
    connection: sqlite3.Connection,
    agent: str,
    run: str,
    after: int,
    types: frozenset[str] | None,
    limit: int | None,
    *,
    verify: bool,
) -> Snapshot:
    """See ``Store.load_run``; with ``verify``, compares each event that it passes with its checksum."""
    with OneView(connection):
        found = _find_verified(connection, agent, run) if verify else find_run(connection, agent, run)
        check_expiry(agent, run, found.expires_at)
        if after > found.version:
            raise CursorOutOfRange(
                f"{agent}/{run} is at version {found.version}; there is nothing after seq {after} yet"
            )
        bounds = (found.row_id(max(after, found.base)), found.row_id(found.version))
        count = _NO_LIMIT if limit is None else min(limit, MAX_SEQ)
        markers: list[Row] = []
        if verify and types != frozenset():
            rows, markers = _load_verified(connection, found, bounds, types, count, agent, run)
        elif types is None:
            rows = connection.execute(_EVENTS, (*bounds, count)).fetchall()
        else:
            rows = _of_types(connection, found.id, bounds, types, count)
        last_seq = rows[-1][0] & MAX_SEQ if len(rows) == count else found.version
        if types is None:
            check_gapless(rows, bounds[0], found.row_id(last_seq), agent, run)
        elif not verify and found.redactions and EventType.REDACTION not in types:
            end = found.row_id(last_seq)
            markers = _of_types(connection, found.id, (bounds[0], end), {EventType.REDACTION.value}, _NO_LIMIT)
    log = decode_rows(rows, agent, run)
    return Snapshot(
        agent,
        run,
        log,
        version=found.version,
        last_seq=last_seq,
        meta=decode_meta(found.meta, agent, run),
        after=after,
        types=types,
        first_seq=found.base + 1,
        redactions=redactions_in(decode_rows(markers, agent, run)) if types is not None and markers else None,
    )


def _load_verified(
    connection: sqlite3.Connection,
    found: RunRow,
    bounds: tuple[int, int],
    types: frozenset[str] | None,
    count: int,
    agent: str,
    run: str,
) -> tuple[list[Row], list[Row]]:
    """What ``load`` reads, from the table alone: the rows of ``types``, and the markers between them."""
    rows: list[Row] = []
    markers: list[Row] = []
    for row in _each_row(connection, found, bounds, agent, run, verify=True):
        if types is None or row[2] in types:
            rows.append(row)
            if len(rows) == count:
                return rows, markers
        elif row[2] == EventType.REDACTION:
            markers.append(row)
    # Damage that takes the newest events from the table leaves them in this index.
    (indexed,) = connection.execute(_COUNT_INDEXED, (found.id,)).fetchone()
    if indexed != found.event_count:
        raise StoreCorrupt(
            f"{agent}/{run} has {found.event_count} events, and {indexed} in an index of them: {WHAT_TO_DO}"
        )
    return rows, markers


def _each_row(
    connection: sqlite3.Connection, found: RunRow, bounds: tuple[int, int], agent: str, run: str, *, verify: bool
) -> Iterator[Row]:
    """The rows behind the first of ``bounds``, up to the second. Raises ``EventsMissing``, ``DecodeError``."""
    name = name_sum(agent, run)
    expected = bounds[0] + 1
    row: SummedRow
    for row in connection.execute(_SUMMED, bounds):
        if row[0] != expected:
            raise out_of_place(expected, row[0], agent, run)
        flaw = row_flaw(row, name, found.unsummed) if verify else None
        if flaw is not None:
            raise unreadable(row[0] & MAX_SEQ, flaw, agent, run)
        expected += 1
        yield row[:7]
    if expected <= bounds[1]:
        raise out_of_place(expected, bounds[1] + 1, agent, run)


def _find_verified(connection: sqlite3.Connection, agent: str, run: str) -> RunRow:
    """``find_run``, which also looks where no index leads when it finds none. Raises ``StoreCorrupt``."""
    found = find_run(connection, agent, run)
    if not found.id:
        if connection.execute(_UNINDEXED_RUN, (agent, run)).fetchone():
            raise StoreCorrupt(f"{agent}/{run} is in the table of runs, but not in its index: {WHAT_TO_DO}")
        _check_runs(connection)
    return found


def lost_runs(connection: sqlite3.Connection) -> str | None:
    """Whether runs are missing from their table: what is wrong, None when nothing is."""
    count, newest = connection.execute(_RUN_NUMBERS).fetchone()
    (of_events,) = connection.execute(_NEWEST_RUN_OF_EVENTS).fetchone()
    if count != newest:  # ids are given in order, and no row is ever removed
        return f"the table of runs holds {count} of {newest} rows"
    return f"events lie beyond the last of {newest} runs" if of_events > newest else None


def _check_runs(connection: sqlite3.Connection) -> None:
    flaw = lost_runs(connection)
    if flaw is not None:
        raise StoreCorrupt(f"{flaw}: {WHAT_TO_DO}")


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


def follow_on(
    connection: sqlite3.Connection, agent: str, run: str, after: int, last: RunRow | None, *, verify: bool
) -> tuple[list[Event], RunRow]:
    """The next events of a follower, and the run's row at the read; ``last`` is the row at its read before.

    Raises ``RunExpired``; ``RunDeleted`` when the run was deleted since ``last``; ``CursorOutOfRange`` at a follower's
    first call.
    """
    with OneView(connection):
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
        for row in _each_row(connection, found, bounds, agent, run, verify=verify):
            rows.append(row)
            size += len(row[5]) + len(row[6] or "")
            if size > _FOLLOW_CHARACTERS or len(rows) == _FOLLOW_BATCH:
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
    connection: sqlite3.Connection,
    agent: str | None,
    limit: int,
    cursor: str | None,
    *,
    include_reserved: bool,
    verify: bool,
) -> RunPage:
    """See ``Store.list_runs``; with ``verify``, the first page looks at every run there is."""
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
    sql = f"{_ALL_RUNS}{' NOT INDEXED' if verify else ''} WHERE {' AND '.join(where)} ORDER BY created DESC, id DESC LIMIT ?"  # noqa: E501  # one statement
    with OneView(connection):
        if verify and cursor is None:
            _check_runs(connection)
            for name, run, *row in connection.execute(f"{_ALL_RUNS} NOT INDEXED"):
                whole_run(row, name, run)
        rows = connection.execute(sql, (*arguments, min(limit, MAX_SEQ) + 1)).fetchall()
    page = [(name, run, whole_run(row, name, run)) for name, run, *row in rows[:limit]]
    try:
        runs = tuple(
            RunInfo(
                name,
                run,
                row.version,
                from_microseconds(row.created or 0),
                row.event_count,
                decode_meta(row.meta, name, run),
            )
            for name, run, row in page
        )
    except (OverflowError, TypeError) as error:
        raise DecodeError(f"a run's row cannot be read: {error}") from error
    last = page[-1][2] if len(rows) > limit else None
    return RunPage(runs, encode_cursor(last.created or 0, last.id) if last else None)


def peek(
    connection: sqlite3.Connection, runs: Sequence[tuple[str, str]], *, verify: bool
) -> tuple[RunHead | None, ...]:
    """See ``Store.peek_runs``."""
    heads: list[RunHead | None] = [_NEVER] * len(runs)
    with OneView(connection):
        now = now_microseconds()
        if verify:
            each = [_find_verified(connection, *pair) for pair in runs]
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


def count_expired(connection: sqlite3.Connection, before: int) -> ExpireResult:
    """What ``expire_runs`` would remove; ``before`` in microseconds."""
    return ExpireResult(*connection.execute(_COUNT_EXPIRED, (before,)).fetchone())


def versions(connection: sqlite3.Connection) -> dict[int, int]:
    """The version of every run there ever was, by the run's number in the file."""
    return dict(connection.execute(f"SELECT id, coalesce({VERSION}, base_seq) FROM runs"))  # noqa: S608  # of constants
