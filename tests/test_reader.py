"""Tests of the reader: results and their calls, open calls, children of calls, turns, and filters."""

# pyright: reportPrivateUsage=false
# The lock is a private attribute.

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory_log import (
    Event,
    EventData,
    EventType,
    PlannerNote,
    Reader,
    Redacted,
    Snapshot,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.reader import _Index
from tests.effort import EXAMPLES

START = datetime(2026, 1, 1, tzinfo=UTC)


def log(*payloads: EventData, first: int = 1, seconds: list[int] | None = None, **options: Any) -> Snapshot:
    times = seconds or list(range(first, first + len(payloads)))
    events = [
        Event(data.event_type, START + timedelta(seconds=second), data, {}, f"e-{seq}", seq)
        for seq, (data, second) in enumerate(zip(payloads, times, strict=True), first)
    ]
    return Snapshot("agent", "run", events, version=first + len(payloads) - 1, after=first - 1, **options)


def call(call_id: str, parent: str = "") -> ToolCall:
    return ToolCall(tool_call_id=call_id, tool_name="t", parent_tool_call_id=parent)


def result(call_id: str) -> ToolResult:
    return ToolResult(tool_call_id=call_id, tool_name="t")


def user(text: str = "") -> UserMessage:
    return UserMessage(message=text)


def seqs(events: Any) -> list[int]:
    return [event.seq for event in events]


def seq(event: Event | None) -> int | None:
    return None if event is None else event.seq


def test_result_answers_the_latest_open_call_with_its_id() -> None:
    reader = Reader(log(call("a"), call("a"), result("a"), call("a"), result("a"), result("a"), result("a")))
    events = reader.snapshot.log
    assert [seq(reader.result_for(events[index])) for index in (0, 1, 3)] == [6, 3, 5]
    assert [seq(reader.call_for(events[index])) for index in (2, 4, 5, 6)] == [2, 4, 1, None]
    assert seq(reader.result_for("a")) == 5
    assert reader.open_tool_calls() == ()
    assert seqs(reader.tool_calls()) == [1, 2, 4]


def test_open_calls_stay_in_append_order() -> None:
    reader = Reader(
        log(call("a"), call("b"), call("a"), result("b"), result("x"), call(""), seconds=[9, 8, 7, 6, 5, 4])
    )
    assert seqs(reader.open_tool_calls()) == [1, 3, 6]
    assert reader.result_for("a") is None
    assert reader.result_for("nothing") is None
    assert reader.call_for(reader.snapshot.log[4]) is None


def test_result_before_its_call_answers_no_call() -> None:
    reader = Reader(log(result("a"), call("a")))
    assert seqs(reader.open_tool_calls()) == [2]
    assert reader.call_for(reader.snapshot.log[0]) is None


def test_pairing_follows_append_order_instead_of_time() -> None:
    reader = Reader(log(call("a"), result("a"), call("a"), seconds=[9, 1, 0]))
    assert seq(reader.result_for(reader.snapshot.log[0])) == 2
    assert seqs(reader.open_tool_calls()) == [3]


def test_redacted_user_message_begins_a_turn() -> None:
    turns = Reader(log(user(), call("b"), Redacted(original_type="user_message"), call("c"))).turns()
    assert [len(turn.events) for turn in turns] == [2, 2]
    assert turns[1].user_message == turns[1].events[0]


def test_redacted_call_is_not_a_call() -> None:
    reader = Reader(log(call("a"), Redacted(original_type="tool_call"), result("a"), result("a")))
    assert seq(reader.result_for("a")) == 3
    assert reader.call_for(reader.snapshot.log[3]) is None


def test_events_of_wrong_types_are_refused() -> None:
    snapshot = log(user(), call("a"), result("a"))
    reader = Reader(snapshot)
    with pytest.raises(InvalidArgument, match="event 1 is a user_message, not a tool_call"):
        reader.result_for(snapshot.log[0])
    with pytest.raises(InvalidArgument, match="event 3 is a tool_result, not a tool_call"):
        reader.children_of(snapshot.log[2])
    with pytest.raises(InvalidArgument, match="event 2 is a tool_call, not a tool_result"):
        reader.call_for(snapshot.log[1])
    other_event = log(call("a"), first=9).log[0]
    assert reader.result_for(other_event) is None
    assert reader.children_of(other_event) == ()


def test_children_belong_to_the_latest_call_with_the_parent_id() -> None:
    snapshot = log(
        call("x", "a"), call("a"), call("b", "a"), call("c", "b"), call("a"), call("d", "a"), call("e", "a"), call("a")
    )
    reader = Reader(snapshot)
    assert seqs(reader.children_of("a")) == [1, 3, 6, 7]
    assert seqs(reader.children_of(snapshot.log[1])) == [3]
    assert seqs(reader.children_of(snapshot.log[4])) == [6, 7]
    assert reader.children_of(snapshot.log[7]) == ()
    assert seqs(reader.children_of("b")) == [4]
    assert reader.children_of("nothing") == ()


def test_turns_begin_at_user_messages() -> None:
    note = PlannerNote(note="")
    cases: list[tuple[list[EventData], list[tuple[int | None, list[int]]]]] = [
        ([], []),
        ([note, call("a")], [(None, [1, 2])]),
        ([user()], [(1, [1])]),
        ([note, user(), note], [(2, [1, 2, 3])]),
        ([user(), user(), note, user()], [(1, [1]), (2, [2, 3]), (4, [4])]),
        ([note, user(), call("a"), user(), result("a")], [(2, [1, 2, 3]), (4, [4, 5])]),
    ]
    for payloads, expected in cases:
        turns = Reader(log(*payloads)).turns()
        assert [(seq(turn.user_message), seqs(turn.events)) for turn in turns] == expected


def test_turns_are_in_append_order() -> None:
    turns = Reader(log(user(), PlannerNote(note=""), user(), seconds=[5, 4, 3])).turns()
    assert [seqs(turn.events) for turn in turns] == [[1, 2], [3]]


def test_latest_is_the_last_event_by_time_and_seq() -> None:
    reader = Reader(log(user("a"), user("b"), user("c"), user("d"), seconds=[1, 7, 7, 3]))
    assert seq(reader.latest(EventType.USER_MESSAGE)) == 3
    assert seq(reader.latest("user_message")) == 3
    assert reader.latest("later") is None
    assert seqs(reader.events()) == [1, 4, 2, 3]
    assert seqs(reader.filter_by_type(EventType.USER_MESSAGE)) == [1, 4, 2, 3]
    assert reader.filter_by_type("later") == ()


def test_filter_by_labels_needs_every_label() -> None:
    labels: list[dict[str, str]] = [{}, {"role": "user"}, {"role": "user", "x": "1"}, {"role": "tool"}]
    events = [
        Event("user_message", START - timedelta(seconds=n), user(), event_labels, str(n), n)
        for n, event_labels in enumerate(labels, 1)
    ]
    reader = Reader(Snapshot("agent", "run", events, version=4))
    assert seqs(reader.filter_by_labels({"role": "user"})) == [3, 2]
    assert seqs(reader.filter_by_labels({"x": "1", "role": "user"})) == [3]
    assert seqs(reader.filter_by_labels({})) == [4, 3, 2, 1]
    assert reader.filter_by_labels({"role": ""}) == ()


_PAYLOADS = st.one_of(
    st.builds(call, st.sampled_from(["", "a", "b"]), st.sampled_from(["", "a", "b"])),
    st.builds(result, st.sampled_from(["", "a", "b"])),
    st.just(user()),
    st.just(PlannerNote(note="")),
)


def answers(reader: Reader) -> list[Any]:
    """Return the results of all methods of a reader."""
    calls = reader.tool_calls()
    results = reader.filter_by_type(EventType.TOOL_RESULT)
    return [
        calls,
        reader.open_tool_calls(),
        [reader.result_for(event) for event in calls],
        [reader.children_of(event) for event in calls],
        [reader.call_for(event) for event in results],
        [(reader.result_for(name), reader.children_of(name)) for name in ("", "a", "b", "c")],
        [(turn.user_message, turn.events) for turn in reader.turns()],
        [reader.latest(kind) for kind in EventType],
    ]


@settings(max_examples=2 * EXAMPLES)
@given(
    st.lists(st.tuples(_PAYLOADS, st.integers(0, 9)), max_size=14),
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4), st.booleans()), max_size=12),
)
def test_extended_index_equals_a_fresh_index(
    events: list[tuple[EventData, int]], steps: list[tuple[int, int, bool]]
) -> None:
    """Extend any earlier snapshots in any order, and compare their readers in any order."""
    complete = log(*(data for data, _ in events), seconds=[second for _, second in events])
    snapshots = [Snapshot("agent", "run")]
    for pick, count, ask in steps:
        base = snapshots[pick % len(snapshots)]
        newer = complete.log[base.last_seq : base.last_seq + count]
        grown = base.extend(Snapshot("agent", "run", newer, version=base.last_seq + len(newer), after=base.last_seq))
        snapshots.append(grown)
        if ask:
            picked = snapshots[(pick * 7 + count) % len(snapshots)]
            assert answers(Reader(picked)) == answers(Reader(fresh(picked)))
    for snapshot in (*snapshots, *reversed(snapshots)):
        assert answers(Reader(snapshot)) == answers(Reader(fresh(snapshot)))


def fresh(snapshot: Snapshot) -> Snapshot:
    return Snapshot(snapshot.agent, snapshot.run, list(snapshot.log), version=snapshot.version)


def test_older_reader_stays_correct_after_a_newer_reader_was_used() -> None:
    older = log(user(), call("a"))
    newer = older.extend(log(result("a"), user(), call("a"), first=3))
    middle = Reader(older)
    assert seqs(Reader(newer).open_tool_calls()) == [5]
    assert seqs(middle.open_tool_calls()) == [2]
    assert middle.result_for("a") is None
    assert len(middle.turns()) == 1
    assert len(Reader(newer).turns()) == 2


def test_repeated_calls_index_only_new_events() -> None:
    class Counter:
        """An index that records the positions of its events."""

        added: list[int] = []  # noqa: RUF012  # all instances share the list on purpose

        def add(self, position: int, _event: Event, /) -> None:
            self.added.append(position)

    grown = log(*(user() for _ in range(100)))
    for _ in range(3):
        grown.derive(Counter, len_of)
    assert Counter.added == list(range(100))
    older = grown
    for number in range(101, 104):
        grown = grown.extend(log(user(), first=number))
        grown.derive(Counter, len_of)
    assert Counter.added == list(range(103))
    for _ in range(3):
        older.derive(Counter, len_of)
    assert Counter.added == [*range(103), *range(100)]


def test_index_is_used_under_the_lock_of_the_shared_tape() -> None:
    class EmptyIndex:
        """An index that ignores its events."""

        def add(self, _position: int, _event: Event, /) -> None:
            return None

    older = log(user())
    newer = older.extend(log(user(), first=2))
    for snapshot in (older, newer, older):
        assert snapshot.derive(EmptyIndex, lambda _: older._view.tape.lock.locked())
        assert not older._view.tape.lock.locked()


def len_of(_derived: object) -> None:
    return None


def test_readers_in_many_threads_return_correct_results() -> None:
    payloads: list[EventData] = []
    for number in range(120):
        payloads += [user(), call(str(number % 7)), call("x", str(number % 7)), result(str(number % 5))]
    grown = [log()]
    for number, payload in enumerate(payloads, 1):
        grown.append(grown[-1].extend(log(payload, first=number)))
    picked = grown[::23]
    expected = [answers(Reader(fresh(snapshot))) for snapshot in picked]
    failures: list[int] = []
    barrier = threading.Barrier(4)

    def ask(offset: int) -> None:
        barrier.wait()
        for step in range(len(picked) * 2):
            index = (step * (offset + 1) + offset) % len(picked)
            if answers(Reader(picked[index])) != expected[index]:
                failures.append(index)

    threads = [threading.Thread(target=ask, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("position", [1, 2, 3])
def test_interrupt_during_indexing_keeps_results_correct(monkeypatch: pytest.MonkeyPatch, position: int) -> None:
    first = log(call("a"))
    assert seqs(Reader(first).tool_calls()) == [1]
    grown = first.extend(log(call("b"), call("c"), result("a"), first=2))
    add = _Index.add

    def interrupted(self: _Index, at: int, event: Event) -> None:
        add(self, at, event)
        if at == position:
            raise KeyboardInterrupt

    monkeypatch.setattr(_Index, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Reader(grown).tool_calls()
    monkeypatch.setattr(_Index, "add", add)
    assert seqs(Reader(grown).tool_calls()) == [1, 2, 3]
    assert seqs(Reader(grown).open_tool_calls()) == [2, 3]
    last = grown.extend(log(result("b"), result("b"), first=5))
    assert seqs(Reader(last).open_tool_calls()) == [3]
    assert seqs(Reader(first).open_tool_calls()) == [1]
