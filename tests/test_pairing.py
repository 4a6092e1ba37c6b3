"""Tests of the pairing rule: a result answers the latest open call before it that has the same id."""

from __future__ import annotations

import copy
import pickle
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log.events.payloads import ToolCall, ToolResult
from agent_memory_log.pairing import Pairing
from tests.growth import MOST, growth

Payload = ToolCall | ToolResult

IDS = st.sampled_from(["", "a", "b", "c"])
CALLS = st.builds(ToolCall, IDS, st.just("tool"), parent_tool_call_id=IDS)
RESULTS = st.builds(ToolResult, IDS, st.just("tool"), parent_tool_call_id=IDS)
RUNS = st.lists(CALLS | RESULTS, max_size=30)


def open_before(run: list[Payload]) -> list[int]:
    """Return the positions of the open calls after ``run``, by a simple version of the rule."""
    open_positions: list[int] = []
    for position, data in enumerate(run):
        if isinstance(data, ToolCall):
            open_positions.append(position)
        else:
            same_id = [index for index in open_positions if run[index].tool_call_id == data.tool_call_id]
            open_positions = [index for index in open_positions if not same_id or index != same_id[-1]]
    return open_positions


def paired(run: list[Payload]) -> tuple[Pairing[int], dict[int, int | None]]:
    """Return the pairing after ``run`` and the call that each result answered. Positions identify the calls."""
    pairing: Pairing[int] = Pairing()
    return pairing, add(pairing, run, 0)


def add(pairing: Pairing[int], run: list[Payload], first: int) -> dict[int, int | None]:
    answered: dict[int, int | None] = {}
    for position, data in enumerate(run, first):
        if isinstance(data, ToolCall):
            pairing.add_call(data, position)
        else:
            answered[position] = pairing.add_result(data)
    return answered


@given(RUNS)
def test_pairing_agrees_with_the_simple_rule(run: list[Payload]) -> None:
    pairing, answered = paired(run)
    assert pairing.open_calls() == open_before(run)
    assert pairing.open_count == len(open_before(run))
    for position, data in enumerate(run):
        if isinstance(data, ToolResult):
            before, after = open_before(run[:position]), open_before(run[: position + 1])
            assert answered[position] == next(iter({*before} - {*after}), None)


@given(RUNS)
def test_result_answers_one_earlier_call_and_no_call_is_answered_twice(run: list[Payload]) -> None:
    pairing, answered = paired(run)
    calls = [call for call in answered.values() if call is not None]
    assert len(calls) == len(set(calls))
    assert sorted([*calls, *pairing.open_calls()]) == [
        index for index, data in enumerate(run) if isinstance(data, ToolCall)
    ]
    for result, call in answered.items():
        if call is not None:
            assert call < result
            assert isinstance(run[call], ToolCall)
            assert run[call].tool_call_id == run[result].tool_call_id


@given(RUNS, IDS)
def test_next_answered_predicts_the_answered_call(run: list[Payload], call_id: str) -> None:
    pairing, _ = paired(run)
    expected = pairing.next_answered(call_id)
    assert expected == max(
        (index for index in pairing.open_calls() if run[index].tool_call_id == call_id), default=None
    )
    assert pairing.add_result(ToolResult(call_id, "tool")) == expected


@given(RUNS, CALLS | RESULTS)
def test_parent_is_the_latest_call_with_its_id(run: list[Payload], data: Payload) -> None:
    pairing, _ = paired(run)
    parent_id = data.parent_tool_call_id
    same_id = [
        index for index, other in enumerate(run) if isinstance(other, ToolCall) and other.tool_call_id == parent_id
    ]
    assert pairing.parent_of(data) == (same_id[-1] if same_id and parent_id else None)


@given(RUNS, RUNS)
def test_later_events_change_no_earlier_answer(run: list[Payload], later: list[Payload]) -> None:
    _, expected = paired([*run, *later])
    pairing, before = paired(run)
    assert {position: call for position, call in expected.items() if position < len(run)} == before
    assert add(pairing, later, len(run)) == {
        position: call for position, call in expected.items() if position >= len(run)
    }


@given(RUNS, RUNS)
def test_copy_is_independent(run: list[Payload], later: list[Payload]) -> None:
    pairing, _ = paired(run)
    for copied in (copy.deepcopy(pairing), pickle.loads(pickle.dumps(pairing))):
        add(copied, later, len(run))
        assert copied.open_calls() == open_before([*run, *later])
    assert pairing.open_calls() == open_before(run)


def test_answering_calls_with_one_id_takes_linear_time() -> None:
    def answer(count: int) -> None:
        pairing: Pairing[int] = Pairing()
        for number in range(count):
            pairing.add_call(ToolCall("call", "tool"), number)
        for _ in range(count):
            pairing.next_answered("call")
            pairing.add_result(ToolResult("call", "tool"))
        assert pairing.open_calls() == []

    assert growth(partial(answer, 5_000), partial(answer, 20_000), MOST) <= MOST
