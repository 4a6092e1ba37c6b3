"""Promise 9: a follower gets every event once, in seq order, and ends when its run or its handle ends."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

import pytest

from agent_memory_log.conformance.checks import check_stored, seqs_of, take
from agent_memory_log.conformance.harness import Handles, Suite, contract, settle, waiting_next
from agent_memory_log.conformance.samples import AGENT, RUN, later, rich_event, unknown_event, user_message
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, InvalidEvent, RunDeleted, StoreClosed
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.store import Store

_WRITERS = 4
_APPENDS = 10


@contract
class Following(Suite):
    """Tests of ``follow``."""

    async def test_9_follow_delivers_stored_events_then_new_ones(self, store: Store) -> None:
        originals = [
            rich_event(),
            unknown_event(),
            user_message("late", timestamp=later(-5)),
            user_message("four"),
            user_message("five"),
        ]
        await store.append_events(AGENT, RUN, *originals[:2])
        async with aclosing(store.follow(AGENT, RUN)) as events:
            received = await take(events, 2)
            await store.append_events(AGENT, RUN, *originals[2:4])
            received += await take(events, 2)
            await store.append_events(AGENT, RUN, originals[4])
            received += await take(events, 1)
        for seq, (event, expected) in enumerate(zip(received, originals, strict=True), 1):
            check_stored(event, expected, seq)

    async def test_9_a_waiting_follower_wakes_for_an_append_on_its_handle(self, store: Store) -> None:
        await _check_wakes(store, store)

    async def test_9_a_waiting_follower_wakes_for_an_append_on_another_handle(self, store: Store, other: Store) -> None:
        await _check_wakes(store, other)

    async def test_9_follow_begins_after_the_seq_after(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, *(user_message(str(index)) for index in range(5)))
        for after in range(6):
            version = 5 + after
            async with aclosing(store.follow(AGENT, RUN, after=after)) as events:
                received = await take(events, version - after)
                await store.append_events(AGENT, RUN, user_message("new"))
                received += await take(events, 1)
            assert seqs_of(received) == list(range(after + 1, version + 2))

    async def test_9_a_slow_follower_misses_no_event(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("first"))
        async with aclosing(store.follow(AGENT, RUN)) as events:
            received = await take(events, 1)
            for size in (1, 200, 3):
                await other.append_events(AGENT, RUN, *(user_message("more") for _ in range(size)))
                await settle()
                received += await take(events, 1)
            received += await take(events, 201)
        assert seqs_of(received) == list(range(1, 206))

    async def test_9_a_cancelled_follower_does_not_disturb_other_followers(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"))
        events, other_events = store.follow(AGENT, RUN), store.follow(AGENT, RUN)
        await take(events, 1)
        await take(other_events, 1)
        waiting, other = asyncio.create_task(anext(events)), asyncio.create_task(anext(other_events))
        await settle()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with suppress(StopAsyncIteration):
            await anext(events)
            pytest.fail("a cancelled follower delivered an event")
        await store.append_events(AGENT, RUN, user_message("two"))
        assert (await other).seq == 2
        await other_events.aclose()
        async with aclosing(store.follow(AGENT, RUN, after=1)) as again:
            assert seqs_of(await take(again, 1)) == [2]

    async def test_9_a_restarted_follower_continues_after_its_last_seq(self, store: Store, other: Store) -> None:
        seqs: list[int] = []
        for round_ in range(4):
            await store.append_events(AGENT, RUN, *(user_message(f"{round_}/{index}") for index in range(3)))
            async with aclosing((store, other)[round_ % 2].follow(AGENT, RUN, after=seqs[-1] if seqs else 0)) as events:
                seqs += seqs_of(await take(events, 2))
        assert seqs == list(range(1, 9))

    async def test_9_a_run_can_be_followed_before_it_exists(self, store: Store, other: Store) -> None:
        async with aclosing(store.follow(AGENT, RUN)) as events:
            waiting = await waiting_next(events)
            await other.append_events("other", RUN, user_message("not this run"))
            await other.append_events(AGENT, "other", user_message("nor this"))
            original = user_message("this one")
            await other.append_events(AGENT, RUN, original)
            check_stored(await waiting, original, 1)

    async def test_9_each_follower_of_a_run_gets_every_event(self, open_handle: Handles) -> None:
        handles = [await open_handle() for _ in range(2)]
        followers = [handles[number % 2].follow(AGENT, RUN) for number in range(4)]
        waiting = [asyncio.create_task(take(events, 20)) for events in followers]
        await settle()
        for number in range(10):
            await handles[number % 2].append_events(AGENT, RUN, user_message("a"), user_message("b"))
        for received in await asyncio.gather(*waiting):
            assert seqs_of(received) == list(range(1, 21))
        for events in followers:
            await events.aclose()

    async def test_9_a_follower_gets_the_events_of_many_writers_in_seq_order(self, open_handle: Handles) -> None:
        handles = [await open_handle() for _ in range(2)]
        total = _WRITERS * _APPENDS

        async def write(number: int) -> None:
            for _ in range(_APPENDS):
                await handles[number % 2].append_events(AGENT, RUN, user_message(str(number)))
                await asyncio.sleep(0)

        async with aclosing(handles[0].follow(AGENT, RUN)) as events:
            waiting = asyncio.create_task(take(events, total))
            await asyncio.gather(*(write(number) for number in range(_WRITERS)))
            received = await waiting
        assert seqs_of(received) == list(range(1, total + 1))
        assert received == list((await handles[1].load_run(AGENT, RUN)).log)

    async def test_9_a_repeated_append_delivers_no_event_twice(self, store: Store) -> None:
        first, second = user_message("one"), user_message("two")
        async with aclosing(store.follow(AGENT, RUN)) as events:
            for batch in ((first,), (first,), (first, second), (second, first)):
                await store.append_events(AGENT, RUN, *batch)
            received = await take(events, 2)
            last = user_message("last")
            await store.append_events(AGENT, RUN, last)
            received += await take(events, 1)
        assert [event.event_id for event in received] == [first.event_id, second.event_id, last.event_id]

    async def test_9_follow_refuses_an_after_beyond_the_version(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"))
        for run, after in ((RUN, 2), ("unknown", 1)):
            with pytest.raises(CursorOutOfRange):
                await anext(store.follow(AGENT, run, after=after))

    async def test_9_follow_refuses_invalid_ids_and_seqs(self, store: Store) -> None:
        for agent, run in (("", RUN), (AGENT, ""), (AGENT, "a" * 513), ("\ud800", RUN)):
            with pytest.raises(InvalidEvent):
                await anext(store.follow(agent, run))
        for after in (-1, True, "0"):
            with pytest.raises(InvalidArgument):
                await anext(store.follow(AGENT, RUN, after=after))  # type: ignore[arg-type]  # the test passes a wrong type

    async def test_9_a_waiting_follower_receives_a_redaction_marker(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), user_message("two"))
        for handle in (store, other):
            snapshot = await store.load_run(AGENT, RUN)
            async with aclosing(store.follow(AGENT, RUN, after=snapshot.version)) as events:
                waiting = await waiting_next(events)
                await handle.redact_events(AGENT, RUN, [snapshot.version], reason="asked")
                marker = await waiting
            assert (marker.seq, marker.data) == (
                snapshot.version + 1,
                Redaction(seqs=_marker_seqs(snapshot.version), reason="asked"),
            )

    async def test_9_a_slow_follower_receives_redacted_events_masked(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, RUN, *(user_message(f"secret {index}") for index in range(4)))
        async with aclosing(store.follow(AGENT, RUN)) as events:
            await take(events, 1)
            await other.redact_events(AGENT, RUN, [1, 2, 4], reason="asked")
            received = await take(events, 4)
        assert seqs_of(received) == [2, 3, 4, 5]
        assert [event.type for event in received] == ["redacted", "user_message", "redacted", "redaction"]

    async def test_9_a_waiting_follower_ends_when_the_run_is_deleted(self, store: Store, other: Store) -> None:
        for handle in (store, other):
            version = (await store.append_events(AGENT, RUN, user_message("one"))).version
            async with aclosing(store.follow(AGENT, RUN, after=version - 1)) as events:
                await take(events, 1)  # only a follower that has seen the run notices its deletion
                waiting = await waiting_next(events)
                await handle.delete_run(AGENT, RUN)
                with pytest.raises(RunDeleted):
                    await waiting

    async def test_9_a_slow_follower_gets_no_event_of_a_deleted_run(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), user_message("two"), user_message("three"))
        async with aclosing(store.follow(AGENT, RUN)) as events:
            await take(events, 1)
            await other.delete_run(AGENT, RUN)
            with pytest.raises(RunDeleted):
                await anext(events)

    async def test_9_a_follower_ends_even_if_its_deleted_run_is_created_again(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"))
        async with aclosing(store.follow(AGENT, RUN)) as events:
            await take(events, 1)
            await other.delete_run(AGENT, RUN)
            await other.append_events(AGENT, RUN, user_message("new"))
            with pytest.raises(RunDeleted):
                await anext(events)

    async def test_9_a_run_created_again_can_be_followed_from_its_old_seqs(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), user_message("two"))
        await store.delete_run(AGENT, RUN)
        for after in (0, 1, 2):
            async with aclosing(store.follow(AGENT, RUN, after=after)) as events:
                waiting = await waiting_next(events)
                version = (await store.append_events(AGENT, RUN, user_message("new"))).version
                received = await waiting
            assert received.seq == 3
            assert version == 3 + after

    async def test_9_deleting_an_empty_run_ends_no_follower(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, "other", user_message("one"))
        async with aclosing(store.follow(AGENT, RUN)) as events:
            waiting = await waiting_next(events)
            await other.delete_run(AGENT, RUN)
            await other.delete_run(AGENT, "other")
            await settle()
            await other.append_events(AGENT, RUN, user_message("one"))
            assert (await waiting).seq == 1

    async def test_9_a_waiting_follower_ends_when_its_handle_is_closed(self, store: Store, other: Store) -> None:
        await other.append_events(AGENT, RUN, user_message("one"))
        events, other_events = store.follow(AGENT, RUN, after=1), other.follow(AGENT, RUN, after=1)
        waiting, unconcerned = asyncio.create_task(anext(events)), asyncio.create_task(anext(other_events))
        await settle()
        await store.aclose()
        with pytest.raises(StoreClosed):
            await waiting
        await other.append_events(AGENT, RUN, user_message("two"))
        assert (await unconcerned).seq == 2
        await other_events.aclose()

    async def test_9_a_follower_between_two_events_ends_when_its_handle_is_closed(
        self, store: Store, other: Store
    ) -> None:
        await other.append_events(AGENT, RUN, user_message("one"))
        async with aclosing(store.follow(AGENT, RUN)) as events:
            await take(events, 1)
            await store.aclose()
            await other.append_events(AGENT, RUN, user_message("two"))
            with pytest.raises(StoreClosed):
                await anext(events)


def _marker_seqs(seq: int) -> tuple[int, ...]:
    """Return the seqs that the marker after ``seq`` names.

    Redacting a marker moves its seqs to the new marker.
    """
    return (2,) if seq == 2 else (2, seq)


async def _check_wakes(store: Store, writer: Store) -> None:
    """Assert that a follower of ``store`` wakes for each append of ``writer``."""
    async with aclosing(store.follow(AGENT, RUN)) as events:
        for seq in range(1, 4):
            waiting = await waiting_next(events)
            await writer.append_events(AGENT, RUN, user_message(str(seq)))
            assert (await waiting).seq == seq
