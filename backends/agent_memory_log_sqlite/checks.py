"""Checking a file: what SQLite says of it, its schema, and each row against its checksum and its neighbours."""

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
    find_run,
    name_sum,
    row_flaw,
)
from agent_memory_log_sqlite.schema import OneView, schema_of, schema_of_this_release

_ROWS = 2_000
# So many are looked at before others who wait for the connection get it.

_RUNS = f"SELECT agent, run, {RUN_COLUMNS} FROM runs NOT INDEXED WHERE id > ? ORDER BY id LIMIT {_ROWS}"  # noqa: S608  # of constants
_DELETIONS = "SELECT deletions FROM runs NOT INDEXED WHERE id = ?"
_EVENTS = f"SELECT {COLUMNS}, sum, run FROM events WHERE id > ? AND id <= ? ORDER BY id LIMIT {_ROWS}"  # noqa: S608  # of constants
_INDEXED = (
    "SELECT (SELECT count(*) FROM events INDEXED BY events_by_event_id WHERE run = ?), "
    "(SELECT count(*) FROM events NOT INDEXED WHERE id > ? AND id < ?)"
)
_RUN_IDS = "SELECT id FROM runs NOT INDEXED WHERE id > 0 AND id < 1 << 31 ORDER BY id"
_STRAY = "SELECT count(*) FROM events WHERE id >= ? AND id < ?"
_UNINDEXED_RUN = "SELECT id FROM runs NOT INDEXED WHERE agent = ? AND run = ?"
_RUN_NUMBERS = "SELECT count(*), coalesce(max(id), 0) FROM runs NOT INDEXED"
_NEWEST_RUN_OF_EVENTS = f"SELECT coalesce(max(id), 0) >> {SEQ_BITS} FROM events"  # noqa: S608  # of constants
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def flaws(connection: sqlite3.Connection, agent: str | None, run: str | None) -> Iterator[Flaw | None]:
    """The flaws of a file, of an agent's runs or of one run; None wherever others may use the connection.

    Raises ``sqlite3.Error`` for what is no damage.
    """
    if agent is None:
        for look in (_integrity, _schema, _numbers):
            yield from _guarded(look(connection), Flaw(None, None, None, "the file is damaged"))
            yield None
    yield from _guarded(_Runs(connection, agent, run).flaws(), Flaw(agent, run, None, "the table of runs is damaged"))


def _guarded(look: Iterator[Flaw | None], damage: Flaw) -> Iterator[Flaw | None]:
    """What ``look`` yields, and ``damage`` where damage ends it."""
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
        there = schema_of(connection)
    for name, sql in schema_of_this_release().items():
        if there.get(name) != sql:
            yield Flaw(None, None, None, f"the schema of {name} is not this release's")


def _numbers(connection: sqlite3.Connection) -> Iterator[Flaw]:
    with OneView(connection):  # or runs that others create meanwhile would look lost
        found = list(_lost(connection))
    yield from found


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


def find_verified_run(connection: sqlite3.Connection, agent: str, run: str) -> RunRow:
    """``find_run``, which also looks where no index leads when it finds none. Raises ``StoreCorrupt``."""
    found = find_run(connection, agent, run)
    if not found.id:
        if connection.execute(_UNINDEXED_RUN, (agent, run)).fetchone():
            raise StoreCorrupt(f"{agent}/{run} is in the table of runs, but not in its index: {WHAT_TO_DO}")
        check_runs_table(connection)
    return found


def _lost_runs(connection: sqlite3.Connection) -> str | None:
    """Whether runs are missing from their table: what is wrong, None when nothing is."""
    count, newest = connection.execute(_RUN_NUMBERS).fetchone()
    (of_events,) = connection.execute(_NEWEST_RUN_OF_EVENTS).fetchone()
    if count != newest:  # ids are given in order, and no row is ever removed
        return f"the table of runs holds {count} of {newest} rows"
    return f"events lie beyond the last of {newest} runs" if of_events > newest else None


def check_runs_table(connection: sqlite3.Connection) -> None:
    """Raise ``StoreCorrupt`` where the table of runs has lost rows."""
    flaw = _lost_runs(connection)
    if flaw is not None:
        raise StoreCorrupt(f"{flaw}: {WHAT_TO_DO}")


class _Runs:
    """Looks at the rows of runs and of their events."""

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
                    yield from self._of_run(str(agent), str(run), RunRow(*columns))  # damage may make them numbers
            newest = max((row[2] for row in rows), default=last)
            if newest <= last:
                break
            last = newest
        if self._unsummed_runs:
            what = f"{self._unsummed_events:,} events of {self._unsummed_runs:,} runs are from before checksums"
            message = f"{what}: nothing tells whether they are as they were"
            yield Flaw(self._agent, self._run, None, message, is_damage=False)

    def _of_run(self, agent: str, run: str, found: RunRow) -> Iterator[Flaw | None]:
        before = self._unsummed_events
        flaws: list[Flaw] = []
        look = _guarded(self._of_events(agent, run, found), Flaw(agent, run, None, "not all events can be read"))
        for flaw in look:
            if flaw is None:
                yield None
            else:
                flaws.append(flaw)
        if flaws and [(found.deletions,)] != self._fetch(_DELETIONS, found.id):
            self._unsummed_events = before  # it was deleted meanwhile, and its events are gone
            return
        self._unsummed_runs += found.sum is None or self._unsummed_events > before
        yield from flaws

    def _of_events(self, agent: str, run: str, found: RunRow) -> Iterator[Flaw | None]:
        flaw = found.flaw(agent, run)
        if flaw is not None:
            yield Flaw(agent, run, None, flaw)
        if type(found.base) is not int or type(found.version) is not int:
            return
        last, end = found.row_id(0), found.row_id(found.version)
        place = _Place(agent, run, found.id, found.row_id(found.base + 1), found.unsummed)
        while last < end:
            rows = self._fetch(_EVENTS, last, end)
            for *row, run_id in rows:
                yield from place.flaws(cast("SummedRow", row), run_id)
            newest = max((row[0] for row in rows), default=last)
            if newest <= last:
                break
            last = newest
            self._rows += len(rows)
            if self._rows >= _ROWS:
                self._rows = 0
                yield None
        self._unsummed_events += place.unsummed_events
        if self._agent is not None:  # where all are looked at, SQLite's integrity check does this
            # Up to the run's last possible seq: others may have appended since the run's row was read.
            ((indexed, there),) = self._fetch(_INDEXED, found.id, found.row_id(0), found.id + 1 << SEQ_BITS)
            if indexed != there:
                yield Flaw(agent, run, None, f"an index holds {indexed:,} events of {there:,}")

    def _fetch(self, sql: str, *arguments: int) -> list[Any]:
        with _any_text(self._connection):
            return self._connection.execute(sql, arguments).fetchall()


class _Place:
    """Where the look at a run's events is: what the next row must be."""

    def __init__(self, agent: str, run: str, run_id: int, expected: int, unsummed: int) -> None:
        self._agent = agent
        self._run = run
        self._run_id = run_id
        self._expected = expected
        self._unsummed = unsummed if type(unsummed) is int else 0
        self._name = name_sum(agent, run)
        self.unsummed_events = 0

    def flaws(self, row: SummedRow, run_id: int) -> Iterator[Flaw]:
        """What is wrong with the next row, whose ``run`` is ``run_id``."""
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
            yield Flaw(self._agent, self._run, seq, "its column run names another run")


def _out_of_place(expected: int, seq: int) -> str:
    if seq < expected:
        return f"stands where seq {expected} should"
    return "is missing" if seq == expected + 1 else f"is missing, as is all up to seq {seq - 1}"


def _text(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")


@contextmanager
def _any_text(connection: sqlite3.Connection) -> Generator[None]:
    """Read text that is not UTF-8 as other text, which no checksum fits."""
    connection.text_factory = _text
    try:
        yield
    finally:
        connection.text_factory = str
