"""Promise 9, second half: followers of a run that is redacted, deleted or created anew, or whose handle is closed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from agent_memory_log.conformance.checks import seqs_of, take
from agent_memory_log.conformance.harness import Handles, Suite, contract, settle
from agent_memory_log.conformance.samples import AGENT, RUN, said
from agent_memory_log.errors import RunDeleted, StoreClosed
from agent_memory_log.events.payloads import Redaction


class FollowingChanges(Suite):
    """Tests of ``follow`` on a run to which more happens than appends."""

    @contract
    async def test_9_a_waiting_follower_learns_of_a_redaction(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        await store.append_events(AGENT, RUN, said("one"), said("two"))
        for handle in (store, other):
            snapshot = await store.load_run(AGENT, RUN)
            async with aclosing(store.follow(AGENT, RUN, after=snapshot.version)) as events:
                waiting = asyncio.create_task(anext(events))
                await settle()
                await handle.redact_events(AGENT, RUN, [snapshot.version], reason="asked")
                marker = await waiting
            assert (marker.seq, marker.data) == (
                snapshot.version + 1,
                Redaction(seqs=_named(snapshot.version), reason="asked"),
            )

    @contract
    async def test_9_a_follower_behind_a_redaction_sees_the_mask(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        await store.append_events(AGENT, RUN, *(said(f"secret {place}") for place in range(4)))
        async with aclosing(store.follow(AGENT, RUN)) as events:
            await take(events, 1)
            await other.redact_events(AGENT, RUN, [1, 2, 4], reason="asked")
            received = await take(events, 4)
        assert seqs_of(received) == [2, 3, 4, 5]
        assert [event.type for event in received] == ["redacted", "user_message", "redacted", "redaction"]

    @contract
    async def test_9_a_waiting_follower_ends_when_the_run_is_deleted(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        for handle in (store, other):
            version = (await store.append_events(AGENT, RUN, said("one"))).version
            async with aclosing(store.follow(AGENT, RUN, after=version - 1)) as events:
                await take(events, 1)  # it has seen the run, and so can tell that it was deleted
                waiting = asyncio.create_task(anext(events))
                await settle()
                await handle.delete_run(AGENT, RUN)
                with pytest.raises(RunDeleted):
                    await waiting

    @contract
    async def test_9_a_follower_behind_a_deletion_gets_nothing_more(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        await store.append_events(AGENT, RUN, said("one"), said("two"), said("three"))
        async with aclosing(store.follow(AGENT, RUN)) as events:
            await take(events, 1)
            await other.delete_run(AGENT, RUN)
            with pytest.raises(RunDeleted):
                await anext(events)

    @contract
    async def test_9_a_follower_does_not_go_on_into_the_run_created_anew(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        await store.append_events(AGENT, RUN, said("one"))
        async with aclosing(store.follow(AGENT, RUN)) as events:
            await take(events, 1)
            await other.delete_run(AGENT, RUN)
            await other.append_events(AGENT, RUN, said("new"))
            with pytest.raises(RunDeleted):
                await anext(events)

    @contract
    async def test_9_a_run_created_anew_can_be_followed_from_any_seq_it_had(self, open_handle: Handles) -> None:
        store = await open_handle()
        await store.append_events(AGENT, RUN, said("one"), said("two"))
        await store.delete_run(AGENT, RUN)
        for after in (0, 1, 2):
            async with aclosing(store.follow(AGENT, RUN, after=after)) as events:
                waiting = asyncio.create_task(anext(events))
                await settle()
                version = (await store.append_events(AGENT, RUN, said("new"))).version
                received = await waiting
            assert received.seq == 3
            assert version == 3 + after

    @contract
    async def test_9_deleting_what_holds_nothing_ends_no_follower(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        await store.append_events(AGENT, "other", said("one"))
        async with aclosing(store.follow(AGENT, RUN)) as events:
            waiting = asyncio.create_task(anext(events))
            await settle()
            await other.delete_run(AGENT, RUN)
            await other.delete_run(AGENT, "other")
            await settle()
            await other.append_events(AGENT, RUN, said("one"))
            assert (await waiting).seq == 1

    @contract
    async def test_9_a_waiting_follower_ends_when_its_handle_is_closed(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        await other.append_events(AGENT, RUN, said("one"))
        events, others = store.follow(AGENT, RUN, after=1), other.follow(AGENT, RUN, after=1)
        waiting, unconcerned = asyncio.create_task(anext(events)), asyncio.create_task(anext(others))
        await settle()
        await store.aclose()
        with pytest.raises(StoreClosed):
            await waiting
        await other.append_events(AGENT, RUN, said("two"))
        assert (await unconcerned).seq == 2
        await others.aclose()

    @contract
    async def test_9_a_follower_between_two_events_ends_when_its_handle_is_closed(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        await other.append_events(AGENT, RUN, said("one"))
        async with aclosing(store.follow(AGENT, RUN)) as events:
            await take(events, 1)
            await store.aclose()
            await other.append_events(AGENT, RUN, said("two"))
            with pytest.raises(StoreClosed):
                await anext(events)


def _named(seq: int) -> tuple[int, ...]:
    """What the marker after ``seq`` names: a marker that is itself redacted passes on what it named."""
    return (2,) if seq == 2 else (2, seq)
