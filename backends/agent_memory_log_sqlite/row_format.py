"""The format of the rows of runs and events: checksums, checks of rows, and conversions from and to events.

A row's ``sum`` is a CRC-32. It detects every burst of up to 32 damaged bits, and all but one in four billion other
changes. It does not protect against a person who changes a row and its checksum.

Every read compares the run's row with its checksum, and a read of all types checks that no seq is missing. The events
are compared with their checksums only with ``?verify=on`` and by ``check``, because that makes a load 40 % slower. Rows
that are older than checksums have none: ``unsummed`` is the run's last seq that may lack one.
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

# The payload is JSON text, which the sqlite3 shell and json_extract can read. The JSON text inside a payload is in the
# column verbatim, which makes the row smaller because that text needs no escapes there.
COLUMNS = "id, event_id, type, timestamp, labels, data, verbatim"
NEW_COLUMNS = "id, run, event_id, type, timestamp, labels, data, verbatim, sum"
NEW_ROW = "?, ?, ?, ?, ?, nullif(?, ''), ?, nullif(?, ''), ?"
"""The values of ``NEW_COLUMNS``. ``new_values`` has empty text for NULL, and a ``bytearray`` for the bytes of a UUID.

Python's ``sqlite3`` takes as long as five other values to bind None or bytes, because it looks for an adapter.
"""

# The version is read from the newest event. A column for it would make every append write a second page.
_NEWEST = f"(SELECT {{}} FROM events WHERE id > runs.id << {SEQ_BITS} AND id < runs.id + 1 << {SEQ_BITS} ORDER BY id DESC LIMIT 1)"  # noqa: E501, S608  # only constants
VERSION = f"coalesce({_NEWEST.format(f'id & {MAX_SEQ}')}, base_seq)"
UPDATED = _NEWEST.format("timestamp")
RUN_COLUMNS = f"id, base_seq, removals, redactions, created, expires_at, unsummed, meta, sum, {VERSION}"
RUN = f"SELECT {RUN_COLUMNS} FROM runs WHERE agent = ? AND run = ?"  # noqa: S608  # only constants

Row = tuple[int, str | bytes, str, int, str | None, str, str | None]
"""A row of ``COLUMNS`` in an intact file."""

SummedRow = tuple[int, str | bytes, str, int, str | None, str, str | None, int | None]
"""A row of ``COLUMNS`` and its ``sum``."""

_UUID_LENGTH = 36


def id_to_store(event_id: str) -> str | bytes:
    """Return an event id as it is stored: a UUID in its canonical lower-case form as 16 bytes, other ids as text.

    The text of a UUID takes 20 bytes more, in the row and again in the index. SQLite's ``typeof`` tells both apart.
    """
    if len(event_id) != _UUID_LENGTH:
        return event_id
    try:
        stored_id = bytes.fromhex(event_id.replace("-", ""))
    except ValueError:
        return event_id
    return stored_id if _uuid_text(stored_id) == event_id else event_id


def _uuid_text(stored_id: bytes) -> str:
    digits = stored_id.hex("-", 2)  # eight groups of four digits
    return f"{digits[:4]}{digits[5:29]}{digits[30:34]}{digits[35:]}"


def id_as_text(stored_id: str | bytes) -> str:
    """Return the event id of a stored id. Raises ``ValueError`` for a value that ``id_to_store`` never returns."""
    if isinstance(stored_id, str):
        return stored_id
    text = _uuid_text(stored_id) if isinstance(stored_id, bytes) else ""
    if len(text) != _UUID_LENGTH:
        raise ValueError("the event id is not text and not the 16 bytes of a UUID")
    return text


_PRIME = 4_294_967_291
"""The largest prime below 2^32. Every bit of a number affects the remainder."""


def name_sum(agent: str, run: str) -> int:
    """Return the start value for the checksums of a run's events."""
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
    """Return the checksum of an event's row. ``name`` is the ``name_sum`` of its run."""
    # Concatenation takes half the time of formatting, and runs on every append. Labels are JSON, which contains neither
    # separator.
    head = f"{event_id}\0{event_type}"
    if labels is not None:
        head += "\0" + labels
    if verbatim is not None:
        head += "\1" + verbatim
    return crc32(head.encode() + data, (name + seq + microseconds) % _PRIME)


def erasure_sum(position: int, run_id: int, up_to: int, seqs: str) -> int:
    """Return the checksum of a row of the erasure journal."""
    return crc32(f"{position}\0{run_id}\0{up_to}\0{seqs}".encode())


def run_sum(agent: str, run: str, numbers: tuple[int | None, ...], meta: str | None) -> int:
    """Return the checksum of a run's row. ``numbers`` are its numeric columns, from ``id`` to ``unsummed``."""
    return crc32(f"{agent}\0{run}\0{numbers}\0{meta}".encode())


class RunRow(msgspec.Struct, frozen=True, gc=False):
    """A row of ``RUN_COLUMNS``. The defaults describe a run that never existed.

    If the run has no events, ``base`` equals ``version``, and ``created``, ``meta`` and ``expires_at`` are None.
    """

    id: int = 0
    base: int = 0
    removals: int = 0
    redactions: int = 0
    created: int | None = None
    expires_at: int | None = None
    unsummed: int = 0
    meta: str | None = None
    sum: int | None = None
    version: int = 0

    @property
    def event_count(self) -> int:
        """The number of events in the run."""
        return self.version - self.base

    def row_id(self, seq: int) -> int:
        """Return the row id of the event at ``seq`` in this run."""
        return self.id << SEQ_BITS | seq

    def summed(self, agent: str, run: str) -> int:
        """Return the expected checksum of the row."""
        numbers = (self.id, self.base, self.removals, self.redactions, self.created, self.expires_at, self.unsummed)
        return run_sum(agent, run, numbers, self.meta)

    def flaw(self, agent: str, run: str) -> str | None:
        """Return a description of the row's damage, or None if the row is intact."""
        if self.sum is None:
            if type(self.unsummed) is not int or self.unsummed < 1:
                return "the run's row has lost its checksum"
            if type(self.base) is not int or not isinstance(self.created, int | None):
                return "the run's row has text in a column of numbers"
        elif self.sum != self.summed(agent, run):
            return "the run's row differs from its checksum"
        if (self.created is None) != (self.version == self.base) or self.version < self.base:
            return f"the run's row does not fit its events, which end at seq {self.version}"
        return None


def checked_run(row: Sequence[object], agent: str, run: str) -> RunRow:
    """Return ``row``, a row of ``RUN_COLUMNS``, as a ``RunRow``. Raises ``StoreCorrupt`` if it is damaged."""
    run_row = RunRow(*row)  # type: ignore[arg-type]  # flaw() checks the types, which can be wrong in a damaged file
    flaw = run_row.flaw(agent, run)
    if flaw is not None:
        raise StoreCorrupt(f"{agent}/{run}: {flaw}; {WHAT_TO_DO}")
    return run_row


def find_run(connection: sqlite3.Connection, agent: str, run: str) -> RunRow:
    """Return a run's row, with id 0 if the run never existed. Raises ``StoreCorrupt`` if the row is damaged."""
    row = connection.execute(RUN, (agent, run)).fetchone()
    return checked_run(row, agent, run) if row else RunRow()


def check_gapless(rows: Sequence[Row], after: int, last: int, agent: str, run: str) -> None:
    """Check that ``rows`` have all ids from ``after + 1`` to ``last``, in order.

    Raises ``EventsMissing`` for the first gap, and ``StoreCorrupt`` for a row that is out of order.
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
    """Return the error for a row with the id ``row_id`` where the id ``expected`` belongs."""
    if row_id <= expected:
        return StoreCorrupt(f"{agent}/{run} has events out of order, from seq {row_id & MAX_SEQ} on; {WHAT_TO_DO}")
    return events_missing(expected & MAX_SEQ, row_id - 1 & MAX_SEQ, agent, run)


def events_missing(first: int, last: int, agent: str, run: str) -> EventsMissing:
    """Return the error for missing events."""
    missing_seqs = f"event {first}" if first == last else f"events {first} to {last}"
    return EventsMissing(
        f"{agent}/{run} has lost {missing_seqs}, but has later events; {WHAT_TO_DO}", first_seq=first, last_seq=last
    )


def row_flaw(row: SummedRow, name: int, unsummed: int) -> str | None:
    """Return a description of the damage of an event's row, or None. ``name`` is the ``name_sum`` of its run."""
    row_id, event_id, event_type, microseconds, labels, data, verbatim, stored = row
    seq = row_id & MAX_SEQ
    if stored is None:
        return None if seq <= unsummed else "it has lost its checksum"
    try:
        computed = event_sum(name, seq, id_as_text(event_id), event_type, microseconds, labels, data.encode(), verbatim)
    except (AttributeError, TypeError, ValueError):  # a value has the wrong type
        computed = None
    return None if computed == stored else "it differs from its checksum"


def new_values(batch: Iterable[Prepared], run_id: int, seq: int, name: int) -> list[object]:
    """Return the values of the rows to insert for ``batch``, row after row: those of ``NEW_COLUMNS``.

    ``seq`` is the seq of the first event, and ``name`` is the ``name_sum`` of the run.
    """
    values: list[object] = []
    row_id = run_id << SEQ_BITS | seq
    for event in batch:
        event_id, event_type, text, verbatim = event.event_id, event.type, event.text, event.verbatim
        microseconds = to_microseconds(event.timestamp)
        labels = encode_json(event.labels).decode() if event.labels else None
        stored_id: object = event_id
        if len(event_id) == _UUID_LENGTH:
            stored = id_to_store(event_id)
            stored_id = stored if isinstance(stored, str) else bytearray(stored)
        values += (
            row_id,
            run_id,
            stored_id,
            event_type,
            microseconds,
            labels or "",
            text.decode(),
            verbatim or "",
            event_sum(name, seq, event_id, event_type, microseconds, labels, text, verbatim),
        )
        row_id += 1
        seq += 1
    return values


_EPOCH = from_microseconds(0)
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode
_decode_meta = msgspec.json.Decoder(dict[str, JsonValue]).decode


def decode_rows(rows: Iterable[Row], agent: str, run: str) -> list[Event]:
    """Decode rows of ``COLUMNS`` to events. Raises ``DecodeError``, which names the run and the seq."""
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
                    event_id if type(event_id) is str else id_as_text(event_id),
                    row_id & MAX_SEQ,
                )
            )
        except Exception as error:  # the decoder of a registered payload may raise any error
            raise unreadable(row_id & MAX_SEQ, str(error), agent, run) from error
    return events


def unreadable(seq: int, reason: str, agent: str, run: str) -> DecodeError:
    """Return the error for a stored event that cannot be decoded."""
    return DecodeError(f"{agent}/{run}: event {seq} cannot be read: {reason}")


def decode_meta(text: str | None, agent: str, run: str) -> dict[str, JsonValue]:
    """Decode a run's meta. Raises ``DecodeError``, which names the run."""
    if text is None:
        return {}
    try:
        return _decode_meta(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise DecodeError(f"{agent}/{run}: the run's meta cannot be read: {error}") from error
