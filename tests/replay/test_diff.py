"""Tests of the first difference between two runs: which differences count, and how they are printed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from agent_memory_log import (
    Event,
    EventData,
    JsonValue,
    PlannerNote,
    Snapshot,
    ToolCall,
    ToolResult,
    UserMessage,
    new_event,
)
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.events.nested import ToolTelemetry
from agent_memory_log.replay import Difference, RunDiff, diff, differences
from tests.transcript.transcripts import json_values


def run_of(*payloads: EventData, run: str = "run", year: int = 2026, **labels: str) -> Snapshot:
    time = datetime(year, 1, 1, tzinfo=UTC)
    log = [
        Event(data.event_type, time, data, labels, new_event(data).event_id, seq)
        for seq, data in enumerate(payloads, 1)
    ]
    return Snapshot("agent", run, log, version=len(log))


def call(call_id: str, payload: str = "", parent: str = "") -> ToolCall:
    return ToolCall(call_id, "find", parent_tool_call_id=parent, payload_json=payload)


def result(call_id: str, value: str = "1", **fields: Any) -> ToolResult:
    return ToolResult(call_id, "find", result_json=value, **fields)


EQUAL_RUNS: list[tuple[list[EventData], list[EventData]]] = [
    ([], []),
    ([UserMessage("x", {"a": 1, "b": 2})], [UserMessage("x", {"b": 2, "a": 1})]),
    ([call("a", '{"x": 1, "y": 2}'), result("a")], [call("b", '{"y":2,"x":1}'), result("b", " 1 ")]),
    ([call("a"), call("a"), result("a")], [call("b"), call("c"), result("c")]),
    ([call("a"), call("b", parent="a")], [call("c"), call("d", parent="c")]),
    ([call("b", parent="a call of another run")], [call("c", parent="another call of it")]),
    ([result("a")], [result("b")]),
    ([result("a", duration_ns=1)], [result("a", duration_ns=2)]),
    (
        [result("a", telemetry=ToolTelemetry(duration_ms=1, model="m"))],
        [result("a", telemetry=ToolTelemetry(duration_ms=2, model="m"))],
    ),
]

DIFFERENT_RUNS: list[tuple[list[EventData], list[EventData], int, list[Difference]]] = [
    ([UserMessage("x")], [PlannerNote("x")], 0, [Difference("type", "user_message", "planner_note")]),
    ([UserMessage("x")], [UserMessage("y")], 0, [Difference("message", "x", "y")]),
    ([UserMessage("x")], [], 0, []),
    ([UserMessage("x")], [UserMessage("x"), UserMessage("y")], 1, []),
    (
        [UserMessage("x"), call("a", '{"id": 7, "l": [1, {"m": 2}]}')],
        [UserMessage("x"), call("b", '{"id": 8, "l": [1, {}, 3]}')],
        1,
        [
            Difference("payload.id", 7, 8),
            Difference("payload.l[1].m", left=2, only="left"),
            Difference("payload.l[2]", right=3, only="right"),
        ],
    ),
    ([call("a", "{")], [call("a", "[")], 0, [Difference("payload", "{", "[")]),
    ([result("a", "x")], [result("a", '"x"')], 0, [Difference("result_json", "x", '"x"')]),
    ([call("a", "1")], [call("a", "1.0")], 0, [Difference("payload", 1, 1.0)]),
    ([result("a", '"x"')], [result("a", '"y"')], 0, [Difference("result_json", "x", "y")]),
    (
        [call("a"), call("b"), result("a")],
        [call("a"), call("b"), result("b")],
        2,
        [Difference("tool_call_id", "call 1", "call 2")],
    ),
    (
        [call("a"), call("b", parent="a")],
        [call("a"), call("b")],
        1,
        [Difference("parent_tool_call_id", left="call 1", only="left")],
    ),
    ([result("a", error_message="x")], [result("a")], 0, [Difference("error_message", left="x", only="left")]),
]


@pytest.mark.parametrize(("left", "right"), EQUAL_RUNS)
def test_equal_runs_have_no_difference(left: list[EventData], right: list[EventData]) -> None:
    run_diff = diff(run_of(*left, label="x"), run_of(*right, run="other", year=2027))
    assert run_diff == RunDiff("agent/run", "agent/other", len(left))
    assert run_diff.same
    assert str(run_diff) == f"agent/run and agent/other have the same {len(left)} events"


@pytest.mark.parametrize(("left", "right", "common", "expected"), DIFFERENT_RUNS)
def test_diff_reports_the_first_difference_in_both_directions(
    left: list[EventData], right: list[EventData], common: int, expected: list[Difference]
) -> None:
    left_run, right_run = run_of(*left), run_of(*right, run="other")
    run_diff = diff(left_run, right_run)
    assert not run_diff.same
    assert (run_diff.common, list(run_diff.differences)) == (common, expected)
    assert run_diff.left_event == (left_run.log[common] if common < len(left) else None)
    assert run_diff.right_event == (right_run.log[common] if common < len(right) else None)
    reverse_diff = diff(right_run, left_run)
    assert (reverse_diff.common, reverse_diff.left_event, reverse_diff.right_event) == (
        common,
        run_diff.right_event,
        run_diff.left_event,
    )


def test_run_difference_is_readable() -> None:
    left_run = run_of(UserMessage("x"), call("a", '{"id": 7}'))
    assert str(
        diff(left_run, run_of(UserMessage("x"), call("b", '{"id": 8, "n": null}'), run="other"))
    ).splitlines() == [
        "agent/run and agent/other differ after 1 equal events",
        '  agent/run: event 2, tool_call {"tool_name":"find","payload":"{\\"id\\": 7}"}',
        '  agent/other: event 2, tool_call {"tool_name":"find","payload":"{\\"id\\": 8, \\"n\\": null}"}',
        "  payload.id: left 7, right 8",
        "  payload.n: left nothing, right null",
    ]
    assert "agent/other: ends here" in str(diff(left_run, run_of(UserMessage("x"), run="other")))


def test_long_texts_are_cut_around_the_difference() -> None:
    before = "same " * 1000
    (difference,) = differences({"text": f"{before}left{before}"}, {"text": f"{before}right{before}"})
    description = difference.describe("a", "b")
    assert "left" in description
    assert "right" in description
    assert len(description) < 400


def test_long_list_of_differences_is_cut_and_counted() -> None:
    left_run = run_of(call("a", f'{{"l": {[*range(1000)]}}}'))
    run_diff = diff(left_run, run_of(call("a", f'{{"l": {[*range(1, 1001)]}}}'), run="other"))
    assert len(run_diff.differences) == 1000
    lines = str(run_diff).splitlines()
    assert lines[3] == "  payload.l[0]: left 0, right 1"
    assert lines[-1] == f"  and {1000 - (len(lines) - 4)} more"
    assert len(lines) < 50


def test_paths_of_different_keys_differ() -> None:
    left: JsonValue = {"a.b": 1, "a": {"b": 1}, "": {"x y": [{"\n": 1}]}}
    right: JsonValue = {"a.b": 2, "a": {"b": 2}, "": {"x y": [{}]}}
    assert [difference.path for difference in differences(left, right)] == ['["a.b"]', "a.b", r'[""]["x y"][0]["\n"]']


def test_partly_loaded_run_is_refused() -> None:
    part = Snapshot("agent", "part", (), types=["user_message"])
    for left_run, right_run in ((part, run_of()), (run_of(), part)):
        with pytest.raises(InvalidArgument, match="load agent/part without types"):
            diff(left_run, right_run)


@given(json_values, json_values)
def test_unequal_json_has_differences(left: JsonValue, right: JsonValue) -> None:
    forward = differences(left, right)
    assert bool(forward) == (encode_canonical(left) != encode_canonical(right))
    backward = differences(right, left)
    assert {difference.path for difference in backward} == {difference.path for difference in forward}
    for difference in forward:
        assert difference.describe("a", "b").startswith(difference.path or "the value")
