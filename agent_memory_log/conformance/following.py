"""Promise 9, first half: a follower gets every event once, in seq order, and wakes for new ones."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

import pytest

from agent_memory_log.conformance.checks import check_stored, seqs_of, take
from agent_memory_log.conformance.harness import Handles, Suite, contract, settle
from agent_memory_log.conformance.samples import AGENT, RUN, later, rich_event, said, unknown_event
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, InvalidEvent

_WRITERS = 4
_APPENDS = 10


class Following(Suite):
    """Tests of ``follow`` on a run that only grows."""

    @contract
    async def test_9_follow_delivers_what_is_there_then_what_comes(self, open_handle: Handles) -> None:
        store = await open_handle()
        given = [rich_event(), unknown_event(), said("late", timestamp=later(-5)), said("four"), said("five")]
        await store.append_events(AGENT, RUN, *given[:2])
        async with aclosing(store.follow(AGENT, RUN)) as events:
            received = await take(events, 2)
            await store.append_events(AGENT, RUN, *given[2:4])
            received += await take(events, 2)
            await store.append_events(AGENT, RUN, given[4])
            received += await take(events, 1)
        for seq, (event, expected) in enumerate(zip(received, given, strict=True), 1):
            check_stored(event, expected, seq)

    @contract
    async def test_9_a_waiting_follower_wakes_for_its_own_handle(self, open_handle: Handles) -> None:
        store = await open_handle()
        async with aclosing(store.follow(AGENT, RUN)) as events:
            for seq in range(1, 4):
                waiting = asyncio.create_task(anext(events))
                await settle()
                await store.append_events(AGENT, RUN, said(str(seq)))
                assert (await waiting).seq == seq

    @contract
    async def test_9_a_waiting_follower_wakes_for_another_handle(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        async with aclosing(store.follow(AGENT, RUN)) as events:
            for seq in range(1, 4):
                waiting = asyncio.create_task(anext(events))
                await settle()
                await other.append_events(AGENT, RUN, said(str(seq)))
                assert (await waiting).seq == seq

    @contract
    async def test_9_follow_begins_after_the_seq_given(self, open_handle: Handles) -> None:
        store = await open_handle()
        await store.append_events(AGENT, RUN, *(said(str(place)) for place in range(5)))
        for after in range(6):
            version = 5 + after
            async with aclosing(store.follow(AGENT, RUN, after=after)) as events:
                received = await take(events, version - after)
                await store.append_events(AGENT, RUN, said("new"))
                received += await take(events, 1)
            assert seqs_of(received) == list(range(after + 1, version + 2))

    @contract
    async def test_9_a_slow_follower_misses_nothing(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        await store.append_events(AGENT, RUN, said("first"))
        async with aclosing(store.follow(AGENT, RUN)) as events:
            received = await take(events, 1)
            for size in (1, 200, 3):
                await other.append_events(AGENT, RUN, *(said("more") for _ in range(size)))
                await settle()
                received += await take(events, 1)
            received += await take(events, 201)
        assert seqs_of(received) == list(range(1, 206))

    @contract
    async def test_9_a_cancelled_follower_goes_and_disturbs_nobody(self, open_handle: Handles) -> None:
        store = await open_handle()
        await store.append_events(AGENT, RUN, said("one"))
        events, others = store.follow(AGENT, RUN), store.follow(AGENT, RUN)
        await take(events, 1)
        await take(others, 1)
        waiting, other = asyncio.create_task(anext(events)), asyncio.create_task(anext(others))
        await settle()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with suppress(StopAsyncIteration):
            await anext(events)
            pytest.fail("a cancelled follower went on")
        await store.append_events(AGENT, RUN, said("two"))
        assert (await other).seq == 2
        await others.aclose()
        async with aclosing(store.follow(AGENT, RUN, after=1)) as again:
            assert seqs_of(await take(again, 1)) == [2]

    @contract
    async def test_9_a_restarted_follower_goes_on_from_its_last_seq(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        seqs: list[int] = []
        for round_ in range(4):
            await store.append_events(AGENT, RUN, *(said(f"{round_}/{place}") for place in range(3)))
            async with aclosing((store, other)[round_ % 2].follow(AGENT, RUN, after=seqs[-1] if seqs else 0)) as events:
                seqs += seqs_of(await take(events, 2))
        assert seqs == list(range(1, 9))

    @contract
    async def test_9_a_run_need_not_exist_to_be_followed(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        async with aclosing(store.follow(AGENT, RUN)) as events:
            waiting = asyncio.create_task(anext(events))
            await settle()
            await other.append_events("other", RUN, said("not this run"))
            await other.append_events(AGENT, "other", said("nor this"))
            given = said("this one")
            await other.append_events(AGENT, RUN, given)
            check_stored(await waiting, given, 1)

    @contract
    async def test_9_followers_of_a_run_each_get_every_event(self, open_handle: Handles) -> None:
        handles = [await open_handle() for _ in range(2)]
        followers = [handles[number % 2].follow(AGENT, RUN) for number in range(4)]
        waiting = [asyncio.create_task(take(events, 20)) for events in followers]
        await settle()
        for number in range(10):
            await handles[number % 2].append_events(AGENT, RUN, said("a"), said("b"))
        for received in await asyncio.gather(*waiting):
            assert seqs_of(received) == list(range(1, 21))
        for events in followers:
            await events.aclose()

    @contract
    async def test_9_a_follower_keeps_the_order_of_many_writers(self, open_handle: Handles) -> None:
        handles = [await open_handle() for _ in range(2)]
        total = _WRITERS * _APPENDS

        async def write(number: int) -> None:
            for _ in range(_APPENDS):
                await handles[number % 2].append_events(AGENT, RUN, said(str(number)))
                await asyncio.sleep(0)

        async with aclosing(handles[0].follow(AGENT, RUN)) as events:
            waiting = asyncio.create_task(take(events, total))
            await asyncio.gather(*(write(number) for number in range(_WRITERS)))
            received = await waiting
        assert seqs_of(received) == list(range(1, total + 1))
        assert received == list((await handles[1].load_run(AGENT, RUN)).log)

    @contract
    async def test_9_a_repeated_append_wakes_nobody_twice(self, open_handle: Handles) -> None:
        store = await open_handle()
        one, two = said("one"), said("two")
        async with aclosing(store.follow(AGENT, RUN)) as events:
            for batch in ((one,), (one,), (one, two), (two, one)):
                await store.append_events(AGENT, RUN, *batch)
            received = await take(events, 2)
            last = said("last")
            await store.append_events(AGENT, RUN, last)
            received += await take(events, 1)
        assert [event.event_id for event in received] == [one.event_id, two.event_id, last.event_id]

    @contract
    async def test_9_following_beyond_the_version_is_an_error(self, open_handle: Handles) -> None:
        store = await open_handle()
        await store.append_events(AGENT, RUN, said("one"))
        for run, after in ((RUN, 2), ("unknown", 1)):
            with pytest.raises(CursorOutOfRange):
                await anext(store.follow(AGENT, run, after=after))

    @contract
    async def test_9_following_needs_ids_and_a_seq(self, open_handle: Handles) -> None:
        store = await open_handle()
        for agent, run in (("", RUN), (AGENT, ""), (AGENT, "a" * 513), ("\ud800", RUN)):
            with pytest.raises(InvalidEvent):
                await anext(store.follow(agent, run))
        for after in (-1, True, "0"):
            with pytest.raises(InvalidArgument):
                await anext(store.follow(AGENT, RUN, after=after))  # type: ignore[arg-type]  # that is the point
