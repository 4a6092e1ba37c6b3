"""Comparisons and other helpers that several modules of the suite share.

Comparisons are exact. Python considers 1, 1.0 and True equal, but they are different JSON values.
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
    """Encode a JSON value so that different values have different encodings."""
    return encode_canonical(value)


def check_exact(actual: JsonValue, expected: JsonValue, name: str) -> None:
    """Assert that two JSON values are the same.

    The error shows only the first difference, because pytest would take minutes to compare megabytes.
    """
    actual_text, expected_text = exact(actual), exact(expected)
    if actual_text == expected_text:
        return
    index = next(
        (index for index, pair in enumerate(zip(actual_text, expected_text, strict=False)) if pair[0] != pair[1]),
        len(actual_text),
    )
    near = slice(max(0, index - 20), index + 60)
    raise AssertionError(f"{name}: {actual_text[near]!r} instead of {expected_text[near]!r}, at byte {index}")


def check_stored(stored: Event, original: Event, seq: int) -> None:
    """Assert that ``stored`` is the unchanged ``original`` and has this ``seq``."""
    assert stored.seq == seq
    assert stored.event_id == original.event_id
    assert stored.type == original.type
    assert stored.timestamp == original.timestamp
    assert stored.timestamp.utcoffset() == timedelta(0)
    check_exact(dict(stored.labels), dict(original.labels), "labels")
    assert type(stored.data) is type(original.data)
    check_exact(stored.data.to_map(), original.data.to_map(), "data")


def check_run(snapshot: Snapshot, originals: Iterable[Event], *, first_seq: int = 1) -> None:
    """Assert that the snapshot holds exactly ``originals``, in that order, and begins at ``first_seq``."""
    events = list(originals)
    assert len(snapshot.log) == len(events)
    for seq, (stored, event) in enumerate(zip(snapshot.log, events, strict=True), first_seq):
        check_stored(stored, event, seq)


def check_same(actual: Snapshot, expected: Snapshot) -> None:
    """Assert that two snapshots are equal, in both orders of their events and with exact JSON values."""
    assert actual == expected
    check_exact([event.to_map() for event in actual.log], [event.to_map() for event in expected.log], "log")
    check_exact([event.to_map() for event in actual.events], [event.to_map() for event in expected.events], "events")
    check_exact(actual.meta, expected.meta, "meta")


def seqs_of(events: Iterable[Event]) -> list[int]:
    """Return the seqs of events, in their order."""
    return [event.seq for event in events]


async def take(events: AsyncGenerator[Event], count: int) -> list[Event]:
    """Return the next ``count`` events of a follower."""
    return [await anext(events) for _ in range(count)]


async def all_runs(
    store: Store, agent: str | None = None, *, limit: int = 50, include_reserved: bool = False
) -> list[RunInfo]:
    """Return the runs of all pages of ``list_runs``."""
    page = await store.list_runs(agent, limit=limit, include_reserved=include_reserved)
    runs = [*page.runs]
    while page.cursor is not None:
        page = await store.list_runs(agent, limit=limit, cursor=page.cursor, include_reserved=include_reserved)
        runs += page.runs
        assert len(runs) <= 1000, "the pages do not end"
    return runs


def scribble(value: object) -> None:
    """Change every mutable part of a value, as a careless caller might."""
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
