"""The open database of one handle: its collections, its concerns, and the state that it remembers about runs."""

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
"""The names of indexes that some commands pass as a hint, because not every server chooses them."""

_MOST_RUNS = 10_000

_FIRST = 0.002
_LONGEST = 0.064
_GROWS = 2.0
_SHRINKS = 0.8
"""The bounds of a writer's window in seconds, and the factors by which it changes. The writer rests for a random time,
at most one window.

The window doubles when another writer was faster, and shrinks after each stored append. It does not limit the number of
attempts; the clock does (``engine/clock.py``). The longest window was measured with eight processes on one run. With a
longer one, the server idles; with a shorter one, most inserts are refused.

If an append reset the window, the writer that won last would keep winning, since it already knows the newest commit.
"""

_CONTESTED_SECONDS = 0.25
_SHARE_THAT_RESTS = 0.5
"""The time after a refusal in which a writer rests before some appends to the run, and the share of those appends.

If a writer rested before every append, the server would idle. If it never rested, most inserts would be refused. Both
values were measured with eight processes on one run.
"""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Remembered(dict[_Key, _Value]):
    """A map of remembered values. It is cleared when it is full; reading a value again costs one round trip."""

    def __setitem__(self, key: _Key, value: _Value) -> None:
        if len(self) >= _MOST_RUNS and key not in self:
            self.clear()
        super().__setitem__(key, value)


class Contention:
    """The runs for which another writer was faster a moment ago."""

    def __init__(self) -> None:
        # The time until which a run counts as contested, and its window.
        self._contested: Remembered[bytes, tuple[float, float]] = Remembered()

    def rest(self, key: bytes) -> float:
        """Return the longest rest in seconds before the first attempt of an append; 0 for no rest."""
        contested = self._contested.get(key)
        if contested is None:
            return 0.0
        until, window = contested
        if time.monotonic() >= until:
            self._contested.pop(key, None)
            return 0.0
        return window if random.random() < _SHARE_THAT_RESTS else 0.0  # noqa: S311  # not for secrets

    def refused(self, key: bytes) -> float:
        """Record that another writer was faster. Return the longest rest in seconds before the next attempt."""
        _, window = self._contested.get(key, (0.0, 0.0))
        window = min(max(_FIRST, window * _GROWS), _LONGEST)
        self._contested[key] = (time.monotonic() + _CONTESTED_SECONDS, window)
        return window

    def stored(self, key: bytes) -> None:
        """Record that an append was stored."""
        contested = self._contested.get(key)
        if contested is not None:
            self._contested[key] = (contested[0], contested[1] * _SHRINKS)


class OpenDatabase:
    """A database of the driver with all state that the operations of one handle share."""

    def __init__(
        self,
        client: Any,  # noqa: ANN401  # a client of any driver
        name: str,
        settings: Settings,
        surface: Surface,
    ) -> None:
        """Raise ``InvalidArgument`` if ``name`` is not a valid database name."""
        try:
            database = client[name]
        except (InvalidName, TypeError) as error:
            raise InvalidArgument(f"{name!r} is not a valid database name: {error}") from error
        self.driver: Any = database
        self.name = f"MongoDB database {name}"
        self.settings = settings
        self.surface = surface
        self.commits = f"{settings.collection_prefix}commits"
        self.runs = f"{settings.collection_prefix}runs"
        self.erasures = f"{settings.collection_prefix}erasures"
        self.info = f"{settings.collection_prefix}info"
        self.level = settings.read_concern
        # A commit's own checksum covers more fields than a head needs.
        self.head_fields = WITHOUT_EVENTS if settings.verify else HEAD_FIELDS
        self.all_have_sums = True  # False for a database that had schema version 1, without checksums.
        # "j" is explicit, because a replica set can be configured to acknowledge writes before they are in the journal.
        self.concern: Document = {"w": settings.write_concern, "j": settings.journal}
        self.heads: Remembered[bytes, Head] = Remembered()
        """The newest commits that this handle knows. They may be outdated; the unique index checks every append."""
        self.ceilings: Remembered[bytes, int] = Remembered()
        """The ceilings of the runs that have an end."""
        self.metas: Remembered[tuple[bytes, int], bytes] = Remembered()
        """The meta of runs by key and number of deletions. It is JSON, so that each reader gets its own copy."""
        self.contention = Contention()
        self.signals = Signals()
        self.watcher = Watcher(database[self.commits], self.signals, surface)
        # A lock that is held stays in the weak map. The other map saves making the lock again for each append.
        self._recent_locks: Remembered[bytes, Any] = Remembered()
        self._locks: weakref.WeakValueDictionary[bytes, Any] = weakref.WeakValueDictionary()
        self._guard = threading.Lock()

    def lock(self, key: bytes) -> Any:  # noqa: ANN401  # a lock of threads or of tasks
        """Return the lock for appends to a run. The map is weak, so the caller must keep the lock while it uses it."""
        lock = self._recent_locks.get(key)
        if lock is None:
            with self._guard:
                lock = self._locks.get(key)
                if lock is None:
                    lock = self._locks[key] = self.surface.make_lock()
                self._recent_locks[key] = lock
        return lock

    def forget(self) -> None:
        """Forget all remembered values, because a failover may have rolled them back."""
        self.heads.clear()
        self.ceilings.clear()
        self.metas.clear()
