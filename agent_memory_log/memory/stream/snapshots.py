"""Snapshots: a state as events of its own stream, in parts, so that opening costs what is remembered and not what was.

A part is the JSON text of some records; the first begins with everything else. A snapshot counts when all of its parts
are there, one after the other, directly behind the version that it shows: every append to a memory stream expects the
version that its writer folded, so nothing can stand between.

For the same reason, a snapshot never contains a memory that another client has already forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.memory.stream.payloads import MemorySnapshot
from agent_memory_log.memory.stream.state import Held, Live, State

PART_BYTES = 512 * 1024
"""How large a part is, about, unless the store takes less."""

EVENTS_BETWEEN = 1_000
"""A snapshot is written after this many events, or half as many as there are records, whichever is more."""


class _Part(msgspec.Struct, array_like=True):
    lives: list[Live]
    held: Held | None = None


_decode = msgspec.json.Decoder(_Part).decode


def is_due(state: State) -> bool:
    """Whether so much has come since the last snapshot that another is worth its cost."""
    since = state.version - max(state.chunks, default=state.first_seq - 1)
    return since >= max(EVENTS_BETWEEN, len(state.records) // 2)


def parts_of(state: State, time: datetime, part_bytes: int = PART_BYTES) -> list[Event]:
    """The events of a snapshot of ``state``; each a little over ``part_bytes`` at most, or one record."""
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
    held = encode_json(state.held())
    for number, group in enumerate(groups):
        tail = held if number == 0 else b"null"
        pieces.append(b"[[" + b",".join(group) + b"]," + tail + b"]")
    return [
        new_event(
            MemorySnapshot(at=state.version, parts=len(pieces), part=number, state_json=piece.decode()), timestamp=time
        )
        for number, piece in enumerate(pieces)
    ]


def latest(events: Iterable[Event]) -> State | None:
    """The state of the newest snapshot that is whole, up to and with its last part; None if there is none."""
    parts = [(event, event.data) for event in events if isinstance(event.data, MemorySnapshot)]
    for end in range(len(parts), 0, -1):
        last = parts[end - 1][1]
        whole = parts[max(end - last.parts, 0) : end]
        if last.parts == len(whole) and all(
            (event.seq, part.at, part.parts, part.part) == (last.at + 1 + number, last.at, last.parts, number)
            for number, (event, part) in enumerate(whole)
        ):
            return _state(whole)
    return None


def _state(parts: Sequence[tuple[Event, MemorySnapshot]]) -> State | None:
    held: Held | None = None
    lives: list[Live] = []
    for _, data in parts:
        try:
            part = _decode(data.state_json)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None  # of another release: the events themselves can be folded
        lives.extend(part.lives)
        held = part.held or held
    if held is None:
        return None
    state = State(held, lives)
    state.fold((event for event, _ in parts), parts[-1][0].seq)
    return state
