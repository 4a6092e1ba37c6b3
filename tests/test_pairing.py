"""The one pairing rule: a result answers the latest open call before it with its id."""

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
    """The places of the open calls after ``run``: the rule as plainly as it can be written."""
    places: list[int] = []
    for place, data in enumerate(run):
        if isinstance(data, ToolCall):
            places.append(place)
        else:
            same_id = [at for at in places if run[at].tool_call_id == data.tool_call_id]
            places = [at for at in places if not same_id or at != same_id[-1]]
    return places


def paired(run: list[Payload]) -> tuple[Pairing[int], dict[int, int | None]]:
    """The pairing after ``run``, in which a call is known by its place, and what each result answered."""
    pairing: Pairing[int] = Pairing()
    return pairing, add(pairing, run, 0)


def add(pairing: Pairing[int], run: list[Payload], first: int) -> dict[int, int | None]:
    answered: dict[int, int | None] = {}
    for place, data in enumerate(run, first):
        if isinstance(data, ToolCall):
            pairing.add_call(data, place)
        else:
            answered[place] = pairing.add_result(data)
    return answered


@given(RUNS)
def test_it_agrees_with_the_rule_written_plainly(run: list[Payload]) -> None:
    pairing, answered = paired(run)
    assert pairing.open_calls() == open_before(run)
    assert pairing.open_count == len(open_before(run))
    for place, data in enumerate(run):
        if isinstance(data, ToolResult):
            before, after = open_before(run[:place]), open_before(run[: place + 1])
            assert answered[place] == next(iter({*before} - {*after}), None)


@given(RUNS)
def test_a_result_answers_one_call_before_it_with_its_id_and_no_call_is_answered_twice(run: list[Payload]) -> None:
    pairing, answered = paired(run)
    calls = [call for call in answered.values() if call is not None]
    assert len(calls) == len(set(calls))
    assert sorted([*calls, *pairing.open_calls()]) == [at for at, data in enumerate(run) if isinstance(data, ToolCall)]
    for result, call in answered.items():
        if call is not None:
            assert call < result
            assert isinstance(run[call], ToolCall)
            assert run[call].tool_call_id == run[result].tool_call_id


@given(RUNS, IDS)
def test_the_call_that_is_answered_next_is_known_before(run: list[Payload], call_id: str) -> None:
    pairing, _ = paired(run)
    expected = pairing.next_answered(call_id)
    assert expected == max((at for at in pairing.open_calls() if run[at].tool_call_id == call_id), default=None)
    assert pairing.add_result(ToolResult(call_id, "tool")) == expected


@given(RUNS, CALLS | RESULTS)
def test_the_parent_is_the_latest_call_with_its_id_whether_open_or_not(run: list[Payload], data: Payload) -> None:
    pairing, _ = paired(run)
    parent_id = data.parent_tool_call_id
    same_id = [at for at, known in enumerate(run) if isinstance(known, ToolCall) and known.tool_call_id == parent_id]
    assert pairing.parent_of(data) == (same_id[-1] if same_id and parent_id else None)


@given(RUNS, RUNS)
def test_what_is_added_later_changes_no_earlier_answer(run: list[Payload], later: list[Payload]) -> None:
    _, whole = paired([*run, *later])
    pairing, before = paired(run)
    assert {place: call for place, call in whole.items() if place < len(run)} == before
    assert add(pairing, later, len(run)) == {place: call for place, call in whole.items() if place >= len(run)}


@given(RUNS, RUNS)
def test_a_copy_goes_on_by_itself(run: list[Payload], later: list[Payload]) -> None:
    pairing, _ = paired(run)
    for copied in (copy.deepcopy(pairing), pickle.loads(pickle.dumps(pairing))):
        add(copied, later, len(run))
        assert copied.open_calls() == open_before([*run, *later])
    assert pairing.open_calls() == open_before(run)


def test_calls_with_one_id_cost_the_same_however_many_are_open() -> None:
    def answer(count: int) -> None:
        pairing: Pairing[int] = Pairing()
        for number in range(count):
            pairing.add_call(ToolCall("call", "tool"), number)
        for _ in range(count):
            pairing.next_answered("call")
            pairing.add_result(ToolResult("call", "tool"))
        assert pairing.open_calls() == []

    assert growth(partial(answer, 5_000), partial(answer, 20_000), MOST) <= MOST
