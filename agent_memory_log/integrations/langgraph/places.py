"""The runs that hold LangGraph's threads.

Each thread is an agent, and each of its checkpoint namespaces is a run. Everything that belongs to a checkpoint is in
events with the ids ``c:CHECKPOINT/0``, ``c:CHECKPOINT/1`` and so on, without gaps: the checkpoint itself and the writes
of its tasks, in the order in which they were stored. So a reader finds them by their ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from langchain_core.runnables import RunnableConfig

from agent_memory_log import Event, JsonValue, SyncStore, decode_event
from agent_memory_log.integrations.langgraph.payloads import StateCheckpoint
from agent_memory_log.integrations.names import joined_id
from agent_memory_log.store import RunInfo

AGENT = "langgraph"
"""The first part of the id of each thread's agent."""

_AT_ONCE = 6
"""The events of a checkpoint that one look-up asks for at first. A checkpoint with one or two tasks has fewer."""


class Place:
    """A checkpoint namespace of a thread, with the names of its run.

    Args:
        thread: The id of the thread.
        namespace: The checkpoint namespace.
    """

    __slots__ = ("agent", "namespace", "run", "thread")

    def __init__(self, thread: object, namespace: str) -> None:
        self.thread = thread
        self.namespace = namespace
        self.agent = thread_agent(thread)
        self.run = joined_id("checkpoints", namespace) if namespace else "checkpoints"

    @classmethod
    def of(cls, config: RunnableConfig) -> Place:
        """Return the place that a config names."""
        configurable = config.get("configurable", {})
        return cls(configurable["thread_id"], configurable.get("checkpoint_ns", ""))

    @classmethod
    def of_run(cls, run: RunInfo) -> Place:
        """Return the place of a run."""
        return cls(run.meta["thread_id"], str(run.meta["checkpoint_ns"]))

    @property
    def meta(self) -> Mapping[str, JsonValue]:
        """The meta of the run."""
        return {"thread_id": str(self.thread), "checkpoint_ns": self.namespace}

    def config(self, checkpoint_id: str) -> RunnableConfig:
        """Return the config of a checkpoint."""
        return {
            "configurable": {
                "thread_id": self.thread,
                "checkpoint_ns": self.namespace,
                "checkpoint_id": checkpoint_id,
            }
        }


def thread_agent(thread: object) -> str:
    """Return the id of the agent whose runs hold a thread."""
    return joined_id(AGENT, str(thread))


def entry_id(checkpoint_id: str, number: int) -> str:
    """Return the id of an event that belongs to a checkpoint."""
    return joined_id("c:" + checkpoint_id, str(number))


def entries_of(store: SyncStore, place: Place, checkpoint_id: str) -> list[Event]:
    """Return the events that belong to a checkpoint, in order."""
    entries: list[Event] = []
    size = _AT_ONCE
    while True:
        ids = [entry_id(checkpoint_id, number) for number in range(len(entries), len(entries) + size)]
        for event in store.find_events(place.agent, place.run, ids):
            if event is None:
                return entries
            entries.append(event)
        size *= 2


def newest_first(store: SyncStore, place: Place) -> Iterator[Event]:
    """Yield the events of all checkpoints, the highest id first, and read the run from its end as far as needed."""
    size = 4
    done: set[str] = set()
    while True:
        log = list(store.load_run(place.agent, place.run, types=[StateCheckpoint.event_type], last=size).log)
        latest = {decode_event(event, StateCheckpoint).checkpoint_id: event for event in log}
        # Every checkpoint before one that was the newest at its time has a lower id.
        is_complete = len(log) < size
        if is_complete or decode_event(log[0], StateCheckpoint).newest:
            floor = "" if is_complete else decode_event(log[0], StateCheckpoint).checkpoint_id
            for checkpoint_id in sorted(latest.keys() - done, reverse=True):
                if checkpoint_id < floor:
                    break
                done.add(checkpoint_id)
                yield latest[checkpoint_id]
        if is_complete:
            return
        size *= 4
