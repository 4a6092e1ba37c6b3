"""Tests of forking: the new run has the first events of the old run, names its source, and is independent of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from agent_memory_log import (
    Event,
    PlannerNote,
    Redacted,
    Store,
    ToolResult,
    UserMessage,
    VersionConflict,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, RunDeleted
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.transfer.forking import ForkedRun, fork_run, fork_run_sync, forks_of_sync
from agent_memory_log.transfer.importing import BATCH_BYTES, BATCH_EVENTS

AGENT = "agent"


@pytest.fixture(params=["memory", "sqlite", "mongodb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "mongodb":
        mongo_uri: str = request.getfixturevalue("mongo_uri")
        return mongo_uri
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'runs.db'}"


@pytest.fixture
async def store(url: str) -> AsyncGenerator[Store]:
    async with open_store(url) as store:
        yield store


def notes(count: int) -> list[Event]:
    return [new_event(PlannerNote(note=f"{number}"), labels={"n": f"{number}"}) for number in range(1, count + 1)]


async def log(store: Store, run: str) -> list[Event]:
    return list((await store.load_run(AGENT, run)).log)


async def test_fork_has_the_first_events_and_is_independent(store: Store) -> None:
    await store.append_events(AGENT, "old", *notes(5), meta={"session_id": "s-1"})
    assert await fork_run(store, AGENT, "old", 3, "new") == ForkedRun(AGENT, "new", 3, 3, 3)
    forked = await store.load_run(AGENT, "new")
    assert list(forked.log) == (await log(store, "old"))[:3]
    assert forked.meta == {"session_id": "s-1", "forked_from": {"agent": AGENT, "run": "old", "seq": 3}}
    await store.append_events(AGENT, "new", new_event(UserMessage("on")), expected_version=3)
    assert len(await log(store, "old")) == 5


async def test_repeated_fork_stores_nothing_after_both_runs_continued(store: Store) -> None:
    await store.append_events(AGENT, "old", *notes(3))
    await fork_run(store, AGENT, "old", 2, "new")
    assert await fork_run(store, AGENT, "old", 2, "new") == ForkedRun(AGENT, "new", 2, 2, 0)
    await store.append_events(AGENT, "new", new_event(UserMessage("on")))
    await store.append_events(AGENT, "old", new_event(UserMessage("on too")))
    before = await log(store, "new")
    assert await fork_run(store, AGENT, "old", 2, "new") == ForkedRun(AGENT, "new", 3, 2, 0)
    assert await log(store, "new") == before


async def test_fork_of_a_fork_names_its_source(store: Store) -> None:
    await store.append_events(AGENT, "old", *notes(3))
    await fork_run(store, AGENT, "old", 3, "new")
    await fork_run(store, AGENT, "new", 1, "newer")
    forked = await store.load_run(AGENT, "newer")
    assert (forked.version, forked.meta) == (1, {"forked_from": {"agent": AGENT, "run": "new", "seq": 1}})


async def test_redacted_events_are_redacted_in_the_fork(store: Store) -> None:
    await store.append_events(AGENT, "old", *notes(4))
    await store.redact_events(AGENT, "old", [2], reason="asked")
    await store.append_events(AGENT, "old", *notes(2))
    await store.redact_events(AGENT, "old", [6], reason="later")
    for at, run in ((3, "before the marker"), (6, "after the marker")):
        await fork_run(store, AGENT, "old", at, run)
        forked = await log(store, run)
        assert forked == (await log(store, "old"))[:at]
        assert forked[1].data == Redacted("planner_note", "asked")
    assert forked[5].data == Redacted("planner_note", "later")


async def test_redaction_of_one_run_does_not_change_the_other(store: Store) -> None:
    await store.append_events(AGENT, "old", *notes(3))
    await fork_run(store, AGENT, "old", 2, "new")
    await store.redact_events(AGENT, "old", [1], reason="user request")
    await store.redact_events(AGENT, "new", [2], reason="user request")
    assert [type(event.data).__name__ for event in await log(store, "old")][:2] == ["Redacted", "PlannerNote"]
    assert [type(event.data).__name__ for event in await log(store, "new")][:2] == ["PlannerNote", "Redacted"]
    assert (await fork_run(store, AGENT, "old", 2, "new")).inserted == 0


async def test_concurrent_forks_store_each_event_once(store: Store) -> None:
    count = BATCH_EVENTS + 1
    await store.append_events(AGENT, "old", *notes(count))
    forks = await asyncio.gather(*(fork_run(store, AGENT, "old", count, "new") for _ in range(3)))
    assert sum(fork.inserted for fork in forks) == count
    assert await log(store, "new") == await log(store, "old")


async def test_fork_keeps_seqs_after_a_deletion(store: Store) -> None:
    await store.append_events(AGENT, "old", *notes(4))
    await store.delete_run(AGENT, "old")
    await store.append_events(AGENT, "old", *notes(3))
    assert await fork_run(store, AGENT, "old", 6, "new") == ForkedRun(AGENT, "new", 6, 2, 2)
    assert [event.seq for event in await log(store, "new")] == [5, 6]
    assert (await fork_run(store, AGENT, "old", 6, "new")).inserted == 0
    with pytest.raises(CursorOutOfRange, match="has seqs 5 to 7, but at is 4"):
        await fork_run(store, AGENT, "old", 4, "newer")


class Interrupted(Exception):
    pass


class Interrupting:
    """A store that raises after a number of appends, like a process that crashes."""

    def __init__(self, store: Store, appends: int) -> None:
        self._store = store
        self._appends_left = appends

    async def load_run(self, *arguments: Any, **options: Any) -> Any:
        return await self._store.load_run(*arguments, **options)

    async def append_events(self, *arguments: Any, **options: Any) -> Any:
        if not self._appends_left:
            raise Interrupted
        self._appends_left -= 1
        return await self._store.append_events(*arguments, **options)


class Counting(Interrupting):
    """A store that records the number and the size of the events in each append."""

    def __init__(self, store: Store, appends: int) -> None:
        super().__init__(store, appends)
        self.counts: list[int] = []
        self.sizes: list[int] = []

    async def append_events(self, *arguments: Any, **options: Any) -> Any:
        events = [argument for argument in arguments if isinstance(argument, Event)]
        self.counts.append(len(events))
        self.sizes.append(sum(len(encode_json(event.to_map())) for event in events))
        return await super().append_events(*arguments, **options)


async def test_long_runs_are_forked_in_batches(store: Store) -> None:
    large = [
        new_event(ToolResult("c", "t", result_json='"' + "x" * (BATCH_BYTES // 3) + '"'), event_id=f"large {number}")
        for number in range(5)
    ]
    await store.append_events(AGENT, "old", *notes(BATCH_EVENTS + 1))
    for event in large:
        await store.append_events(AGENT, "old", event)
    at = BATCH_EVENTS + 5
    counting = Counting(store, at)
    forked = await fork_run(counting, AGENT, "old", at, "new")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # has the methods that a fork uses
    assert forked.inserted == at
    assert max(counting.sizes) <= BATCH_BYTES
    assert counting.counts == [BATCH_EVENTS, 3, 2]
    assert await log(store, "new") == (await log(store, "old"))[:at]


async def test_repeated_fork_continues_an_interrupted_fork(store: Store) -> None:
    await store.append_events(AGENT, "old", *notes(2 * BATCH_EVENTS + 10))
    at = 2 * BATCH_EVENTS + 5
    with pytest.raises(Interrupted):
        await fork_run(Interrupting(store, 1), AGENT, "old", at, "new")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # has the methods that a fork uses
    assert len(await log(store, "new")) == BATCH_EVENTS
    assert await fork_run(store, AGENT, "old", at, "new") == ForkedRun(AGENT, "new", at, at, BATCH_EVENTS + 5)
    assert await log(store, "new") == (await log(store, "old"))[:at]


class Meddling(Interrupting):
    """A store in which another writer appends an event before the second append."""

    async def append_events(self, *arguments: Any, **options: Any) -> Any:
        if not self._appends_left:
            await self._store.append_events(AGENT, "new", new_event(UserMessage("other writer")))
        self._appends_left -= 1
        return await self._store.append_events(*arguments, **options)


async def test_event_of_another_writer_during_a_fork_is_a_conflict(store: Store) -> None:
    await store.append_events(AGENT, "old", *notes(BATCH_EVENTS + 10))
    with pytest.raises(VersionConflict):
        await fork_run(Meddling(store, 1), AGENT, "old", BATCH_EVENTS + 5, "new")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # has the methods that a fork uses


class Deleting(Interrupting):
    """A store in which the source run is deleted after the first append."""

    async def append_events(self, *arguments: Any, **options: Any) -> Any:
        result = await self._store.append_events(*arguments, **options)
        await self._store.delete_run(AGENT, "old")
        return result


async def test_deletion_of_the_source_during_a_fork_raises(store: Store) -> None:
    await store.append_events(AGENT, "old", *notes(BATCH_EVENTS + 10))
    with pytest.raises(RunDeleted, match="was deleted during the fork"):
        await fork_run(Deleting(store, 0), AGENT, "old", BATCH_EVENTS + 5, "new")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # has the methods that a fork uses


@pytest.mark.parametrize("at", [0, -1, True, 1.0, "1", None])
async def test_invalid_seq_is_refused(store: Store, at: Any) -> None:
    await store.append_events(AGENT, "old", *notes(3))
    with pytest.raises(InvalidArgument, match="at must be an integer from 1"):
        await fork_run(store, AGENT, "old", at, "new")
    assert not await log(store, "new")


async def test_missing_events_cannot_be_forked(store: Store) -> None:
    with pytest.raises(CursorOutOfRange, match="agent/old holds no events"):
        await fork_run(store, AGENT, "old", 1, "new")
    await store.append_events(AGENT, "old", *notes(3))
    with pytest.raises(CursorOutOfRange, match="has seqs 1 to 3, but at is 4"):
        await fork_run(store, AGENT, "old", 4, "new")
    await store.delete_run(AGENT, "old")
    with pytest.raises(CursorOutOfRange, match="holds no events"):
        await fork_run(store, AGENT, "old", 2, "new")
    assert not await log(store, "new")


async def test_existing_run_with_other_events_is_refused(store: Store) -> None:
    await store.append_events(AGENT, "old", *notes(3))
    await store.append_events(AGENT, "other", *notes(1))
    with pytest.raises(InvalidArgument, match="agent/other already exists and is not this fork"):
        await fork_run(store, AGENT, "old", 2, "other")
    await fork_run(store, AGENT, "old", 2, "new")
    with pytest.raises(InvalidArgument, match="agent/new already exists"):
        await fork_run(store, AGENT, "old", 3, "new")
    with pytest.raises(InvalidArgument, match=r"new_run is the same as run \(agent/old\)"):
        await fork_run(store, AGENT, "old", 3, "old")
    await store.delete_run(AGENT, "new")
    with pytest.raises(InvalidArgument, match="agent/new was deleted"):
        await fork_run(store, AGENT, "old", 2, "new")


def test_synchronous_fork_does_the_same(url: str) -> None:
    with open_sync_store(url) as store:
        store.append_events(AGENT, "old", *notes(3))
        assert fork_run_sync(store, AGENT, "old", 2, "new") == ForkedRun(AGENT, "new", 2, 2, 2)
        assert [info.run for info in forks_of_sync(store, AGENT, "old", first_seq=2)] == ["new"]
        assert forks_of_sync(store, AGENT, "old", first_seq=3) == forks_of_sync(store, AGENT, "new") == []
        assert fork_run_sync(store, AGENT, "old", 2, "new").inserted == 0
        assert list(store.load_run(AGENT, "new").log) == list(store.load_run(AGENT, "old").log)[:2]
        with pytest.raises(InvalidArgument):
            fork_run_sync(store, AGENT, "old", 3, "new")
