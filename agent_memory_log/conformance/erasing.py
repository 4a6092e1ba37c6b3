"""Promises 3 and 12: ``redact_events`` removes content permanently, and ``delete_run`` empties a run."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest

from agent_memory_log.conformance.checks import all_runs, check_run, check_same, check_stored, exact, seqs_of, take
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, later, planner_note, user_message
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, InvalidEvent
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.payloads import Redacted, Redaction
from agent_memory_log.store import Store


@contract
class Erasing(Suite):
    """Tests of ``redact_events`` and ``delete_run``."""

    async def test_12_no_handle_returns_redacted_content(
        self, store: Store, other: Store, open_handle: Handles
    ) -> None:
        originals = await _fill(store)
        await other.load_run(AGENT, RUN)
        await store.redact_events(AGENT, RUN, [2], reason="asked")
        for handle in (store, other, await open_handle()):
            snapshot = await handle.load_run(AGENT, RUN)
            everything = [*snapshot.log, *snapshot.events, *(await handle.load_run(AGENT, RUN, after=1)).log]
            async with aclosing(handle.follow(AGENT, RUN)) as events:
                everything += await take(events, 4)
            everything += (await handle.append_events(AGENT, RUN, originals[1])).events
            assert b"secret" not in exact([event.to_map() for event in everything])

    async def test_12_a_redacted_event_keeps_its_seq_time_and_id(self, store: Store) -> None:
        originals = await _fill(store)
        await store.redact_events(AGENT, RUN, [2], reason="asked")
        snapshot = await store.load_run(AGENT, RUN)
        assert seqs_of(snapshot.log) == [1, 2, 3, 4]
        check_stored(snapshot.log[0], originals[0], 1)
        check_stored(snapshot.log[2], originals[2], 3)
        masked = snapshot.log[1]
        assert (masked.type, masked.data) == ("redacted", Redacted(original_type="user_message", reason="asked"))
        assert (masked.timestamp, masked.event_id, dict(masked.labels)) == (
            originals[1].timestamp,
            originals[1].event_id,
            {},
        )

    async def test_12_a_redaction_appends_one_marker_with_the_seqs(self, store: Store) -> None:
        await _fill(store)
        result = await store.redact_events(AGENT, RUN, iter([3, 1, 3]), reason="asked")
        assert (result.version, result.inserted, seqs_of(result.events)) == (4, 1, [4])
        snapshot = await store.load_run(AGENT, RUN)
        assert [event.type for event in snapshot.log] == ["redacted", "user_message", "redacted", "redaction"]
        assert snapshot.version == 4
        marker = snapshot.log[3]
        assert marker.data == Redaction(seqs=(1, 3), reason="asked")
        assert marker.event_id
        assert result.events[0] == marker

    async def test_12_redacting_a_redacted_event_again_changes_nothing(self, store: Store, other: Store) -> None:
        await _fill(store)
        await store.redact_events(AGENT, RUN, [1, 2], reason="first")
        before = await store.load_run(AGENT, RUN)
        for seqs in ([1], [2, 1], [1, 1], []):
            result = await other.redact_events(AGENT, RUN, seqs, reason="second")
            assert (result.version, result.inserted, result.events) == (4, 0, ())
        check_same(await store.load_run(AGENT, RUN), before)
        mixed = await other.redact_events(AGENT, RUN, [1, 3], reason="second")
        assert (mixed.version, mixed.inserted) == (5, 1)
        log = (await store.load_run(AGENT, RUN)).log
        assert [event.data.to_map().get("reason") for event in log] == ["first", "first", "second", "first", "second"]
        assert log[4].data == Redaction(seqs=(3,), reason="second")

    async def test_12_one_missing_seq_prevents_the_whole_redaction(self, store: Store) -> None:
        await _fill(store)
        before = await store.load_run(AGENT, RUN)
        for seqs in ([4], [1, 4], [0], [1, -1], [2**70]):
            with pytest.raises(CursorOutOfRange):
                await store.redact_events(AGENT, RUN, seqs)
        with pytest.raises(CursorOutOfRange):
            await store.redact_events(AGENT, "unknown", [1])
        no_seqs: list[Any] = [[True], ["1"], [1.0]]
        for wrong in no_seqs:
            with pytest.raises(InvalidArgument):
                await store.redact_events(AGENT, RUN, wrong)
        check_same(await store.load_run(AGENT, RUN), before)

    async def test_12_redacting_a_marker_moves_its_seqs_to_the_new_marker(self, store: Store) -> None:
        await _fill(store)
        await store.redact_events(AGENT, RUN, [2], reason="first")
        result = await store.redact_events(AGENT, RUN, [4], reason="second")
        assert result.events[0].data == Redaction(seqs=(2, 4), reason="second")
        log = (await store.load_run(AGENT, RUN)).log
        assert [event.type for event in log] == ["user_message", "redacted", "planner_note", "redacted", "redaction"]
        assert log[3].data == Redacted(original_type="redaction", reason="second")
        assert log[1].data == Redacted(original_type="user_message", reason="second"), (
            "the first reason must be gone too"
        )

    async def test_12_append_refuses_a_marker_for_events_that_are_not_redacted(self, store: Store) -> None:
        await _fill(store)
        before = await store.load_run(AGENT, RUN)
        for seqs in ((1,), (5,), (99,)):
            with pytest.raises(InvalidEvent):
                await store.append_events(
                    AGENT, RUN, user_message("four"), new_event(Redaction(seqs=seqs, reason="forged"))
                )
        check_same(await store.load_run(AGENT, RUN), before)
        # An import appends a marker together with its masked events, or after them.
        mask = new_event(Redacted(original_type="user_message", reason="then"))
        await store.append_events(AGENT, RUN, mask, new_event(Redaction(seqs=(4,), reason="then")))
        await store.append_events(AGENT, RUN, new_event(Redaction(seqs=(4,), reason="then")))

    async def test_12_a_redacted_event_is_selected_by_the_type_redacted(self, store: Store) -> None:
        await _fill(store)
        await store.redact_events(AGENT, RUN, [2])
        for types, seqs in (
            (["user_message"], [1]),
            (["redacted"], [2]),
            (["redaction"], [4]),
            (["planner_note"], [3]),
        ):
            assert seqs_of((await store.load_run(AGENT, RUN, types=types)).log) == seqs

    async def test_12_a_redacted_event_keeps_its_position_in_time_order(self, store: Store) -> None:
        await store.append_events(
            AGENT, RUN, *(user_message(str(minute), timestamp=later(minute)) for minute in (5, 1, 3))
        )
        await store.redact_events(AGENT, RUN, [2])
        assert seqs_of((await store.load_run(AGENT, RUN)).events) == [2, 3, 1, 4]

    async def test_12_a_redaction_leaves_other_runs_unchanged(self, store: Store) -> None:
        names = [(AGENT, RUN), (AGENT, "other"), ("other", RUN)]
        for agent, run in names:
            await store.append_events(agent, run, user_message("secret", event_id="same"))
        await store.redact_events(AGENT, RUN, [1])
        for agent, run in names[1:]:
            assert [event.type for event in (await store.load_run(agent, run)).log] == ["user_message"]

    async def test_12_a_run_accepts_events_after_a_redaction(self, store: Store, other: Store) -> None:
        await _fill(store)
        await store.redact_events(AGENT, RUN, [1, 2, 3])
        original = user_message("more")
        for handle in (other, store):
            assert (await handle.append_events(AGENT, RUN, original)).version == 5
        check_stored((await store.load_run(AGENT, RUN, after=4)).log[0], original, 5)

    async def test_12_every_handle_sees_a_deleted_run_as_empty(
        self, store: Store, other: Store, open_handle: Handles
    ) -> None:
        await store.append_events(
            AGENT, RUN, user_message("one"), user_message("two"), user_message("three"), meta={"a": 1}
        )
        await other.load_run(AGENT, RUN)
        await store.delete_run(AGENT, RUN)
        for handle in (store, other, await open_handle()):
            for after in (0, 1, 3):
                snapshot = await handle.load_run(AGENT, RUN, after=after)
                assert (list(snapshot.log), snapshot.meta) == ([], {})
            assert await all_runs(handle) == []
            with pytest.raises(CursorOutOfRange):
                await handle.redact_events(AGENT, RUN, [1])

    async def test_3_a_deleted_run_keeps_its_version(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), user_message("two"))
        await store.delete_run(AGENT, RUN)
        for handle in (store, other):
            snapshot = await handle.load_run(AGENT, RUN)
            assert (snapshot.version, snapshot.last_seq, snapshot.first_seq) == (2, 2, 3)
            with pytest.raises(CursorOutOfRange):
                await handle.load_run(AGENT, RUN, after=3)

    async def test_3_a_deleted_run_continues_its_seqs(self, open_handle: Handles) -> None:
        handles = [await open_handle() for _ in range(2)]
        version = 0
        for round_ in range(4):
            originals = [user_message(f"{round_}/{index}") for index in range(round_ + 1)]
            result = await handles[round_ % 2].append_events(AGENT, RUN, *originals, expected_version=version)
            assert seqs_of(result.events) == list(range(version + 1, version + round_ + 2))
            snapshot = await handles[0].load_run(AGENT, RUN)
            check_run(snapshot, originals, first_seq=version + 1)
            assert snapshot.first_seq == version + 1
            version = result.version
            await handles[1].delete_run(AGENT, RUN)

    async def test_3_old_cursors_of_a_deleted_run_stay_valid(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), user_message("two"), user_message("three"))
        await store.delete_run(AGENT, RUN)
        await store.append_events(AGENT, RUN, user_message("four"), user_message("five"))
        for after, seqs in ((0, [4, 5]), (2, [4, 5]), (3, [4, 5]), (4, [5]), (5, [])):
            assert seqs_of((await store.load_run(AGENT, RUN, after=after)).log) == seqs
        snapshot = await store.load_run(AGENT, RUN, limit=1)
        assert (seqs_of(snapshot.log), snapshot.last_seq) == ([4], 4)

    async def test_3_a_deleted_run_forgets_its_event_ids(self, store: Store) -> None:
        await store.append_events(
            AGENT, RUN, user_message("one", event_id="same"), user_message("two", event_id="other")
        )
        await store.delete_run(AGENT, RUN)
        result = await store.append_events(AGENT, RUN, user_message("another body", event_id="same"))
        assert (result.version, result.inserted, seqs_of(result.events)) == (3, 1, [3])
        result = await store.append_events(AGENT, RUN, user_message("two", event_id="other"))
        assert (result.version, result.inserted) == (4, 1)

    async def test_12_a_deleted_run_forgets_its_meta(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), meta={"old": 1})
        await store.delete_run(AGENT, RUN)
        await store.append_events(AGENT, RUN, user_message("two"))
        assert (await store.load_run(AGENT, RUN)).meta == {}
        await store.delete_run(AGENT, RUN)
        await store.append_events(AGENT, RUN, user_message("three"), meta={"new": 2})
        assert (await store.load_run(AGENT, RUN)).meta == {"new": 2}

    async def test_12_deleting_an_empty_run_changes_nothing(self, store: Store) -> None:
        await store.delete_run(AGENT, RUN)
        assert (await store.load_run(AGENT, RUN)).version == 0
        await store.append_events(AGENT, RUN, user_message("one"))
        for _ in range(2):
            await store.delete_run(AGENT, RUN)
        snapshot = await store.load_run(AGENT, RUN)
        assert (snapshot.version, snapshot.first_seq) == (1, 2)
        assert (await store.append_events(AGENT, RUN, user_message("two"))).version == 2

    async def test_12_a_deletion_leaves_other_runs_unchanged(self, store: Store) -> None:
        names = [(AGENT, RUN), (AGENT, "other"), ("other", RUN)]
        original = user_message("one")
        for agent, run in names:
            await store.append_events(agent, run, original, meta={"a": 1})
        await store.delete_run(AGENT, RUN)
        for agent, run in names[1:]:
            snapshot = await store.load_run(agent, run)
            check_run(snapshot, [original])
            assert snapshot.meta == {"a": 1}
        assert [(info.agent, info.run) for info in await all_runs(store)] == [names[2], names[1]]

    async def test_12_a_redacted_run_can_be_deleted(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), user_message("two"))
        await store.redact_events(AGENT, RUN, [1])
        await store.delete_run(AGENT, RUN)
        snapshot = await store.load_run(AGENT, RUN)
        assert (list(snapshot.log), snapshot.version) == ([], 3)
        original = user_message("new")
        await store.append_events(AGENT, RUN, original)
        check_run(await store.load_run(AGENT, RUN), [original], first_seq=4)

    async def test_12_a_run_deleted_by_another_handle_can_be_imported_again(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), user_message("two"))
        await other.delete_run(AGENT, RUN)
        original = user_message("three")
        await store.append_events(AGENT, RUN, original, first_seq=20)
        check_run(await other.load_run(AGENT, RUN), [original], first_seq=20)


async def _fill(store: Store) -> list[Event]:
    originals = [
        user_message("one", timestamp=later(1)),
        user_message("secret", timestamp=later(2), labels={"secret": "secret"}, structured={"secret": ["secret"]}),
        planner_note("three", timestamp=later(3)),
    ]
    await store.append_events(AGENT, RUN, *originals)
    return originals
