"""The floor of the SQLite rows: raw ``sqlite3`` with the same durability and with payloads that are encoded before.

It writes to a table with an integer key. The table has no index on event ids. The floor checks no types and detects no
conflicts, so a log that keeps its promises does more work.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from agent_memory_log import Event, EventData
from agent_memory_log.events.event import to_microseconds
from agent_memory_log.events.registry import encode_payload, payload_types

Row = tuple[int, str, str, int, str]

_INSERT = "INSERT INTO events (seq, event_id, type, timestamp, data) VALUES (?, ?, ?, ?, ?)"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_decoders = {name: msgspec.json.Decoder(kind).decode for name, kind in payload_types().items()}


class FloorEvent(msgspec.Struct):
    """A row of the floor's table with its columns decoded."""

    seq: int
    event_id: str
    timestamp: datetime
    data: EventData


def rows(events: list[Event]) -> list[Row]:
    """Return events as encoded rows."""
    return [
        (seq, event.event_id, event.type, to_microseconds(event.timestamp), encode_payload(event.data)[0].decode())
        for seq, event in enumerate(events, 1)
    ]


def connect(path: Path) -> sqlite3.Connection:
    """Create the floor's table in a new file, and return the connection to it. Each commit calls fsync."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(
        "CREATE TABLE events (seq INTEGER PRIMARY KEY, event_id TEXT, type TEXT, timestamp INTEGER, data TEXT)"
    )
    return connection


def append_each(connection: sqlite3.Connection, batch: list[Row]) -> None:
    """Commit each row."""
    for row in batch:
        connection.execute(_INSERT, row)


def append_batches(connection: sqlite3.Connection, batch: list[Row], size: int) -> None:
    """Commit after every ``size`` rows."""
    for start in range(0, len(batch), size):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_INSERT, batch[start : start + size])
        connection.execute("COMMIT")


def load(connection: sqlite3.Connection, count: int) -> list[FloorEvent]:
    """Return the first ``count`` rows, with payload, id and timestamp decoded into structs."""
    return decode(
        connection.execute(
            "SELECT seq, event_id, type, timestamp, data FROM events WHERE seq <= ? ORDER BY seq", (count,)
        ).fetchall()
    )


def decode(rows: list[Row]) -> list[FloorEvent]:
    """Return rows with payload, id and timestamp decoded into structs."""
    decoders = _decoders
    return [
        FloorEvent(seq, event_id, _EPOCH + timedelta(0, 0, microseconds), decoders[kind](data))
        for seq, event_id, kind, microseconds, data in rows
    ]
