"""Promise 20: ``find_events`` returns the events of a run that have the given ids."""

from __future__ import annotations

from typing import Any

import pytest

from agent_memory_log.conformance.checks import check_same, check_stored, scribble
from agent_memory_log.conformance.ends import expired_run
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, IDS, RUN, rich_event, unknown_event, user_message
from agent_memory_log.errors import InvalidArgument, InvalidEvent, RunExpired
from agent_memory_log.events.payloads import Redacted
from agent_memory_log.store import Store

_MANY = 4_100
"""The number of ids in a large request: more than a store can look up in one query."""

_UUID = "0b5e2f6c-1d2a-4c3b-8e9f-a0b1c2d3e4f5"


@contract
class Finding(Suite):
    """Tests of ``find_events``."""

    async def test_20_find_events_returns_events_in_the_order_of_its_argument(self, store: Store, other: Store) -> None:
        originals = [user_message(str(index)) for index in range(6)]
        await store.append_events(AGENT, RUN, *originals[:4])
        await store.append_events(AGENT, RUN, *originals[4:])
        order = [3, 0, 5, 5, 1]
        ids = [originals[index].event_id for index in order]
        for handle in (store, other):
            for event_ids in (ids, tuple(ids), iter(ids)):
                events = await handle.find_events(AGENT, RUN, event_ids)
                assert type(events) is tuple
                for event, index in zip(events, order, strict=True):
                    assert event is not None
                    check_stored(event, originals[index], index + 1)
            assert await handle.find_events(AGENT, RUN, []) == ()

    async def test_20_find_events_returns_none_for_ids_that_the_run_does_not_have(self, store: Store) -> None:
        originals = [user_message("one"), user_message("two")]
        ids = [event.event_id for event in originals]
        assert await store.find_events(AGENT, RUN, ids) == (None, None)
        for run, event in zip((RUN, "other"), originals, strict=True):
            await store.append_events(AGENT, run, event)
        events = await store.find_events(AGENT, RUN, ["unknown", *ids, ids[0]])
        assert [event and event.event_id for event in events] == [None, ids[0], None, ids[0]]
        await store.delete_run(AGENT, RUN)
        assert await store.find_events(AGENT, RUN, ids) == (None, None)
        assert await store.find_events("other", RUN, ids) == (None, None)

    async def test_20_event_ids_are_compared_exactly(self, store: Store) -> None:
        upper, plain = _UUID.upper(), _UUID.replace("-", "")
        ids = [*IDS, _UUID, upper, plain, f"{{{_UUID}}}", bytes.fromhex(plain).decode("latin-1")]
        originals = [user_message(f"event {event_id!r}", event_id=event_id) for event_id in ids]
        for begin in (0, 1):
            await store.append_events(AGENT, RUN, *originals[begin::2])
            events = await store.find_events(AGENT, RUN, ids)
            assert [event.event_id for event in events if event is not None] == ids if begin else ids[::2]
        for event, original in zip(events, originals, strict=True):
            assert event is not None
            check_stored(event, original, event.seq)

    async def test_20_find_events_returns_any_content_unchanged(self, store: Store, other: Store) -> None:
        originals = [rich_event(), unknown_event()]
        await store.append_events(AGENT, RUN, *originals)
        ids = [event.event_id for event in originals]
        for handle in (store, other, store):
            events = await handle.find_events(AGENT, RUN, ids)
            for seq, (event, original) in enumerate(zip(events, originals, strict=True), 1):
                assert event is not None
                check_stored(event, original, seq)
                scribble(event)

    async def test_20_every_handle_finds_appended_and_redacted_events(self, store: Store, other: Store) -> None:
        originals = [user_message(f"secret {index}") for index in range(4)]
        ids = [event.event_id for event in originals]
        for index, (handle, last) in enumerate(((store, other), (other, store), (store, other), (other, store))):
            await handle.append_events(AGENT, RUN, originals[index])
            for reader in (last, handle):
                events = await reader.find_events(AGENT, RUN, ids)
                assert [event is not None for event in events] == [number <= index for number in range(4)]
        await store.redact_events(AGENT, RUN, [2, 4], reason="asked")
        for handle in (other, store):
            events = await handle.find_events(AGENT, RUN, ids)
            assert [event is not None and isinstance(event.data, Redacted) for event in events] == [False, True] * 2
            assert [*events] == list((await handle.load_run(AGENT, RUN)).log)[:4]

    async def test_20_find_events_accepts_any_number_of_ids(self, store: Store, other: Store) -> None:
        seqs = dict.fromkeys((0, 1, 399, 400, 401, 998, 999, 1000, 1999, 2000, 2001, _MANY - 1), 0)
        for seq, index in enumerate(seqs, 1):
            await store.append_events(AGENT, RUN, user_message("x", event_id=f"e-{index}"))
            seqs[index] = seq
        events = await other.find_events(AGENT, RUN, (f"e-{index}" for index in range(_MANY)))
        assert len(events) == _MANY
        for index, seq in seqs.items():
            event = events[index]
            assert event is not None, f"event {index} of {_MANY}"
            assert event.seq == seq
        assert events.count(None) == _MANY - len(seqs)

    async def test_20_find_events_refuses_an_expired_run(
        self, store: Store, other: Store, open_handle: Handles
    ) -> None:
        await expired_run(store, other)
        for handle in (store, other, await open_handle()):
            for ids in (["unknown"], []):
                with pytest.raises(RunExpired, match=f"{AGENT}/{RUN}"):
                    await handle.find_events(AGENT, RUN, ids)

    async def test_20_find_events_refuses_invalid_arguments(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("x", event_id="e"))
        before = await store.load_run(AGENT, RUN)
        wrong: list[Any] = [None, 3, "e", b"e"]
        for event_ids in wrong:
            with pytest.raises((InvalidArgument, InvalidEvent)):
                await store.find_events(AGENT, RUN, event_ids)
        for wrong_id in ("", "e" * 513, "lone \ud800", None, 1, b"e", ["e"]):
            with pytest.raises(InvalidEvent) as caught:
                await store.find_events(AGENT, RUN, ["e", wrong_id])  # type: ignore[list-item]  # the test passes a wrong type
            assert caught.value.field == "event_id"
        check_same(await store.load_run(AGENT, RUN), before)
