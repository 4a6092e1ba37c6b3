"""Tests of the order of events in a timeline, of their descriptions, and of escaped text."""

from __future__ import annotations

import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import (
    Event,
    EventData,
    Reader,
    RetryHint,
    Snapshot,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
    new_event,
)
from agent_memory_log.cli.entries import Look, describe
from agent_memory_log.cli.output import Output
from agent_memory_log.cli.run_names import parse_name, run_name
from agent_memory_log.cli.terminal_text import duration, one_line, safe, safe_json, size
from agent_memory_log.cli.timeline import Row, arrange
from agent_memory_log.cli.timeline_view import TimelineWriter
from agent_memory_log.wording import counted, ranges


def log_of(*payloads: EventData) -> list[Event]:
    return [msgspec.structs.replace(new_event(payload), seq=at) for at, payload in enumerate(payloads, 1)]


def shape(*payloads: EventData) -> list[tuple[int, int]]:
    return [(row.event.seq, row.depth) for row in arrange(log_of(*payloads))]


def call(call_id: str, parent: str = "") -> ToolCall:
    return ToolCall(call_id, "t", parent_tool_call_id=parent)


def result(call_id: str) -> ToolResult:
    return ToolResult(call_id, "t")


class TestArrange:
    def test_result_follows_its_call(self) -> None:
        assert shape(call("1"), call("2"), UserMessage(message="m"), result("2"), result("1")) == [
            (1, 0), (5, 0), (2, 0), (4, 0), (3, 0),
        ]  # fmt: skip

    def test_nested_calls_are_between_a_call_and_its_result(self) -> None:
        assert shape(call("1"), call("2", "1"), call("3", "2"), result("3"), call("4", "1"), result("1")) == [
            (1, 0), (2, 1), (3, 2), (4, 2), (5, 1), (6, 0),
        ]  # fmt: skip

    def test_duplicate_ids_are_paired_in_order(self) -> None:
        assert shape(call("1"), result("1"), call("1"), call("2", "1"), result("1"), result("1")) == [
            (1, 0), (2, 0), (3, 0), (4, 1), (5, 0), (6, 0),
        ]  # fmt: skip

    def test_invalid_parents_are_ignored(self) -> None:
        assert shape(call("1", "1"), call("2", "nobody"), call("3", "4"), call("4", "3")) == [
            (1, 0), (2, 0), (3, 0), (4, 1),
        ]  # fmt: skip

    def test_arrange_handles_any_depth(self) -> None:
        depth = 5000
        rows = arrange(log_of(*(call(str(at), str(at - 1)) for at in range(depth))))
        assert [row.depth for row in rows] == list(range(depth))
        stream = io.StringIO()
        TimelineWriter(Output(stream)).write(rows)
        assert max(map(len, stream.getvalue().splitlines())) < 100

    @given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.sampled_from(["", "a", "b", "c"]))))
    def test_arrange_pairs_like_the_reader_and_loses_no_event(self, story: list[tuple[bool, str, str]]) -> None:
        log = log_of(*(call(call_id, parent) if is_call else result(call_id) for is_call, call_id, parent in story))
        rows = arrange(log)
        assert sorted(row.event.seq for row in rows) == [event.seq for event in log]
        reader = Reader(Snapshot("a", "r", log, version=len(log)))
        for row in rows:
            if isinstance(row.event.data, ToolResult):
                assert (None if row.call is None else row.call.event) == reader.call_for(row.event)


class TestDescribe:
    def test_unknown_payload_is_shown_as_its_map(self) -> None:
        entry = describe(Row(new_event(UnknownPayload.of("made_up", {"a": [1, None]}))), Look())
        assert (entry.kind, entry.text) == ("made_up", '{"a":[1,null]}')

    def test_retry_hint_shows_every_part(self) -> None:
        hint = RetryHint(
            reason="missing_fields",
            tool="find",
            restrict_to_tool=True,
            missing_fields=("a", "b"),
            example_input={"a": 1},
            clarifying_question="Which?",
            message="Say a and b.",
        )
        (lead, rest) = describe(Row(new_event(hint)), Look()).lead
        assert lead[0] == "↻ retry: missing_fields"
        assert rest[0] == ' - Say a and b; only with find; missing a, b; ask: Which?; such as {"a":1}'

    @pytest.mark.parametrize(
        ("thinking", "expected"),
        [
            (Thinking(redacted=b"1234"), "(encrypted by the provider, 4 B)"),
            (Thinking(signature="s"), "(signed, without text)"),
            (Thinking(), "(empty)"),
        ],
    )
    def test_thinking_without_text_is_explained(self, thinking: Thinking, expected: str) -> None:
        assert describe(Row(new_event(thinking)), Look()).lead[0][0] == expected


class TestText:
    @given(st.text())
    def test_safe_text_has_no_unsafe_characters(self, text: str) -> None:
        bad = {*map(chr, range(32)), "\x7f", *map(chr, range(0x80, 0xA0)), *"\u2028\u2029\u202a\u202e\u2066\u2069"}
        assert not bad.intersection(one_line(text))
        assert not (bad - {"\n"}).intersection(safe(text))

    @given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
    def test_safe_json_keeps_its_value(self, value: object) -> None:
        encoded = msgspec.json.encode(value).decode()
        for encoding in ("utf-8", "ascii", "latin-1", "no such encoding"):
            written = safe_json(encoded, encoding)
            assert msgspec.json.decode(written) == msgspec.json.decode(encoded)
            assert encoding == "utf-8" or written.isascii() or written.encode(encoding)

    @given(st.text(min_size=1), st.text(min_size=1))
    def test_parse_name_reverses_run_name(self, agent: str, run: str) -> None:
        name = run_name(agent, run)
        assert parse_name(name) == (agent, run)
        assert one_line(name) == name

    @pytest.mark.parametrize(
        ("nanoseconds", "text"),
        [
            (0, "0ns"),
            (1_999, "1µs"),
            (12_000_000, "12ms"),
            (999_999_999, "999ms"),
            (1_000_000_000, "1.0s"),
            (59_949_999_999, "59.9s"),
            (59_960_000_000, "1m 00s"),
            (125_000_000_000, "2m 05s"),
            (3_600_000_000_000, "1h 00m"),
            (100 * 3_600_000_000_000, "4d 4h"),
            (-5_000_000, "-5ms"),
        ],
    )
    def test_duration_has_short_units(self, nanoseconds: int, text: str) -> None:
        assert duration(nanoseconds) == text

    def test_sizes_counts_and_ranges_are_short_texts(self) -> None:
        assert [size(count) for count in (0, 999, 1_000, 999_949, 999_950, 10**13)] == [
            "0 B", "999 B", "1.0 KB", "999.9 KB", "1.0 MB", "10.0 TB",
        ]  # fmt: skip
        assert (counted(1, "event"), counted(2686, "event")) == ("1 event", "2,686 events")
        assert (ranges([]), ranges([3]), ranges([1, 2, 3, 7, 9, 10])) == ("", "3", "1-3, 7, 9-10")
