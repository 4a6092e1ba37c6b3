"""Events and values that the tests store, including named values at the limits of what a store accepts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone

from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.fields import UnknownFields
from agent_memory_log.events.jsonvalue import MAX_DEPTH, JsonValue
from agent_memory_log.events.nested import Bounds, ToolTelemetry
from agent_memory_log.events.payloads import (
    Annotation,
    AssistantMessage,
    PlannerNote,
    RetryHint,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)

AGENT = "agent"
RUN = "run"

NOON = datetime(2021, 3, 4, 12, 0, 0, 123456, tzinfo=UTC)


def user_message(
    text: str,
    *,
    event_id: str | None = None,
    timestamp: datetime | None = None,
    labels: Mapping[str, str] | None = None,
    structured: JsonValue = None,
) -> Event:
    """Return a new user message."""
    return new_event(
        UserMessage(message=text, structured=structured), timestamp=timestamp, labels=labels, event_id=event_id
    )


def planner_note(text: str, *, event_id: str | None = None, timestamp: datetime | None = None) -> Event:
    """Return a new planner note."""
    return new_event(PlannerNote(note=text), timestamp=timestamp, event_id=event_id)


def later(minutes: int) -> datetime:
    """Return a time ``minutes`` after noon, or before noon if negative."""
    return NOON + timedelta(minutes=minutes)


def rich_event() -> Event:
    """Return an event with every kind of mutable value. Each call returns an equal event."""
    return new_event(
        ToolResult(
            tool_call_id="tc-1",
            tool_name="orders.find",
            result_json='{"order": 7}',
            bounds=Bounds(returned=1, total=0, next_cursor="n"),
            telemetry=ToolTelemetry(model="m", extra={"steps": [1, {"deep": []}]}),
            retry_hint=RetryHint(
                reason="timeout", missing_fields=("a",), example_input={"a": [1]}, prior_input={"b": {}}
            ),
            structured={"list": [{"inner": {}}], "map": {"key": [1]}},
        ),
        timestamp=NOON,
        labels={"role": "tool"},
        event_id="rich",
    )


def unknown_event() -> Event:
    """Return an event of a type that this release does not know. Each call returns an equal event."""
    return new_event(
        UnknownPayload(type="conformance.newer", data={"list": [{"x": None}], "": "empty", "Type": {"a": [1.0, 1]}}),
        timestamp=NOON,
        labels={"from": "later"},
        event_id="unknown",
    )


def every_payload() -> list[Event]:
    """Return events of each built-in type: with all fields set, with only the required fields, with unknown fields."""
    hint = RetryHint(
        reason="rate_limited",
        tool="t",
        restrict_to_tool=True,
        missing_fields=("a", "b"),
        example_input={"a": 1},
        prior_input={},
        clarifying_question="which?",
        message="again",
    )
    payloads = [
        UserMessage(message="hello", structured={"content": None}),
        UserMessage(),
        AssistantMessage(message="", structured=[]),
        AssistantMessage(structured=False),
        SystemMessage(message="be brief", structured=0),
        ToolCall(
            tool_call_id="tc-1",
            tool_name="find",
            parent_tool_call_id="tc-0",
            payload_json='{"q": 1.0}',
            queue="fast",
            expected_children_total=2**63 - 1,
            structured={"openai": {"type": "function"}},
        ),
        ToolCall(tool_call_id="", tool_name=""),
        ToolResult(
            tool_call_id="tc-1",
            tool_name="find",
            parent_tool_call_id="tc-0",
            result_json="[1]",
            server_data='{"secret": 1}',
            preview="one",
            bounds=Bounds(returned=1, total=0, truncated=True, next_cursor="", refinement_hint="less"),
            duration_ns=-(2**63),
            telemetry=ToolTelemetry(duration_ms=3, tokens_used=4, model="m", extra={}),
            retry_hint=hint,
            error_message="too slow",
            structured="",
        ),
        ToolResult(tool_call_id="", tool_name="", bounds=Bounds(), telemetry=ToolTelemetry(), retry_hint=RetryHint()),
        ToolResult(  # a newer release of the Go original writes ``Continuation`` and ``artifacts``
            tool_call_id="tc-1",
            tool_name="find",
            result_json="[1]",
            bounds=Bounds(returned=1, unknown_fields=UnknownFields(Continuation={"Tool": "more", "": [2**64, None]})),
            telemetry=ToolTelemetry(unknown_fields=UnknownFields(Cost=1.0)),
            retry_hint=RetryHint(unknown_fields=UnknownFields({"After": 1, "a.b": {"$c": []}})),
            unknown_fields=UnknownFields(
                {"artifacts": [{"name": "chart", "data": {}}], "unknown_fields": None, "$a.b\0": 1}
            ),
        ),
        PlannerNote(note=""),
        Thinking(text="hm", signature="sig==", redacted=bytes(range(256)), content_index=3, final=True),
        Thinking(),
        hint,
        RetryHint(),
        Annotation(message="seen"),
        Annotation(),
    ]
    return [new_event(payload, timestamp=later(index)) for index, payload in enumerate(payloads)]


TEXTS: dict[str, str] = {
    "empty": "",
    "white space": " \t\r\n ",
    "a NUL alone": "\x00",
    "NUL in the middle": "before\x00after",
    "all ASCII": "".join(map(chr, range(128))),
    "astral": "\U0001f9ff \U00010000 \U0010ffff",
    "combining": "e\u0301 \u00e9 \u212b \ufb01",
    "right to left": "\u202eabc\u202c \u05d0\u0627",
    "noncharacters": "\ufffe \uffff \ufdd0 \ufeff",
    "line separators": "\u2028 \u2029 \x85 \x0b",
    "quotes": 'it\'s "quoted" `here` \\ -- ; DROP TABLE events',
    "placeholders": "%s %(a)s ? :name $1 {0} ${HOME}",
    "JSON in text": '{"a": "\\u0000\\ud800", "b": [1.0]}',
    "a number": "1e400",
    "null": "null",
}
"""Texts that some databases change or reject."""


def nested(depth: int) -> JsonValue:
    """Return alternating lists and maps, nested ``depth`` levels."""
    value: JsonValue = [] if depth % 2 else {}
    for level in range(depth - 1, 0, -1):
        value = [value] if level % 2 else {"a": value}
    return value


VALUES: dict[str, JsonValue] = {
    "false": False,
    "zero": 0,
    "empty text": "",
    "empty list": [],
    "empty map": {},
    "one of each one": [1, 1.0, True, "1", [1], {"1": 1}],
    "zeros": [0, 0.0, -0.0, False, None],
    "64 bits": [2**63 - 1, -(2**63), 2**63, 2**64 - 1],
    "beyond 64 bits": [2**64, -(2**63) - 1, 10**40, -(10**400)],
    "beyond a float": [2**53 + 1, 9007199254740993],
    "floats": [0.1, 1e22, 1.5e300, 5e-324, 1.7976931348623157e308, -2.5, 123456789.12345678],
    "keys": {"": 1, "$set": 2, "a.b": 3, ".": 4, "$": 5, "\x00": 6, "\U0001f9ff": 7, "_id": 8, " ": 9, "__proto__": 10},
    "keys that differ little": {"a": 1, "A": 2, "a ": 3, "e\u0301": 4, "\u00e9": 5},
    "keys inside keys": {"$or": [{"a.b": {"$c": {"": {}}}}]},
    "BSON and JSON dialects": {
        "$oid": "0" * 24,
        "$date": 0,
        "$numberLong": "1",
        "$binary": {"base64": "", "subType": "0"},
    },
    "texts": list(TEXTS.values()),
    "as deep as it may be": nested(MAX_DEPTH),
    "many items": list(range(10_000)),
    "nulls": [None, {"a": None}],
}
"""JSON values that some databases change or reject."""

TIMES: dict[str, datetime] = {
    "the first": datetime(1, 1, 1, tzinfo=UTC),
    "the last": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "the epoch": datetime(1970, 1, 1, tzinfo=UTC),
    "before the epoch": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "one microsecond": datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    "most microseconds": datetime(2026, 1, 1, 0, 0, 0, 999999, tzinfo=UTC),
    "odd microseconds": datetime(2038, 1, 19, 3, 14, 8, 123457, tzinfo=UTC),
    "a leap day": datetime(2024, 2, 29, 23, 59, 59, 999, tzinfo=UTC),
    "half an hour east": datetime(2026, 5, 1, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    "an odd offset": datetime(1900, 5, 1, 1, 2, 3, 4, tzinfo=timezone(-timedelta(hours=2, minutes=3, seconds=4))),
}
"""Times that some databases change or reject."""

IDS = (
    "a",
    "A",
    "a ",
    " a",
    "a\t",
    "a\n",
    "a\x00",
    "a\x00b",
    "018f3e2a-7b1c-7d4e-9f60-a1b2c3d4e5f6",
    "018F3E2A-7B1C-7D4E-9F60-A1B2C3D4E5F6",
    "018f3e2a7b1c7d4e9f60a1b2c3d4e5f6",
    "{018f3e2a-7b1c-7d4e-9f60-a1b2c3d4e5f6}",
    "e\u0301",
    "\u00e9",
    "\uff41",
    "\u00df",
    "ss",
    "\u0131",
    "i",
    "I",
    "\U0001f9ff",
    "%",
    "_",
    "*",
    "?",
    "a%",
    "$",
    "$a",
    "a.b",
    "a/b",
    "a%2Fb",
    "../a",
    "a'b",
    'a"b',
    "a\\b",
    "a;b --",
    "{}",
    "[]",
    "null",
    "0",
    "00",
    "0.0",
    " ",
    "a" * 511,
    "a" * 512,
    "\U0001f9ff" * 512,
)
"""Ids that some databases confuse with each other or do not treat as text."""
