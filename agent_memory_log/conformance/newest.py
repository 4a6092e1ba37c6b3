"""Promise 6: ``load_run(last=...)`` returns the newest events, and the snapshot of a read that begins with them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from agent_memory_log.conformance.checks import check_run, check_same, check_stored, seqs_of
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, later, planner_note, user_message
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument
from agent_memory_log.events.event import new_event
from agent_memory_log.events.payloads import PlannerNote, Thinking, ToolCall, ToolResult, UserMessage
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import Store

_TYPES: tuple[tuple[str, ...] | None, ...] = (
    None,
    ("user_message",),
    ("planner_note", "user_message"),
    ("tool_call",),
    ("tool_call", "user_message"),
    ("redacted",),
    ("redaction",),
    ("none",),
    (),
)


@contract
class Newest(Suite):
    """Tests of ``last``."""

    async def test_6_last_returns_the_newest_events_in_append_order(self, store: Store) -> None:
        originals = [user_message(str(index), timestamp=later(-index)) for index in range(10)]
        await store.append_events(AGENT, RUN, *originals[:7])
        await store.append_events(AGENT, RUN, *originals[7:])
        await store.append_events(AGENT, "other", *(user_message("other") for _ in range(20)))
        for last in (1, 2, 5, 9, 10):
            snapshot = await store.load_run(AGENT, RUN, last=last)
            check_run(snapshot, originals[-last:], first_seq=11 - last)
            assert (snapshot.version, snapshot.last_seq, snapshot.after) == (10, 10, 10 - last)
        for last in (11, 2**31, 2**70):
            check_same(await store.load_run(AGENT, RUN, last=last), await store.load_run(AGENT, RUN))

    async def test_6_last_counts_only_events_of_the_types_after_the_seq(self, store: Store) -> None:
        payloads = (
            UserMessage(message="u"),
            ToolCall("c", "t"),
            Thinking(text="h"),
            ToolResult("c", "t"),
            PlannerNote(note="n"),
        )
        originals = [new_event(payload) for payload in payloads * 3]
        await store.append_events(AGENT, RUN, *originals)
        kinds = [payload.event_type for payload in payloads]
        for count in range(len(kinds) + 1):
            for types in itertools.combinations(kinds, count):
                for after, last in ((0, 1), (0, 4), (7, 3), (7, 20), (15, 2)):
                    snapshot = await store.load_run(AGENT, RUN, after=after, types=types, last=last)
                    matching = [seq for seq in range(after + 1, 16) if originals[seq - 1].type in types]
                    assert seqs_of(snapshot.log) == matching[-last:], (types, after, last)
                    for event in snapshot.log:
                        check_stored(event, originals[event.seq - 1], event.seq)

    async def test_6_the_newest_events_equal_a_read_that_begins_with_them(self, store: Store, other: Store) -> None:
        for changes in range(4):
            await _change(other, changes)
            for types in _TYPES:
                for after in (0, 2):
                    full = await store.load_run(AGENT, RUN, after=after, types=types)
                    reads = {after: full}
                    for last in (1, 3, 4, 100):
                        snapshot = await store.load_run(AGENT, RUN, after=after, types=types, last=last)
                        assert seqs_of(snapshot.log) == seqs_of(full.log)[-last:]
                        if snapshot.after not in reads:
                            reads[snapshot.after] = await store.load_run(AGENT, RUN, after=snapshot.after, types=types)
                        same = reads[snapshot.after]
                        check_same(snapshot, same)
                        assert snapshot.redactions == same.redactions
                        if len(full.log) < last:
                            check_same(snapshot, full)

    async def test_6_the_newest_events_extended_by_new_events_equal_a_new_read(
        self, store: Store, other: Store
    ) -> None:
        await _change(store, 0)
        tails = [await store.load_run(AGENT, RUN, types=types, last=last) for types in _TYPES for last in (1, 3, 100)]
        for changes in range(1, 4):
            await _change(other, changes)
            tails = [await _extended(store, snapshot) for snapshot in tails]

    async def test_6_last_begins_with_the_first_event_of_the_run(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, *map(user_message, "abc"), first_seq=8)
        assert await _tails(store) == [[10], [9, 10], [8, 9, 10], [8, 9, 10]]
        await store.delete_run(AGENT, RUN)
        assert await _tails(store) == [[]] * 4
        await store.append_events(AGENT, RUN, *map(user_message, "de"))
        assert await _tails(store) == [[12], [11, 12], [11, 12], [11, 12]]
        snapshot = await store.load_run(AGENT, RUN, last=1)
        assert (snapshot.version, snapshot.last_seq, snapshot.after, snapshot.first_seq) == (12, 12, 11, 11)

    async def test_6_a_load_refuses_an_invalid_last(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, *map(user_message, "abc"))
        for last in (0, -1, True, 1.0, "1"):
            with pytest.raises(InvalidArgument, match="last"):
                await store.load_run(AGENT, RUN, last=last)  # type: ignore[arg-type]  # the test passes a wrong type
        for types in (None, ["user_message"]):
            with pytest.raises(InvalidArgument):
                await store.load_run(AGENT, RUN, types=types, limit=1, last=1)
            with pytest.raises(CursorOutOfRange):
                await store.load_run(AGENT, RUN, after=4, types=types, last=1)

    async def test_8_last_sees_every_append_acknowledged_before_it(self, open_handle: Handles) -> None:
        handles = [await open_handle() for _ in range(3)]
        for number in range(1, 8):
            event = user_message(str(number)) if number % 3 else planner_note(str(number))
            await handles[number % 3].append_events(AGENT, RUN, event)
            for handle in handles:
                for types in (None, [event.type]):
                    assert seqs_of((await handle.load_run(AGENT, RUN, types=types, last=1)).log) == [number]


async def _change(store: Store, number: int) -> None:
    """Make the change of this number: append, redact, or delete and append again."""
    if number == 1:
        version = (await store.load_run(AGENT, RUN, types=())).version
        await store.redact_events(AGENT, RUN, [1, version - 1, version], reason="asked")
        return
    if number == 3:  # the last change
        await store.delete_run(AGENT, RUN)
    for index in range(3):
        await store.append_events(
            AGENT,
            RUN,
            user_message(str(index), timestamp=later(-index)),
            planner_note(str(index)),
            new_event(ToolCall(f"call-{index}", "t")),
            meta={"a": number},
        )


async def _extended(store: Store, snapshot: Snapshot) -> Snapshot:
    newer = await store.load_run(AGENT, RUN, after=snapshot.last_seq, types=snapshot.types)
    fresh = await store.load_run(AGENT, RUN, after=snapshot.after, types=snapshot.types)
    if "redacted" in (snapshot.types or ()) and newer.redactions:
        return fresh  # extend refuses this, because the snapshot lacks events that are of this type now
    grown = snapshot.extend(newer)
    check_same(grown, fresh)
    return grown


async def _tails(store: Store, types: Iterable[str] = ("user_message",)) -> list[list[int]]:
    """Return the seqs of the newest 1, 2, 3 and 4 events."""
    seqs: list[list[int]] = []
    for last in (1, 2, 3, 4):
        seqs.append(seqs_of((await store.load_run(AGENT, RUN, last=last)).log))
        assert seqs_of((await store.load_run(AGENT, RUN, types=types, last=last)).log) == seqs[-1]
    return seqs
