"""Promise 4: an event id stands for one event in its run; again it stores nothing, and another body is refused."""

from __future__ import annotations

import pytest

from agent_memory_log.conformance.checks import check_run, check_stored, seqs_of
from agent_memory_log.conformance.harness import Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, later, noted, rich_event, said, unknown_event
from agent_memory_log.errors import EventConflict, VersionConflict
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import UserMessage
from agent_memory_log.store import Store


@contract
class Idempotency(Suite):
    """Tests of event ids."""

    async def test_4_appending_again_stores_nothing_and_reports_the_first_seqs(
        self, store: Store, other: Store
    ) -> None:
        given = [said("one"), rich_event(), unknown_event()]
        await store.append_events(AGENT, RUN, *given)
        for handle in (store, other):
            again = await handle.append_events(AGENT, RUN, *given)
            assert (again.version, again.inserted) == (3, 0)
            for seq, (stored, event) in enumerate(zip(again.events, given, strict=True), 1):
                check_stored(stored, event, seq)
        check_run(await other.load_run(AGENT, RUN), given)

    async def test_4_a_part_or_another_order_of_what_is_there_stores_nothing(self, store: Store) -> None:
        one, two, three = said("one"), said("two"), said("three")
        await store.append_events(AGENT, RUN, one, two, three)
        again = await store.append_events(AGENT, RUN, three, one)
        assert (again.version, again.inserted, seqs_of(again.events)) == (3, 0, [3, 1])

    async def test_4_a_retry_is_decided_before_expected_version(self, store: Store) -> None:
        given = [said("one"), said("two")]
        await store.append_events(AGENT, RUN, *given, expected_version=0)
        await store.append_events(AGENT, RUN, said("three"))
        for expected_version in (0, 2, 3, 99):
            again = await store.append_events(AGENT, RUN, *given, expected_version=expected_version)
            assert (again.version, again.inserted, seqs_of(again.events)) == (3, 0, [1, 2])

    async def test_4_where_some_are_there_the_new_ones_go_to_the_tail(self, store: Store) -> None:
        known, tail = said("known"), said("tail")
        await store.append_events(AGENT, RUN, known, tail)
        new = [said("new one"), said("new two")]
        result = await store.append_events(AGENT, RUN, new[0], known, new[1], expected_version=2)
        assert (result.version, result.inserted, seqs_of(result.events)) == (4, 2, [3, 1, 4])
        check_stored(result.events[1], known, 1)
        check_run(await store.load_run(AGENT, RUN), [known, tail, *new])

    async def test_4_where_some_are_there_expected_version_applies(self, store: Store) -> None:
        known, tail = said("known"), said("tail")
        await store.append_events(AGENT, RUN, known, tail)
        with pytest.raises(VersionConflict) as caught:
            await store.append_events(AGENT, RUN, known, said("new"), expected_version=0)
        assert (caught.value.expected, caught.value.actual) == (0, 2)
        check_run(await store.load_run(AGENT, RUN), [known, tail])

    async def test_4_twice_in_a_batch_is_stored_once(self, store: Store) -> None:
        one, two = said("one", event_id="one"), said("two")
        result = await store.append_events(AGENT, RUN, one, two, said("one", event_id="one"), expected_version=0)
        assert (result.version, result.inserted, seqs_of(result.events)) == (2, 2, [1, 2, 1])
        check_run(await store.load_run(AGENT, RUN), [one, two])

    async def test_4_twice_in_a_batch_with_other_bodies_is_a_conflict(self, store: Store) -> None:
        with pytest.raises(EventConflict) as caught:
            await store.append_events(
                AGENT, RUN, said("x"), said("one", event_id="same"), said("other", event_id="same")
            )
        assert (caught.value.event_id, caught.value.seq) == ("same", 0)
        snapshot = await store.load_run(AGENT, RUN)
        assert (snapshot.version, len(snapshot.log)) == (0, 0)

    async def test_4_another_body_is_a_conflict_that_names_id_and_seq(self, store: Store) -> None:
        given = [said("one"), said("two", event_id="two", labels={"a": "1"}, structured={"a": 1})]
        await store.append_events(AGENT, RUN, *given)
        others: list[Event] = [
            said("other", event_id="two", labels={"a": "1"}, structured={"a": 1}),
            said("two", event_id="two", labels={"a": "2"}, structured={"a": 1}),
            said("two", event_id="two", labels={"a": "1", "b": "1"}, structured={"a": 1}),
            said("two", event_id="two", structured={"a": 1}),
            said("two", event_id="two", labels={"a": "1"}, structured={"a": 2}),
            said("two", event_id="two", labels={"a": "1"}),
            noted("two", event_id="two"),
        ]
        for other in others:
            for expected_version in (None, 2):
                with pytest.raises(EventConflict) as caught:
                    await store.append_events(AGENT, RUN, other, expected_version=expected_version)
                assert (caught.value.event_id, caught.value.seq) == ("two", 2)
        check_run(await store.load_run(AGENT, RUN), given)

    async def test_4_the_time_is_no_part_of_the_body(self, store: Store) -> None:
        given = said("one", event_id="one", timestamp=later(0))
        await store.append_events(AGENT, RUN, given)
        again = await store.append_events(AGENT, RUN, said("one", event_id="one", timestamp=later(5)))
        assert (again.version, again.inserted) == (1, 0)
        check_stored(again.events[0], given, 1)
        check_run(await store.load_run(AGENT, RUN), [given])
        twice = [said("two", event_id="two", timestamp=later(minutes)) for minutes in (1, 2)]
        assert (await store.append_events(AGENT, RUN, *twice)).inserted == 1

    async def test_4_the_order_of_keys_does_not_make_another_body(self, store: Store) -> None:
        one: JsonValue = {"a": 1, "b": [{"c": 1, "d": 2}]}
        other: JsonValue = {"b": [{"d": 2, "c": 1}], "a": 1}
        await store.append_events(AGENT, RUN, said("", event_id="x", structured=one, labels={"a": "1", "b": "2"}))
        again = await store.append_events(
            AGENT, RUN, said("", event_id="x", structured=other, labels={"b": "2", "a": "1"})
        )
        assert (again.version, again.inserted) == (1, 0)

    async def test_4_numbers_python_takes_for_equal_are_other_bodies(self, store: Store) -> None:
        alike: list[list[JsonValue]] = [[1, 1.0, True, "1"], [0, 0.0, -0.0, False], [2**53, float(2**53)]]
        values = [(group, one) for group in alike for one in group]
        await store.append_events(
            AGENT, RUN, *(said("", event_id=str(place), structured=[one]) for place, (_, one) in enumerate(values))
        )
        for place, (group, one) in enumerate(values):
            for other in group:
                event = said("", event_id=str(place), structured=[other])
                if other is one:
                    assert (await store.append_events(AGENT, RUN, event)).inserted == 0
                else:
                    with pytest.raises(EventConflict):
                        await store.append_events(AGENT, RUN, event)

    async def test_4_a_redacted_event_is_there_and_never_compared(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, said("one", event_id="one"), said("two", event_id="two"))
        await store.redact_events(AGENT, RUN, [1])
        for event in (said("one", event_id="one"), said("other", event_id="one"), noted("other", event_id="one")):
            result = await store.append_events(AGENT, RUN, event, expected_version=0)
            assert (result.version, result.inserted, seqs_of(result.events)) == (3, 0, [1])
            assert result.events[0].type == "redacted"
        mixed = await store.append_events(AGENT, RUN, said("other", event_id="one"), said("new"))
        assert (mixed.version, mixed.inserted, seqs_of(mixed.events)) == (4, 1, [1, 4])

    async def test_4_ids_count_within_their_run_only(self, store: Store) -> None:
        for agent, run in ((AGENT, RUN), (AGENT, "other"), ("other", RUN)):
            result = await store.append_events(agent, run, said(f"{agent}/{run}", event_id="same"))
            assert (result.version, result.inserted) == (1, 1)

    async def test_4_events_without_an_id_get_unique_ones(self, store: Store, other: Store) -> None:
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

    async def test_4_new_event_twice_is_two_events(self, store: Store) -> None:
        payload = UserMessage(message="the same")
        result = await store.append_events(AGENT, RUN, new_event(payload), new_event(payload))
        assert (result.version, result.inserted) == (2, 2)
