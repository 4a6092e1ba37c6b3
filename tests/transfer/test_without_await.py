"""Transfers without ``await`` do what those with it do: one operation is behind both."""

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


async def filled(store: Store) -> Store:
    for run, events in (("one", EVENTS), ("two", EVENTS[:1])):
        await store.append_events("agent", run, *events, meta={"run": run})
    await store.redact_events("agent", "one", [2], reason="asked")
    return store


def filled_sync(store: SyncStore, lines: list[bytes]) -> SyncStore:
    """A store that holds what was exported of another: the redaction's marker has one id and time."""
    import_jsonl_sync(store, lines)
    return store


async def test_exports_and_imports() -> None:
    async with open_store("memory:") as store:
        await filled(store)
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


async def test_copies() -> None:
    async with open_store("memory:") as source, open_store("memory:") as target:
        await filled(source)
        lines = [line async for line in export_store(source)]
        expected = [copied async for copied in copy_store(source, target)]
    with open_sync_store("memory:") as source_sync, open_sync_store("memory:") as target_sync:
        filled_sync(source_sync, lines)
        copied = list(copy_store_sync(source_sync, target_sync))
        assert sorted(copied, key=lambda one: one.run) == sorted(expected, key=lambda one: one.run)
        assert [one.problem for one in copied] == ["", ""]
        assert list(export_store_sync(target_sync)) == lines


async def test_transcripts() -> None:
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    marked: list[Event] = []

    def note(event: Event) -> Event:
        marked.append(event)
        return event

    async with open_store("memory:") as store:
        expected = await import_transcript(store, "agent", "run", messages, "openai-chat", before_append=note)
    with open_sync_store("memory:") as sync:
        result = import_transcript_sync(sync, "agent", "run", messages, "openai-chat", before_append=note)
        assert (result.version, result.inserted) == (expected.version, expected.inserted) == (2, 2)
        assert [event.event_id for event in result.events] == [event.event_id for event in expected.events]
        assert len(marked) == 2 * len(messages)
        assert import_transcript_sync(sync, "agent", "run", [], "openai-chat").version == 2
