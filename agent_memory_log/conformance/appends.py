"""Promises 1 and 2: an append stores all of its events or no event, and acknowledged events stay stored.

A backend's own tests must show that events survive a killed process and a power failure.
"""

from __future__ import annotations

import asyncio

import pytest

from agent_memory_log.conformance.checks import all_runs, check_run, check_same, check_stored, seqs_of
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, later, planner_note, rich_event, user_message
from agent_memory_log.errors import EventConflict, InvalidEvent, VersionConflict
from agent_memory_log.store import Store

_WRITERS = 4
_BATCHES = 10
_BATCH = 5


@contract
class Appends(Suite):
    """Tests of appends, and of closing and reopening a store."""

    async def test_1_an_append_stores_its_events_in_order(self, store: Store) -> None:
        originals = [
            user_message("one", timestamp=later(2)),
            planner_note("two", timestamp=later(3)),
            user_message("three", timestamp=later(1)),
        ]
        await store.append_events(AGENT, RUN, *originals[:1])
        await store.append_events(AGENT, RUN, *originals[1:])
        check_run(await store.load_run(AGENT, RUN), originals)

    async def test_1_an_append_returns_the_version_the_count_and_the_events(self, store: Store) -> None:
        originals = [user_message("one"), user_message("two", labels={"a": "b"}), planner_note("three")]
        first = await store.append_events(AGENT, RUN, originals[0])
        assert (first.version, first.inserted, len(first.events)) == (1, 1, 1)
        second = await store.append_events(AGENT, RUN, *originals[1:])
        assert (second.version, second.inserted, len(second.events)) == (3, 2, 2)
        for seq, (stored, event) in enumerate(zip(first.events + second.events, originals, strict=True), 1):
            check_stored(stored, event, seq)

    async def test_1_a_large_batch_is_stored_whole(self, store: Store) -> None:
        originals = [user_message(f"message {number}") for number in range(1500)]
        result = await store.append_events(AGENT, RUN, *originals)
        assert (result.version, result.inserted, len(result.events)) == (1500, 1500, 1500)
        check_run(await store.load_run(AGENT, RUN), originals)

    async def test_1_an_empty_append_creates_no_run(self, store: Store) -> None:
        for expected_version in (None, 7):
            result = await store.append_events(AGENT, RUN, expected_version=expected_version, meta={"a": 1})
            assert (result.version, result.inserted, result.events) == (0, 0, ())
        snapshot = await store.load_run(AGENT, RUN)
        assert (snapshot.version, len(snapshot.log), snapshot.meta) == (0, 0, {})
        assert await all_runs(store) == []

    async def test_1_an_empty_append_changes_nothing_in_a_run(self, store: Store) -> None:
        original = user_message("one")
        await store.append_events(AGENT, RUN, original, meta={"a": 1})
        result = await store.append_events(AGENT, RUN, expected_version=7, meta={"b": 2}, first_seq=9)
        assert (result.version, result.inserted, result.events) == (1, 0, ())
        snapshot = await store.load_run(AGENT, RUN)
        check_run(snapshot, [original])
        assert snapshot.meta == {"a": 1}

    async def test_1_a_batch_with_an_invalid_event_stores_nothing(self, store: Store) -> None:
        for bad in (user_message("lone \ud800"), user_message("x", structured=float("nan"))):
            for index in range(3):
                batch = [user_message("good"), user_message("too")]
                batch.insert(index, bad)
                with pytest.raises(InvalidEvent):
                    await store.append_events(AGENT, RUN, *batch, meta={"a": 1})
        snapshot = await store.load_run(AGENT, RUN)
        assert (snapshot.version, len(snapshot.log), snapshot.meta) == (0, 0, {})
        assert await all_runs(store) == []

    async def test_1_a_batch_with_a_conflicting_event_stores_nothing(self, store: Store) -> None:
        original = user_message("known", event_id="known")
        await store.append_events(AGENT, RUN, original)
        for index in range(3):
            batch = [user_message("new", event_id="new-1"), user_message("too", event_id="new-2")]
            batch.insert(index, user_message("other", event_id="known"))
            with pytest.raises(EventConflict):
                await store.append_events(AGENT, RUN, *batch)
        check_run(await store.load_run(AGENT, RUN), [original])
        again = await store.append_events(AGENT, RUN, user_message("new", event_id="new-1"))
        assert (again.version, again.inserted) == (2, 1), "a refused batch left an event id behind"

    async def test_1_a_batch_at_a_stale_version_stores_nothing(self, store: Store) -> None:
        original = user_message("one")
        await store.append_events(AGENT, RUN, original)
        with pytest.raises(VersionConflict):
            await store.append_events(AGENT, RUN, user_message("two"), user_message("three"), expected_version=0)
        check_run(await store.load_run(AGENT, RUN), [original])

    async def test_1_no_reader_sees_part_of_a_batch(self, open_handle: Handles) -> None:
        writers = [await open_handle() for _ in range(_WRITERS)]
        reader = await open_handle()
        total = _WRITERS * _BATCHES * _BATCH

        async def write(number: int) -> None:
            for batch in range(_BATCHES):
                events = [user_message(f"{number}/{batch}", labels={"part": str(part)}) for part in range(_BATCH)]
                await writers[number].append_events(AGENT, RUN, *events)
                await asyncio.sleep(0)

        async def read() -> None:
            version = 0
            while version < total:
                snapshot = await reader.load_run(AGENT, RUN)
                assert snapshot.version == len(snapshot.log)
                assert snapshot.version >= version, "the version decreased"
                version = snapshot.version
                parts: dict[str, int] = {}
                for event in snapshot.log:
                    message = str(event.data.to_map()["message"])
                    parts[message] = parts.get(message, 0) + 1
                assert set(parts.values()) <= {_BATCH}, "a part of a batch was visible"
                await asyncio.sleep(0)

        await asyncio.gather(read(), *(write(number) for number in range(_WRITERS)))
        assert seqs_of((await reader.load_run(AGENT, RUN)).log) == list(range(1, total + 1))

    async def test_2_appended_events_survive_closing_all_handles(self, store: Store, open_handle: Handles) -> None:
        originals = [rich_event(), user_message("two")]
        await store.append_events(AGENT, RUN, *originals, meta={"a": [1]})
        before = await store.load_run(AGENT, RUN)
        runs = await all_runs(store)
        await store.aclose()
        store = await open_handle()
        after = await store.load_run(AGENT, RUN)
        check_run(after, originals)
        check_same(after, before)
        assert await all_runs(store) == runs

    async def test_2_redactions_and_deletions_survive_closing_all_handles(
        self, store: Store, open_handle: Handles
    ) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), user_message("two"))
        await store.append_events(AGENT, "other", user_message("one"), user_message("two"))
        await store.redact_events(AGENT, RUN, [1], reason="asked")
        await store.delete_run(AGENT, "other")
        before = await store.load_run(AGENT, RUN), await store.load_run(AGENT, "other")
        types = [[event.type for event in snapshot.log] for snapshot in before]
        assert types == [["redacted", "user_message", "redaction"], []]
        await store.aclose()
        store = await open_handle()
        for run, snapshot in zip((RUN, "other"), before, strict=True):
            check_same(await store.load_run(AGENT, run), snapshot)
        assert (await store.append_events(AGENT, "other", user_message("three"))).version == 3

    async def test_2_idempotency_survives_closing_all_handles(self, store: Store, open_handle: Handles) -> None:
        await store.append_events(AGENT, RUN, rich_event(), user_message("two", event_id="two"))
        await store.aclose()
        store = await open_handle()
        again = await store.append_events(
            AGENT, RUN, rich_event(), user_message("two", event_id="two"), expected_version=0
        )
        assert (again.version, again.inserted, len(again.events)) == (2, 0, 2)
