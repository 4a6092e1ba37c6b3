"""A handler without NATS: the loops that a message reaches, and its effects."""

# pyright: reportPrivateUsage=false
# The chores run by themselves in pauses, which a test does not wait for.

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, tzinfo
from itertools import pairwise
from pathlib import Path
from typing import Any, Self
from unittest.mock import Mock

import pytest

from agent_memory_log import AssistantMessage, Event, Snapshot, UserMessage, new_event, open_store
from agent_memory_log.errors import StoreCorrupt
from agent_memory_log.processor import Loop, LoopContext
from agent_memory_log.processor.transport import chores, handling
from agent_memory_log.processor.transport.messages import Incoming
from agent_memory_log.store import RunHead
from tests.processor.deployment import AGENT
from tests.processor.handler import Parts
from tests.waiting import PATIENCE


def event(subject: str, loop_id: str, **fields: object) -> Incoming:
    message = {"type": "compaction_starting", "loop_id": loop_id, "iteration": 1, **fields}
    return Incoming("compaction_events", subject, json.dumps(message).encode(), f"id of {fields}", 1)


def request(subject: str, loop_id: str) -> Incoming:
    message = {"type": "post_compaction", "loop_id": loop_id}
    return Incoming("hydrate_requests", subject, json.dumps(message).encode(), "request", 1)


def moved(by: timedelta) -> type[datetime]:
    """Return ``datetime`` with a clock that is set forward or back."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + by

    return Clock


def change(entity: str) -> Incoming:
    return Incoming("entity_states", f"$KV.ENTITY_STATES.{entity}", b"", "change", 1)


@pytest.mark.parametrize(
    "incoming",
    [
        event("agent.context.compaction.mallory", "victim", user_id="mallory"),
        event("agent.context.compaction.victim.mallory", "victim", user_id="mallory"),
        request("memory.hydrate.request.mallory", "victim"),
    ],
)
async def test_message_on_the_subject_of_another_loop_is_a_dead_letter(incoming: Incoming) -> None:
    async with open_store("memory:") as store:
        parts = Parts(store, loops=[{"agent": AGENT, "scopes": {"user": "{user_id}"}}])
        await store.append_events(AGENT, "victim", new_event(UserMessage("vault is tangerine")))
        assert await parts.handler.handle(incoming) == "buried"
        assert not await parts.memory(user="mallory").list()
        assert not parts.handler.active
        own = event("agent.context.compaction.victim", "victim", user_id="owner")
        assert await parts.handler.handle(own) == "handled"
        assert await parts.memory(user="owner").get(key="vault") is not None


async def test_subject_without_a_loop_takes_messages_of_all_loops() -> None:
    async with open_store("memory:") as store:
        ports = {"compaction_events": "my.events"}
        parts = Parts(store, loops=[{"agent": AGENT, "scopes": {"team": "t"}}], ports=ports)
        assert await parts.handler.handle(event("my.events", "l1")) == "handled"


async def test_message_while_a_loop_ends_keeps_it_active(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store("memory:") as store:
        parts = Parts(store, loops=[{"agent": AGENT, "scopes": {"team": "t"}}])
        incoming = event("agent.context.compaction.l1", "l1")
        later = event("agent.context.compaction.l1", "l1", utilization=0.5)
        extract = parts.handler.extract_from_run

        async def extract_slowly(loop_id: str, loop: Loop) -> None:
            await extract(loop_id, loop)
            await parts.handler.handle(later)

        await parts.handler.handle(incoming)
        monkeypatch.setattr(parts.handler, "extract_from_run", extract_slowly)
        await parts.chores.end("l1")
        assert [*parts.handler.active] == ["l1"]
        monkeypatch.undo()
        restarted = Parts(store, **TEAM)
        await restarted.chores._take_up()
        assert [*restarted.handler.active] == ["l1"], "another processor ends it if this one does not"
        await parts.chores.end("l1")
        assert not parts.handler.active
        assert ["-end-" in checkpoint for checkpoint in checkpoints(parts)] == [False, False, True]


async def test_loop_that_ends_while_the_chores_look_stays_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store("memory:") as store:
        parts = Parts(store, **TEAM)
        await parts.handler.handle(event("agent.context.compaction.l1", "l1"))
        await store.append_events(AGENT, "l1", new_event(UserMessage("vault is tangerine")))
        peek_runs = store.peek_runs

        async def peek_slowly(runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
            heads = await peek_runs(runs)
            await parts.chores.end("l1")
            return heads

        monkeypatch.setattr(store, "peek_runs", peek_slowly)
        await parts.chores._look_at_runs()
        assert not parts.handler.active, "a loop that ended meanwhile does not become active again"


async def test_message_to_another_processor_while_a_loop_ends_keeps_it_active(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store("memory:") as store:
        parts, other = Parts(store, **TEAM), Parts(store, **TEAM)
        await parts.handler.handle(event("agent.context.compaction.l1", "l1"))
        checkpoint = parts.handler.checkpoint

        async def checkpoint_slowly(*arguments: Any) -> list[Event]:
            await other.handler.handle(event("agent.context.compaction.l1", "l1", type="gc_complete"))
            return await checkpoint(*arguments)

        monkeypatch.setattr(parts.handler, "checkpoint", checkpoint_slowly)
        await parts.chores.end("l1")
        restarted = Parts(store, **TEAM)
        await restarted.chores._take_up()
        assert [*restarted.handler.active] == ["l1"]


async def test_change_of_an_entity_leaves_a_loop_that_another_processor_ended() -> None:
    async with open_store("memory:") as store:
        parts, other = Parts(store, **TEAM), Parts(store, **TEAM)
        await parts.memory(team="t").remember(key="database", value="postgres", entities=["postgres"])
        await parts.handler.handle(event("agent.context.compaction.l1", "l1", type="gc_complete"))
        await other.chores.end("l1")
        assert await parts.handler.handle(change("postgres")) == "repeated"
        assert not parts.wire.messages
        assert not parts.handler.active
        restarted = Parts(store, **TEAM)
        await restarted.chores._take_up()
        assert not restarted.handler.active, "it stays ended"


async def test_loop_that_ends_during_the_change_of_an_entity_gets_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store("memory:") as store:
        parts = Parts(store, loops=[{"agent": AGENT, "scopes": {"team": "t"}}])
        await parts.memory(team="t").remember(key="database", value="postgres", entities=["postgres"])
        await parts.handler.handle(event("agent.context.compaction.l1", "l1"))
        hydrate = parts.loops.hydrate_for_entities

        async def hydrate_slowly(*arguments: Any, **options: Any) -> LoopContext:
            context = await hydrate(*arguments, **options)
            parts.handler.active.clear()
            return context

        monkeypatch.setattr(parts.loops, "hydrate_for_entities", hydrate_slowly)
        assert await parts.handler.handle(change("postgres")) == "handled"
        assert "postgres" in str(parts.wire.messages[-1])


def checkpoints(parts: Parts) -> list[str]:
    """Return the ids of the published checkpoints."""
    return [message["checkpoint_id"] for _, message in parts.wire.messages if "checkpoint_id" in message]


TEAM: Mapping[str, Any] = {"loops": [{"agent": AGENT, "scopes": {"team": "t"}}]}


async def contexts_of_a_change(**hydration: object) -> list[dict[str, Any]]:
    """Return the contexts that the change of an entity brings about for the loop of another processor."""
    async with open_store("memory:") as store:
        other = Parts(store, **TEAM)
        for number in range(20):
            await other.memory(team="t").remember(key=f"database {number}", value="x " * 40, entities=["postgres"])
        await other.handler.handle(event("agent.context.compaction.l1", "l1"))
        parts = Parts(store, **TEAM, hydration=hydration)
        for _ in range(2):
            await parts.handler.handle(change("postgres"))
        return [message for _, message in parts.wire.messages if "context" in message]


async def test_change_of_an_entity_reaches_the_loops_of_other_processors_once() -> None:
    (context,) = await contexts_of_a_change()
    assert context["loop_id"] == "l1"
    assert 300 < context["token_count"] <= 1_500


async def test_change_of_an_entity_follows_the_settings_of_contexts() -> None:
    assert not await contexts_of_a_change(post_compaction={"enabled": False})
    (context,) = await contexts_of_a_change(post_compaction={"max_recovery_tokens": 300})
    assert context["token_count"] <= 300


async def test_loops_of_a_processor_that_ended_are_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store("memory:") as store:
        remaining, ended = Parts(store, **TEAM), Parts(store, **TEAM)
        await remaining.chores._take_up()
        ended.wire.is_down = True
        await ended.handler.handle(request("memory.hydrate.request.l1", "l1"))
        await store.append_events(AGENT, "l1", new_event(UserMessage("vault is tangerine")))
        await remaining.chores._take_up()
        assert not remaining.handler.active, "the other processor may still run"
        restarted = Parts(store, **TEAM)
        await restarted.chores._take_up()
        assert [*restarted.handler.active] == ["l1"]
        await remaining.publisher.retry()
        assert len(remaining.wire.messages) == 1, "its outbox is published"
        monkeypatch.setattr(chores, "datetime", moved(timedelta(hours=1.5)))
        await remaining.chores._take_up()
        await remaining.chores.end("l1")
        assert await remaining.memory(team="t").get(key="vault") is not None


@pytest.mark.parametrize("days", [2, -2])
async def test_clock_that_jumps_ends_no_loop(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    async with open_store("memory:") as store:
        parts = Parts(store, **TEAM)
        await parts.handler.handle(event("agent.context.compaction.l1", "l1"))
        for module in (chores, handling):
            monkeypatch.setattr(module, "datetime", moved(timedelta(days=days)))
        await parts.chores._take_up()
        await parts.chores._look_at_runs()
        assert [*parts.handler.active] == ["l1"]
        assert await parts.handler.handle(request("memory.hydrate.request.l1", "l1")) == "handled"
        monkeypatch.undo()
        assert await parts.handler.handle(request("memory.hydrate.request.l1", "l1")) == "repeated"


@pytest.mark.parametrize("enabled", [True, False])
async def test_loop_ends_once_after_each_message(*, enabled: bool) -> None:
    async with open_store("memory:") as store:
        parts = Parts(store, **TEAM, checkpoint={"enabled": enabled})
        for number in range(2):
            await parts.handler.handle(event("agent.context.compaction.l1", "l1", iteration=number, type="gc_complete"))
            for _ in range(2):
                await parts.chores.end("l1")
        restarted = Parts(store, **TEAM)
        await restarted.chores._take_up()
        assert not restarted.handler.active
        assert len(parts.wire.messages) == (2 if enabled else 0)


async def test_checkpoints_of_all_loops_and_deployments_have_their_own_ids() -> None:
    async with open_store("memory:") as store:
        ids: list[str] = []
        for deployment in ("AGENT", "AGENT-b"):
            parts = Parts(store, **TEAM, deployment=deployment)
            for loop_id in ("a-b", "a_b", "é", "ü"):
                await parts.handler.handle(request(f"memory.hydrate.request.{loop_id}", loop_id))
                await parts.chores.end(loop_id)
            ids += checkpoints(parts)
        assert len(set(ids)) == 8


@pytest.mark.parametrize(
    ("assisted", "triggers", "ends"),
    [
        ({"trigger_iteration_interval": 3, "trigger_context_threshold": 1.0}, True, True),
        ({"trigger_iteration_interval": 4, "trigger_context_threshold": 1.0}, False, True),
        ({"trigger_iteration_interval": 0, "trigger_context_threshold": 1.0}, False, True),
        ({"trigger_iteration_interval": 0, "trigger_context_threshold": 0.001}, True, True),
        ({"enabled": False, "trigger_iteration_interval": 1, "trigger_context_threshold": 0.001}, False, False),
    ],
)
async def test_triggers_of_extraction_follow_their_settings(
    assisted: dict[str, object], *, triggers: bool, ends: bool
) -> None:
    async with open_store("memory:") as store:
        parts = Parts(store, **TEAM, extraction={"llm_assisted": assisted})
        await parts.handler.handle(event("agent.context.compaction.l1", "l1", type="gc_complete"))
        for number in range(3):
            answer = new_event(AssistantMessage("word " * 300))
            await store.append_events(AGENT, "l1", new_event(UserMessage(f"fruit {number} is apple")), answer)
        await parts.chores._look_at_runs()
        assert len(await parts.memory(team="t").list()) == (3 if triggers else 0)
        await parts.chores.end("l1")
        assert len(await parts.memory(team="t").list()) == (3 if ends else 0)


async def test_errors_with_any_text_lose_no_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "agent_memory_log.processor")  # xdist cannot send the text

    async def fail(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("\ud800 " * 1_000)

    async with open_store("memory:") as store:
        parts = Parts(store, **TEAM)
        for name in ("extract", "hydrate_pre_task", "hydrate_post_compaction", "checkpoint", "graph_changes"):
            monkeypatch.setattr(parts.loops, name, fail)
        for incoming in (
            event("agent.context.compaction.l1", "l1"),
            event("agent.context.compaction.l1", "l1", type="compaction_complete"),
            request("memory.hydrate.request.l1", "l1"),
        ):
            assert await parts.handler.handle(incoming) == "handled"
        assert [message["context"] for _, message in parts.wire.messages] == ["", ""]
        assert parts.ledgers.pending() == ["loop/l1"]
        assert await parts.handler.bury(change("x"), "\ud800") == "buried"


async def test_graph_holds_up_no_message_of_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    async def wait(*_arguments: object, **_options: object) -> None:
        began.set()
        await may_end.wait()

    async with open_store("memory:") as store:
        parts = Parts(store, **TEAM)
        monkeypatch.setattr(parts.graph, "publish_changes", wait)
        first = asyncio.create_task(parts.handler.handle(event("agent.context.compaction.l1", "l1")))
        await began.wait()
        async with asyncio.timeout(PATIENCE):
            assert await parts.handler.handle(request("memory.hydrate.request.l1", "l1")) == "handled"
        may_end.set()
        assert await first == "handled"


@pytest.mark.parametrize("is_idle", [True, False])
async def test_failed_extraction_of_a_loop_waits_for_its_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_idle: bool
) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    seconds = [0.0]
    for module in (chores, handling):
        monkeypatch.setattr(module, "monotonic", lambda: seconds[0])
    async with open_store("memory:") as store:
        assisted = {"trigger_iteration_interval": 1}
        parts = Parts(store, broken=broken, **TEAM, extraction={"llm_assisted": assisted})
        await store.append_events(AGENT, "l1", new_event(UserMessage("vault is tangerine")))
        await parts.handler.handle(event("agent.context.compaction.l1", "l1"))
        await parts.chores._look_at_runs()
        extractor = parts.client.extractor
        assert extractor is not None
        extract = Mock(wraps=extractor.extract)
        monkeypatch.setattr(extractor, "extract", extract)
        seconds[0] += 2 * handling.IDLE.total_seconds()
        for _ in range(3):
            if not is_idle:
                await store.append_events(AGENT, "l1", new_event(AssistantMessage("I'll open it.")))
            await parts.chores._look_at_runs()
        assert not extract.mock_calls
        broken.unlink()
        seconds[0] += 2 * handling.IDLE.total_seconds()
        await parts.chores._settle_extractions()
        for _ in range(2):
            await parts.chores._look_at_runs()
        assert not parts.handler.active
        assert await parts.memory(team="t").get(key="vault") is not None


async def test_damaged_ledger_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store("memory:") as store:
        parts = Parts(store, **TEAM)
        for loop_id in ("l1", "l2", "l3"):
            await parts.handler.handle(request(f"memory.hydrate.request.{loop_id}", loop_id))
        load_run = store.load_run

        async def load(agent: str, run: str, **options: Any) -> Snapshot:
            if run == "loop/l2":
                raise StoreCorrupt("a page is damaged")
            return await load_run(agent, run, **options)

        monkeypatch.setattr(store, "load_run", load)
        restarted = Parts(store, **TEAM)
        await restarted.chores._take_up()
        assert restarted.handler.active.keys() == {"l1", "l3"}


async def test_loop_is_ended_by_a_processor_without_its_messages() -> None:
    async with open_store("memory:") as store:
        await Parts(store, **TEAM).handler.handle(request("memory.hydrate.request.l1", "l1"))
        await store.append_events(AGENT, "l1", new_event(UserMessage("vault is tangerine")))
        other = Parts(store, **TEAM)
        for _ in range(2):
            await other.chores.end("l1")
        await other.chores.end("l2")
        assert await other.memory(team="t").get(key="vault") is not None
        assert [subject for subject, _ in other.wire.messages].count("memory.checkpoint.created.l1") == 1


async def test_failed_extractions_are_tried_again_in_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    seconds = [0.0]
    monkeypatch.setattr(chores, "monotonic", lambda: seconds[0])
    async with open_store("memory:") as store:
        parts = Parts(store, broken=broken, **TEAM)
        await store.append_events(AGENT, "l1", new_event(UserMessage("vault is tangerine")))
        await parts.handler.handle(event("agent.context.compaction.l1", "l1"))
        tries: list[float] = []
        settle = parts.handler.settle_extractions

        async def note(name: str) -> bool:
            tries.append(seconds[0])
            return await settle(name)

        monkeypatch.setattr(parts.handler, "settle_extractions", note)
        for seconds[0] in map(float, range(15_000)):
            await parts.chores._settle_extractions()
        pauses = [later - earlier for earlier, later in pairwise(tries)]
        assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600, 3600]
        broken.unlink()
        seconds[0] += 3_600
        await parts.chores._settle_extractions()
        assert await parts.memory(team="t").get(key="vault") is not None
        assert not parts.ledgers.pending()
