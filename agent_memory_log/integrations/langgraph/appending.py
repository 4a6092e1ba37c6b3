"""Appends to the runs of LangGraph's threads, with a cache of what each run holds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager

from langgraph.checkpoint.serde.base import SerializerProtocol

from agent_memory_log import EventData, Redacted, SyncStore, decode_event, new_event
from agent_memory_log.errors import EventConflict
from agent_memory_log.integrations.langgraph.encoding import MESSAGE, VALUE, Encoder
from agent_memory_log.integrations.langgraph.payloads import Node, StateCheckpoint, StatePruning
from agent_memory_log.integrations.langgraph.places import AGENT, Place, entries_of, entry_id, newest_first
from agent_memory_log.integrations.opening import runs_of
from agent_memory_log.store import RunHead, RunInfo

_MOST_CACHED = 1024
"""A process remembers the state of at most this many runs."""

_MOST_COUNTED = 4
"""For each run, a process remembers how many events at most this many checkpoints have."""


class RunCache:
    """A cache of the contents of a run, so that they need not be stored or looked up again.

    Attributes:
        lock: Held by the thread that reads or appends.
        version: The run's version when ``events`` were last known to be in the run.
        first_seq: The first seq that the run could hold then.
        events: The ids of values and messages in the run.
        newest: The highest id of a checkpoint; None if nothing is known yet.
        counts: The number of events of each checkpoint that was used lately.
        salt: The salt of new values.
        parent: The checkpoint that was stored or read last.
        values: The version and the node of each channel in ``parent``.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.forget(0, 1)

    def forget(self, version: int, first_seq: int) -> None:
        """Begin again with a run that is at this version."""
        self.version = version
        self.first_seq = first_seq
        self.events: set[str] = set()
        self.newest: str | None = None
        self.counts: dict[str, int] = {}
        self.salt = ""
        self.parent = ""
        self.values: dict[str, tuple[object, Node]] = {}

    def remember(self, checkpoint_id: str, versions: Mapping[str, object], values: Mapping[str, Node]) -> None:
        """Keep the nodes of a checkpoint, because the next checkpoint has most of them too."""
        self.parent = checkpoint_id
        self.values = {channel: (versions.get(channel), node) for channel, node in values.items()}
        self.newest = max(self.newest or "", checkpoint_id)


Make = Callable[[Encoder, RunCache], EventData]
"""Makes a payload with an encoder for its values and the cache of its run."""


class Threads:
    """The threads in a store.

    Args:
        store: The store.
    """

    def __init__(self, store: SyncStore) -> None:
        self.store = store
        self._caches: OrderedDict[tuple[str, str], RunCache] = OrderedDict()
        self._lock = threading.Lock()

    def runs(self, agent: str | None = None) -> Iterator[RunInfo]:
        """Return the runs of a thread's agent, or of all threads."""
        runs = runs_of(self.store, agent)
        return (run for run in runs if run.agent.startswith(f"{AGENT}/") and "checkpoint_ns" in run.meta)

    @contextmanager
    def cached(self, place: Place) -> Generator[RunCache]:
        """Lock a run in this process, and return its cache, without anything that was erased since."""
        with self._locked(place) as cache:
            (head,) = self.store.peek_runs([(place.agent, place.run)])
            self._refresh(place, cache, head)
            yield cache

    @contextmanager
    def added(
        self,
        place: Place,
        checkpoint_id: str,
        serde: SerializerProtocol,
        make: Make,
    ) -> Generator[RunCache]:
        """Append an event that belongs to a checkpoint, and the events of its values, as one append.

        The result is the cache of the run, which stays locked.

        Args:
            place: The run.
            checkpoint_id: The id of the checkpoint.
            serde: The serializer.
            make: Makes the payload. It is called again if another process changed the run.
        """
        with self._locked(place) as cache:
            if cache.newest is None:
                (head,) = self.store.peek_runs([(place.agent, place.run)])
                self._refresh(place, cache, head)
                newest = next(newest_first(self.store, place), None)
                cache.newest = "" if newest is None else decode_event(newest, StateCheckpoint).checkpoint_id
            while not self._try_add(place, checkpoint_id, Encoder(serde, cache.events, cache.salt), make, cache):
                pass
            yield cache

    @contextmanager
    def _locked(self, place: Place) -> Generator[RunCache]:
        with self._lock:
            cache = self._caches.setdefault((place.agent, place.run), RunCache())
            self._caches.move_to_end((place.agent, place.run))
            if len(self._caches) > _MOST_CACHED:
                self._caches.popitem(last=False)
        with cache.lock:
            yield cache

    def _refresh(self, place: Place, cache: RunCache, head: RunHead | None) -> bool:
        """Empty the cache if values of the run were erased, and return whether that is so."""
        if head is None or head.first_seq != cache.first_seq:
            cache.forget(*((0, 1) if head is None else (head.version, head.first_seq)))
            return True
        if head.version == cache.version:
            return False
        types = [StatePruning.event_type]
        pruned = bool(self.store.load_run(place.agent, place.run, after=cache.version, types=types).log)
        if pruned:
            cache.forget(head.version, head.first_seq)
        cache.version = head.version
        return pruned

    def _try_add(
        self,
        place: Place,
        checkpoint_id: str,
        encoder: Encoder,
        make: Make,
        cache: RunCache,
    ) -> bool:
        number = cache.counts.pop(checkpoint_id, None)
        if number is None:
            number = len(entries_of(self.store, place, checkpoint_id))
        payload = make(encoder, cache)
        parts = [event for events in encoder.events.values() for event in events]
        entry = new_event(payload, event_id=entry_id(checkpoint_id, number))
        try:
            result = self.store.append_events(place.agent, place.run, *parts, entry, meta=place.meta)
        except EventConflict as conflict:
            message = conflict.event_id.split("/")[0]
            if conflict.event_id == entry.event_id:  # another process was first
                cache.counts[checkpoint_id] = number + 1
            elif message in encoder.events and message.startswith(MESSAGE):
                cache.events.add(message)  # another release made other events of the same message
            else:
                raise
            return False
        cache.counts = dict([*cache.counts.items(), (checkpoint_id, number + 1)][-_MOST_COUNTED:])
        before = result.version - result.inserted
        if result.events[-1].seq <= before:  # another process stored an equal event
            return False
        if any(isinstance(event.data, Redacted) and event.event_id.startswith(VALUE) for event in result.events):
            cache.salt = str(result.version)  # an equal value was pruned, and its id cannot be used again
            return False
        (head,) = self.store.peek_runs([(place.agent, place.run)])
        if head is not None and before == cache.version:
            cache.version = result.version
        if self._refresh(place, cache, head):
            cache.salt = str(result.version)
            cache.newest = ""
            return False
        cache.events |= encoder.used
        return True
