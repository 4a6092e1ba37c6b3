"""Promise 4: a run stores an event id once. A repeated append stores nothing, and another body is a conflict."""

from __future__ import annotations

import pytest

from agent_memory_log.conformance.checks import check_run, check_stored, seqs_of
from agent_memory_log.conformance.harness import Suite, contract
from agent_memory_log.conformance.samples import (
    AGENT,
    RUN,
    later,
    planner_note,
    rich_event,
    unknown_event,
    user_message,
)
from agent_memory_log.errors import EventConflict, VersionConflict
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import UserMessage
from agent_memory_log.store import Store


@contract
class Idempotency(Suite):
    """Tests of event ids."""

    async def test_4_appending_again_stores_nothing_and_returns_the_stored_seqs(
        self, store: Store, other: Store
    ) -> None:
        originals = [user_message("one"), rich_event(), unknown_event()]
        await store.append_events(AGENT, RUN, *originals)
        for handle in (store, other):
            again = await handle.append_events(AGENT, RUN, *originals)
            assert (again.version, again.inserted) == (3, 0)
            for seq, (stored, event) in enumerate(zip(again.events, originals, strict=True), 1):
                check_stored(stored, event, seq)
        check_run(await other.load_run(AGENT, RUN), originals)

    async def test_4_stored_events_in_another_order_store_nothing(self, store: Store) -> None:
        first, second, third = user_message("one"), user_message("two"), user_message("three")
        await store.append_events(AGENT, RUN, first, second, third)
        again = await store.append_events(AGENT, RUN, third, first)
        assert (again.version, again.inserted, seqs_of(again.events)) == (3, 0, [3, 1])

    async def test_4_a_retry_ignores_expected_version(self, store: Store) -> None:
        originals = [user_message("one"), user_message("two")]
        await store.append_events(AGENT, RUN, *originals, expected_version=0)
        await store.append_events(AGENT, RUN, user_message("three"))
        for expected_version in (0, 2, 3, 99):
            again = await store.append_events(AGENT, RUN, *originals, expected_version=expected_version)
            assert (again.version, again.inserted, seqs_of(again.events)) == (3, 0, [1, 2])

    async def test_4_new_events_in_a_partly_stored_batch_are_appended(self, store: Store) -> None:
        stored, tail = user_message("known"), user_message("tail")
        await store.append_events(AGENT, RUN, stored, tail)
        new = [user_message("new one"), user_message("new two")]
        result = await store.append_events(AGENT, RUN, new[0], stored, new[1], expected_version=2)
        assert (result.version, result.inserted, seqs_of(result.events)) == (4, 2, [3, 1, 4])
        check_stored(result.events[1], stored, 1)
        check_run(await store.load_run(AGENT, RUN), [stored, tail, *new])

    async def test_4_expected_version_applies_to_a_partly_stored_batch(self, store: Store) -> None:
        stored, tail = user_message("known"), user_message("tail")
        await store.append_events(AGENT, RUN, stored, tail)
        with pytest.raises(VersionConflict) as caught:
            await store.append_events(AGENT, RUN, stored, user_message("new"), expected_version=0)
        assert (caught.value.expected, caught.value.actual) == (0, 2)
        check_run(await store.load_run(AGENT, RUN), [stored, tail])

    async def test_4_an_event_twice_in_a_batch_is_stored_once(self, store: Store) -> None:
        first, second = user_message("one", event_id="one"), user_message("two")
        result = await store.append_events(
            AGENT, RUN, first, second, user_message("one", event_id="one"), expected_version=0
        )
        assert (result.version, result.inserted, seqs_of(result.events)) == (2, 2, [1, 2, 1])
        check_run(await store.load_run(AGENT, RUN), [first, second])

    async def test_4_one_id_with_two_bodies_in_a_batch_is_a_conflict(self, store: Store) -> None:
        with pytest.raises(EventConflict) as caught:
            await store.append_events(
                AGENT,
                RUN,
                user_message("x"),
                user_message("one", event_id="same"),
                user_message("other", event_id="same"),
            )
        assert (caught.value.event_id, caught.value.seq) == ("same", 0)
        snapshot = await store.load_run(AGENT, RUN)
        assert (snapshot.version, len(snapshot.log)) == (0, 0)

    async def test_4_another_body_for_a_stored_id_is_a_conflict(self, store: Store) -> None:
        originals = [user_message("one"), user_message("two", event_id="two", labels={"a": "1"}, structured={"a": 1})]
        await store.append_events(AGENT, RUN, *originals)
        changed: list[Event] = [
            user_message("other", event_id="two", labels={"a": "1"}, structured={"a": 1}),
            user_message("two", event_id="two", labels={"a": "2"}, structured={"a": 1}),
            user_message("two", event_id="two", labels={"a": "1", "b": "1"}, structured={"a": 1}),
            user_message("two", event_id="two", structured={"a": 1}),
            user_message("two", event_id="two", labels={"a": "1"}, structured={"a": 2}),
            user_message("two", event_id="two", labels={"a": "1"}),
            planner_note("two", event_id="two"),
        ]
        for other in changed:
            for expected_version in (None, 2):
                with pytest.raises(EventConflict) as caught:
                    await store.append_events(AGENT, RUN, other, expected_version=expected_version)
                assert (caught.value.event_id, caught.value.seq) == ("two", 2)
        check_run(await store.load_run(AGENT, RUN), originals)

    async def test_4_events_with_another_timestamp_have_the_same_body(self, store: Store) -> None:
        original = user_message("one", event_id="one", timestamp=later(0))
        await store.append_events(AGENT, RUN, original)
        again = await store.append_events(AGENT, RUN, user_message("one", event_id="one", timestamp=later(5)))
        assert (again.version, again.inserted) == (1, 0)
        check_stored(again.events[0], original, 1)
        check_run(await store.load_run(AGENT, RUN), [original])
        twice = [user_message("two", event_id="two", timestamp=later(minutes)) for minutes in (1, 2)]
        assert (await store.append_events(AGENT, RUN, *twice)).inserted == 1

    async def test_4_events_with_another_key_order_have_the_same_body(self, store: Store) -> None:
        first: JsonValue = {"a": 1, "b": [{"c": 1, "d": 2}]}
        reordered: JsonValue = {"b": [{"d": 2, "c": 1}], "a": 1}
        await store.append_events(
            AGENT, RUN, user_message("", event_id="x", structured=first, labels={"a": "1", "b": "2"})
        )
        again = await store.append_events(
            AGENT, RUN, user_message("", event_id="x", structured=reordered, labels={"b": "2", "a": "1"})
        )
        assert (again.version, again.inserted) == (1, 0)

    async def test_4_numbers_of_different_types_are_different_bodies(self, store: Store) -> None:
        groups: list[list[JsonValue]] = [[1, 1.0, True, "1"], [0, 0.0, -0.0, False], [2**53, float(2**53)]]
        values = [(group, number) for group in groups for number in group]
        await store.append_events(
            AGENT,
            RUN,
            *(user_message("", event_id=str(index), structured=[number]) for index, (_, number) in enumerate(values)),
        )
        for index, (group, number) in enumerate(values):
            for other in group:
                event = user_message("", event_id=str(index), structured=[other])
                if other is number:
                    assert (await store.append_events(AGENT, RUN, event)).inserted == 0
                else:
                    with pytest.raises(EventConflict):
                        await store.append_events(AGENT, RUN, event)

    async def test_4_an_event_with_the_id_of_a_redacted_one_stores_nothing(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one", event_id="one"), user_message("two", event_id="two"))
        await store.redact_events(AGENT, RUN, [1])
        for event in (
            user_message("one", event_id="one"),
            user_message("other", event_id="one"),
            planner_note("other", event_id="one"),
        ):
            result = await store.append_events(AGENT, RUN, event, expected_version=0)
            assert (result.version, result.inserted, seqs_of(result.events)) == (3, 0, [1])
            assert result.events[0].type == "redacted"
        mixed = await store.append_events(AGENT, RUN, user_message("other", event_id="one"), user_message("new"))
        assert (mixed.version, mixed.inserted, seqs_of(mixed.events)) == (4, 1, [1, 4])

    async def test_4_event_ids_are_unique_only_within_their_run(self, store: Store) -> None:
        for agent, run in ((AGENT, RUN), (AGENT, "other"), ("other", RUN)):
            result = await store.append_events(agent, run, user_message(f"{agent}/{run}", event_id="same"))
            assert (result.version, result.inserted) == (1, 1)

    async def test_4_events_without_an_id_get_unique_ids(self, store: Store, other: Store) -> None:
        payload = UserMessage(message="the same")
        event = Event(payload.event_type, later(0), payload)
        events = [
            *(await store.append_events(AGENT, RUN, event, event)).events,
            *(await other.append_events(AGENT, RUN, event)).events,
        ]
        assert seqs_of(events) == [1, 2, 3]
        ids = [stored.event_id for stored in (await store.load_run(AGENT, RUN)).log]
        assert len(set(ids)) == 3
        assert "" not in ids
        assert ids == [stored.event_id for stored in events]

    async def test_4_two_calls_of_new_event_make_two_events(self, store: Store) -> None:
        payload = UserMessage(message="the same")
        result = await store.append_events(AGENT, RUN, new_event(payload), new_event(payload))
        assert (result.version, result.inserted) == (2, 2)
