"""Defects of ``list_runs``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec

from agent_memory_log import AppendResult, RunInfo, Snapshot
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument
from agent_memory_log.store import RunPage
from tests.conformance.broken_stores.base import Append, BrokenStore, Listing, Load, caught_by


class _ListsWithOffsets(BrokenStore):
    """A store that lists the runs in the order in which ``selected`` returns them. A cursor is an offset."""

    def selected(self, runs: list[RunInfo]) -> list[RunInfo]:
        return runs

    def begin(self, offset: int) -> int:
        return offset

    async def listing(self, listing: Listing) -> RunPage:
        page = await super().listing(Listing(listing.agent, 1000, None, listing.include_reserved))
        runs = self.selected(list(page.runs))
        offset = self.begin(int(listing.cursor)) if listing.cursor else 0
        end = offset + listing.limit
        return RunPage(tuple(runs[offset:end]), str(end) if end < len(runs) else None)


@caught_by("test_15_pages_stay_correct_when_runs_change_between_them")
class UsesOffsetsAsCursors(_ListsWithOffsets):
    pass


@caught_by("test_15_pages_lose_and_repeat_no_run", "test_15_list_runs_selects_the_runs_of_one_agent")
class RepeatsTheLastRunOfAPage(_ListsWithOffsets):
    def begin(self, offset: int) -> int:
        return max(offset - 1, 0)

    async def listing(self, listing: Listing) -> RunPage:
        return await super().listing(msgspec.structs.replace(listing, limit=max(listing.limit, 2)))


@caught_by("test_15_pages_lose_and_repeat_no_run")
class SkipsTheFirstRunOfAPage(_ListsWithOffsets):
    def begin(self, offset: int) -> int:
        return offset + 1


@caught_by("test_15_list_runs_orders_runs_by_creation_newest_first", "test_15_pages_lose_and_repeat_no_run")
class ListsTheOldestRunFirst(_ListsWithOffsets):
    def selected(self, runs: list[RunInfo]) -> list[RunInfo]:
        return runs[::-1]


@caught_by("test_15_list_runs_orders_runs_by_creation_newest_first", "test_11_run_ids_are_compared_exactly")
class ListsRunsByName(_ListsWithOffsets):
    def selected(self, runs: list[RunInfo]) -> list[RunInfo]:
        return sorted(runs, key=lambda info: info.run)


@caught_by("test_15_list_runs_orders_runs_by_creation_newest_first")
class ListsTheLastChangedRunFirst(_ListsWithOffsets):
    async def appending(self, append: Append) -> AppendResult:
        self.notes[append.agent, append.run] = self.notes["count"] = self.notes.get("count", 0) + 1
        return await super().appending(append)

    def selected(self, runs: list[RunInfo]) -> list[RunInfo]:
        return sorted(runs, key=lambda info: int(self.notes[info.agent, info.run]), reverse=True)


@caught_by("test_15_a_run_created_again_is_listed_as_the_newest")
class KeepsThePositionOfADeletedRun(_ListsWithOffsets):
    async def appending(self, append: Append) -> AppendResult:
        self.notes.setdefault((append.agent, append.run), len(self.notes))
        return await super().appending(append)

    def selected(self, runs: list[RunInfo]) -> list[RunInfo]:
        return sorted(runs, key=lambda info: int(self.notes[info.agent, info.run]), reverse=True)


@caught_by("test_15_pages_lose_and_repeat_no_run")
class GivesACursorAfterTheLastPage(_ListsWithOffsets):
    async def listing(self, listing: Listing) -> RunPage:
        page = await super().listing(listing)
        return RunPage(page.runs, page.cursor or ("1000" if page.runs else None))


@caught_by("test_15_list_runs_leaves_out_reserved_runs_by_default")
class ListsReservedRunsByDefault(BrokenStore):
    async def listing(self, listing: Listing) -> RunPage:
        return await super().listing(msgspec.structs.replace(listing, include_reserved=True))


@caught_by("test_15_list_runs_leaves_out_reserved_runs_by_default")
class HidesTheRunsOfARequestedReservedAgent(BrokenStore):
    async def listing(self, listing: Listing) -> RunPage:
        if (listing.agent or "").startswith("@"):
            return RunPage((), None)
        return await super().listing(listing)


@caught_by("test_15_list_runs_selects_the_runs_of_one_agent", "test_11_agent_ids_are_compared_exactly")
class ListsTheRunsOfEveryAgent(BrokenStore):
    async def listing(self, listing: Listing) -> RunPage:
        return await super().listing(msgspec.structs.replace(listing, agent=None))


@caught_by("test_15_list_runs_refuses_a_malformed_cursor")
class StartsOverForAMalformedCursor(BrokenStore):
    async def listing(self, listing: Listing) -> RunPage:
        try:
            return await super().listing(listing)
        except CursorOutOfRange:
            return await super().listing(msgspec.structs.replace(listing, cursor=None))


@caught_by("test_15_list_runs_refuses_a_limit_below_1")
class AcceptsAnyLimit(BrokenStore):
    async def listing(self, listing: Listing) -> RunPage:
        try:
            return await super().listing(listing)
        except InvalidArgument:
            return RunPage((), None)


@caught_by("test_15_an_empty_store_lists_no_runs")
class ListsRunsThatWereOnlyRead(BrokenStore):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        self.notes[load.agent, load.run] = RunInfo(load.agent, load.run, 0, datetime.now(UTC), datetime.now(UTC), 0, {})
        return snapshot

    async def listing(self, listing: Listing) -> RunPage:
        page = await super().listing(listing)
        return RunPage(page.runs or tuple(self.notes.values()), page.cursor)


@caught_by("test_15_list_runs_describes_a_run_that_does_not_begin_at_1")
class ReportsTheVersionAsTheEventCount(_ListsWithOffsets):
    def selected(self, runs: list[RunInfo]) -> list[RunInfo]:
        return [msgspec.structs.replace(info, event_count=info.version) for info in runs]


@caught_by("test_15_list_runs_describes_a_run")
class ReportsCreationTimesInAnotherZone(_ListsWithOffsets):
    def selected(self, runs: list[RunInfo]) -> list[RunInfo]:
        current = timezone(timedelta(hours=1))
        return [msgspec.structs.replace(info, created=info.created.astimezone(current)) for info in runs]


@caught_by("test_15_meta_is_stored_with_the_run", "test_15_any_meta_comes_back_unchanged")
class ListsNoMeta(_ListsWithOffsets):
    def selected(self, runs: list[RunInfo]) -> list[RunInfo]:
        return [msgspec.structs.replace(info, meta={}) for info in runs]


@caught_by("test_15_pages_lose_and_repeat_no_run", "test_15_list_runs_selects_the_runs_of_one_agent")
class LosesRunsAfterTheFirstPage(BrokenStore):
    async def listing(self, listing: Listing) -> RunPage:
        page = await super().listing(listing)
        return RunPage(page.runs, None)


@caught_by("test_15_list_runs_has_the_time_of_the_newest_event")
class ReportsTheCreationTimeAsUpdated(_ListsWithOffsets):
    def selected(self, runs: list[RunInfo]) -> list[RunInfo]:
        return [msgspec.structs.replace(info, updated=info.created) for info in runs]


@caught_by("test_15_list_runs_has_the_time_of_the_newest_event")
class ReportsTheLatestTimeAsUpdated(BrokenStore):
    async def listing(self, listing: Listing) -> RunPage:
        page = await super().listing(listing)
        latest = [(await self.read(info.agent, info.run)).events[-1].timestamp for info in page.runs]
        runs = [msgspec.structs.replace(info, updated=time) for info, time in zip(page.runs, latest, strict=True)]
        return msgspec.structs.replace(page, runs=tuple(runs))


@caught_by("test_15_list_runs_has_the_time_of_the_newest_event")
class RoundsUpdatedToMilliseconds(_ListsWithOffsets):
    def selected(self, runs: list[RunInfo]) -> list[RunInfo]:
        return [msgspec.structs.replace(info, updated=info.updated.replace(microsecond=0)) for info in runs]
