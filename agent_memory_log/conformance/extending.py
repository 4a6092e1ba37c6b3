"""Promise 6, second half: a snapshot extended by newer events equals a new read, after any change of the run."""

from __future__ import annotations

import pytest

from agent_memory_log.conformance.checks import check_same
from agent_memory_log.conformance.harness import Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, later, planner_note, rich_event, user_message
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import Store

_FILTERS: tuple[tuple[str, ...] | None, ...] = (None, ("user_message",), ("user_message", "redaction"), ("none",))


@contract
class Extending(Suite):
    """Tests of ``Snapshot.extend`` with snapshots from the store."""

    async def test_6_a_snapshot_extended_by_new_events_equals_a_new_read(self, store: Store, other: Store) -> None:
        warm = await _read(store)
        minutes = iter((5, 3, 9, 1, 4, 4, 8, 2, 2))
        for size in (2, 1, 0, 3):
            for index in range(size):
                text, time = f"{size}/{index}", later(next(minutes))
                event = planner_note(text, timestamp=time) if index % 2 else user_message(text, timestamp=time)
                await other.append_events(AGENT, RUN, event, meta={"a": 1})
            warm = await _extended(store, warm)

    async def test_6_extending_past_a_redaction_masks_the_redacted_events(self, store: Store) -> None:
        await store.append_events(
            AGENT, RUN, user_message("one"), planner_note("two"), rich_event(), user_message("four")
        )
        warm = await _read(store)
        await store.redact_events(AGENT, RUN, [1, 3], reason="asked")
        warm = await _extended(store, warm)
        await store.append_events(AGENT, RUN, user_message("six"), planner_note("seven"))
        await store.redact_events(AGENT, RUN, [2, 6], reason="asked again")
        warm = await _extended(store, warm)
        await store.redact_events(AGENT, RUN, [5], reason="asked")
        await _extended(store, warm)

    async def test_6_extending_past_a_redacted_marker_masks_its_events(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), user_message("two"))
        warm = await _read(store)
        await store.redact_events(AGENT, RUN, [1], reason="first")
        halfway = await _extended(store, warm)
        await store.redact_events(AGENT, RUN, [3], reason="second")
        await _extended(store, warm)
        await _extended(store, halfway)

    async def test_6_extending_past_a_deletion_drops_the_earlier_events(self, store: Store, other: Store) -> None:
        await store.append_events(
            AGENT, RUN, user_message("one"), planner_note("two"), user_message("three"), meta={"a": 1}
        )
        warm = await _read(store)
        await other.delete_run(AGENT, RUN)
        emptied = await _extended(store, warm)
        await other.append_events(AGENT, RUN, user_message("four"), planner_note("five"), meta={"b": 2})
        await _extended(store, emptied)
        await _extended(store, warm)

    async def test_6_extending_page_by_page_equals_one_read(self, store: Store) -> None:
        for index in range(9):
            event = planner_note(str(index)) if index % 3 else user_message(str(index), timestamp=later(-index))
            await store.append_events(AGENT, RUN, event)
        await store.redact_events(AGENT, RUN, [2, 4], reason="asked")
        for types in (*_FILTERS, ("redacted",)):
            for limit in (1, 2, 4, 20):
                grown = await store.load_run(AGENT, RUN, types=types, limit=limit)
                grown = await _to_the_end(store, grown, limit)
                check_same(grown, await store.load_run(AGENT, RUN, types=types))

    async def test_6_a_redaction_between_two_pages_masks_events_of_the_first(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, *(user_message(str(index)) for index in range(6)))
        for seq, types in ((1, None), (2, ("user_message",))):
            grown = await store.load_run(AGENT, RUN, types=types, limit=3)
            await store.redact_events(AGENT, RUN, [seq], reason="asked")
            grown = await _to_the_end(store, grown, 2)
            check_same(grown, await store.load_run(AGENT, RUN, types=types))

    async def test_6_extending_does_not_change_the_original_snapshot(self, store: Store) -> None:
        await store.append_events(
            AGENT, RUN, user_message("one", timestamp=later(5)), user_message("two", timestamp=later(6))
        )
        warm = await store.load_run(AGENT, RUN)
        log, events = list(warm.log), list(warm.events)
        await store.append_events(AGENT, RUN, user_message("three", timestamp=later(1)))
        await store.redact_events(AGENT, RUN, [1])
        for _ in range(2):
            warm.extend(await store.load_run(AGENT, RUN, after=warm.last_seq))
            assert (list(warm.log), list(warm.events), warm.version) == (log, events, 2)

    async def test_6_extend_refuses_a_gap_another_filter_and_another_run(self, store: Store) -> None:
        for run in (RUN, "other"):
            await store.append_events(AGENT, run, user_message("one"), planner_note("two"), user_message("three"))
        warm = await store.load_run(AGENT, RUN, limit=1)
        for after in (0, 2, 3):
            with pytest.raises(CursorOutOfRange):
                warm.extend(await store.load_run(AGENT, RUN, after=after))
        with pytest.raises(InvalidArgument):
            warm.extend(await store.load_run(AGENT, RUN, after=1, types=["user_message"]))
        with pytest.raises(InvalidArgument):
            warm.extend(await store.load_run(AGENT, "other", after=1))


async def _read(store: Store) -> dict[tuple[str, ...] | None, Snapshot]:
    return {types: await store.load_run(AGENT, RUN, types=types) for types in _FILTERS}


async def _extended(
    store: Store, warm: dict[tuple[str, ...] | None, Snapshot]
) -> dict[tuple[str, ...] | None, Snapshot]:
    """Extend each snapshot, in one step and page by page, and compare it with a new read."""
    grown: dict[tuple[str, ...] | None, Snapshot] = {}
    for types, snapshot in warm.items():
        fresh = await store.load_run(AGENT, RUN, types=types)
        newer = await store.load_run(AGENT, RUN, after=snapshot.last_seq, types=types)
        grown[types] = snapshot.extend(newer)
        check_same(grown[types], fresh)
        check_same(await _to_the_end(store, snapshot, 1), fresh)
    return grown


async def _to_the_end(store: Store, snapshot: Snapshot, limit: int) -> Snapshot:
    """Extend a snapshot page by page until it has all events."""
    while True:
        newer = await store.load_run(
            snapshot.agent, snapshot.run, after=snapshot.last_seq, types=snapshot.types, limit=limit
        )
        ended = newer.last_seq >= newer.version
        assert ended or newer.last_seq > snapshot.last_seq, "the pages do not end"
        snapshot = snapshot.extend(newer)
        if ended:
            return snapshot
