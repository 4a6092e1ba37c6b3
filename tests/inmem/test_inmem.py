"""Tests of ``reset``, which only the in-memory store has."""

from __future__ import annotations

import pytest

from agent_memory_log import PlannerNote, new_event, open_store, open_sync_store
from agent_memory_log.errors import RunDeleted
from agent_memory_log_inmem import MemoryStore, SyncMemoryStore

_THREE = [new_event(PlannerNote(note=str(number))) for number in range(3)]


async def test_reset_ends_an_asynchronous_follower() -> None:
    async with open_store("memory:") as store:
        assert isinstance(store, MemoryStore)
        await store.append_events("agent", "run", *_THREE[:2])
        follower = store.follow("agent", "run")
        assert [(await anext(follower)).seq for _ in range(2)] == [1, 2]
        await store.reset()
        await store.append_events("agent", "run", *_THREE)
        with pytest.raises(RunDeleted):
            await anext(follower)
        assert (await anext(store.follow("agent", "run"))).seq == 1


def test_reset_ends_a_synchronous_follower() -> None:
    with open_sync_store("memory:") as store:
        assert isinstance(store, SyncMemoryStore)
        store.append_events("agent", "run", *_THREE[:2])
        follower = store.follow("agent", "run")
        assert [next(follower).seq for _ in range(2)] == [1, 2]
        store.reset()
        store.append_events("agent", "run", *_THREE)
        with pytest.raises(RunDeleted):
            next(follower)
