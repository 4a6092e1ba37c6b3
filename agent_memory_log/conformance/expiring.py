"""Promise 16: a store refuses a run from its ``expires_at`` on, and ``expire_runs`` removes the run."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from agent_memory_log.conformance.checks import all_runs, check_run, check_same, seqs_of, take
from agent_memory_log.conformance.ends import FAR_ENDS, PAST_ENDS, expired_run, until_expired, with_an_end
from agent_memory_log.conformance.harness import Handles, Suite, contract, waiting_next
from agent_memory_log.conformance.samples import AGENT, RUN, user_message
from agent_memory_log.errors import InvalidArgument, InvalidEvent, RunDeleted, RunExpired, StoreClosed
from agent_memory_log.events.event import parse_timestamp
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.store import AppendResult, ExpireResult, Store

_NOTHING = ExpireResult(runs=0, events=0)


@contract
class Expiring(Suite):
    """Tests of ``meta["expires_at"]`` and of ``expire_runs``."""

    async def test_16_a_run_works_normally_before_its_end(self, store: Store, other: Store) -> None:
        for index, end in enumerate(FAR_ENDS):
            run = f"{RUN}-{index}"
            meta: dict[str, JsonValue] = {"a": 1, "expires_at": end}
            originals = [user_message("one"), user_message("two"), user_message("three")]
            async with aclosing(other.follow(AGENT, run)) as events:
                await store.append_events(AGENT, run, originals[0], meta=meta)
                received = await take(events, 1)
                for handle, event in zip((store, other), originals[1:], strict=True):
                    waiting = await waiting_next(events)
                    await handle.append_events(AGENT, run, event)
                    received.append(await waiting)
            assert seqs_of(received) == [1, 2, 3]
            assert (await store.append_events(AGENT, run, *originals)).inserted == 0
            for handle in (store, other):
                snapshot = await handle.load_run(AGENT, run)
                check_run(snapshot, originals)
                assert snapshot.meta == meta, "the meta must be stored unchanged"
                assert (await handle.list_runs()).runs[0].meta == meta
            assert (await other.redact_events(AGENT, run, [1])).inserted == 1

    async def test_16_append_refuses_an_expires_at_that_is_not_a_time(self, store: Store) -> None:
        wrong: list[Any] = [
            *(None, True, 0, 1.5, 4_000_000_000, [], {}, ["9999-01-01T00:00:00Z"]),
            *("", "never", "9999-01-01", "9999-01-01T00:00:00", "9999-01-01 00:00:00Z", " 9999-01-01T00:00:00Z"),
            *("9999-13-01T00:00:00Z", "9999-01-01T24:00:00Z", "9999-01-01T00:00:00+25:00", "9999-01-01T00:00Z"),
            *("0000-01-01T00:00:00Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"),
        ]
        for end in wrong:
            with pytest.raises(InvalidEvent) as caught:
                await store.append_events(AGENT, RUN, user_message("one"), meta={"expires_at": end})
            assert caught.value.field == "meta.expires_at"
        assert (await store.load_run(AGENT, RUN)).version == 0
        assert await all_runs(store) == []

    async def test_16_meta_of_later_appends_sets_no_end(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"))
        await store.append_events(AGENT, "far", user_message("one"), meta={"expires_at": FAR_ENDS[0]})
        for run in (RUN, "far"):
            await store.append_events(AGENT, run, user_message("two"), meta={"expires_at": PAST_ENDS[0]})
            assert (await store.load_run(AGENT, run)).version == 2

    async def test_16_append_refuses_an_expired_run(self, store: Store, other: Store, open_handle: Handles) -> None:
        expired = await expired_run(store, other)
        for handle in (other, store, await open_handle()):
            for events in (
                (user_message("new"),),
                (user_message("new"), user_message("newer")),
                expired.events[:1],
                expired.events,
            ):
                with pytest.raises(RunExpired, match=f"{AGENT}/{RUN}"):
                    await handle.append_events(AGENT, RUN, *events)
            with pytest.raises(RunExpired):
                await handle.append_events(AGENT, RUN, user_message("new"), expected_version=expired.version)
            with pytest.raises(RunExpired):
                await handle.append_events(AGENT, RUN, user_message("new"), meta={"expires_at": FAR_ENDS[0]})
        await store.delete_run(AGENT, RUN)
        assert (await other.load_run(AGENT, RUN)).version == expired.version

    async def test_16_append_refuses_an_expired_run_with_redacted_events(self, store: Store) -> None:

        async def fill(meta: dict[str, JsonValue]) -> None:
            result = await store.append_events(AGENT, RUN, user_message("one"), meta=meta)
            await store.redact_events(AGENT, RUN, [result.version])

        await with_an_end(store, fill)
        await until_expired(store)
        with pytest.raises(RunExpired):
            await store.append_events(AGENT, RUN, user_message("new"))

    async def test_16_an_empty_append_to_an_expired_run_changes_nothing(self, store: Store) -> None:
        expired = await expired_run(store)
        result = await store.append_events(AGENT, RUN)
        assert (result.version, result.inserted, result.events) == (expired.version, 0, ())

    async def test_16_append_does_not_create_a_run_that_is_past_its_end(self, store: Store, other: Store) -> None:
        original = user_message("one")
        for end in PAST_ENDS:
            for events in ((original,), (original, user_message("two"))):
                with pytest.raises(RunExpired, match=f"{AGENT}/{RUN}"):
                    await store.append_events(AGENT, RUN, *events, meta={"expires_at": end})
            snapshot = await other.load_run(AGENT, RUN)
            assert (snapshot.version, snapshot.meta) == (0, {})
        assert await all_runs(store) == []
        await store.append_events(AGENT, RUN, original)
        check_run(await store.load_run(AGENT, RUN), [original])
        await store.delete_run(AGENT, RUN)
        with pytest.raises(RunExpired):
            await store.append_events(AGENT, RUN, original, meta={"expires_at": PAST_ENDS[0]})
        assert (await store.append_events(AGENT, RUN, original)).version == 2

    async def test_16_load_and_follow_refuse_an_expired_run(
        self, store: Store, other: Store, open_handle: Handles
    ) -> None:
        expired = await expired_run(store, other)
        for handle in (store, other, await open_handle()):
            for after in (0, expired.version, expired.version + 1):
                with pytest.raises(RunExpired, match=f"{AGENT}/{RUN}"):
                    await handle.load_run(AGENT, RUN, after=after)
                with pytest.raises(RunExpired):
                    await anext(handle.follow(AGENT, RUN, after=after))
            with pytest.raises(RunExpired):
                await handle.load_run(AGENT, RUN, types=["user_message"], limit=1)

    async def test_16_redact_refuses_an_expired_run(self, store: Store, other: Store) -> None:
        expired = await expired_run(store)
        for handle in (store, other):
            for seqs in ([], [expired.version], [expired.version + 1]):
                with pytest.raises(RunExpired, match=f"{AGENT}/{RUN}"):
                    await handle.redact_events(AGENT, RUN, seqs)

    async def test_16_list_runs_leaves_out_expired_runs(self, store: Store, other: Store) -> None:
        for number in range(4):
            meta = {"expires_at": FAR_ENDS[0]} if number % 2 else None
            await store.append_events(AGENT, f"run-{number}", user_message("one"), meta=meta)
            await expired_run(store, run=f"expired-{number}")
        for handle in (store, other):
            for agent in (None, AGENT):
                for limit in (1, 2, 4, 50):
                    runs = await all_runs(handle, agent, limit=limit)
                    assert [info.run for info in runs] == ["run-3", "run-2", "run-1", "run-0"]
            assert len((await handle.list_runs(limit=3)).runs) == 3
            assert (await handle.list_runs(limit=4)).cursor is None

    async def test_16_a_waiting_follower_wakes_when_its_run_expires(self, store: Store, other: Store) -> None:

        async def fill(meta: dict[str, JsonValue]) -> None:
            followers = store.follow(AGENT, RUN), other.follow(AGENT, RUN)
            async with aclosing(followers[0]), aclosing(followers[1]):
                # Both wait for a run that does not exist yet, so it has no end.
                waiting = [await waiting_next(follower) for follower in followers]
                try:
                    await store.append_events(AGENT, RUN, user_message("one"), meta=meta)
                    await asyncio.gather(*waiting)
                    waiting = [await waiting_next(follower) for follower in followers]
                    await store.load_run(AGENT, RUN)  # raises RunExpired if a follower did not wait before the end
                    for task in waiting:
                        with pytest.raises(RunExpired, match=f"{AGENT}/{RUN}"):
                            await task
                finally:
                    for task in waiting:
                        task.cancel()
                    await asyncio.gather(*waiting, return_exceptions=True)

        await with_an_end(store, fill)

    async def test_16_a_slow_follower_gets_no_event_of_an_expired_run(self, store: Store, other: Store) -> None:

        async def fill(meta: dict[str, JsonValue]) -> None:
            await store.append_events(
                AGENT, RUN, user_message("one"), user_message("two"), user_message("three"), meta=meta
            )
            async with aclosing(store.follow(AGENT, RUN)) as events:
                await take(events, 1)
                await until_expired(other)
                with pytest.raises(RunExpired):
                    await anext(events)

        await with_an_end(store, fill)

    async def test_16_an_expired_run_can_be_deleted_and_created_again(self, store: Store, other: Store) -> None:
        expired = await expired_run(store, other)
        version = expired.version
        await other.delete_run(AGENT, RUN)
        for handle in (store, other):
            snapshot = await handle.load_run(AGENT, RUN)
            assert (list(snapshot.log), snapshot.version, snapshot.meta) == ([], version, {})
            with pytest.raises(RunExpired):
                await handle.append_events(AGENT, RUN, user_message("new"), meta={"expires_at": PAST_ENDS[0]})
        originals = [
            user_message("another body", event_id=expired.events[0].event_id),
            user_message("more"),
            user_message("most"),
        ]
        assert (await store.append_events(AGENT, RUN, originals[0])).version == version + 1
        for handle, event in zip((other, store), originals[1:], strict=True):
            await handle.append_events(AGENT, RUN, event)
        snapshot = await other.load_run(AGENT, RUN)
        check_run(snapshot, originals, first_seq=version + 1)
        assert snapshot.meta == {}
        assert [info.event_count for info in await all_runs(store)] == [3]
        async with aclosing(other.follow(AGENT, RUN)) as events:
            assert seqs_of(await take(events, 3)) == [version + 1, version + 2, version + 3]

    async def test_16_a_run_created_again_has_its_own_end(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"))
        await store.delete_run(AGENT, RUN)
        expired = await expired_run(store)
        await store.delete_run(AGENT, RUN)
        result = await store.append_events(AGENT, RUN, user_message("new"), meta={"expires_at": FAR_ENDS[0]})
        assert result.version == expired.version + 1
        assert (await store.append_events(AGENT, RUN, user_message("more"))).version == expired.version + 2

    async def test_16_an_expired_run_does_not_affect_other_runs(self, store: Store) -> None:
        names = [(AGENT, "other"), ("other", RUN)]
        original = user_message("one")
        for agent, run in names:
            await store.append_events(agent, run, original)
        await expired_run(store)
        for agent, run in names:
            check_run(await store.load_run(agent, run), [original])
        outcomes = await asyncio.gather(
            *(
                store.append_events(agent, run, user_message("two"))
                for agent, run in (names[0], (AGENT, RUN), names[1])
            ),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [AppendResult, RunExpired, AppendResult]

    async def test_16_expire_runs_removes_expired_runs(self, store: Store, other: Store) -> None:
        expire = store.expire_runs
        assert await expire() == _NOTHING
        names = [(AGENT, RUN), (AGENT, "other"), ("@own", RUN)]
        expired_runs = {name: await expired_run(store, other, agent=name[0], run=name[1]) for name in names}
        assert await expire() == ExpireResult(runs=3, events=6)
        assert await expire() == _NOTHING
        for (agent, run), expired in expired_runs.items():
            for handle in (store, other):
                snapshot = await handle.load_run(agent, run)
                assert (list(snapshot.log), snapshot.version, snapshot.meta) == ([], expired.version, {})
            original = user_message("another body", event_id=expired.events[0].event_id)
            for handle in (other, store):
                await handle.append_events(agent, run, original, reserved=True)
            check_run(await store.load_run(agent, run), [original], first_seq=expired.version + 1)
        assert await expire() == _NOTHING

    async def test_16_expire_runs_keeps_other_runs(self, store: Store, other: Store) -> None:
        original = user_message("one")
        names = [(AGENT, RUN), (AGENT, "ends"), ("other", RUN)]
        for agent, run in names:
            await store.append_events(agent, run, original, meta={"expires_at": FAR_ENDS[0]} if run == "ends" else None)
        await store.append_events(AGENT, "deleted", original, meta={"expires_at": FAR_ENDS[0]})
        await store.delete_run(AGENT, "deleted")
        assert await other.expire_runs() == _NOTHING
        await expired_run(store, run="expired")
        assert await other.expire_runs() == ExpireResult(runs=1, events=1)
        for agent, run in names:
            check_run(await store.load_run(agent, run), [original])
        assert len(await all_runs(store)) == 3

    async def test_16_a_dry_run_of_expire_runs_counts_and_changes_nothing(self, store: Store, other: Store) -> None:
        assert await store.expire_runs(dry_run=True) == _NOTHING
        await store.append_events(AGENT, "stays", user_message("one"))
        before = await store.load_run(AGENT, "stays")
        await expired_run(store, other, store, run="three")
        await expired_run(store, run="one")
        for handle in (other, store):
            assert await handle.expire_runs(dry_run=True) == ExpireResult(runs=2, events=4)
        for run in ("three", "one"):
            with pytest.raises(RunExpired):
                await store.load_run(AGENT, run)
        check_same(await store.load_run(AGENT, "stays"), before)
        assert await store.expire_runs() == ExpireResult(runs=2, events=4)

    async def test_16_expire_runs_removes_runs_that_ended_by_before(self, store: Store) -> None:
        first = (await expired_run(store, run="first")).end
        await expired_run(store, run="second")
        moment = timedelta(microseconds=1)
        zone = timezone(timedelta(hours=5, minutes=30))
        expire = store.expire_runs
        for before in (datetime.min.replace(tzinfo=UTC), first - moment, (first - moment).astimezone(zone)):
            for dry_run in (True, False):
                assert await expire(before=before, dry_run=dry_run) == _NOTHING
        for dry_run in (True, False):
            before = first.astimezone(zone)
            assert await expire(before=before, dry_run=dry_run) == ExpireResult(runs=1, events=1)
        assert list((await store.load_run(AGENT, "first")).log) == []
        with pytest.raises(RunExpired):
            await store.load_run(AGENT, "second")
        assert await expire(before=datetime.now(UTC)) == ExpireResult(runs=1, events=1)

    async def test_16_expire_runs_refuses_a_before_that_is_not_in_the_past(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), meta={"expires_at": FAR_ENDS[0]})
        await expired_run(store, run="expired")
        wrong: list[Any] = [
            parse_timestamp(FAR_ENDS[0]),
            datetime.now(UTC) + timedelta(hours=1),
            datetime.now(UTC).replace(tzinfo=None),
            datetime.now(UTC).date(),
            "2021-01-01T00:00:00Z",
            0,
        ]
        for before in wrong:
            for dry_run in (True, False):
                with pytest.raises(InvalidArgument):
                    await store.expire_runs(before=before, dry_run=dry_run)
        assert (await store.load_run(AGENT, RUN)).version == 1
        assert await store.expire_runs(dry_run=True) == ExpireResult(runs=1, events=1)

    async def test_16_a_follower_ends_when_expire_runs_removes_its_run(self, store: Store, other: Store) -> None:
        async def fill(meta: dict[str, JsonValue]) -> None:
            await store.append_events(AGENT, RUN, user_message("one"), meta=meta)
            async with aclosing(other.follow(AGENT, RUN)) as events:
                await take(events, 1)
                await until_expired(store)
                await store.expire_runs()
                await store.append_events(AGENT, RUN, user_message("new"))
                with pytest.raises((RunExpired, RunDeleted)):
                    await anext(events)

        await with_an_end(store, fill)

    async def test_16_expire_runs_on_a_closed_handle_raises_store_closed(self, store: Store) -> None:
        await store.aclose()
        for dry_run in (True, False):
            with pytest.raises(StoreClosed):
                await store.expire_runs(dry_run=dry_run)
