"""Checks the types of the public names. Python never runs this file; mypy and basedpyright check it.

If a type changes, the type check fails here, before it fails in the code of a user.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from datetime import datetime
from pathlib import Path
from typing import assert_type

from agent_memory_log import (
    AppendResult,
    Event,
    EventData,
    JsonValue,
    Reader,
    RunInfo,
    Snapshot,
    Store,
    SyncStore,
    ToolCall,
    ToolResult,
    Turn,
    UnknownPayload,
    UserMessage,
    VersionConflict,
    decode_event,
    new_event,
    open_store,
    open_sync_store,
    register_payload,
)
from agent_memory_log.capabilities import BacksUp, BackupResult, CompactResult, Compacts
from agent_memory_log.errors import InvalidEvent
from agent_memory_log.memory import (
    Hits,
    Memory,
    MemoryClient,
    Outcome,
    Principal,
    Record,
    ServesMemory,
    SyncMemory,
    SyncMemoryClient,
)
from agent_memory_log.memory.operations import ListRecords
from agent_memory_log.snapshot import EventList
from agent_memory_log.store import ExpireResult, Flaw, RunHead, RunPage
from agent_memory_log_inmem import MemoryStore, SyncMemoryStore


@register_payload
class Handoff(EventData, frozen=True):
    """A payload of a user. ``register_payload`` keeps its type."""

    event_type = "typed_api_handoff"

    to_agent: str
    reason: str = ""


def payloads(event: Event) -> None:
    assert_type(decode_event(event, ToolCall), ToolCall)
    assert_type(decode_event(event, ToolCall).tool_name, str)
    assert_type(decode_event(event, Handoff).to_agent, str)
    assert_type(Handoff(to_agent="a"), Handoff)
    assert_type(Handoff.from_map({"to_agent": "a"}), Handoff)
    assert_type(register_payload(Handoff), type[Handoff])
    assert_type(UserMessage().to_map(), dict[str, JsonValue])
    assert_type(UserMessage.from_map({}), UserMessage)
    assert_type(UserMessage.event_type, str)
    assert_type(ToolCall(tool_call_id="", tool_name="").input(), object)
    assert_type(ToolResult(tool_call_id="", tool_name="").result(), object)
    assert_type(UnknownPayload(type="later", data={}).event_type, str)
    assert_type(event.data, EventData)
    assert_type(event.timestamp, datetime)
    assert_type(event.labels, Mapping[str, str])
    assert_type(event.seq, int)
    assert_type(event.to_map(), dict[str, JsonValue])
    assert_type(Event.from_map({}), Event)
    assert_type(new_event(UserMessage(), labels={"role": "user"}), Event)
    structured: JsonValue = {"a": [1, 2.5, None, {"b": ("c", True)}]}
    assert_type(UserMessage(structured=structured), UserMessage)


def errors(invalid: InvalidEvent, conflict: VersionConflict) -> None:
    assert_type(invalid.field, str)
    assert_type(conflict.actual, int)
    assert_type(conflict.code, str)


async def stores() -> None:
    async with open_store("memory:") as store:
        assert_type(store, Store)
        event = new_event(UserMessage())
        result = await store.append_events("a", "r", event, expected_version=0, meta={"session": ["s", 1]})
        assert_type(result, AppendResult)
        assert_type(result.events, tuple[Event, ...])
        assert_type(result.version, int)
        snapshot = await store.load_run("a", "r", after=0, types=["user_message"], limit=1)
        assert_type(snapshot, Snapshot)
        assert_type(await store.load_run("a", "r", last=3), Snapshot)
        assert_type(await store.find_events("a", "r", ["e"]), tuple[Event | None, ...])
        assert_type(store.follow("a", "r"), AsyncGenerator[Event])
        async for followed in store.follow("a", "r", after=3):
            assert_type(followed, Event)
        page = await store.list_runs("a", limit=5, cursor=None)
        assert_type(page, RunPage)
        assert_type(page.runs, tuple[RunInfo, ...])
        assert_type(page.runs[0].meta, Mapping[str, JsonValue])
        assert_type(page.runs[0].updated, datetime)
        assert_type(await store.redact_events("a", "r", [1], reason="asked"), AppendResult)
        await store.delete_run("a", "r")
        if isinstance(store, Compacts):
            assert_type(await store.compact(), CompactResult)
        if isinstance(store, BacksUp):
            assert_type(await store.backup("backup.db"), BackupResult)
        assert_type(await store.expire_runs(before=event.timestamp, dry_run=True), ExpireResult)
        assert_type(await store.peek_runs([("a", "r")]), tuple[RunHead | None, ...])
        async for flaw in store.check("a", "r"):
            assert_type(flaw, Flaw)
    assert_type(await open_store("memory:"), Store)


def sync_stores() -> None:
    with open_sync_store("memory:") as store:
        assert_type(store, SyncStore)
        assert_type(store.append_events("a", "r", new_event(UserMessage())), AppendResult)
        assert_type(store.load_run("a", "r"), Snapshot)
        assert_type(store.find_events("a", "r", {"e": 1}), tuple[Event | None, ...])
        assert_type(store.follow("a", "r"), Generator[Event])
        assert_type(store.list_runs(), RunPage)
        if isinstance(store, Compacts):
            assert_type(store.compact(), CompactResult)
        if isinstance(store, BacksUp):
            assert_type(store.backup(Path("backup.db")), BackupResult)
        assert_type(store.expire_runs().runs, int)
        assert_type([head.first_seq for head in store.peek_runs(iter([("a", "r")])) if head is not None], list[int])
        assert_type(list(store.check()), list[Flaw])


async def memory_clients() -> None:
    async with MemoryClient(config={"mode": "embedded", "database_path": Path("memory.db")}) as client:
        assert_type(client, MemoryClient)
        assert_type(await client.remember(key="language", value="english", tags=["tag"]), Outcome)
        assert_type(await client.search("language", top_k=3), Hits)
        assert_type(await client.get(key="language"), Record | None)
        assert_type(await client.execute(ListRecords()), tuple[Record, ...])
        assert_type(client.of(Principal("acme", {"user": "42"})), Memory)
    with SyncMemoryClient() as sync_client:
        assert_type(sync_client, SyncMemoryClient)
        assert_type(sync_client.context("language").text, str)
        assert_type(sync_client.execute(ListRecords()), tuple[Record, ...])
        assert_type(sync_client.of(Principal("acme", {"user": "42"})), SyncMemory)
    await MemoryClient().aclose()
    SyncMemoryClient().close()


async def served_memory(store: Store, sync_store: SyncStore) -> None:
    if isinstance(store, ServesMemory):
        assert_type(await store.execute_memory(ListRecords(), None), tuple[Record, ...])
    if isinstance(sync_store, ServesMemory):
        assert_type(sync_store.execute_memory(ListRecords(), None), tuple[Record, ...])


def protocols() -> None:
    """Check that the in-memory store has the protocols' methods, with its context managers."""
    store: Store = MemoryStore()
    sync_store: SyncStore = SyncMemoryStore()
    del store, sync_store


def reading(snapshot: Snapshot, event: Event) -> None:
    assert_type(snapshot.log, EventList)
    assert_type(snapshot.events[0], Event)
    assert_type(snapshot.events[-3:], tuple[Event, ...])
    assert_type(snapshot.extend(snapshot), Snapshot)
    assert_type(snapshot.meta, Mapping[str, JsonValue])
    assert_type([logged.type for logged in snapshot.log], list[str])
    reader = Reader(snapshot)
    assert_type(reader.events(), EventList)
    assert_type(reader.filter_by_type("user_message"), tuple[Event, ...])
    assert_type(reader.filter_by_labels({"role": "user"}), tuple[Event, ...])
    assert_type(reader.latest("user_message"), Event | None)
    assert_type(reader.open_tool_calls(), tuple[Event, ...])
    assert_type(reader.result_for("tc-1"), Event | None)
    assert_type(reader.result_for(event), Event | None)
    assert_type(reader.call_for(event), Event | None)
    assert_type(reader.children_of(event), tuple[Event, ...])
    assert_type(reader.turns(), tuple[Turn, ...])
    assert_type(reader.turns()[0].user_message, Event | None)


def refused(event: Event) -> None:
    """Check that a type checker refuses wrong calls. An unused ``ignore`` is an error itself."""
    decode_event(event, str)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]  # no payload type
    new_event({"message": "hi"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # no payload
    event.seq = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]  # events are frozen
    UserMessage(text="hi")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # no such field
