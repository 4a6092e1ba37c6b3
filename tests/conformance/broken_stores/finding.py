"""Defects of ``find_events``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

from agent_memory_log import Event
from agent_memory_log.errors import InvalidEvent, RunExpired
from agent_memory_log.events.payloads import Redacted
from tests.conformance.broken_stores.base import BrokenStore, caught_by, with_data

Events = tuple[Event | None, ...]
EventIds = Iterable[str]

_ORDER = "test_20_find_events_returns_events_in_the_order_of_its_argument"
_UNKNOWN = "test_20_find_events_returns_none_for_ids_that_the_run_does_not_have"
_EXACT = "test_20_event_ids_are_compared_exactly"
_REFUSED = "test_20_find_events_refuses_invalid_arguments"
_EVERY_HANDLE = "test_20_every_handle_finds_appended_and_redacted_events"
_MANY = "test_20_find_events_accepts_any_number_of_ids"


class _Finds(BrokenStore):
    """A store that returns the result of ``changed`` for the found events."""

    async def find_events(self, agent: str, run: str, event_ids: EventIds) -> Events:
        return self.changed(await super().find_events(agent, run, event_ids))

    def changed(self, events: Events) -> Events:
        return events


@caught_by(_ORDER)
class ReturnsFoundEventsInSeqOrder(_Finds):
    def changed(self, events: Events) -> Events:
        return tuple(sorted(events, key=lambda event: 0 if event is None else event.seq))


@caught_by(_ORDER)
class ReturnsFoundEventsOnce(_Finds):
    def changed(self, events: Events) -> Events:
        return tuple({event and event.seq: event for event in events}.values())


@caught_by(_ORDER)
class ReturnsFoundEventsAsAList(_Finds):
    def changed(self, events: Events) -> Events:
        return cast("Events", list(events))


@caught_by(_UNKNOWN, _MANY)
class LeavesOutUnknownIds(_Finds):
    def changed(self, events: Events) -> Events:
        return tuple(event for event in events if event is not None)


@caught_by(_ORDER)
class FindsEventsWithoutTheirSeq(_Finds):
    def changed(self, events: Events) -> Events:
        return tuple(event and msgspec.structs.replace(event, seq=0) for event in events)


@caught_by("test_20_find_events_returns_any_content_unchanged")
class RoundsTheNumbersOfFoundEvents(_Finds):
    def changed(self, events: Events) -> Events:
        return tuple(
            event and with_data(event, lambda value: float(value) if type(value) is int else value) for event in events
        )


@caught_by("test_20_find_events_returns_any_content_unchanged")
class FindsTheSameObjectsAgain(BrokenStore):
    async def find_events(self, agent: str, run: str, event_ids: EventIds) -> Events:
        ids = tuple(event_ids)
        if (agent, run, ids) not in self.notes:
            self.notes[agent, run, ids] = await super().find_events(agent, run, ids)
        return cast("Events", self.notes[agent, run, ids])


@caught_by(_UNKNOWN)
class FindsEventsOfOtherRuns(BrokenStore):
    async def find_events(self, agent: str, run: str, event_ids: EventIds) -> Events:
        ids = list(event_ids)
        events = await super().find_events(agent, run, ids)
        elsewhere = {
            event.event_id: event
            for info in (await self.list_runs()).runs
            for event in (await self.read(info.agent, info.run)).log
        }
        return tuple(event or elsewhere.get(event_id) for event, event_id in zip(events, ids, strict=True))


@caught_by(_EVERY_HANDLE)
class FindsNoRedactedEvents(_Finds):
    def changed(self, events: Events) -> Events:
        return tuple(None if event and isinstance(event.data, Redacted) else event for event in events)


@caught_by(_EXACT)
class FindsEventIdsInAnyCase(BrokenStore):
    async def find_events(self, agent: str, run: str, event_ids: EventIds) -> Events:
        events = {event.event_id.lower(): event for event in (await self.read(agent, run)).log}
        return tuple(events.get(event_id.lower()) for event_id in event_ids)


@caught_by(_EXACT)
class FindsEventIdsWithoutDashes(BrokenStore):
    async def find_events(self, agent: str, run: str, event_ids: EventIds) -> Events:
        events = {event.event_id.replace("-", ""): event for event in (await self.read(agent, run)).log}
        return tuple(events.get(event_id.replace("-", "")) for event_id in event_ids)


@caught_by(_EVERY_HANDLE)
class KeepsFoundEventsPerHandle(BrokenStore):
    """A store that returns an event as it was when this handle found it first."""

    async def find_events(self, agent: str, run: str, event_ids: EventIds) -> Events:
        cache: dict[str, Event] = self.__dict__.setdefault("_cache", {})
        events = await super().find_events(agent, run, event_ids)
        return tuple(event and cache.setdefault(event.event_id, event) for event in events)


@caught_by(_MANY)
class FindsAThousandEventsAtMost(BrokenStore):
    async def find_events(self, agent: str, run: str, event_ids: EventIds) -> Events:
        ids = list(event_ids)
        return (*await super().find_events(agent, run, ids[:1000]), *[None] * (len(ids) - 1000))


@caught_by("test_20_find_events_refuses_an_expired_run")
class FindsNothingInAnExpiredRun(BrokenStore):
    async def find_events(self, agent: str, run: str, event_ids: EventIds) -> Events:
        ids = list(event_ids)
        try:
            return await super().find_events(agent, run, ids)
        except RunExpired:
            return (None,) * len(ids)


@caught_by("test_20_find_events_refuses_an_expired_run")
class FindsNoIdsInAnyRun(BrokenStore):
    async def find_events(self, agent: str, run: str, event_ids: EventIds) -> Events:
        ids = list(event_ids)
        return await super().find_events(agent, run, ids) if ids else ()


@caught_by(_REFUSED)
class AcceptsInvalidEventIds(BrokenStore):
    async def find_events(self, agent: str, run: str, event_ids: EventIds) -> Events:
        try:
            return await super().find_events(agent, run, event_ids)
        except InvalidEvent as error:
            if error.field != "event_id":
                raise
            return (None,) * len(list(event_ids))


@caught_by(_REFUSED)
class FindsTheLettersOfAText(BrokenStore):
    async def find_events(self, agent: str, run: str, event_ids: EventIds) -> Events:
        return await super().find_events(agent, run, list(event_ids) if isinstance(event_ids, str) else event_ids)
