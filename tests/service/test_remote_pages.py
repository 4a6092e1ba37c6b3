"""Laws of reads in several parts: the result equals one read at the time of the last part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_memory_log import PlannerNote, UserMessage, new_event, open_sync_store
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, StoreUnavailable
from agent_memory_log.service.client import pages
from agent_memory_log.service.store_operations import FindEvents, LoadRun, PeekRuns, ReadErasures, execute_on_store
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, run_sync
from agent_memory_log.store import Erasures, SyncStore

_Result = TypeVar("_Result")

AGENT, RUN = "agent", "run"

TYPES = st.sampled_from(
    (None, ("user_message",), ("planner_note", "user_message"), ("redacted",), ("redacted", "user_message"), ())
)


def capped(store: SyncStore, operation: Any, most: int) -> Any:
    """Return what a server with pages of ``most`` events or entries answers."""
    if isinstance(operation, LoadRun) and operation.last is None:
        operation = msgspec.structs.replace(operation, limit=min(operation.limit or most, most))
    elif isinstance(operation, LoadRun):
        snapshot = run_sync(execute_on_store(operation), store)
        return run_sync(execute_on_store(LoadRun(AGENT, RUN, snapshot.after, operation.types, most)), store)
    elif isinstance(operation, ReadErasures):
        operation = msgspec.structs.replace(operation, limit=min(operation.limit or most, most))
    elif isinstance(operation, FindEvents) and len(operation.event_ids) > most:
        raise InvalidArgument("too many event ids")
    return run_sync(execute_on_store(operation), store)


def answered(
    steps: Steps[_Result], store: SyncStore, most: int, change: Callable[[], object] = lambda: None
) -> tuple[_Result, int]:
    """Carry out a read, with a change after each part. Return the result and the number of parts."""
    count = 0
    try:
        request = next(steps)
        while True:
            if count:
                change()
            count += 1
            try:
                answer = capped(store, cast("Any", request).arguments[0], most)
            except (InvalidArgument, CursorOutOfRange) as error:
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as end:
        return end.value, count


def append(store: SyncStore, count: int) -> None:
    payloads = [UserMessage(message="u"), PlannerNote(note="n")]
    store.append_events(AGENT, RUN, *(new_event(payloads[number % 2]) for number in range(count)), meta={"a": 1})


def redact(store: SyncStore, numbers: Sequence[int]) -> None:
    head = store.load_run(AGENT, RUN, types=())
    held_seqs = range(head.first_seq, head.version + 1)
    seqs = {held_seqs[number % len(held_seqs)] for number in numbers if held_seqs}
    if seqs:
        store.redact_events(AGENT, RUN, seqs, reason="asked")


Change = int | list[int] | None
"""A change of the run: a number of events to append, events to redact, or None for a deletion."""

CHANGES: st.SearchStrategy[list[Change]] = st.lists(
    st.one_of(st.integers(0, 4), st.lists(st.integers(0, 40), min_size=1, max_size=4), st.none()), max_size=8
)


def apply(store: SyncStore, change: Change) -> None:
    if change is None:
        store.delete_run(AGENT, RUN)
    elif isinstance(change, int):
        append(store, change)
    else:
        redact(store, change)


@example(2, [], 1, None, 0, ("limit", 2), [[0]])  # the marker of the redaction comes after the last part
@example(4, [], 1, ("user_message",), 0, ("limit", 2), [[0]])  # the redacted event is no longer of the types
@example(4, [], 2, None, 0, ("limit", 4), [None, 3])  # a deletion takes the first part
@example(4, [], 1, None, 0, ("last", 3), [2])  # events come after the first part
@given(
    st.integers(0, 25),
    st.lists(st.integers(0, 40), max_size=4),
    st.integers(1, 6),
    TYPES,
    st.integers(0, 8),
    st.one_of(st.none(), st.tuples(st.sampled_from(("limit", "last")), st.integers(1, 12))),
    CHANGES,
)
def test_a_run_read_in_parts_equals_one_read(
    events: int,
    redacted: list[int],
    most: int,
    types: tuple[str, ...] | None,
    after: int,
    bound: tuple[str, int] | None,
    changes: list[Change],
) -> None:
    with open_sync_store("memory:") as store:
        append(store, events)
        redact(store, redacted)
        after = min(after, store.load_run(AGENT, RUN, types=()).version)
        bounds: dict[str, Any] = dict([bound]) if bound else {}
        waiting = iter(changes)
        steps = pages.load_run(LoadRun(AGENT, RUN, after, types, **bounds))
        snapshot, _ = answered(steps, store, most, lambda: apply(store, next(waiting, 0)))
        fresh = store.load_run(AGENT, RUN, after=after, types=types, **bounds)
        if bound and bound[0] == "last" and snapshot.after != fresh.after:
            # It begins where the newest events began at the first part, if fewer are left now.
            assert len(snapshot.log) < bound[1]
            fresh = store.load_run(AGENT, RUN, after=snapshot.after, types=types)
        assert snapshot == fresh
        assert fresh.redactions.items() <= snapshot.redactions.items()


@given(st.integers(0, 40), TYPES, st.integers(1, 50), st.integers(0, 8))
def test_many_newest_events_are_read_from_further_back(
    events: int, types: tuple[str, ...] | None, last: int, after: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, open_sync_store("memory:") as store:
        patch.setattr(pages, "_MOST_LAST", 3)
        append(store, events)
        redact(store, [events // 2, events // 3])
        after = min(after, store.load_run(AGENT, RUN, types=()).version)
        snapshot, _ = answered(pages.load_run(LoadRun(AGENT, RUN, after, types, last=last)), store, 4)
        assert snapshot == store.load_run(AGENT, RUN, after=after, types=types, last=last)


def test_a_run_that_never_holds_still_ends_with_an_error() -> None:
    with open_sync_store("memory:") as store:
        append(store, 200)
        store.redact_events(AGENT, RUN, range(101, 161))
        seqs = iter(range(1, 101))
        steps = pages.load_run(LoadRun(AGENT, RUN, 0, ("redacted",)))
        with pytest.raises(StoreUnavailable, match="redacted during each"):
            answered(steps, store, 50, lambda: store.redact_events(AGENT, RUN, [next(seqs)]))


def test_a_server_that_sends_the_same_part_again_is_refused() -> None:
    steps = pages.load_run(LoadRun(AGENT, RUN))
    next(steps)
    steps.send(Snapshot(AGENT, RUN, version=9, last_seq=4))
    with pytest.raises(StoreUnavailable, match="without an end"):
        steps.send(Snapshot(AGENT, RUN, version=9, last_seq=4))


@given(st.integers(0, 9), st.integers(1, 4), st.one_of(st.none(), st.integers(1, 12)), st.integers(0, 3))
def test_the_journal_read_in_parts_equals_one_read(deletions: int, most: int, limit: int | None, after: int) -> None:
    with open_sync_store("memory:") as store:
        for number in range(deletions):
            store.append_events(AGENT, f"run {number}", new_event(PlannerNote(note="n")))
            store.delete_run(AGENT, f"run {number}")
        after = min(after, deletions)
        journal: Erasures
        journal, _ = answered(pages.erasures(ReadErasures(after, None, limit)), store, most)
        assert journal == store.erasures(after=after, limit=limit)
        assert answered(pages.erasures(ReadErasures(after, ())), store, most) == (
            store.erasures(after=after, runs=()),
            1,
        )


@given(st.integers(0, 12), st.integers(1, 3))
def test_events_and_heads_asked_for_in_parts_come_in_order(count: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch, open_sync_store("memory:") as store:
        patch.setattr(pages, "_MOST_IDS", 5)
        patch.setattr(pages, "_MOST_RUNS", 2)
        append(store, 6)
        stored_ids = [event.event_id for event in store.load_run(AGENT, RUN).log]
        ids = tuple((*stored_ids, "unknown")[number % 7] for number in range(count))
        events, _ = answered(pages.find_events(FindEvents(AGENT, RUN, ids)), store, most)
        assert events == store.find_events(AGENT, RUN, ids)
        runs = tuple((AGENT, RUN if number % 2 else "unknown") for number in range(count))
        heads, _ = answered(pages.peek_runs(PeekRuns(runs)), store, most)
        assert heads == store.peek_runs(runs)
