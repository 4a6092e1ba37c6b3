"""The checkpointer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from agent_memory_log import EventData, Redacted, SyncStore, decode_event
from agent_memory_log.errors import InvalidArgument, StoreCorrupt
from agent_memory_log.events.fields import describe
from agent_memory_log.integrations.langgraph.appending import RunCache, Threads
from agent_memory_log.integrations.langgraph.encoding import MESSAGE, Decoder, Encoder
from agent_memory_log.integrations.langgraph.payloads import Node, StateCheckpoint, StateWrites, Write
from agent_memory_log.integrations.langgraph.places import Place, newest_first
from agent_memory_log.integrations.langgraph.pruning import copy_thread, newest_only, prune
from agent_memory_log.integrations.langgraph.reading import Entry, delta_histories, read_entry
from agent_memory_log.integrations.opening import StoreOwner
from agent_memory_log.integrations.threads import in_thread

_INPUT = "__start__"
"""LangGraph's channel with the input of a graph, before it becomes state."""


def _has_id(message: BaseMessage) -> bool:
    """Return whether a message has an id. LangGraph adds one when it adds a message to the state."""
    return message.id is not None


def _is_any(_: BaseMessage) -> bool:
    return True


class MemoryLogSaver(BaseCheckpointSaver[Any], StoreOwner):
    """A LangGraph checkpointer that keeps checkpoints in a log of this library, and messages as its typed events.

        graph = builder.compile(checkpointer=MemoryLogSaver("sqlite:///runs.db"))

    It may be used by any number of threads, event loops and processes. Asynchronous methods work in a thread.

    Args:
        store: The URL of a store, which ``close`` closes, or an open store.
        serde: The serializer. The default is LangGraph's own, without pickle. With another class, for example one that
            encrypts, values are stored as it writes them: neither messages as events, nor equal parts only once.

    Raises:
        InvalidArgument: ``store`` is neither a URL nor an open ``SyncStore``.
    """

    def __init__(self, store: str | SyncStore, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        StoreOwner.__init__(self, store)
        self._threads = Threads(self.store)

    def get_next_version(self, current: int | str | None, channel: None) -> int | str:  # noqa: ARG002  # LangGraph's
        """Return the version after ``current``: an integer, or text in threads that another saver began."""
        if isinstance(current, str):
            number, _, rest = current.partition(".")
            return f"{int(number) + 1:0{len(number)}}.{rest}"
        return 1 if current is None else current + 1

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint with its pending writes, or None. See ``BaseCheckpointSaver.get_tuple``."""
        place = Place.of(config)
        checkpoint_id = get_checkpoint_id(config)
        with self._threads.cached(place) as cache:
            if not checkpoint_id:
                newest = next(newest_first(self.store, place), None)
                if newest is None:
                    return None
                checkpoint_id = cache.newest = decode_event(newest, StateCheckpoint).checkpoint_id
                config = place.config(checkpoint_id)
            reading = self._read(place, checkpoint_id)
            if reading is None:
                return None
            entry, decoder = reading
            checkpoint = entry.to_tuple(place, config, decoder)
            cache.events |= {
                event_id
                for event_id, event in decoder.events.items()
                if event_id.startswith(MESSAGE) or not isinstance(event.data, Redacted)
            }
            if cache.newest is not None:
                cache.remember(checkpoint_id, checkpoint.checkpoint["channel_versions"], entry.checkpoint.values)
            return checkpoint

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  # LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, the highest id first. See ``BaseCheckpointSaver.list``."""
        only = get_checkpoint_id(config) if config else None
        end = get_checkpoint_id(before) if before else None
        runs = map(self._newest_first, self._places(config))
        checkpoints = merge(*runs, key=lambda pair: pair[0].checkpoint_id, reverse=True)
        decoder = Decoder(self.serde)
        for checkpoint, place in checkpoints:
            if limit is not None and limit <= 0:
                return
            if (only and checkpoint.checkpoint_id != only) or (end and checkpoint.checkpoint_id >= end):
                continue
            metadata = decoder.value(checkpoint.metadata)
            if filter and any(metadata.get(key) != value for key, value in filter.items()):
                continue
            reading = self._read(place, checkpoint.checkpoint_id)
            if reading is not None:
                entry, entry_decoder = reading
                limit = None if limit is None else limit - 1
                yield entry.to_tuple(place, place.config(checkpoint.checkpoint_id), entry_decoder)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint as one append, and return its config. See ``BaseCheckpointSaver.put``."""
        place = Place.of(config)
        checkpoint_id = checkpoint["id"]
        parent_id = get_checkpoint_id(config) or ""
        versions = checkpoint["channel_versions"]
        rest = {key: value for key, value in checkpoint.items() if key != "channel_values"}
        merged = get_checkpoint_metadata(config, metadata)
        values: dict[str, Node] = {}

        def make(encoder: Encoder, cache: RunCache) -> EventData:
            before = self._values_of(place, parent_id, cache)
            for channel in {**versions, **checkpoint["channel_values"]}:
                version, node = before.get(channel, (None, None))
                # A channel without a new version keeps its value, even if the checkpoint leaves the value out.
                if node is not None and channel not in new_versions and version == versions.get(channel):
                    values[channel] = node
                elif channel in checkpoint["channel_values"]:
                    encoder.takes = _has_id if channel == _INPUT else _is_any
                    values[channel] = encoder.node(checkpoint["channel_values"][channel])
            newest = checkpoint_id >= (cache.newest or "")
            return StateCheckpoint(
                checkpoint_id, encoder.leaf(rest), encoder.leaf(merged), dict(values), parent_id, newest
            )

        with self._threads.added(place, checkpoint_id, self.serde, make) as cache:
            cache.remember(checkpoint_id, versions, values)
        return place.config(checkpoint_id)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task. See ``BaseCheckpointSaver.put_writes``."""
        checkpoint_id = get_checkpoint_id(config) or ""

        def make(encoder: Encoder, cache: RunCache) -> EventData:
            # Before its checkpoint is stored, the messages of the checkpoint may be missing, which come first.
            if cache.parent == checkpoint_id:
                encoder.takes = _has_id
            nodes = tuple(
                Write(WRITES_IDX_MAP.get(channel, index), channel, encoder.node(value))
                for index, (channel, value) in enumerate(writes)
            )
            return StateWrites(checkpoint_id, task_id, nodes, task_path)

        with self._threads.added(Place.of(config), checkpoint_id, self.serde, make):
            pass

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with its messages."""
        for run in list(self._threads.runs(Place(thread_id, "").agent)):
            self.store.delete_run(run.agent, run.run)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of graph runs, with the writes, values and messages that no other checkpoint needs.

        It reads every thread in the store.
        """
        removed = set(run_ids)
        for run in list(self._threads.runs()) if removed else ():
            prune(
                self.store,
                Place.of_run(run),
                self.serde,
                lambda checkpoints: {name for name, metadata in checkpoints if metadata.get("run_id") not in removed},
                messages=True,
            )

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread: all checkpoints, writes and messages that were not erased, with their times."""
        copy_thread(self._threads, source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Erase checkpoints of threads. ``amlog compact`` then gives the space back to the disk.

        Args:
            thread_ids: The threads.
            strategy: ``keep_latest`` keeps the newest checkpoint of each namespace, with what its delta channels need,
                and all messages. ``delete`` deletes the threads.

        Raises:
            InvalidArgument: The strategy is another one.
        """
        if strategy not in ("keep_latest", "delete"):
            raise InvalidArgument(f"strategy must be keep_latest or delete, got {describe(strategy)}")
        for thread_id in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread_id)
                continue
            for run in list(self._threads.runs(Place(thread_id, "").agent)):
                prune(self.store, Place.of_run(run), self.serde, newest_only, messages=False)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what delta channels received. See ``BaseCheckpointSaver.get_delta_channel_history``."""
        if not channels:
            return {}
        place = Place.of(config)
        checkpoint_id = get_checkpoint_id(config)
        if not checkpoint_id:
            newest = next(newest_first(self.store, place), None)
            checkpoint_id = "" if newest is None else decode_event(newest, StateCheckpoint).checkpoint_id
        return delta_histories(self.store, place, self.serde, checkpoint_id, channels)

    def _values_of(self, place: Place, checkpoint_id: str, cache: RunCache) -> Mapping[str, tuple[object, Node]]:
        if cache.parent != checkpoint_id:
            entry = read_entry(self.store, place, checkpoint_id) if checkpoint_id else None
            if entry is None:
                return {}
            versions = Decoder(self.serde).value(entry.checkpoint.checkpoint)["channel_versions"]
            cache.remember(checkpoint_id, versions, entry.checkpoint.values)
        return cache.values

    def _newest_first(self, place: Place) -> Iterator[tuple[StateCheckpoint, Place]]:
        return ((decode_event(event, StateCheckpoint), place) for event in newest_first(self.store, place))

    def _read(self, place: Place, checkpoint_id: str) -> tuple[Entry, Decoder] | None:
        entry = read_entry(self.store, place, checkpoint_id)
        if entry is None:
            return None
        decoder = Decoder(self.serde)
        try:
            decoder.read(self.store, place, entry.nodes)
        except StoreCorrupt:
            if read_entry(self.store, place, checkpoint_id) is None:  # it was deleted meanwhile
                return None
            raise
        return entry, decoder

    def _places(self, config: RunnableConfig | None) -> Sequence[Place]:
        if config is None:
            return [Place.of_run(run) for run in self._threads.runs()]
        place = Place.of(config)
        if "checkpoint_ns" in config.get("configurable", {}):
            return [place]
        return [Place(place.thread, Place.of_run(run).namespace) for run in self._threads.runs(place.agent)]

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Do ``get_tuple`` in a thread."""
        return await in_thread(partial(self.get_tuple, config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  # LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Do ``list`` in a thread."""
        checkpoints = self.list(config, filter=filter, before=before, limit=limit)
        while (checkpoint := await in_thread(partial(next, checkpoints, None))) is not None:
            yield checkpoint

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Do ``put`` in a thread."""
        return await in_thread(partial(self.put, config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Do ``put_writes`` in a thread."""
        await in_thread(partial(self.put_writes, config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """Do ``delete_thread`` in a thread."""
        await in_thread(partial(self.delete_thread, thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Do ``delete_for_runs`` in a thread."""
        await in_thread(partial(self.delete_for_runs, run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Do ``copy_thread`` in a thread."""
        await in_thread(partial(self.copy_thread, source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Do ``prune`` in a thread."""
        await in_thread(partial(self.prune, thread_ids, strategy=strategy))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Do ``get_delta_channel_history`` in a thread."""
        return await in_thread(partial(self.get_delta_channel_history, config=config, channels=channels))
