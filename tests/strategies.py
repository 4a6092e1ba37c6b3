"""Hypothesis strategies for values that the library accepts, and for values that it must refuse.

``payloads()`` and ``events()`` generate everything that can be stored. ``wrong_values()`` generates wrong values that a
careless or hostile caller may put in a field.
"""

from __future__ import annotations

import decimal
import enum
import uuid
from collections import OrderedDict, UserDict, deque
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec
from hypothesis import strategies as st

from agent_memory_log import (
    Annotation,
    AssistantMessage,
    Event,
    EventData,
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
    new_event,
)
from agent_memory_log.events.fields import UnknownFields
from agent_memory_log.events.nested import Bounds, ToolTelemetry
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.events.registry import payload_types

HOSTILE_TEXT = (
    "\x00",
    "a\x00b",
    "\x1b[31m\x07\x7f\x85",
    "\u2028\u2029\ufeff\ufffe\uffff",
    "\u202eright to left\u202c",
    "e\u0301\u0301\u0301",
    "\U0001f469\u200d\U0001f680\U0010ffff",
    "\u01c5 \u0130 \u0131 \u00df \ufb03",
    "\r\n\t \v\f\x1c",
    "$where",
    "a.b",
    ".",
    "'; DROP TABLE runs; --",
    "\\u0000 \\ud800",
    "\"</script>'",
)


@cache
def texts(max_size: int = 20) -> st.SearchStrategy[str]:
    """Generate any text that UTF-8 can encode."""
    return st.one_of(
        st.sampled_from(HOSTILE_TEXT), st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size)
    )


@cache
def keys() -> st.SearchStrategy[str]:
    """Generate keys of maps: empty keys, keys with dollars and dots, and any other text."""
    return st.one_of(st.sampled_from(["", "$", "$set", ".", "a.b", "\x00", "type", "Data"]), texts(8))


@cache
def integers64() -> st.SearchStrategy[int]:
    return st.one_of(
        st.sampled_from([0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]), st.integers(-(2**63), 2**63 - 1)
    )


@cache
def json_values(max_leaves: int = 8) -> st.SearchStrategy[JsonValue]:
    """Generate any JSON value, including null."""
    leaves: st.SearchStrategy[Any] = st.one_of(
        st.none(),
        st.booleans(),
        integers64(),
        st.sampled_from([2**64, -(10**40), 10**300]),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from([-0.0, 1e308, -1e308, 5e-324, 0.1, 1e16, 1.0]),
        texts(),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys(), inner, max_size=4)),
        max_leaves=max_leaves,
    )


@cache
def json_maps() -> st.SearchStrategy[Mapping[str, JsonValue]]:
    return st.dictionaries(keys(), json_values(4), max_size=4)


@cache
def json_texts() -> st.SearchStrategy[str]:
    """Generate the text of a call's arguments or of a result. It may be invalid JSON, but is never only white space."""
    return st.one_of(
        st.sampled_from(["", "null", '{"id":7}', " { } ", "{not json", '{"n":1.10,"n":9007199254740993}', "0"]), texts()
    ).filter(lambda text: not text or not text.isspace())


@cache
def unknown_fields() -> st.SearchStrategy[UnknownFields | msgspec.UnsetType]:
    """Generate fields of built-in payloads and nested maps that a newer release might write."""
    maps = json_maps().filter(bool).map(lambda fields: {f"later {key}": value for key, value in fields.items()})
    return st.just(msgspec.UNSET) | maps.map(UnknownFields)


@cache
def bounds() -> st.SearchStrategy[Bounds]:
    return st.builds(
        Bounds,
        unknown_fields=unknown_fields(),
        returned=integers64(),
        total=st.none() | integers64(),
        truncated=st.booleans(),
        next_cursor=st.none() | texts(),
        refinement_hint=texts(),
    )


@cache
def telemetries() -> st.SearchStrategy[ToolTelemetry]:
    return st.builds(
        ToolTelemetry,
        unknown_fields=unknown_fields(),
        duration_ms=integers64(),
        tokens_used=integers64(),
        model=texts(),
        extra=st.none() | json_maps(),
    )


@cache
def retry_hints() -> st.SearchStrategy[RetryHint]:
    return st.builds(
        RetryHint,
        unknown_fields=unknown_fields(),
        reason=st.sampled_from(["invalid_arguments", "timeout"]) | texts(),
        tool=texts(),
        restrict_to_tool=st.booleans(),
        missing_fields=st.none() | st.lists(texts(), max_size=3).map(tuple),
        example_input=st.none() | json_maps(),
        prior_input=st.none() | json_maps(),
        clarifying_question=texts(),
        message=texts(),
    )


@cache
def tool_calls() -> st.SearchStrategy[ToolCall]:
    return st.builds(
        ToolCall,
        unknown_fields=unknown_fields(),
        tool_call_id=texts(),
        tool_name=texts(),
        parent_tool_call_id=texts(),
        payload_json=json_texts(),
        queue=texts(),
        expected_children_total=integers64(),
        structured=json_values(),
    )


@cache
def tool_results() -> st.SearchStrategy[ToolResult]:
    return st.builds(
        ToolResult,
        unknown_fields=unknown_fields(),
        tool_call_id=texts(),
        tool_name=texts(),
        parent_tool_call_id=texts(),
        result_json=json_texts(),
        server_data=json_texts(),
        preview=texts(),
        bounds=st.none() | bounds(),
        duration_ns=integers64(),
        telemetry=st.none() | telemetries(),
        retry_hint=st.none() | retry_hints(),
        error_message=texts(),
        structured=json_values(),
    )


def unknown_payloads() -> st.SearchStrategy[UnknownPayload]:
    """Generate payloads of types that a newer release might write."""
    types = texts().filter(lambda text: bool(text) and text not in payload_types())
    return st.builds(UnknownPayload, type=types, data=json_maps())


@cache
def payloads() -> st.SearchStrategy[EventData]:
    """Generate a payload of any built-in type or of an unknown type."""
    messages: list[st.SearchStrategy[EventData]] = [
        st.builds(kind, message=texts(), structured=json_values(), unknown_fields=unknown_fields())
        for kind in (UserMessage, AssistantMessage, SystemMessage)
    ]
    return st.one_of(
        *messages,
        tool_calls(),
        tool_results(),
        st.builds(
            Thinking,
            text=texts(),
            signature=texts(),
            redacted=st.binary(max_size=20),
            content_index=integers64(),
            final=st.booleans(),
            structured=json_values(),
        ),
        st.builds(
            ModelRequest,
            provider=texts(),
            model=texts(),
            system=json_values(),
            system_hash=texts(),
            tools=json_values(),
            tools_hash=texts(),
            parameters=st.none() | json_maps(),
        ),
        st.builds(PlannerNote, note=texts()),
        retry_hints(),
        st.builds(Annotation, message=texts(), unknown_fields=unknown_fields()),
        st.builds(Redacted, original_type=texts(), reason=texts()),
        st.builds(Redaction, seqs=st.lists(st.integers(1, 2**63 - 1), max_size=4).map(tuple), reason=texts()),
        unknown_payloads(),
    )


def timestamps() -> st.SearchStrategy[datetime]:
    """Generate timezone-aware times with any offset of Python. In UTC, they are in the years 1 to 9999."""
    offsets = st.integers(-86_399, 86_399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
    inner = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.just(UTC) | offsets)  # noqa: DTZ001  # Hypothesis adds the time zone
    return inner | st.sampled_from([datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])


def labels() -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(texts(), texts(), max_size=4)


def event_ids() -> st.SearchStrategy[str]:
    return texts().filter(bool)


@cache
def events() -> st.SearchStrategy[Event]:
    """Generate any event that can be appended, with its own id."""
    return st.builds(new_event, payloads(), timestamp=timestamps(), labels=labels(), event_id=st.none() | event_ids())


class OddText(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = str.__hash__


class OddInt(int):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = int.__hash__


class OddFloat(float):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = float.__hash__


class OddObject:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __hash__(self) -> int:
        return 7


class AgreeableObject:
    """An object that is equal to every other object."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7


class Unshowable(str):
    """A text whose ``repr`` raises. Tests create it themselves, because Hypothesis prints generated values."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class LyingDict(dict[Any, Any]):
    """A map whose ``items`` differ from its content."""

    def items(self) -> Any:
        return [("lie", 1)]


class Colour(enum.Enum):
    RED = "red"
    DEEP = 7


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


def endless_list() -> list[Any]:
    """Return a list that contains itself."""
    endless: list[Any] = []
    endless.append(endless)
    return endless


def endless_map() -> dict[str, Any]:
    """Return a map that contains itself, two levels down."""
    endless: dict[str, Any] = {}
    endless["a"] = [{"b": endless}]
    return endless


def nested(depth: int, *, maps: bool = False) -> Any:
    """Return a value of ``depth`` levels."""
    value: Any = {} if maps else []
    for _ in range(depth - 1):
        value = {"k": value} if maps else [value]
    return value


def not_json() -> st.SearchStrategy[Any]:
    """Generate values that JSON cannot represent, or that would change in a round trip."""
    return st.sampled_from(
        [
            float("nan"),
            float("inf"),
            -float("inf"),
            "\ud800",
            "a\udfffb",
            {"\ud800": 1},
            {1: "a"},
            {None: 1},
            {True: 1},
            {(1, 2): 3},
            {b"k": 1},
            {1, 2},
            frozenset({"a"}),
            b"bytes",
            bytearray(b"bytes"),
            memoryview(b"bytes"),
            object(),
            OddObject(),
            AgreeableObject(),
            Ellipsis,
            (item for item in [1]),
            range(3),
            deque([1]),
            decimal.Decimal("1.5"),
            decimal.Decimal("NaN"),
            uuid.UUID(int=1),
            datetime(2026, 1, 1, tzinfo=UTC),
            timedelta(seconds=1),
            Colour.RED,
            10**4300,
            -(10**5000),
            1j,
            len,
            UserMessage,
            UserMessage(message="a payload"),
            endless_list(),
            endless_map(),
            nested(65),
            nested(65, maps=True),
            nested(5000),
        ]
    )


def odd_json() -> st.SearchStrategy[Any]:
    """Generate JSON values of unusual types: subclasses, and other maps and sequences."""
    return st.sampled_from(
        [
            OddText("odd"),
            OddInt(7),
            OddFloat(1.5),
            Word.YES,
            Level.LOW,
            OrderedDict(a=1),
            UserDict(a=1),
            MappingProxyType({"a": [1]}),
            {OddText("k"): 1},
            {Word.YES: (1, (2,))},
            (1, 2),
            nested(64),
            nested(64, maps=True),
        ]
    )


def wrong_values() -> st.SearchStrategy[Any]:
    """Generate valid, unusual and invalid values, alone or inside a valid value."""
    value = st.one_of(json_values(4), odd_json(), not_json(), st.just(LyingDict(a=float("nan"))), st.binary(max_size=4))
    return st.one_of(
        value, value.map(lambda item: [item]), value.map(lambda item: {"k": item}), value.map(lambda item: (1, item))
    )
