"""Writes to a store: appends, redaction, deletion, expiry and compaction, on the handle's writing connection.

The caller ensures that only one thread at a time uses the connection.
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
    append_result,
    check_expiry,
    check_markers,
    check_version,
    expiry_of,
    new_in_batch,
    now_microseconds,
    plan_redaction,
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
from agent_memory_log_sqlite.open_file import OpenFile, RememberedRun, RememberedRuns
from agent_memory_log_sqlite.row_format import (
    COLUMNS,
    MAX_SEQ,
    NEW_COLUMNS,
    NEW_ROW,
    Row,
    RunRow,
    decode_rows,
    erasure_sum,
    events_missing,
    find_run,
    id_to_store,
    name_sum,
    new_values,
)

_T = TypeVar("_T")

_INTO = f"events ({NEW_COLUMNS})"
_VALUES_A_ROW = NEW_ROW.count("?")
_INSERT = f"INSERT INTO {_INTO} VALUES ({NEW_ROW})"  # noqa: S608  # only constants
_ROWS_A_STATEMENT = 50
# Inserting many rows in one statement takes 20 % less time (measured). 50 rows are far below SQLite's limit.
_INSERT_MANY = f"INSERT INTO {_INTO} VALUES {', '.join([f'({NEW_ROW})'] * _ROWS_A_STATEMENT)}"  # noqa: S608  # only constants

_BY_ID = f"SELECT {COLUMNS} FROM events WHERE id = ?"  # noqa: S608  # only constants
_BY_EVENT_ID = f"SELECT {COLUMNS} FROM events WHERE run = ? AND event_id = ?"  # noqa: S608  # only constants

_LATEST_CREATED = "SELECT max(created) FROM runs WHERE created IS NOT NULL AND substr(agent, 1, 1) <> '@'"

_NEXT_RUN = "SELECT coalesce(max(id), 0) + 1 FROM runs"
_CREATE = "INSERT INTO runs (base_seq, created, meta, expires_at, sum, id, agent, run) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_BEGIN_ANEW = "UPDATE runs SET base_seq = ?, created = ?, meta = ?, expires_at = ?, sum = ? WHERE id = ?"
_MASK = "UPDATE events SET type = ?, labels = NULL, data = ?, verbatim = NULL, sum = ? WHERE id = ?"
# A deleted run keeps its row, and base_seq is the version at its last deletion. So its seqs continue after that, and
# an old cursor never refers to a new event.
_DELETE = (
    "UPDATE runs SET base_seq = ?, removals = ?, created = NULL, meta = NULL, expires_at = NULL, sum = ? WHERE id = ?"
)

_NEXT_ERASURE = "SELECT coalesce(max(position), 0) + 1 FROM erasures"
_NOTE_ERASURE = "INSERT INTO erasures (position, run, up_to, seqs, sum) VALUES (?, ?, ?, ?, ?)"

_EXPIRED = "SELECT agent, run FROM runs WHERE expires_at <= ? ORDER BY expires_at LIMIT ?"
_RUNS_A_TRANSACTION = 100
_EVENTS_A_TRANSACTION = 10_000
# The limits of one transaction of expire_runs, because other writers wait for it. The last run may exceed them.

# The condition on base_seq fails if the run was deleted after its version was remembered. The primary key refuses a
# stale version, and the index on event ids refuses a stored event id.
_INSERT_NEXT = f"INSERT INTO {_INTO} SELECT {NEW_ROW} FROM runs WHERE id = ? AND base_seq = ?"  # noqa: S608  # only constants


class Writer:
    """The write operations on an open file."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._connection = file.connection
        # One cursor, because Connection.execute creates a cursor for each statement.
        self._execute = file.connection.cursor().execute
        self._path = file.path
        self._remembered = RememberedRuns(file)

    def append(self, append: Append) -> AppendResult:
        """Carry out one append in a transaction of its own. Raises the errors of ``Store.append_events``."""
        return self._in_transaction(lambda: self._append(append))

    def append_one(self, append: Append) -> AppendResult | None:
        """Append one event durably in one statement. Return None if only ``Writer.append`` can do it."""
        if self._connection.in_transaction or self._file.lost:
            self._make_ready()
        result = self._append_next(append)
        if result is not None and not self._file.is_unchanged():
            self._remembered.check_file()
        return result

    def append_group(self, appends: Sequence[Append]) -> list[AppendResult | Exception]:
        """Carry out several appends with one commit, and return the outcome of each, in order."""
        if len(appends) < 2:  # noqa: PLR2004  # no other append shares the commit
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
        except Exception as error:  # noqa: BLE001  # each append is tried again, alone
            if isinstance(error.__cause__, sqlite3.Error) and is_busy(error.__cause__):
                return [_as_new(error) for _ in appends]
            # One append may be too large for the disk, or invalid. The others can still succeed.
            return [self._outcome(append) for append in appends]
        return outcomes

    def _outcome(self, append: Append) -> AppendResult | Exception:
        try:
            return self.append_one(append) or self.append(append)
        except Exception as error:  # noqa: BLE001  # it is raised where the append is awaited
            return error

    def _append_next(self, append: Append) -> AppendResult | None:
        """Append one event at the remembered version in one statement. Return None if it cannot."""
        remembered = self._remembered.get((append.agent, append.run))
        if remembered is None or len(append.batch) != 1 or append.first_seq is not None:
            return None
        version, event = remembered.version, append.batch[0]
        if (append.expected_version is not None and append.expected_version != version) or version == MAX_SEQ:
            return None
        if type(event.data) is Redaction or (
            remembered.expires_at is not None and remembered.expires_at <= now_microseconds()
        ):
            return None
        run_id = remembered.run_id
        seq = version + 1
        try:
            values = new_values(append.batch, run_id, seq, remembered.name)
            cursor = self._execute(_INSERT_NEXT, (*values, run_id, remembered.base))
        except sqlite3.IntegrityError:
            return None
        except FAILURES as error:
            raise translated(error, self._path) from error
        if cursor.rowcount != 1:
            return None
        remembered.version = seq
        return AppendResult(seq, 1, (event.to_event(seq),))

    def _append(self, append: Append) -> AppendResult:
        """Carry out one append inside a write transaction."""
        run_row = find_run(self._connection, append.agent, append.run)
        self._remembered.check_version(append.agent, append.run, run_row)
        batch = append.batch
        if not batch:
            return AppendResult(run_row.version, 0, ())
        if not run_row.event_count:
            run_row = msgspec.structs.replace(run_row, expires_at=expiry_of(append.meta))
        check_expiry(append.agent, append.run, run_row.expires_at)
        first_seq = append.first_seq
        fits = (
            append.expected_version in {None, run_row.version}
            and (first_seq is None or (not run_row.event_count and first_seq > run_row.version))
            and Redaction.event_type not in [event.type for event in batch]
        )
        if fits:
            try:
                start = self._insert(append, run_row, batch, is_with_markers=False)
            except sqlite3.IntegrityError:
                pass  # an event id is already stored, or is twice in the batch: compare each event
            else:
                return append_result(start, batch, batch, {})
        stored = self._stored(append, run_row)
        new = new_in_batch(batch, stored)
        if not new:
            return append_result(run_row.version, batch, new, stored)
        check_version(
            f"{append.agent}/{append.run}", run_row.version, run_row.event_count, append.expected_version, first_seq
        )
        start = run_row.version if run_row.event_count or first_seq is None else first_seq - 1
        check_markers(new, start, lambda seq: self._event(append.agent, append.run, run_row, seq))
        return append_result(self._insert(append, run_row, new, is_with_markers=True), batch, new, stored)

    def _insert(self, append: Append, run_row: RunRow, batch: Sequence[Prepared], *, is_with_markers: bool) -> int:
        """Insert ``batch`` after the run's events, and return the version before it.

        ``is_with_markers`` says whether ``batch`` may have a ``Redaction``, which the erasure journal notes.

        Raises ``sqlite3.IntegrityError`` and inserts nothing if an event id is already stored.
        """
        creates = not run_row.event_count
        base = run_row.base if append.first_seq is None or not creates else append.first_seq - 1
        start = base if creates else run_row.version
        if start + len(batch) > MAX_SEQ:
            raise InvalidArgument(
                f"{append.agent}/{append.run} is full: a run has at most {MAX_SEQ:,} events; append to another run"
            )
        self._execute("SAVEPOINT batch")
        try:
            run_id = self._create(append, run_row, base) if creates else run_row.id
            name = name_sum(append.agent, append.run)
            self._insert_rows(batch, name, run_id, start + 1)
            for event in batch if is_with_markers else ():
                if isinstance(event.data, Redaction):
                    self._note_erasure(run_id, seqs=event.data.seqs)
        except sqlite3.IntegrityError:
            self._execute("ROLLBACK TO batch")
            self._execute("RELEASE batch")
            raise
        self._execute("RELEASE batch")
        self._remembered.remember(
            append.agent, append.run, RememberedRun(name, run_id, base, start + len(batch), run_row.expires_at)
        )
        return start

    def _insert_rows(self, batch: Sequence[Prepared], name: int, run_id: int, seq: int) -> None:
        # The values of a few rows are still in the processor's cache when SQLite reads them.
        in_full_statements = len(batch) - len(batch) % _ROWS_A_STATEMENT
        for begin in range(0, in_full_statements, _ROWS_A_STATEMENT):
            rows = batch[begin : begin + _ROWS_A_STATEMENT]
            self._execute(_INSERT_MANY, new_values(rows, run_id, seq + begin, name))
        values = new_values(batch[in_full_statements:], run_id, seq + in_full_statements, name)
        for begin in range(0, len(values), _VALUES_A_ROW):
            self._execute(_INSERT, values[begin : begin + _VALUES_A_ROW])

    def _create(self, append: Append, run_row: RunRow, base: int) -> int:
        """Write the row of a run without events, which ends at ``run_row.expires_at``. Return the run's id."""
        # Later than the time of any other run, even if the clock was set back, so that the newest run is listed first.
        (latest,) = self._execute(_LATEST_CREATED).fetchone()
        created = max(to_microseconds(datetime.now(UTC)), (latest or 0) + 1)
        meta = encode_json(append.meta).decode() if append.meta else None
        (run_id,) = (run_row.id,) if run_row.id else self._execute(_NEXT_RUN).fetchone()
        row = msgspec.structs.replace(run_row, id=run_id, base=base, created=created, meta=meta)
        values = (base, created, meta, row.expires_at, row.summed(append.agent, append.run), run_id)
        if run_row.id:
            self._execute(_BEGIN_ANEW, values)
        else:
            self._execute(_CREATE, (*values, append.agent, append.run))
        return run_id

    def _stored(self, append: Append, run_row: RunRow) -> dict[str, Event]:
        """Return the stored events that have an id of the batch, by id."""
        rows: list[Row] = []
        for event in append.batch:
            rows.extend(self._execute(_BY_EVENT_ID, (run_row.id, id_to_store(event.event_id))))
        return {event.event_id: event for event in decode_rows(rows, append.agent, append.run)}

    def redact(self, agent: str, run: str, seqs: tuple[int, ...], reason: str) -> AppendResult:
        """See ``Store.redact_events``."""
        return self._in_transaction(lambda: self._redact(agent, run, seqs, reason))

    def _redact(self, agent: str, run: str, seqs: tuple[int, ...], reason: str) -> AppendResult:
        run_row = find_run(self._connection, agent, run)
        check_expiry(agent, run, run_row.expires_at)
        events: list[Event] = []
        for seq in seqs:
            event = self._event(agent, run, run_row, seq)
            if event is None:
                raise CursorOutOfRange(f"{agent}/{run} has no event {seq}, so no event was redacted")
            events.append(event)
        redaction = plan_redaction(events, reason, lambda seq: self._event(agent, run, run_row, seq))
        if redaction is None:
            return AppendResult(run_row.version, 0, ())
        masks, marker = redaction
        assert isinstance(marker.data, Redaction)  # noqa: S101  # plan_redaction returns only this type
        name = name_sum(agent, run)
        for seq, mask in zip(marker.data.seqs, masks, strict=True):
            row_id, _, _, event_type, _, _, data, _, total = new_values([mask], run_row.id, seq, name)
            self._execute(_MASK, (event_type, data, total, row_id))
        seq = run_row.version + 1
        self._execute(_INSERT, new_values([marker], run_row.id, seq, name))
        self._note_erasure(run_row.id, seqs=marker.data.seqs)
        counted = msgspec.structs.replace(run_row, redactions=run_row.redactions + 1)
        # A row without a checksum gets none, because a new one would also cover columns that were never checked.
        total = None if run_row.sum is None else counted.summed(agent, run)
        self._execute("UPDATE runs SET redactions = ?, sum = ? WHERE id = ?", (counted.redactions, total, run_row.id))
        self._remembered.remember(agent, run, RememberedRun(name, run_row.id, run_row.base, seq, run_row.expires_at))
        return AppendResult(seq, 1, (marker.to_event(seq),))

    def _event(self, agent: str, run: str, run_row: RunRow, seq: int) -> Event | None:
        """Return the event at ``seq``, or None if the run does not have it."""
        if not run_row.base < seq <= run_row.version:
            return None
        rows: list[Row] = self._execute(_BY_ID, (run_row.row_id(seq),)).fetchall()
        if not rows:
            raise events_missing(seq, seq, agent, run)
        return decode_rows(rows, agent, run)[0]

    def delete(self, agent: str, run: str) -> None:
        """See ``Store.delete_run``."""
        self._in_transaction(lambda: self._delete(agent, run, is_wish=True))

    def _note_erasure(self, run_id: int, *, up_to: int = 0, seqs: tuple[int, ...] = ()) -> None:
        """Append an entry to the erasure journal."""
        (position,) = self._execute(_NEXT_ERASURE).fetchone()
        columns = (position, run_id, up_to, encode_json(seqs).decode())
        self._execute(_NOTE_ERASURE, (*columns, erasure_sum(*columns)))

    def _delete(self, agent: str, run: str, *, is_wish: bool = False) -> int:
        """Delete a run inside a write transaction, and return the number of its events.

        ``is_wish`` says that a caller wants it gone, so the erasure journal names it. An expiry is not such a wish.
        """
        run_row = find_run(self._connection, agent, run)
        if not run_row.event_count and run_row.expires_at is None:
            return 0
        self._execute(
            "DELETE FROM events WHERE id > ? AND id <= ?", (run_row.row_id(0), run_row.row_id(run_row.version))
        )
        if is_wish:
            self._note_erasure(run_row.id, up_to=run_row.version)
        row = RunRow(run_row.id, run_row.version, run_row.removals + 1, run_row.redactions, unsummed=run_row.unsummed)
        self._execute(_DELETE, (row.base, row.removals, row.summed(agent, run), row.id))
        self._remembered.pop((agent, run), None)
        return run_row.event_count

    def expire_some(self, before: int) -> ExpireResult:
        """Remove some of the runs that ended by ``before``, in one transaction, and count them.

        A transaction is short, because other writers wait for it. A count of zero means that no such run is left.
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
        self._remembered.check_file()
        result = compact(self._file)
        self._remembered.check_file()
        return result

    def _in_transaction(self, work: Callable[[], _T]) -> _T:
        """Do ``work`` in a write transaction. If it raises, its writes are rolled back."""
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
        self._remembered.check_file()
        return done

    def _make_ready(self) -> None:
        """Roll back a transaction that an exception from a signal left open, and check a lost file again."""
        if self._connection.in_transaction:
            self._roll_back()
        if self._file.lost:
            self._remembered.check_file()

    def _roll_back(self) -> None:
        # The remembered versions may come from the transaction that is rolled back.
        self._remembered.clear()
        if self._connection.in_transaction:
            self._execute("ROLLBACK")


def _as_new(error: Exception) -> Exception:
    """Copy an error, so that each waiting caller raises its own object."""
    copied = type(error)(*error.args)
    copied.__cause__ = error.__cause__
    return copied
