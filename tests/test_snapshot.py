"""Tests of snapshots: they are immutable and cheap to extend, and an extended one equals a fresh read of the run."""

# pyright: reportPrivateUsage=false
# Only private attributes show that no event is copied.

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agent_memory_log import Event, PlannerNote, Redacted, Snapshot, ToolCall, UserMessage, new_event
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument
from agent_memory_log.snapshot import EventList
from agent_memory_log_inmem import SyncMemoryStore
from tests.effort import EXAMPLES

START = datetime(2026, 1, 1, tzinfo=UTC)


def event(number: int, *, seconds: int | None = None, seq: int = 0) -> Event:
    fresh = new_event(
        PlannerNote(note=str(number)), timestamp=START + timedelta(seconds=number if seconds is None else seconds)
    )
    return Event(fresh.type, fresh.timestamp, fresh.data, {}, fresh.event_id, seq or number)


def snapshot(first: int, last: int) -> Snapshot:
    return Snapshot("agent", "run", [event(n) for n in range(first, last + 1)], version=last, after=first - 1)


def notes(events: Iterable[Event]) -> list[str]:
    return [str(item.to_map()["data"]["note"]) if item.type == "planner_note" else item.type for item in events]  # type: ignore[index,call-overload]  # a map of text


@given(st.integers(0, 6), st.integers(0, 6), st.lists(st.integers(-9, 9)), st.data())
def test_event_list_is_an_immutable_sequence(length: int, more: int, positions: list[int], data: st.DataObject) -> None:
    plain = [event(n) for n in range(1, length + 1)]
    shared = [*plain, *(event(n) for n in range(length + 1, length + more + 1))]
    listed = EventList(shared, length)
    assert len(listed) == length
    assert list(listed) == plain
    assert list(reversed(listed)) == plain[::-1]
    assert listed == plain
    assert listed == tuple(plain)
    assert listed == EventList(list(plain), length)
    assert listed != plain[:-1] or not plain
    assert listed != "text"
    assert (listed == [*plain, 1]) is False
    for position in positions:
        if -length <= position < length:
            assert listed[position] == plain[position]
        else:
            with pytest.raises(IndexError):
                listed[position]
    part = data.draw(st.slices(9))
    assert listed[part] == tuple(plain[part])
    assert all(item in listed for item in plain)
    assert not any(item in listed for item in shared[length:])
    for item in plain:
        assert listed.index(item) == plain.index(item)
    assert pickle.loads(pickle.dumps(listed)) == plain
    assert repr(listed) == f"EventList({plain!r})"
    for forbidden in ("append", "__setitem__", "__delitem__", "clear", "sort"):
        assert not hasattr(listed, forbidden)
    with pytest.raises(TypeError):
        hash(listed)


def test_extension_does_not_change_a_running_iteration() -> None:
    older = snapshot(1, 3)
    iterator, backwards = iter(older.log), reversed(older.log)
    assert next(iterator) == older.log[0]
    assert next(backwards) == older.log[2]
    newer = older.extend(snapshot(4, 6))
    assert notes(iterator) == ["2", "3"]
    assert notes(backwards) == ["2", "1"]
    assert notes(newer.log) == ["1", "2", "3", "4", "5", "6"]


def test_extending_copies_no_events() -> None:
    grown = snapshot(1, 10_000)
    tape = grown._view.tape
    shared = tape.by_seq
    for number in range(10_001, 10_006):
        grown = grown.extend(snapshot(number, number))
        assert grown._view.tape is tape
        assert grown._view.tape.by_seq is shared
        assert grown._view.by_time is shared
    assert len(shared) == len(grown.log) == 10_005


def test_extending_in_time_order_copies_no_events_after_a_late_event() -> None:
    grown = snapshot(1, 100).extend(Snapshot("agent", "run", [event(101, seconds=50)], version=101, after=100))
    by_time = grown._view.by_time
    assert by_time is not grown._view.tape.by_seq
    grown = grown.extend(snapshot(102, 103))
    assert grown._view.by_time is by_time
    assert notes(grown.events)[49:52] == ["50", "101", "51"]
    assert notes(grown.log)[-3:] == ["101", "102", "103"]


def test_empty_extension_ignores_later_events_of_the_shared_tape() -> None:
    older = snapshot(1, 3)
    late = older.extend(Snapshot("agent", "run", [event(4, seconds=0)], version=4, after=3))
    assert notes(late.events) == ["4", "1", "2", "3"]
    same = older.extend(Snapshot("agent", "run", version=3, after=3))
    assert notes(same.events) == notes(same.log) == ["1", "2", "3"]
    assert notes(same.extend(snapshot(4, 5)).events) == ["1", "2", "3", "4", "5"]
    assert notes(late.events) == ["4", "1", "2", "3"]


def test_snapshot_can_be_extended_in_two_ways() -> None:
    base = snapshot(1, 2)
    first = base.extend(snapshot(3, 4))
    second = base.extend(Snapshot("agent", "run", [event(3, seconds=-1)], version=3, after=2))
    assert notes(first.log) == ["1", "2", "3", "4"]
    assert notes(second.events) == ["3", "1", "2"]
    assert notes(base.events) == ["1", "2"]
    assert notes(first.extend(snapshot(5, 5)).log) == ["1", "2", "3", "4", "5"]
    assert notes(second.extend(snapshot(4, 4)).log) == ["1", "2", "3", "4"]


def test_threads_can_extend_the_same_snapshot() -> None:
    base = snapshot(1, 50)
    barrier = threading.Barrier(4)
    failures: list[str] = []

    def extend(number: int) -> None:
        barrier.wait()
        mine = base
        for step in range(200):
            seq = 51 + step
            mine = mine.extend(
                Snapshot(
                    "agent", "run", [event(seq, seconds=number * 1000 - step * number)], version=seq, after=seq - 1
                )
            )
            if len(mine.log) != seq or notes(base.events) != [str(n) for n in range(1, 51)]:
                failures.append(f"{number} at {step}")
        times = [item.timestamp for item in mine.events]
        expected = sorted([*base.log, *mine.log[50:]], key=lambda item: (item.timestamp, item.seq))
        if times != sorted(times) or list(mine.events) != expected:
            failures.append(f"{number} ends wrong")

    threads = [threading.Thread(target=extend, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize(
    ("newer", "error"),
    [
        (Snapshot("agent", "run", [event(5)], version=5, after=4), CursorOutOfRange),
        (Snapshot("agent", "run", [event(3)], version=3, after=2), CursorOutOfRange),
        (Snapshot("agent", "run", [event(1)], version=1), CursorOutOfRange),
        (Snapshot("agent", "other", [event(4)], version=4, after=3), InvalidArgument),
        (Snapshot("other", "run", [event(4)], version=4, after=3), InvalidArgument),
        (Snapshot("agent", "run", [event(4)], version=4, after=3, types=["planner_note"]), InvalidArgument),
    ],
)
def test_extend_refuses_events_that_do_not_follow(newer: Snapshot, error: type[Exception]) -> None:
    base = snapshot(1, 3)
    with pytest.raises(error):
        base.extend(newer)
    assert notes(base.log) == ["1", "2", "3"]


def test_extend_refuses_a_different_filter() -> None:
    base = Snapshot("agent", "run", [event(1)], version=3, types=["planner_note", "thinking"])
    follows = Snapshot("agent", "run", [event(4)], version=4, after=3, types=("thinking", "planner_note"))
    assert notes(base.extend(follows).log) == ["1", "4"]
    for types in (None, ["planner_note"], []):
        with pytest.raises(InvalidArgument, match="types"):
            base.extend(Snapshot("agent", "run", [], version=4, after=3, types=types))


def test_snapshot_can_be_pickled_and_copied() -> None:
    older = snapshot(1, 3)
    grown = older.extend(snapshot(4, 5))
    for original in (older, grown, Snapshot("a", "b", meta={"k": [1]}, types=["x"])):
        for twin in (pickle.loads(pickle.dumps(original)), copy.deepcopy(original), copy.copy(original)):
            assert twin == original
            assert twin.meta == original.meta
            assert twin.redactions == original.redactions
    assert notes(pickle.loads(pickle.dumps(older)).extend(snapshot(4, 4)).log) == ["1", "2", "3", "4"]
    assert older != grown
    assert older != 5
    assert repr(older) == "<Snapshot agent/run version 3, 3 events>"


def test_filter_for_redacted_events_cannot_be_extended_past_a_new_redaction() -> None:
    with SyncMemoryStore() as store:
        store.append_events("agent", "run", *(new_event(UserMessage(message=str(n))) for n in range(3)))
        older = store.load_run("agent", "run", types=["redacted"])
        store.redact_events("agent", "run", [2])
        newer = store.load_run("agent", "run", after=3, types=["redacted"])
        with pytest.raises(CursorOutOfRange, match="load the run again"):
            older.extend(newer)
        fresh = store.load_run("agent", "run", types=["redacted"])
        assert [item.seq for item in fresh.log] == [2]
        store.append_events("agent", "run", new_event(UserMessage()))
        assert fresh.extend(store.load_run("agent", "run", after=4, types=["redacted"])) == store.load_run(
            "agent", "run", types=["redacted"]
        )


TYPES: list[list[str] | None] = [None, ["user_message"], ["tool_call", "redaction"], ["redacted"], []]
"""The filters that the state machine tries."""


class ExtendLaw(RuleBasedStateMachine):
    """A state machine that checks that a snapshot extended in any steps equals a fresh load of the run."""

    def __init__(self) -> None:
        super().__init__()
        self.store = SyncMemoryStore()
        self.snapshots: list[Snapshot] = []
        self.frozen: list[tuple[Snapshot, list[Event], list[Event]]] = []

    @initialize(types=st.sampled_from(TYPES))
    def start(self, types: list[str] | None) -> None:
        self.keep(self.store.load_run("agent", "run", types=types))

    def keep(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)
        self.frozen.append((snapshot, list(snapshot.log), list(snapshot.events)))

    def load(self, snapshot: Snapshot, **options: int) -> Snapshot:
        return self.store.load_run(
            "agent", "run", types=None if snapshot.types is None else sorted(snapshot.types), **options
        )

    @rule(seconds=st.lists(st.integers(-5, 5), min_size=1, max_size=3), call=st.booleans())
    def append(self, seconds: list[int], *, call: bool) -> None:
        payload = ToolCall(tool_call_id="tc", tool_name="t") if call else UserMessage(message="hi")
        self.store.append_events(
            "agent", "run", *(new_event(payload, timestamp=START + timedelta(seconds=s)) for s in seconds)
        )

    @rule(picks=st.lists(st.integers(0, 20), min_size=1, max_size=3))
    def redact(self, picks: list[int]) -> None:
        seqs = [item.seq for item in self.store.load_run("agent", "run").log]
        if seqs:
            self.store.redact_events("agent", "run", {seqs[pick % len(seqs)] for pick in picks}, reason=str(picks))

    @rule()
    def delete(self) -> None:
        self.store.delete_run("agent", "run")

    @rule(pick=st.integers(0), limit=st.none() | st.integers(1, 3))
    def extend(self, pick: int, limit: int | None) -> None:
        snapshot = self.snapshots[pick % len(self.snapshots)]
        newer = self.store.load_run(
            "agent",
            "run",
            after=snapshot.last_seq,
            types=None if snapshot.types is None else sorted(snapshot.types),
            limit=limit,
        )
        try:
            grown = snapshot.extend(newer)
        except CursorOutOfRange:
            assert snapshot.types is not None
            assert "redacted" in snapshot.types
            return
        self.keep(grown)
        if limit is None:
            fresh = self.load(grown, after=grown.after)
            assert grown == fresh
            assert grown.events == fresh.events
            assert grown.events == sorted(fresh.log, key=lambda e: (e.timestamp, e.seq))

    @rule(pick=st.integers(0))
    def extend_in_steps(self, pick: int) -> None:
        snapshot = self.snapshots[pick % len(self.snapshots)]
        try:
            while True:
                snapshot = snapshot.extend(self.load(snapshot, after=snapshot.last_seq, limit=1))
                if snapshot.last_seq == snapshot.version:
                    break
        except CursorOutOfRange:
            assert snapshot.types is not None
            assert "redacted" in snapshot.types
            return
        assert snapshot == self.load(snapshot, after=snapshot.after)

    @invariant()
    def older_snapshots_stay_as_they_were(self) -> None:
        for snapshot, log, events in self.frozen[-6:] + self.frozen[:2]:
            assert list(snapshot.log) == log
            assert list(snapshot.events) == events

    def teardown(self) -> None:
        self.store.close()


TestExtendLaw = ExtendLaw.TestCase
TestExtendLaw.settings = settings(max_examples=2 * EXAMPLES, stateful_step_count=30)


def test_redaction_masks_an_older_snapshot_only_when_it_is_extended() -> None:
    with SyncMemoryStore() as store:
        store.append_events("agent", "run", *(new_event(UserMessage(message=str(n))) for n in range(3)))
        older = store.load_run("agent", "run")
        store.redact_events("agent", "run", [1, 3], reason="asked")
        grown = older.extend(store.load_run("agent", "run", after=older.last_seq))
        assert grown == store.load_run("agent", "run")
        assert isinstance(grown.log[0].data, Redacted)
        assert grown.log[0].data.reason == "asked"
        assert isinstance(older.log[0].data, UserMessage)
