"""Removes checkpoints, and copies threads.

A pruning is announced in the run before anything is erased, at the version that it has read. A writer that appended
meanwhile prevents the announcement, and one that appends later finds it and stores its values again. So no checkpoint
loses a value that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from msgspec.structs import replace

from agent_memory_log import Event, Redacted, Snapshot, SyncStore, new_event
from agent_memory_log.errors import VersionConflict
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.integrations.langgraph.appending import Threads
from agent_memory_log.integrations.langgraph.encoding import MESSAGE, Decoder, refs
from agent_memory_log.integrations.langgraph.payloads import (
    STATE_TYPES,
    ChannelHistory,
    Delta,
    Node,
    StateCheckpoint,
    StateHistory,
    StatePruning,
    StateValue,
    StateWrites,
)
from agent_memory_log.integrations.langgraph.places import Place, entries_of, entry_id
from agent_memory_log.integrations.langgraph.reading import Entry, histories

Choose = Callable[[list[tuple[str, dict[str, Any]]]], AbstractSet[str]]
"""Chooses the checkpoints to keep, from their ids and metadata."""

_COUNTERS = "counters_since_delta_snapshot"
"""The key of the metadata that names the delta channels whose value is not in the checkpoint."""

_COPIED = 100
"""The events that a copy reads and appends at once."""


def newest_only(checkpoints: list[tuple[str, dict[str, Any]]]) -> AbstractSet[str]:
    """Choose the checkpoint with the highest id."""
    return {max(checkpoint_id for checkpoint_id, _ in checkpoints)}


def prune(store: SyncStore, place: Place, serde: SerializerProtocol, choose: Choose, *, messages: bool) -> None:
    """Erase checkpoints of a run, with their writes and the values that no other checkpoint needs.

    Args:
        store: The store.
        place: The run.
        serde: The serializer.
        choose: Chooses the checkpoints to keep. If it chooses none, the run is deleted.
        messages: Whether to erase messages too that no other checkpoint needs.
    """
    while not _try_prune(store, place, serde, choose, messages=messages):
        pass


def _try_prune(store: SyncStore, place: Place, serde: SerializerProtocol, choose: Choose, *, messages: bool) -> bool:
    contents = _Contents(store.load_run(place.agent, place.run), serde)
    if not contents.metadata:
        return True
    remaining = choose(list(contents.metadata.items()))
    if not remaining:
        store.delete_run(place.agent, place.run)
        return True
    lost = {checkpoint_id: contents.lost_history(store, place, checkpoint_id, remaining) for checkpoint_id in remaining}
    needed = contents.needed(remaining, lost)
    seqs = [
        event.seq
        for event in contents.snapshot.log
        if (event.type in STATE_TYPES and event.event_id not in needed)
        or (messages and event.event_id.startswith(MESSAGE) and event.event_id.split("/")[0] not in needed)
    ]
    if not seqs:
        return True
    announcement = [new_event(StatePruning())]
    for checkpoint_id, history in lost.items():
        if history:
            number = len(entries_of(store, place, checkpoint_id))
            payload = StateHistory(checkpoint_id, history)
            announcement.append(new_event(payload, event_id=entry_id(checkpoint_id, number)))
    try:
        version = contents.snapshot.version
        store.append_events(place.agent, place.run, *announcement, expected_version=version)
    except VersionConflict:
        return False
    store.redact_events(place.agent, place.run, seqs, reason="pruned")
    return True


class _Contents:
    """The events of a run, by id and by checkpoint."""

    def __init__(self, snapshot: Snapshot, serde: SerializerProtocol) -> None:
        self.snapshot = snapshot
        self.events = {event.event_id: event for event in snapshot.log}
        self.groups: dict[str, list[Event]] = {}
        for event in snapshot.log:
            if isinstance(event.data, StateCheckpoint | StateWrites | StateHistory):
                self.groups.setdefault(event.data.checkpoint_id, []).append(event)
        entries = {checkpoint_id: Entry.of(events) for checkpoint_id, events in self.groups.items()}
        self.entries = {checkpoint_id: entry for checkpoint_id, entry in entries.items() if entry is not None}
        decoder = Decoder(serde)
        self.metadata: dict[str, dict[str, Any]] = {
            checkpoint_id: decoder.value(entry.checkpoint.metadata) for checkpoint_id, entry in self.entries.items()
        }

    def needed(self, remaining: AbstractSet[str], lost: Mapping[str, Mapping[str, ChannelHistory]]) -> set[str]:
        """Return the ids of all events that the kept checkpoints need."""
        nodes: list[Node] = []
        needed: set[str] = set()
        for checkpoint_id in remaining:
            needed |= {event.event_id for event in self.groups[checkpoint_id]}
            nodes += self.entries[checkpoint_id].nodes
            for history in [*self.entries[checkpoint_id].history.values(), *lost[checkpoint_id].values()]:
                nodes += [node for _, node in history.writes]
                nodes += [] if history.seed is None else [history.seed]
        waiting = list(refs(nodes))
        while waiting:
            event_id = waiting.pop()
            if event_id not in needed:
                needed.add(event_id)
                event = self.events.get(event_id)
                waiting += refs([event.data.node]) if event and isinstance(event.data, StateValue) else ()
        return needed

    def lost_history(
        self, store: SyncStore, place: Place, checkpoint_id: str, remaining: AbstractSet[str]
    ) -> dict[str, ChannelHistory]:
        """Return the histories of delta channels that a kept checkpoint loses with the checkpoints before it."""
        entry = self.entries[checkpoint_id]
        ancestors: dict[str, Entry] = {}
        parent = entry.checkpoint.parent_id
        while parent in self.entries and parent not in ancestors:
            ancestors[parent] = self.entries[parent]
            parent = ancestors[parent].checkpoint.parent_id
        if ancestors.keys() <= remaining:
            return {}
        deltas = set(self.metadata[checkpoint_id].get(_COUNTERS) or ())
        for ancestor in ancestors.values():
            values = ancestor.checkpoint.values
            deltas |= {channel for channel, node in values.items() if isinstance(node, Delta)}
        deltas -= entry.checkpoint.values.keys()
        return histories(store, place, entry, deltas) if deltas else {}


def copy_thread(threads: Threads, source: object, target: object) -> None:
    """Copy every run of a thread to another thread. Event ids and times stay. Erased events are left out."""
    store = threads.store
    for run in list(threads.runs(Place(source, "").agent)):
        to = Place(target, Place.of_run(run).namespace)
        after = 0
        while True:
            page = store.load_run(run.agent, run.run, after=after, limit=_COPIED)
            events = [
                replace(event, seq=0)
                for event in page.log
                if not isinstance(event.data, Redacted | Redaction | StatePruning)
            ]
            if events:
                store.append_events(to.agent, to.run, *events, meta=to.meta)
            after = page.last_seq
            if after >= page.version:
                break
