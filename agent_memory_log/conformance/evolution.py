"""Promise 13: events of unknown types stay unchanged, and events of registered types come back typed.

A backend's own tests must show that it refuses data of a newer schema.
"""

from __future__ import annotations

from datetime import UTC, datetime

from agent_memory_log.conformance.checks import check_run, seqs_of
from agent_memory_log.conformance.harness import Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, VALUES, later, unknown_event, user_message
from agent_memory_log.events.event import decode_event, new_event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import EventData, UnknownPayload
from agent_memory_log.events.registry import register_payload
from agent_memory_log.store import Store


@register_payload
class ConformanceHandoff(EventData, frozen=True):
    """A payload that an application could register. No built-in payload has these types of fields."""

    event_type = "conformance.handoff"

    to_agent: str
    due: datetime | None = None
    priority: float = 0.0
    tags: list[str] = []  # noqa: RUF012  # msgspec copies an empty default for each struct
    context: dict[str, JsonValue] = {}  # noqa: RUF012  # as above


@contract
class Evolution(Suite):
    """Tests of event types that are not built in."""

    async def test_13_an_unknown_type_comes_back_unchanged(self, store: Store, other: Store) -> None:
        maps: list[dict[str, JsonValue]] = [
            {},
            {"message": "like a known one", "payload": "{}", "type": "x", "data": None, "seq": 9},
            {name: value for name, value in VALUES.items() if name != "as deep as it may be"},
        ]
        originals = [
            unknown_event(),
            *(new_event(UnknownPayload(type="milestone", data=data), timestamp=later(1)) for data in maps),
            new_event(UnknownPayload(type="Type\x00 of \U0001f9ff $later.%", data={"a": 1}), timestamp=later(2)),
        ]
        await store.append_events(AGENT, RUN, *originals)
        check_run(await other.load_run(AGENT, RUN), originals)
        assert (await other.append_events(AGENT, RUN, *originals)).inserted == 0

    async def test_13_an_unknown_type_can_be_selected_and_redacted(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), unknown_event(), user_message("three"))
        assert seqs_of((await store.load_run(AGENT, RUN, types=["conformance.newer"])).log) == [2]
        await store.redact_events(AGENT, RUN, [2])
        masked = (await store.load_run(AGENT, RUN)).log[1]
        assert masked.data.to_map()["original_type"] == "conformance.newer"

    async def test_13_a_registered_payload_comes_back_typed(self, store: Store, other: Store) -> None:
        payload = ConformanceHandoff(
            to_agent="billing \x00",
            due=datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=UTC),
            priority=0.1,
            tags=["a", ""],
            context={"": [1.0, 1, 2**70], "a.b": None},
        )
        originals = [new_event(payload), new_event(ConformanceHandoff(to_agent=""))]
        await store.append_events(AGENT, RUN, *originals)
        snapshot = await other.load_run(AGENT, RUN, types=["conformance.handoff"])
        check_run(snapshot, originals)
        assert decode_event(snapshot.log[0], ConformanceHandoff) == payload
