"""Checks that recorded traffic is replayed turn by turn, and that a replay reports each real difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby, pairwise
from typing import Any

import pytest

from agent_memory_log import Reader, Snapshot, ToolCall, open_sync_store
from agent_memory_log.errors import ReplayDivergence
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.recording import RecordedResponse, SyncRunRecorder
from agent_memory_log.replay import ModelTurn, Replayer
from agent_memory_log.transcript import build, parse
from agent_memory_log.transcript.json_types import is_list, is_map
from tests.transcript.test_traffic import ANSWERED, recorded
from tests.transcript.traffic import Exchange

REPLAYED = [exchange for exchange in ANSWERED if exchange.messages]
CONVERSATIONS = [
    exchanges
    for _, group in groupby(REPLAYED, key=lambda exchange: (exchange.name.rsplit(" ", 1)[0], exchange.provider))
    if len(exchanges := list(group)) > 1
]

Change = Callable[[str, Any], Any]
"""Takes the agent's next steps and their name: ``turns``, ``messages`` or ``calls``. Returns other steps."""


def as_recorded(_: str, steps: Any) -> Any:
    return steps


def run_agent(snapshot: Snapshot, provider: str, change: Change = as_recorded) -> list[ModelTurn]:
    """Make the recorded steps again, each after ``change``. Return the turns of the model."""
    reader = Reader(snapshot)
    transcript = build(snapshot, provider)
    turns: list[ModelTurn] = []
    with Replayer(snapshot, provider) as replayer:
        for expected in change("turns", replayer._expected.turns):
            joined = replayer._expected.joined(expected)
            messages = [*transcript[: expected.prefix], *([] if joined is None else [joined])]
            replayer.expect_messages(change("messages", messages))
            turns.append(replayer.model_turn())
            calls = [event for event in turns[-1].tool_calls if reader.result_for(event) is not None]
            for call in change("calls", [event.data for event in calls]):
                replayer.tool_result(call.tool_name, call.payload_json, tool_call_id=call.tool_call_id)
    return turns


def problems_of(items: list[Any], check: Callable[[Any], object]) -> list[str]:
    """Return the errors that ``check`` raises, each with the name of its exchange."""
    problems: list[str] = []
    for item in items:
        exchange: Exchange = item[0] if is_list(item) else item
        try:
            check(item)
        except (Exception, pytest.fail.Exception) as error:
            problems.append(f"{exchange.name} ({exchange.host}): {type(error).__name__}: {str(error)[:300]}")
    return problems


def test_agent_that_sends_the_recorded_messages_has_no_divergence() -> None:
    def check(exchange: Exchange) -> None:
        for snapshot in (recorded(exchange).run, recorded(exchange).unanswered):
            run_agent(snapshot, exchange.provider)

    assert not problems_of(REPLAYED, check)


# Runs with several recorded answers.


def record_conversation(exchanges: list[Exchange]) -> tuple[Snapshot, list[RecordedResponse]]:
    """Record the answers of several exchanges in one run. The calls of the last answer have no results."""
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
        first = exchanges[0]
        store.append_events("agent", "run", *parse(first.messages, first.provider, source=first.name))
        answers: list[RecordedResponse] = []
        for exchange in exchanges:
            for event in answers[-1].tool_calls if answers else ():
                with recorder.tool_call(event) as call:
                    call.result("ok")
            if answers:
                recorder.user("Go on.")
            answers.append(recorder.record_response(exchange.answer, key=exchange.name))
        return store.load_run("agent", "run"), answers


def test_every_answer_of_a_conversation_is_one_turn() -> None:
    def check(exchanges: list[Exchange]) -> None:
        snapshot, answers = record_conversation(exchanges)
        turns = run_agent(snapshot, exchanges[0].provider)[-len(answers) :]
        for turn, answer in zip(turns, answers, strict=True):
            assert [event.seq for event in turn.events] == [event.seq for event in answer.events]

    assert len(CONVERSATIONS) > 50
    assert not problems_of(CONVERSATIONS, check)


def is_continued(pair: tuple[Exchange, Exchange]) -> bool:
    """Return whether the second exchange has the messages of the first, and more."""
    first, second = pair
    count = len(first.messages)
    has_more = len(second.messages) > count
    return has_more and encode_canonical(second.messages[:count]) == encode_canonical(first.messages)


def test_messages_that_a_framework_sent_next_are_expected() -> None:
    """Frameworks send back the answers of the model in their own form, without many of the fields."""

    def check(pair: list[Exchange]) -> None:
        first, second = pair
        with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
            store.append_events("agent", "run", *parse(first.messages, first.provider, source="first"))
            recorder.record_response(first.answer)
            sent = len(build(store.load_run("agent", "run"), first.provider))
            store.append_events("agent", "run", *parse(second.messages[sent:], first.provider, source="second"))
            recorder.record_response(second.answer)
            replayer = Replayer(store.load_run("agent", "run"), first.provider, match="order")
        for _ in replayer._expected.turns[:-1]:
            replayer.model_turn()
        replayer.expect_messages(second.messages)

    pairs = [[*pair] for exchanges in CONVERSATIONS for pair in pairwise(exchanges) if is_continued(pair)]
    at_own_hosts = [pair for pair in pairs if pair[0].is_own_host]
    problems = problems_of(at_own_hosts, check)
    assert len(at_own_hosts) > 100
    # Some agents do change the history: they give calls other ids, or leave out reasoning.
    assert len(problems) < 0.1 * len(at_own_hosts), "\n".join(problems)


def test_server_side_blocks_stay_in_the_middle_of_their_turn() -> None:
    blocks = [{"type": "server_tool_use"}, {"type": "web_search_tool_result"}, {"type": "compaction"}]
    content = [{"type": "text", "text": "a"}, *blocks, {"type": "text", "text": "b"}]
    answer = {"type": "message", "role": "assistant", "model": "m", "id": "r", "content": content}
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
        recorder.user("Hi")
        recorder.record_response(answer)
        (turn,) = run_agent(store.load_run("agent", "run"), "anthropic")
    assert turn.message == {"role": "assistant", "content": content}


# An agent that does one thing differently.


def last_call(change: Callable[[ToolCall], list[ToolCall]], step: str, steps: Any) -> Any:
    return [*steps[:-1], *change(steps[-1])] if step == "calls" and steps else steps


def with_other_arguments(call: ToolCall) -> list[ToolCall]:
    return [ToolCall(call.tool_call_id, call.tool_name, payload_json='{"never": "recorded"}')]


def with_another_tool(call: ToolCall) -> list[ToolCall]:
    return [ToolCall(call.tool_call_id, "never.recorded", payload_json=call.payload_json)]


def without_it(_: ToolCall) -> list[ToolCall]:
    return []


def twice(call: ToolCall) -> list[ToolCall]:
    return [call, call]


def with_another_message(step: str, steps: Any) -> Any:
    return [*steps, {"role": "user", "content": "Never recorded."}] if step == "messages" else steps


def without_the_last_message(step: str, steps: Any) -> Any:
    return steps[:-1] if step == "messages" else steps


def with_other_text(step: str, steps: Any) -> Any:
    return _with_other_text(steps) if step == "messages" else steps


def _with_other_text(value: Any) -> Any:
    if is_map(value):
        changed = {
            key: f"{item}!"
            for key, item in value.items()
            if key in ("content", "output", "text") and isinstance(item, str)
        }
        return {key: changed.get(key) or _with_other_text(item) for key, item in value.items()}
    return [_with_other_text(item) for item in value] if is_list(value) else value


def without_the_last_turn(step: str, steps: Any) -> Any:
    return steps[:-1] if step == "turns" else steps


def with_another_turn(step: str, steps: Any) -> Any:
    return [*steps, steps[-1]] if step == "turns" else steps


CHANGES: Mapping[str, tuple[Change, set[str]]] = {
    "other arguments": (partial(last_call, with_other_arguments), {"other_arguments"}),
    "another tool": (partial(last_call, with_another_tool), {"other_tool"}),
    "a call fewer": (partial(last_call, without_it), {"missing_call"}),
    "a call more": (partial(last_call, twice), {"unexpected_call", "other_arguments", "other_tool"}),
    "a message more": (with_another_message, {"other_messages"}),
    "a message fewer": (without_the_last_message, {"other_messages"}),
    "other text": (with_other_text, {"other_messages"}),
    "a turn fewer": (without_the_last_turn, {"missing_turn", "missing_call"}),
    "a turn more": (with_another_turn, {"other_messages", "unexpected_turn"}),
}
"""A change of what the agent does, and the reasons that the divergence may have."""


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_of_the_agent_is_a_divergence(name: str) -> None:
    change, reasons = CHANGES[name]

    def check(exchange: Exchange) -> None:
        with pytest.raises(ReplayDivergence) as raised:
            run_agent(recorded(exchange).run, exchange.provider, change)
        assert raised.value.reason in reasons, raised.value

    with_calls = [exchange for exchange in REPLAYED[::2] if recorded(exchange).answer.tool_calls]
    assert len(with_calls) > 100
    assert not problems_of(with_calls, check)
