"""The graph of a principal: it follows memory, also without loops, and keeps no words that were forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agent_memory_log import Snapshot, open_store
from agent_memory_log.capabilities import Compacts
from agent_memory_log.errors import StoreCorrupt
from agent_memory_log.memory import Principal
from agent_memory_log.processor import GraphChanges, Loop
from agent_memory_log.processor.transport.graph import ledger_name
from agent_memory_log.processor.transport.ledger import OutgoingMessage
from tests.memory.stores import SetClock
from tests.processor.handler import Parts
from tests.processor.test_handling import event, request

USER: Mapping[str, Any] = {"loops": [{"agent": "coder", "scopes": {"user": "42"}}]}
SECRET = "tangerine"


def operations(parts: Parts) -> list[str]:
    """Return the operations of the published changes of the graph."""
    return [message["operation"] for _, message in parts.wire.messages if "operation" in message]


async def look(parts: Parts) -> None:
    """Do the chores once."""
    await parts.graph.find_owners()
    await parts.chores._look_at_runs()  # pyright: ignore[reportPrivateUsage]  # it runs every five seconds otherwise
    await parts.publisher.retry()


@pytest.mark.parametrize("restarts", [False, True])
async def test_words_forgotten_after_the_end_of_a_loop_leave_the_graph_and_the_store(
    tmp_path: Path, *, restarts: bool
) -> None:
    async with open_store(f"sqlite:///{tmp_path / 'log.db'}") as store:
        parts = Parts(store, **USER)
        memory = parts.memory(user="42")
        await memory.remember(key="fruit", value=SECRET)
        await parts.handler.handle(event("agent.context.compaction.l1", "l1"))
        await parts.chores.end("l1")
        assert not parts.handler.active
        assert SECRET in str(parts.wire.messages)
        if restarts:
            parts = Parts(store, **USER)
        await memory.forget(key="fruit")
        await memory.purge()
        await look(parts)
        assert operations(parts)[-1:] == ["delete_triples"]
        assert isinstance(store, Compacts)
        await store.compact()
    for file in filter(Path.is_file, tmp_path.rglob("*")):
        assert SECRET.encode() not in file.read_bytes(), file.name


@pytest.mark.parametrize("is_forgotten", [True, False])
async def test_memory_that_changed_in_the_outbox_is_not_published(*, is_forgotten: bool) -> None:
    async with open_store("memory:") as store:
        parts = Parts(store, **USER)
        memory = parts.memory(user="42")
        record = (await memory.remember(key="fruit", value=SECRET)).record
        assert record is not None
        await memory.remember(key="drink", value="tea")
        parts.wire.is_down = True
        await parts.graph.publish_changes("l1", memory.principal)
        if is_forgotten:
            await memory.forget(key="fruit")
        else:
            await memory.update(record.id, confidence=0.5)
        parts.wire.is_down = False
        await look(parts)
        drink, *fruit = parts.wire.messages
        assert SECRET not in str(drink)
        expected = ["delete_triples"] if is_forgotten else ["delete_triples", "add_triples"]
        assert [message["operation"] for _, message in fruit] == expected


async def test_record_that_is_deleted_twice_stops_no_later_change() -> None:
    async with open_store("memory:") as store:
        clock = SetClock()
        parts = Parts(store, clock, **USER)
        memory = parts.memory(user="42")
        record = (await memory.remember(key="fruit", value=SECRET, ttl_days=1)).record
        assert record is not None
        await parts.graph.publish_changes("l1", memory.principal)
        for days in (2, -2, 2):  # it expires, the clock is set back, and it expires again
            clock.move(days=days)
            await parts.graph.publish_changes("l1", memory.principal)
        await memory.remember(key="drink", value="tea")
        await parts.graph.publish_changes("l1", memory.principal)
        assert operations(parts) == ["add_triples", "delete_triples", "add_triples", "delete_triples", "add_triples"]
        assert "tea" in str(parts.wire.messages[-1])


async def test_owner_without_a_route_only_loses_memories() -> None:
    ana = {"agent": "coder", "scopes": {"user": "{user_id}"}}
    team = {"agent": "coder", "scopes": {"team": "t"}}
    async with open_store("memory:") as store:
        old = Parts(store, loops=[ana])
        memory = old.memory(user="ana")
        await memory.remember(key="fruit", value="apple")
        await old.handler.handle(event("agent.context.compaction.l1", "l1", user_id="ana"))
        await old.chores.end("l1")
        await old.publisher.retry()
        mapped = Parts(store, loops=[ana])
        unmapped = Parts(store, loops=[{**ana, "loop_id": "l2"}, team])
        await look(unmapped)
        await memory.remember(key="drink", value=SECRET)
        await memory.forget(key="fruit")
        await look(unmapped)
        assert operations(unmapped) == ["delete_triples"]
        await look(mapped)
        assert operations(mapped) == ["add_triples"], "a route without an active loop is enough"
        await memory.remember(key="snack", value="nuts")
        await look(unmapped)
        assert operations(unmapped) == ["delete_triples"]
        await unmapped.handler.handle(event("agent.context.compaction.l2", "l2", user_id="ana", type="gc_complete"))
        await look(unmapped)
        assert operations(unmapped) == ["delete_triples", "add_triples"], "an active loop is enough"


async def test_damaged_ledger_of_a_loop_leaves_the_deletions_of_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store("memory:") as store:
        parts = Parts(store, **USER)
        memory = parts.memory(user="42")
        await memory.remember(key="fruit", value=SECRET)
        await parts.handler.handle(event("agent.context.compaction.l1", "l1"))
        await parts.publisher.retry()
        load_run = store.load_run

        async def load(agent: str, run: str, **options: Any) -> Snapshot:
            if run == "loop/l1":
                raise StoreCorrupt("a page is damaged")
            return await load_run(agent, run, **options)

        monkeypatch.setattr(store, "load_run", load)
        restarted = Parts(store, **USER)
        await memory.forget(key="fruit")
        await look(restarted)
        assert operations(restarted) == ["delete_triples"]


async def test_two_processors_publish_each_change_once() -> None:
    async with open_store("memory:") as store:
        processors = [Parts(store, **USER) for _ in range(2)]
        memory = processors[0].memory(user="42")
        for number in range(500):
            await memory.remember(key=f"fruit {number}", value="apple")
        await asyncio.gather(*(parts.graph.publish_changes("l1", memory.principal) for parts in processors))
        for parts in processors:
            await parts.graph.publish_changes("l1", memory.principal)
        published = {message["triples"][0]["context"] for parts in processors for _, message in parts.wire.messages}
        assert published == {record.id for record in await memory.list()}
        ledger = await store.load_run("@processor/AGENT", ledger_name(memory.principal))
        assert sum(isinstance(event.data, OutgoingMessage) for event in ledger.log) == 500


async def test_loops_of_one_owner_publish_its_changes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store("memory:") as store:
        routes = [
            {"loop_id": "a*", "agent": "coder", "scopes": {"user": "42"}},
            {"loop_id": "b*", "agent": "coder", "scopes": {"user": "42", "team": "t"}},
        ]
        parts = Parts(store, loops=routes)
        for loop_id in ("a1", "a2", "b1", "b2"):
            await parts.handler.handle(request(f"memory.hydrate.request.{loop_id}", loop_id))
        await look(parts)
        read: list[Principal] = []
        graph_changes = parts.loops.graph_changes

        async def note(loop: Loop, in_graph: Mapping[str, datetime]) -> GraphChanges:
            read.append(loop.principal)
            return await graph_changes(loop, in_graph)

        monkeypatch.setattr(parts.loops, "graph_changes", note)
        await parts.memory(user="42").remember(key="fruit", value="apple")
        await look(parts)
        assert read == [Principal("default", {"user": "42"})]
        await parts.memory(team="t").remember(key="drink", value="tea")
        await look(parts)
        await look(parts)
        assert read[1:] == [Principal("default", {"team": "t"})]
        assert operations(parts) == ["add_triples", "add_triples"]
