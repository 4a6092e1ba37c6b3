"""Tests with arbitrary values: every value is stored and read back unchanged, or refused with the name of its field."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent_memory_log import (
    Event,
    EventData,
    JsonValue,
    RetryHint,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
    new_event,
)
from agent_memory_log.backend_kit import prepare
from agent_memory_log.errors import DecodeError, InvalidEvent
from agent_memory_log.events.event import same_body
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.events.nested import Bounds, ToolTelemetry
from agent_memory_log.events.registry import (
    decode_parts,
    decode_payload,
    encode_payload,
    payload_from_map,
    payload_types,
)
from tests.effort import EXAMPLES
from tests.strategies import (
    AgreeableObject,
    LyingDict,
    OddInt,
    OddObject,
    OddText,
    Unshowable,
    endless_list,
    events,
    json_values,
    nested,
    not_json,
    odd_json,
    payloads,
    texts,
    wrong_values,
)


def as_json(value: object) -> bytes:
    return encode_canonical(value)


@given(payloads())
def test_payload_survives_its_map(payload: EventData) -> None:
    built = payload.to_map()
    assert payload_from_map(payload.event_type, built) == payload
    again = json.loads(json.dumps(built))
    read = payload_from_map(payload.event_type, again)
    assert read == payload
    assert as_json(read.to_map()) == as_json(built)


@given(payloads())
def test_payload_survives_its_stored_text(payload: EventData) -> None:
    text, owned = encode_payload(payload)
    assert owned == payload
    read = decode_payload(payload.event_type, text)
    assert read == payload
    assert as_json(read.to_map()) == as_json(payload.to_map())
    assert encode_payload(read) == (text, payload)
    assert as_json(json.loads(text)) == as_json(payload.to_map())


@given(events())
def test_event_survives_its_map(event: Event) -> None:
    built = event.to_map()
    read = Event.from_map(json.loads(json.dumps(built)))
    assert read == event
    assert read.to_map() == built
    assert Event.from_map(built) == event
    assert pickle.loads(pickle.dumps(event)) == event
    assert same_body(read, event)


@given(events())
def test_prepared_event_equals_the_event(event: Event) -> None:
    prepared = prepare(event)
    assert prepared.to_event(0) == event
    assert prepared.timestamp.tzinfo is UTC
    assert decode_parts(prepared.type, prepared.text, prepared.verbatim) == event.data
    assert prepared.verbatim is None or prepared.verbatim.encode() not in prepared.text or len(prepared.verbatim) < 40


_FIELDS: list[tuple[type[EventData], str]] = [
    (kind, name)
    for kind in payload_types().values()
    if kind.__module__ == "agent_memory_log.events.payloads"  # other tests register more payloads
    for name in kind.__struct_fields__
]
_REQUIRED: dict[str, Any] = {
    "tool_call_id": "tc",
    "tool_name": "t",
    "note": "n",
    "original_type": "x",
    "seqs": (1,),
    "provider": "p",
    "model": "m",
}


def _with(kind: type[EventData], name: str, value: object) -> EventData:
    fields = {key: item for key, item in _REQUIRED.items() if key in kind.__struct_fields__}
    return kind(**{**fields, name: value})


def _assert_names_field(error: InvalidEvent, field: str) -> None:
    assert error.field == field or error.field.startswith((f"{field}.", f"{field}["))
    assert str(error)


def _stored_or_refused(payload: EventData, field: str) -> None:
    """Check that the payload is stored and read back equal, or refused with the name of the field."""
    try:
        text, owned = encode_payload(payload)
    except InvalidEvent as error:
        _assert_names_field(error, field)
        with pytest.raises(InvalidEvent):
            prepare(new_event(payload))
        return
    read = decode_payload(payload.event_type, text)
    assert read == owned
    assert type(read) is type(payload)
    assert encode_payload(owned)[0] == text
    assert as_json(payload.to_map()) == as_json(owned.to_map())


@settings(max_examples=40 * EXAMPLES)
@given(st.sampled_from(_FIELDS), wrong_values())
@example((Thinking, "content_index"), True)
@example((Thinking, "final"), 1)
@example((UserMessage, "message"), b"bytes")
@example((Thinking, "redacted"), "text")
@example((UserMessage, "message"), datetime(2026, 1, 1, tzinfo=UTC))
@example((ToolResult, "bounds"), {"Returned": 1})
@example((UserMessage, "structured"), LyingDict(a=float("nan")))
def test_any_value_in_any_field_is_stored_or_refused(field: tuple[type[EventData], str], value: object) -> None:
    kind, name = field
    _stored_or_refused(_with(kind, name, value), f"data.{name}")


_NESTED: list[tuple[type[msgspec.Struct], str, str]] = [
    (kind, outer_field, name)
    for kind, outer_field in ((Bounds, "bounds"), (ToolTelemetry, "telemetry"), (RetryHint, "retry_hint"))
    for name in kind.__struct_fields__
]


@settings(max_examples=20 * EXAMPLES)
@given(st.sampled_from(_NESTED), wrong_values())
def test_any_value_in_a_nested_map_is_stored_or_refused(
    field: tuple[type[msgspec.Struct], str, str], value: object
) -> None:
    kind, outer_field, name = field
    inner = cast("Any", kind)(**{name: value})
    payload = _with(ToolResult, outer_field, inner)
    _stored_or_refused(payload, f"data.{outer_field}.{name}")


_CONTAINERS = st.sampled_from(["{}", '{"a": {"b": {}}}', '{"a": [0, {}]}'])


def _put(value: object, container: str) -> Any:
    return {"{}": value, '{"a": {"b": {}}}': {"a": {"b": value}}, '{"a": [0, {}]}': {"a": [0, value]}}[container]


@given(not_json(), _CONTAINERS)
def test_values_that_are_not_json_are_refused_by_name(value: object, container: str) -> None:
    for payload, field in (
        (UserMessage(structured=_put(value, container)), "data.structured"),
        (ToolCall(tool_call_id="", tool_name="", structured=_put(value, container)), "data.structured"),
        (UnknownPayload(type="later", data={"k": _put(value, container)}), "data.k"),
        (
            ToolResult(tool_call_id="", tool_name="", telemetry=ToolTelemetry(extra={"k": _put(value, container)})),
            "data.telemetry.extra.k",
        ),
        (RetryHint(example_input={"k": _put(value, container)}), "data.example_input.k"),
    ):
        for attempt in (
            encode_payload,
            EventData.to_map if not isinstance(payload, UnknownPayload) else encode_payload,
        ):
            with pytest.raises(InvalidEvent) as caught:
                attempt(payload)
            assert caught.value.field.startswith(field), caught.value.field
            assert payload.event_type in str(caught.value) or "nests" in str(caught.value)


@given(odd_json())
def test_subclasses_of_json_types_are_stored_as_plain_json(value: Any) -> None:
    payload = UserMessage(structured=value)
    text, owned = encode_payload(payload)
    assert isinstance(owned, UserMessage)
    assert type(owned.structured) in (str, int, float, list, dict)
    assert json.loads(text) == owned.to_map()


@given(st.sampled_from([kind for kind in payload_types().values() if "structured" in kind.__struct_fields__]))
def test_depth_has_the_same_limit_in_every_payload(kind: type[EventData]) -> None:
    deepest_allowed, too_deep = nested(64), nested(65)
    _stored_or_refused(_with(kind, "structured", deepest_allowed), "data.structured")
    with pytest.raises(InvalidEvent, match="64 levels"):
        encode_payload(_with(kind, "structured", too_deep))
    with pytest.raises(InvalidEvent, match="64 levels"):
        _with(kind, "structured", too_deep).to_map()


def test_value_that_equals_everything_is_refused() -> None:
    with pytest.raises(InvalidEvent) as caught:
        encode_payload(UserMessage(message=cast("str", AgreeableObject())))
    assert caught.value.field == "data.message"


def test_error_messages_survive_values_without_repr() -> None:
    for value in (Unshowable("x"), OddInt(10**5000), endless_list(), nested(3000), 10**5000):
        with pytest.raises(DecodeError):
            payload_from_map("planner_note", {"note": [value]})
        with pytest.raises(InvalidEvent):
            encode_payload(UserMessage(message=cast("str", [value])))
    encode_payload(UserMessage(message=Unshowable("x"), structured={Unshowable("k"): Unshowable("v")}))
    with pytest.raises(InvalidEvent):
        prepare(Event(Unshowable("x"), datetime(2026, 1, 1, tzinfo=UTC), UserMessage()))
    with pytest.raises(InvalidEvent):
        prepare(new_event(UserMessage(), labels={Unshowable("\ud800"): "x"}))


def _assert_mentions(error: DecodeError, event_type: str) -> None:
    assert event_type in str(error)


_JUNK_KEYS = sorted(
    {key for kind in payload_types().values() for field in msgspec.structs.fields(kind) for key in (field.encode_name,)}
    | {"tool_call_id", "tool_name", "Returned", "returned", "missingfields", "missing_fields", "Extra"}
)


@settings(max_examples=40 * EXAMPLES)
@given(
    st.sampled_from([*payload_types(), "later"]),
    st.one_of(
        st.dictionaries(st.sampled_from(_JUNK_KEYS), wrong_values(), max_size=5),
        st.dictionaries(texts(5) | st.integers() | st.none(), wrong_values(), max_size=3),
        wrong_values(),
    ),
    st.booleans(),
)
def test_junk_map_becomes_a_payload_or_a_decode_error(event_type: str, junk: Any, complete: bool) -> None:
    data: Any = junk
    if complete and type(junk) is dict:
        data = _REQUIRED | data
    try:
        read = payload_from_map(event_type, data)
    except DecodeError as error:
        _assert_mentions(error, event_type)
        return
    assert read.event_type == event_type


@settings(max_examples=20 * EXAMPLES)
@given(
    st.dictionaries(
        st.sampled_from(
            ["type", "Type", "timestamp", "Timestamp", "data", "Data", "labels", "Labels", "event_id", "seq"]
        ),
        wrong_values() | st.just("2026-01-01T00:00:00Z") | st.sampled_from(list(payload_types())),
    )
    | wrong_values()
)
def test_junk_map_becomes_an_event_or_a_decode_error(junk: Any) -> None:
    try:
        event = Event.from_map(junk)
    except DecodeError:
        return
    assert event.type
    assert event.timestamp.tzinfo is UTC


@settings(max_examples=12 * EXAMPLES)
@given(
    st.sampled_from([*payload_types(), "later"]),
    st.one_of(st.binary(max_size=30), texts(), json_values().map(json.dumps)),
)
@example("user_message", "[" * 100_000)
@example("user_message", '{"structured":' + "[" * 3000 + "]" * 3000 + "}")
@example("user_message", '{"structured":' + "9" * 5000 + "}")
@example("user_message", b'{"message":"\xff"}')
@example("user_message", '{"message":"\ud800"}')
@example("later", '{"message":"\ud800"}')
@example("user_message", '{"message":"\\ud800"}')
@example("user_message", '{"structured":1e999}')
@example("later", "null")
@example("later", "")
def test_junk_text_becomes_a_payload_or_a_decode_error(event_type: str, text: str | bytes) -> None:
    try:
        read = decode_payload(event_type, text)
    except DecodeError as error:
        _assert_mentions(error, event_type)
        return
    assert read.event_type == event_type


@settings(max_examples=20 * EXAMPLES)
@given(
    st.sampled_from(["type", "timestamp", "data", "labels", "event_id"]),
    wrong_values() | st.dictionaries(texts(5), wrong_values(), max_size=2),
)
@example("type", OddObject())
@example("type", OddText("user_message"))
@example("labels", [])
@example("labels", None)
@example("labels", {"k" * 129: ""})
@example("labels", {str(number): "" for number in range(65)})
@example("labels", {10**5000: ""})
@example("event_id", "x" * 513)
@example("event_id", None)
@example("timestamp", datetime(2026, 1, 1))  # noqa: DTZ001  # naive on purpose
def test_event_without_new_event_is_prepared_or_refused(name: str, value: Any) -> None:
    fields: dict[str, Any] = {
        "type": "user_message",
        "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
        "data": UserMessage(message="x"),
        "labels": {},
        "event_id": "id",
    }
    event = Event(**{**fields, name: value})
    try:
        prepared = prepare(event)
    except InvalidEvent as error:
        _assert_names_field(error, "type" if error.field == "type" else name)
        return
    assert type(prepared.event_id) is str
    assert prepared.event_id
    assert prepared.labels is None or all(type(k) is str and type(v) is str for k, v in prepared.labels.items())


def test_each_payload_of_the_same_shape_is_checked() -> None:
    """After a valid payload, an invalid payload with values of the same types is still refused."""
    for good, bad, field in (
        (UserMessage(structured=1), UserMessage(structured=10**5000), "data.structured"),
        (UserMessage(structured="a"), UserMessage(structured="\ud800"), "data.structured"),
        (UserMessage(message="a"), UserMessage(message="\ud800"), "data.message"),
        (Thinking(content_index=1), Thinking(content_index=2**63), "data.content_index"),
        (Thinking(content_index=-1), Thinking(content_index=-(2**63) - 1), "data.content_index"),
        (UserMessage(structured=1.5), UserMessage(structured=float("nan")), "data.structured"),
    ):
        encode_payload(good)
        encode_payload(good)
        with pytest.raises(InvalidEvent) as caught:
            encode_payload(bad)
        assert caught.value.field == field


def test_payload_copies_the_callers_mutable_values() -> None:
    inner: list[JsonValue] = [1]
    caller_map: dict[str, JsonValue] = {"a": inner}
    text, owned = encode_payload(UserMessage(structured=caller_map))
    unknown: Mapping[str, Any] = {"a": inner}
    unknown_owned = encode_payload(UnknownPayload(type="later", data=unknown))[1]
    built = UserMessage(structured=caller_map).to_map()
    read = payload_from_map("user_message", {"structured": caller_map})
    inner.append(2)
    caller_map["b"] = 3
    assert owned == UserMessage(structured={"a": [1]}) == decode_payload("user_message", text) == read
    assert unknown_owned == UnknownPayload(type="later", data={"a": [1]})
    assert built == {"structured": {"a": [1]}}
