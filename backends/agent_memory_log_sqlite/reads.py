"""Reading: the queries of a store, on a connection that only reads.

Each method is one transaction, so that what it returns is the store at one instant. The caller sees to it that one
thread at a time uses the connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from agent_memory_log.backend_kit import check_expiry, check_reached, decode_cursor, encode_cursor, now_microseconds
from agent_memory_log.errors import DecodeError, RunDeleted, StoreCorrupt
from agent_memory_log.events.event import Event, from_microseconds
from agent_memory_log.events.payloads import EventType
from agent_memory_log.snapshot import Snapshot, redactions_in
from agent_memory_log.store import ExpireResult, Flaw, RunHead, RunInfo, RunPage
from agent_memory_log_sqlite.checks import check_runs_table, find_verified_run, flaws
from agent_memory_log_sqlite.open_file import OpenFile
from agent_memory_log_sqlite.row_format import (
    COLUMNS,
    MAX_SEQ,
    RUN_COLUMNS,
    VERSION,
    WHAT_TO_DO,
    Row,
    RunRow,
    SummedRow,
    check_gapless,
    decode_meta,
    decode_rows,
    find_run,
    name_sum,
    out_of_place,
    row_flaw,
    unreadable,
    whole_run,
)
from agent_memory_log_sqlite.schema import OneView
from agent_memory_log_sqlite.watching import Heads

_UNINDEXED = ("assistant_message", "thinking", "tool_call", "tool_result")
# The condition of the index, word for word, or SQLite does not see that it may use it.
_INDEXED_ONLY = " AND ".join(f"type <> '{one}'" for one in _UNINDEXED)

_EVENTS = f"SELECT {COLUMNS} FROM events WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"  # noqa: S608  # of constants
_SUMMED = f"SELECT {COLUMNS}, sum FROM events WHERE id > ? AND id <= ? ORDER BY id"  # noqa: S608  # of constants
_COUNT_INDEXED = "SELECT count(*) FROM events INDEXED BY events_by_event_id WHERE run = ?"
_ALL_RUNS = f"SELECT agent, run, {RUN_COLUMNS} FROM runs"  # noqa: S608  # of constants
_COUNT_EXPIRED = f"SELECT count(*), coalesce(sum({VERSION} - base_seq), 0) FROM runs WHERE expires_at <= ?"  # noqa: S608  # of constants

_NO_LIMIT = -1
_FOLLOW_BATCH = 64
_FOLLOW_CHARACTERS = 1024 * 1024


class Reader:
    """The reading operations on an open file; with ``verify``, rows are compared with their checksums."""

    def __init__(self, file: OpenFile, *, verify: bool) -> None:
        self._connection = file.connection
        self._verify = verify
        self.heads = Heads(file, verify=verify)
        """What ``peek_runs`` remembers."""

    def load(self, agent: str, run: str, after: int, types: frozenset[str] | None, limit: int | None) -> Snapshot:
        """See ``Store.load_run``. Where ``types`` names one of the commonest, it walks the run from ``after`` on."""
        connection = self._connection
        with OneView(connection):
            found = (find_verified_run if self._verify else find_run)(connection, agent, run)
            check_expiry(agent, run, found.expires_at)
            check_reached(agent, run, after, found.version)
            bounds = (found.row_id(max(after, found.base)), found.row_id(found.version))
            count = _NO_LIMIT if limit is None else min(limit, MAX_SEQ)
            markers: list[Row] = []
            if self._verify and types != frozenset():
                rows, markers = self._load_verified(found, bounds, types, count, agent, run)
            elif types is None:
                rows = connection.execute(_EVENTS, (*bounds, count)).fetchall()
            else:
                rows = self._of_types(found.id, bounds, types, count)
            last_seq = rows[-1][0] & MAX_SEQ if len(rows) == count else found.version
            if types is None:
                check_gapless(rows, bounds[0], found.row_id(last_seq), agent, run)
            elif not self._verify and found.redactions and EventType.REDACTION not in types:
                end = found.row_id(last_seq)
                markers = self._of_types(found.id, (bounds[0], end), {EventType.REDACTION.value}, _NO_LIMIT)
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
        self,
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
        for row in self._each_row(found, bounds, agent, run):
            if types is None or row[2] in types:
                rows.append(row)
                if len(rows) == count:
                    return rows, markers
            elif row[2] == EventType.REDACTION:
                markers.append(row)
        # Damage that takes the newest events from the table leaves them in this index.
        (indexed,) = self._connection.execute(_COUNT_INDEXED, (found.id,)).fetchone()
        if indexed != found.event_count:
            raise StoreCorrupt(
                f"{agent}/{run} has {found.event_count} events, and {indexed} in an index of them: {WHAT_TO_DO}"
            )
        return rows, markers

    def _each_row(self, found: RunRow, bounds: tuple[int, int], agent: str, run: str) -> Iterator[Row]:
        """The rows behind the first of ``bounds``, up to the second. Raises ``EventsMissing``, ``DecodeError``."""
        name = name_sum(agent, run)
        expected = bounds[0] + 1
        row: SummedRow
        for row in self._connection.execute(_SUMMED, bounds):
            if row[0] != expected:
                raise out_of_place(expected, row[0], agent, run)
            flaw = row_flaw(row, name, found.unsummed) if self._verify else None
            if flaw is not None:
                raise unreadable(row[0] & MAX_SEQ, flaw, agent, run)
            expected += 1
            yield row[:7]
        if expected <= bounds[1]:
            raise out_of_place(expected, bounds[1] + 1, agent, run)

    def _of_types(self, run_id: int, bounds: tuple[int, int], types: Iterable[str], count: int) -> list[Row]:
        wanted = sorted(types)
        marks = ", ".join("?" * len(wanted))
        if any(one in _UNINDEXED for one in wanted):
            where = "id > ? AND id <= ?"
            arguments: tuple[int, ...] = bounds
        else:
            where = f"run = ? AND {_INDEXED_ONLY} AND id > ? AND id <= ?"
            arguments = (run_id, *bounds)
        sql = f"SELECT {COLUMNS} FROM events WHERE {where} AND type IN ({marks}) ORDER BY id LIMIT ?"  # noqa: S608  # of constants and question marks
        rows: list[Row] = self._connection.execute(sql, (*arguments, *wanted, count)).fetchall()
        return rows

    def follow_on(self, agent: str, run: str, after: int, last: RunRow | None) -> tuple[list[Event], RunRow]:
        """The next events of a follower, and the run's row at the read; ``last`` is the row at its read before.

        Raises ``RunExpired``; ``RunDeleted`` when the run was deleted since ``last``; ``CursorOutOfRange`` at a
        follower's first call.
        """
        with OneView(self._connection):
            found = find_run(self._connection, agent, run)
            if last is not None:
                # First what it followed: that may have been deleted because it had expired.
                check_expiry(agent, run, last.expires_at)
                if found.deletions != last.deletions:
                    raise RunDeleted(f"{agent}/{run} was deleted while it was followed, after seq {after}")
            check_expiry(agent, run, found.expires_at)
            if last is None:
                check_reached(agent, run, after, found.version)
            bounds = (found.row_id(max(after, found.base)), found.row_id(found.version))
            rows: list[Row] = []
            size = 0
            for row in self._each_row(found, bounds, agent, run):
                rows.append(row)
                size += len(row[5]) + len(row[6] or "")
                if size > _FOLLOW_CHARACTERS or len(rows) == _FOLLOW_BATCH:
                    break
        return decode_rows(rows, agent, run), found

    def list_runs(self, agent: str | None, limit: int, cursor: str | None, *, include_reserved: bool) -> RunPage:
        """See ``Store.list_runs``. Where rows are verified, the first page looks at every run there is."""
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
        runs_table = f"{_ALL_RUNS} NOT INDEXED" if self._verify else _ALL_RUNS
        sql = f"{runs_table} WHERE {' AND '.join(where)} ORDER BY created DESC, id DESC LIMIT ?"
        with OneView(self._connection):
            if self._verify and cursor is None:
                check_runs_table(self._connection)
                for name, run, *row in self._connection.execute(runs_table):
                    whole_run(row, name, run)
            rows = self._connection.execute(sql, (*arguments, min(limit, MAX_SEQ) + 1)).fetchall()
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

    def peek(self, runs: Sequence[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """See ``Store.peek_runs``."""
        return self.heads.peek(runs)

    def count_expired(self, before: int) -> ExpireResult:
        """What ``expire_runs`` would remove; ``before`` in microseconds."""
        return ExpireResult(*self._connection.execute(_COUNT_EXPIRED, (before,)).fetchone())

    def flaws(self, agent: str | None, run: str | None) -> Iterator[Flaw | None]:
        """See ``Store.check``. SQLite's integrity check is one step, and others wait while it runs."""
        return flaws(self._connection, agent, run)
