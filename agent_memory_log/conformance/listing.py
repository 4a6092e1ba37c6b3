"""Promise 15: ``list_runs`` returns runs in order and in pages, and a run keeps its meta."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from agent_memory_log.conformance.checks import all_runs, exact
from agent_memory_log.conformance.harness import Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, VALUES, later, nested, user_message
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument
from agent_memory_log.events.jsonvalue import MAX_DEPTH, JsonValue
from agent_memory_log.store import RunInfo, Store


@contract
class Listing(Suite):
    """Tests of ``list_runs`` and ``meta``."""

    async def test_15_an_empty_store_lists_no_runs(self, store: Store) -> None:
        await store.load_run(AGENT, RUN)
        page = await store.list_runs()
        assert (page.runs, page.cursor) == ((), None)

    async def test_15_list_runs_describes_a_run(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), user_message("two"), meta={"a": [1.0]})
        (info,) = (await other.list_runs()).runs
        assert (info.agent, info.run, info.version, info.event_count) == (AGENT, RUN, 2, 2)
        assert info.meta == {"a": [1.0]}
        assert info.created.utcoffset() == timedelta(0)
        await other.redact_events(AGENT, RUN, [1])
        await store.append_events(AGENT, RUN, user_message("four"))
        (later,) = (await other.list_runs()).runs
        assert (later.version, later.event_count, later.created, later.meta) == (4, 4, info.created, info.meta)

    async def test_15_list_runs_describes_a_run_that_does_not_begin_at_1(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), user_message("two"))
        await store.delete_run(AGENT, RUN)
        await store.append_events(AGENT, RUN, user_message("three"))
        await store.append_events(AGENT, "imported", user_message("one"), user_message("two"), first_seq=8)
        assert [(info.version, info.event_count) for info in await all_runs(store)] == [(9, 2), (3, 1)]

    async def test_15_list_runs_orders_runs_by_creation_newest_first(self, store: Store, other: Store) -> None:
        runs = ["m", "b", "z", "a", "k"]
        for index, run in enumerate(runs):
            await (store, other)[index % 2].append_events(f"agent-{index % 3}", run, user_message(run))
        await store.append_events("agent-0", "m", user_message("the oldest run gets the newest event"))
        for handle in (store, other):
            assert _names(await all_runs(handle)) == list(reversed(runs))

    async def test_15_a_run_created_again_is_listed_as_the_newest(self, store: Store) -> None:
        for run in ("a", "b", "c"):
            await store.append_events(AGENT, run, user_message(run))
        await store.delete_run(AGENT, "a")
        assert _names(await all_runs(store)) == ["c", "b"]
        await store.append_events(AGENT, "a", user_message("again"))
        assert _names(await all_runs(store)) == ["a", "c", "b"]

    async def test_15_pages_lose_and_repeat_no_run(self, store: Store) -> None:
        runs = [f"run-{number}" for number in range(10)]
        for run in runs:
            await store.append_events(AGENT, run, user_message(run))
        for limit in (1, 3, 5, 9, 10, 11, 1000):
            assert _names(await all_runs(store, limit=limit)) == list(reversed(runs))
            page = await store.list_runs(limit=limit)
            assert len(page.runs) == min(limit, 10)
            assert (page.cursor is None) == (limit >= 10)

    async def test_15_pages_stay_correct_when_runs_change_between_them(self, store: Store, other: Store) -> None:
        for number in range(9):
            await store.append_events(AGENT, str(number), user_message("x"))
        names: list[str] = []
        cursor: str | None = None
        for round_ in range(3):
            page = await store.list_runs(limit=3, cursor=cursor)
            names += _names(page.runs)
            cursor = page.cursor
            await other.append_events(AGENT, f"new {round_}", user_message("x"))
            await other.append_events(AGENT, "0", user_message("more"))
            if round_ == 0:
                await other.delete_run(AGENT, "8")
                await other.delete_run(AGENT, "4")
        assert names == ["8", "7", "6", "5", "3", "2", "1", "0"]

    async def test_15_list_runs_selects_the_runs_of_one_agent(self, store: Store) -> None:
        for number in range(8):
            await store.append_events(f"agent-{number % 2}", str(number), user_message("x"))
        for limit in (1, 2, 50):
            assert _names(await all_runs(store, "agent-1", limit=limit)) == ["7", "5", "3", "1"]
        assert await all_runs(store, "agent-2") == []

    async def test_15_list_runs_leaves_out_reserved_runs_by_default(self, store: Store) -> None:
        for agent in ("a", "@b", "c@", "@d", "e"):
            await store.append_events(agent, agent, user_message("x"), reserved=True)
        for limit in (1, 2, 50):
            assert _names(await all_runs(store, limit=limit)) == ["e", "c@", "a"]
            assert _names(await all_runs(store, limit=limit, include_reserved=True)) == ["e", "@d", "c@", "@b", "a"]
        assert _names(await all_runs(store, "@b")) == ["@b"]

    async def test_15_list_runs_refuses_a_malformed_cursor(self, store: Store) -> None:
        await _two_runs(store)
        for cursor in ("", "x", "nonsense", "0", "-1", "eyJ9", "\u00e9", "\ud800", "' OR 1=1 --"):
            with pytest.raises(CursorOutOfRange):
                await store.list_runs(cursor=cursor)

    async def test_15_list_runs_refuses_a_limit_below_1(self, store: Store) -> None:
        await _two_runs(store)
        for limit in (0, -1, True, 1.0, "1", None):
            with pytest.raises(InvalidArgument):
                await store.list_runs(limit=limit)  # type: ignore[arg-type]  # the test passes a wrong type

    async def test_15_list_runs_has_the_time_of_the_newest_event(self, store: Store, other: Store) -> None:
        async def updated(run: str = RUN) -> datetime:
            (time,) = {
                info.updated for handle in (store, other) for info in (await handle.list_runs()).runs if info.run == run
            }
            return time

        for minute in (5, 9, 3):
            timestamp = later(minute).replace(microsecond=minute)
            await store.append_events(AGENT, RUN, user_message("x"), user_message("y", timestamp=timestamp))
            await store.append_events(AGENT, "other", user_message("x"))
            assert await updated() == timestamp
            assert (await updated()).utcoffset() == timedelta(0)
        marker = (await other.redact_events(AGENT, RUN, [6])).events[0]
        assert await updated() == marker.timestamp
        await store.delete_run(AGENT, RUN)
        await store.append_events(AGENT, RUN, user_message("x", timestamp=later(-1)), first_seq=100)
        assert await updated() == later(-1)

    async def test_15_meta_is_stored_with_the_run(self, store: Store, other: Store) -> None:
        meta: dict[str, JsonValue] = {"session_id": "s-1", "parent": None, "nested": {"a": [1, 1.0, True]}}
        await store.append_events(AGENT, RUN, user_message("one"), user_message("two"), meta=meta)
        await store.append_events(AGENT, "without", user_message("one"))
        for handle in (store, other):
            assert exact((await handle.load_run(AGENT, RUN)).meta) == exact(meta)
            assert exact((await handle.load_run(AGENT, RUN, after=2)).meta) == exact(meta)
            assert (await handle.load_run(AGENT, "without")).meta == {}
            assert [exact(info.meta) for info in (await handle.list_runs()).runs] == [exact({}), exact(meta)]

    async def test_15_meta_of_later_appends_is_ignored(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), meta={"a": 1})
        await store.append_events(AGENT, "without", user_message("one"))
        for handle in (store, other):
            for run in (RUN, "without"):
                await handle.append_events(AGENT, run, user_message("more"), meta={"b": 2})
        await store.redact_events(AGENT, RUN, [1])
        assert (await store.load_run(AGENT, RUN)).meta == {"a": 1}
        assert (await store.load_run(AGENT, "without")).meta == {}
        assert [info.meta for info in (await other.list_runs()).runs] == [{}, {"a": 1}]

    async def test_15_any_meta_comes_back_unchanged(self, store: Store, other: Store) -> None:
        meta: dict[str, JsonValue] = {name: value for name, value in VALUES.items() if name != "as deep as it may be"}
        meta.update({"": 1, "$a": 2, "b.c": 3, "\x00": 4, "_id": 5, "deep": nested(MAX_DEPTH - 1)})
        await store.append_events(AGENT, RUN, user_message("one"), meta=meta)
        assert exact((await other.load_run(AGENT, RUN)).meta) == exact(meta)
        (info,) = (await other.list_runs()).runs
        assert exact(info.meta) == exact(meta)


async def _two_runs(store: Store) -> None:
    for run in ("a", "b"):
        await store.append_events(AGENT, run, user_message(run))


def _names(runs: list[RunInfo] | tuple[RunInfo, ...]) -> list[str]:
    return [info.run for info in runs]
