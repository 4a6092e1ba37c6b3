"""How runs and events lie in the tables, what makes a row whole, and the way from a row to an event and back.

A row's ``sum`` is a CRC-32. It finds every damage of up to 32 bits in a row, and all but one of four billion others.
It is no proof against somebody who changes a row on purpose and its checksum with it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import timedelta
from zlib import crc32

import msgspec

from agent_memory_log.backend_kit import Prepared
from agent_memory_log.errors import DecodeError, EventsMissing, StoreCorrupt
from agent_memory_log.events.event import Event, from_microseconds, to_microseconds
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.events.registry import decode_parts

SEQ_BITS = 32
MAX_SEQ = (1 << SEQ_BITS) - 1

WHAT_TO_DO = "restore the file from a backup, or see amlog verify"

COLUMNS = "id, event_id, type, timestamp, labels, data, verbatim"
VERSION = f"coalesce((SELECT id & {MAX_SEQ} FROM events WHERE id > runs.id << {SEQ_BITS} AND id < runs.id + 1 << {SEQ_BITS} ORDER BY id DESC LIMIT 1), base_seq)"  # noqa: E501, S608  # one statement, of constants
RUN_COLUMNS = f"id, base_seq, deletions, redactions, created, expires_at, unsummed, meta, sum, {VERSION}"
RUN = f"SELECT {RUN_COLUMNS} FROM runs WHERE agent = ? AND run = ?"  # noqa: S608  # of constants

Row = tuple[int, str, str, int, str | None, str, str | None]
"""A row of ``COLUMNS``, as a file that nobody damaged gives it."""

SummedRow = tuple[int, str, str, int, str | None, str, str | None, int | None]
"""A row of ``COLUMNS`` and its ``sum``."""

NewRow = tuple[int, int, str, str, int, str | None, str, str | None, int]
"""A row to insert: a ``Row`` with the run's id behind the event's, and the ``sum`` at the end."""


_PRIME = 4_294_967_291
"""The largest below 2^32: any bit of a number that is taken modulo it counts."""


def name_sum(agent: str, run: str) -> int:
    """What the checksum of every event of a run begins with."""
    return crc32(f"{agent}\0{run}\0".encode())


def event_sum(
    name: int,
    seq: int,
    event_id: str,
    event_type: str,
    microseconds: int,
    labels: str | None,
    data: bytes,
    verbatim: str | None,
) -> int:
    """The checksum of an event as it is stored; ``name`` is its run's ``name_sum``."""
    # Adding text costs half of formatting it all, on every append. Labels are JSON: neither of the two characters is in
    # them.
    head = f"{event_id}\0{event_type}"
    if labels is not None:
        head += "\0" + labels
    if verbatim is not None:
        head += "\1" + verbatim
    return crc32(head.encode() + data, (name + seq + microseconds) % _PRIME)


def run_sum(agent: str, run: str, numbers: tuple[int | None, ...], meta: str | None) -> int:
    """The checksum of a run's row, whose columns up to ``unsummed`` are ``numbers``."""
    return crc32(f"{agent}\0{run}\0{numbers}\0{meta}".encode())


class RunRow(msgspec.Struct, frozen=True, gc=False):
    """A row of ``RUN_COLUMNS``: a run and its version at the read; all zeros and None for a run that never was.

    Without events, ``base`` is the version, and there is neither ``created`` nor ``meta`` nor ``expires_at``.
    """

    id: int = 0
    base: int = 0
    deletions: int = 0
    redactions: int = 0
    created: int | None = None
    expires_at: int | None = None
    unsummed: int = 0
    meta: str | None = None
    sum: int | None = None
    version: int = 0

    @property
    def event_count(self) -> int:
        """How many events the run holds."""
        return self.version - self.base

    def row_id(self, seq: int) -> int:
        """The event id of ``seq`` in this run."""
        return self.id << SEQ_BITS | seq

    def summed(self, agent: str, run: str) -> int:
        """The checksum that the row should have."""
        numbers = (self.id, self.base, self.deletions, self.redactions, self.created, self.expires_at, self.unsummed)
        return run_sum(agent, run, numbers, self.meta)

    def flaw(self, agent: str, run: str) -> str | None:
        """What is wrong with the row, None when it is whole."""
        if self.sum is None:
            if type(self.unsummed) is not int or self.unsummed < 1:
                return "the run's row has lost its checksum"
            if type(self.base) is not int or not isinstance(self.created, int | None):
                return "the run's row holds what is no number where one must be"
        elif self.sum != self.summed(agent, run):
            return "the run's row differs from its checksum"
        if (self.created is None) != (self.version == self.base) or self.version < self.base:
            return f"the run's events end at seq {self.version}, which its row contradicts"
        return None


def whole_run(row: Sequence[object], agent: str, run: str) -> RunRow:
    """A row of ``RUN_COLUMNS``. Raises ``StoreCorrupt`` when it is not whole."""
    found = RunRow(*row)  # type: ignore[arg-type]  # flaw() looks at what a damaged file may give instead
    flaw = found.flaw(agent, run)
    if flaw is not None:
        raise StoreCorrupt(f"{agent}/{run}: {flaw}: {WHAT_TO_DO}")
    return found


def find_run(connection: sqlite3.Connection, agent: str, run: str) -> RunRow:
    """A run's row; one with id 0 when it never was. Raises ``StoreCorrupt`` when it is not whole."""
    row = connection.execute(RUN, (agent, run)).fetchone()
    return whole_run(row, agent, run) if row else RunRow()


def check_gapless(rows: Sequence[Row], after: int, last: int, agent: str, run: str) -> None:
    """Check that ``rows`` are all that lie behind the event id ``after``, up to ``last``.

    Raises ``EventsMissing`` for the first gap, ``StoreCorrupt`` for a row out of order.
    """
    if last - after == len(rows) and (not rows or (rows[0][0] == after + 1 and rows[-1][0] == last)):
        return
    expected = after + 1
    for row in rows:
        if row[0] != expected:
            raise out_of_place(expected, row[0], agent, run)
        expected += 1
    raise out_of_place(expected, last + 1, agent, run)


def out_of_place(expected: int, row_id: int, agent: str, run: str) -> StoreCorrupt:
    """The error for a row that stands where that of the event id ``expected`` should."""
    if row_id <= expected:
        return StoreCorrupt(f"{agent}/{run} has events out of order, from seq {row_id & MAX_SEQ} on: {WHAT_TO_DO}")
    return missing(expected & MAX_SEQ, row_id - 1 & MAX_SEQ, agent, run)


def missing(first: int, last: int, agent: str, run: str) -> EventsMissing:
    """The error for events that are not there."""
    what = f"event {first}" if first == last else f"events {first} to {last}"
    return EventsMissing(
        f"{agent}/{run} has lost {what}, though it has later ones: {WHAT_TO_DO}", first_seq=first, last_seq=last
    )


def row_flaw(row: SummedRow, name: int, unsummed: int) -> str | None:
    """What is wrong with an event's row, None when nothing is; ``name`` is the run's ``name_sum``."""
    row_id, event_id, event_type, microseconds, labels, data, verbatim, stored = row
    seq = row_id & MAX_SEQ
    if stored is None:
        return None if seq <= unsummed else "it has lost its checksum"
    try:
        found = event_sum(name, seq, event_id, event_type, microseconds, labels, data.encode(), verbatim)
    except (AttributeError, TypeError, UnicodeError):  # what must be text is none, or is no number where one must be
        found = None
    return None if found == stored else "it differs from its checksum"


def new_row(event: Prepared, run_id: int, seq: int, name: int) -> NewRow:
    """An event as it is inserted."""
    microseconds = to_microseconds(event.timestamp)
    labels = encode_json(event.labels).decode() if event.labels else None
    return (
        run_id << SEQ_BITS | seq,
        run_id,
        event.event_id,
        event.type,
        microseconds,
        labels,
        event.text.decode(),
        event.verbatim,
        event_sum(name, seq, event.event_id, event.type, microseconds, labels, event.text, event.verbatim),
    )


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
            raise unreadable(row_id & MAX_SEQ, str(error), agent, run) from error
    return events


def unreadable(seq: int, reason: str, agent: str, run: str) -> DecodeError:
    """The error for an event that is there and cannot be read."""
    return DecodeError(f"{agent}/{run}: event {seq} cannot be read: {reason}")


def decode_meta(text: str | None, agent: str, run: str) -> dict[str, JsonValue]:
    """A run's meta. Raises ``DecodeError`` naming the run."""
    if text is None:
        return {}
    try:
        return _decode_meta(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise DecodeError(f"{agent}/{run}: the run's meta cannot be read: {error}") from error
