"""Tests with events that the Go original wrote, and with unusual input whose result in the original is known.

The rows were copied by hand from the output of the original's decoder. The original has defects: integers out of range
wrap, numbers lose digits, and invalid JSON text cannot be written again. In these cases, the row holds the result of
this library.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from agent_memory_log import Event, EventData, PlannerNote, RetryHint, Thinking, ToolCall, ToolResult, UserMessage
from agent_memory_log.errors import DecodeError
from agent_memory_log.events.fields import UnknownFields
from agent_memory_log.events.nested import Bounds, ToolTelemetry
from agent_memory_log.events.registry import decode_payload, encode_payload, payload_from_map

CALL: dict[str, object] = {"tool_call_id": "a", "tool_name": "b"}
RESULT = CALL


def call(**fields: Any) -> ToolCall:
    return ToolCall(tool_call_id="a", tool_name="b", **fields)


def result(**fields: Any) -> ToolResult:
    return ToolResult(tool_call_id="a", tool_name="b", **fields)


READ: list[tuple[str, str, Mapping[str, object], EventData]] = [
    (
        "empty tool_call_id/tool_name",
        "tool_call",
        {"tool_call_id": "", "tool_name": ""},
        ToolCall(tool_call_id="", tool_name=""),
    ),
    ("payload empty text", "tool_call", {**CALL, "payload": ""}, call()),
    ("payload white space", "tool_call", {**CALL, "payload": " \n\t"}, call()),
    ("payload invalid text", "tool_call", {**CALL, "payload": "{not json"}, call(payload_json="{not json")),
    ("payload bytes are text", "tool_call", {**CALL, "payload": b'{"q":1}'}, call(payload_json='{"q":1}')),
    ("payload number", "tool_call", {**CALL, "payload": 3.5}, call(payload_json="3.5")),
    (
        "payload map",
        "tool_call",
        {**CALL, "payload": {"b": "<a&b>", "a": 1e21}},
        call(payload_json='{"b":"<a&b>","a":1e21}'),
    ),
    ("payload empty list", "tool_call", {**CALL, "payload": []}, call(payload_json="[]")),
    ("payload false", "tool_call", {**CALL, "payload": False}, call(payload_json="false")),
    ("payload null", "tool_call", {**CALL, "payload": None}, call()),
    ("payload text null", "tool_call", {**CALL, "payload": "null"}, call(payload_json="null")),
    ("expected 2.0", "tool_call", {**CALL, "expected_children_total": 2.0}, call(expected_children_total=2)),
    ("expected null", "tool_call", {**CALL, "expected_children_total": None}, call()),
    ("duration 3e9", "tool_result", {**RESULT, "duration": 3e9}, result(duration_ns=3_000_000_000)),
    ("duration null", "tool_result", {**RESULT, "duration": None}, result()),
    ("bounds empty map", "tool_result", {**RESULT, "bounds": {}}, result(bounds=Bounds())),
    ("bounds null", "tool_result", {**RESULT, "bounds": None}, result()),
    ("bounds null total", "tool_result", {**RESULT, "bounds": {"Total": None}}, result(bounds=Bounds())),
    ("bounds total 0", "tool_result", {**RESULT, "bounds": {"Total": 0}}, result(bounds=Bounds(total=0))),
    (
        "retry unknown key, kept",
        "tool_result",
        {**RESULT, "retry_hint": {"Nope": 1}},
        result(retry_hint=RetryHint(unknown_fields=UnknownFields(Nope=1))),
    ),
    (
        "bounds with a continuation, kept",
        "tool_result",
        {**RESULT, "bounds": {"returned": 1, "continuation": {"Tool": "more"}}},
        result(bounds=Bounds(returned=1, unknown_fields=UnknownFields(continuation={"Tool": "more"}))),
    ),
    (
        "artifacts, kept",
        "tool_result",
        {**RESULT, "artifacts": [{"data": "eA=="}], "signature": b"x"},
        result(unknown_fields=UnknownFields(artifacts=[{"data": "eA=="}], signature="eA==")),
    ),
    (
        "telemetry extra big int, kept exactly",
        "tool_result",
        {**RESULT, "telemetry": {"Extra": {"n": 9007199254740993}}},
        result(telemetry=ToolTelemetry(extra={"n": 9007199254740993})),
    ),
    (
        "error and result both",
        "tool_result",
        {**RESULT, "result_json": "{}", "error_message": "x"},
        result(result_json="{}", error_message="x"),
    ),
    ("redacted with a line break", "thinking", {"redacted": "b3Bh\r\ncXVl"}, Thinking(redacted=b"opaque")),
    ("redacted raw bytes", "thinking", {"redacted": b"\xff\x00"}, Thinking(redacted=b"\xff\x00")),
    ("thinking empty map", "thinking", {}, Thinking()),
    ("note empty", "planner_note", {"note": ""}, PlannerNote(note="")),
    ("user message null", "user_message", {"message": None}, UserMessage()),
    (
        "user unknown key, kept",
        "user_message",
        {"message": "x", "later": 1},
        UserMessage(message="x", unknown_fields=UnknownFields(later=1)),
    ),
]

REFUSED: list[tuple[str, str, object, tuple[str, ...]]] = [
    ("missing tool_call_id", "tool_call", {"tool_name": "b"}, ("tool_call_id", "is missing")),
    ("missing tool_name", "tool_call", {"tool_call_id": "b"}, ("tool_name", "is missing")),
    ("null tool_call_id", "tool_call", {**CALL, "tool_call_id": None}, ("tool_call_id", "null")),
    ("result without id", "tool_result", {"tool_name": "b"}, ("tool_call_id", "is missing")),
    ("expected 2.5", "tool_call", {**CALL, "expected_children_total": 2.5}, ("expected_children_total", "2.5")),
    ("expected bool", "tool_call", {**CALL, "expected_children_total": True}, ("expected_children_total", "bool")),
    ("expected str", "tool_call", {**CALL, "expected_children_total": "2"}, ("expected_children_total", "str")),
    ("expected 1e30, which wraps in the original", "tool_call", {**CALL, "expected_children_total": 1e30}, ("1e+30",)),
    ("expected 2**63", "tool_call", {**CALL, "expected_children_total": 2**63}, ("expected_children_total", "64")),
    ("expected 2.0**63", "tool_call", {**CALL, "expected_children_total": 2.0**63}, ("expected_children_total",)),
    ("expected nan", "tool_call", {**CALL, "expected_children_total": float("nan")}, ("expected_children_total",)),
    ("queue wrong", "tool_call", {**CALL, "queue": 5}, ("queue", "int 5")),
    ("duration 1.5", "tool_result", {**RESULT, "duration": 1.5}, ("duration", "1.5")),
    ("duration str", "tool_result", {**RESULT, "duration": "3s"}, ("duration", "'3s'")),
    ("bounds list", "tool_result", {**RESULT, "bounds": []}, ("bounds", "list")),
    ("bounds fractional", "tool_result", {**RESULT, "bounds": {"Returned": 1.5}}, ("bounds", "Returned", "1.5")),
    ("retry wrong", "tool_result", {**RESULT, "retry_hint": {"RestrictToTool": "x"}}, ("retry_hint", "RestrictToTool")),
    ("telemetry wrong", "tool_result", {**RESULT, "telemetry": {"Extra": []}}, ("telemetry", "Extra", "list")),
    ("payload bytes not UTF-8", "tool_call", {**CALL, "payload": b"\xff"}, ("payload", "UTF-8")),
    ("redacted bad base64", "thinking", {"redacted": "!!!"}, ("redacted", "base64")),
    ("redacted URL-safe", "thinking", {"redacted": "_-8="}, ("redacted", "base64")),
    ("redacted unpadded", "thinking", {"redacted": "b3BhcXU"}, ("redacted", "base64")),
    ("redacted with a space", "thinking", {"redacted": "b3Bh cXVl"}, ("redacted", "base64")),
    ("redacted number", "thinking", {"redacted": 5}, ("redacted", "int 5")),
    ("final str", "thinking", {"final": "true"}, ("final", "str")),
    ("final 1", "thinking", {"final": 1}, ("final", "int 1")),
    ("note missing", "planner_note", {}, ("note", "is missing")),
    ("note null", "planner_note", {"note": None}, ("note", "null")),
    ("user data null", "user_message", None, ("null",)),
    ("user data list", "user_message", [], ("list",)),
    ("user message number", "user_message", {"message": 5}, ("message", "int 5")),
]


@pytest.mark.parametrize(("event_type", "data", "expected"), [row[1:] for row in READ], ids=[row[0] for row in READ])
def test_reads_the_input_that_the_original_reads(
    event_type: str, data: Mapping[str, object], expected: EventData
) -> None:
    assert payload_from_map(event_type, data) == expected


@pytest.mark.parametrize(("event_type", "data", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refuses_the_input_that_the_original_refuses(event_type: str, data: object, words: tuple[str, ...]) -> None:
    with pytest.raises(DecodeError) as caught:
        payload_from_map(event_type, data)
    for word in (event_type, *words):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("event_type", "data", "expected"),
    [row[1:] for row in READ if not any(isinstance(value, bytes) for value in row[2].values())],
    ids=[row[0] for row in READ if not any(isinstance(value, bytes) for value in row[2].values())],
)
def test_stored_json_follows_the_same_rules(event_type: str, data: Mapping[str, object], expected: EventData) -> None:
    assert decode_payload(event_type, json.dumps(data)).to_map() == expected.to_map()


def test_invalid_json_text_fails_only_when_it_is_decoded() -> None:
    stored = payload_from_map("tool_call", {**CALL, "payload": "{not json"})
    assert stored.to_map()["payload"] == "{not json"
    assert isinstance(stored, ToolCall)
    with pytest.raises(DecodeError, match="tool_call field 'payload' is not JSON"):
        stored.input()


WRITTEN = Path(__file__).parents[3] / "shared" / "data" / "go_original_written.jsonl"


@pytest.mark.skipif(not WRITTEN.exists(), reason="the file of the original's events is not part of the project")
@pytest.mark.parametrize("form", ["json", "bson_extjson"])
def test_reads_every_event_the_original_wrote(form: str) -> None:
    lines = WRITTEN.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 150
    for number, line in enumerate(lines, 1):
        written: dict[str, Any] = json.loads(line)
        text = written[form]
        event = Event.from_map(json.loads(text) if form == "json" else json.loads(text, object_hook=_from_extended))
        position = f"line {number}"
        microseconds = written["timestamp_ns"] // 1000
        if form == "bson_extjson":
            microseconds = microseconds // 1000 * 1000
        assert event.timestamp == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds), position
        assert event.type == written["type"], position
        fields = cast("dict[str, Any]", written["fields"])
        for name, value in fields.items():
            assert _field(event.data, name) == _expected(name, value), (position, name)
        assert event.data.to_map() == Event.from_map(event.to_map()).data.to_map(), position
        assert decode_payload(event.type, encode_payload(event.data)[0]) == event.data, position


def _field(payload: object, name: str) -> object:
    return getattr(payload, _RENAMED.get(name, name))


_RENAMED = {
    "payload_text": "payload_json",
    "result_text": "result_json",
    "server_data_text": "server_data",
    "redacted_bytes": "redacted",
}
_NESTED: dict[str, Callable[..., object]] = {"bounds": Bounds, "telemetry": ToolTelemetry, "retry_hint": RetryHint}
_SNAKE = {
    "Returned": "returned",
    "Total": "total",
    "Truncated": "truncated",
    "NextCursor": "next_cursor",
    "RefinementHint": "refinement_hint",
    "DurationMs": "duration_ms",
    "TokensUsed": "tokens_used",
    "Model": "model",
    "Extra": "extra",
    "Reason": "reason",
    "Tool": "tool",
    "RestrictToTool": "restrict_to_tool",
    "MissingFields": "missing_fields",
    "ExampleInput": "example_input",
    "PriorInput": "prior_input",
    "ClarifyingQuestion": "clarifying_question",
    "Message": "message",
}


def _expected(name: str, value: Any) -> object:
    if name == "redacted_bytes":
        return base64.b64decode(value or "")
    if name in _NESTED and value is not None:
        fields = {_SNAKE[key]: item for key, item in value.items()}
        if "missing_fields" in fields:
            # The original's encoder writes an empty list as null.
            fields["missing_fields"] = tuple(fields["missing_fields"] or ()) or None
        return _NESTED[name](**fields)
    if name.endswith("_text"):
        return "" if not value or value.isspace() else value
    return value


def _from_extended(value: dict[str, Any]) -> object:
    """Convert a value from MongoDB's canonical extended JSON. It knows the types of the original's events."""
    if value.keys() == {"$numberLong"}:
        return int(value["$numberLong"])
    if value.keys() == {"$numberInt"}:
        return int(value["$numberInt"])
    if value.keys() == {"$numberDouble"}:
        return float(value["$numberDouble"])
    if value.keys() == {"$date"}:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value["$date"])
    return value
