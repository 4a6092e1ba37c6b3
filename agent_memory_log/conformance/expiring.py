"""Promise 16: a run is refused from the instant of its ``expires_at``, and ``expire_runs`` removes it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from agent_memory_log.conformance.checks import all_runs, check_run, check_same, seqs_of, take
from agent_memory_log.conformance.ends import FAR_ENDS, PAST_ENDS, expired_run, until_expired, with_an_end
from agent_memory_log.conformance.harness import Handles, Suite, contract, settle, waiting_next
from agent_memory_log.conformance.samples import AGENT, RUN, said
from agent_memory_log.errors import InvalidArgument, InvalidEvent, RunDeleted, RunExpired, StoreClosed
from agent_memory_log.events.event import parse_timestamp
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.store import AppendResult, ExpireResult, Store

_NOTHING = ExpireResult(runs=0, events=0)


@contract
class Expiring(Suite):
    """Tests of ``meta["expires_at"]`` and of ``expire_runs``."""

    async def test_16_before_its_end_a_run_is_like_any_other(self, store: Store, other: Store) -> None:
        for place, end in enumerate(FAR_ENDS):
            run = f"{RUN}-{place}"
            meta: dict[str, JsonValue] = {"a": 1, "expires_at": end}
            given = [said("one"), said("two"), said("three")]
            async with aclosing(other.follow(AGENT, run)) as events:
                await store.append_events(AGENT, run, given[0], meta=meta)
                received = await take(events, 1)
                for handle, event in zip((store, other), given[1:], strict=True):
                    waiting = await waiting_next(events)
                    await handle.append_events(AGENT, run, event)
                    received.append(await waiting)
            assert seqs_of(received) == [1, 2, 3]
            assert (await store.append_events(AGENT, run, *given)).inserted == 0
            for handle in (store, other):
                snapshot = await handle.load_run(AGENT, run)
                check_run(snapshot, given)
                assert snapshot.meta == meta, "it is kept as it was given"
                assert (await handle.list_runs()).runs[0].meta == meta
            assert (await other.redact_events(AGENT, run, [1])).inserted == 1

    async def test_16_an_end_that_is_no_time_is_refused(self, store: Store) -> None:
        wrong: list[Any] = [
            *(None, True, 0, 1.5, 4_000_000_000, [], {}, ["9999-01-01T00:00:00Z"]),
            *("", "never", "9999-01-01", "9999-01-01T00:00:00", "9999-01-01 00:00:00Z", " 9999-01-01T00:00:00Z"),
            *("9999-13-01T00:00:00Z", "9999-01-01T24:00:00Z", "9999-01-01T00:00:00+25:00", "9999-01-01T00:00Z"),
            *("0000-01-01T00:00:00Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"),
        ]
        for end in wrong:
            with pytest.raises(InvalidEvent) as caught:
                await store.append_events(AGENT, RUN, said("one"), meta={"expires_at": end})
            assert caught.value.field == "meta.expires_at"
        assert (await store.load_run(AGENT, RUN)).version == 0
        assert await all_runs(store) == []

    async def test_16_meta_of_later_appends_gives_no_end(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, said("one"))
        await store.append_events(AGENT, "far", said("one"), meta={"expires_at": FAR_ENDS[0]})
        for run in (RUN, "far"):
            await store.append_events(AGENT, run, said("two"), meta={"expires_at": PAST_ENDS[0]})
            assert (await store.load_run(AGENT, run)).version == 2

    async def test_16_nothing_is_appended_to_an_expired_run(
        self, store: Store, other: Store, open_handle: Handles
    ) -> None:
        there = await expired_run(store, other)
        for handle in (other, store, await open_handle()):
            for events in ((said("new"),), (said("new"), said("newer")), there.events[:1], there.events):
                with pytest.raises(RunExpired, match=f"{AGENT}/{RUN}"):
                    await handle.append_events(AGENT, RUN, *events)
            with pytest.raises(RunExpired):
                await handle.append_events(AGENT, RUN, said("new"), expected_version=there.version)
            with pytest.raises(RunExpired):
                await handle.append_events(AGENT, RUN, said("new"), meta={"expires_at": FAR_ENDS[0]})
        await store.delete_run(AGENT, RUN)
        assert (await other.load_run(AGENT, RUN)).version == there.version

    async def test_16_nothing_is_appended_to_a_redacted_run_that_has_expired(self, store: Store) -> None:

        async def fill(meta: dict[str, JsonValue]) -> None:
            result = await store.append_events(AGENT, RUN, said("one"), meta=meta)
            await store.redact_events(AGENT, RUN, [result.version])

        await with_an_end(store, fill)
        await until_expired(store)
        with pytest.raises(RunExpired):
            await store.append_events(AGENT, RUN, said("new"))

    async def test_16_an_empty_append_to_an_expired_run_does_nothing(self, store: Store) -> None:
        there = await expired_run(store)
        result = await store.append_events(AGENT, RUN)
        assert (result.version, result.inserted, result.events) == (there.version, 0, ())

    async def test_16_a_run_past_its_end_is_not_created(self, store: Store, other: Store) -> None:
        given = said("one")
        for end in PAST_ENDS:
            for events in ((given,), (given, said("two"))):
                with pytest.raises(RunExpired, match=f"{AGENT}/{RUN}"):
                    await store.append_events(AGENT, RUN, *events, meta={"expires_at": end})
            snapshot = await other.load_run(AGENT, RUN)
            assert (snapshot.version, snapshot.meta) == (0, {})
        assert await all_runs(store) == []
        await store.append_events(AGENT, RUN, given)
        check_run(await store.load_run(AGENT, RUN), [given])
        await store.delete_run(AGENT, RUN)
        with pytest.raises(RunExpired):
            await store.append_events(AGENT, RUN, given, meta={"expires_at": PAST_ENDS[0]})
        assert (await store.append_events(AGENT, RUN, given)).version == 2

    async def test_16_an_expired_run_is_not_read(self, store: Store, other: Store, open_handle: Handles) -> None:
        there = await expired_run(store, other)
        for handle in (store, other, await open_handle()):
            for after in (0, there.version, there.version + 1):
                with pytest.raises(RunExpired, match=f"{AGENT}/{RUN}"):
                    await handle.load_run(AGENT, RUN, after=after)
                with pytest.raises(RunExpired):
                    await anext(handle.follow(AGENT, RUN, after=after))
            with pytest.raises(RunExpired):
                await handle.load_run(AGENT, RUN, types=["user_message"], limit=1)

    async def test_16_an_expired_run_is_not_redacted(self, store: Store, other: Store) -> None:
        there = await expired_run(store)
        for handle in (store, other):
            for seqs in ([], [there.version], [there.version + 1]):
                with pytest.raises(RunExpired, match=f"{AGENT}/{RUN}"):
                    await handle.redact_events(AGENT, RUN, seqs)

    async def test_16_expired_runs_are_not_listed(self, store: Store, other: Store) -> None:
        for number in range(4):
            meta = {"expires_at": FAR_ENDS[0]} if number % 2 else None
            await store.append_events(AGENT, f"run-{number}", said("one"), meta=meta)
            await expired_run(store, run=f"expired-{number}")
        for handle in (store, other):
            for agent in (None, AGENT):
                for limit in (1, 2, 4, 50):
                    runs = await all_runs(handle, agent, limit=limit)
                    assert [info.run for info in runs] == ["run-3", "run-2", "run-1", "run-0"]
            assert len((await handle.list_runs(limit=3)).runs) == 3
            assert (await handle.list_runs(limit=4)).cursor is None

    async def test_16_a_waiting_follower_is_woken_at_the_end(self, store: Store, other: Store) -> None:

        async def fill(meta: dict[str, JsonValue]) -> None:
            events, others = store.follow(AGENT, RUN), other.follow(AGENT, RUN)
            async with aclosing(events), aclosing(others):
                waiting = [asyncio.create_task(anext(follower)) for follower in (events, others)]
                await settle()  # they wait for a run that is not there yet, and so has no end
                try:
                    await store.append_events(AGENT, RUN, said("one"), meta=meta)
                    await asyncio.gather(*waiting)
                finally:
                    for task in waiting:
                        task.cancel()
                    await asyncio.gather(*waiting, return_exceptions=True)
                for follower in (events, others):
                    with pytest.raises(RunExpired, match=f"{AGENT}/{RUN}"):
                        await anext(follower)

        await with_an_end(store, fill)

    async def test_16_a_follower_behind_the_end_gets_nothing_more(self, store: Store, other: Store) -> None:

        async def fill(meta: dict[str, JsonValue]) -> None:
            await store.append_events(AGENT, RUN, said("one"), said("two"), said("three"), meta=meta)
            async with aclosing(store.follow(AGENT, RUN)) as events:
                await take(events, 1)
                await until_expired(other)
                with pytest.raises(RunExpired):
                    await anext(events)

        await with_an_end(store, fill)

    async def test_16_an_expired_run_can_be_deleted_and_begun_anew(self, store: Store, other: Store) -> None:
        there = await expired_run(store, other)
        version = there.version
        await other.delete_run(AGENT, RUN)
        for handle in (store, other):
            snapshot = await handle.load_run(AGENT, RUN)
            assert (list(snapshot.log), snapshot.version, snapshot.meta) == ([], version, {})
            with pytest.raises(RunExpired):
                await handle.append_events(AGENT, RUN, said("new"), meta={"expires_at": PAST_ENDS[0]})
        given = [said("another body", event_id=there.events[0].event_id), said("more"), said("most")]
        assert (await store.append_events(AGENT, RUN, given[0])).version == version + 1
        for handle, event in zip((other, store), given[1:], strict=True):
            await handle.append_events(AGENT, RUN, event)
        snapshot = await other.load_run(AGENT, RUN)
        check_run(snapshot, given, first_seq=version + 1)
        assert snapshot.meta == {}
        assert [info.event_count for info in await all_runs(store)] == [3]
        async with aclosing(other.follow(AGENT, RUN)) as events:
            assert seqs_of(await take(events, 3)) == [version + 1, version + 2, version + 3]

    async def test_16_a_run_begun_anew_has_an_end_of_its_own(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, said("one"))
        await store.delete_run(AGENT, RUN)
        there = await expired_run(store)
        await store.delete_run(AGENT, RUN)
        result = await store.append_events(AGENT, RUN, said("new"), meta={"expires_at": FAR_ENDS[0]})
        assert result.version == there.version + 1
        assert (await store.append_events(AGENT, RUN, said("more"))).version == there.version + 2

    async def test_16_the_end_of_a_run_is_not_that_of_others(self, store: Store) -> None:
        names = [(AGENT, "other"), ("other", RUN)]
        given = said("one")
        for agent, run in names:
            await store.append_events(agent, run, given)
        await expired_run(store)
        for agent, run in names:
            check_run(await store.load_run(agent, run), [given])
        outcomes = await asyncio.gather(
            *(store.append_events(agent, run, said("two")) for agent, run in (names[0], (AGENT, RUN), names[1])),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [AppendResult, RunExpired, AppendResult]

    async def test_16_expire_runs_removes_what_has_expired(self, store: Store, other: Store) -> None:
        remove = store.expire_runs
        assert await remove() == _NOTHING
        names = [(AGENT, RUN), (AGENT, "other"), ("@own", RUN)]
        held = {name: await expired_run(store, other, agent=name[0], run=name[1]) for name in names}
        assert await remove() == ExpireResult(runs=3, events=6)
        assert await remove() == _NOTHING
        for (agent, run), there in held.items():
            for handle in (store, other):
                snapshot = await handle.load_run(agent, run)
                assert (list(snapshot.log), snapshot.version, snapshot.meta) == ([], there.version, {})
            given = said("another body", event_id=there.events[0].event_id)
            for handle in (other, store):
                await handle.append_events(agent, run, given, reserved=True)
            check_run(await store.load_run(agent, run), [given], first_seq=there.version + 1)
        assert await remove() == _NOTHING

    async def test_16_expire_runs_keeps_what_has_not_expired(self, store: Store, other: Store) -> None:
        given = said("one")
        names = [(AGENT, RUN), (AGENT, "ends"), ("other", RUN)]
        for agent, run in names:
            await store.append_events(agent, run, given, meta={"expires_at": FAR_ENDS[0]} if run == "ends" else None)
        await store.append_events(AGENT, "deleted", given, meta={"expires_at": FAR_ENDS[0]})
        await store.delete_run(AGENT, "deleted")
        assert await other.expire_runs() == _NOTHING
        await expired_run(store, run="expired")
        assert await other.expire_runs() == ExpireResult(runs=1, events=1)
        for agent, run in names:
            check_run(await store.load_run(agent, run), [given])
        assert len(await all_runs(store)) == 3

    async def test_16_a_dry_run_of_expire_runs_counts_and_changes_nothing(self, store: Store, other: Store) -> None:
        assert await store.expire_runs(dry_run=True) == _NOTHING
        await store.append_events(AGENT, "stays", said("one"))
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

    async def test_16_expire_runs_removes_what_ended_up_to_before(self, store: Store) -> None:
        first = (await expired_run(store, run="first")).end
        await expired_run(store, run="second")
        moment = timedelta(microseconds=1)
        zone = timezone(timedelta(hours=5, minutes=30))
        remove = store.expire_runs
        for before in (datetime.min.replace(tzinfo=UTC), first - moment, (first - moment).astimezone(zone)):
            for dry_run in (True, False):
                assert await remove(before=before, dry_run=dry_run) == _NOTHING
        for dry_run in (True, False):
            before = first.astimezone(zone)
            assert await remove(before=before, dry_run=dry_run) == ExpireResult(runs=1, events=1)
        assert list((await store.load_run(AGENT, "first")).log) == []
        with pytest.raises(RunExpired):
            await store.load_run(AGENT, "second")
        assert await remove(before=datetime.now(UTC)) == ExpireResult(runs=1, events=1)

    async def test_16_expire_runs_needs_an_instant_that_has_passed(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, said("one"), meta={"expires_at": FAR_ENDS[0]})
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

    async def test_16_a_follower_of_a_run_that_is_removed_ends(self, store: Store, other: Store) -> None:
        async def fill(meta: dict[str, JsonValue]) -> None:
            await store.append_events(AGENT, RUN, said("one"), meta=meta)
            async with aclosing(other.follow(AGENT, RUN)) as events:
                await take(events, 1)
                await until_expired(store)
                await store.expire_runs()
                await store.append_events(AGENT, RUN, said("new"))
                with pytest.raises((RunExpired, RunDeleted)):
                    await anext(events)

        await with_an_end(store, fill)

    async def test_16_expire_runs_of_a_closed_handle_says_so(self, store: Store) -> None:
        await store.aclose()
        for dry_run in (True, False):
            with pytest.raises(StoreClosed):
                await store.expire_runs(dry_run=dry_run)
