"""Decides which records give way when the memory of a subject is larger than its limits.

First come expired records, then those with the fewest stars, then those that were updated the longest time ago.
Consents never give way and never count.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from datetime import datetime
from weakref import WeakKeyDictionary

import msgspec

from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Consent
from agent_memory_log.memory.records.quotas import NO_QUOTAS, Limit, LimitUse, Quotas
from agent_memory_log.memory.records.record import stars_of
from agent_memory_log.memory.stream.payloads import MemoryRemembered
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.models.tokens import estimate_tokens

LEAST_STARS = 3
"""A record with fewer stars gives way to a soft limit. ``cleanup`` archives such episodes by default."""

_LAST = 2**63
"""The position of a record that has no seq yet. It sorts after every stored record."""

_Changes = Mapping[str, Live | None]
"""The records that differ from a state, by id. None: closed."""


class Size(msgspec.Struct, frozen=True):
    """The share of a record in each limit. The names are those of the limits."""

    keyed: int
    records: int = 0
    content_bytes: int = 0
    profile_tokens: int = 0


_NOTHING = Size(0)
_NAMES = Size.__struct_fields__

_sizes: WeakKeyDictionary[State, dict[str, tuple[MemoryRemembered, Size]]] = WeakKeyDictionary()
"""The measured records of each state, with the content that was measured."""


class Room:
    """The limits of one subject, and their use by a state and the changes to it. The state must not change.

    Args:
        state: The subject's state.
        max_keyed: The most records with a key. None: no limit.
        quotas: The other limits.
    """

    def __init__(self, state: State, max_keyed: int | None, quotas: Quotas) -> None:
        self._state = state
        self._limits = {"keyed": Limit(hard=max_keyed), **msgspec.structs.asdict(quotas)}
        self._measures = quotas != NO_QUOTAS
        self._base: list[int] | None = None

    def refusal(self, candidate: Candidate) -> str:
        """Return the reason to block a candidate that is larger than a hard limit on its own, or ``""``."""
        if not self._measures or isinstance(candidate.data, Consent):
            return ""
        size = _measured(
            candidate.key, candidate.words, candidate.data.to_map(), (*candidate.entities, *candidate.tags)
        )
        for name in _NAMES:
            hard = self._limits[name].hard
            if hard is not None and getattr(size, name) > hard:
                return f"quota:{name}"
        return ""

    def use(self, scope: str) -> tuple[LimitUse, ...]:
        """Return the use of each limit by the state."""
        self._measures = True
        return tuple(
            LimitUse(scope, name, used, self._limits[name].soft, self._limits[name].hard)
            for name, used in zip(_NAMES, self._used({}), strict=True)
        )

    def giving_way(self, changes: _Changes, new: str, now: datetime) -> list[Live]:
        """Return the records to archive, so that the limits hold. The new record stays."""
        max_keyed = self._limits["keyed"].hard
        if not self._measures and (max_keyed is None or len(self._state.keys) + len(changes) <= max_keyed):
            return []  # the common case: no record is looked at
        used = dict(zip(_NAMES, self._used(changes), strict=True))
        giving: list[Live] = []
        waiting: list[tuple[bool, int, datetime, int, int, Live]] | None = None
        while True:
            hard = {name for name, limit in self._limits.items() if limit.hard is not None and used[name] > limit.hard}
            soft = {name for name, limit in self._limits.items() if limit.soft is not None and used[name] > limit.soft}
            if not hard | soft:
                return giving
            if waiting is None:
                waiting = list(self._in_order(changes, new, now))
                heapq.heapify(waiting)
            if not waiting:
                return giving
            is_valid, stars, *_, live = heapq.heappop(waiting)
            size = self._size(live)
            exceeded = hard | soft if not is_valid or stars < LEAST_STARS else hard
            if any(getattr(size, name) for name in exceeded):
                giving.append(live)
                for name in _NAMES:
                    used[name] -= getattr(size, name)
            elif not exceeded:
                return giving  # the remaining records give way to a hard limit only

    def _in_order(
        self, changes: _Changes, new: str, now: datetime
    ) -> Iterator[tuple[bool, int, datetime, int, int, Live]]:
        # Each write to a full subject compares all its records. Comparing tuples is faster than a key function.
        for index, live in enumerate({**self._state.records, **changes}.values()):
            if live is not None and live.id != new and live.memory.kind != Consent.kind:
                memory = live.memory
                is_valid = memory.valid_until is None or memory.valid_until > now
                stars = stars_of(min(max(memory.importance, 0), 1))
                yield is_valid, stars, live.updated, live.seq or _LAST, index, live

    def _used(self, changes: _Changes) -> list[int]:
        if self._base is None:
            self._base = [0] * len(_NAMES)
            for live in self._state.records.values():
                _add(self._base, self._size(live), 1)
        used = self._base.copy()
        for record, changed in changes.items():
            stored = self._state.records.get(record)
            if stored is not None:
                _add(used, self._size(stored), -1)
            if changed is not None:
                _add(used, self._size(changed), 1)
        return used

    def _size(self, live: Live) -> Size:
        memory = live.memory
        if memory.kind == Consent.kind:
            return _NOTHING
        if not self._measures:
            return Size(bool(memory.key))
        sizes = _sizes.setdefault(self._state, {})
        measured, size = sizes.get(live.id, (None, _NOTHING))
        if measured is not memory:
            words = memory.text or live.data.describe()
            size = _measured(memory.key, words, memory.data, (*memory.entities, *memory.tags))
            sizes[live.id] = memory, size
        return size


def _measured(key: str, words: str, data: object, names: tuple[str, ...]) -> Size:
    size = len(msgspec.json.encode((key, words, data, names)))
    return Size(bool(key), 1, size, estimate_tokens(words) if key else 0)


def _add(used: list[int], size: Size, sign: int) -> None:
    for index, name in enumerate(_NAMES):
        used[index] += sign * getattr(size, name)
