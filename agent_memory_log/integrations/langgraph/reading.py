"""Reads checkpoints from a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple, DeltaChannelHistory, PendingWrite, writes_sort_key
from langgraph.checkpoint.serde.base import SerializerProtocol

from agent_memory_log import Event, SyncStore
from agent_memory_log.integrations.langgraph.encoding import Decoder
from agent_memory_log.integrations.langgraph.payloads import (
    ChannelHistory,
    Node,
    StateCheckpoint,
    StateHistory,
    StateWrites,
)
from agent_memory_log.integrations.langgraph.places import Place, entries_of


class Entry(msgspec.Struct, frozen=True):
    """A checkpoint as its events describe it.

    Attributes:
        checkpoint: The checkpoint.
        writes: The pending writes in LangGraph's order: the task, the channel and the value.
        history: The histories of delta channels that a pruning left.
    """

    checkpoint: StateCheckpoint
    writes: tuple[tuple[str, str, Node], ...]
    history: Mapping[str, ChannelHistory]

    @classmethod
    def of(cls, events: Iterable[Event]) -> Entry | None:
        """Return the checkpoint that the events describe, or None if they hold only writes."""
        checkpoint: StateCheckpoint | None = None
        history: Mapping[str, ChannelHistory] = {}
        writes: dict[tuple[str, int], tuple[str, str, Node]] = {}
        for event in events:
            data = event.data
            if isinstance(data, StateCheckpoint):
                checkpoint = data
            elif isinstance(data, StateHistory):
                history = data.channels
            elif isinstance(data, StateWrites):
                for write in data.writes:
                    key, value = (data.task_id, write.index), (data.task_path, write.channel, write.value)
                    # The first result of a task counts, and the last interrupt, error or resume value.
                    writes[key] = writes.get(key, value) if write.index >= 0 else value
        if checkpoint is None:
            return None
        ordered = sorted(writes.items(), key=lambda item: writes_sort_key(item[1][0], *item[0]))
        return cls(checkpoint, tuple((key[0], value[1], value[2]) for key, value in ordered), history)

    @property
    def nodes(self) -> Iterable[Node]:
        """Every node of the checkpoint, without its history."""
        return (
            self.checkpoint.checkpoint,
            self.checkpoint.metadata,
            *self.checkpoint.values.values(),
            *(node for _, _, node in self.writes),
        )

    def to_tuple(self, place: Place, config: RunnableConfig, decoder: Decoder) -> CheckpointTuple:
        """Return LangGraph's form. The decoder has read the nodes."""
        parent = self.checkpoint.parent_id
        values = decoder.values(self.checkpoint.values)
        return CheckpointTuple(
            config,
            cast("Checkpoint", {**decoder.value(self.checkpoint.checkpoint), "channel_values": values}),
            decoder.value(self.checkpoint.metadata),
            place.config(parent) if parent else None,
            pending(self.writes, decoder),
        )


def pending(writes: Iterable[tuple[str, str, Node]], decoder: Decoder) -> list[PendingWrite]:
    """Return the values of writes. A write whose value was erased is left out."""
    return [(task, channel, decoder.value(node)) for task, channel, node in writes if decoder.has(node)]


def read_entry(store: SyncStore, place: Place, checkpoint_id: str) -> Entry | None:
    """Return a checkpoint, or None if the run has no such checkpoint."""
    return Entry.of(entries_of(store, place, checkpoint_id))


def histories(store: SyncStore, place: Place, entry: Entry, channels: Iterable[str]) -> dict[str, ChannelHistory]:
    """Return what delta channels received before a checkpoint, from the checkpoints on the way to the first one.

    The last complete value of a channel ends the search for it, and the writes of that checkpoint come after the value.
    """
    collected: dict[str, list[tuple[str, Node]]] = {channel: [] for channel in channels}
    seeds: dict[str, Node] = {}
    open_channels = set(collected)
    current = entry
    visited = {""}
    while open_channels:
        for channel in open_channels & current.history.keys():
            pruned = current.history[channel]
            collected[channel].extend(reversed(pruned.writes))
            if pruned.seed is not None:
                seeds[channel] = pruned.seed
        open_channels -= current.history.keys()
        visited.add(current.checkpoint.checkpoint_id)
        parent = current.checkpoint.parent_id
        # A put may make a checkpoint its own ancestor.
        ancestor = None if parent in visited or not open_channels else read_entry(store, place, parent)
        if ancestor is None:
            break
        current = ancestor
        for task, channel, node in reversed(current.writes):
            if channel in open_channels:
                collected[channel].append((task, node))
        for channel in open_channels & current.checkpoint.values.keys():
            seeds[channel] = current.checkpoint.values[channel]
        open_channels -= seeds.keys()
    return {
        channel: ChannelHistory(tuple(reversed(writes)), seeds.get(channel)) for channel, writes in collected.items()
    }


def delta_histories(
    store: SyncStore, place: Place, serde: SerializerProtocol, checkpoint_id: str, channels: Sequence[str]
) -> dict[str, DeltaChannelHistory]:
    """Return ``histories`` in LangGraph's form."""
    entry = read_entry(store, place, checkpoint_id)
    stored = {} if entry is None else histories(store, place, entry, channels)
    decoder = Decoder(serde)
    nodes = [node for history in stored.values() for _, node in history.writes]
    decoder.read(store, place, [*nodes, *(history.seed for history in stored.values() if history.seed is not None)])
    result: dict[str, DeltaChannelHistory] = {}
    for channel in channels:
        history = stored.get(channel, ChannelHistory(()))
        writes = pending(((task, channel, node) for task, node in history.writes), decoder)
        result[channel] = {"writes": writes}
        if history.seed is not None and decoder.has(history.seed):
            result[channel]["seed"] = decoder.value(history.seed)
    return result
