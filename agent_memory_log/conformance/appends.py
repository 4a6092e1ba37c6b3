"""Promise 1: an append stores all of its events or none, and says what it did."""

from __future__ import annotations

import asyncio

import pytest

from agent_memory_log.conformance.checks import all_runs, check_run, check_stored, seqs_of
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, later, noted, said
from agent_memory_log.errors import EventConflict, InvalidEvent, VersionConflict

_WRITERS = 4
_BATCHES = 10
_BATCH = 5


class Appends(Suite):
    """Tests of appends."""

    @contract
    async def test_1_an_append_stores_its_events_in_order(self, open_handle: Handles) -> None:
        store = await open_handle()
        given = [said("one", timestamp=later(2)), noted("two", timestamp=later(3)), said("three", timestamp=later(1))]
        await store.append_events(AGENT, RUN, *given[:1])
        await store.append_events(AGENT, RUN, *given[1:])
        check_run(await store.load_run(AGENT, RUN), given)

    @contract
    async def test_1_an_append_reports_version_inserted_and_the_events(self, open_handle: Handles) -> None:
        store = await open_handle()
        given = [said("one"), said("two", labels={"a": "b"}), noted("three")]
        first = await store.append_events(AGENT, RUN, given[0])
        assert (first.version, first.inserted, len(first.events)) == (1, 1, 1)
        second = await store.append_events(AGENT, RUN, *given[1:])
        assert (second.version, second.inserted, len(second.events)) == (3, 2, 2)
        for seq, (stored, event) in enumerate(zip(first.events + second.events, given, strict=True), 1):
            check_stored(stored, event, seq)

    @contract
    async def test_1_a_large_batch_is_stored_whole(self, open_handle: Handles) -> None:
        store = await open_handle()
        given = [said(f"message {number}") for number in range(1500)]
        result = await store.append_events(AGENT, RUN, *given)
        assert (result.version, result.inserted, len(result.events)) == (1500, 1500, 1500)
        check_run(await store.load_run(AGENT, RUN), given)

    @contract
    async def test_1_an_empty_append_does_nothing(self, open_handle: Handles) -> None:
        store = await open_handle()
        for expected_version in (None, 7):
            result = await store.append_events(AGENT, RUN, expected_version=expected_version, meta={"a": 1})
            assert (result.version, result.inserted, result.events) == (0, 0, ())
        snapshot = await store.load_run(AGENT, RUN)
        assert (snapshot.version, len(snapshot.log), snapshot.meta) == (0, 0, {})
        assert await all_runs(store) == []

    @contract
    async def test_1_an_empty_append_leaves_a_run_as_it_is(self, open_handle: Handles) -> None:
        store = await open_handle()
        given = said("one")
        await store.append_events(AGENT, RUN, given, meta={"a": 1})
        result = await store.append_events(AGENT, RUN, expected_version=7, meta={"b": 2}, first_seq=9)
        assert (result.version, result.inserted, result.events) == (1, 0, ())
        snapshot = await store.load_run(AGENT, RUN)
        check_run(snapshot, [given])
        assert snapshot.meta == {"a": 1}

    @contract
    async def test_1_a_batch_with_an_invalid_event_stores_nothing(self, open_handle: Handles) -> None:
        store = await open_handle()
        for bad in (said("lone \ud800"), said("x", structured=float("nan"))):
            for place in range(3):
                batch = [said("good"), said("too")]
                batch.insert(place, bad)
                with pytest.raises(InvalidEvent):
                    await store.append_events(AGENT, RUN, *batch, meta={"a": 1})
        snapshot = await store.load_run(AGENT, RUN)
        assert (snapshot.version, len(snapshot.log), snapshot.meta) == (0, 0, {})
        assert await all_runs(store) == []

    @contract
    async def test_1_a_batch_with_a_conflicting_event_stores_nothing(self, open_handle: Handles) -> None:
        store = await open_handle()
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

    @contract
    async def test_1_a_batch_at_a_stale_version_stores_nothing(self, open_handle: Handles) -> None:
        store = await open_handle()
        given = said("one")
        await store.append_events(AGENT, RUN, given)
        with pytest.raises(VersionConflict):
            await store.append_events(AGENT, RUN, said("two"), said("three"), expected_version=0)
        check_run(await store.load_run(AGENT, RUN), [given])

    @contract
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
