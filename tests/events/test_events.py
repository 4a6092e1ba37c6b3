"""Tests of events: new events, maps in both spellings of the keys, timestamps, and typed payloads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import (
    Event,
    EventData,
    EventType,
    PlannerNote,
    ToolCall,
    UnknownPayload,
    UserMessage,
    decode_event,
    new_event,
)
from agent_memory_log.backend_kit import prepare
from agent_memory_log.errors import DecodeError, InvalidEvent
from agent_memory_log.events.event import (
    format_timestamp,
    from_microseconds,
    new_event_id,
    parse_timestamp,
    same_body,
    to_microseconds,
)
from tests.strategies import timestamps

NOON = datetime(2026, 1, 2, 12, 0, 0, 125, tzinfo=UTC)
NAIVE = datetime(2026, 1, 2)  # noqa: DTZ001  # naive on purpose
EARLY = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
LATE = datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))


class Silent(tzinfo):
    """A time zone that does not know its offset: a datetime in it is naive."""

    def utcoffset(self, _when: datetime | None, /) -> timedelta | None:
        return None

    def dst(self, _when: datetime | None, /) -> timedelta | None:
        return None

    def tzname(self, _when: datetime | None, /) -> str | None:
        return None


def test_new_event_fills_in_every_field() -> None:
    before = datetime.now(UTC)
    event = new_event(UserMessage(message="hi"), labels={"role": "user"})
    assert event.type == EventType.USER_MESSAGE
    assert before <= event.timestamp <= datetime.now(UTC)
    assert event.timestamp.tzinfo is UTC
    assert event.labels == {"role": "user"}
    assert event.event_id
    assert event.seq == 0


def test_new_event_copies_its_labels() -> None:
    labels = {"a": "b"}
    event = new_event(UserMessage(), labels=labels)
    labels["c"] = "d"
    assert event.labels == {"a": "b"}


def test_event_ids_differ() -> None:
    assert len({new_event_id() for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"payload": {"message": "hi"}}, "data"),
        ({"payload": UserMessage}, "data"),
        ({"timestamp": NAIVE}, "timestamp"),
        ({"timestamp": NAIVE.replace(tzinfo=Silent())}, "timestamp"),
        ({"timestamp": "2026-01-01T00:00:00Z"}, "timestamp"),
        ({"timestamp": date(2026, 1, 1)}, "timestamp"),
        ({"timestamp": EARLY}, "timestamp"),
        ({"timestamp": LATE}, "timestamp"),
        ({"event_id": ""}, "event_id"),
        ({"event_id": 5}, "event_id"),
        ({"labels": [("a", "b")]}, "labels"),
        ({"labels": "ab"}, "labels"),
    ],
)
def test_new_event_names_the_invalid_argument(fields: dict[str, Any], field: str) -> None:
    payload = fields.pop("payload", UserMessage())
    with pytest.raises(InvalidEvent) as caught:
        new_event(payload, **fields)
    assert caught.value.field == field


def by_hand(**fields: Any) -> Event:
    defaults: dict[str, Any] = {"type": "user_message", "timestamp": NOON, "data": UserMessage(), "event_id": "e"}
    return Event(**{**defaults, **fields})


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (by_hand(type="tool_call"), "type"),
        (by_hand(type=5), "type"),
        (by_hand(data={"message": "x"}), "data"),
        (by_hand(data=None), "data"),
        (by_hand(timestamp=NAIVE), "timestamp"),
        (by_hand(timestamp=5), "timestamp"),
        (by_hand(timestamp=date(2026, 1, 1)), "timestamp"),
        (by_hand(timestamp=NAIVE.replace(tzinfo=Silent())), "timestamp"),
        (by_hand(timestamp=EARLY), "timestamp"),
        (by_hand(timestamp=LATE), "timestamp"),
        (by_hand(event_id="x" * 513), "event_id"),
        (by_hand(event_id=b"x"), "event_id"),
        (by_hand(event_id=None), "event_id"),
        (by_hand(event_id="\ud800"), "event_id"),
        (by_hand(labels=None), "labels"),
        (by_hand(labels=[]), "labels"),
        (by_hand(labels=["a"]), "labels"),
        (by_hand(labels={5: "a"}), "labels"),
        (by_hand(labels={"a": 5}), "labels.a"),
        (by_hand(labels={"a": None}), "labels.a"),
        (by_hand(labels={"a": "\udfff"}), "labels.a"),
        (by_hand(labels={"k" * 129: ""}), "labels." + "k" * 129),
        (by_hand(labels={str(n): "" for n in range(65)}), "labels"),
        ("not an event", ""),
        (UserMessage(), ""),
        (None, ""),
    ],
)
def test_prepare_names_the_invalid_field(event: Any, field: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        prepare(event)
    assert caught.value.field == field


def test_largest_labels_and_ids_are_accepted() -> None:
    labels = {f"{number:0128}": "v" * 1000 for number in range(64)}
    event_id = "\U0001f600" * 512
    prepared = prepare(by_hand(labels=labels, event_id=event_id))
    assert prepared.labels == labels
    assert prepared.event_id == event_id
    assert prepare(by_hand(event_id="")).event_id


def test_prepared_timestamp_is_a_plain_datetime_in_utc() -> None:
    class Moment(datetime):
        pass

    tokyo = timezone(timedelta(hours=9))
    for timestamp in (NOON.astimezone(tokyo), Moment(2026, 1, 2, 12, 0, 0, 125, tzinfo=UTC)):
        assert by_hand(timestamp=timestamp).to_map()["timestamp"] == "2026-01-02T12:00:00.000125Z"
        prepared = prepare(by_hand(timestamp=timestamp))
        assert prepared.timestamp == NOON
        assert prepared.timestamp.tzinfo is UTC
        assert type(prepared.timestamp) is datetime


def test_event_map_has_the_wire_keys() -> None:
    event = new_event(UserMessage(message="hi"), timestamp=NOON, labels={"role": "user"}, event_id="e-1")
    expected = {
        "type": "user_message",
        "timestamp": "2026-01-02T12:00:00.000125Z",
        "data": {"message": "hi"},
        "labels": {"role": "user"},
        "event_id": "e-1",
    }
    assert event.to_map() == expected
    assert msgspec.structs.replace(event, seq=3).to_map() == {**expected, "seq": 3}
    assert by_hand(event_id="").to_map() == {
        "type": "user_message",
        "timestamp": "2026-01-02T12:00:00.000125Z",
        "data": {},
    }


@pytest.mark.parametrize("fields", [{"type": 5}, {"timestamp": NAIVE}, {"timestamp": None}, {"labels": ["a"]}])
def test_to_map_names_the_invalid_field(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent) as caught:
        by_hand(**fields).to_map()
    assert [caught.value.field] == list(fields)


STAMP = "2026-01-02T12:00:00.000125Z"
READ: list[tuple[str, Mapping[str, object], Event]] = [
    ("ours", {"type": "user_message", "timestamp": STAMP, "data": {}, "event_id": "e"}, by_hand()),
    ("the original's", {"Type": "user_message", "Timestamp": STAMP, "Data": {}, "Labels": None}, by_hand(event_id="")),
    (
        "labels",
        {"Type": "user_message", "Timestamp": STAMP, "Data": {}, "Labels": {"$": "\x00"}, "event_id": "e"},
        by_hand(labels={"$": "\x00"}),
    ),
    (
        "null in one spelling",
        {"type": None, "Type": "user_message", "timestamp": STAMP, "data": None, "Data": {}, "event_id": "e"},
        by_hand(),
    ),
    ("no id and seq", {"type": "user_message", "timestamp": STAMP, "data": {}, "event_id": None}, by_hand(event_id="")),
    ("seq", {"type": "user_message", "timestamp": STAMP, "data": {}, "seq": 3, "event_id": "e"}, by_hand(seq=3)),
    ("seq 3.0", {"type": "user_message", "timestamp": STAMP, "data": {}, "seq": 3.0, "event_id": "e"}, by_hand(seq=3)),
    ("a datetime", {"type": "user_message", "timestamp": NOON, "data": {}, "event_id": "e"}, by_hand()),
    (
        "a datetime elsewhere",
        {
            "type": "user_message",
            "timestamp": NOON.astimezone(timezone(timedelta(hours=5))),
            "data": {},
            "event_id": "e",
            "later": 1,
        },
        by_hand(),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("data", "expected"), [row[1:] for row in READ], ids=[row[0] for row in READ])
def test_events_are_read_in_every_spelling(data: Mapping[str, object], expected: Event) -> None:
    read = Event.from_map(data)
    assert read == expected
    assert read.timestamp.tzinfo is UTC


COMPLETE: dict[str, object] = {"type": "user_message", "timestamp": STAMP, "data": {}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({**COMPLETE, "type": None}, "type"),
        ({**COMPLETE, "type": ""}, "type"),
        ({**COMPLETE, "type": 5}, "int 5"),
        ({**COMPLETE, "timestamp": None}, "user_message: timestamp must be RFC 3339 text, got null"),
        ({**COMPLETE, "timestamp": 5}, "user_message: timestamp"),
        ({**COMPLETE, "timestamp": "yesterday"}, "'yesterday'"),
        ({**COMPLETE, "timestamp": NAIVE}, "no time zone"),
        ({**COMPLETE, "timestamp": EARLY}, "user_message: timestamp"),
        ({**COMPLETE, "data": None}, "user_message: data is null"),
        ({"type": "user_message", "timestamp": STAMP}, "user_message: data is absent"),
        ({**COMPLETE, "data": []}, "user_message: data must be a map, got list"),
        ({**COMPLETE, "type": "later", "data": 5}, "later: data must be a map, got int 5"),
        ({**COMPLETE, "labels": []}, "user_message: labels must be a map, got list"),
        ({**COMPLETE, "labels": {"a": 5}}, "str 'a' to int 5"),
        ({**COMPLETE, "labels": {5: "a"}}, "int 5 to str 'a'"),
        ({**COMPLETE, "event_id": 5}, "user_message: event_id must be text, got int 5"),
        ({**COMPLETE, "seq": -1}, "seq must be an integer from 0"),
        ({**COMPLETE, "seq": 1.5}, "seq must be an integer"),
        ({**COMPLETE, "seq": True}, "seq must be an integer"),
        ({**COMPLETE, "seq": 2**63}, "seq must be an integer"),
        ([], "an event must be a map, got list"),
        (None, "an event must be a map, got null"),
    ],
)
def test_from_map_names_the_invalid_value(data: Any, message: str) -> None:
    with pytest.raises(DecodeError, match=re.escape(message)):
        Event.from_map(data)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("2026-01-02T12:00:00Z", 0),
        ("2026-01-02t12:00:00z", 0),
        ("2026-01-02T12:00:00.1Z", 100_000),
        ("2026-01-02T12:00:00.000125Z", 125),
        ("2026-01-02T12:00:00.000125999Z", 125),
        ("2026-01-02T12:00:00.999999999999Z", 999_999),
        ("2026-01-02T12:00:00.0000009Z", 0),
        ("2026-01-02T12:00:00-00:00", 0),
        ("2026-01-03T11:59:00+23:59", 0),
        ("2026-01-01T12:01:00-23:59", 0),
        ("2026-01-02T17:30:00.5+05:30", 500_000),
    ],
)
def test_timestamp_fractions_are_cut_and_not_rounded(text: str, microseconds: int) -> None:
    assert parse_timestamp(text) == datetime(2026, 1, 2, 12, 0, 0, microseconds, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-02",
        "2026-01-02T12:00:00",
        "2026-01-02 12:00:00Z",
        "2026-01-02T12:00Z",
        "2026-01-02T12:00:00,5Z",
        "2026-01-02T12:00:00.Z",
        "2026-01-02T12:00:00+24:00",
        "2026-01-02T12:00:00+05:60",
        "2026-01-02T12:00:00+0530",
        "2026-01-02T24:00:00Z",
        "2026-01-02T12:60:00Z",
        "2026-12-31T23:59:60Z",
        "2026-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
        "2026-01-02T12:00:00Z\n",
        " 2026-01-02T12:00:00Z",
        "\uff12\uff10\uff12\uff16-01-02T12:00:00Z",
        "2026-W01-1T12:00:00Z",
        "-2026-01-02T12:00:00Z",
    ],
)
def test_text_that_is_not_rfc_3339_is_refused(text: str) -> None:
    """A leap second is refused too, as in the Go original, because no Python or Go time can hold it."""
    with pytest.raises(DecodeError, match="user_message: timestamp"):
        Event.from_map({**COMPLETE, "timestamp": text})


def test_first_and_last_timestamps_survive() -> None:
    for text in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"):
        assert format_timestamp(parse_timestamp(text)) == text
    assert parse_timestamp("0001-01-01T01:00:00+01:00") == datetime(1, 1, 1, tzinfo=UTC)


@given(timestamps())
def test_every_timestamp_survives(timestamp: datetime) -> None:
    text = format_timestamp(timestamp)
    assert parse_timestamp(text) == timestamp
    assert text.endswith("Z")
    assert from_microseconds(to_microseconds(timestamp)) == timestamp
    stored = prepare(new_event(UserMessage(), timestamp=timestamp))
    assert stored.timestamp == timestamp
    assert stored.timestamp.tzinfo is UTC


@given(
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)),  # noqa: DTZ001  # its offset is written by hand
    st.text("0123456789", max_size=12),
    st.integers(-1439, 1439),
)
def test_any_rfc_3339_text_is_read(moment: datetime, fraction: str, offset: int) -> None:
    moment = moment.replace(microsecond=0)
    sign, minutes = "-" if offset < 0 else "+", abs(offset)
    text = f"{moment.isoformat()}{'.' if fraction else ''}{fraction}{sign}{minutes // 60:02}:{minutes % 60:02}"
    expected = (moment - timedelta(minutes=offset)).replace(tzinfo=UTC, microsecond=int(f"{fraction:0<6}"[:6]))
    assert parse_timestamp(text) == expected


def test_decode_event_returns_the_typed_payload() -> None:
    call = ToolCall(tool_call_id="tc-1", tool_name="t")
    event = msgspec.structs.replace(new_event(call), seq=7)
    assert decode_event(event, ToolCall) is call
    assert decode_event(event, EventData) is call
    with pytest.raises(DecodeError, match=r"event 7 is a tool_call \(ToolCall\), not a user_message \(UserMessage\)"):
        decode_event(event, UserMessage)
    with pytest.raises(
        DecodeError, match=r"event 7 is a tool_call \(ToolCall\), not UnknownPayload|\(UnknownPayload\)"
    ):
        decode_event(event, UnknownPayload)
    unknown = new_event(UnknownPayload(type="later", data={"a": 1}), event_id="e-9")
    assert decode_event(unknown, UnknownPayload).data == {"a": 1}
    with pytest.raises(
        DecodeError, match=r"event e-9 is a later \(UnknownPayload\), not a planner_note \(PlannerNote\)"
    ):
        decode_event(unknown, PlannerNote)


def test_bodies_are_compared_as_json() -> None:
    def body(structured: Any, **fields: Any) -> Event:
        return by_hand(data=UserMessage(structured=structured), **fields)

    assert same_body(body({"a": 1, "b": 2}), body({"b": 2, "a": 1}, timestamp=LATE, event_id="other", seq=9))
    assert same_body(body((1, 2)), body([1, 2]))
    unequal: list[tuple[Any, Any]] = [
        (1, 1.0),
        (1, True),
        (0, False),
        ("", None),
        ([], None),
        (-0.0, 0.0),
        (2**63, 2.0**63),
    ]
    for first, second in unequal:
        assert not same_body(body(first), body(second))
    assert not same_body(body(1, labels={"a": "b"}), body(1))
    assert same_body(
        new_event(ToolCall(tool_call_id="", tool_name="", payload_json=" ")),
        new_event(ToolCall(tool_call_id="", tool_name="")),
    )
