"""Defects of ``load_run(last=...)``."""

from __future__ import annotations

from typing import Any

import msgspec

from agent_memory_log import Snapshot
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument
from tests.conformance.broken_stores.base import BrokenStore, Load, caught_by, changed_copy

_ORDER = "test_6_last_returns_the_newest_events_in_append_order"
_TYPES = "test_6_last_counts_only_events_of_the_types_after_the_seq"
_EQUAL = "test_6_the_newest_events_equal_a_read_that_begins_with_them"
_EXTENDED = "test_6_the_newest_events_extended_by_new_events_equal_a_new_read"
_FIRST = "test_6_last_begins_with_the_first_event_of_the_run"
_REFUSED = "test_6_a_load_refuses_an_invalid_last"
_FRESH = "test_8_last_sees_every_append_acknowledged_before_it"


class _LoadsTheNewest(BrokenStore):
    """A store that returns the result of ``newest`` for each read with ``last``."""

    async def loading(self, load: Load) -> Snapshot:
        types = None if load.types is None else list(load.types)
        load = msgspec.structs.replace(load, types=types)
        await self.correct(load)  # it refuses invalid arguments
        return await self.newest(load, load.last) if load.last else await self.correct(load)

    async def newest(self, load: Load, last: int) -> Snapshot:
        raise NotImplementedError

    async def correct(self, load: Load, **changes: Any) -> Snapshot:
        """Read without the defect."""
        return await super().loading(msgspec.structs.replace(load, **changes))


@caught_by(_ORDER, _TYPES, _FIRST, _FRESH)
class IgnoresLast(_LoadsTheNewest):
    async def newest(self, load: Load, last: int) -> Snapshot:
        assert last
        return await self.correct(load, last=None)


@caught_by(_ORDER, _FIRST)
class ReturnsTheOldestEvents(_LoadsTheNewest):
    async def newest(self, load: Load, last: int) -> Snapshot:
        return await self.correct(load, limit=last, last=None)


@caught_by(_ORDER)
class ReturnsTheNewestEventFirst(_LoadsTheNewest):
    async def newest(self, load: Load, last: int) -> Snapshot:
        snapshot = await self.correct(load, last=last)
        return changed_copy(snapshot, reversed(snapshot.log))


@caught_by(_ORDER)
class SelectsTheNewestEventsByTime(_LoadsTheNewest):
    async def newest(self, load: Load, last: int) -> Snapshot:
        newest = (await self.correct(load, last=None)).events[-last:]
        return changed_copy(await self.correct(load), sorted(newest, key=lambda event: event.seq))


@caught_by(_TYPES)
class CountsFilteredEventsInLast(_LoadsTheNewest):
    async def newest(self, load: Load, last: int) -> Snapshot:
        snapshot = await self.correct(load, last=last, types=None)
        log = [event for event in snapshot.log if not load.types or event.type in load.types]
        return changed_copy(snapshot, log, types=load.types)


@caught_by(_TYPES)
class IgnoresAfterWithLast(_LoadsTheNewest):
    async def newest(self, load: Load, last: int) -> Snapshot:
        return await self.correct(load, after=0, last=last)


@caught_by(_ORDER, _EQUAL, _EXTENDED)
class PretendsThatTheNewestEventsAreTheWholeRun(_LoadsTheNewest):
    async def newest(self, load: Load, last: int) -> Snapshot:
        return changed_copy(await self.correct(load, last=last), after=load.after)


@caught_by(_EQUAL)
class BeginsEveryReadWithItsFirstEvent(_LoadsTheNewest):
    """A store whose snapshot begins with its first event, even if it has fewer events than requested."""

    async def newest(self, load: Load, last: int) -> Snapshot:
        snapshot = await self.correct(load, last=last)
        return changed_copy(snapshot, after=snapshot.log[0].seq - 1) if snapshot.log else snapshot


@caught_by(_EQUAL)
class CountsSeqsInsteadOfEvents(_LoadsTheNewest):
    async def newest(self, load: Load, last: int) -> Snapshot:
        snapshot = await self.correct(load, last=last)
        return changed_copy(snapshot, after=max(load.after, snapshot.version - last))


@caught_by(_EQUAL)
class EndsAtTheNewestReturnedEvent(_LoadsTheNewest):
    async def newest(self, load: Load, last: int) -> Snapshot:
        snapshot = await self.correct(load, last=last)
        return changed_copy(snapshot, last_seq=snapshot.log[-1].seq) if snapshot.log else snapshot


@caught_by(_EQUAL)
class ReportsOnlyReturnedRedactions(_LoadsTheNewest):
    async def newest(self, load: Load, last: int) -> Snapshot:
        return changed_copy(await self.correct(load, last=last), redactions=None)


@caught_by(_REFUSED)
class AcceptsLastWithLimit(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        try:
            return await super().loading(load)
        except InvalidArgument:
            return await super().loading(msgspec.structs.replace(load, last=None))


@caught_by(_REFUSED)
class AcceptsLastAfterTheVersion(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        try:
            return await super().loading(load)
        except CursorOutOfRange:
            if load.last is None:
                raise
            return await self.read(load.agent, load.run)


@caught_by(_FRESH)
class ReadsTheNewestEventsFromACache(_LoadsTheNewest):
    async def newest(self, load: Load, last: int) -> Snapshot:
        cache: dict[Any, Snapshot] = self.__dict__.setdefault("_cache", {})
        key = load.agent, load.run, load.after, tuple(load.types or ("all",)), last
        return cache[key] if key in cache else cache.setdefault(key, await self.correct(load))
