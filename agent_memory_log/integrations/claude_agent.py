"""A session store of the Claude Agent SDK: each transcript is a run of a store.

An entry with a message becomes typed events, so memory, search and replay read the run as any other. The other fields
of the entry are beside them, under ``claude-agent`` in ``structured`` of its first event. Every other entry is an event
of its own. ``load`` returns entries that are equal JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, cast

from agent_memory_log.errors import VersionConflict
from agent_memory_log.events.context_payloads import Compaction
from agent_memory_log.events.event import Event, new_event, parse_timestamp
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, own_json
from agent_memory_log.events.payloads import EventData, UnknownPayload
from agent_memory_log.events.registry import register_payload
from agent_memory_log.integrations.memory_search import memory_search
from agent_memory_log.integrations.messages import json_text, name_results, parse_alone, with_fields
from agent_memory_log.integrations.names import joined_id
from agent_memory_log.integrations.opening import StoreOwner, needs_extra, runs_of
from agent_memory_log.integrations.threads import in_thread
from agent_memory_log.memory.sync import SyncMemoryCalls
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import RunInfo, SyncStore
from agent_memory_log.transcript import build
from agent_memory_log.transcript.json_types import map_in

with needs_extra("claude-agent"):
    from claude_agent_sdk import (
        SdkMcpTool,
        SessionKey,
        SessionListSubkeysKey,
        SessionStore,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
        fold_session_summary,
        tool,
    )

_PROVIDER = "anthropic"
_OWN = "claude-agent"
"""The first part of the agents' ids, the key of what an entry has beside its message, and the key of a run's meta."""

_ENTRY_TYPE = f"{_OWN}.entry"
"""The type of an entry without a message that fits typed events. Its data is the entry."""

_TEXT_TYPE = f"{_OWN}.entry_text"
"""The type of an entry that no store accepts, for example with a lone surrogate. Its data is ``{"json": TEXT}``."""

_ROLES = ("user", "assistant")


@register_payload
class SessionSummary(EventData, frozen=True):
    """The SDK's summary of a session, at the end of each append that changes it.

    Attributes:
        state: The summary's state as JSON text. Only the SDK reads it.
    """

    event_type = f"{_OWN}.summary"

    state: str


@register_payload
class SessionWrite(EventData, frozen=True):
    """The end of an append that leaves the summary unchanged. The event's timestamp is the time of the append."""

    event_type = f"{_OWN}.write"


class MemoryLogSessionStore(StoreOwner, SessionStore):
    """A session store for ``ClaudeAgentOptions``. It supports all methods of the SDK's ``SessionStore``.

        options = ClaudeAgentOptions(session_store=MemoryLogSessionStore("sqlite:///runs.db"))

    The agent of a session is ``claude-agent/PROJECT``, and its run is the id of the session. The agent of a subagent's
    transcript is ``claude-agent/PROJECT/SESSION``, and its run is the subpath. In each part, ``/`` becomes ``%2F`` and
    ``%`` becomes ``%25``. An id that is too long ends in its hash. The run's meta has the parts as they were.

    An entry that has the ``uuid`` of an earlier entry is not stored again. Events have the time of their entry. Any
    number of event loops (asyncio and trio), threads and processes may use the same store.

    Args:
        store: The URL of a store, or an open store. A store that is opened from a URL is closed by ``close``.

    Raises:
        InvalidArgument: ``store`` is neither a URL nor an open store.
    """

    def __init__(self, store: str | SyncStore) -> None:
        super().__init__(store)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append entries to a transcript. All of them are stored or none.

        Raises:
            InvalidArgument: An entry cannot be written as JSON.
        """
        await in_thread(lambda: self._append(key, entries))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries of a transcript, or None if there is no such transcript."""
        snapshot = await in_thread(lambda: self.store.load_run(*_place(key)))
        return list(_entries_of(snapshot)) if snapshot.log else None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the ids of a project's sessions and the time of the last append to each."""
        return [entry for _, entry in await in_thread(lambda: self._sessions(project_key))]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the SDK's summaries of a project's sessions. It reads one event of each session."""
        return await in_thread(lambda: self._summaries(project_key))

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript, and with a session the transcripts of its subagents. Memories that rest on them fall."""
        await in_thread(lambda: self._delete(key))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session, the oldest first."""
        runs = await in_thread(lambda: runs_of(self.store, _agent(key["project_key"], key["session_id"])))
        return [_parts_of(run)["subpath"] for run in reversed(runs)]

    def _append(self, key: SessionKey, entries: Sequence[SessionStoreEntry]) -> None:
        agent, run = _place(key)
        meta: dict[str, JsonValue] = {_OWN: {name: cast("str", text) for name, text in key.items()}}
        while True:
            newest = self.store.load_run(agent, run, types=(SessionSummary.event_type,), last=1)
            new = self._without_stored(agent, run, entries)
            if not new:
                return
            events = [event for entry in new for event in _events_of(entry)]
            events = name_results(self.store, agent, run, events)
            if not key.get("subpath"):
                events.append(new_event(_end_of_append(newest, key, new)))
            try:
                self.store.append_events(agent, run, *events, expected_version=newest.version, meta=meta)
            except VersionConflict:
                continue  # another append changed the summary and the stored entries
            return

    def _without_stored(self, agent: str, run: str, entries: Sequence[SessionStoreEntry]) -> list[SessionStoreEntry]:
        """Return the entries whose ``uuid`` is neither in the run nor in an earlier entry of ``entries``."""
        ids = {event_id: None for entry in entries if (event_id := _event_id(entry))}
        stored_ids = {event.event_id for event in self.store.find_events(agent, run, ids) if event is not None}
        new: list[SessionStoreEntry] = []
        for entry in entries:
            event_id = _event_id(entry)
            if event_id is None or event_id not in stored_ids:
                new.append(entry)
            if event_id is not None:
                stored_ids.add(event_id)
        return new

    def _sessions(self, project_key: str) -> list[tuple[RunInfo, SessionStoreListEntry]]:
        """Return the sessions of a project. The times of two sessions differ, in the order of their last appends."""
        mtime = 0
        sessions: list[tuple[RunInfo, SessionStoreListEntry]] = []
        for run in sorted(runs_of(self.store, _agent(project_key)), key=lambda run: run.updated):
            mtime = max(int(run.updated.timestamp() * 1000), mtime + 1)
            sessions.append((run, {"session_id": _parts_of(run)["session_id"], "mtime": mtime}))
        return sessions

    def _summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        summaries: list[SessionSummaryEntry] = []
        for run, entry in self._sessions(project_key):
            newest = self.store.load_run(run.agent, run.run, types=(SessionSummary.event_type,), last=1)
            state = _state_of(newest)
            if state is not None:
                summaries.append({**entry, "data": state})
        return summaries

    def _delete(self, key: SessionKey) -> None:
        agent, run = _place(key)
        if not key.get("subpath"):
            # Last the session itself: as long as it is listed, a deletion that failed can be repeated.
            for part in runs_of(self.store, _agent(key["project_key"], key["session_id"])):
                self.store.delete_run(part.agent, part.run)
        self.store.delete_run(agent, run)


def memory_tool(memory: SyncMemoryCalls) -> SdkMcpTool[Any]:
    """Return a tool with which an agent looks into a memory. The memory's principal decides which memories it reads.

    server = create_sdk_mcp_server("memory", tools=[memory_tool(SyncMemoryClient(store).of(principal))])
    options = ClaudeAgentOptions(mcp_servers={"memory": server}, allowed_tools=["mcp__memory__search_memory"])
    """
    search = memory_search(memory)

    @tool("search_memory", "Search the memories of earlier conversations.", {"query": str})
    async def search_memory(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await in_thread(lambda: search(arguments["query"]))}]}

    return search_memory


def _agent(*parts: str) -> str:
    return joined_id(_OWN, *parts)


def _place(key: SessionKey) -> tuple[str, str]:
    """Return the agent and the run of a transcript."""
    subpath = key.get("subpath")
    if subpath:
        return _agent(key["project_key"], key["session_id"]), joined_id(subpath)
    return _agent(key["project_key"]), joined_id(key["session_id"])


def _parts_of(run: RunInfo) -> Mapping[str, str]:
    return cast("Mapping[str, str]", run.meta[_OWN])


def _state_of(newest: Snapshot) -> dict[str, Any] | None:
    """Return the state of a session's newest summary, or None if there is no summary."""
    data = newest.log[-1].data if newest.log else None
    return json.loads(data.state) if isinstance(data, SessionSummary) else None


def _end_of_append(newest: Snapshot, key: SessionKey, entries: list[SessionStoreEntry]) -> EventData:
    """Return the payload that ends an append to a session."""
    state = _state_of(newest)
    before: SessionSummaryEntry | None = None
    if state is not None:
        before = {"session_id": key["session_id"], "mtime": 0, "data": state}
    data = fold_session_summary(before, key, entries)["data"]
    return SessionWrite() if data == state else SessionSummary(json.dumps(data))


def _event_id(entry: Mapping[str, Any]) -> str | None:
    """Return the id of an entry's first event, which comes from its ``uuid``, or None if it has none."""
    uuid = entry.get("uuid")
    if not isinstance(uuid, str) or not uuid or uuid.encode(errors="ignore").decode() != uuid:
        return None
    return joined_id(uuid)


def _events_of(entry: SessionStoreEntry) -> Iterator[Event]:
    """Yield the events of an entry."""
    time, first_id = _time_of(entry), _event_id(entry)
    for index, (payload, labels) in enumerate(_payloads_of(entry)):
        event_id = joined_id(first_id, str(index)) if first_id and index else first_id
        yield new_event(payload, timestamp=time, labels=labels, event_id=event_id)


def _payloads_of(entry: SessionStoreEntry) -> Iterator[tuple[EventData, Mapping[str, str]]]:
    try:
        own = cast("dict[str, JsonValue]", own_json(cast("object", entry)))
    except NotJson:
        yield UnknownPayload(type=_TEXT_TYPE, data={"json": json_text(entry, "an entry of a transcript")}), {}
        return
    message = own.get("message")
    typed = _typed(own, message) if isinstance(message, dict) and message.get("role") in _ROLES else []
    first = typed[0].data if typed else None
    if first is None or isinstance(first, UnknownPayload):
        yield UnknownPayload(type=_ENTRY_TYPE, data=own), {}
        return
    beside: dict[str, JsonValue] = {"entry": {key: value for key, value in own.items() if key != "message"}}
    rest = {
        key: value for key, value in cast("dict[str, JsonValue]", message).items() if key not in ("role", "content")
    }
    if rest:
        beside["message"] = rest
    yield from with_fields(typed, _OWN, beside)


def _typed(own: Mapping[str, JsonValue], message: Mapping[str, JsonValue]) -> list[Event]:
    """Return the typed events of an entry's message, or none if the entry must be stored whole."""
    plain = {key: value for key, value in message.items() if key in ("role", "content")}
    content = plain.get("content")
    if own.get("isMeta") is True:
        return []  # the program wrote it for the model; it is no statement of the user
    if own.get("isCompactSummary") is True and plain["role"] == "user" and isinstance(content, str) and content:
        return [new_event(Compaction(content))]
    return parse_alone(plain, _PROVIDER) or []


def _entries_of(snapshot: Snapshot) -> Iterator[SessionStoreEntry]:
    """Yield the entries of a run. An entry whose first event was redacted is left out."""
    events = iter(snapshot.log)
    for event in events:
        data = event.data
        if isinstance(data, UnknownPayload):
            if event.type == _ENTRY_TYPE:
                yield cast("SessionStoreEntry", data.to_map())
            elif event.type == _TEXT_TYPE:
                yield json.loads(cast("str", data.data["json"]))
            continue
        beside = map_in(map_in(getattr(data, "structured", None)).get(_OWN))
        if beside:
            count = cast("int", beside.get("events", 1))
            yield _entry_of(Snapshot(snapshot.agent, snapshot.run, [event, *islice(events, count - 1)]), beside)


def _entry_of(events: Snapshot, beside: Mapping[str, JsonValue]) -> SessionStoreEntry:
    messages = build(events, _PROVIDER)
    own = cast("dict[str, Any]", own_json(beside))
    return cast("SessionStoreEntry", {**own["entry"], "message": {**own.get("message", {}), **messages[0]}})


def _time_of(entry: Mapping[str, Any]) -> datetime:
    """Return the time of an entry, or now if it has no valid time."""
    try:
        return parse_timestamp(entry["timestamp"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return datetime.now(UTC)
