"""Defects of isolation: stores that share a mutable value with their callers."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator
from typing import ClassVar

import msgspec

from agent_memory_log import AppendResult, Event, JsonValue, Snapshot
from agent_memory_log.store import RunPage
from tests.conformance.broken_stores.base import Append, BrokenStore, Listing, Load, caught_by, changed_copy


class _SharesEvents(BrokenStore):
    """A store that copies the events it stores and returns.

    A subclass shares the events of one origin with its callers: appended, returned, loaded or followed events.
    """

    shared_origin: ClassVar[str] = ""

    def share_or_copy(self, event: Event, origin: str) -> Event:
        return event if origin == self.shared_origin else copy.deepcopy(event)

    def stored(self, event: Event, origin: str) -> Event:
        return self.share_or_copy(self.notes[event.event_id], origin)

    async def appending(self, append: Append) -> AppendResult:
        result = await super().appending(append)
        for stored, original in zip(result.events, append.events, strict=True):
            if result.inserted:
                event = msgspec.structs.replace(stored, data=original.data, labels=original.labels)
                self.notes[stored.event_id] = self.share_or_copy(event, "appended")
        origin = "result" if result.inserted else "repeated"
        return msgspec.structs.replace(result, events=tuple(self.stored(event, origin) for event in result.events))

    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        return changed_copy(snapshot, [self.stored(event, "loaded") for event in snapshot.log])

    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        async for event in self.follow_correctly(agent, run, after):
            yield self.stored(event, "followed")


@caught_by("test_7_changing_appended_events_does_not_change_the_store")
class SharesAppendedEvents(_SharesEvents):
    shared_origin = "appended"


@caught_by("test_7_changing_the_result_of_append_does_not_change_the_store")
class SharesTheResultOfAppend(_SharesEvents):
    shared_origin = "result"


@caught_by("test_7_changing_the_result_of_a_repeated_append_does_not_change_the_store")
class SharesTheResultOfARepeatedAppend(_SharesEvents):
    shared_origin = "repeated"


@caught_by("test_7_changing_a_loaded_snapshot_does_not_change_the_store")
class SharesLoadedEvents(_SharesEvents):
    shared_origin = "loaded"


@caught_by("test_7_changing_followed_events_does_not_change_the_store")
class SharesFollowedEvents(_SharesEvents):
    shared_origin = "followed"


@caught_by("test_7_changing_appended_events_does_not_change_the_store")
class ReturnsTheDataOfTheCaller(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        result = await super().appending(append)
        events = [
            msgspec.structs.replace(stored, data=original.data)
            for stored, original in zip(result.events, append.events, strict=True)
        ]
        return msgspec.structs.replace(result, events=tuple(events))


@caught_by("test_7_changing_listed_meta_does_not_change_the_store")
class SharesTheMetaItLists(BrokenStore):
    async def listing(self, listing: Listing) -> RunPage:
        page = await super().listing(listing)
        runs = [
            msgspec.structs.replace(info, meta=self.notes.setdefault((info.agent, info.run), info.meta))
            for info in page.runs
        ]
        return RunPage(tuple(runs), page.cursor)


@caught_by("test_7_changing_a_loaded_snapshot_does_not_change_the_store")
class SharesTheMetaItLoads(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        meta: dict[str, JsonValue] = self.notes.setdefault((load.agent, load.run), snapshot.meta)
        return changed_copy(snapshot, meta=meta)
