"""Promises 10, 11 and 18: a store refuses invalid or reserved content, names the field and writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from agent_memory_log.backend_kit import MAX_LABEL_KEY_LENGTH, MAX_LABELS
from agent_memory_log.conformance.checks import all_runs
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, NOON, RUN, nested, user_message
from agent_memory_log.errors import InvalidEvent
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.jsonvalue import MAX_DEPTH, MAX_INT_DIGITS, JsonValue
from agent_memory_log.events.nested import Bounds, ToolTelemetry
from agent_memory_log.events.payloads import (
    EventData,
    PlannerNote,
    RetryHint,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)
from agent_memory_log.events.reserved import TOMBSTONE_TYPE
from agent_memory_log.store import Store

_LONE = "lone \udc00 surrogate"


_OWN = "@memory/acme/user/42"


@contract
class Refusals(Suite):
    """Tests of content that a store refuses."""

    async def test_10_append_refuses_lone_surrogates_in_payloads(self, open_handle: Handles) -> None:
        hint = RetryHint(message=_LONE)
        await _refused(
            open_handle,
            ("data.message", lambda: user_message(_LONE)),
            ("data.structured", lambda: user_message("", structured=_LONE)),
            ("data.structured.a[1].b", lambda: user_message("", structured={"a": [0, {"b": _LONE}]})),
            ("data.structured.a", lambda: user_message("", structured={"a": {_LONE: 1}})),
            ("data.note", lambda: new_event(PlannerNote(note=_LONE))),
            ("data.tool_name", lambda: new_event(ToolCall(tool_call_id="", tool_name=_LONE))),
            ("data.payload_json", lambda: new_event(ToolCall(tool_call_id="", tool_name="", payload_json=_LONE))),
            ("data.server_data", lambda: _result(server_data=_LONE)),
            ("data.retry_hint", lambda: _result(retry_hint=hint)),
            ("data.bounds", lambda: _result(bounds=Bounds(next_cursor=_LONE))),
            ("data.telemetry", lambda: _result(telemetry=ToolTelemetry(extra={"a": [_LONE]}))),
            ("data.missing_fields", lambda: new_event(RetryHint(missing_fields=("a", _LONE)))),
            ("data.a", lambda: new_event(UnknownPayload(type="conformance.newer", data={"a": _LONE}))),
            ("data", lambda: new_event(UnknownPayload(type="conformance.newer", data={_LONE: 1}))),
        )

    async def test_10_append_refuses_numbers_that_json_cannot_write(self, open_handle: Handles) -> None:
        cases: list[tuple[str, Callable[[], Event]]] = []
        for number in (float("nan"), float("inf"), float("-inf")):
            as_map: dict[str, JsonValue] = {"a": [number]}
            cases += [
                ("data.structured", partial(user_message, "", structured=number)),
                ("data.structured.a[0]", partial(user_message, "", structured=as_map)),
                ("data.telemetry", partial(_result, telemetry=ToolTelemetry(extra=as_map))),
                ("data.prior_input", partial(new_event, RetryHint(prior_input=as_map))),
                ("data.a", partial(new_event, UnknownPayload(type="conformance.newer", data=as_map))),
            ]
        cases.append(("data.structured", lambda: user_message("", structured=10**MAX_INT_DIGITS)))
        await _refused(open_handle, *cases)

    async def test_10_append_refuses_json_nested_too_deeply(self, open_handle: Handles) -> None:
        await _refused(
            open_handle,
            ("data.structured", lambda: user_message("", structured=nested(MAX_DEPTH + 1))),
            ("data.structured", lambda: user_message("", structured=nested(5000))),
            ("data.example_input", lambda: new_event(RetryHint(example_input={"a": nested(MAX_DEPTH)}))),
            ("data", lambda: new_event(UnknownPayload(type="conformance.newer", data={"a": nested(MAX_DEPTH)}))),
        )

    async def test_10_append_refuses_wrong_types_in_payload_fields(self, open_handle: Handles) -> None:
        anything: list[Any] = [3, None, b"bytes", ["text"], 1.5, True]
        await _refused(
            open_handle,
            *(("data.message", partial(new_event, UserMessage(message=wrong))) for wrong in anything),
            *(
                ("data.expected_children_total", partial(_call, expected_children_total=wrong))
                for wrong in ("3", 1.5, True, None, 2**63, -(2**63) - 1)
            ),
            *(("data.structured", partial(user_message, "", structured=wrong)) for wrong in _not_json()),
            ("data.final", lambda: _thinking(final=1)),
            ("data.redacted", lambda: _thinking(redacted="text")),
            ("data.bounds", lambda: _result(bounds={"Returned": 1, "Total": "many"})),
            ("data.bounds", lambda: _result(bounds=Bounds(total="many"))),  # type: ignore[arg-type]  # the test passes a wrong type
            ("data.telemetry", lambda: _result(telemetry=ToolTelemetry(extra=[1]))),  # type: ignore[arg-type]  # the test passes a wrong type
        )

    async def test_10_append_refuses_values_that_are_not_events(self, open_handle: Handles) -> None:
        message: Any = UserMessage(message="x")
        no_payload: Any = {"message": "x"}
        no_time: Any = "2026-01-01T00:00:00Z"
        no_map: Any = [1]

        class Unregistered(EventData, frozen=True):
            event_type = "conformance.unregistered"

        await _refused(
            open_handle,
            ("", lambda: message),
            ("", lambda: no_payload),
            ("data", lambda: Event("user_message", NOON, no_payload)),
            ("data", lambda: Event("conformance.unregistered", NOON, Unregistered())),
            ("data", lambda: Event("x", NOON, UnknownPayload(type="x", data=no_map))),
            ("type", lambda: Event("planner_note", NOON, message)),
            ("type", lambda: Event("planner_note", NOON, UnknownPayload(type="planner_note", data={}))),
            ("type", lambda: Event("", NOON, UnknownPayload(type="", data={}))),
            ("timestamp", lambda: Event("user_message", no_time, message)),
        )

    async def test_10_append_refuses_times_that_utc_cannot_hold(self, open_handle: Handles) -> None:
        message = UserMessage(message="x")
        first = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
        last = datetime(9999, 12, 31, 23, 59, tzinfo=timezone(-timedelta(hours=1)))
        naive = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
        await _refused(
            open_handle,
            *(("timestamp", partial(Event, "user_message", time, message)) for time in (naive, first, last)),
        )

    async def test_11_append_refuses_labels_that_are_not_text_or_too_large(self, open_handle: Handles) -> None:
        wrong: list[Any] = [{"a": 1}, {"a": None}, {1: "a"}, {"a": b"b"}, [("a", "b")], "ab"]
        message = UserMessage(message="x")
        await _refused(
            open_handle,
            *(("labels", partial(Event, "user_message", NOON, message, labels)) for labels in wrong),
            ("labels.a", lambda: user_message("", labels={"a": _LONE})),
            ("labels", lambda: user_message("", labels={_LONE: "a"})),
            ("labels", lambda: user_message("", labels={str(number): "" for number in range(MAX_LABELS + 1)})),
            ("labels", lambda: user_message("", labels={"k" * (MAX_LABEL_KEY_LENGTH + 1): ""})),
        )

    async def test_10_append_refuses_meta_that_is_not_json(self, store: Store) -> None:
        wrong: list[tuple[str, Any]] = [
            ("meta.a", {"a": _LONE}),
            ("meta", {_LONE: 1}),
            ("meta.a[0]", {"a": [float("nan")]}),
            ("meta", {"a": nested(MAX_DEPTH)}),
            ("meta", {1: "a"}),
            ("meta", [1]),
            *(("meta.a", {"a": value}) for value in _not_json()),
        ]
        for field, meta in wrong:
            with pytest.raises(InvalidEvent) as caught:
                await store.append_events(AGENT, RUN, user_message("x"), meta=meta)
            assert caught.value.field.startswith(field)
        assert (await store.load_run(AGENT, RUN)).version == 0

    async def test_10_redact_refuses_a_reason_that_is_not_text(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"))
        wrong: list[Any] = [_LONE, 3, None, b"x"]
        for reason in wrong:
            with pytest.raises(InvalidEvent) as caught:
                await store.redact_events(AGENT, RUN, [1], reason=reason)
            assert "reason" in caught.value.field
        snapshot = await store.load_run(AGENT, RUN)
        assert [event.type for event in snapshot.log] == ["user_message"]

    async def test_18_append_refuses_reserved_agents_by_default(self, store: Store, other: Store) -> None:
        for agent in ("@", "@own", _OWN):
            for events in ((user_message("one"),), (user_message("one"), user_message("two")), ()):
                with pytest.raises(InvalidEvent) as caught:
                    await store.append_events(agent, RUN, *events)
                assert caught.value.field == "agent"
        assert await all_runs(other, include_reserved=True) == []
        # An application may not append to a reserved run that exists, either.
        await other.append_events(_OWN, RUN, user_message("one"), reserved=True)
        with pytest.raises(InvalidEvent):
            await other.append_events(_OWN, RUN, user_message("two"))
        assert (await store.load_run(_OWN, RUN)).version == 1
        assert (await store.append_events(f"a{_OWN}", RUN, user_message("one"))).version == 1

    async def test_18_append_refuses_reserved_types_by_default(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"))
        for event_type in (TOMBSTONE_TYPE, "memory_of_a_newer_release", "memory_"):
            own = _event(event_type)
            for run in (RUN, "new"):
                for events in ((own,), (user_message("two"), own)):
                    with pytest.raises(InvalidEvent) as caught:
                        await store.append_events(AGENT, run, *events)
                    assert caught.value.field == "type"
            await other.append_events(_OWN, RUN, own, reserved=True)
        assert [(info.run, info.version) for info in await all_runs(store)] == [(RUN, 1)]
        stored = await store.load_run(_OWN, RUN)
        assert [event.type for event in stored.log] == [TOMBSTONE_TYPE, "memory_of_a_newer_release", "memory_"]
        assert (await store.append_events(AGENT, RUN, _event("memory"))).version == 2

    async def test_18_redact_refuses_memory_tombstones(self, store: Store, other: Store) -> None:
        await store.append_events(_OWN, RUN, user_message("one"), _event(TOMBSTONE_TYPE), reserved=True)
        for seqs in ([2], [1, 2]):
            with pytest.raises(InvalidEvent) as caught:
                await other.redact_events(_OWN, RUN, seqs)
            assert caught.value.field == "seqs"
        stored = await store.load_run(_OWN, RUN)
        assert [event.type for event in stored.log] == ["user_message", TOMBSTONE_TYPE]


async def _refused(open_handle: Handles, *cases: tuple[str, Callable[[], Event]]) -> None:
    """Assert that a new and an existing run refuse each event, name the field and stay unchanged."""
    store = await open_handle()
    await store.append_events(AGENT, RUN, user_message("there"))
    for field, make in cases:
        for run in (RUN, "new"):
            with pytest.raises(InvalidEvent) as caught:
                await store.append_events(AGENT, run, make(), meta={"a": 1})
            assert caught.value.field.startswith(field), f"{caught.value} names {caught.value.field!r}, not {field!r}"
    assert [(info.run, info.version) for info in await all_runs(store)] == [(RUN, 1)]
    assert (await store.load_run(AGENT, "new")).version == 0


def _not_json() -> list[Any]:
    return [b"bytes", {1: "a"}, {"a": {1, 2}}, [object()], [Decimal(1)], NOON, {None: 1}, [1j]]


def _result(**fields: Any) -> Event:  # noqa: ANN401  # tests pass wrong types
    return new_event(ToolResult(tool_call_id="", tool_name="", **fields))


def _call(**fields: Any) -> Event:  # noqa: ANN401  # tests pass wrong types
    return new_event(ToolCall(tool_call_id="", tool_name="", **fields))


def _thinking(**fields: Any) -> Event:  # noqa: ANN401  # tests pass wrong types
    return new_event(Thinking(**fields))


def _event(event_type: str) -> Event:
    return Event.from_map({"type": event_type, "timestamp": NOON.isoformat(), "data": {}})
