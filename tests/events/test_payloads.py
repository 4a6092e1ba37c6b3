"""Tests of each built-in payload's map: its keys, the fields that it leaves out, and the spellings that are read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from agent_memory_log import (
    Annotation,
    AssistantMessage,
    Checkpoint,
    Compaction,
    EventData,
    EventType,
    InjectedContext,
    JsonValue,
    ModelRequest,
    PlannerNote,
    Redacted,
    RetryHint,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)
from agent_memory_log.errors import DecodeError, InvalidEvent
from agent_memory_log.events.fields import UnknownFields
from agent_memory_log.events.nested import Bounds, EventPlace, ToolTelemetry
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.events.registry import decode_payload, encode_payload, payload_from_map, payload_types

NO_HINT = {
    "Reason": "",
    "Tool": "",
    "RestrictToTool": False,
    "MissingFields": None,
    "ExampleInput": None,
    "PriorInput": None,
    "ClarifyingQuestion": "",
    "Message": "",
}
NO_BOUNDS = {"Returned": 0, "Total": None, "Truncated": False, "NextCursor": None, "RefinementHint": ""}
NO_TELEMETRY = {"DurationMs": 0, "TokensUsed": 0, "Model": "", "Extra": None}
HINT = RetryHint(
    reason="missing_fields",
    tool="orders.find",
    restrict_to_tool=True,
    missing_fields=("id",),
    example_input={"id": 7},
    prior_input={},
    clarifying_question="Which order?",
    message="Ask for the id.",
)
HINT_MAP = {
    "Reason": "missing_fields",
    "Tool": "orders.find",
    "RestrictToTool": True,
    "MissingFields": ["id"],
    "ExampleInput": {"id": 7},
    "PriorInput": {},
    "ClarifyingQuestion": "Which order?",
    "Message": "Ask for the id.",
}

MAPS: list[tuple[str, EventData, Mapping[str, object]]] = [
    ("user_message", UserMessage(), {}),
    ("user_message", UserMessage(message="hi", structured={"a": None}), {"message": "hi", "structured": {"a": None}}),
    ("assistant_message", AssistantMessage(), {}),
    ("assistant_message", AssistantMessage(message="hi", structured=[1]), {"message": "hi", "structured": [1]}),
    ("system_message", SystemMessage(), {}),
    ("system_message", SystemMessage(message="be kind"), {"message": "be kind"}),
    ("tool_call", ToolCall(tool_call_id="", tool_name=""), {"tool_call_id": "", "tool_name": ""}),
    (
        "tool_call",
        ToolCall(
            tool_call_id="tc-1",
            tool_name="orders.find",
            parent_tool_call_id="tc-0",
            payload_json=' {"id":7}',
            queue="slow",
            expected_children_total=2,
            structured={"openai": {"index": 0}},
        ),
        {
            "tool_call_id": "tc-1",
            "tool_name": "orders.find",
            "parent_tool_call_id": "tc-0",
            "payload": ' {"id":7}',
            "queue": "slow",
            "expected_children_total": 2,
            "structured": {"openai": {"index": 0}},
        },
    ),
    ("tool_result", ToolResult(tool_call_id="", tool_name=""), {"tool_call_id": "", "tool_name": ""}),
    (
        "tool_result",
        ToolResult(
            tool_call_id="tc-1",
            tool_name="orders.find",
            parent_tool_call_id="tc-0",
            result_json="null",
            server_data="[1]",
            preview="one",
            bounds=Bounds(returned=1, total=0, truncated=True, next_cursor="c", refinement_hint="less"),
            duration_ns=5,
            telemetry=ToolTelemetry(duration_ms=1, tokens_used=2, model="m", extra={"k": [None]}),
            retry_hint=HINT,
            error_message="no",
            structured=0,
        ),
        {
            "tool_call_id": "tc-1",
            "tool_name": "orders.find",
            "parent_tool_call_id": "tc-0",
            "result_json": "null",
            "server_data": "[1]",
            "preview": "one",
            "bounds": {
                "Returned": 1,
                "Total": 0,
                "Truncated": True,
                "NextCursor": "c",
                "RefinementHint": "less",
            },
            "duration": 5,
            "telemetry": {"DurationMs": 1, "TokensUsed": 2, "Model": "m", "Extra": {"k": [None]}},
            "retry_hint": HINT_MAP,
            "error_message": "no",
            "structured": 0,
        },
    ),
    (
        "tool_result",
        ToolResult(tool_call_id="a", tool_name="b", bounds=Bounds(), telemetry=ToolTelemetry(), retry_hint=RetryHint()),
        {
            "tool_call_id": "a",
            "tool_name": "b",
            "bounds": NO_BOUNDS,
            "telemetry": NO_TELEMETRY,
            "retry_hint": NO_HINT,
        },
    ),
    ("planner_note", PlannerNote(note=""), {"note": ""}),
    ("thinking", Thinking(), {"content_index": 0, "final": False}),
    (
        "thinking",
        Thinking(text="hm", signature="s", redacted=b"opaque", content_index=1, final=True),
        {"text": "hm", "signature": "s", "redacted": "b3BhcXVl", "content_index": 1, "final": True},
    ),
    (
        "thinking",
        Thinking(text="hm", structured={"openai-responses": {"fields": {"id": "rs_1"}}}),
        {
            "text": "hm",
            "content_index": 0,
            "final": False,
            "structured": {"openai-responses": {"fields": {"id": "rs_1"}}},
        },
    ),
    ("model_request", ModelRequest(provider="", model=""), {"provider": "", "model": ""}),
    (
        "model_request",
        ModelRequest(
            provider="anthropic",
            model="claude",
            system="Be kind.",
            system_hash="a1",
            tools=[{"name": "orders--find"}],
            tools_hash="b2",
            parameters={"thinking": {"type": "adaptive"}},
        ),
        {
            "provider": "anthropic",
            "model": "claude",
            "system": "Be kind.",
            "system_hash": "a1",
            "tools": [{"name": "orders--find"}],
            "tools_hash": "b2",
            "parameters": {"thinking": {"type": "adaptive"}},
        },
    ),
    ("retry_hint", RetryHint(), NO_HINT),
    ("retry_hint", HINT, HINT_MAP),
    ("annotation", Annotation(), {}),
    ("annotation", Annotation(message="seen"), {"message": "seen"}),
    ("redacted", Redacted(original_type="tool_call"), {"original_type": "tool_call"}),
    (
        "redacted",
        Redacted(original_type="tool_call", reason="asked"),
        {"original_type": "tool_call", "reason": "asked"},
    ),
    ("injected_context", InjectedContext(), {}),
    (
        "injected_context",
        InjectedContext(
            "language: english",
            records=("rec-1",),
            messages=(
                EventPlace(agent="a", run="r", seq=7, event_id="evt-7"),
                EventPlace(agent="a", run="r", seq=8),
            ),
            token_count=4,
            source="pre_task",
        ),
        {
            "text": "language: english",
            "records": ["rec-1"],
            "messages": [
                {"agent": "a", "run": "r", "seq": 7, "event_id": "evt-7"},
                {"agent": "a", "run": "r", "seq": 8},
            ],
            "token_count": 4,
            "source": "pre_task",
        },
    ),
    ("compaction", Compaction(), {}),
    (
        "compaction",
        Compaction("We spoke of orders.", up_to=9, structured={"openai-responses": {"items": []}}),
        {"text": "We spoke of orders.", "up_to": 9, "structured": {"openai-responses": {"items": []}}},
    ),
    ("checkpoint", Checkpoint(), {}),
    (
        "checkpoint",
        Checkpoint("cp-1", location="AGENT_MEMORY_CHECKPOINTS", structured={"size": 3}),
        {"checkpoint_id": "cp-1", "location": "AGENT_MEMORY_CHECKPOINTS", "structured": {"size": 3}},
    ),
    ("redaction", Redaction(seqs=()), {"seqs": []}),
    ("redaction", Redaction(seqs=(1, 2), reason="asked"), {"seqs": [1, 2], "reason": "asked"}),
]


@pytest.mark.parametrize(("event_type", "payload", "expected"), MAPS)
def test_payload_survives_its_map(event_type: str, payload: EventData, expected: Mapping[str, object]) -> None:
    assert payload.event_type == event_type
    built = payload.to_map()
    assert built == expected
    assert json.dumps(built, sort_keys=True) == json.dumps(expected, sort_keys=True)  # 0 is not False
    assert type(payload).from_map(expected) == payload
    assert payload_from_map(event_type, expected) == payload
    assert json.loads(encode_payload(payload)[0]) == expected


def test_every_event_type_has_test_rows() -> None:
    assert {row[0] for row in MAPS} == {kind.value for kind in EventType} == set(payload_types()) & set(EventType)


@pytest.mark.parametrize("value", [False, 0, "", [], {}, 0.0])
@pytest.mark.parametrize("kind", [UserMessage, AssistantMessage, SystemMessage])
def test_structured_is_left_out_only_when_null(kind: type[UserMessage], value: Any) -> None:
    assert kind(structured=value).to_map() == {"structured": value}
    assert kind.from_map({"structured": value}).structured == value
    assert kind.from_map({"structured": None}) == kind() == kind.from_map({})


@pytest.mark.parametrize("kind", [Bounds, ToolTelemetry])
@pytest.mark.parametrize("full", [False, True])
def test_nested_map_writes_every_field(kind: type[Bounds | ToolTelemetry], *, full: bool) -> None:
    value = (
        Bounds(returned=1, total=2, truncated=True, next_cursor="", refinement_hint="x")
        if kind is Bounds
        else ToolTelemetry(duration_ms=3, tokens_used=4, model="m", extra={})
    )
    value = value if full else kind()
    keys = [field.encode_name for field in msgspec.structs.fields(kind)]
    assert list(value.to_map()) == [key for key in keys if key != "unknown_fields"]
    assert kind.from_map(value.to_map()) == value


SPELLINGS: list[tuple[str, Mapping[str, object]]] = [
    ("CamelCase", HINT_MAP),
    ("lower case", {key.lower(): value for key, value in HINT_MAP.items()}),
    ("upper case", {key.upper(): value for key, value in HINT_MAP.items()}),
    ("camelCase", {key[0].lower() + key[1:]: value for key, value in HINT_MAP.items()}),
    ("snake_case", {re.sub(r"(?<=.)([A-Z])", r"_\1", key).lower(): value for key, value in HINT_MAP.items()}),
    ("null in one, the value in another", {**dict.fromkeys(HINT_MAP), **{k.lower(): v for k, v in HINT_MAP.items()}}),
    ("exact before any case", {**{key.lower(): "wrong" for key in HINT_MAP}, **HINT_MAP}),
    (
        "any case before snake_case",
        {"restrict_to_tool": "wrong", "missing_fields": 5, **{k.lower(): v for k, v in HINT_MAP.items()}},
    ),
]


@pytest.mark.parametrize("spelling", [row[1] for row in SPELLINGS], ids=[row[0] for row in SPELLINGS])
def test_nested_maps_are_read_in_every_spelling(spelling: Mapping[str, object]) -> None:
    assert RetryHint.from_map(spelling) == HINT
    inside = {"tool_call_id": "a", "tool_name": "b", "retry_hint": spelling}
    assert ToolResult.from_map(inside).retry_hint == HINT
    # Text in a store may have been written by another program too.
    stored = decode_payload("tool_result", json.dumps(inside))
    assert isinstance(stored, ToolResult)
    assert stored.retry_hint == HINT
    assert decode_payload("retry_hint", json.dumps(spelling)) == HINT


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"returned": 5, "TOTAL": 0, "nextcursor": "c"}, Bounds(returned=5, total=0, next_cursor="c")),
        ({"next_cursor": "c", "refinement_hint": "r"}, Bounds(next_cursor="c", refinement_hint="r")),
        ({"Returned": 5.0, "Total": 7.0}, Bounds(returned=5, total=7)),
        (dict.fromkeys(NO_BOUNDS), Bounds()),
    ],
)
def test_bounds_are_read_in_every_spelling(data: Mapping[str, object], expected: Bounds) -> None:
    assert Bounds.from_map(data) == expected
    text = json.dumps({"tool_call_id": "a", "tool_name": "b", "bounds": data})
    assert decode_payload("tool_result", text) == ToolResult(tool_call_id="a", tool_name="b", bounds=expected)


REQUIRED_VALUES: dict[str, object] = {
    "tool_call_id": "",
    "tool_name": "",
    "note": "",
    "original_type": "",
    "seqs": [],
    "provider": "",
    "model": "",
}
REQUIRED = [
    ("tool_call", "tool_call_id"),
    ("tool_call", "tool_name"),
    ("tool_result", "tool_call_id"),
    ("tool_result", "tool_name"),
    ("planner_note", "note"),
    ("redacted", "original_type"),
    ("redaction", "seqs"),
    ("model_request", "provider"),
    ("model_request", "model"),
]


@pytest.mark.parametrize(("event_type", "field"), REQUIRED)
def test_missing_required_field_is_named(event_type: str, field: str) -> None:
    complete = REQUIRED_VALUES
    payload_from_map(event_type, complete)
    without_field = {key: value for key, value in complete.items() if key != field}
    for data, problem in ((without_field, "is missing"), ({**complete, field: None}, "is null")):
        with pytest.raises(DecodeError) as caught:
            payload_from_map(event_type, data)
        assert event_type in str(caught.value)
        assert field in str(caught.value)
        assert problem in str(caught.value)


def test_every_optional_field_may_be_null() -> None:
    for event_type, kind in payload_types().items():
        fields = [field for field in msgspec.structs.fields(kind) if event_type in set(EventType)]
        fields = [field for field in fields if field.name != "unknown_fields"]
        optional = {field.encode_name: None for field in fields if not field.required}
        required = {field.encode_name: REQUIRED_VALUES[field.encode_name] for field in fields if field.required}
        if fields:
            assert payload_from_map(event_type, {**required, **optional}) == payload_from_map(event_type, required)


WRONG: dict[str, list[Any]] = {
    "text": [5, True, 1.5, [], {}, b"x"],
    "integer": ["5", True, 1.5, [], {}, 2**63, -(2**63) - 1, 1e19, float("inf")],
    "truth": [0, 1, "true", [], {}],
    "map": [5, "x", [], True],
}
TYPES: dict[object, str] = {
    "message": "text", "note": "text", "text": "text", "signature": "text", "reason": "text", "original_type": "text",
    "tool_call_id": "text", "tool_name": "text", "parent_tool_call_id": "text", "queue": "text", "preview": "text",
    "error_message": "text", "Reason": "text", "Tool": "text", "ClarifyingQuestion": "text", "Message": "text",
    "provider": "text", "model": "text", "system_hash": "text", "tools_hash": "text", "parameters": "map",
    "expected_children_total": "integer", "duration": "integer", "content_index": "integer",
    "final": "truth", "RestrictToTool": "truth",
    "bounds": "map", "telemetry": "map", "retry_hint": "map", "ExampleInput": "map", "PriorInput": "map",
}  # fmt: skip


@pytest.mark.parametrize("event_type", sorted(kind.value for kind in EventType))
def test_wrong_type_error_names_event_type_field_and_value(event_type: str) -> None:
    kind = payload_types()[event_type]
    for field in msgspec.structs.fields(kind):
        for value in WRONG.get(TYPES.get(field.encode_name, ""), []):
            with pytest.raises(DecodeError) as caught:
                kind.from_map({**REQUIRED_VALUES, field.encode_name: value})
            message = str(caught.value)
            assert event_type in message
            assert repr(field.encode_name) in message
            assert type(value).__name__ in message


BESIDE: dict[str, object] = {"Later": 1, "": [None, {"a": 1.0}], "unknown_fields": {}}


@pytest.mark.parametrize("kind", [Bounds, ToolTelemetry, RetryHint, *(payload_types()[name] for name in EventType)])
def test_unknown_fields_are_kept_and_written_back(kind: type[Bounds | EventData]) -> None:
    required = {
        field.encode_name: REQUIRED_VALUES[field.encode_name]
        for field in msgspec.structs.fields(kind)
        if field.required
    }
    value = kind.from_map({**required, **BESIDE})
    assert value.unknown_fields == BESIDE  # type: ignore[union-attr]  # every kind above has the field
    assert value.to_map() == {**kind.from_map(required).to_map(), **BESIDE}
    if isinstance(value, EventData):
        stored = encode_payload(value)[0]
        assert json.loads(stored) == value.to_map()
        assert decode_payload(value.event_type, stored) == value


def test_unknown_fields_are_json_and_never_replace_a_known_field() -> None:
    wrong: list[tuple[dict[Any, Any], str]] = [
        ({"later": float("nan")}, "data.unknown_fields.later"),
        ({"message": "x"}, "data.unknown_fields.message"),
        ({1: 2}, "data.unknown_fields"),
    ]
    for fields, path in wrong:
        for write in (UserMessage.to_map, encode_payload):
            with pytest.raises(InvalidEvent) as caught:
                write(UserMessage("U", unknown_fields=UnknownFields(fields)))
            assert caught.value.field == path


def test_redaction_seqs_accept_integral_floats() -> None:
    assert Redaction.from_map({"seqs": [1.0, 2]}) == Redaction(seqs=(1, 2))
    for seqs, problem in (([1.5], "[0]"), ([1, True], "[1]"), ("12", "str"), ({"1": 2}, "dict")):
        with pytest.raises(DecodeError, match=re.escape(problem)):
            Redaction.from_map({"seqs": seqs})


def test_numbers_are_floats_by_default_and_exact_on_request() -> None:
    text = '{"big":123456789012345678901234567890,"price":1.10,"list":[0.1]}'
    big = 123456789012345678901234567890
    exact = {"big": big, "price": Decimal("1.10"), "list": [Decimal("0.1")]}
    call = ToolCall(tool_call_id="", tool_name="", payload_json=text)
    outcome = ToolResult(tool_call_id="", tool_name="", result_json=text)
    for plain in (call.input(), outcome.result()):
        assert plain == {"big": big, "price": 1.1, "list": [0.1]}
        assert json.loads(json.dumps(plain)) == plain
    assert call.input(exact_numbers=True) == outcome.result(exact_numbers=True) == exact
    assert str(call.input(exact_numbers=True)["price"]) == "1.10"  # type: ignore[index]  # it is the map above
    assert call.to_map()["payload"] == text


def test_a_number_too_large_for_a_float_needs_exact_numbers() -> None:
    call = ToolCall(tool_call_id="", tool_name="", payload_json="[1E400]")
    with pytest.raises(DecodeError, match="exact_numbers=True"):
        call.input()
    assert call.input(exact_numbers=True) == [Decimal("1E400")]


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u00a0"])
def test_blank_json_text_is_absent(text: str) -> None:
    call = ToolCall(tool_call_id="", tool_name="", payload_json=text)
    result = ToolResult(tool_call_id="", tool_name="", result_json=text, server_data=text)
    assert call.input() is None
    assert result.result() is None
    assert call.to_map() == result.to_map() == {"tool_call_id": "", "tool_name": ""}


@pytest.mark.parametrize(
    "text", ["{", "{'a': 1}", "NaN", "1 2", "\ud800", "9" * 5000, "[" * 100_000, "1e9999999999999999999"]
)
def test_invalid_json_text_fails_only_when_it_is_decoded(text: str) -> None:
    with pytest.raises(DecodeError, match="tool_call field 'payload' is not JSON"):
        ToolCall(tool_call_id="", tool_name="", payload_json=text).input()
    with pytest.raises(DecodeError, match="tool_result field 'result_json' is not JSON"):
        ToolResult(tool_call_id="", tool_name="", result_json=text).result()


def test_json_text_null_is_not_absent() -> None:
    call = ToolCall.from_map({"tool_call_id": "", "tool_name": "", "payload": "null"})
    assert call.payload_json == "null"
    assert call.input() is None
    assert call.to_map()["payload"] == "null"


@pytest.mark.parametrize("field", ["result_json", "server_data"])
def test_json_value_in_a_text_field_becomes_compact_text(field: str) -> None:
    for value, text in (
        ({"a": [1, 2.5, None]}, '{"a":[1,2.5,null]}'),
        (10**30, "1" + "0" * 30),
        (b'{"a": 1}', '{"a": 1}'),
        (bytearray(b"[1]"), "[1]"),
        (b" ", ""),
    ):
        read = ToolResult.from_map({"tool_call_id": "", "tool_name": "", field: value})
        assert getattr(read, field) == text
    with pytest.raises(DecodeError, match=f"tool_result field '{field}'"):
        ToolResult.from_map({"tool_call_id": "", "tool_name": "", field: {"a": float("nan")}})


def test_an_unknown_type_keeps_its_map() -> None:
    data: dict[str, JsonValue] = {"z": 1, "a": {"$k": [None, 10**30, -0.0]}, "": "\x00"}
    read = payload_from_map("from_a_newer_release", data)
    assert read == UnknownPayload(type="from_a_newer_release", data=data)
    assert read.event_type == "from_a_newer_release"
    assert list(read.to_map()) == ["z", "a", ""]
    assert str(read.to_map()) == str(data)
    text = encode_payload(read)[0]
    assert decode_payload("from_a_newer_release", text) == read


def test_unknown_payload_refuses_registered_types_and_invalid_data() -> None:
    for payload, field in (
        (UnknownPayload(type="user_message", data={}), "type"),
        (UnknownPayload(type="", data={}), "type"),
        (UnknownPayload(type="a\ud800", data={}), "type"),
        (UnknownPayload(type=5, data={}), "type"),  # type: ignore[arg-type]  # wrong on purpose
        (UnknownPayload(type="later", data=[]), "data"),  # type: ignore[arg-type]  # wrong on purpose
        (UnknownPayload(type="later", data={"a": float("nan")}), "data.a"),
        (UnknownPayload(type="later", data={1: 2}), "data"),  # type: ignore[dict-item]  # wrong on purpose
    ):
        with pytest.raises(InvalidEvent) as caught:
            encode_payload(payload)
        assert caught.value.field == field
    with pytest.raises(DecodeError, match="later: data must be a map, got list"):
        UnknownPayload.of("later", [])
    with pytest.raises(DecodeError, match=r"UnknownPayload\.of"):
        UnknownPayload.from_map({"a": 1})


def test_to_map_names_the_field_that_is_not_json() -> None:
    for payload, field in (
        (UserMessage(structured={"a": [float("nan")]}), "data.structured.a[0]"),
        (UserMessage(message="\ud800"), "data.message"),
        (ToolCall(tool_call_id="", tool_name="", payload_json="\ud800"), "data.payload_json"),
        (
            ToolResult(tool_call_id="", tool_name="", telemetry=ToolTelemetry(extra={"a": {1, 2}})),  # type: ignore[dict-item]  # wrong on purpose
            "data.telemetry.extra.a",
        ),
        (RetryHint(prior_input={"a": object()}), "data.prior_input.a"),  # type: ignore[dict-item]  # wrong on purpose
    ):
        with pytest.raises(InvalidEvent) as caught:
            payload.to_map()
        assert caught.value.field == field
        assert payload.event_type in str(caught.value)


def test_payloads_are_frozen() -> None:
    for _, payload, _ in MAPS:
        with pytest.raises(AttributeError):
            setattr(payload, payload.__struct_fields__[0], "changed")
