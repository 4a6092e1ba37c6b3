"""Checks a file: SQLite's integrity check, the schema, and each row's checksum and position."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, cast

import msgspec

from agent_memory_log.errors import StoreCorrupt
from agent_memory_log.store import Flaw
from agent_memory_log_sqlite.failures import FAILURES, is_damage
from agent_memory_log_sqlite.row_format import (
    COLUMNS,
    MAX_SEQ,
    RUN_COLUMNS,
    SEQ_BITS,
    WHAT_TO_DO,
    RunRow,
    SummedRow,
    erasure_sum,
    find_run,
    name_sum,
    row_flaw,
)
from agent_memory_log_sqlite.schema import OneView, schema_of, schema_of_this_release

_ROWS = 2_000
# The number of rows that are checked before other readers get the connection.

_RUNS = f"SELECT agent, run, {RUN_COLUMNS} FROM runs NOT INDEXED WHERE id > ? ORDER BY id LIMIT {_ROWS}"  # noqa: S608  # only constants
_REMOVALS = "SELECT removals FROM runs NOT INDEXED WHERE id = ?"
_EVENTS = f"SELECT {COLUMNS}, sum, run FROM events WHERE id > ? AND id <= ? ORDER BY id LIMIT {_ROWS}"  # noqa: S608  # only constants
_INDEXED = (
    "SELECT (SELECT count(*) FROM events INDEXED BY events_by_event_id WHERE run = ?), "
    "(SELECT count(*) FROM events NOT INDEXED WHERE id > ? AND id < ?)"
)
_RUN_IDS = "SELECT id FROM runs NOT INDEXED WHERE id > 0 AND id < 1 << 31 ORDER BY id"
_STRAY = "SELECT count(*) FROM events WHERE id >= ? AND id < ?"
_UNINDEXED_RUN = "SELECT id FROM runs NOT INDEXED WHERE agent = ? AND run = ?"
_RUN_NUMBERS = "SELECT count(*), coalesce(max(id), 0) FROM runs NOT INDEXED"
_NEWEST_RUN_OF_EVENTS = f"SELECT coalesce(max(id), 0) >> {SEQ_BITS} FROM events"  # noqa: S608  # only constants
_ERASURES = "SELECT position, run, up_to, seqs, sum FROM erasures ORDER BY position"
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def flaws(connection: sqlite3.Connection, agent: str | None, run: str | None) -> Iterator[Flaw | None]:
    """Yield the flaws of a file, of an agent's runs or of one run, and None when others may use the connection.

    Raises ``sqlite3.Error`` for errors other than damage.
    """
    if agent is None:
        for look in (_integrity, _schema, _numbers, _journal):
            yield from _guarded(look(connection), Flaw(None, None, None, "the file is damaged"))
            yield None
    yield from _guarded(_Runs(connection, agent, run).flaws(), Flaw(agent, run, None, "the table of runs is damaged"))


def _guarded(look: Iterator[Flaw | None], damage: Flaw) -> Iterator[Flaw | None]:
    """Yield from ``look``, and yield ``damage`` if an error from damage ends it."""
    try:
        yield from look
    except FAILURES as error:
        if not is_damage(error):
            raise
        yield msgspec.structs.replace(damage, message=f"{damage.message}: {error}")


def _integrity(connection: sqlite3.Connection) -> Iterator[Flaw]:
    for (line,) in connection.execute("PRAGMA integrity_check").fetchall():
        if line != "ok":
            yield Flaw(None, None, None, f"SQLite's integrity check: {line}")


def _schema(connection: sqlite3.Connection) -> Iterator[Flaw]:
    with _any_text(connection):
        schema = schema_of(connection)
    for name, sql in schema_of_this_release().items():
        if schema.get(name) != sql:
            yield Flaw(None, None, None, f"the schema of {name} differs from this release's schema")


def _numbers(connection: sqlite3.Connection) -> Iterator[Flaw]:
    with OneView(connection):  # otherwise, a run created during the check could look lost
        lost = list(_lost(connection))
    yield from lost


def _lost(connection: sqlite3.Connection) -> Iterator[Flaw]:
    flaw = _lost_runs(connection)
    if flaw is not None:
        yield Flaw(None, None, None, flaw)
    ids = [0, *(number for (number,) in connection.execute(_RUN_IDS)), 1 << 31]
    for earlier, later in pairwise(ids):
        if later - earlier > 1 or not earlier:
            bounds = (earlier + 1 << SEQ_BITS if earlier else _LEAST, min(later << SEQ_BITS, _MOST))
            (count,) = connection.execute(_STRAY, bounds).fetchone()
            if count:
                yield Flaw(None, None, None, f"{count:,} events belong to no run")


def _journal(connection: sqlite3.Connection) -> Iterator[Flaw]:
    expected = 1
    with _any_text(connection):
        rows = connection.execute(_ERASURES).fetchall()
    for position, *columns, stored in rows:
        if position != expected:
            yield Flaw(None, None, None, f"the erasure journal lacks the entries {expected} to {position - 1}")
        elif stored is not None and stored != erasure_sum(position, *columns):
            yield Flaw(None, None, None, f"entry {position} of the erasure journal differs from its checksum")
        expected = position + 1


def find_verified_run(connection: sqlite3.Connection, agent: str, run: str) -> RunRow:
    """Return a run's row as ``find_run`` does, but search the whole table if the index has no entry.

    Raises ``StoreCorrupt`` if the index or the table has lost the run.
    """
    run_row = find_run(connection, agent, run)
    if not run_row.id:
        if connection.execute(_UNINDEXED_RUN, (agent, run)).fetchone():
            raise StoreCorrupt(f"{agent}/{run} is in the table of runs, but not in its index; {WHAT_TO_DO}")
        check_runs_table(connection)
    return run_row


def _lost_runs(connection: sqlite3.Connection) -> str | None:
    """Return a description of the rows that are missing from the table of runs, or None."""
    count, newest = connection.execute(_RUN_NUMBERS).fetchone()
    (of_events,) = connection.execute(_NEWEST_RUN_OF_EVENTS).fetchone()
    if count != newest:  # ids are consecutive, and no row is ever removed
        return f"the table of runs holds {count} of {newest} rows"
    return f"there are events of runs after the last of {newest} runs" if of_events > newest else None


def check_runs_table(connection: sqlite3.Connection) -> None:
    """Raise ``StoreCorrupt`` if the table of runs has lost rows."""
    flaw = _lost_runs(connection)
    if flaw is not None:
        raise StoreCorrupt(f"{flaw}; {WHAT_TO_DO}")


class _Runs:
    """A check of the rows of runs and of their events."""

    def __init__(self, connection: sqlite3.Connection, agent: str | None, run: str | None) -> None:
        self._connection = connection
        self._agent = agent
        self._run = run
        self._unsummed_runs = 0
        self._unsummed_events = 0
        self._rows = 0

    def flaws(self) -> Iterator[Flaw | None]:
        last = 0
        while True:
            rows = self._fetch(_RUNS, last)
            for agent, run, *columns in rows:
                if self._agent in {None, agent} and self._run in {None, run}:
                    # In a damaged file, agent and run can be numbers.
                    yield from self._of_run(str(agent), str(run), RunRow(*columns))
            newest = max((row[2] for row in rows), default=last)
            if newest <= last:
                break
            last = newest
        if self._unsummed_runs:
            unchecked = f"{self._unsummed_events:,} events of {self._unsummed_runs:,} runs are older than checksums"
            message = f"{unchecked} and cannot be checked for changes"
            yield Flaw(self._agent, self._run, None, message, is_damage=False)

    def _of_run(self, agent: str, run: str, run_row: RunRow) -> Iterator[Flaw | None]:
        before = self._unsummed_events
        flaws: list[Flaw] = []
        look = _guarded(self._of_events(agent, run, run_row), Flaw(agent, run, None, "not all events can be read"))
        for flaw in look:
            if flaw is None:
                yield None
            else:
                flaws.append(flaw)
        if flaws and [(run_row.removals,)] != self._fetch(_REMOVALS, run_row.id):
            self._unsummed_events = before  # the run was deleted during the check
            return
        self._unsummed_runs += run_row.sum is None or self._unsummed_events > before
        yield from flaws

    def _of_events(self, agent: str, run: str, run_row: RunRow) -> Iterator[Flaw | None]:
        flaw = run_row.flaw(agent, run)
        if flaw is not None:
            yield Flaw(agent, run, None, flaw)
        if type(run_row.base) is not int or type(run_row.version) is not int:
            return
        last, end = run_row.row_id(0), run_row.row_id(run_row.version)
        rows_check = _RowsCheck(agent, run, run_row.id, run_row.row_id(run_row.base + 1), run_row.unsummed)
        while last < end:
            rows = self._fetch(_EVENTS, last, end)
            for *row, run_id in rows:
                yield from rows_check.flaws(cast("SummedRow", row), run_id)
            newest = max((row[0] for row in rows), default=last)
            if newest <= last:
                break
            last = newest
            self._rows += len(rows)
            if self._rows >= _ROWS:
                self._rows = 0
                yield None
        self._unsummed_events += rows_check.unsummed_events
        if self._agent is not None:  # for the whole file, SQLite's integrity check does this
            # Count up to the run's last possible seq, because others may have appended since the read of the run's row.
            ((indexed, in_table),) = self._fetch(_INDEXED, run_row.id, run_row.row_id(0), run_row.id + 1 << SEQ_BITS)
            if indexed != in_table:
                yield Flaw(agent, run, None, f"an index holds {indexed:,} of the run's {in_table:,} events")

    def _fetch(self, sql: str, *arguments: int) -> list[Any]:
        with _any_text(self._connection):
            return self._connection.execute(sql, arguments).fetchall()


class _RowsCheck:
    """A check of a run's event rows in their order."""

    def __init__(self, agent: str, run: str, run_id: int, expected: int, unsummed: int) -> None:
        self._agent = agent
        self._run = run
        self._run_id = run_id
        self._expected = expected
        self._unsummed = unsummed if type(unsummed) is int else 0
        self._name = name_sum(agent, run)
        self.unsummed_events = 0

    def flaws(self, row: SummedRow, run_id: int) -> Iterator[Flaw]:
        """Yield the flaws of the next row. ``run_id`` is the value of its column ``run``."""
        number, seq = row[0], row[0] & MAX_SEQ
        if number != self._expected:
            expected = self._expected & MAX_SEQ
            yield Flaw(self._agent, self._run, min(seq, expected), _out_of_place(expected, seq))
        self._expected = max(self._expected, number + 1)
        self.unsummed_events += row[7] is None and seq <= self._unsummed
        flaw = row_flaw(row, self._name, self._unsummed)
        if flaw is not None:
            yield Flaw(self._agent, self._run, seq, flaw)
        if run_id != self._run_id:
            yield Flaw(self._agent, self._run, seq, "its column run has the id of another run")


def _out_of_place(expected: int, seq: int) -> str:
    if seq < expected:
        return f"is stored where seq {expected} belongs"
    return "is missing" if seq == expected + 1 else f"is missing, and so are the events up to seq {seq - 1}"


def _text(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")


@contextmanager
def _any_text(connection: sqlite3.Connection) -> Generator[None]:
    """Read text that is not UTF-8 with escapes. The escaped text does not match the checksum."""
    connection.text_factory = _text
    try:
        yield
    finally:
        connection.text_factory = str
