"""Promises 1 and 2: an append stores all of its events or none, and what it acknowledged stays.

That it survives a killed process and a lost power supply is for the backend's own tests.
"""

from __future__ import annotations

import asyncio

import pytest

from agent_memory_log.conformance.checks import all_runs, check_run, check_same, check_stored, seqs_of
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, later, noted, rich_event, said
from agent_memory_log.errors import EventConflict, InvalidEvent, VersionConflict
from agent_memory_log.store import Store

_WRITERS = 4
_BATCHES = 10
_BATCH = 5


@contract
class Appends(Suite):
    """Tests of appends, and of closing and opening again."""

    async def test_1_an_append_stores_its_events_in_order(self, store: Store) -> None:
        given = [said("one", timestamp=later(2)), noted("two", timestamp=later(3)), said("three", timestamp=later(1))]
        await store.append_events(AGENT, RUN, *given[:1])
        await store.append_events(AGENT, RUN, *given[1:])
        check_run(await store.load_run(AGENT, RUN), given)

    async def test_1_an_append_reports_version_inserted_and_the_events(self, store: Store) -> None:
        given = [said("one"), said("two", labels={"a": "b"}), noted("three")]
        first = await store.append_events(AGENT, RUN, given[0])
        assert (first.version, first.inserted, len(first.events)) == (1, 1, 1)
        second = await store.append_events(AGENT, RUN, *given[1:])
        assert (second.version, second.inserted, len(second.events)) == (3, 2, 2)
        for seq, (stored, event) in enumerate(zip(first.events + second.events, given, strict=True), 1):
            check_stored(stored, event, seq)

    async def test_1_a_large_batch_is_stored_whole(self, store: Store) -> None:
        given = [said(f"message {number}") for number in range(1500)]
        result = await store.append_events(AGENT, RUN, *given)
        assert (result.version, result.inserted, len(result.events)) == (1500, 1500, 1500)
        check_run(await store.load_run(AGENT, RUN), given)

    async def test_1_an_empty_append_does_nothing(self, store: Store) -> None:
        for expected_version in (None, 7):
            result = await store.append_events(AGENT, RUN, expected_version=expected_version, meta={"a": 1})
            assert (result.version, result.inserted, result.events) == (0, 0, ())
        snapshot = await store.load_run(AGENT, RUN)
        assert (snapshot.version, len(snapshot.log), snapshot.meta) == (0, 0, {})
        assert await all_runs(store) == []

    async def test_1_an_empty_append_leaves_a_run_as_it_is(self, store: Store) -> None:
        given = said("one")
        await store.append_events(AGENT, RUN, given, meta={"a": 1})
        result = await store.append_events(AGENT, RUN, expected_version=7, meta={"b": 2}, first_seq=9)
        assert (result.version, result.inserted, result.events) == (1, 0, ())
        snapshot = await store.load_run(AGENT, RUN)
        check_run(snapshot, [given])
        assert snapshot.meta == {"a": 1}

    async def test_1_a_batch_with_an_invalid_event_stores_nothing(self, store: Store) -> None:
        for bad in (said("lone \ud800"), said("x", structured=float("nan"))):
            for place in range(3):
                batch = [said("good"), said("too")]
                batch.insert(place, bad)
                with pytest.raises(InvalidEvent):
                    await store.append_events(AGENT, RUN, *batch, meta={"a": 1})
        snapshot = await store.load_run(AGENT, RUN)
        assert (snapshot.version, len(snapshot.log), snapshot.meta) == (0, 0, {})
        assert await all_runs(store) == []

    async def test_1_a_batch_with_a_conflicting_event_stores_nothing(self, store: Store) -> None:
        given = said("known", event_id="known")
        await store.append_events(AGENT, RUN, given)
        for place in range(3):
            batch = [said("new", event_id="new-1"), said("too", event_id="new-2")]
            batch.insert(place, said("other", event_id="known"))
            with pytest.raises(EventConflict):
                await store.append_events(AGENT, RUN, *batch)
        check_run(await store.load_run(AGENT, RUN), [given])
        again = await store.append_events(AGENT, RUN, said("new", event_id="new-1"))
        assert (again.version, again.inserted) == (2, 1), "a refused batch left an event id behind"

    async def test_1_a_batch_at_a_stale_version_stores_nothing(self, store: Store) -> None:
        given = said("one")
        await store.append_events(AGENT, RUN, given)
        with pytest.raises(VersionConflict):
            await store.append_events(AGENT, RUN, said("two"), said("three"), expected_version=0)
        check_run(await store.load_run(AGENT, RUN), [given])

    async def test_1_no_reader_sees_a_part_of_a_batch(self, open_handle: Handles) -> None:
        writers = [await open_handle() for _ in range(_WRITERS)]
        reader = await open_handle()
        total = _WRITERS * _BATCHES * _BATCH

        async def write(number: int) -> None:
            for batch in range(_BATCHES):
                events = [said(f"{number}/{batch}", labels={"part": str(part)}) for part in range(_BATCH)]
                await writers[number].append_events(AGENT, RUN, *events)
                await asyncio.sleep(0)

        async def read() -> None:
            version = 0
            while version < total:
                snapshot = await reader.load_run(AGENT, RUN)
                assert snapshot.version == len(snapshot.log)
                assert snapshot.version >= version, "the version went back"
                version = snapshot.version
                parts: dict[str, int] = {}
                for event in snapshot.log:
                    message = str(event.data.to_map()["message"])
                    parts[message] = parts.get(message, 0) + 1
                assert set(parts.values()) <= {_BATCH}, "a part of a batch was visible"
                await asyncio.sleep(0)

        await asyncio.gather(read(), *(write(number) for number in range(_WRITERS)))
        assert seqs_of((await reader.load_run(AGENT, RUN)).log) == list(range(1, total + 1))

    async def test_2_what_was_appended_is_there_after_all_handles_closed(
        self, store: Store, open_handle: Handles
    ) -> None:
        given = [rich_event(), said("two")]
        await store.append_events(AGENT, RUN, *given, meta={"a": [1]})
        before = await store.load_run(AGENT, RUN)
        runs = await all_runs(store)
        await store.aclose()
        store = await open_handle()
        after = await store.load_run(AGENT, RUN)
        check_run(after, given)
        check_same(after, before)
        assert await all_runs(store) == runs

    async def test_2_what_was_redacted_or_deleted_stays_so_after_all_handles_closed(
        self, store: Store, open_handle: Handles
    ) -> None:
        await store.append_events(AGENT, RUN, said("one"), said("two"))
        await store.append_events(AGENT, "other", said("one"), said("two"))
        await store.redact_events(AGENT, RUN, [1], reason="asked")
        await store.delete_run(AGENT, "other")
        before = await store.load_run(AGENT, RUN), await store.load_run(AGENT, "other")
        types = [[event.type for event in snapshot.log] for snapshot in before]
        assert types == [["redacted", "user_message", "redaction"], []]
        await store.aclose()
        store = await open_handle()
        for run, snapshot in zip((RUN, "other"), before, strict=True):
            check_same(await store.load_run(AGENT, run), snapshot)
        assert (await store.append_events(AGENT, "other", said("three"))).version == 3

    async def test_2_idempotency_survives_closing_all_handles(self, store: Store, open_handle: Handles) -> None:
        await store.append_events(AGENT, RUN, rich_event(), said("two", event_id="two"))
        await store.aclose()
        store = await open_handle()
        again = await store.append_events(AGENT, RUN, rich_event(), said("two", event_id="two"), expected_version=0)
        assert (again.version, again.inserted, len(again.events)) == (2, 0, 2)
