"""Writing: appends, redaction, deletion, expiry and compaction, on the one connection of a handle that writes.

The caller sees to it that one thread at a time uses the connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from agent_memory_log.backend_kit import (
    Append,
    Prepared,
    check_expiry,
    check_markers,
    check_version,
    expiry_of,
    new_in_batch,
    now_microseconds,
    placed,
    redaction_of,
)
from agent_memory_log.capabilities import CompactResult
from agent_memory_log.errors import (
    AgentMemoryLogError,
    CursorOutOfRange,
    InvalidArgument,
    StoreUnavailable,
)
from agent_memory_log.events.event import Event, to_microseconds
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.store import AppendResult, ExpireResult
from agent_memory_log_sqlite.failures import FAILURES, is_busy, translated
from agent_memory_log_sqlite.maintenance import compact
from agent_memory_log_sqlite.open_file import Known, KnownRuns, OpenFile
from agent_memory_log_sqlite.row_format import (
    COLUMNS,
    MAX_SEQ,
    Row,
    RunRow,
    decode_rows,
    find_run,
    missing,
    name_sum,
    new_row,
)

_T = TypeVar("_T")

_INTO = "events (id, run, event_id, type, timestamp, labels, data, verbatim, sum)"
_INSERT = f"INSERT INTO {_INTO} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  # made of constants, as are the next
_ROWS_A_STATEMENT = 50
# Many rows in one statement cost 0.8 of one each, measured; 50 stay far below SQLite's limit on parameters.
_INSERT_MANY = f"INSERT INTO {_INTO} VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?, ?)'] * _ROWS_A_STATEMENT)}"  # noqa: S608  # of constants

_BY_ID = f"SELECT {COLUMNS} FROM events WHERE id = ?"  # noqa: S608  # of constants
_BY_EVENT_ID = f"SELECT {COLUMNS} FROM events WHERE run = ? AND event_id = ?"  # noqa: S608  # of constants

_LATEST_CREATED = "SELECT max(created) FROM runs WHERE created IS NOT NULL AND substr(agent, 1, 1) <> '@'"

_NEXT_RUN = "SELECT coalesce(max(id), 0) + 1 FROM runs"
_CREATE = "INSERT INTO runs (base_seq, created, meta, expires_at, sum, id, agent, run) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_BEGIN_ANEW = "UPDATE runs SET base_seq = ?, created = ?, meta = ?, expires_at = ?, sum = ? WHERE id = ?"
_MASK = "UPDATE events SET type = ?, labels = NULL, data = ?, verbatim = NULL, sum = ? WHERE id = ?"
_DELETE = (
    "UPDATE runs SET base_seq = ?, deletions = ?, created = NULL, meta = NULL, expires_at = NULL, sum = ? WHERE id = ?"
)

_EXPIRED = "SELECT agent, run FROM runs WHERE expires_at <= ? ORDER BY expires_at LIMIT ?"
_RUNS_A_TRANSACTION = 100
_EVENTS_A_TRANSACTION = 10_000
# What expire_runs removes at once, but for the run that reaches the number: for about so long others wait to write.

# The run must not have been deleted since its version was remembered; the primary key refuses a version that is stale,
# and the index on event ids one that is known.
_INSERT_NEXT = f"INSERT INTO {_INTO} SELECT ?, ?, ?, ?, ?, ?, ?, ?, ? FROM runs WHERE id = ? AND base_seq = ?"  # noqa: S608  # of constants


class Writer:
    """The writing operations on an open file."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._connection = file.connection
        self._execute = file.connection.execute
        self._path = file.path
        self._known = KnownRuns(file)

    def append(self, append: Append) -> AppendResult:
        """Carry out one append in a transaction of its own. Raises the errors of ``Store.append_events``."""
        return self._in_transaction(lambda: self._append(append))

    def append_one(self, append: Append) -> AppendResult | None:
        """Append one event in one statement and make it durable; None, and nothing done, when ``append`` must do it."""
        if self._connection.in_transaction or self._file.lost:
            self._make_ready()
        result = self._append_next(append)
        if result is not None and not self._file.stands():
            self._known.check_file()
        return result

    def append_group(self, appends: Sequence[Append]) -> list[AppendResult | Exception]:
        """Carry out several appends with one commit; the outcome of each, in order."""
        if len(appends) < 2:  # noqa: PLR2004  # nothing to share a commit with
            return [self._outcome(append) for append in appends]
        outcomes: list[AppendResult | Exception] = []

        def carry_out() -> None:
            for append in appends:
                try:
                    outcomes.append(self._append_next(append) or self._append(append))
                except StoreUnavailable:
                    raise
                except AgentMemoryLogError as error:
                    outcomes.append(error)

        try:
            self._in_transaction(carry_out)
        except Exception as error:  # noqa: BLE001  # each append meets it again, alone
            if isinstance(error.__cause__, sqlite3.Error) and is_busy(error.__cause__):
                return [_as_new(error) for _ in appends]
            # One of them may be what the disk has no room for, or broken: the others need not fail with it.
            return [self._outcome(append) for append in appends]
        return outcomes

    def _outcome(self, append: Append) -> AppendResult | Exception:
        try:
            return self.append_one(append) or self.append(append)
        except Exception as error:  # noqa: BLE001  # it is raised where the append is awaited
            return error

    def _append_next(self, append: Append) -> AppendResult | None:
        """Append one event at the remembered version in one statement; None, and nothing done, when it cannot be."""
        known = self._known.get((append.agent, append.run))
        if known is None or len(append.batch) != 1 or append.first_seq is not None:
            return None
        version, event = known.version, append.batch[0]
        if (append.expected_version is not None and append.expected_version != version) or version == MAX_SEQ:
            return None
        if type(event.data) is Redaction or (known.expires_at is not None and known.expires_at <= now_microseconds()):
            return None
        run_id = known.run_id
        seq = version + 1
        try:
            cursor = self._execute(_INSERT_NEXT, (*new_row(event, run_id, seq, known.name), run_id, known.base))
        except sqlite3.IntegrityError:
            return None
        except FAILURES as error:
            raise translated(error, self._path) from error
        if cursor.rowcount != 1:
            return None
        known.version = seq
        return AppendResult(seq, 1, (event.placed(seq),))

    def _append(self, append: Append) -> AppendResult:
        """Carry out one append inside a write transaction."""
        found = find_run(self._connection, append.agent, append.run)
        self._known.check_version(append.agent, append.run, found)
        batch = append.batch
        if not batch:
            return AppendResult(found.version, 0, ())
        if not found.event_count:
            found = msgspec.structs.replace(found, expires_at=expiry_of(append.meta))
        check_expiry(append.agent, append.run, found.expires_at)
        first_seq = append.first_seq
        fits = (
            append.expected_version in {None, found.version}
            and (first_seq is None or (not found.event_count and first_seq > found.version))
            and Redaction.event_type not in [event.type for event in batch]
        )
        if fits:
            try:
                start = self._insert(append, found, batch)
            except sqlite3.IntegrityError:
                pass  # an event id is known, or stands twice in the batch: look at each
            else:
                return placed(start, batch, batch, {})
        stored = self._stored(append, found)
        new = new_in_batch(batch, stored)
        if not new:
            return placed(found.version, batch, new, stored)
        check_version(
            f"{append.agent}/{append.run}", found.version, found.event_count, append.expected_version, first_seq
        )
        start = found.version if found.event_count or first_seq is None else first_seq - 1
        check_markers(new, start, lambda seq: self._event(append.agent, append.run, found, seq))
        return placed(self._insert(append, found, new), batch, new, stored)

    def _insert(self, append: Append, found: RunRow, batch: Sequence[Prepared]) -> int:
        """Insert ``batch`` behind what the run holds; the version before it.

        Raises ``sqlite3.IntegrityError``, with nothing inserted, when an event id is known.
        """
        creates = not found.event_count
        base = found.base if append.first_seq is None or not creates else append.first_seq - 1
        start = base if creates else found.version
        if start + len(batch) > MAX_SEQ:
            raise InvalidArgument(f"{append.agent}/{append.run}: a run holds at most {MAX_SEQ:,} events")
        self._execute("SAVEPOINT batch")
        try:
            run_id = self._create(append, found, base) if creates else found.id
            name = name_sum(append.agent, append.run)
            self._insert_rows(batch, name, run_id, start + 1)
        except sqlite3.IntegrityError:
            self._execute("ROLLBACK TO batch")
            self._execute("RELEASE batch")
            raise
        self._execute("RELEASE batch")
        self._known.remember(append.agent, append.run, Known(name, run_id, base, start + len(batch), found.expires_at))
        return start

    def _insert_rows(self, batch: Sequence[Prepared], name: int, run_id: int, seq: int) -> None:
        whole = len(batch) - len(batch) % _ROWS_A_STATEMENT
        for begin in range(0, whole, _ROWS_A_STATEMENT):
            values: list[object] = []
            for event in batch[begin : begin + _ROWS_A_STATEMENT]:
                values += new_row(event, run_id, seq, name)
                seq += 1
            self._execute(_INSERT_MANY, values)
        for event in batch[whole:]:
            self._execute(_INSERT, new_row(event, run_id, seq, name))
            seq += 1

    def _create(self, append: Append, found: RunRow, base: int) -> int:
        """Write the row of a run that holds no events and will end at ``found.expires_at``; its id."""
        # Later than any other run's, whatever the clock says, so that the newest-created run is the newest.
        (latest,) = self._execute(_LATEST_CREATED).fetchone()
        created = max(to_microseconds(datetime.now(UTC)), (latest or 0) + 1)
        meta = encode_json(append.meta).decode() if append.meta else None
        (run_id,) = (found.id,) if found.id else self._execute(_NEXT_RUN).fetchone()
        row = msgspec.structs.replace(found, id=run_id, base=base, created=created, meta=meta)
        values = (base, created, meta, row.expires_at, row.summed(append.agent, append.run), run_id)
        if found.id:
            self._execute(_BEGIN_ANEW, values)
        else:
            self._execute(_CREATE, (*values, append.agent, append.run))
        return run_id

    def _stored(self, append: Append, found: RunRow) -> dict[str, Event]:
        """The stored events whose ids are in the batch, by id."""
        rows: list[Row] = []
        for event in append.batch:
            rows.extend(self._execute(_BY_EVENT_ID, (found.id, event.event_id)))
        return {event.event_id: event for event in decode_rows(rows, append.agent, append.run)}

    def redact(self, agent: str, run: str, seqs: tuple[int, ...], reason: str) -> AppendResult:
        """See ``Store.redact_events``."""
        return self._in_transaction(lambda: self._redact(agent, run, seqs, reason))

    def _redact(self, agent: str, run: str, seqs: tuple[int, ...], reason: str) -> AppendResult:
        found = find_run(self._connection, agent, run)
        check_expiry(agent, run, found.expires_at)
        events: list[Event] = []
        for seq in seqs:
            event = self._event(agent, run, found, seq)
            if event is None:
                raise CursorOutOfRange(f"{agent}/{run} holds no event {seq}, and so none was redacted")
            events.append(event)
        redaction = redaction_of(events, reason, lambda seq: self._event(agent, run, found, seq))
        if redaction is None:
            return AppendResult(found.version, 0, ())
        masks, marker = redaction
        assert isinstance(marker.data, Redaction)  # noqa: S101  # redaction_of makes no other
        name = name_sum(agent, run)
        for seq, mask in zip(marker.data.seqs, masks, strict=True):
            row = new_row(mask, found.id, seq, name)
            self._execute(_MASK, (mask.type, row[6], row[8], row[0]))
        seq = found.version + 1
        self._execute(_INSERT, new_row(marker, found.id, seq, name))
        counted = msgspec.structs.replace(found, redactions=found.redactions + 1)
        # What has no checksum gets none: it would vouch for the rest of the row.
        total = None if found.sum is None else counted.summed(agent, run)
        self._execute("UPDATE runs SET redactions = ?, sum = ? WHERE id = ?", (counted.redactions, total, found.id))
        self._known.remember(agent, run, Known(name, found.id, found.base, seq, found.expires_at))
        return AppendResult(seq, 1, (marker.placed(seq),))

    def _event(self, agent: str, run: str, found: RunRow, seq: int) -> Event | None:
        """The event at ``seq``, None when the run does not hold it."""
        if not found.base < seq <= found.version:
            return None
        rows: list[Row] = self._execute(_BY_ID, (found.row_id(seq),)).fetchall()
        if not rows:
            raise missing(seq, seq, agent, run)
        return decode_rows(rows, agent, run)[0]

    def delete(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        self._in_transaction(lambda: self._delete(agent, run))

    def _delete(self, agent: str, run: str) -> int:
        """Delete a run inside a write transaction; how many events it held."""
        found = find_run(self._connection, agent, run)
        if not found.event_count and found.expires_at is None:
            return 0
        self._execute("DELETE FROM events WHERE id > ? AND id <= ?", (found.row_id(0), found.row_id(found.version)))
        row = RunRow(found.id, found.version, found.deletions + 1, found.redactions, unsummed=found.unsummed)
        self._execute(_DELETE, (row.base, row.deletions, row.summed(agent, run), row.id))
        self._known.pop((agent, run), None)
        return found.event_count

    def expire_some(self, before: int) -> ExpireResult:
        """Remove, in one transaction, as many of the runs that ended by ``before`` as others can wait for; their sum.

        None were removed when there are none left.
        """
        return self._in_transaction(lambda: self._expire_some(before))

    def _expire_some(self, before: int) -> ExpireResult:
        runs = events = 0
        for agent, run in self._execute(_EXPIRED, (before, _RUNS_A_TRANSACTION)).fetchall():
            events += self._delete(agent, run)
            runs += 1
            if events >= _EVENTS_A_TRANSACTION:
                break
        return ExpireResult(runs, events)

    def compact(self) -> CompactResult:
        """See ``Compacts.compact``."""
        self._make_ready()
        self._known.check_file()
        result = compact(self._file)
        self._known.check_file()
        return result

    def _in_transaction(self, work: Callable[[], _T]) -> _T:
        """Do ``work`` in a write transaction; when it raises, nothing of it was written."""
        self._make_ready()
        try:
            try:
                self._execute("BEGIN IMMEDIATE")
                done = work()
                self._execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
        except FAILURES as error:
            raise translated(error, self._path) from error
        self._known.check_file()
        return done

    def _make_ready(self) -> None:
        """Roll back what a signal's exception left open between two lines; write nothing to a file that is lost."""
        if self._connection.in_transaction:
            self._roll_back()
        if self._file.lost:
            self._known.check_file()

    def _roll_back(self) -> None:
        # What was remembered inside the transaction has not happened.
        self._known.clear()
        if self._connection.in_transaction:
            self._execute("ROLLBACK")


def _as_new(error: Exception) -> Exception:
    """The same error as an object of its own, for one of several who wait."""
    copied = type(error)(*error.args)
    copied.__cause__ = error.__cause__
    return copied
