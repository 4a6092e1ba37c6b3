"""Promise 16, second half: ``expire_runs`` removes the runs that have expired, and no others.

It is an optional capability: the tests are skipped where a store is not one that ``Expires``.
"""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from agent_memory_log.conformance.checks import all_runs, check_run, check_same, take
from agent_memory_log.conformance.ends import FAR_ENDS, expired_run, until_expired, with_an_end
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, said
from agent_memory_log.errors import InvalidArgument, RunDeleted, RunExpired, StoreClosed
from agent_memory_log.events.event import parse_timestamp
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.store import ExpireResult, Expires, Store

_NOTHING = ExpireResult(runs=0, events=0)


class ExpiringRuns(Suite):
    """Tests of ``expire_runs``."""

    @contract
    async def test_16_expire_runs_removes_what_has_expired(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        remove = _expiring(store).expire_runs
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

    @contract
    async def test_16_expire_runs_keeps_what_has_not_expired(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        given = said("one")
        names = [(AGENT, RUN), (AGENT, "ends"), ("other", RUN)]
        for agent, run in names:
            await store.append_events(agent, run, given, meta={"expires_at": FAR_ENDS[0]} if run == "ends" else None)
        await store.append_events(AGENT, "deleted", given, meta={"expires_at": FAR_ENDS[0]})
        await store.delete_run(AGENT, "deleted")
        assert await _expiring(other).expire_runs() == _NOTHING
        await expired_run(store, run="expired")
        assert await _expiring(other).expire_runs() == ExpireResult(runs=1, events=1)
        for agent, run in names:
            check_run(await store.load_run(agent, run), [given])
        assert len(await all_runs(store)) == 3

    @contract
    async def test_16_a_dry_run_of_expire_runs_counts_and_changes_nothing(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        assert await _expiring(store).expire_runs(dry_run=True) == _NOTHING
        await store.append_events(AGENT, "stays", said("one"))
        before = await store.load_run(AGENT, "stays")
        await expired_run(store, other, store, run="three")
        await expired_run(store, run="one")
        for handle in (other, store):
            assert await _expiring(handle).expire_runs(dry_run=True) == ExpireResult(runs=2, events=4)
        for run in ("three", "one"):
            with pytest.raises(RunExpired):
                await store.load_run(AGENT, run)
        check_same(await store.load_run(AGENT, "stays"), before)
        assert await _expiring(store).expire_runs() == ExpireResult(runs=2, events=4)

    @contract
    async def test_16_expire_runs_removes_what_ended_up_to_before(self, open_handle: Handles) -> None:
        store = await open_handle()
        first = (await expired_run(store, run="first")).end
        await expired_run(store, run="second")
        moment = timedelta(microseconds=1)
        zone = timezone(timedelta(hours=5, minutes=30))
        remove = _expiring(store).expire_runs
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

    @contract
    async def test_16_expire_runs_needs_an_instant_that_has_passed(self, open_handle: Handles) -> None:
        store = await open_handle()
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
                    await _expiring(store).expire_runs(before=before, dry_run=dry_run)
        assert (await store.load_run(AGENT, RUN)).version == 1
        assert await _expiring(store).expire_runs(dry_run=True) == ExpireResult(runs=1, events=1)

    @contract
    async def test_16_a_follower_of_a_run_that_is_removed_ends(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        _expiring(store)

        async def fill(meta: dict[str, JsonValue]) -> None:
            await store.append_events(AGENT, RUN, said("one"), meta=meta)
            async with aclosing(other.follow(AGENT, RUN)) as events:
                await take(events, 1)
                await until_expired(store)
                await _expiring(store).expire_runs()
                await store.append_events(AGENT, RUN, said("new"))
                with pytest.raises((RunExpired, RunDeleted)):
                    await anext(events)

        await with_an_end(store, fill)

    @contract
    async def test_16_expire_runs_of_a_closed_handle_says_so(self, open_handle: Handles) -> None:
        store = await open_handle()
        expiring = _expiring(store)
        await store.aclose()
        for dry_run in (True, False):
            with pytest.raises(StoreClosed):
                await expiring.expire_runs(dry_run=dry_run)


def _expiring(store: Store) -> Expires:
    """The store as one that ``Expires``; skips the test where it is none."""
    if not isinstance(store, Expires):
        pytest.skip("this store does not offer expire_runs")
    return store
