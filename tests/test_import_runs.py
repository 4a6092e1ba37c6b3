"""Tests that runs of another tool's store are imported independently, and that no event is stored twice."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from agent_memory_log import Event, JsonValue, PlannerNote, open_store
from agent_memory_log.errors import DecodeError, StoreUnavailable
from agent_memory_log.transfer import importing as importing_module
from agent_memory_log.transfer.importing import ImportedRun, import_runs


class Source(NamedTuple):
    """A run to import. Its items are events, or errors that are raised instead."""

    run: str
    items: Sequence[Event | Exception]
    metadata: dict[str, JsonValue] | Exception | None = None
    agent: str = "a"

    def meta(self) -> dict[str, JsonValue]:
        if isinstance(self.metadata, Exception):
            raise self.metadata
        return self.metadata or {}

    def events(self) -> Iterator[Event]:
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            yield item


def note(seq: int, text: str = "n") -> Event:
    return Event("planner_note", datetime(2026, 3, 1, tzinfo=UTC), PlannerNote(text), {}, f"id-{seq}", seq)


async def each(*sources: Source | Exception) -> AsyncGenerator[Source]:
    for source in sources:
        if isinstance(source, Exception):
            raise source
        yield source


async def imported(store: Any, *sources: Source | Exception) -> list[ImportedRun]:
    return [result async for result in import_runs(store, each(*sources))]


async def test_import_keeps_seqs_and_meta_and_stores_events_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing_module, "BATCH_EVENTS", 2)
    source = Source("r", [note(seq) for seq in range(3, 8)], {"k": 1})
    async with open_store("memory:") as store:
        assert await imported(store, source) == [ImportedRun("a", "r", version=7, read=5, inserted=5)]
        assert await imported(store, source) == [ImportedRun("a", "r", version=7, read=5, inserted=0)]
        grown = source._replace(items=[*source.items, note(8)])
        assert await imported(store, grown) == [ImportedRun("a", "r", version=8, read=6, inserted=1)]
        snapshot = await store.load_run("a", "r")
        assert [event.seq for event in snapshot.log] == [3, 4, 5, 6, 7, 8]
        assert snapshot.meta == {"k": 1}


async def test_failed_run_does_not_stop_the_other_runs() -> None:
    sources = [
        Source("cut", [note(1), DecodeError("event 2 cannot be read"), note(3)]),
        Source("meta", [note(1)], DecodeError("its meta is odd")),
        Source("refused", [note(1), note(2, "\ud800"), note(3)]),
        Source("changed", [note(1, "another")]),
        Source("complete", [note(1)]),
    ]
    async with open_store("memory:") as store:
        await imported(store, Source("changed", [note(1)]))
        cut, meta, refused, changed, complete = await imported(store, *sources)
        assert cut == ImportedRun("a", "cut", 1, 1, 1, problem="event 2 cannot be read")
        assert meta == ImportedRun("a", "meta", 0, 0, 0, problem="its meta is odd")
        assert refused.inserted == 1
        assert "lone surrogate" in refused.problem
        assert "a different body" in changed.problem
        assert complete == ImportedRun("a", "complete", 1, 1, 1)


async def test_failure_of_the_whole_store_ends_the_import() -> None:
    async with open_store("memory:") as store:
        with pytest.raises(StoreUnavailable):
            await imported(store, Source("r", [note(1)]), StoreUnavailable("gone"), Source("s", [note(1)]))
        assert [info.run for info in (await store.list_runs()).runs] == ["r"]
