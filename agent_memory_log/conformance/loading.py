"""Promises 6 (first half) and 8: the orders of a snapshot, ``after``, ``types`` and ``limit``, and fresh reads."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from agent_memory_log.conformance.checks import check_run, check_stored, seqs_of
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, later, planner_note, user_message
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.payloads import PlannerNote, Thinking, ToolCall, ToolResult, UserMessage
from agent_memory_log.store import Store

_KINDS = "unnuuunnnu"
"""The events of the run in most tests: a user message for each u and a planner note for each n."""


@contract
class Loading(Suite):
    """Tests of ``load_run``."""

    async def test_6_an_unknown_run_loads_as_an_empty_snapshot(self, store: Store) -> None:
        await store.append_events(AGENT, "other", user_message("x"))
        snapshot = await store.load_run(AGENT, RUN)
        assert (snapshot.agent, snapshot.run, snapshot.version, snapshot.last_seq) == (AGENT, RUN, 0, 0)
        assert (list(snapshot.log), list(snapshot.events), snapshot.meta) == ([], [], {})

    async def test_6_log_is_in_append_order_and_events_by_time_then_seq(self, store: Store) -> None:
        minutes = (5, 3, 3, 9, -1, 5, 3)
        originals = [user_message(str(index), timestamp=later(minute)) for index, minute in enumerate(minutes)]
        await store.append_events(AGENT, RUN, *originals[:4])
        await store.append_events(AGENT, RUN, *originals[4:])
        snapshot = await store.load_run(AGENT, RUN)
        check_run(snapshot, originals)
        assert seqs_of(snapshot.events) == [5, 2, 3, 7, 1, 6, 4]
        assert [snapshot.log[event.seq - 1] for event in snapshot.events] == list(snapshot.events)

    async def test_6_a_snapshot_holds_the_arguments_of_its_read(self, store: Store) -> None:
        await _fill(store)
        snapshot = await store.load_run(AGENT, RUN, after=2, types=["user_message"], limit=3)
        assert (snapshot.agent, snapshot.run, snapshot.after) == (AGENT, RUN, 2)
        assert snapshot.types == frozenset({"user_message"})
        assert (snapshot.version, snapshot.last_seq, snapshot.first_seq) == (10, 6, 1)

    async def test_6_after_leaves_out_events_up_to_that_seq(self, store: Store) -> None:
        originals = await _fill(store)
        for after in range(11):
            snapshot = await store.load_run(AGENT, RUN, after=after)
            check_run(snapshot, originals[after:], first_seq=after + 1)
            assert (snapshot.version, snapshot.last_seq) == (10, 10)

    async def test_6_load_run_refuses_an_after_beyond_the_version(self, store: Store) -> None:
        await _fill(store)
        for agent, run, after in ((AGENT, RUN, 11), (AGENT, RUN, 2**70), (AGENT, "unknown", 1)):
            with pytest.raises(CursorOutOfRange):
                await store.load_run(agent, run, after=after)
            with pytest.raises(CursorOutOfRange):
                await store.load_run(agent, run, after=after, types=["planner_note"], limit=1)

    async def test_6_types_leave_out_events_of_other_types(self, store: Store) -> None:
        originals = await _fill(store)
        for types, kinds in (
            (["user_message"], "u"),
            (("planner_note",), "n"),
            ({"planner_note", "user_message"}, "un"),
            (iter(["planner_note", "planner_note", "unknown"]), "n"),
            (["USER_MESSAGE", "user_message ", ""], ""),
            ([], ""),
        ):
            snapshot = await store.load_run(AGENT, RUN, types=types)
            expected = [seq for seq, kind in enumerate(_KINDS, 1) if kind in kinds]
            assert seqs_of(snapshot.log) == expected
            for event in snapshot.log:
                check_stored(event, originals[event.seq - 1], event.seq)
            assert (snapshot.version, snapshot.last_seq) == (10, 10)

    async def test_6_limit_stops_the_read(self, store: Store) -> None:
        originals = await _fill(store)
        for limit in (1, 3, 9):
            snapshot = await store.load_run(AGENT, RUN, limit=limit)
            check_run(snapshot, originals[:limit])
            assert (snapshot.version, snapshot.last_seq) == (10, limit)
        for limit in (10, 11, 2**31):
            snapshot = await store.load_run(AGENT, RUN, limit=limit)
            check_run(snapshot, originals)
            assert (snapshot.version, snapshot.last_seq) == (10, 10)

    async def test_6_limit_counts_in_append_order_not_in_time_order(self, store: Store) -> None:
        originals = [user_message(str(index), timestamp=later(-index)) for index in range(6)]
        await store.append_events(AGENT, RUN, *originals)
        snapshot = await store.load_run(AGENT, RUN, after=1, limit=2)
        assert seqs_of(snapshot.log) == [2, 3]
        assert seqs_of(snapshot.events) == [3, 2]

    async def test_6_limit_counts_only_returned_events(self, store: Store) -> None:
        await _fill(store)
        snapshot = await store.load_run(AGENT, RUN, after=1, types=["user_message"], limit=2)
        assert seqs_of(snapshot.log) == [4, 5]
        assert (snapshot.version, snapshot.last_seq) == (10, 5)

    async def test_6_pages_cover_the_run_exactly_once(self, store: Store) -> None:
        await _fill(store)
        for types in (None, ["user_message"], ["planner_note"], ["user_message", "planner_note"], ["none"], []):
            expected = seqs_of((await store.load_run(AGENT, RUN, types=types)).log)
            for limit in (1, 2, 3, 4, 10, 11):
                assert await _paged(store, types, limit) == expected

    async def test_6_every_set_of_types_selects_exactly_those_events(self, store: Store) -> None:
        payloads = (
            UserMessage(message="u"),
            ToolCall("c", "t"),
            Thinking(text="h"),
            ToolResult("c", "t"),
            PlannerNote(note="n"),
        )
        kinds = [payload.event_type for payload in payloads] * 2
        await store.append_events(AGENT, RUN, *(new_event(payload) for payload in payloads * 2))
        for count in range(len(payloads) + 1):
            for types in itertools.combinations(kinds[: len(payloads)], count):
                expected = [seq for seq, kind in enumerate(kinds, 1) if kind in types]
                for limit in (None, 1, 3):
                    snapshot = await store.load_run(AGENT, RUN, types=types, limit=limit)
                    assert seqs_of(snapshot.log) == expected[:limit], (types, limit)

    async def test_6_a_selection_never_returns_events_of_other_runs(self, store: Store) -> None:
        await _fill(store)
        await store.append_events(AGENT, "other", *(user_message("other") for _ in range(20)))
        await store.append_events("other", RUN, *(user_message("other") for _ in range(20)))
        assert seqs_of((await store.load_run(AGENT, RUN, after=8, types=["user_message"], limit=9)).log) == [10]

    async def test_6_load_run_refuses_invalid_arguments(self, store: Store) -> None:
        await _fill(store)
        for limit in (0, -1, True, 1.0, "1"):
            with pytest.raises(InvalidArgument):
                await store.load_run(AGENT, RUN, limit=limit)  # type: ignore[arg-type]  # the test passes a wrong type
        for after in (-1, True, 1.0, "1", None):
            with pytest.raises(InvalidArgument):
                await store.load_run(AGENT, RUN, after=after)  # type: ignore[arg-type]  # the test passes a wrong type
        with pytest.raises(InvalidArgument):
            await store.load_run(AGENT, RUN, types="user_message")
        with pytest.raises(InvalidArgument):
            await store.load_run(AGENT, RUN, types=[3])  # type: ignore[list-item]  # the test passes a wrong type

    async def test_8_a_read_sees_every_append_acknowledged_before_it(self, open_handle: Handles) -> None:
        handles = [await open_handle() for _ in range(3)]
        for number in range(1, 13):
            await handles[number % 3].append_events(AGENT, RUN, user_message(str(number)))
            for handle in handles:
                assert (await handle.load_run(AGENT, RUN)).version == number
                assert seqs_of((await handle.load_run(AGENT, RUN, after=number - 1)).log) == [number]
                assert [run.version for run in (await handle.list_runs(AGENT)).runs] == [number]


async def _fill(store: Store) -> list[Event]:
    originals = [
        user_message(str(index)) if kind == "u" else planner_note(str(index)) for index, kind in enumerate(_KINDS)
    ]
    await store.append_events(AGENT, RUN, *originals)
    return originals


async def _paged(store: Store, types: Iterable[str] | None, limit: int) -> list[int]:
    seqs: list[int] = []
    after, version = 0, 1
    while after < version:
        page = await store.load_run(AGENT, RUN, after=after, types=types, limit=limit)
        assert len(page.log) <= limit
        assert page.last_seq > after, "the pages do not end"
        seqs += seqs_of(page.log)
        after, version = page.last_seq, page.version
    return seqs
