"""Defects of followers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator

from agent_memory_log import AppendResult, Event
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, InvalidEvent, RunDeleted, StoreClosed
from agent_memory_log_inmem import MemoryStore, SyncMemoryStore
from tests.conformance.broken_stores.base import Append, BrokenStore, caught_by


@caught_by(
    "test_9_follow_delivers_stored_events_then_new_ones",
    "test_9_follow_begins_after_the_seq_after",
    "test_9_a_restarted_follower_continues_after_its_last_seq",
    "test_9_each_follower_of_a_run_gets_every_event",
)
class SkipsEvents(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        async for event in self.follow_correctly(agent, run, after):
            if event.seq % 4 != 2:
                yield event


@caught_by(
    "test_9_follow_delivers_stored_events_then_new_ones",
    "test_9_a_follower_gets_the_events_of_many_writers_in_seq_order",
    "test_9_a_repeated_append_delivers_no_event_twice",
)
class RepeatsEvents(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        async for event in self.follow_correctly(agent, run, after):
            yield event
            if event.seq == 2:
                yield event


@caught_by("test_9_a_follower_gets_the_events_of_many_writers_in_seq_order", "test_9_a_slow_follower_misses_no_event")
class SwapsEvents(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        delayed: Event | None = None
        async for event in self.follow_correctly(agent, run, after):
            if event.seq % 5 == 3:
                delayed = event
                continue
            yield event
            if delayed is not None:
                yield delayed
                delayed = None


@caught_by(
    "test_9_a_waiting_follower_wakes_for_an_append_on_its_handle",
    "test_9_a_waiting_follower_wakes_for_an_append_on_another_handle",
    "test_9_a_run_can_be_followed_before_it_exists",
    "test_9_a_waiting_follower_receives_a_redaction_marker",
    "test_9_a_cancelled_follower_does_not_disturb_other_followers",
)
class EndsAfterTheStoredEvents(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        for event in (await self.load_run(agent, run, after=after)).log:
            yield event


@caught_by("test_9_a_waiting_follower_wakes_for_an_append_on_another_handle")
class WakesForItsOwnHandleOnly(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        result = await super().appending(append)
        self.__dict__.setdefault("_own", asyncio.Event()).set()
        return result

    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        own: asyncio.Event = self.__dict__.setdefault("_own", asyncio.Event())
        async for event in self.follow_correctly(agent, run, after):
            await own.wait()
            yield event


@caught_by("test_9_follow_delivers_stored_events_then_new_ones")
class DeliversOnlyNewEvents(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        version = (await self.read(agent, run)).version
        async for event in self.follow_correctly(agent, run, max(after, version)):
            yield event


@caught_by("test_9_follow_begins_after_the_seq_after", "test_9_a_restarted_follower_continues_after_its_last_seq")
class FollowsFromTheStart(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        async for event in self.follow_correctly(agent, run, 0 * after):
            yield event


@caught_by("test_9_a_run_can_be_followed_before_it_exists")
class FollowsOnlyRunsThatExist(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        if not (await self.read(agent, run)).version:
            raise CursorOutOfRange("unknown")
        async for event in self.follow_correctly(agent, run, after):
            yield event


@caught_by("test_9_each_follower_of_a_run_gets_every_event")
class DeliversToOneFollowerOnly(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        received: set[tuple[str, str, int]] = self.notes.setdefault("received", set())
        async for event in self.follow_correctly(agent, run, after):
            if (agent, run, event.seq) not in received:
                received.add((agent, run, event.seq))
                yield event


@caught_by("test_9_a_slow_follower_misses_no_event")
class DropsOldEventsOfASlowFollower(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        async for event in self.follow_correctly(agent, run, after):
            if (await self.read(agent, run)).version - event.seq < 100:
                yield event


@caught_by("test_9_a_cancelled_follower_does_not_disturb_other_followers")
class ClosesTheHandleWhenAFollowerIsCancelled(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        try:
            async for event in self.follow_correctly(agent, run, after):
                yield event
        except asyncio.CancelledError:
            await self.aclose()
            raise


@caught_by("test_9_follow_refuses_an_after_beyond_the_version", "test_9_follow_refuses_invalid_ids_and_seqs")
class EndsInsteadOfRefusingToFollow(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        try:
            async for event in self.follow_correctly(agent, run, after):
                yield event
        except (CursorOutOfRange, InvalidEvent, InvalidArgument):
            return


@caught_by("test_9_follow_refuses_an_after_beyond_the_version")
class WaitsForAnAfterBeyondTheVersion(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        async for event in self.follow_correctly(agent, run):
            if event.seq > after:
                yield event


@caught_by(
    "test_9_a_waiting_follower_receives_a_redaction_marker", "test_9_a_slow_follower_receives_redacted_events_masked"
)
class DoesNotDeliverMarkers(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        async for event in self.follow_correctly(agent, run, after):
            if event.type != "redaction":
                yield event


@caught_by(
    "test_9_a_slow_follower_receives_redacted_events_masked",
    "test_9_a_slow_follower_gets_no_event_of_a_deleted_run",
)
class ReadsAhead(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        ahead = await self.read(agent, run)
        for event in list(ahead.log)[after:]:
            yield event
        async for event in self.follow_correctly(agent, run, ahead.version):
            yield event


@caught_by(
    "test_9_a_waiting_follower_ends_when_the_run_is_deleted",
    "test_9_a_slow_follower_gets_no_event_of_a_deleted_run",
    "test_9_a_follower_ends_even_if_its_deleted_run_is_created_again",
)
class WaitsForeverWhenTheRunIsDeleted(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        while True:
            try:
                async for event in self.follow_correctly(agent, run, after):
                    after = event.seq
                    yield event
            except RunDeleted:
                continue


@caught_by("test_9_a_follower_ends_even_if_its_deleted_run_is_created_again")
class MissesADeletionIfTheRunIsCreatedAgain(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        while True:
            try:
                async for event in self.follow_correctly(agent, run, after):
                    after = event.seq
                    yield event
            except RunDeleted:
                if not (await self.read(agent, run)).log:
                    raise


@caught_by("test_9_a_run_created_again_can_be_followed_from_its_old_seqs")
class RefusesToFollowARunCreatedAgain(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        if (await self.read(agent, run)).first_seq > 1:
            raise RunDeleted("once")
        async for event in self.follow_correctly(agent, run, after):
            yield event


@caught_by("test_9_deleting_an_empty_run_ends_no_follower", "test_9_a_run_can_be_followed_before_it_exists")
class EndsFollowersOfEveryRunOnAnyDeletion(BrokenStore):
    async def delete_run(self, agent: str, run: str) -> None:
        await super().delete_run(agent, run)
        self.notes["deletions"] = self.notes.get("deletions", 0) + 1

    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        deletions = self.notes.get("deletions", 0)
        async for event in self.follow_correctly(agent, run, after):
            if self.notes.get("deletions", 0) != deletions or event.data.to_map().get("message") == "this one":
                raise RunDeleted("some run")
            yield event


@caught_by(
    "test_9_a_waiting_follower_ends_when_its_handle_is_closed",
    "test_9_a_follower_between_two_events_ends_when_its_handle_is_closed",
)
class FollowsOnAClosedHandle(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        other = MemoryStore(self._data)
        async for event in other.follow(agent, run, after=after):
            yield event


@caught_by("test_9_a_follower_between_two_events_ends_when_its_handle_is_closed")
class EndsQuietlyOnAClosedHandle(BrokenStore):
    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        try:
            async for event in self.follow_correctly(agent, run, after):
                yield event
        except StoreClosed:
            return


@caught_by("test_9_follow_delivers_stored_events_then_new_ones", "test_9_a_slow_follower_misses_no_event")
class SkipsEventsWithoutAnEventLoop(SyncMemoryStore):
    """A synchronous store with a defect. It shows that the suite can fail for synchronous stores too."""

    def follow(self, agent: str, run: str, *, after: int = 0) -> Generator[Event]:
        for event in super().follow(agent, run, after=after):
            if event.seq % 4 != 2:
                yield event


@caught_by(
    "test_9_a_waiting_follower_wakes_for_an_append_on_another_handle",
    "test_9_a_waiting_follower_ends_when_the_run_is_deleted",
)
class NeverWakesWithoutAnEventLoop(SyncMemoryStore):
    """A synchronous store whose ``follow`` never returns. This must not block the suite."""

    def follow(self, agent: str, run: str, *, after: int = 0) -> Generator[Event]:
        yield from super().load_run(agent, run, after=after).log
        yield from super().follow("nobody", "writes here")
