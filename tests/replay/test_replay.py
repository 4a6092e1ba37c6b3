"""Tests of the replayer: it returns the recorded turns and results, and reports each divergence of the agent."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory_log import (
    AssistantMessage,
    Event,
    EventData,
    JsonValue,
    PlannerNote,
    Redacted,
    RetryHint,
    Snapshot,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import DecodeError, InvalidArgument, ReplayDivergence, ToolFailed
from agent_memory_log.recording import RunRecorder, SyncRunRecorder
from agent_memory_log.replay import Match, ModelTurn, Replayer, value_of
from agent_memory_log.replay.prompts import PromptCheck
from agent_memory_log.transcript import build, parse, provider_names
from tests.effort import EXAMPLES
from tests.transcript.test_transcripts import ANY_PAYLOADS

FROM_MODEL = {"role": "assistant"}
"""The label that a parser or a recorder sets on events from a model's answer."""

YES: list[JsonValue] = [{"type": "text", "text": "Yes?"}]


def run_of(*payloads: EventData | Event) -> Snapshot:
    log: list[Event] = []
    for seq, item in enumerate(payloads, 1):
        event = new_event(item) if isinstance(item, EventData) else item
        log.append(Event(event.type, event.timestamp, event.data, event.labels, event.event_id, seq))
    return Snapshot("agent", "run", log, version=len(log))


def call(call_id: str, tool: str = "find", payload: str = "", parent: str = "") -> ToolCall:
    return ToolCall(call_id, tool, parent_tool_call_id=parent, payload_json=payload)


def model_call(call_id: str, tool: str = "find", payload: str = "") -> Event:
    """Return a call from a model's answer."""
    return new_event(call(call_id, tool, payload), labels=FROM_MODEL)


def model_text(text: str) -> Event:
    return new_event(AssistantMessage(text), labels=FROM_MODEL)


def result(call_id: str, tool: str = "find", value: str = "1", parent: str = "", **fields: Any) -> ToolResult:
    return ToolResult(call_id, tool, parent_tool_call_id=parent, result_json=value, **fields)


def assert_diverges(reason: str, action: Callable[[], object], *texts: str, seq: int | None = None) -> None:
    with pytest.raises(ReplayDivergence) as raised:
        action()
    assert raised.value.reason == reason
    for text in texts:
        assert text in str(raised.value)
    if seq is not None:
        assert raised.value.seq == seq


def replayer(snapshot: Snapshot, provider: str = "anthropic", match: Match = "strict") -> Replayer:
    return Replayer(snapshot, provider, match=match)


TWO_TURNS = run_of(
    UserMessage("Where are my orders?"),
    model_text("Let me look."),
    model_call("t1", "orders.find", '{"id": 7, "deep": {"tags": ["a", "b"]}}'),
    model_call("t2", "orders.find", '{"id": 8}'),
    result("t2", "orders.find", '{"state":"lost"}'),
    result("t1", "orders.find", '{"state":"sent"}'),
    model_text("One is lost."),
)


def play(replayed: Replayer) -> None:
    """Make all steps of ``TWO_TURNS``."""
    for event in replayed.model_turn().tool_calls:
        replayed.tool_result(event)
    replayed.model_turn()


# Returned turns and results.


def test_replayer_returns_the_recorded_turns_and_results() -> None:
    with replayer(TWO_TURNS) as replayed:
        turn = replayed.model_turn()
        assert turn.number == 1
        assert turn.text == "Let me look."
        assert turn.events == TWO_TURNS.log[1:4]
        assert turn.message == build(TWO_TURNS, "anthropic")[1]
        assert [block["type"] for block in turn.message["content"]] == ["text", "tool_use", "tool_use"]
        first, second = turn.tool_calls
        assert replayed.tool_result(first) == TWO_TURNS.log[5].data
        assert value_of(replayed.tool_result(second)) == {"state": "lost"}
        assert replayed.model_turn().message["content"] == [{"type": "text", "text": "One is lost."}]


@pytest.mark.parametrize("provider", provider_names())
def test_turns_have_the_form_of_every_provider(provider: str) -> None:
    replayed = replayer(TWO_TURNS, provider)
    transcript = build(TWO_TURNS, provider)
    first = replayed.model_turn()
    for event in first.tool_calls:
        replayed.tool_result(event)
    second = replayed.model_turn()
    replayed.finish()
    turns = [*first.messages, *second.messages]
    assert turns == [message for message in transcript if message in turns]
    length = 3 if provider == "openai-responses" else 1
    assert (len(first.messages), len(second.messages)) == (length, 1)
    if length > 1:
        with pytest.raises(InvalidArgument, match="model turn 1 has 3 messages"):
            _ = first.message


def test_returned_messages_are_copies() -> None:
    replayed = replayer(TWO_TURNS)
    turn = replayed.model_turn()
    for event in turn.tool_calls:
        replayed.tool_result(event)
    turn.message["content"].clear()
    replayed.expect_messages(build(TWO_TURNS, "anthropic")[:-1])
    assert replayer(TWO_TURNS).model_turn().message["content"]


def test_failed_result_is_returned_with_its_retry_hint() -> None:
    hint = RetryHint(reason="missing_fields", missing_fields=("id",))
    failed = ToolResult("t1", "find", error_message="no id", retry_hint=hint, duration_ns=7, preview="p")
    with replayer(run_of(UserMessage("x"), model_call("t1"), failed)) as replayed:
        (event,) = replayed.model_turn().tool_calls
        returned = replayed.tool_result(event)
    assert returned == failed
    with pytest.raises(ToolFailed, match="no id") as raised:
        value_of(returned)
    assert (raised.value.tool_name, raised.value.tool_call_id) == ("find", "t1")


@pytest.mark.parametrize(
    ("text", "value"), [("", None), ("null", None), ("[1, 2.5]", [1, 2.5]), ("plain text", "plain text"), ('"a"', "a")]
)
def test_value_of_decodes_the_result(text: str, value: object) -> None:
    assert value_of(ToolResult("t1", "find", result_json=text)) == value


def test_tool_and_call_are_matched_by_log_or_provider_names() -> None:
    odd = "call/with:odd characters"
    snapshot = run_of(UserMessage("x"), model_call(odd, "orders.find", "{}"), result(odd, "orders.find"))
    block = replayer(snapshot).model_turn().message["content"][0]
    assert (block["name"], block["id"] != odd) == ("orders--find", True)
    for name, call_id in ((block["name"], block["id"]), ("orders.find", odd), ("orders.find", None)):
        replayed = replayer(snapshot)
        replayed.model_turn()
        assert replayed.tool_result(name, {}, tool_call_id=call_id) == snapshot.log[2].data
        replayed.finish()


@pytest.mark.parametrize(
    ("recorded", "now"),
    [
        ('{"a":1,"b":[true,null]}', {"b": [True, None], "a": 1}),
        ('{ "a" : 1.50 }', '{"a":1.5}'),
        ("", None),
        ("", {}),
        ("{}", None),
        ("  ", "{}"),
        ('{"a": ', '{"a": '),
        ('{"big": 123456789012345678901234567890}', {"big": 123456789012345678901234567890}),
        ('{"a": [1, 2]}', {"a": (1, 2)}),
    ],
)
def test_arguments_are_compared_as_json(recorded: str, now: Any) -> None:
    replayed = replayer(run_of(call("c", payload=recorded), result("c")))
    assert replayed.tool_result("find", now).result_json == "1"


@pytest.mark.parametrize(
    ("recorded", "now"),
    [
        ('{"a": 1}', {"a": 1.0}),
        ('{"a": 1}', {"a": True}),
        ('{"a": 1}', {"a": "1"}),
        ('{"a": 1.5}', {"a": "1.5"}),
        ('{"a": null}', {}),
        ('{"a": [1, 2]}', {"a": [2, 1]}),
        ("null", None),
        ("{}", "null"),
        ('{"a": ', '{"a":'),
    ],
)
def test_unequal_json_arguments_diverge(recorded: str, now: Any) -> None:
    replayed = replayer(run_of(call("c", payload=recorded), result("c")))
    assert_diverges("other_arguments", lambda: replayed.tool_result("find", now), seq=1)


@pytest.mark.parametrize("arguments", [7, [1], {"a": object()}, {1: 2}, {"a": float("nan")}, b"{}"])
def test_invalid_arguments_are_refused(arguments: Any) -> None:
    with pytest.raises(InvalidArgument, match="arguments"):
        replayer(TWO_TURNS).tool_result("find", arguments)
    with pytest.raises(InvalidArgument, match="tool must be a name or the event"):
        replayer(TWO_TURNS).tool_result(arguments)
    with pytest.raises(InvalidArgument, match="event 1 is a user_message"):
        replayer(TWO_TURNS).tool_result(TWO_TURNS.log[0])


# Divergences.


def test_different_arguments_diverge() -> None:
    replayed = replayer(TWO_TURNS)
    replayed.model_turn()
    now: Any = {"id": 7, "deep": {"tags": ["a", "c"]}, "new": None}
    with pytest.raises(ReplayDivergence) as raised:
        replayed.tool_result("orders.find", now, tool_call_id="t1")
    assert str(raised.value).splitlines() == [
        "the replay of agent/run differs from its recording: orders.find is called with different arguments:",
        '  recorded: {"id":7,"deep":{"tags":["a","b"]}}',
        '  now: {"id":7,"deep":{"tags":["a","c"]},"new":null}',
        '  deep.tags[1]: recorded "b", now "c"',
        "  new: recorded nothing, now null",
    ]
    assert (raised.value.reason, raised.value.seq) == ("other_arguments", 3)


def test_different_tool_diverges() -> None:
    replayed = replayer(TWO_TURNS)
    replayed.model_turn()
    assert_diverges(
        "other_tool",
        lambda: replayed.tool_result("orders.delete", {"id": 7}),
        "recorded: orders.find",
        'now: orders.delete {"id":7}',
        seq=3,
    )


def test_id_of_another_call_diverges() -> None:
    replayed = replayer(TWO_TURNS)
    replayed.model_turn()
    assert_diverges("other_arguments", lambda: replayed.tool_result("orders.find", {"id": 8}, tool_call_id="t1"), seq=3)


def test_unknown_call_id_diverges() -> None:
    replayed = replayer(TWO_TURNS)
    replayed.model_turn()
    assert_diverges(
        "unexpected_call",
        lambda: replayed.tool_result("orders.find", {"id": 8}, tool_call_id="t9"),
        """orders.find {"id":8} is called with the id 't9', but the recorded id is 't2'""",
        seq=4,
    )


def test_long_list_of_argument_differences_is_cut_and_counted() -> None:
    snapshot = run_of(UserMessage("x"), model_call("t1", "find", f'{{"l": {[*range(1000)]}}}'), result("t1"))
    replayed = replayer(snapshot)
    replayed.model_turn()
    with pytest.raises(ReplayDivergence, match=r"l\[0\]: recorded 0, now 1\n(.*\n)+  and \d+ more$") as raised:
        replayed.tool_result("find", {"l": [*range(1, 1001)]})
    assert len(str(raised.value).splitlines()) < 50


def test_tool_name_with_special_characters_is_quoted_in_a_divergence() -> None:
    replayed = replayer(run_of(UserMessage("x"), model_call("t1", "find\n\x1b[31m"), result("t1", "find\n\x1b[31m")))
    replayed.model_turn()
    with pytest.raises(ReplayDivergence, match="a different tool") as raised:
        replayed.tool_result("a tool {}", {})
    assert str(raised.value).splitlines()[1:] == [
        '  recorded: "find\\n\\u001b[31m" {} (event 2)',
        '  now: "a tool {}" {}',
    ]


@pytest.mark.parametrize("depth", [100, 190])
def test_deeply_nested_arguments_are_replayed(depth: int) -> None:
    snapshot = run_of(UserMessage("x"), model_call("t1", "find", '{"a":' * depth + "1" + "}" * depth), result("t1"))
    with replayer(snapshot) as replayed:
        turn = replayed.model_turn()
        replayed.tool_result("find", turn.message["content"][0]["input"])
        replayed.expect_messages(build(snapshot, "anthropic"))


def test_answer_nested_too_deeply_for_deepcopy_is_replayed() -> None:
    depth = 800
    snapshot = run_of(UserMessage("x"), model_call("t1", "find", '{"a":' * depth + "1" + "}" * depth), result("t1"))
    with replayer(snapshot) as replayed:
        replayed.tool_result(replayed.model_turn().tool_calls[0])


def test_call_made_more_often_than_recorded_diverges() -> None:
    replayed = replayer(run_of(call("c"), result("c")))
    replayed.tool_result("find")
    assert_diverges("unexpected_call", lambda: replayed.tool_result("find"), "more often")


def test_call_diverges_if_a_turn_or_the_end_is_recorded() -> None:
    replayed = replayer(TWO_TURNS)
    assert_diverges("unexpected_call", lambda: replayed.tool_result("other"), "model turn 1 is recorded next")
    replayed = replayer(TWO_TURNS)
    play(replayed)
    assert_diverges("unexpected_call", lambda: replayed.tool_result("other"), "the recording ends here")


def test_call_before_its_model_turn_diverges() -> None:
    replayed = replayer(TWO_TURNS)
    assert_diverges("other_order", lambda: replayed.tool_result("orders.find", {"id": 8}), "before model turn 1", seq=4)


def test_next_turn_reports_a_missing_call() -> None:
    replayed = replayer(TWO_TURNS)
    replayed.tool_result(replayed.model_turn().tool_calls[0])
    assert_diverges("missing_call", replayed.model_turn, 'orders.find {"id":8} (event 4)', seq=4)


def test_finish_reports_missing_calls() -> None:
    calls = [model_call(f"t{n}", payload=f"[{n}]") for n in range(7)]
    snapshot = run_of(UserMessage("x"), *calls, *[result(f"t{n}") for n in range(7)])
    replayed = replayer(snapshot)
    replayed.model_turn()
    assert_diverges("missing_call", replayed.finish, "find [0] (event 2)", "find [4] (event 6)", "and 2 more", seq=2)


def test_call_that_the_recorded_run_never_answered_need_not_be_made() -> None:
    # An agent with structured output ends with such a call: the call is its answer.
    snapshot = run_of(UserMessage("x"), model_call("t1"), model_call("t2", "final"), result("t1"))
    with replayer(snapshot) as replayed:
        replayed.tool_result(replayed.model_turn().tool_calls[0])
    replayed = replayer(snapshot)
    replayed.model_turn()
    assert_diverges("missing_call", replayed.finish, "find {} (event 2)", seq=2)
    final_only = run_of(UserMessage("x"), model_call("t1", "final"))
    assert_diverges("missing_turn", replayer(final_only).finish, "model turn 1 of 1", seq=2)


def test_missing_or_additional_turn_diverges() -> None:
    replayed = replayer(TWO_TURNS)
    for event in replayed.model_turn().tool_calls:
        replayed.tool_result(event)
    assert_diverges("missing_turn", replayed.finish, 'model turn 2 of 2: "One is lost."', seq=7)
    replayed = replayer(TWO_TURNS)
    play(replayed)
    assert_diverges("unexpected_turn", replayed.model_turn, "ends after turn 2")


SEQUENCE = run_of(
    call("a", payload='{"n":1}'), result("a"), call("b", payload='{"n":2}'), result("b"), call("c"), result("c")
)


def test_sequential_calls_must_keep_their_order() -> None:
    with replayer(SEQUENCE) as replayed:
        for arguments in ({"n": 1}, {"n": 2}, {}):
            replayed.tool_result("find", arguments)
    replayed = replayer(SEQUENCE)
    replayed.tool_result("find", {"n": 2})
    assert_diverges("other_order", lambda: replayed.tool_result("find", {"n": 1}), "is called after", seq=1)
    replayed = replayer(SEQUENCE)
    replayed.tool_result("find", {"n": 1})
    replayed.tool_result("find")
    assert_diverges(
        "other_order", lambda: replayed.tool_result("find", {"n": 2}), "is called after find {} (event 5)", seq=3
    )


def test_overlapping_calls_may_be_made_in_any_order() -> None:
    snapshot = run_of(call("a", payload="[1]"), call("b", payload="[2]"), result("a"), result("b"))
    for order in ("[1]", "[2]"), ("[2]", "[1]"):
        with replayer(snapshot) as replayed:
            for arguments in order:
                replayed.tool_result("find", arguments)


def test_equal_calls_return_results_in_recorded_order() -> None:
    snapshot = run_of(call("a"), result("a", value="1"), call("a"), result("a", value="2"))
    with replayer(snapshot) as replayed:
        assert [replayed.tool_result("find").result_json for _ in range(2)] == ["1", "2"]


def test_divergence_is_raised_again_by_every_later_step() -> None:
    # The agent may have caught the first error.
    replayed = replayer(TWO_TURNS)
    replayed.model_turn()
    assert_diverges("other_tool", lambda: replayed.tool_result("other"))
    for step in (replayed.model_turn, lambda: replayed.tool_result(TWO_TURNS.log[2]), replayed.finish):
        assert_diverges("other_tool", step)


def catching_agent(snapshot: Snapshot, error: type[Exception] | None = None) -> None:
    with replayer(snapshot) as replayed:
        replayed.model_turn()
        with pytest.raises(ReplayDivergence):
            replayed.tool_result("other")
        if error is not None:
            raise error


def test_caught_divergence_is_raised_again_at_the_end() -> None:
    assert_diverges("other_tool", lambda: catching_agent(TWO_TURNS))


def test_agent_error_has_the_divergence_as_a_note() -> None:
    with pytest.raises(KeyError) as raised:
        catching_agent(TWO_TURNS, KeyError)
    assert "differs from its recording" in raised.value.__notes__[0]
    with pytest.raises(KeyError) as raised, replayer(TWO_TURNS):
        raise KeyError
    assert not hasattr(raised.value, "__notes__")


def test_end_of_the_block_reports_unused_calls() -> None:
    with (
        pytest.raises(ReplayDivergence, match="turn 1 of 2"),
        replayer(run_of(UserMessage("x"), model_text("a"), UserMessage("y"), model_text("b"))),
    ):
        pass


async def test_asynchronous_block_reports_unused_calls() -> None:
    async with replayer(TWO_TURNS) as replayed:
        play(replayed)
    with pytest.raises(ReplayDivergence, match="not made"):
        async with replayer(TWO_TURNS):
            pass


# Unusual logs.


def test_missing_result_diverges_with_a_reason() -> None:
    replayed = replayer(run_of(UserMessage("x"), model_call("t1"), model_call("t2"), result("t1")))
    first, second = replayed.model_turn().tool_calls
    replayed.tool_result(first)
    assert_diverges("no_result", lambda: replayed.tool_result(second), "the process ended before the result", seq=3)


def test_divergence_lists_erased_events() -> None:
    erased = new_event(Redacted("tool_call", "asked"))
    replayed = replayer(run_of(UserMessage("x"), model_text("look"), erased, result("t1")))
    replayed.model_turn()
    assert_diverges(
        "unexpected_call", lambda: replayed.tool_result("find"), "erased from the recording", "cannot be replayed: 3"
    )


def test_result_without_call_and_second_result_are_ignored() -> None:
    snapshot = run_of(
        UserMessage("x"), model_call("t1"), result("t0"), result("t1", value="1"), result("t1", value="2")
    )
    with replayer(snapshot) as replayed:
        assert replayed.tool_result(replayed.model_turn().tool_calls[0]).result_json == "1"


def test_reused_call_id_refers_to_the_call_of_each_turn() -> None:
    snapshot = run_of(
        UserMessage("x"), model_call("t", payload="[1]"), result("t", value="1"),
        model_call("t", payload="[2]"), result("t", value="2"), model_text("done"),
    )  # fmt: skip
    with replayer(snapshot, "openai-chat") as replayed:
        for value in ("1", "2"):
            assert replayed.tool_result(replayed.model_turn().tool_calls[0]).result_json == value
        replayed.model_turn()


def test_empty_answer_is_a_turn_without_messages() -> None:
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
        recorder.user("x")
        recorder.record_response(
            {"type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn", "model": "m"}
        )
        recorder.annotate("a remark")
        recorder.user("y")
        recorder.record_response({"type": "message", "role": "assistant", "content": YES, "model": "m"})
        snapshot = store.load_run("agent", "run")
    with Replayer(snapshot) as replayed:
        assert replayed.provider == "anthropic"
        assert replayed.model_turn().messages == ()
        assert replayed.model_turn().message == {"role": "assistant", "content": YES}


def test_adjacent_answers_are_separate_turns() -> None:
    messages: list[dict[str, JsonValue]] = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "b"},
    ]
    snapshot = run_of(*parse(messages, "openai-chat"))
    with replayer(snapshot, "openai-chat") as replayed:
        assert [replayed.model_turn().message["content"] for _ in range(2)] == ["a", "b"]


def test_responses_api_answers_are_separated_by_response_id() -> None:
    def answer(number: int) -> dict[str, Any]:
        items: list[dict[str, Any]] = [
            {"type": "reasoning", "id": f"rs_{number}", "summary": []},
            {"type": "function_call", "call_id": f"c{number}", "name": "find", "arguments": f'{{"n":{number}}}'},
        ]
        return {"id": f"resp_{number}", "output": items, "model": "m", "status": "completed"}

    with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
        recorder.user("x")
        call_events = [event for number in (1, 2) for event in recorder.record_response(answer(number)).tool_calls]
        for event in call_events:
            with recorder.tool_call(event) as recorded_call:
                recorded_call.result(event.seq)
        snapshot = store.load_run("agent", "run")
    with Replayer(snapshot) as replayed:
        turns = [replayed.model_turn() for _ in range(2)]
        assert [list(turn.messages) for turn in turns] == [answer(1)["output"], answer(2)["output"]]
        for turn in turns:
            for event in turn.tool_calls:
                assert value_of(replayed.tool_result(event)) == event.seq


def test_items_that_the_provider_made_stay_in_their_turn() -> None:
    """OpenAI returns the output of a shell that it ran itself, and tools that it added, in the answer."""
    action = {"commands": ["ls"], "timeout_ms": None, "max_output_length": None}
    output: list[dict[str, Any]] = [
        {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": []},
        {"type": "shell_call", "id": "sh_1", "call_id": "c1", "action": action, "status": "completed"},
        {"type": "shell_call_output", "id": "sho_1", "call_id": "c1", "output": [], "status": "completed"},
        {"type": "function_call", "id": "fc_1", "call_id": "c2", "name": "find", "arguments": "{}"},
    ]
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
        recorder.user("x")
        answer = recorder.record_response({"id": "resp_1", "output": output, "model": "m", "status": "completed"})
        with recorder.tool_call(answer.tool_calls[0]) as recorded_call:
            recorded_call.result("sent")
        recorder.record_response({"id": "resp_2", "output": [], "model": "m", "status": "completed"})
        snapshot = store.load_run("agent", "run")
    with Replayer(snapshot) as replayed:
        turn = replayed.model_turn()
        assert list(turn.messages) == output
        (event,) = turn.tool_calls
        assert value_of(replayed.tool_result(event)) == "sent"
        assert replayed.model_turn().messages == ()


def test_calls_made_by_the_runtime_need_no_turn() -> None:
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
        recorder.user("x")
        with recorder.tool_call("prepare") as recorded_call:
            recorded_call.result("ready")
        recorder.record_response({"type": "message", "role": "assistant", "content": YES, "id": "m1", "model": "m"})
        with recorder.tool_call("clean.up") as recorded_call:
            recorded_call.result("clean")
        snapshot = store.load_run("agent", "run")
    with Replayer(snapshot) as replayed:
        assert value_of(replayed.tool_result("prepare")) == "ready"
        assert replayed.model_turn().message == {"role": "assistant", "content": YES}
        assert value_of(replayed.tool_result("clean.up")) == "clean"
    replayed = Replayer(snapshot)
    replayed.tool_result("prepare")
    assert_diverges("other_order", lambda: replayed.tool_result("clean.up"), "before model turn 2")


def test_calls_recorded_by_hand_are_replayed_as_turns() -> None:
    snapshot = run_of(UserMessage("x"), call("a"), result("a"), AssistantMessage("done"))
    with replayer(snapshot) as replayed:
        (event,) = replayed.model_turn().tool_calls
        replayed.tool_result(event)
        assert replayed.model_turn().text == "done"


@pytest.mark.parametrize(
    "snapshot",
    [
        Snapshot("agent", "run"),
        Snapshot("agent", "run", TWO_TURNS.log, version=7, types=["user_message"]),
        Snapshot("agent", "run", TWO_TURNS.log[3:], version=7, after=3),
        Snapshot("agent", "run", TWO_TURNS.log[:3], version=7, last_seq=3),
    ],
)
def test_partial_run_is_refused(snapshot: Snapshot) -> None:
    with pytest.raises(InvalidArgument, match=r"has no events|needs the whole run"):
        replayer(snapshot)


def test_missing_or_unknown_provider_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="agent/run does not name its provider"):
        Replayer(TWO_TURNS)
    with pytest.raises(InvalidArgument, match="unknown provider"):
        Replayer(TWO_TURNS, "other")
    with pytest.raises(InvalidArgument, match="unknown match"):
        Replayer(TWO_TURNS, "anthropic", match="any")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # as a caller might


# Nested calls.

NESTED = run_of(
    call("o", "outer"),
    call("i", "inner", "[1]", parent="o"),
    call("d", "deep", parent="i"),
    result("d", "deep", "0", parent="i"),
    result("i", "inner", "1", parent="o"),
    call("j", "inner", "[2]", parent="o"),
    result("j", "inner", "2", parent="o"),
    result("o", "outer", "3"),
    call("l", "inner", "[3]"),
    result("l", "inner", "4"),
)


def test_tool_result_also_consumes_nested_calls() -> None:
    with replayer(NESTED) as replayed:
        assert value_of(replayed.tool_result("outer")) == 3
        assert value_of(replayed.tool_result("inner", "[3]")) == 4


def test_tool_call_block_expects_the_nested_calls() -> None:
    with replayer(NESTED) as replayed:
        with replayed.tool_call("outer") as outer:
            assert (outer.event, outer.recorded) == (NESTED.log[0], NESTED.log[7].data)
            with replayed.tool_call("inner", "[1]"):
                replayed.tool_result("deep")
            replayed.tool_result("inner", "[2]")
        replayed.tool_result("inner", "[3]")


def test_inner_call_must_have_the_same_parent() -> None:
    def outside_any_call() -> None:
        replayer(NESTED).tool_result("inner", "[1]")

    def in_another_call() -> None:
        replayed = replayer(NESTED)
        with replayed.tool_call("outer"):
            replayed.tool_result("inner", "[3]")

    def with_a_call_missing() -> None:
        replayed = replayer(NESTED)
        with replayed.tool_call("outer"):
            replayed.tool_result("inner", "[1]")

    def in_another_replay() -> None:
        other, replayed = replayer(NESTED), replayer(NESTED)
        with other.tool_call("outer"):
            replayed.tool_result("inner", "[1]")

    assert_diverges("other_order", outside_any_call, "outside any call", "inside outer {} (event 1)", seq=2)
    assert_diverges("other_order", in_another_call, "has it outside any call", seq=9)
    assert_diverges(
        "missing_call", with_a_call_missing, "were not made inside outer {} (event 1)", "inner [2] (event 6)", seq=6
    )
    assert_diverges("other_order", in_another_replay, seq=2)


def test_exception_in_a_block_is_raised_unchanged() -> None:
    replayed = replayer(NESTED)
    with pytest.raises(ValueError, match="own"), replayed.tool_call("outer"):
        raise ValueError("own")
    assert_diverges("missing_call", replayed.finish)


async def test_tasks_and_threads_started_in_a_block_are_nested_in_it() -> None:
    async with replayer(NESTED) as replayed:
        async with replayed.tool_call("outer"):

            async def inner(arguments: str) -> None:
                await asyncio.to_thread(replayed.tool_result, "inner", arguments)

            await asyncio.gather(inner("[2]"), inner("[1]"))
        replayed.tool_result("inner", "[3]")


# Tasks and threads.


async def test_parallel_tasks_may_make_sequential_calls_in_any_order() -> None:
    async with replayer(SEQUENCE) as replayed:

        async def task(arguments: Mapping[str, JsonValue]) -> None:
            await asyncio.sleep(0)
            replayed.tool_result("find", arguments)

        await asyncio.gather(task({}), task({"n": 2}), task({"n": 1}))


def test_threads_receive_each_result_exactly_once() -> None:
    count = 200
    calls = [event for n in range(count) for event in (call(f"c{n}"), result(f"c{n}", value=str(n)))]
    replayed = replayer(run_of(*calls))
    barrier = threading.Barrier(8)

    def work() -> list[str]:
        barrier.wait()
        return [replayed.tool_result("find").result_json for _ in range(count // 8)]

    with ThreadPoolExecutor(8) as executor:
        texts = [text for future in [executor.submit(work) for _ in range(8)] for text in future.result()]
    assert sorted(texts, key=int) == [str(n) for n in range(count)]
    replayed.finish()


# Lenient modes.


def test_match_by_call_id_ignores_tool_and_arguments() -> None:
    replayed = replayer(TWO_TURNS, match="call_id")
    assert replayed.tool_result("anything", {"x": 1}, tool_call_id="t2") == TWO_TURNS.log[4].data
    assert_diverges("unexpected_call", lambda: replayed.tool_result("orders.find", tool_call_id="t2"), "the id 't2'")
    assert replayed.tool_result("anything", tool_call_id="t1") == TWO_TURNS.log[5].data  # the replay can continue
    replayed.finish()


def test_match_by_call_id_requires_a_call_id() -> None:
    with pytest.raises(InvalidArgument, match="pass tool_call_id"):
        replayer(SEQUENCE, match="call_id").tool_result("find")


def test_match_by_arguments_ignores_order() -> None:
    replayed = replayer(NESTED, match="arguments")
    assert [value_of(replayed.tool_result("inner", f"[{n}]")) for n in (3, 1, 2)] == [4, 1, 2]
    assert_diverges(
        "unexpected_call", lambda: replayed.tool_result("inner", "[1]"), "inner [1]", "matched by arguments"
    )
    assert_diverges("unexpected_call", lambda: replayed.tool_result("outer", "[1]"))
    replayed.finish()


def test_match_by_order_ignores_tool_and_arguments() -> None:
    replayed = replayer(SEQUENCE, match="order")
    assert [replayed.tool_result("x", {"y": 1}).tool_call_id for _ in range(3)] == ["a", "b", "c"]
    assert_diverges("unexpected_call", lambda: replayed.tool_result("find"), "matched by order")


def test_turns_keep_their_order_in_every_match_mode() -> None:
    for match in ("call_id", "arguments", "order"):
        replayed = replayer(TWO_TURNS, match=match)
        assert [replayed.model_turn().number for _ in range(2)] == [1, 2]
        assert_diverges("unexpected_turn", replayed.model_turn)
        replayed.finish()


# The messages that an agent would send.


@pytest.mark.parametrize("provider", provider_names())
def test_recorded_messages_are_accepted(provider: str) -> None:
    replayed = replayer(TWO_TURNS, provider)
    messages: list[dict[str, Any]] = list(build(run_of(TWO_TURNS.log[0]), provider))
    replayed.expect_messages(messages)
    turn = replayed.model_turn()
    for event in turn.tool_calls:
        replayed.tool_result(event)
    # The results are in the order of the calls. The log has them in the order of their arrival.
    ordered = [*TWO_TURNS.log[:4], TWO_TURNS.log[5], TWO_TURNS.log[4]]
    replayed.expect_messages(build(run_of(*ordered), provider))
    replayed.model_turn()
    replayed.expect_messages(build(TWO_TURNS, provider))
    replayed.finish()


@pytest.mark.parametrize("limit", [None, 10**9])
def test_an_agent_may_send_a_large_result_whole_or_as_build_shortens_it(limit: int | None) -> None:
    run = run_of(
        UserMessage("U"), ToolCall("a", "f"), ToolResult("a", "f", result_json="x" * 70_000), AssistantMessage("A")
    )
    replayed = replayer(run, "openai-chat")
    messages = build(run, "openai-chat", max_result_bytes=limit)
    replayed.model_turn()
    replayed.tool_result(run.log[1])
    other = [*messages[:2], {**messages[2], "content": "x" * 69_999}]
    replayed.expect_messages(messages[:3])
    with pytest.raises(ReplayDivergence):
        replayed.expect_messages(other)


@pytest.mark.parametrize(
    ("provider", "kind"), [("anthropic", "text"), ("openai-chat", "text"), ("openai-responses", "input_text")]
)
def test_plain_text_equals_a_list_with_one_text_block(provider: str, kind: str) -> None:
    replayed = replayer(TWO_TURNS, provider)
    for content in ("Where are my orders?", [{"type": kind, "text": "Where are my orders?"}]):
        replayed.expect_messages([{"role": "user", "content": content}])


def test_different_prompt_diverges() -> None:
    question: dict[str, JsonValue] = {"role": "user", "content": "Where are my orders?"}
    prompts: list[list[dict[str, JsonValue]]] = [
        [{**question, "content": "Where are my order?"}],
        [{**question, "role": "assistant"}],
        [question, question],
        [],
        [{**question, "cache": True}],
    ]
    for messages in prompts:
        replayed = replayer(TWO_TURNS)
        assert_diverges("other_messages", lambda: replayed.expect_messages(messages), "before model turn 1")  # noqa: B023  # called at once
        assert_diverges("other_messages", replayed.model_turn)
    replayed = replayer(TWO_TURNS)
    assert_diverges(
        "other_messages",
        lambda: replayed.expect_messages(prompts[0]),
        'content[0].text: recorded "Where are my orders?", now "Where are my order?"',
        seq=2,
    )


def test_changed_result_in_the_prompt_diverges() -> None:
    replayed = replayer(TWO_TURNS)
    for event in replayed.model_turn().tool_calls:
        replayed.tool_result(event)
    messages = build(TWO_TURNS, "anthropic")[:-1]
    messages[-1]["content"][0]["content"] = '{"state":"found"}'
    assert_diverges("other_messages", lambda: replayed.expect_messages(messages), "messages[2]", "found")


def test_system_prompt_among_the_messages_is_compared() -> None:
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
        recorder.request("openai-chat", "gpt", system="Be kind.")
        recorder.user("x")
        recorder.record_response({"choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes?"}}]})
        snapshot = store.load_run("agent", "run")
    user: dict[str, JsonValue] = {"role": "user", "content": "x"}
    with Replayer(snapshot) as replayed:
        replayed.expect_messages([{"role": "system", "content": "Be kind."}, user])
        replayed.model_turn()
    replayed = Replayer(snapshot)
    assert_diverges(
        "other_messages", lambda: replayed.expect_messages([{"role": "system", "content": "Be rude."}, user])
    )


@pytest.mark.parametrize("provider", provider_names())
def test_prompt_before_a_continued_answer_has_the_answer_so_far(provider: str) -> None:
    labels = [FROM_MODEL | {"response_id": name} for name in "ab"]
    log = [new_event(UserMessage("x"))]
    log += [
        new_event(AssistantMessage(text), labels=label_map) for text, label_map in zip(("1", "2"), labels, strict=True)
    ]
    with replayer(run_of(*log), provider) as replayed:
        for count in (1, 2):
            replayed.expect_messages(build(run_of(*log[:count]), provider))
            replayed.model_turn()


MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": "y", "tool_calls": [{"id": "b"}, {"id": "a"}, {"id": "c"}]},
    {"role": "tool", "tool_call_id": "b", "content": "1"},
    {"role": "tool", "tool_call_id": "a", "content": "2"},
    {"role": "tool", "tool_call_id": "c", "content": "3", "n": 1},
    {"role": "user", "content": [{"type": "text", "text": "z"}], "at": "2026-01-01T00:00:00Z"},
    {"role": "assistant", "content": "w"},
]

JOINED: dict[str, Any] = {"role": "assistant", "content": "so far"}

CHANGES: list[dict[int, Any]] = [
    {},
    {0: {"role": "user", "content": [{"type": "text", "text": "x"}]}},
    {2: MESSAGES[3], 3: MESSAGES[2]},
    {2: MESSAGES[4], 4: MESSAGES[2]},
    {3: {**MESSAGES[3], "content": "9"}},
    {4: {**MESSAGES[4], "n": 1.0}},
    {4: {**MESSAGES[4], "n": True}},
    {5: {**MESSAGES[5], "content": "z"}},
    {5: dict(reversed(MESSAGES[5].items()))},
    {5: {**MESSAGES[5], "at": datetime(2026, 1, 1, tzinfo=UTC)}},
    {6: JOINED},
]
"""Replacements for messages, by the index of the replaced message in ``MESSAGES``."""


@pytest.mark.parametrize("first", CHANGES)
def test_incremental_prompt_check_equals_a_full_check(first: dict[int, Any]) -> None:
    """A check that compares only new messages returns the same as a check that compares all."""
    for before, count, joined in product((0, 3, 5, 6), (3, 5, 6, 7), (None, JOINED)):
        for length, second in product({count, count + 1, max(0, count - 1)}, CHANGES):
            check = PromptCheck(MESSAGES, "openai-chat")
            _compared(check, [*_changed(before, first), *([joined] if joined else [])], before, joined)
            sent = _changed(length, second)
            fresh = _compared(PromptCheck(MESSAGES, "openai-chat"), sent, count)
            assert _compared(check, sent, count) == fresh, (before, count, joined, length, second)


def _changed(length: int, changes: dict[int, Any]) -> list[dict[str, Any]]:
    return [changes.get(index, message) for index, message in enumerate(MESSAGES[:length])]


def _compared(check: PromptCheck, sent: list[dict[str, Any]], count: int, joined: Any = None) -> object:
    try:
        return check.compare(sent, count, joined)
    except DecodeError as error:
        return str(error)


def test_message_changed_after_it_was_accepted_diverges() -> None:
    replayed = replayer(TWO_TURNS)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Where are my orders?"}]
    replayed.expect_messages(messages)
    turn = replayed.model_turn()
    for event in turn.tool_calls:
        replayed.tool_result(event)
    messages += build(TWO_TURNS, "anthropic")[1:3]
    messages[0]["content"] = "Where is my order?"
    assert_diverges("other_messages", lambda: replayed.expect_messages(messages), "messages[0]", "Where is my order?")


# Long runs.


def _long_run(turns: int) -> Snapshot:
    events: list[EventData | Event] = [UserMessage("x")]
    for number in range(turns):
        events += [model_call(f"a{number}"), model_call(f"b{number}"), result(f"b{number}"), result(f"a{number}")]
    return run_of(*events, model_text("y"))


def _steps_taken(action: Callable[[], object]) -> int:
    """Return the number of Python function calls."""
    count = 0

    def tally(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(tally)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("match", ["strict", "call_id", "arguments", "order"])
@pytest.mark.parametrize("expects", [False, True])
def test_cost_of_a_call_does_not_grow_with_the_run(match: Match, expects: bool) -> None:
    def play_through(turns: int) -> None:
        snapshot = _long_run(turns)
        messages = build(snapshot, "openai-chat")
        with replayer(snapshot, "openai-chat", match) as replayed:
            for number in range(turns):
                if expects:
                    replayed.expect_messages(messages[: 1 + 3 * number])
                for event in reversed(replayed.model_turn().tool_calls):
                    replayed.tool_result(event)
            replayed.model_turn()

    few, many = (_steps_taken(lambda: play_through(turns)) for turns in (25, 200))  # noqa: B023  # called at once
    assert many < 10 * few


@pytest.mark.parametrize("messages", ["text", {"role": "user"}, 7, ["x"], [{"a": object()}]])
def test_invalid_messages_are_refused(messages: Any) -> None:
    with pytest.raises(DecodeError, match="messages"):
        replayer(TWO_TURNS).expect_messages(messages)


# Random runs, replayed by an agent with the same steps.


class Tool(NamedTuple):
    name: str
    payload: dict[str, Any]
    inside: list[Any]
    fails: bool


def tools_with(inside: st.SearchStrategy[list[Tool]]) -> st.SearchStrategy[Tool]:
    payloads = st.dictionaries(st.sampled_from(["x", "y"]), st.integers(0, 1), max_size=1)
    return st.builds(Tool, st.sampled_from(["a.b", "c"]), payloads, inside, st.booleans())


def calls_inside(tools: st.SearchStrategy[Tool]) -> st.SearchStrategy[list[Tool]]:
    """Return lists of different tools. For equal tools, the test could not know which result comes first."""
    return st.lists(tools, max_size=2, unique_by=lambda tool: (tool.name, str(tool.payload)))


tools = tools_with(calls_inside(tools_with(calls_inside(tools_with(st.just([]))))))
rounds = st.lists(st.lists(tools, max_size=3), min_size=1, max_size=3)


def answer(number: int, calls: list[Tool]) -> dict[str, Any]:
    blocks = [
        {"type": "tool_use", "id": f"t_{number}_{index}", "name": tool.name.replace(".", "--"), "input": tool.payload}
        for index, tool in enumerate(calls)
    ]
    content = [{"type": "text", "text": f"turn {number}"}, *blocks]
    return {"type": "message", "role": "assistant", "id": f"m{number}", "content": content, "model": "m"}


async def record(steps: list[list[Tool]]) -> Snapshot:
    async with open_store("memory:") as store, RunRecorder(store, "agent", "run") as recorder:

        async def run(tool: Tool, call_event: Event | None) -> None:
            block = (
                recorder.tool_call(tool.name, tool.payload) if call_event is None else recorder.tool_call(call_event)
            )
            async with block as recorded_call:
                await asyncio.gather(*(run(inner, None) for inner in tool.inside))
                if tool.fails:
                    recorded_call.fail("failed")
                else:
                    recorded_call.result(tool.payload)

        await recorder.user("go")
        for number, calls in enumerate(steps):
            recorded_answer = await recorder.record_response(answer(number, calls))
            await asyncio.gather(*map(run, calls, recorded_answer.tool_calls))
            await recorder.note("between")
        return await store.load_run("agent", "run")


async def replay_agent(replayed: Replayer, steps: list[list[Tool]], depth: int) -> None:
    """Replay the steps of ``record``. Nested tools are run down to ``depth``."""

    async def run(tool: Tool, level: int, call_id: str | None) -> None:
        await asyncio.sleep(0)
        if level >= depth:
            returned = replayed.tool_result(tool.name, tool.payload, tool_call_id=call_id)
            assert bool(returned.error_message) == tool.fails
            return
        async with replayed.tool_call(tool.name, tool.payload, tool_call_id=call_id) as replayed_call:
            assert replayed_call.recorded is not None
            await asyncio.gather(*(run(inner, level + 1, None) for inner in reversed(tool.inside)))

    for number, calls in enumerate(steps):
        turn: ModelTurn = replayed.model_turn()
        assert turn.message == {key: answer(number, calls)[key] for key in ("role", "content")}
        ids = [block["id"] for block in turn.message["content"][1:]]
        await asyncio.gather(*(run(tool, 0, call_id) for tool, call_id in zip(calls, ids, strict=True)))


@given(rounds, st.integers(0, 3))
def test_agent_with_the_same_steps_never_diverges(steps: list[list[Tool]], depth: int) -> None:
    async def main() -> None:
        async with Replayer(await record(steps)) as replayed:
            await replay_agent(replayed, steps, depth)

    asyncio.run(main())


@given(rounds, st.data())
def test_agent_with_one_changed_step_diverges(steps: list[list[Tool]], data: st.DataObject) -> None:
    positions = [(turn, index) for turn, calls in enumerate(steps) for index in range(len(calls))]
    changes = ["drop_turn", "add_turn"] + (["arguments", "name", "drop", "twice"] if positions else [])
    change = data.draw(st.sampled_from(changes))
    changed_steps = [list(calls) for calls in steps]
    if change == "drop_turn":
        changed_steps.pop()
    elif change == "add_turn":
        changed_steps.append([])
    else:
        turn, index = data.draw(st.sampled_from(positions))
        tool = changed_steps[turn][index]
        if change == "drop":
            del changed_steps[turn][index]
        elif change == "twice":
            changed_steps[turn].insert(index, tool)
        else:
            new_fields = {"payload": {"z": 1}} if change == "arguments" else {"name": "z"}
            changed_steps[turn][index] = tool._replace(**new_fields)

    async def main() -> None:
        async with Replayer(await record(steps)) as replayed:
            for calls in changed_steps:
                replayed.model_turn()
                for tool in calls:
                    replayed.tool_result(tool.name, tool.payload)

    with pytest.raises(ReplayDivergence):
        asyncio.run(main())


def test_notes_are_not_steps() -> None:
    with replayer(run_of(PlannerNote("x"), UserMessage("y"))):
        pass


@settings(max_examples=2 * EXAMPLES)
@given(ANY_PAYLOADS, st.sampled_from(provider_names()))
def test_any_run_replays_in_the_order_of_its_log(payloads: list[EventData], provider: str) -> None:
    snapshot = run_of(PlannerNote("first"), *payloads)
    replayed = replayer(snapshot, provider)
    turns = {expected.position: expected.turn for expected in replayed._expected.turns}
    calls = {expected.begin: expected for expected in replayed._expected.calls}
    replayed_events: list[Event] = []
    for index in range(len(snapshot.log)):
        if index in turns:
            turn = replayed.model_turn()
            assert turn == turns[index]
            replayed_events += turn.events
        expected_call = calls.get(index)
        if expected_call is None or expected_call.parent is not None:
            continue
        if expected_call.result is None:
            assert_diverges("no_result", lambda: replayed.tool_result(snapshot.log[index]), seq=index + 1)  # noqa: B023  # called at once
            return
        assert replayed.tool_result(expected_call.event) == expected_call.result
    replayed.finish()
    recorded_texts = [event for event in snapshot.log if isinstance(event.data, (AssistantMessage, Thinking))]
    assert [
        event for event in replayed_events if isinstance(event.data, (AssistantMessage, Thinking))
    ] == recorded_texts
    lenient = replayer(snapshot, provider, match="order")
    for _ in calls:
        with contextlib.suppress(ReplayDivergence):
            lenient.tool_result("any")
    assert_diverges("unexpected_call", lambda: lenient.tool_result("any"))
