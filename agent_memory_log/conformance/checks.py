"""What several modules of the suite compare and collect.

Comparisons are exact: to Python 1, 1.0 and True are equal, to a reader of JSON they are not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from datetime import timedelta
from typing import cast

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue, encode_canonical
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import RunInfo, Store


def exact(value: JsonValue) -> bytes:
    """A JSON value as text that differs wherever the value does."""
    return encode_canonical(value)


def check_exact(found: JsonValue, expected: JsonValue, what: str) -> None:
    """Two JSON values are the same. Says where they part: pytest would spend minutes on the difference of megabytes."""
    one, other = exact(found), exact(expected)
    if one == other:
        return
    index = next((index for index, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))
    near = slice(max(0, index - 20), index + 60)
    raise AssertionError(f"{what}: {one[near]!r} instead of {other[near]!r}, at byte {index}")


def check_stored(stored: Event, original: Event, seq: int) -> None:
    """``stored`` is ``given``, unchanged, at ``seq``."""
    assert stored.seq == seq
    assert stored.event_id == original.event_id
    assert stored.type == original.type
    assert stored.timestamp == original.timestamp
    assert stored.timestamp.utcoffset() == timedelta(0)
    check_exact(dict(stored.labels), dict(original.labels), "labels")
    assert type(stored.data) is type(original.data)
    check_exact(stored.data.to_map(), original.data.to_map(), "data")


def check_run(snapshot: Snapshot, originals: Iterable[Event], *, first_seq: int = 1) -> None:
    """The snapshot holds the events given, in that order and no others, from ``first_seq`` on."""
    events = list(originals)
    assert len(snapshot.log) == len(events)
    for seq, (stored, event) in enumerate(zip(snapshot.log, events, strict=True), first_seq):
        check_stored(stored, event, seq)


def check_same(one: Snapshot, other: Snapshot) -> None:
    """Two snapshots are equal, in both orders and to the last digit."""
    assert one == other
    check_exact([event.to_map() for event in one.log], [event.to_map() for event in other.log], "log")
    check_exact([event.to_map() for event in one.events], [event.to_map() for event in other.events], "events")
    check_exact(one.meta, other.meta, "meta")


def seqs_of(events: Iterable[Event]) -> list[int]:
    """The seqs of events, in their order."""
    return [event.seq for event in events]


async def take(events: AsyncGenerator[Event], count: int) -> list[Event]:
    """The next ``count`` events of a follower."""
    return [await anext(events) for _ in range(count)]


async def all_runs(
    store: Store, agent: str | None = None, *, limit: int = 50, include_reserved: bool = False
) -> list[RunInfo]:
    """The runs of every page of ``list_runs``."""
    page = await store.list_runs(agent, limit=limit, include_reserved=include_reserved)
    runs = [*page.runs]
    while page.cursor is not None:
        page = await store.list_runs(agent, limit=limit, cursor=page.cursor, include_reserved=include_reserved)
        runs += page.runs
        assert len(runs) <= 1000, "the pages do not come to an end"
    return runs


def scribble(value: object) -> None:
    """Change everything in a value that can be changed, as careless callers do."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            scribble(getattr(value, name))
    elif isinstance(value, dict):
        changeable = cast("dict[str, object]", value)
        for inner in changeable.values():
            scribble(inner)
        changeable["scribbled"] = "yes"
    elif isinstance(value, list):
        items = cast("list[object]", value)
        for inner in items:
            scribble(inner)
        items.append("scribbled")
