"""Reads a store through a connection that never writes.

Each method uses one transaction, so its result is the state of the store at one instant. The caller ensures that only
one thread at a time uses the connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import msgspec

from agent_memory_log.backend_kit import (
    check_expiry,
    check_journal_reached,
    check_reached,
    decode_cursor,
    encode_cursor,
    now_microseconds,
)
from agent_memory_log.errors import DecodeError, RunDeleted, StoreCorrupt
from agent_memory_log.events.event import Event, from_microseconds
from agent_memory_log.events.payloads import EventType
from agent_memory_log.snapshot import Snapshot, redactions_in
from agent_memory_log.store import Erasure, Erasures, ExpireResult, Flaw, RunHead, RunInfo, RunPage
from agent_memory_log_sqlite.checks import check_runs_table, find_verified_run, flaws
from agent_memory_log_sqlite.open_file import OpenFile
from agent_memory_log_sqlite.row_format import (
    COLUMNS,
    MAX_SEQ,
    RUN_COLUMNS,
    UPDATED,
    VERSION,
    WHAT_TO_DO,
    Row,
    RunRow,
    SummedRow,
    check_gapless,
    checked_run,
    decode_meta,
    decode_rows,
    find_run,
    id_to_store,
    name_sum,
    out_of_place,
    row_flaw,
    unreadable,
)
from agent_memory_log_sqlite.schema import OneView
from agent_memory_log_sqlite.watching import Heads

_UNINDEXED = ("assistant_message", "thinking", "tool_call", "tool_result")
# SQLite uses the index only if the query repeats the condition of the index literally.
_INDEXED_ONLY = " AND ".join(f"type <> '{event_type}'" for event_type in _UNINDEXED)

_EVENTS = f"SELECT {COLUMNS} FROM events WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"  # noqa: S608  # only constants
_SUMMED = f"SELECT {COLUMNS}, sum FROM events WHERE id > ? AND id <= ? ORDER BY id"  # noqa: S608  # only constants
# One query for each type, because a query for several types reads all of their events and sorts them.
_NEWEST = f"SELECT id FROM events WHERE run = ? AND {_INDEXED_ONLY} AND id > ? AND id <= ? AND type = ? ORDER BY id DESC LIMIT ?"  # noqa: E501, S608  # only constants
_NEWEST_SCANNED = "SELECT id FROM events WHERE id > ? AND id <= ? AND type IN ({}) ORDER BY id DESC LIMIT ?"
_FOUND = f"SELECT {COLUMNS} FROM events WHERE run = ? AND event_id IN ({{}})"  # noqa: S608  # only constants
_IDS_A_QUERY = 400
_COUNT_INDEXED = "SELECT count(*) FROM events INDEXED BY events_by_event_id WHERE run = ?"
_ALL_RUNS = f"SELECT agent, run, {UPDATED}, {RUN_COLUMNS} FROM runs"  # noqa: S608  # only constants
_COUNT_EXPIRED = f"SELECT count(*), coalesce(sum({VERSION} - base_seq), 0) FROM runs WHERE expires_at <= ?"  # noqa: S608  # only constants

_JOURNAL_END = "SELECT coalesce(max(position), 0) FROM erasures"
_ERASURES = (
    "SELECT position, runs.agent, runs.run, seqs, up_to FROM {} JOIN erasures ON erasures.run = runs.id "
    "WHERE position > ? ORDER BY position LIMIT ?"
)
_ALL_ERASURES = _ERASURES.format("runs")
_RUNS_A_QUERY = 400

_decode_seqs = msgspec.json.Decoder(tuple[int, ...]).decode

_NO_LIMIT = -1
_FOLLOW_BATCH = 64
_FOLLOW_CHARACTERS = 1024 * 1024


class Reader:
    """The read operations on an open file. With ``verify``, they compare rows with their checksums."""

    def __init__(self, file: OpenFile, *, verify: bool) -> None:
        self._connection = file.connection
        self._verify = verify
        self.heads = Heads(file, verify=verify)
        """The remembered heads of runs, for ``peek_runs``."""

    def load(
        self, agent: str, run: str, after: int, types: frozenset[str] | None, limit: int | None, last: int | None
    ) -> Snapshot:
        """See ``Store.load_run``. If ``types`` has one of the four most common types, the query scans the run."""
        connection = self._connection
        with OneView(connection):
            run_row = (find_verified_run if self._verify else find_run)(connection, agent, run)
            check_expiry(agent, run, run_row.expires_at)
            check_reached(agent, run, after, run_row.version)
            if last is not None:
                after = self._before_last(run_row, after, types, min(last, MAX_SEQ))
            bounds = _bounds(run_row, after)
            count = _NO_LIMIT if limit is None else min(limit, MAX_SEQ)
            markers: list[Row] = []
            if self._verify and types != frozenset():
                rows, markers = self._load_verified(run_row, bounds, types, count, agent, run)
            elif types is None:
                rows = connection.execute(_EVENTS, (*bounds, count)).fetchall()
            else:
                rows = self._of_types(run_row.id, bounds, types, count)
            last_seq = rows[-1][0] & MAX_SEQ if len(rows) == count else run_row.version
            if types is None:
                check_gapless(rows, bounds[0], run_row.row_id(last_seq), agent, run)
            elif not self._verify and run_row.redactions and EventType.REDACTION not in types:
                end = run_row.row_id(last_seq)
                markers = self._of_types(run_row.id, (bounds[0], end), {EventType.REDACTION.value}, _NO_LIMIT)
        log = decode_rows(rows, agent, run)
        return Snapshot(
            agent,
            run,
            log,
            version=run_row.version,
            last_seq=last_seq,
            meta=decode_meta(run_row.meta, agent, run),
            after=after,
            types=types,
            first_seq=run_row.base + 1,
            redactions=redactions_in(decode_rows(markers, agent, run)) if types is not None and markers else None,
        )

    def _load_verified(
        self,
        run_row: RunRow,
        bounds: tuple[int, int],
        types: frozenset[str] | None,
        count: int,
        agent: str,
        run: str,
    ) -> tuple[list[Row], list[Row]]:
        """Read the rows of ``types``, and the redaction markers between them, without an index."""
        rows: list[Row] = []
        markers: list[Row] = []
        for row in self._each_row(run_row, bounds, agent, run):
            if types is None or row[2] in types:
                rows.append(row)
                if len(rows) == count:
                    return rows, markers
            elif row[2] == EventType.REDACTION:
                markers.append(row)
        # If damage removes the newest events from the table, this index still has them.
        (indexed,) = self._connection.execute(_COUNT_INDEXED, (run_row.id,)).fetchone()
        if indexed != run_row.event_count:
            raise StoreCorrupt(
                f"{agent}/{run} has {run_row.event_count} events, but an index has {indexed}; {WHAT_TO_DO}"
            )
        return rows, markers

    def _each_row(self, run_row: RunRow, bounds: tuple[int, int], agent: str, run: str) -> Iterator[Row]:
        """Yield the rows with ids above the first bound, up to the second.

        Raises ``EventsMissing``, ``StoreCorrupt`` and ``DecodeError``.
        """
        name = name_sum(agent, run)
        expected = bounds[0] + 1
        row: SummedRow
        for row in self._connection.execute(_SUMMED, bounds):
            if row[0] != expected:
                raise out_of_place(expected, row[0], agent, run)
            flaw = row_flaw(row, name, run_row.unsummed) if self._verify else None
            if flaw is not None:
                raise unreadable(row[0] & MAX_SEQ, flaw, agent, run)
            expected += 1
            yield row[:7]
        if expected <= bounds[1]:
            raise out_of_place(expected, bounds[1] + 1, agent, run)

    def _before_last(self, run_row: RunRow, after: int, types: frozenset[str] | None, count: int) -> int:
        """Return the seq before the newest ``count`` events of ``types`` after ``after``, or ``after`` if there are
        fewer.
        """
        bounds = _bounds(run_row, after)
        if types is None:
            return max(bounds[1] - count, bounds[0]) & MAX_SEQ if bounds[1] - bounds[0] >= count else after
        if _is_indexed(types) and not self._verify:
            rows = [
                row
                for event_type in types
                for row in self._connection.execute(_NEWEST, (run_row.id, *bounds, event_type, count))
            ]
        else:
            sql = _NEWEST_SCANNED.format(", ".join("?" * len(types)))
            rows = self._connection.execute(sql, (*bounds, *types, count)).fetchall()
        newest = sorted(row[0] for row in rows)[-count:]
        return newest[0] - 1 & MAX_SEQ if len(newest) == count else after

    def _of_types(self, run_id: int, bounds: tuple[int, int], types: Iterable[str], count: int) -> list[Row]:
        sorted_types = sorted(types)
        marks = ", ".join("?" * len(sorted_types))
        if _is_indexed(types):
            condition = f"run = ? AND {_INDEXED_ONLY} AND id > ? AND id <= ?"
            arguments: tuple[int, ...] = (run_id, *bounds)
        else:
            condition = "id > ? AND id <= ?"
            arguments = bounds
        sql = f"SELECT {COLUMNS} FROM events WHERE {condition} AND type IN ({marks}) ORDER BY id LIMIT ?"  # noqa: S608  # only constants and question marks
        rows: list[Row] = self._connection.execute(sql, (*arguments, *sorted_types, count)).fetchall()
        return rows

    def find(self, agent: str, run: str, event_ids: Sequence[str]) -> tuple[Event | None, ...]:
        """See ``Store.find_events``. With ``verify``, it reads the whole run, because an index may be damaged."""
        stored_ids = [*dict.fromkeys(map(id_to_store, event_ids))]
        rows: list[Row] = []
        with OneView(self._connection):
            run_row = (find_verified_run if self._verify else find_run)(self._connection, agent, run)
            check_expiry(agent, run, run_row.expires_at)
            if self._verify:
                run_rows, _ = self._load_verified(run_row, _bounds(run_row, 0), None, _NO_LIMIT, agent, run)
                stored_id_set = frozenset(stored_ids)
                rows = [row for row in run_rows if row[1] in stored_id_set]
            for begin in range(0, 0 if self._verify else len(stored_ids), _IDS_A_QUERY):
                some = stored_ids[begin : begin + _IDS_A_QUERY]
                sql = _FOUND.format(", ".join("?" * len(some)))
                rows += self._connection.execute(sql, (run_row.id, *some)).fetchall()
        events = {event.event_id: event for event in decode_rows(rows, agent, run)}
        return tuple(events.get(event_id) for event_id in event_ids)

    def follow_on(self, agent: str, run: str, after: int, last: RunRow | None) -> tuple[list[Event], RunRow]:
        """Return the next events of a follower and the run's current row.

        ``last`` is the row of the previous call, or None at the first call. Raises ``RunExpired``. Raises
        ``RunDeleted`` if the run was deleted since ``last``. Only the first call raises ``CursorOutOfRange``.
        """
        with OneView(self._connection):
            run_row = find_run(self._connection, agent, run)
            if last is not None:
                # Check the earlier end first, because the run may have been deleted after it expired.
                check_expiry(agent, run, last.expires_at)
                if run_row.removals != last.removals:
                    raise RunDeleted(f"{agent}/{run} was deleted while it was followed, after seq {after}")
            check_expiry(agent, run, run_row.expires_at)
            if last is None:
                check_reached(agent, run, after, run_row.version)
            bounds = _bounds(run_row, after)
            rows: list[Row] = []
            size = 0
            for row in self._each_row(run_row, bounds, agent, run):
                rows.append(row)
                size += len(row[5]) + len(row[6] or "")
                if size > _FOLLOW_CHARACTERS or len(rows) == _FOLLOW_BATCH:
                    break
        return decode_rows(rows, agent, run), run_row

    def list_runs(self, agent: str | None, limit: int, cursor: str | None, *, include_reserved: bool) -> RunPage:
        """See ``Store.list_runs``. With ``verify``, the first page checks the rows of all runs."""
        conditions = ["created IS NOT NULL", "(expires_at IS NULL OR expires_at > ?)"]
        arguments: list[object] = [now_microseconds()]
        if agent is not None:
            conditions.append("agent = ?")
            arguments.append(agent)
        elif not include_reserved:
            conditions.append("substr(agent, 1, 1) <> '@'")
        if cursor is not None:
            conditions.append("(created, id) < (?, ?)")
            arguments.extend(decode_cursor(cursor))
        runs_table = f"{_ALL_RUNS} NOT INDEXED" if self._verify else _ALL_RUNS
        sql = f"{runs_table} WHERE {' AND '.join(conditions)} ORDER BY created DESC, id DESC LIMIT ?"
        with OneView(self._connection):
            if self._verify and cursor is None:
                check_runs_table(self._connection)
                for name, run, _, *row in self._connection.execute(runs_table):
                    checked_run(row, name, run)
            rows = self._connection.execute(sql, (*arguments, min(limit, MAX_SEQ) + 1)).fetchall()
            page = [(name, run, updated, checked_run(row, name, run)) for name, run, updated, *row in rows[:limit]]
            for name, run, _, run_row in page if self._verify else ():
                list(self._each_row(run_row, _bounds(run_row, run_row.version - 1), name, run))
        try:
            runs = tuple(
                RunInfo(
                    name,
                    run,
                    row.version,
                    from_microseconds(row.created or 0),
                    from_microseconds(updated),
                    row.event_count,
                    decode_meta(row.meta, name, run),
                )
                for name, run, updated, row in page
            )
        except (OverflowError, TypeError) as error:
            raise DecodeError(f"the row of a run cannot be read: {error}") from error
        last = page[-1][3] if len(rows) > limit else None
        return RunPage(runs, encode_cursor(last.created or 0, last.id) if last else None)

    def peek(self, runs: Sequence[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``."""
        return self.heads.peek(runs)

    def erasures(self, after: int, runs: Sequence[tuple[str, str]] | None, limit: int | None) -> Erasures:
        """See ``Store.erasures``."""
        most = _NO_LIMIT if limit is None else min(limit, MAX_SEQ)
        rows: list[tuple[int, str, str, bytes, int]] = []
        with OneView(self._connection):
            (position,) = self._connection.execute(_JOURNAL_END).fetchone()
            check_journal_reached(after, position)
            if after == position:
                return Erasures(position)
            if runs is None:
                rows = self._connection.execute(_ALL_ERASURES, (after, most)).fetchall()
            for begin in range(0, len(runs or ()), _RUNS_A_QUERY):
                some = [name for pair in (runs or ())[begin : begin + _RUNS_A_QUERY] for name in pair]
                rows += self._connection.execute(_erasures_of(len(some) // 2), (*some, after, most)).fetchall()
        entries = [
            Erasure(number, agent, run, _decode_seqs(seqs), up_to)
            for number, agent, run, seqs, up_to in sorted({*rows})
        ][:limit]
        return Erasures(entries[-1].position if len(entries) == limit else position, tuple(entries))

    def count_expired(self, before: int) -> ExpireResult:
        """Count the runs and events that ``expire_runs`` would remove. ``before`` is in microseconds."""
        return ExpireResult(*self._connection.execute(_COUNT_EXPIRED, (before,)).fetchone())

    def flaws(self, agent: str | None, run: str | None) -> Iterator[Flaw | None]:
        """See ``Store.check``. Other reads wait while SQLite's integrity check runs."""
        return flaws(self._connection, agent, run)


def _bounds(run_row: RunRow, after: int) -> tuple[int, int]:
    """Return the row ids before the first event of a read after ``after``, and of the run's newest event."""
    return run_row.row_id(max(after, run_row.base)), run_row.row_id(run_row.version)


def _is_indexed(types: Iterable[str]) -> bool:
    return not any(event_type in _UNINDEXED for event_type in types)


@lru_cache(8)
def _erasures_of(count: int) -> str:
    requested_runs = f"WITH wanted (agent, run) AS (VALUES {', '.join(['(?, ?)'] * count)}) "
    # CROSS JOIN makes SQLite begin with the runs, so the query costs only what the journal has about them.
    joined = "wanted CROSS JOIN runs ON runs.agent = wanted.agent AND runs.run = wanted.run CROSS"
    return requested_runs + _ERASURES.format(joined)
