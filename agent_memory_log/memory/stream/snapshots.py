"""Snapshots: the state of a memory stream, stored as events of the same stream.

With a snapshot, the cost of opening a subject depends on its active records and not on its whole history.

A snapshot has one or more parts. Each part is the JSON text of some records, and the first part also has the other
fields of the state. A snapshot is valid if all its parts directly follow the version of its state. Every append to a
memory stream expects the version that its writer folded, so no other event can come between them. For the same reason,
a snapshot never contains a memory that another client has already forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.memory.stream.payloads import MemorySnapshot
from agent_memory_log.memory.stream.state import Live, State, StateFields

PART_BYTES = 512 * 1024
"""The approximate size of a part, in bytes. Stores with a smaller event limit get smaller parts."""

EVENTS_BETWEEN = 1_000
"""The least number of events between two snapshots. It grows to half the number of records if that is larger."""


class _Part(msgspec.Struct, array_like=True):
    lives: list[Live]
    fields: StateFields | None = None


_decode = msgspec.json.Decoder(_Part).decode


def is_due(state: State) -> bool:
    """Return whether enough events follow the last snapshot for a new one."""
    since = state.version - max(state.chunks, default=state.first_seq - 1)
    return since >= max(EVENTS_BETWEEN, len(state.records) // 2)


def parts_of(state: State, time: datetime, part_bytes: int = PART_BYTES) -> list[Event]:
    """Return the events of a snapshot of ``state``.

    The records of a part have at most ``part_bytes`` bytes, unless a single record is larger.
    """
    pieces: list[bytes] = []
    groups: list[list[bytes]] = [[]]
    size = 0
    for live in state.records.values():
        piece = encode_json(live)
        if size and size + len(piece) > part_bytes:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += len(piece) + 1
    fields = encode_json(state.fields())
    for number, group in enumerate(groups):
        tail = fields if number == 0 else b"null"
        pieces.append(b"[[" + b",".join(group) + b"]," + tail + b"]")
    return [
        new_event(
            MemorySnapshot(at=state.version, parts=len(pieces), part=number, state_json=piece.decode()), timestamp=time
        )
        for number, piece in enumerate(pieces)
    ]


def latest(events: Iterable[Event]) -> State | None:
    """Return the state after the last part of the newest complete snapshot, or None if no snapshot is complete."""
    parts = [(event, event.data) for event in events if isinstance(event.data, MemorySnapshot)]
    for end in range(len(parts), 0, -1):
        last = parts[end - 1][1]
        snapshot = parts[max(end - last.parts, 0) : end]
        if last.parts == len(snapshot) and all(
            (event.seq, part.at, part.parts, part.part) == (last.at + 1 + number, last.at, last.parts, number)
            for number, (event, part) in enumerate(snapshot)
        ):
            return _state(snapshot)
    return None


def _state(parts: Sequence[tuple[Event, MemorySnapshot]]) -> State | None:
    fields: StateFields | None = None
    lives: list[Live] = []
    for _, data in parts:
        try:
            part = _decode(data.state_json)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None  # another release wrote it; the stream itself can still be folded
        lives.extend(part.lives)
        fields = part.fields or fields
    if fields is None or fields.cited is None:  # an older release did not note which runs the closed records cite
        return None
    state = State(fields, lives)
    state.fold((event for event, _ in parts), parts[-1][0].seq)
    return state
