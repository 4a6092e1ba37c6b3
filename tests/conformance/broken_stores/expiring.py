"""Defects of the end of runs, and of ``expire_runs``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import msgspec

from agent_memory_log import AppendResult, Event, Snapshot
from agent_memory_log.backend_kit import expiry_of, is_reserved, now_microseconds
from agent_memory_log.errors import InvalidArgument, InvalidEvent, RunDeleted, RunExpired
from agent_memory_log.events.event import format_timestamp, from_microseconds
from agent_memory_log.store import ExpireResult, RunPage
from agent_memory_log_inmem import MemoryStore, SyncMemoryStore
from agent_memory_log_inmem.data import Follower
from tests.conformance.broken_stores.base import Append, BrokenStore, Listing, Load, caught_by, changed_copy


class _KnowsEnds(BrokenStore):
    """A store that knows the end of each run and can ignore it."""

    def end(self, agent: str, run: str) -> int | None:
        stored_run = self._data._runs.get((agent, run))
        return stored_run.expires_at if stored_run is not None else None

    def has_expired(self, agent: str, run: str) -> bool:
        end = self.end(agent, run)
        return end is not None and end <= now_microseconds()

    @contextmanager
    def without_ends(self) -> Generator[None]:
        """Remove the ends of all runs during the block. The calls inside never wait, so no other task sees this."""
        runs = list(self._data._runs.values())
        ends = [stored_run.expires_at for stored_run in runs]
        for stored_run in runs:
            stored_run.expires_at = None
        try:
            yield
        finally:
            for stored_run, end in zip(runs, ends, strict=True):
                stored_run.expires_at = end


@caught_by(
    "test_16_append_refuses_an_expired_run",
    "test_16_load_and_follow_refuse_an_expired_run",
    "test_16_a_waiting_follower_wakes_when_its_run_expires",
    "test_16_expire_runs_removes_expired_runs",
)
class IgnoresEnds(_KnowsEnds):
    async def appending(self, append: Append) -> AppendResult:
        result = await super().appending(append)
        for stored_run in self._data._runs.values():
            stored_run.expires_at = None
        return result


@caught_by("test_16_a_run_works_normally_before_its_end", "test_16_meta_of_later_appends_sets_no_end")
class RefusesEveryRunWithAnEnd(_KnowsEnds):
    async def loading(self, load: Load) -> Snapshot:
        if self.end(load.agent, load.run) is not None:
            raise RunExpired("some day")
        return await super().loading(load)


@caught_by("test_16_a_run_works_normally_before_its_end")
class RewritesTheEndInUtc(_KnowsEnds):
    async def loading(self, load: Load) -> Snapshot:
        snapshot = await super().loading(load)
        end = self.end(load.agent, load.run)
        if end is None:
            return snapshot
        return changed_copy(snapshot, meta={**snapshot.meta, "expires_at": format_timestamp(from_microseconds(end))})


@caught_by("test_16_a_run_works_normally_before_its_end")
class FailsForADistantEnd(_KnowsEnds):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        async for event in self.follow_correctly(agent, run, after):
            yield event
            if (self.end(agent, run) or 0) - now_microseconds() > 10**15:
                raise OverflowError("timestamp too large")


@caught_by("test_16_append_refuses_an_expires_at_that_is_not_a_time")
class AcceptsAnyEnd(_KnowsEnds):
    async def appending(self, append: Append) -> AppendResult:
        try:
            return await super().appending(append)
        except InvalidEvent:
            return await super().appending(msgspec.structs.replace(append, meta=None))


@caught_by("test_16_append_refuses_an_expires_at_that_is_not_a_time")
class NamesTheWrongFieldOfAnInvalidEnd(_KnowsEnds):
    async def appending(self, append: Append) -> AppendResult:
        try:
            return await super().appending(append)
        except InvalidEvent as error:
            raise InvalidEvent(str(error), field="meta") from error


@caught_by("test_16_meta_of_later_appends_sets_no_end")
class UsesTheEndOfLaterAppends(_KnowsEnds):
    async def appending(self, append: Append) -> AppendResult:
        result = await super().appending(append)
        self._data._runs[append.agent, append.run].expires_at = expiry_of(append.meta)
        return result


class _AppendsAfterTheEnd(_KnowsEnds):
    """A store that appends to an expired run if ``allows`` returns true for the append."""

    def allows(self, append: Append) -> bool:
        raise NotImplementedError

    async def appending(self, append: Append) -> AppendResult:
        if not self.allows(append):
            return await super().appending(append)
        with self.without_ends():
            return await super().appending(append)


@caught_by("test_16_append_refuses_an_expired_run")
class AppendsToExpiredRuns(_AppendsAfterTheEnd):
    def allows(self, append: Append) -> bool:
        return len(append.events) == 1


@caught_by("test_16_append_refuses_an_expired_run")
class AppendsBatchesToExpiredRuns(_AppendsAfterTheEnd):
    def allows(self, append: Append) -> bool:
        return len(append.events) > 1


@caught_by("test_16_append_refuses_an_expired_run")
class AcceptsStoredEventsOfAnExpiredRun(_AppendsAfterTheEnd):
    def allows(self, append: Append) -> bool:
        stored_run = self._data._runs.get((append.agent, append.run))
        return stored_run is not None and {event.event_id for event in append.events} <= set(stored_run.seqs)


@caught_by("test_16_append_refuses_an_expired_run")
class ExtendsExpiredRuns(_AppendsAfterTheEnd):
    def allows(self, append: Append) -> bool:
        return (expiry_of(append.meta) or 0) > now_microseconds()


@caught_by("test_16_append_refuses_an_expired_run_with_redacted_events")
class AppendsToExpiredRunsWithRedactions(_AppendsAfterTheEnd):
    def allows(self, append: Append) -> bool:
        stored_run = self._data._runs.get((append.agent, append.run))
        return stored_run is not None and any(event.type == "redaction" for event in stored_run.events)


@caught_by("test_16_an_empty_append_to_an_expired_run_changes_nothing")
class RefusesEmptyAppends(_KnowsEnds):
    async def appending(self, append: Append) -> AppendResult:
        if self.has_expired(append.agent, append.run):
            raise RunExpired(f"{append.agent}/{append.run}")
        return await super().appending(append)


@caught_by("test_16_append_does_not_create_a_run_that_is_past_its_end")
class CreatesRunsPastTheirEnd(_KnowsEnds):
    async def appending(self, append: Append) -> AppendResult:
        end = expiry_of(append.meta) if self.end(append.agent, append.run) is None else None
        if end is None or end > now_microseconds():
            return await super().appending(append)
        await super().appending(msgspec.structs.replace(append, meta=None))
        self._data._runs[append.agent, append.run].expires_at = end
        raise RunExpired(f"{append.agent}/{append.run}")


@caught_by("test_16_load_and_follow_refuse_an_expired_run")
class ReadsExpiredRuns(_KnowsEnds):
    async def loading(self, load: Load) -> Snapshot:
        with self.without_ends():
            return await super().loading(load)


@caught_by("test_16_load_and_follow_refuse_an_expired_run")
class ChecksTheCursorBeforeTheEnd(_KnowsEnds):
    async def loading(self, load: Load) -> Snapshot:
        with self.without_ends():
            await super().loading(load)
        return await super().loading(load)


@caught_by("test_16_load_and_follow_refuse_an_expired_run")
class NamesNoExpiredRun(_KnowsEnds):
    async def loading(self, load: Load) -> Snapshot:
        try:
            return await super().loading(load)
        except RunExpired as error:
            raise RunExpired("expired") from error


@caught_by("test_16_redact_refuses_an_expired_run")
class RedactsExpiredRuns(_KnowsEnds):
    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        with self.without_ends():
            return await super().redact_events(agent, run, seqs, reason=reason)


@caught_by("test_16_list_runs_leaves_out_expired_runs")
class ListsExpiredRuns(_KnowsEnds):
    async def listing(self, listing: Listing) -> RunPage:
        with self.without_ends():
            return await super().listing(listing)


@caught_by("test_16_list_runs_leaves_out_expired_runs")
class LeavesGapsInPages(_KnowsEnds):
    async def listing(self, listing: Listing) -> RunPage:
        with self.without_ends():
            page = await super().listing(listing)
        return RunPage(tuple(info for info in page.runs if not self.has_expired(info.agent, info.run)), page.cursor)


@caught_by("test_16_a_waiting_follower_wakes_when_its_run_expires")
class WaitsPastTheEnd(_KnowsEnds):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        follower = Follower(after)
        while True:
            change_count = self._data.changed.count
            event = self._data.next_event(agent, run, follower)
            if event is None:
                await self._data.changed.wait_async(change_count, None)
            else:
                yield event


@caught_by("test_16_a_waiting_follower_wakes_when_its_run_expires")
class WaitsPastTheEndWithoutAnEventLoop(SyncMemoryStore):
    """A synchronous store with a defect."""

    def follow(self, agent: str, run: str, *, after: int = 0) -> Generator[Event]:
        follower = Follower(after)
        while True:
            self._check_open()
            change_count = self._data.changed.count
            event = self._data.next_event(agent, run, follower)
            if event is None:
                self._data.changed.wait(change_count, None)
            else:
                yield event


@caught_by("test_16_a_waiting_follower_wakes_when_its_run_expires")
class EndsQuietlyAtTheEnd(_KnowsEnds):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        last_seq = 0
        try:
            async for event in self.follow_correctly(agent, run, after):
                last_seq = event.seq
                yield event
        except RunExpired:
            if not last_seq:
                raise


@caught_by("test_16_a_slow_follower_gets_no_event_of_an_expired_run")
class ReadsAheadPastTheEnd(_KnowsEnds):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        ahead = await self.read(agent, run)
        for event in list(ahead.log)[after:]:
            yield event
        async for event in self.follow_correctly(agent, run, max(after, ahead.version)):
            yield event


@caught_by("test_16_an_expired_run_can_be_deleted_and_created_again")
class DeletesNoExpiredRuns(_KnowsEnds):
    async def delete_run(self, agent: str, run: str) -> None:
        if self.has_expired(agent, run):
            raise RunExpired(f"{agent}/{run}")
        await super().delete_run(agent, run)


@caught_by("test_16_an_expired_run_can_be_deleted_and_created_again")
class StartsAnExpiredRunAgainAt1(_KnowsEnds):
    async def delete_run(self, agent: str, run: str) -> None:
        if self.has_expired(agent, run):
            self._data._runs.pop((agent, run))
        await super().delete_run(agent, run)


@caught_by("test_16_an_expired_run_can_be_deleted_and_created_again", "test_16_a_run_created_again_has_its_own_end")
class KeepsTheEndOfADeletedRun(_KnowsEnds):
    async def delete_run(self, agent: str, run: str) -> None:
        self.notes[agent, run] = self.end(agent, run)
        await super().delete_run(agent, run)

    async def appending(self, append: Append) -> AppendResult:
        result = await super().appending(append)
        if (append.agent, append.run) in self.notes:
            self._data._runs[append.agent, append.run].expires_at = self.notes[append.agent, append.run]
        return result


@caught_by("test_16_an_expired_run_does_not_affect_other_runs")
class ExpiresAllRunsOfTheAgent(_KnowsEnds):
    async def loading(self, load: Load) -> Snapshot:
        for agent, run in self._data._runs:
            if agent == load.agent and self.has_expired(agent, run):
                raise RunExpired(f"{agent}/{run}")
        return await super().loading(load)


@caught_by("test_16_an_expired_run_does_not_affect_other_runs")
class RefusesConcurrentAppendsBesideAnExpiredRun(_KnowsEnds):
    async def appending(self, append: Append) -> AppendResult:
        self.notes["waiting"] = self.notes.get("waiting", 0) + 1
        try:
            await asyncio.sleep(0)
            expired = [name for name in self._data._runs if self.has_expired(*name)]
            if expired and self.notes["waiting"] > 1:
                raise RunExpired("another run")
            return await super().appending(append)
        finally:
            self.notes["waiting"] -= 1


@caught_by("test_16_expire_runs_removes_expired_runs", "test_16_a_follower_ends_when_expire_runs_removes_its_run")
class RemovesNoExpiredRuns(_KnowsEnds):
    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        result = await super().expire_runs(before=before, dry_run=True)
        if not dry_run:
            self._data.changed.notify()
        return result


@caught_by("test_16_expire_runs_removes_expired_runs")
class ForgetsTheVersionOfARemovedRun(_KnowsEnds):
    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        expired = [name for name in self._data._runs if self.has_expired(*name)]
        result = await super().expire_runs(before=before, dry_run=dry_run)
        for name in expired if not dry_run else ():
            del self._data._runs[name]
        return result


@caught_by("test_16_expire_runs_removes_expired_runs")
class KeepsExpiredReservedRuns(_KnowsEnds):
    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        own = {name: stored_run for name, stored_run in self._data._runs.items() if is_reserved(name[0])}
        for name in own:
            del self._data._runs[name]
        result = await super().expire_runs(before=before, dry_run=dry_run)
        self._data._runs.update(own)
        return result


@caught_by("test_16_expire_runs_keeps_other_runs", "test_16_expire_runs_refuses_a_before_that_is_not_in_the_past")
class RemovesEveryRunWithAnEnd(_KnowsEnds):
    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        if before is not None and not isinstance(before, datetime):
            raise InvalidArgument("no time")
        return self._data.count_expired(2**60) if dry_run else self._data.expire_some(2**60)


@caught_by(
    "test_16_a_dry_run_of_expire_runs_counts_and_changes_nothing",
    "test_16_expire_runs_removes_runs_that_ended_by_before",
)
class RemovesInADryRun(_KnowsEnds):
    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        if dry_run:
            return await super().expire_runs(before=before)
        return await super().expire_runs(before=before, dry_run=dry_run)


@caught_by("test_16_a_dry_run_of_expire_runs_counts_and_changes_nothing")
class CountsNoEventsInADryRun(_KnowsEnds):
    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        result = await super().expire_runs(before=before, dry_run=dry_run)
        return ExpireResult(result.runs, 0 if dry_run else result.events)


@caught_by("test_16_expire_runs_removes_runs_that_ended_by_before")
class KeepsRunsThatEndedExactlyAtBefore(_KnowsEnds):
    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        earlier = (
            None
            if before is None
            else max(before, datetime.min.replace(tzinfo=UTC) + timedelta(1)) - timedelta(0, 0, 1)
        )
        return await super().expire_runs(before=earlier, dry_run=dry_run)


@caught_by("test_16_expire_runs_removes_runs_that_ended_by_before")
class IgnoresBefore(_KnowsEnds):
    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        await super().expire_runs(before=before, dry_run=True)
        return await super().expire_runs(dry_run=dry_run)


@caught_by("test_16_expire_runs_refuses_a_before_that_is_not_in_the_past")
class AcceptsAnyBefore(_KnowsEnds):
    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        try:
            return await super().expire_runs(before=before, dry_run=dry_run)
        except InvalidArgument:
            return ExpireResult(0, 0)


@caught_by("test_16_a_follower_ends_when_expire_runs_removes_its_run")
class FollowsIntoTheRunCreatedAgain(_KnowsEnds):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        while True:
            try:
                async for event in self.follow_correctly(agent, run, after):
                    after = event.seq
                    yield event
            except (RunDeleted, RunExpired):
                if self.has_expired(agent, run):
                    raise


@caught_by("test_16_expire_runs_on_a_closed_handle_raises_store_closed")
class RemovesAfterClosing(_KnowsEnds):
    async def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        return await MemoryStore(self._data).expire_runs(before=before, dry_run=dry_run)
