"""Tests that the synchronous transfers return the same results as the asynchronous ones."""

from __future__ import annotations

from agent_memory_log import Event, PlannerNote, Store, SyncStore, UserMessage, new_event, open_store, open_sync_store
from agent_memory_log.transcript import import_transcript, import_transcript_sync
from agent_memory_log.transfer.copying import copy_store, copy_store_sync
from agent_memory_log.transfer.jsonl import (
    export_run,
    export_run_sync,
    export_store,
    export_store_sync,
    import_jsonl,
    import_jsonl_sync,
)

EVENTS = [new_event(UserMessage("hello")), new_event(PlannerNote("think")), new_event(UserMessage("bye"))]


async def fill(store: Store) -> None:
    for run, events in (("one", EVENTS), ("two", EVENTS[:1])):
        await store.append_events("agent", run, *events, meta={"run": run})
    await store.redact_events("agent", "one", [2], reason="asked")


def fill_sync(store: SyncStore, lines: list[bytes]) -> None:
    """Import an export of the other store, so that the redaction marker has the same id and time in both."""
    import_jsonl_sync(store, lines)


async def test_synchronous_exports_and_imports_give_the_same_results() -> None:
    async with open_store("memory:") as store:
        await fill(store)
        lines = [line async for line in export_store(store)]
        run = [line async for line in export_run(store, "agent", "one")]
        nothing = [line async for line in export_run(store, "agent", "unknown")]
    async with open_store("memory:") as store:
        imported = await import_jsonl(store, lines)
    with open_sync_store("memory:") as sync:
        assert import_jsonl_sync(sync, lines) == imported
        assert list(export_store_sync(sync)) == lines
        assert list(export_run_sync(sync, "agent", "one")) == run
        assert list(export_run_sync(sync, "agent", "unknown")) == nothing == []


async def test_synchronous_copies_give_the_same_results() -> None:
    async with open_store("memory:") as source, open_store("memory:") as target:
        await fill(source)
        lines = [line async for line in export_store(source)]
        expected = [copied async for copied in copy_store(source, target)]
    with open_sync_store("memory:") as source_sync, open_sync_store("memory:") as target_sync:
        fill_sync(source_sync, lines)
        copied = list(copy_store_sync(source_sync, target_sync))
        assert sorted(copied, key=lambda result: result.run) == sorted(expected, key=lambda result: result.run)
        assert [result.problem for result in copied] == ["", ""]
        assert list(export_store_sync(target_sync)) == lines


async def test_synchronous_transcript_imports_give_the_same_results() -> None:
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    passed: list[Event] = []

    def record(event: Event) -> Event:
        passed.append(event)
        return event

    async with open_store("memory:") as store:
        expected = await import_transcript(store, "agent", "run", messages, "openai-chat", before_append=record)
    with open_sync_store("memory:") as sync:
        result = import_transcript_sync(sync, "agent", "run", messages, "openai-chat", before_append=record)
        assert (result.version, result.inserted) == (expected.version, expected.inserted) == (2, 2)
        assert [event.event_id for event in result.events] == [event.event_id for event in expected.events]
        assert len(passed) == 2 * len(messages)
        assert import_transcript_sync(sync, "agent", "run", [], "openai-chat").version == 2
