"""Promise 11, first half: ids are text of 1 to 512 characters, compared exactly and never interpreted as a query."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from agent_memory_log.conformance.checks import all_runs, check_run
from agent_memory_log.conformance.harness import Suite, contract
from agent_memory_log.conformance.samples import AGENT, IDS, RUN, user_message
from agent_memory_log.errors import InvalidEvent
from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import UserMessage
from agent_memory_log.store import Store

_WRONG: list[Any] = ["", "a" * 513, "\U0001f9ff" * 513, "lone \ud800", None, 1, b"bytes", ["a"]]


@contract
class Ids(Suite):
    """Tests of agent, run and event ids."""

    async def test_11_run_ids_are_compared_exactly(self, store: Store, other: Store) -> None:
        originals = {run: user_message(f"in {run!r}", event_id=run) for run in IDS}
        for run, event in originals.items():
            assert (await store.append_events(AGENT, run, event)).version == 1
        for run, event in originals.items():
            snapshot = await other.load_run(AGENT, run)
            check_run(snapshot, [event])
            assert snapshot.run == run
        assert [info.run for info in await all_runs(other)] == list(reversed(IDS))

    async def test_11_agent_ids_are_compared_exactly(self, store: Store, other: Store) -> None:
        originals = {agent: user_message(f"of {agent!r}") for agent in IDS}
        for agent, event in originals.items():
            assert (await store.append_events(agent, RUN, event)).version == 1
        for agent, event in originals.items():
            snapshot = await other.load_run(agent, RUN)
            check_run(snapshot, [event])
            assert snapshot.agent == agent
            assert [(info.agent, info.run) for info in await all_runs(other, agent)] == [(agent, RUN)]

    async def test_11_event_ids_are_compared_exactly(self, store: Store) -> None:
        originals = [user_message(f"event {event_id!r}", event_id=event_id) for event_id in IDS]
        for event in originals:
            assert (await store.append_events(AGENT, RUN, event)).inserted == 1
        check_run(await store.load_run(AGENT, RUN), originals)
        assert (await store.append_events(AGENT, RUN, *originals)).inserted == 0

    async def test_11_agent_and_run_ids_are_kept_apart(self, store: Store) -> None:
        names = [("a", "bc"), ("ab", "c"), ("a/b", "c"), ("a", "b/c"), ("a\x00b", "c"), ("a", "b\x00c"), ("c", "a/b")]
        for agent, run in names:
            assert (await store.append_events(agent, run, user_message(f"{agent}/{run}"))).version == 1
        await store.delete_run("a", "b/c")
        assert [(info.agent, info.run) for info in reversed(await all_runs(store))] == [
            name for name in names if name != ("a", "b/c")
        ]

    async def test_11_erasing_a_run_leaves_runs_with_similar_ids_unchanged(self, store: Store) -> None:
        for run in IDS:
            await store.append_events(AGENT, run, user_message("x"))
        for run in ("%", "_", "*", "a", "$", "[]", "e\u0301"):
            await store.delete_run(AGENT, run)
            await store.redact_events(AGENT, "a%", [1])
            assert (await store.load_run(AGENT, run)).events == []
        assert len(await all_runs(store)) == len(IDS) - 7

    async def test_11_every_method_refuses_wrong_run_and_agent_ids(self, store: Store) -> None:
        names = [("agent", wrong, RUN) for wrong in _WRONG] + [("run", AGENT, wrong) for wrong in _WRONG]
        for field, agent, run in names:
            calls: list[Callable[[], Awaitable[object]]] = [
                partial(store.append_events, agent, run, user_message("x")),
                partial(store.load_run, agent, run),
                partial(store.find_events, agent, run, ["unknown"]),
                partial(store.redact_events, agent, run, [1]),
                partial(store.delete_run, agent, run),
            ]
            for call in calls:
                with pytest.raises(InvalidEvent) as caught:
                    await call()
                assert caught.value.field == field
        assert await all_runs(store) == []

    async def test_11_list_runs_refuses_wrong_agent_ids(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("x"))
        for agent in _WRONG:
            if agent is not None:
                with pytest.raises(InvalidEvent) as caught:
                    await store.list_runs(agent)
                assert caught.value.field == "agent"

    async def test_11_append_refuses_wrong_event_ids(self, store: Store) -> None:
        message = UserMessage(message="x")
        for event_id in _WRONG[1:]:
            event = Event(message.event_type, user_message("").timestamp, message, {}, event_id)
            with pytest.raises(InvalidEvent) as caught:
                await store.append_events(AGENT, RUN, user_message("good"), event)
            assert caught.value.field == "event_id"
        assert (await store.load_run(AGENT, RUN)).version == 0
