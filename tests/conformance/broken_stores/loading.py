"""Defects of reads: order, selection, fields of a snapshot, and stale reads."""

from __future__ import annotations

from typing import Any

import msgspec

from agent_memory_log import Snapshot
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument
from agent_memory_log.snapshot import EventList
from tests.conformance.broken_stores.base import BrokenStore, Load, caught_by, changed_copy


@caught_by("test_6_an_unknown_run_loads_as_an_empty_snapshot")
class RaisesForAnUnknownRun(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        if not snapshot.version:
            raise CursorOutOfRange("unknown")
        return snapshot


class _Unsorted(Snapshot):
    @property
    def events(self) -> EventList:
        return self.log


@caught_by(
    "test_6_log_is_in_append_order_and_events_by_time_then_seq",
    "test_6_limit_counts_in_append_order_not_in_time_order",
    "test_12_a_redacted_event_keeps_its_position_in_time_order",
)
class DoesNotSortEvents(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        return changed_copy(await super().loading(load), kind=_Unsorted)


@caught_by("test_6_log_is_in_append_order_and_events_by_time_then_seq", "test_1_an_append_stores_its_events_in_order")
class SortsTheLogByTime(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        return changed_copy(snapshot, sorted(snapshot.log, key=lambda event: event.timestamp))


@caught_by(
    "test_6_a_snapshot_holds_the_arguments_of_its_read",
    "test_6_extend_refuses_a_gap_another_filter_and_another_run",
    "test_6_a_snapshot_extended_by_new_events_equals_a_new_read",
)
class LosesTheArgumentsOfTheRead(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        return changed_copy(await super().loading(load), after=0, types=None)


@caught_by("test_6_after_leaves_out_events_up_to_that_seq", "test_6_pages_cover_the_run_exactly_once")
class IncludesAfter(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        return changed_copy(
            await super().loading(msgspec.structs.replace(load, after=max(load.after - 1, 0))), after=load.after
        )


@caught_by("test_6_load_run_refuses_an_after_beyond_the_version", "test_3_a_deleted_run_keeps_its_version")
class AcceptsAfterBeyondTheVersion(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        try:
            return await super().loading(load)
        except CursorOutOfRange:
            snapshot = await self.read(load.agent, load.run)
            return changed_copy(snapshot, [], after=load.after)


@caught_by(
    "test_6_types_leave_out_events_of_other_types",
    "test_6_a_selection_never_returns_events_of_other_runs",
    "test_12_a_redacted_event_is_selected_by_the_type_redacted",
    "test_13_an_unknown_type_can_be_selected_and_redacted",
)
class IgnoresTypes(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        types = None if load.types is None else list(load.types)
        return changed_copy(await super().loading(msgspec.structs.replace(load, types=None)), types=types)


@caught_by("test_6_types_leave_out_events_of_other_types", "test_6_extending_page_by_page_equals_one_read")
class ReturnsAllEventsIfNoTypeMatches(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        types = None if load.types is None else list(load.types)
        stored_types = {event.type for event in (await self.read(load.agent, load.run)).log}
        requested = types if types and stored_types & set(types) else None
        return changed_copy(await super().loading(msgspec.structs.replace(load, types=requested)), types=types)


@caught_by("test_6_every_set_of_types_selects_exactly_those_events")
class SelectsPlannerNotesOnlyWithoutToolCalls(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        types = None if load.types is None else frozenset(load.types)
        requested = types - {"planner_note"} if types is not None and "tool_call" in types else types
        return changed_copy(await super().loading(msgspec.structs.replace(load, types=requested)), types=types)


@caught_by("test_6_limit_stops_the_read", "test_6_limit_counts_only_returned_events")
class IgnoresLimit(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        return await super().loading(msgspec.structs.replace(load, limit=None))


@caught_by("test_6_limit_counts_only_returned_events")
class CountsFilteredEventsInLimit(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        page = await super().loading(msgspec.structs.replace(load, types=None))
        if load.types is None:
            return page
        types = frozenset(load.types)
        return changed_copy(page, [event for event in page.log if event.type in types], types=types)


@caught_by("test_6_limit_counts_in_append_order_not_in_time_order")
class LimitsInTimeOrder(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(msgspec.structs.replace(load, limit=None))
        limited = sorted(list(snapshot.events)[: load.limit], key=lambda event: event.seq)
        return changed_copy(snapshot, limited, last_seq=limited[-1].seq if limited else snapshot.last_seq)


@caught_by("test_6_limit_stops_the_read", "test_6_pages_cover_the_run_exactly_once")
class ReportsTheVersionAsLastSeq(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        return changed_copy(snapshot, last_seq=snapshot.version)


@caught_by("test_6_types_leave_out_events_of_other_types", "test_6_a_snapshot_extended_by_new_events_equals_a_new_read")
class ReportsTheLastReturnedSeqAsLastSeq(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        return changed_copy(snapshot, last_seq=snapshot.log[-1].seq if snapshot.log else load.after)


@caught_by("test_6_a_snapshot_holds_the_arguments_of_its_read", "test_6_limit_stops_the_read")
class ReportsLastSeqAsTheVersion(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        return changed_copy(snapshot, version=snapshot.last_seq)


@caught_by("test_6_a_selection_never_returns_events_of_other_runs", "test_3_each_run_has_its_own_seqs")
class ReturnsEventsOfOtherRuns(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        other_events = [
            event
            for info in (await self.list_runs()).runs
            if info.run != load.run
            for event in (await self.read(info.agent, info.run)).log
        ]
        return changed_copy(snapshot, [*snapshot.log, *other_events])


@caught_by("test_6_load_run_refuses_invalid_arguments")
class AcceptsInvalidLoadArguments(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        try:
            return await super().loading(load)
        except InvalidArgument:
            return await self.read(load.agent, load.run)


@caught_by(
    "test_8_a_read_sees_every_append_acknowledged_before_it",
    "test_12_no_handle_returns_redacted_content",
    "test_12_every_handle_sees_a_deleted_run_as_empty",
)
class ReadsFromACache(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        cache: dict[Any, Snapshot] = self.__dict__.setdefault("_cache", {})
        if load.types is None and load.limit is None and load.last is None:
            key = load.agent, load.run, load.after
            if key not in cache:
                cache[key] = await super().loading(load)
            return cache[key]
        return await super().loading(load)


@caught_by(
    "test_6_extending_past_a_redaction_masks_the_redacted_events",
    "test_6_extending_past_a_redacted_marker_masks_its_events",
    "test_6_a_redaction_between_two_pages_masks_events_of_the_first",
)
class ReportsNoRedactions(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        return changed_copy(await super().loading(load), redactions={})


@caught_by("test_6_extending_past_a_deletion_drops_the_earlier_events", "test_3_a_deleted_run_keeps_its_version")
class ReportsNoDeletions(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        return changed_copy(await super().loading(load), first_seq=1)


@caught_by("test_6_a_snapshot_extended_by_new_events_equals_a_new_read", "test_15_meta_is_stored_with_the_run")
class ReturnsNoMetaAfterTheFirstPage(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        return changed_copy(snapshot, meta={}) if load.after else snapshot


@caught_by("test_6_extending_page_by_page_equals_one_read", "test_6_after_leaves_out_events_up_to_that_seq")
class DropsTheLastEventOfAPage(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        return changed_copy(snapshot, list(snapshot.log)[:-1]) if load.after else snapshot


class _ExtendsItself(Snapshot):
    def extend(self, newer: Snapshot) -> Snapshot:
        extended = super().extend(newer)
        self.version = newer.version
        return extended


@caught_by("test_6_extending_does_not_change_the_original_snapshot")
class SharesASnapshotWithItsExtension(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        return changed_copy(await super().loading(load), kind=_ExtendsItself)
