"""Each message has its effect, on a real server. ``tests/torture/test_processor.py`` has the kills."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from agent_memory_log import (
    AssistantMessage,
    InjectedContext,
    PlannerNote,
    Store,
    ToolCall,
    ToolResult,
    UserMessage,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import InvalidArgument, StoreUnavailable
from agent_memory_log.memory import Extraction, Extractor, MemoryClient, Preference, Principal, RunSlice
from agent_memory_log.processor import LoopMemory
from agent_memory_log.processor.transport import Component, Metadata, ProcessorSettings, register
from agent_memory_log.processor.transport.ledger import ExtractionPending, ExtractionSettled, Ledgers, MessageHandled
from agent_memory_log.processor.transport.wire import NatsWire
from tests import amlog
from tests.processor.deployment import (
    AGENT,
    BUCKET,
    CONSUMERS,
    LEDGERS,
    STREAM,
    SUBJECTS,
    Deployment,
    deployed,
    ledgers,
    outbox,
)
from tests.processor.extracting import WordExtractor
from tests.processor.kills import kill_at
from tests.waiting import PATIENCE

CONTEXTS = "agent.context.injected.>"
CHECKPOINTS = "memory.checkpoint.created.>"
MUTATIONS = "graph.mutation.>"


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processors in this process look at runs more often."""
    monkeypatch.setattr("agent_memory_log.processor.transport.chores._LOOK_PAUSE", 0.2)


@asynccontextmanager
async def running(
    deployment: Deployment, *, extractor: Extractor | None = None, settings: dict[str, object] | None = None
) -> AsyncGenerator[tuple[Component, Store]]:
    """Run a component in this process."""
    configured = ProcessorSettings.from_json(json.dumps({**deployment.settings, **(settings or {})}))
    async with open_store(deployment.store) as store:
        component = Component(configured, store, extractor=extractor or WordExtractor())
        await component.initialise()
        await component.start()
        try:
            yield component, store
        finally:
            await component.stop()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until an asynchronous condition is true."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110  # the server sets no event
            await asyncio.sleep(0.02)


def count(component: Component, name: str, **labels: str) -> float:
    return component.metrics.registry.get_sample_value(f"amlog_processor_{name}_total", labels) or 0.0


async def contexts(deployment: Deployment) -> list[dict[str, Any]]:
    return [json.loads(data) for _, _, data in await deployment.stored(CONTEXTS)]


async def test_messages_have_their_results(tmp_path: Path) -> None:
    async with deployed(tmp_path, "l1") as deployment, running(deployment) as (component, store):
        sent = [
            (await deployment.send(kind, "l1", **fields), kind, "l1")
            for kind, fields in (
                ("compaction_starting", {"utilization": 0.9, "user_id": "u"}),
                ("compaction_complete", {"tokens_saved": 5}),
                ("gc_complete", {}),
                ("pre_task", {"task_description": "Which language?"}),
                ("post_compaction", {}),
            )
        ]
        await deployment.settled()
        await deployment.check(sent)
        assert sorted(each["source"] for each in await contexts(deployment)) == [
            "post_compaction",
            "post_compaction",
            "pre_task",
        ]
        assert all("l1-python" in each["context"] and each["token_count"] > 0 for each in await contexts(deployment))
        run = await store.load_run(AGENT, "l1", types=[InjectedContext.event_type])
        assert len(run.log) == 3
        [(_, subject, data)] = await deployment.stored(CHECKPOINTS)
        assert subject == "memory.checkpoint.created.l1"
        pointer = await (await deployment.stream.key_value(BUCKET)).get(json.loads(data)["checkpoint_id"])
        assert pointer.value is not None
        assert len(pointer.value) < 1024
        status = await (await deployment.stream.key_value(BUCKET)).status()
        assert status.ttl == 7 * 86_400
        mutations = [json.loads(data) for _, _, data in await deployment.stored(MUTATIONS)]
        assert [(each["operation"], each["triples"][0]["object"]) for each in mutations] == [
            ("add_triples", "l1-python")
        ]
        assert count(component, "messages", port="compaction_events", outcome="handled") == 3
        assert component.health().healthy


@pytest.mark.parametrize(
    ("settings", "missing", "note"),
    [
        ({"extraction": {"llm_assisted": {"enabled": False}}}, MUTATIONS, ""),
        ({"checkpoint": {"enabled": False}}, CHECKPOINTS, ""),
        ({"hydration": {"post_compaction": {"enabled": False}}}, "post_compaction", "not enabled"),
        ({"hydration": {"pre_task": {"enabled": False}}}, "pre_task", "not enabled"),
    ],
)
async def test_switches_turn_results_off(tmp_path: Path, settings: dict[str, object], missing: str, note: str) -> None:
    async with deployed(tmp_path, "l1") as deployment, running(deployment, settings=settings) as (_, store):
        for kind in ("compaction_starting", "compaction_complete", "pre_task", "post_compaction"):
            await deployment.send(kind, "l1")
        await deployment.settled()
        kinds = {subject: bool(await deployment.stored(subject)) for subject in (MUTATIONS, CHECKPOINTS)}
        sources = {each["source"] for each in await contexts(deployment)}
        kinds |= {source: source in sources for source in ("pre_task", "post_compaction")}
        assert kinds == {kind: kind != missing for kind in kinds}
        handled = [
            event.data
            for event in (await store.load_run(LEDGERS, "loop/l1")).log
            if isinstance(event.data, MessageHandled)
        ]
        assert len(handled) == 4
        assert any(note in data.note for data in handled if data.kind == missing) or not note


@pytest.mark.parametrize(
    ("include", "words"),
    [("include_decisions", "Use pytest"), ("include_files", "src/main.py")],
)
async def test_parts_of_a_context_can_be_left_out(tmp_path: Path, include: str, words: str) -> None:
    async with deployed(tmp_path) as deployment:
        with open_sync_store(deployment.store) as store:
            store.append_events(
                AGENT,
                "l1",
                new_event(UserMessage(message="Write the tests.")),
                new_event(PlannerNote(note="Decision: Use pytest for the tests.")),
                new_event(ToolCall(tool_call_id="1", tool_name="write_file", payload_json='{"path": "src/main.py"}')),
                new_event(ToolResult(tool_call_id="1", tool_name="write_file", result_json='"ok"')),
                new_event(AssistantMessage(message="Done.")),
            )
        for included in (True, False):
            async with running(deployment, settings={"hydration": {"pre_task": {include: included}}}):
                await deployment.send("pre_task", "l1", task_description="Go on.")
                await deployment.settled()
            context = (await contexts(deployment))[-1]["context"]
            assert (words in context) == included, context


async def test_limits_and_switches_reach_the_loop_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Mapping[str, object]] = {}

    def record(name: str) -> None:
        original = getattr(LoopMemory, name)

        async def recorded(*arguments: Any, **arguments_by_name: Any) -> object:
            options[name] = {key: value for key, value in arguments_by_name.items() if key != "event_id"}
            return await original(*arguments, **arguments_by_name)

        monkeypatch.setattr(LoopMemory, name, recorded)

    for name in ("hydrate_pre_task", "hydrate_post_compaction", "checkpoint"):
        record(name)
    settings: dict[str, object] = {
        "hydration": {
            "pre_task": {"max_context_tokens": 300},
            "post_compaction": {"max_recovery_tokens": 200, "reconstruct_from_checkpoint": False},
        },
        "checkpoint": {"retention_days": 3, "storage_bucket": "OTHER"},
    }
    async with deployed(tmp_path, "l1") as deployment, running(deployment, settings=settings):
        for kind in ("pre_task", "compaction_complete", "compaction_starting"):
            await deployment.send(kind, "l1")
        await deployment.settled()
        assert options == {
            "hydrate_pre_task": {"max_tokens": 300, "decisions": True, "files": True},
            "hydrate_post_compaction": {"max_tokens": 200, "from_checkpoint": False},
            "checkpoint": {"reason": "compaction_starting", "retention_days": 3},
        }
        assert (await (await deployment.stream.key_value("OTHER")).status()).ttl == 3 * 86_400


async def test_two_deployments_answer_apart(tmp_path: Path) -> None:
    settings: dict[str, object] = {"consumer_name_suffix": "-b"}
    async with (
        deployed(tmp_path, "l1") as deployment,
        running(deployment),
        running(deployment, settings=settings) as (other, _),
    ):
        await deployment.send("pre_task", "l1")
        await deployment.settled()

        async def has_both() -> bool:
            return len(await contexts(deployment)) == 2

        await until(has_both)
        assert count(other, "messages", port="hydrate_requests", outcome="handled") == 1


async def test_loop_without_a_run_is_remembered_from_its_summary(tmp_path: Path) -> None:
    async with deployed(tmp_path) as deployment, running(deployment):
        sequence = await deployment.send("compaction_starting", "l7", summary="language is l7-python")
        await deployment.settled()
        await deployment.check([(sequence, "compaction_starting", "l7")])


async def test_unmapped_loops_and_other_users_are_refused_and_hold_up_no_later_message(tmp_path: Path) -> None:
    async with deployed(tmp_path, "l1") as deployment, running(deployment) as (component, store):
        sent = [(await deployment.send("gc_complete", "l1", user_id="ann"), "gc_complete", "l1")]
        await deployment.send("compaction_complete", "x1")
        await deployment.send("compaction_complete", "l1", user_id="ben")
        await deployment.send("pre_task", "x1")
        await deployment.send_bytes("agent.context.compaction.l1", b"{")
        sent.append((await deployment.send("gc_complete", "l1"), "gc_complete", "l1"))
        await deployment.settled()
        await deployment.check(sent, buried=1)
        refused = {
            port: count(component, "messages", port=port, outcome="refused")
            for port in ("compaction_events", "hydrate_requests")
        }
        assert refused == {"compaction_events": 2, "hydrate_requests": 1}
        assert [info.run for info in (await store.list_runs(AGENT)).runs] == ["l1"]


async def test_message_that_cannot_be_read_is_a_dead_letter(tmp_path: Path) -> None:
    async with deployed(tmp_path, "l1") as deployment, running(deployment) as (component, store):
        bad = [b"{", b'{"type": "pre_task", "loop_id": "l1.x"}', b"\xff" * 100_000]
        for data in bad:
            await deployment.send_bytes("memory.hydrate.request.l1", data)
        await deployment.settled()
        await deployment.check([], buried=3)
        letters = [event.data.to_map() for event in (await store.load_run(LEDGERS, "dead-letters")).log]
        assert [letter["size"] for letter in letters] == [len(data) for data in bad]
        assert "loop_id must be one token" in str(letters[1]["error"])
        assert count(component, "messages", port="hydrate_requests", outcome="buried") == 3


async def test_failed_extraction_is_tried_again(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    async with deployed(tmp_path, "l1") as deployment:
        extractor = WordExtractor(broken)
        async with running(deployment, extractor=extractor) as (component, store):
            sent = [(await deployment.send("compaction_starting", "l1"), "compaction_starting", "l1")]

            async def is_pending() -> bool:
                return any(
                    isinstance(event.data, ExtractionPending)
                    for event in (await store.load_run(LEDGERS, "loop/l1")).log
                )

            await until(is_pending)
            info = await deployment.stream.consumer_info(STREAM, "memory-compaction")
            await component.end_loop("l1")
            assert not await MemoryClient(store).of(Principal("default", {"user": "l1"})).list()
            assert count(component, "failures", work="extraction") >= 1
        assert info.num_pending == 0
        broken.unlink()
        async with running(deployment, extractor=extractor) as (_, store):
            await deployment.settled()
            await deployment.check(sent)
            events = (await store.load_run(LEDGERS, "loop/l1")).log
            assert sum(isinstance(event.data, ExtractionSettled) for event in events) == 1


async def test_end_of_a_loop_settles_its_extractions(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    extractor = WordExtractor(broken)
    async with deployed(tmp_path, "l1") as deployment:
        async with running(deployment, extractor=extractor) as (component, store):
            await deployment.send("gc_complete", "l1")
            await deployment.settled()
            broken.touch()
            await store.append_events(AGENT, "l1", new_event(UserMessage(message="editor is vim")))
            await component.end_loop("l1")
            broken.unlink()
            await component.end_loop("l1")
            record = await MemoryClient(store).of(Principal("default", {"user": "l1"})).get(key="editor")
            assert record is not None
            assert record.data == Preference("editor", "vim")
            assert len(await deployment.stored(CHECKPOINTS)) == 1
        async with running(deployment) as (component, _):
            await deployment.send("pre_task", "l2")
            await deployment.settled()
            await component.end_loop("l1")
            assert len(await deployment.stored(CHECKPOINTS)) == 1, "a new processor does not end it again"


async def test_loop_without_new_events_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory_log.processor.transport.chores.IDLE", timedelta(seconds=0.5))
    async with deployed(tmp_path, "l1") as deployment, running(deployment) as (_, store):
        await deployment.send("gc_complete", "l1")

        async def has_ended() -> bool:
            return len(await deployment.stored(CHECKPOINTS)) == 1

        await until(has_ended)
        assert await MemoryClient(store).of(Principal("default", {"user": "l1"})).get(key="language") is not None


async def test_iterations_in_the_log_trigger_an_extraction(tmp_path: Path) -> None:
    settings: dict[str, object] = {"extraction": {"llm_assisted": {"trigger_iteration_interval": 2}}}
    async with deployed(tmp_path, "l1") as deployment, running(deployment, settings=settings) as (_, store):
        await deployment.send("gc_complete", "l1")
        me = MemoryClient(store).of(Principal("default", {"user": "l1"}))
        await store.append_events(
            AGENT,
            "l1",
            new_event(AssistantMessage(message="one")),
            new_event(UserMessage(message="editor is vim")),
            new_event(AssistantMessage(message="two")),
        )

        async def is_known() -> bool:
            return await me.get(key="editor") is not None

        await until(is_known)

        async def is_published() -> bool:
            return len(await deployment.stored(MUTATIONS)) == 2

        await until(is_published)


async def test_forgotten_memory_leaves_the_graph_and_the_outbox(tmp_path: Path) -> None:
    async with deployed(tmp_path, "l1") as deployment, running(deployment) as (_, store):
        await deployment.send("compaction_starting", "l1")
        await deployment.settled()
        await MemoryClient(store).of(Principal("default", {"user": "l1"})).forget(key="language")

        async def deletions() -> bool:
            mutations = [json.loads(data) for _, _, data in await deployment.stored(MUTATIONS)]
            return [each["operation"] for each in mutations] == ["add_triples", "delete_triples"]

        await until(deletions)
        with open_sync_store(deployment.store) as log:
            assert not [message for _, message in outbox(log) if "l1-python" in str(message)]


async def test_failed_hydration_is_an_empty_context_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("the graph\nis gone")

    monkeypatch.setattr(LoopMemory, "hydrate_pre_task", fail)
    async with deployed(tmp_path, "l1") as deployment, running(deployment) as (component, _):
        sequence = await deployment.send("pre_task", "l1")
        await deployment.settled()
        [context] = await contexts(deployment)
        assert (context["context"], context["token_count"], context["source"]) == ("", 0, "pre_task")
        notes = await deployment.notes("agent.context.injected.l1")
        assert notes == ["hydration failed: RuntimeError: the graph is gone"]
        assert count(component, "failures", work="hydration") == 1
        await deployment.check([(sequence, "pre_task", "l1")])


async def test_failed_graph_holds_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(LoopMemory, "graph_changes", fail)
    async with deployed(tmp_path, "l1") as deployment, running(deployment) as (component, _):
        sequence = await deployment.send("compaction_starting", "l1")
        await deployment.settled()
        await deployment.check([(sequence, "compaction_starting", "l1")])
        assert count(component, "failures", work="graph") >= 1


@pytest.mark.parametrize(
    ("owner", "call"),
    [(Ledgers, "append"), (Ledgers, "refresh"), (LoopMemory, "hydrate_post_compaction"), (LoopMemory, "extract")],
)
async def test_message_waits_for_a_store_that_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type[Any], call: str
) -> None:
    original, left = getattr(owner, call), 3

    async def fail(*arguments: Any, **options: Any) -> object:
        nonlocal left
        left -= 1
        if left >= 0:
            raise StoreUnavailable("the disk is full")
        return await original(*arguments, **options)

    monkeypatch.setattr(owner, call, fail)
    kind = "compaction_starting" if call == "extract" else "compaction_complete"
    async with deployed(tmp_path, "l1") as deployment, running(deployment) as (component, _):
        sequence = await deployment.send(kind, "l1")
        await deployment.settled()
        await deployment.check([(sequence, kind, "l1")])
        assert set(await deployment.notes(CONTEXTS)) <= {""}, "the context was not lost"
        assert 0 < count(component, "messages", port="compaction_events", outcome="retried") <= 3


async def test_unexpected_error_ends_no_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pull, failed = NatsWire.pull, set[object]()

    async def fail(wire: NatsWire, stream: str, consumer: str, subject: str, *, newest_only: bool) -> Any:
        if consumer not in failed:
            failed.add(consumer)
            raise RuntimeError("a defect")
        return await pull(wire, stream, consumer, subject, newest_only=newest_only)

    monkeypatch.setattr(NatsWire, "pull", fail)
    async with deployed(tmp_path, "l1") as deployment, running(deployment):
        sent = [(await deployment.send(kind, "l1"), kind, "l1") for kind in ("compaction_complete", "pre_task")]
        await deployment.settled()
        await deployment.check(sent)


async def test_unexpected_error_ends_as_a_dead_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_arguments: object) -> bool:
        raise RuntimeError("a defect")

    monkeypatch.setattr(Ledgers, "append", fail)
    monkeypatch.setattr("agent_memory_log.processor.transport.consuming._FIRST_PAUSE", 0.001)
    async with deployed(tmp_path, "l1") as deployment, running(deployment) as (component, _):
        await deployment.send("gc_complete", "l1")
        await deployment.settled()
        await deployment.check([], buried=1)
        assert count(component, "messages", port="compaction_events", outcome="retried") == 9


async def test_unpublished_message_stays_in_the_outbox(tmp_path: Path) -> None:
    async with deployed(tmp_path, "l1") as deployment:
        inputs = ["agent.context.compaction.>", "memory.hydrate.request.*"]
        await deployment.serve_only(*inputs)
        async with running(deployment) as (component, _):
            sent = [(await deployment.send(kind, "l1"), kind, "l1") for kind in ("compaction_starting", "pre_task")]

            await until(deployment.is_acknowledged)
            with open_sync_store(deployment.store) as store:
                assert sum(len(ledger.unpublished) for ledger in ledgers(store).values()) == 3
            assert component.health().unpublished == 3
        await deployment.serve_only(*SUBJECTS)
        async with running(deployment):
            await deployment.settled()
            await deployment.check(sent)


async def test_change_of_an_entity_reaches_the_loops_that_know_it(tmp_path: Path) -> None:
    async with deployed(tmp_path, "l1", "l2") as deployment:
        await deployment.make_bucket()
        states = await deployment.stream.key_value("ENTITY_STATES")
        with open_sync_store(deployment.store) as log:
            log.append_events(AGENT, "l1", new_event(UserMessage(message="database is postgres")))
        async with running(deployment) as (_, store):
            for loop_id in ("l1", "l2"):
                await deployment.send("compaction_starting", loop_id)
            await deployment.settled()
            me = MemoryClient(store).of(Principal("default", {"user": "l1"}))
            record = await me.get(key="database")
            assert record is not None
            await me.update(record.id, entities=["postgres"])
            await states.put("postgres", b"restarted")

            async def is_answered() -> bool:
                return [each["loop_id"] for each in await contexts(deployment)] == ["l1"]

            await until(is_answered)


async def test_component_has_a_life(tmp_path: Path) -> None:
    registered: dict[str, Any] = {}

    class Registry:
        def register(self, name: str, make: Any, **described: Any) -> None:
            registered.update({"name": name, "make": make, **described})

    register(Registry())
    assert registered["name"] == "agentic-memory"
    assert registered["metadata"] == Metadata()
    assert registered["schema"] == ProcessorSettings.json_schema()
    async with deployed(tmp_path) as deployment:
        await deployment.stream.delete_stream(STREAM)
        async with open_store(deployment.store) as store:
            component: Component = registered["make"](deployment.settings, store, WordExtractor())
            assert component.health().status == "made"
            for call in (component.start, component.stop):
                with pytest.raises(InvalidArgument, match="needs a component that is"):
                    await call()
            await component.initialise()
            await component.start()
            assert [(port.name, port.direction) for port in component.ports][:3] == [
                ("compaction_events", "in"),
                ("hydrate_requests", "in"),
                ("entity_states", "in"),
            ]
            assert component.metadata.type == "processor"

            async def knows_the_problem() -> bool:
                return "stream AGENT" in component.health().problems.get("compaction_events", "")

            await until(knows_the_problem)
            assert not component.health().healthy
            await deployment.make_stream()

            async def is_healthy() -> bool:
                return component.health().healthy

            await until(is_healthy)
            await deployment.send("gc_complete", "l1")
            await deployment.settled()
            flow = component.data_flow()
            assert flow.messages_per_second > 0
            assert flow.bytes_per_second > 0
            assert (flow.error_rate, flow.last_activity is None) == (0.0, False)
            assert (
                b'amlog_processor_messages_total{outcome="handled",port="compaction_events"} 1.0'
                in component.metrics.text()
            )
            assert await component.stop()
            assert component.health().status == "stopped"


async def test_file_of_credentials_must_be_readable(tmp_path: Path) -> None:
    settings = ProcessorSettings(credentials_file=str(tmp_path / "none.creds"))
    async with open_store("memory://") as store:
        with pytest.raises(InvalidArgument, match=r"none\.creds: No such file"):
            await Component(settings, store, extractor=WordExtractor()).initialise()


async def test_component_starts_before_its_server(tmp_path: Path) -> None:
    async with deployed(tmp_path, "l1") as deployment:
        deployment.server.kill()
        async with running(deployment) as (component, _):
            assert component.health().problems["connection"]
            deployment.server.start()
            sequence = await deployment.send("compaction_complete", "l1")
            await deployment.settled()
            await deployment.check([(sequence, "compaction_complete", "l1")])


async def test_stop_finishes_accepted_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extract, began, may_end = LoopMemory.extract, asyncio.Event(), asyncio.Event()

    async def slow(*arguments: Any, **options: Any) -> Any:
        began.set()
        await may_end.wait()
        return await extract(*arguments, **options)

    monkeypatch.setattr(LoopMemory, "extract", slow)
    async with deployed(tmp_path, "l1") as deployment, open_store(deployment.store) as store:
        settings = ProcessorSettings.from_json(json.dumps(deployment.settings))
        sequence = await deployment.send("compaction_starting", "l1")
        for finishes in (False, True):
            component = Component(settings, store, extractor=WordExtractor())
            await component.initialise()
            await component.start()
            await began.wait()
            stop = asyncio.create_task(component.stop(timeout=PATIENCE if finishes else 0.1))
            if finishes:
                may_end.set()
            assert await stop == finishes
            began.clear()
        await deployment.settled()
        await deployment.check([(sequence, "compaction_starting", "l1")])


async def test_two_processors_share_the_work(tmp_path: Path) -> None:
    loop_ids = [f"l{number}" for number in range(6)]
    async with deployed(tmp_path, *loop_ids, concurrency=1) as deployment:
        is_blocked, may_continue = asyncio.Event(), asyncio.Event()

        class Blocked(WordExtractor):
            def extract(self, new: RunSlice, /) -> Extraction:
                loop.call_soon_threadsafe(is_blocked.set)
                asyncio.run_coroutine_threadsafe(may_continue.wait(), loop).result(PATIENCE)
                return super().extract(new)

        loop = asyncio.get_running_loop()
        async with running(deployment, extractor=Blocked()) as (first, _):
            sent = [(await deployment.send("compaction_starting", "l0"), "compaction_starting", "l0")]
            await is_blocked.wait()
            async with running(deployment) as (second, _):
                sent += [
                    (await deployment.send(kind, loop_id), kind, loop_id)
                    for loop_id in loop_ids[1:]
                    for kind in ("compaction_starting", "compaction_complete")
                ]

                async def has_the_rest() -> bool:
                    return count(second, "messages", port="compaction_events", outcome="handled") >= len(sent) - 2

                await until(has_the_rest)
                may_continue.set()
                await deployment.settled()
                await deployment.check(sent)
                assert count(first, "messages", port="compaction_events", outcome="handled") >= 1


async def test_late_and_repeated_messages_are_handled_once_each(tmp_path: Path) -> None:
    async with deployed(tmp_path, "l1") as deployment:
        kinds = [
            "compaction_complete",
            "compaction_starting",
            "gc_complete",
            "compaction_starting",
            "compaction_complete",
        ]
        sent = [
            (await deployment.send(kind, "l1", iteration=9 - number), kind, "l1") for number, kind in enumerate(kinds)
        ]
        async with running(deployment):
            await deployment.settled()
        # The acknowledgements are lost: a new consumer delivers every message again.
        for name in CONSUMERS:
            await deployment.stream.delete_consumer(STREAM, name)
        async with running(deployment) as (component, _):
            await deployment.settled()
            assert count(component, "messages", port="compaction_events", outcome="repeated") == len(kinds)
        await deployment.check(sent)


async def test_stream_that_is_made_again_is_served(tmp_path: Path) -> None:
    async with deployed(tmp_path, "l1") as deployment, running(deployment) as (_, store):
        await deployment.send("compaction_complete", "l1")
        await deployment.settled()
        await deployment.stream.delete_stream(STREAM)
        await deployment.make_stream()
        assert await deployment.send("compaction_complete", "l1") == 1, "the sequences begin again"
        await deployment.settled()
        handled = [
            event.data
            for event in (await store.load_run(LEDGERS, "loop/l1")).log
            if isinstance(event.data, MessageHandled)
        ]
        assert [data.sequence for data in handled] == [1, 1]
        assert len(await contexts(deployment)) == 1


async def test_stream_that_is_purged_during_a_message_loses_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hydrate, began, may_end = LoopMemory.hydrate_post_compaction, asyncio.Event(), asyncio.Event()

    async def slow(*arguments: Any, **options: Any) -> Any:
        began.set()
        await may_end.wait()
        return await hydrate(*arguments, **options)

    monkeypatch.setattr(LoopMemory, "hydrate_post_compaction", slow)
    async with deployed(tmp_path, "l1") as deployment, running(deployment) as (component, _):
        sent = [(await deployment.send("compaction_complete", "l1"), "compaction_complete", "l1")]
        await began.wait()
        await deployment.stream.purge_stream(STREAM)
        may_end.set()
        sent.append((await deployment.send("compaction_complete", "l1"), "compaction_complete", "l1"))
        await deployment.settled()
        await deployment.check(sent)
        assert component.health().healthy


async def test_changed_settings_reach_the_consumers_of_an_earlier_configuration(tmp_path: Path) -> None:
    async with deployed(tmp_path, "l1") as deployment:
        async with running(deployment):
            sent = [(await deployment.send("compaction_complete", "l1"), "compaction_complete", "l1")]
            await deployment.settled()
        settings: dict[str, object] = {"ports": {"compaction_events": "agent.other.*"}, "ack_seconds": 7}
        async with running(deployment, settings=settings):
            message = json.dumps({"type": "gc_complete", "loop_id": "l1", "iteration": 1}).encode()
            sent.append((await deployment.send_bytes("agent.other.l1", message), "gc_complete", "l1"))

            async def is_handled() -> bool:
                with open_sync_store(deployment.store) as log:
                    return len(ledgers(log)["loop/l1"].handled) == len(sent)

            await until(is_handled)
            await deployment.settled()
            await deployment.check(sent)
            info = await deployment.stream.consumer_info(STREAM, "memory-compaction")
            assert (info.config.filter_subject, info.config.ack_wait) == ("agent.other.*", 7)


async def test_bucket_of_entities_that_is_made_again_is_served(tmp_path: Path) -> None:
    async with deployed(tmp_path, "l1") as deployment, running(deployment) as (component, store):
        memory = MemoryClient(store).of(Principal("default", {"user": "l1"}))
        await memory.remember(key="database", value="postgres", entities=["postgres"])
        await deployment.send("gc_complete", "l1")
        await deployment.settled()
        for number in (1, 2):
            await deployment.make_bucket()
            await (await deployment.stream.key_value("ENTITY_STATES")).put("postgres", b"restarted")

            async def is_answered(number: int = number) -> bool:
                return len(await contexts(deployment)) == number

            await until(is_answered)
            assert component.health().problems == {}
            await deployment.stream.delete_key_value("ENTITY_STATES")


async def test_bucket_that_is_deleted_is_made_again(tmp_path: Path) -> None:
    async with deployed(tmp_path, "l1") as deployment, running(deployment):
        for _ in range(2):
            await deployment.send("compaction_starting", "l1")
            await deployment.settled()
            [*_, (_, _, data)] = await deployment.stored(CHECKPOINTS)
            bucket = await deployment.stream.key_value(BUCKET)
            assert (await bucket.get(json.loads(data)["checkpoint_id"])).value
            await deployment.stream.delete_key_value(BUCKET)


@pytest.mark.parametrize("signals", [1, 2])
async def test_command_runs_a_processor_until_a_signal(tmp_path: Path, signals: int) -> None:
    async with deployed(tmp_path, "l1") as deployment:
        arguments = ("processor", "run", "--config", str(deployment.config), "--store", deployment.store)
        with amlog.start(*arguments) as process:
            try:
                assert process.stdout is not None
                assert await asyncio.to_thread(process.stdout.readline) == b"takes messages of the stream AGENT\n"
                if signals == 1:
                    sequence = await deployment.send("compaction_complete", "l1")
                    await deployment.settled()
                    await deployment.check([(sequence, "compaction_complete", "l1")])
                for _ in range(signals):
                    process.send_signal(signal.SIGTERM)
                out, _ = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
                assert out == b""
                assert process.returncode in ((0,) if signals == 1 else (0, 128 + signal.SIGTERM))
            finally:
                process.kill()


def test_command_refuses_a_wrong_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = amlog.Amlog(tmp_path, capsys)
    config = command.file("processor.json", '{"hydration": {"pre_task": {"max_context_tokens": 0}}}')
    arguments = ("processor", "run", "--store", command.url, "--config")
    assert "hydration.pre_task.max_context_tokens" in command.error(*arguments, config, status=2)
    assert "No such file" in command.error(*arguments, str(tmp_path / "none.json"), status=2)
    schema = command.ok("processor", "schema").json
    assert "checkpoint" in schema["$defs"]["ProcessorSettings"]["properties"]


@pytest.mark.parametrize(("step", "when"), [("append", "before"), ("ack", "before"), ("entities", "after")])
async def test_kill_leaves_the_same_end_state(tmp_path: Path, step: str, when: Literal["before", "after"]) -> None:
    """``make torture`` kills at every step."""
    await kill_at(step, when, "both", tmp_path)
