"""Where a store keeps what, and what it asks of the server each time: names, concerns, and what is remembered."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from agent_memory_log.events.jsonvalue import JsonValue, decode_json, encode_json
from agent_memory_log_mongo.contention import Contention
from agent_memory_log_mongo.documents import HEAD_FIELDS, Document, Head
from agent_memory_log_mongo.settings import Settings
from agent_memory_log_mongo.sums import WITHOUT_EVENTS

_MOST_KNOWN_RUNS = 10_000

_Lock = TypeVar("_Lock")


CHAIN = "chain"
SOUGHT_TYPES = "sought_types"
"""Indexes that some commands name, since not every server chooses them by itself."""


class Place:
    """The collections of a store, the concerns of its commands, and the newest commits this handle has seen.

    What is remembered is a guess that the unique index on ``k`` and ``s`` confirms with every append.
    """

    def __init__(self, settings: Settings) -> None:
        prefix = settings.collection_prefix
        self.settings = settings
        self.contention = Contention()
        self.commits = f"{prefix}commits"
        self.runs = f"{prefix}runs"
        self.info = f"{prefix}info"
        self.level = settings.read_concern
        # What a head's sum is over is all of its fields.
        self.head_fields = WITHOUT_EVENTS if settings.verify else HEAD_FIELDS
        self.all_have_sums = True  # unless the schema says that something was stored before there were any
        # A majority acknowledges what it has in its journals, unless a replica set is configured otherwise.
        self.concern: Document = {"w": settings.write_concern, "j": settings.journal}
        self._heads: dict[bytes, Head] = {}
        self._ceilings: dict[bytes, int] = {}
        # What a run was created with does not change while it lives: as JSON, so that each reader gets a copy.
        self._metas: dict[tuple[bytes, int], bytes] = {}

    def known(self, key: bytes) -> Head | None:
        """The newest commit of a run that this handle has seen, if it remembers."""
        return self._heads.get(key)

    def remember(self, key: bytes, head: Head) -> None:
        """Remember the newest commit of a run."""
        if key not in self._heads:
            _make_room(self._heads)
        self._heads[key] = head

    def meta(self, key: bytes, deletions: int) -> dict[str, JsonValue] | None:
        """The meta of a run in the life after so many deletions, if it is remembered."""
        text = self._metas.get((key, deletions))
        if text is None:
            return None
        meta: dict[str, JsonValue] = decode_json(text)
        return meta

    def remember_meta(self, key: bytes, deletions: int, meta: Mapping[str, JsonValue]) -> None:
        """Remember a run's meta."""
        _make_room(self._metas)
        self._metas[key, deletions] = encode_json(meta)

    def ceiling(self, key: bytes) -> int | None:
        """The ceiling in the document of a run that has an end, if it is remembered."""
        return self._ceilings.get(key)

    def remember_ceiling(self, key: bytes, ceiling: int) -> None:
        """Remember the ceiling of a run that has an end."""
        _make_room(self._ceilings)
        self._ceilings[key] = ceiling

    def forget_run(self, key: bytes) -> None:
        """Forget the newest commit of a run."""
        self._heads.pop(key, None)

    def forget(self) -> None:
        """Forget all that is remembered: after a failover it may never have been."""
        self._heads.clear()
        self._ceilings.clear()
        self._metas.clear()


def _make_room(remembered: dict[Any, Any]) -> None:
    """Forget all of it when it is full: to look again costs a round trip for each run."""
    if len(remembered) >= _MOST_KNOWN_RUNS:
        remembered.clear()


class Queues(Generic[_Lock]):
    """One lock for each run that is being appended to, gone when nobody holds or awaits it."""

    def __init__(self, make: type[_Lock]) -> None:
        self._make = make
        self._locks: weakref.WeakValueDictionary[bytes, _Lock] = weakref.WeakValueDictionary()
        self._guard = threading.Lock()

    def of(self, key: bytes) -> _Lock:
        """The lock of a run; keep it until you are done."""
        with self._guard:
            lock = self._locks.get(key)
            if lock is None:
                lock = self._locks[key] = self._make()
            return lock
