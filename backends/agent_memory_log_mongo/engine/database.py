"""A database as one handle uses it: its collections, how commands are sent, and what the handle remembers of runs."""

from __future__ import annotations

import random
import threading
import time
import weakref
from typing import Any, TypeVar

from pymongo.errors import InvalidName

from agent_memory_log.errors import InvalidArgument
from agent_memory_log_mongo.documents.checksums import WITHOUT_EVENTS
from agent_memory_log_mongo.documents.commits import HEAD_FIELDS, Document, Head
from agent_memory_log_mongo.engine.change_stream import Signals, Watcher
from agent_memory_log_mongo.engine.surface import Surface
from agent_memory_log_mongo.settings import Settings

CHAIN = "chain"
SOUGHT_TYPES = "sought_types"
"""Indexes that some commands name, since not every server chooses them by itself."""

_MOST_RUNS = 10_000

_FIRST = 0.002
_LONGEST = 0.064
_GROWS = 2.0
_SHRINKS = 0.8
"""The window a writer's rest is drawn from, in seconds: it doubles when another was faster, and shrinks with an append.

This is no limit on how often a writer tries: that is the clock's (``engine/clock.py``). The longest was measured with
eight processes on one run: with a longer one the server idles, with a shorter one few of the inserts get in.

A window that is forgotten with each append leaves the run to whoever won last, who need not look, and the others wait.
"""

_CONTESTED_SECONDS = 0.25
_SHARE_THAT_RESTS = 0.5
"""For how long after it was refused a writer rests before some of its appends to the run, and before how many of them.

Were all to rest, the server would idle; were none, few would get in. Measured with eight processes on one run.
"""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Remembered(dict[_Key, _Value]):
    """What is remembered of some runs. All of it is forgotten when it is full: to look again costs a round trip."""

    def __setitem__(self, key: _Key, value: _Value) -> None:
        if len(self) >= _MOST_RUNS and key not in self:
            self.clear()
        super().__setitem__(key, value)


class Contention:
    """The runs at which another writer was faster a moment ago."""

    def __init__(self) -> None:
        # Until when a run counts as contested, and its window.
        self._contested: Remembered[bytes, tuple[float, float]] = Remembered()

    def rest(self, key: bytes) -> float:
        """For how many seconds at most to rest before an append that was not refused; 0: not at all."""
        until, window = self._contested.get(key, (0.0, 0.0))
        if time.monotonic() >= until:
            self._contested.pop(key, None)
            return 0.0
        return window if random.random() < _SHARE_THAT_RESTS else 0.0  # noqa: S311  # not for secrets

    def refused(self, key: bytes) -> float:
        """Note that another writer was faster; for how many seconds at most to rest before the next attempt."""
        _, window = self._contested.get(key, (0.0, 0.0))
        window = min(max(_FIRST, window * _GROWS), _LONGEST)
        self._contested[key] = (time.monotonic() + _CONTESTED_SECONDS, window)
        return window

    def stored(self, key: bytes) -> None:
        """Note that an append was stored."""
        contested = self._contested.get(key)
        if contested is not None:
            self._contested[key] = (contested[0], contested[1] * _SHRINKS)


class OpenDatabase:
    """A database of the driver, and everything that the operations of one handle share."""

    def __init__(
        self,
        client: Any,  # noqa: ANN401  # of any driver
        name: str,
        settings: Settings,
        surface: Surface,  # of any driver
    ) -> None:
        """Raises ``InvalidArgument`` for what is no name of a database."""
        try:
            database = client[name]
        except (InvalidName, TypeError) as error:
            raise InvalidArgument(f"{name!r} is no name of a database: {error}") from error
        self.driver: Any = database
        self.name = f"MongoDB database {name}"
        self.settings = settings
        self.surface = surface
        self.commits = f"{settings.collection_prefix}commits"
        self.runs = f"{settings.collection_prefix}runs"
        self.info = f"{settings.collection_prefix}info"
        self.level = settings.read_concern
        # What a head's sum is over is all of its fields.
        self.head_fields = WITHOUT_EVENTS if settings.verify else HEAD_FIELDS
        self.all_have_sums = True  # unless the schema says that something was stored before there were any
        # A majority acknowledges what it has in its journals, unless a replica set is configured otherwise.
        self.concern: Document = {"w": settings.write_concern, "j": settings.journal}
        self.heads: Remembered[bytes, Head] = Remembered()
        """The newest commits this handle has seen: a guess, which the unique index confirms with every append."""
        self.ceilings: Remembered[bytes, int] = Remembered()
        """The ceilings in the documents of runs that have an end."""
        self.metas: Remembered[tuple[bytes, int], bytes] = Remembered()
        """What a run was created with in the life after so many deletions, as JSON, so that each reader gets a copy."""
        self.contention = Contention()
        self.signals = Signals()
        self.watcher = Watcher(database[self.commits], self.signals, surface)
        self._locks: weakref.WeakValueDictionary[bytes, Any] = weakref.WeakValueDictionary()
        self._guard = threading.Lock()

    def lock(self, key: bytes) -> Any:  # noqa: ANN401  # of threads or of tasks
        """The lock of a run that is being appended to, gone when nobody holds or awaits it; keep it until then."""
        with self._guard:
            lock = self._locks.get(key)
            if lock is None:
                lock = self._locks[key] = self.surface.make_lock()
            return lock

    def forget(self) -> None:
        """Forget all that is remembered: after a failover it may never have been."""
        self.heads.clear()
        self.ceilings.clear()
        self.metas.clear()
