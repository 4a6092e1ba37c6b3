"""Tests the Messages API: parsing, building, the rules of ``validate`` and the changes of ``repair``."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from agent_memory_log import (
    AssistantMessage,
    EventData,
    JsonValue,
    ModelRequest,
    PlannerNote,
    Reader,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
    open_store,
)
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.transcript import (
    Repair,
    Transcript,
    build,
    import_transcript,
    model_request,
    parse,
    repair,
    request,
    validate,
    window,
)
from agent_memory_log.transcript.anthropic import rules as rules_module
from agent_memory_log.transcript.validity import signed_reasoning as signed_module
from agent_memory_log.transcript.validity.repairing import INTERRUPTED
from tests.transcript.transcripts import Message, run_of, snapshot_of
from tests.transcript.transcripts_anthropic import (
    ANSWER,
    ANTHROPIC,
    CASE,
    CITATION,
    COMPACTION,
    IMAGE,
    MARK,
    SEARCHED,
    USER,
    VALID,
    assistant,
    judge_released,
    redacted,
    result,
    server,
    text,
    thinking,
    use,
    user,
)


def events_of(*messages: Message) -> list[EventData]:
    return [event.data for event in parse(messages, ANTHROPIC)]


def recorded(*messages: Message) -> Transcript:
    return build(snapshot_of(parse(messages, ANTHROPIC)), ANTHROPIC)


def live(*payloads: EventData) -> Transcript:
    return build(run_of(*payloads), ANTHROPIC)


# Events.


def test_parse_makes_an_event_of_every_block() -> None:
    messages = [
        USER,
        assistant(thinking(), redacted("YWJj"), text("Let me look."), use("t1", "orders--find", {"id": 7})),
        user(result("t1", "sent"), text("And?")),
        ANSWER,
    ]
    events = parse(messages, ANTHROPIC)
    assert [event.data for event in events] == [
        UserMessage("Hi"),
        Thinking(text="hm", signature="sig", content_index=0, final=True),
        Thinking(redacted=b"abc", content_index=1, final=True),
        AssistantMessage("Let me look."),
        ToolCall("t1", "orders.find", payload_json='{"id":7}'),
        ToolResult("t1", "orders.find", result_json="sent"),
        UserMessage("And?"),
        AssistantMessage("Hello"),
    ]
    assert [event.labels["role"] for event in events] == ["user", *["assistant"] * 4, "user", "user", "assistant"]


def test_parse_stores_extra_fields_in_structured() -> None:
    call, searched, answer = events_of(assistant(use(cache_control=MARK), server(), text("a"), text("b", x=1)))[:3]
    assert isinstance(call, ToolCall)
    assert call.structured == {ANTHROPIC: {"fields": {"cache_control": MARK}}}
    assert searched == UnknownPayload("anthropic.block", {"block": server()})
    assert isinstance(answer, AssistantMessage)
    assert answer.message == "ab"
    assert answer.structured == {ANTHROPIC: {"parts": [1, {"characters": 1, "fields": {"x": 1}}]}}


def test_parse_joins_text_parts_and_stores_the_text_once() -> None:
    cited_message = assistant(text("It is "), text("green", citations=[CITATION]), text("."))
    (answer,) = events_of(cited_message)
    assert isinstance(answer, AssistantMessage)
    assert answer.message == "It is green."
    long = "long " * 1000
    tool_result, user_message = events_of(user(result(content=[text(long), IMAGE]), text(long, cache_control=MARK)))
    assert isinstance(tool_result, ToolResult)
    assert isinstance(user_message, UserMessage)
    assert tool_result.result_json == user_message.message == long
    for payload in (tool_result, user_message):
        assert len(encode_canonical(payload.to_map())) < len(long) + 400


def test_parsed_result_has_the_tool_name_of_its_call() -> None:
    call, other, failed, fine = events_of(
        assistant(use("a", "f"), use("b", "g")),
        user(result("b", "boom", is_error=True), result("a", [text("1"), text("2")])),
    )
    assert (call, other) == (ToolCall("a", "f", payload_json="{}"), ToolCall("b", "g", payload_json="{}"))
    assert failed == ToolResult("b", "g", error_message="boom")
    assert isinstance(fine, ToolResult)
    assert (fine.tool_name, fine.result_json) == ("f", "1\n2")


def test_server_tools_are_not_open_calls() -> None:
    reader = Reader(snapshot_of(parse([USER, assistant(server(), use("t1"))], ANTHROPIC)))
    assert [event.data.to_map()["tool_call_id"] for event in reader.open_tool_calls()] == ["t1"]


def test_parse_stores_no_residual_for_plain_messages() -> None:
    plain = [
        USER,
        assistant(thinking(), text(), use("t1")),
        user(result("t1")),
        assistant(text("a"), use("t2", "orders--find", {"a": [1, 2.5]}), use("t3")),
        user(result("t3"), result("t2", "no", is_error=True), text("x")),
        ANSWER,
        USER,
        USER,
        {"role": "system", "content": "x"},
    ]
    assert recorded(*plain) == plain
    for payload in events_of(*plain):
        assert "structured" not in payload.to_map()


def test_parse_stores_each_value_in_one_event_only() -> None:
    secret = assistant(thinking("secret", "secret sig", x="secret"), text("fine"), use(arguments={"a": "secret"}))
    maps = [encode_canonical(payload.to_map()) for payload in events_of({**secret, "id": "msg"}, user(result()))]
    assert [b"secret" in text for text in maps] == [True, False, True, False]


async def test_build_leaves_out_and_reports_erased_events() -> None:
    messages = VALID["parallel tools, results in another order"]
    count = len(parse(messages, ANTHROPIC))
    async with open_store("memory:") as store:
        for seq in range(1, count + 1):
            run = f"run-{seq}"
            await import_transcript(store, "a", run, messages, ANTHROPIC)
            await store.redact_events("a", run, [seq])
            built = build(await store.load_run("a", run), ANTHROPIC)
            assert [(loss.reason, loss.seq) for loss in built.losses] == [("redacted", seq)]
            repaired = repair(built, ANTHROPIC)
            assert validate(repaired.transcript, ANTHROPIC) == []
        await store.redact_events("a", "run-1", range(1, count + 1))
        assert build(await store.load_run("a", "run-1"), ANTHROPIC) == []


async def test_build_does_not_join_messages_around_an_erased_event() -> None:
    async with open_store("memory:") as store:
        await import_transcript(store, "a", "r", [USER, ANSWER, USER, ANSWER], ANTHROPIC)
        await store.redact_events("a", "r", [3])
        assert build(await store.load_run("a", "r"), ANTHROPIC) == [USER, ANSWER, ANSWER]


# Runs recorded without a provider.


def test_build_converts_a_handmade_run() -> None:
    assert live(
        SystemMessage("S"),
        UserMessage("U", {"intent": "x"}),
        Thinking(text="hm", signature="s1", content_index=7),
        AssistantMessage("A"),
        ToolCall("1", "orders.find", payload_json='{"a": 1}'),
        PlannerNote("n"),
        Thinking(text="more", signature="s2"),
        ToolCall("2", "g"),
        ToolResult("2", "g", error_message="broken", server_data='"no"'),
        ToolResult("1", "orders.find", result_json="[]", preview="p"),
        Thinking(text="", signature="signed and empty"),
        Thinking(redacted=b"abc"),
        AssistantMessage(""),
        ToolCall("3", "h"),
        ToolResult("3", "h"),
        UserMessage("V"),
        UserMessage("W"),
        SystemMessage("be brief"),
        AssistantMessage("Done"),
    ) == [
        {"role": "user", "content": "U"},
        assistant(
            thinking("hm", "s1"),
            text("A"),
            use("1", "orders--find", {"a": 1}),
            thinking("more", "s2"),
            use("2", "g"),
        ),
        user(result("2", "broken", is_error=True), result("1", "[]")),
        assistant(thinking("", "signed and empty"), redacted("YWJj"), use("3", "h")),
        user({"type": "tool_result", "tool_use_id": "3"}, text("V")),
        {"role": "user", "content": "W"},
        {"role": "system", "content": "be brief"},
        assistant(text("Done")),
    ]


def test_user_text_before_a_result_is_in_the_same_message() -> None:
    built = live(UserMessage("U"), ToolCall("1", "f"), UserMessage("wait"), ToolResult("1", "f", result_json="1"))
    assert built[2:] == [user(text("wait"), result("1", "1"))]
    assert rules_of(built) == ["result_order"]


def test_build_leaves_out_unsigned_thinking() -> None:
    built = live(UserMessage("U"), Thinking(text="secret"), AssistantMessage("A"))
    assert built == [{"role": "user", "content": "U"}, assistant(text("A"))]
    assert [(loss.reason, loss.seq, loss.type) for loss in built.losses] == [("reasoning", 2, "thinking")]


@pytest.mark.parametrize("arguments", ["{broken", "[1]", "7", "null", "1e999", '"x"', "[" * 100_000])
def test_build_wraps_arguments_that_are_no_json_object(arguments: str) -> None:
    built = live(UserMessage("U"), ToolCall("1", "f", payload_json=arguments), ToolResult("1", "f", result_json="1"))
    assert built[1] == assistant(use("1", "f", {"arguments": arguments}))
    assert [(loss.reason, loss.seq) for loss in built.losses] == [("arguments", 2)]
    assert validate(built, ANTHROPIC) == []


def test_build_leaves_out_nested_calls() -> None:
    built = live(
        UserMessage("U"),
        ToolCall("p", "f"),
        ToolCall("n", "g", "p"),
        ToolResult("n", "g", "p", result_json="1"),
        ToolResult("p", "f", result_json="2"),
    )
    assert built[1:] == [assistant(use("p", "f")), user(result("p", "2"))]


def test_build_renames_repeated_call_ids() -> None:
    built = live(
        UserMessage("U"),
        ToolCall("c", "f"),
        ToolResult("c", "f", result_json="1"),
        ToolCall("c", "f"),
        ToolCall("c", "f"),
        ToolResult("c", "f", result_json="3"),
        ToolResult("c", "f", result_json="2"),
        ToolCall("a.b", "f"),
        ToolResult("a.b", "f", result_json="4"),
    )
    assert built[1:] == [
        assistant(use("c", "f")),
        user(result("c", "1")),
        assistant(use("c-2", "f"), use("c-3", "f")),
        user(result("c-3", "3"), result("c-2", "2")),
        assistant(use("a--b", "f")),
        user(result("a--b", "4")),
    ]
    assert validate(built, ANTHROPIC) == []


USERS_OWN: list[JsonValue] = [
    False,
    "fields",
    [],
    {},
    {"fields": {"text": "x"}},
    {ANTHROPIC: "x"},
    {ANTHROPIC: {"fields": "x"}},
    {ANTHROPIC: {"fields": {"text": "x"}, "other": 1}},
    {ANTHROPIC: {"without": "type"}},
    {ANTHROPIC: {"inside": {"input": 1}}},
    {ANTHROPIC: {"parts": [1, 2, 3]}},
    {ANTHROPIC: {"parts": [{"part": 1, "characters": 1}]}},
    {ANTHROPIC: {"parts": [-1, 2]}},
    {ANTHROPIC: {"message": {"other": 1}}},
    {ANTHROPIC: {"message": 5}},
]


@pytest.mark.parametrize("structured", USERS_OWN)
def test_build_ignores_a_users_own_structured_values(structured: JsonValue) -> None:
    plain = live(UserMessage("U"), AssistantMessage("A"), ToolCall("c", "f"), ToolResult("c", "f", result_json="1"))
    assert plain == live(
        UserMessage("U", structured),
        AssistantMessage("A", structured),
        ToolCall("c", "f", structured=structured),
        ToolResult("c", "f", result_json="1", structured=structured),
    )


def test_update_turns_a_text_into_blocks() -> None:
    snapshot = run_of(UserMessage("U"))
    built = build(snapshot, ANTHROPIC)
    assert built == [{"role": "user", "content": "U"}]
    longer = run_of(UserMessage("U"), ToolResult("x", "f", result_json="1"))
    built.update(longer)
    assert built == [user(text("U"), result("x", "1"))]


# The rules. Each row holds messages, their findings, the repaired messages and the changes.


def rules_of(transcript: Sequence[Message], **options: Any) -> list[str]:
    return [finding.rule for finding in validate(transcript, ANTHROPIC, **options)]


BROKEN: dict[str, tuple[list[Any], list[tuple[str, tuple[int | str, ...]]], list[Any], list[str]]] = {
    "no map": ([USER, 5], [("message_shape", (1,))], [USER], ["dropped_message"]),
    "no role": ([USER, {"content": "x"}], [("message_shape", (1,))], [USER], ["dropped_message"]),
    "another role": ([USER, {"role": "tool", "content": "x"}], [("message_shape", (1,))], [USER], ["dropped_message"]),
    "no content": ([USER, {"role": "user"}], [("message_shape", (1, "content"))], [USER], ["dropped_message"]),
    "content that is a map": (
        [USER, {"role": "assistant", "content": {}}],
        [("message_shape", (1, "content"))],
        [USER],
        ["dropped_message"],
    ),
    "empty text": (
        [{**USER, "content": ""}, USER],
        [("empty_message", (0, "content"))],
        [USER],
        ["dropped_message", "dropped_part"],
    ),
    "no blocks": ([user(), USER], [("empty_message", (0, "content"))], [USER], ["dropped_message"]),
    "blank text": (
        [{**USER, "content": " "}, USER],
        [("empty_text", (0, "content"))],
        [USER],
        ["dropped_message", "dropped_part"],
    ),
    "an empty text block": (
        [user(text(""), text("x"))],
        [("empty_text", (0, "content", 0))],
        [user(text("x"))],
        ["dropped_part"],
    ),
    "an empty text block before a call": (
        [USER, assistant(text(""), use()), user(result())],
        [("empty_text", (1, "content", 0))],
        [USER, assistant(use()), user(result())],
        ["dropped_part"],
    ),
    "blank text blocks alone": (
        [USER, assistant(text("\n"), use()), user(result())],
        [("empty_text", (1, "content", 0))],
        [USER, assistant(use()), user(result())],
        ["dropped_part"],
    ),
    "an empty text in a result": (
        [USER, assistant(use()), user(result(content=[text(""), text("x")]))],
        [("empty_text", (2, "content", 0, "content", 0))],
        [USER, assistant(use()), user(result(content=[text("x")]))],
        ["dropped_part"],
    ),
    "an error without a message": (
        [USER, assistant(use()), user(result(content="", is_error=True))],
        [("empty_result", (2, "content", 0))],
        [USER, assistant(use()), user(result(content="the tool gave no message", is_error=True))],
        ["filled_result"],
    ),
    "a block that is no map": (
        [user(text(), "x")],
        [("block_shape", (0, "content", 1))],
        [user(text())],
        ["dropped_part"],
    ),
    "a block without type": (
        [user(text(), {})],
        [("block_shape", (0, "content", 1))],
        [user(text())],
        ["dropped_part"],
    ),
    "a block without a required field": (
        [user(text(), {"type": "image"})],
        [("block_shape", (0, "content", 1))],
        [user(text())],
        ["dropped_part"],
    ),
    "a call from the user": (
        [user(text(), use())],
        [("block_shape", (0, "content", 1))],
        [user(text())],
        ["dropped_part"],
    ),
    "thinking from the user": (
        [user(text(), thinking())],
        [("block_shape", (0, "content", 1))],
        [user(text())],
        ["dropped_part"],
    ),
    "a result from the assistant": (
        [USER, assistant(text(), result())],
        [("block_shape", (1, "content", 1))],
        [USER, assistant(text())],
        ["dropped_part"],
    ),
    "a result in a result": (
        [USER, assistant(use()), user(result(content=[result(), text("x")]))],
        [("block_shape", (2, "content", 0))],
        [USER, assistant(use()), user(result(content=[text("x")]))],
        ["dropped_part"],
    ),
    "a call without a required field": (
        [USER, assistant(text(), {"type": "tool_use", "id": "t1", "name": "f"}), user(result(), text())],
        [("block_shape", (1, "content", 1)), ("orphan_result", (2, "content", 0))],
        [USER, assistant(text()), user(text())],
        ["dropped_part", "dropped_result"],
    ),
    "a call without an answer": (
        [USER, assistant(use()), USER],
        [("unanswered_call", (1, "content", 0))],
        [USER, assistant(use()), user(result(content=INTERRUPTED, is_error=True), text())],
        ["answered_call"],
    ),
    "a call at the end": (
        [USER, assistant(use("a"), use("b"))],
        [("unanswered_call", (1, "content", 0)), ("unanswered_call", (1, "content", 1))],
        [
            USER,
            assistant(use("a"), use("b")),
            user(*(result(call_id, INTERRUPTED, is_error=True) for call_id in "ab")),
        ],
        ["answered_call", "answered_call"],
    ),
    "an answer one message too late": (
        [USER, assistant(use("a"), use("b")), user(result("a")), user(result("b"), text("x"))],
        [("unanswered_call", (1, "content", 1)), ("orphan_result", (3, "content", 0))],
        [USER, assistant(use("a"), use("b")), user(result("a"), result("b")), user(text("x"))],
        ["moved_result"],
    ),
    "an answer without a call": (
        [USER, ANSWER, user(result("x"), text("y"))],
        [("orphan_result", (2, "content", 0))],
        [USER, ANSWER, user(text("y"))],
        ["dropped_result"],
    ),
    "an answer before its call": (
        [user(result("a"), text("x")), assistant(use("a"))],
        [("orphan_result", (0, "content", 0)), ("unanswered_call", (1, "content", 0))],
        [
            user(text("x")),
            assistant(use("a")),
            user(result("a", INTERRUPTED, is_error=True)),
        ],
        ["dropped_result", "answered_call"],
    ),
    "text before results": (
        [USER, assistant(use("a"), use("b")), user(result("b"), text("x"), result("a"))],
        [("result_order", (2, "content", 2))],
        [USER, assistant(use("a"), use("b")), user(result("b"), result("a"), text("x"))],
        ["moved_result"],
    ),
    "two answers": (
        [USER, assistant(use("a")), user(result("a", "1"), result("a", "2"))],
        [("duplicate_result", (2, "content", 1))],
        [USER, assistant(use("a")), user(result("a", "1"))],
        ["dropped_duplicate"],
    ),
    "the same call twice": (
        [USER, assistant(use("a"), use("a")), user(result("a", "1"), result("a", "1"))],
        [("duplicate_call", (1, "content", 1, "id")), ("duplicate_result", (2, "content", 1))],
        [USER, assistant(use("a")), user(result("a", "1"))],
        ["dropped_duplicate", "dropped_duplicate"],
    ),
    "an id used twice in one turn": (
        [USER, assistant(use("a")), assistant(use("a", name="g")), user(result("a", "1"), result("a", "2"))],
        [("duplicate_call", (2, "content", 0, "id")), ("duplicate_result", (3, "content", 1))],
        [USER, assistant(use("a")), assistant(use("a-2", name="g")), user(result("a-2", "1"), result("a", "2"))],
        ["renamed_call"],
    ),
    "an id of a server tool used again": (
        [USER, assistant(server("a"), {**SEARCHED, "tool_use_id": "a"}, use("a")), user(result("a"))],
        [("duplicate_call", (1, "content", 2, "id"))],
        [USER, assistant(use("a")), user(result("a"))],
        ["dropped_part", "dropped_part"],
    ),
    "an id that is not allowed": (
        [USER, assistant(use("a.b"), use("")), user(result(""), result("a.b"))],
        [("call_id", (1, "content", 0, "id")), ("call_id", (1, "content", 1, "id"))],
        [USER, assistant(use("a--b"), use("call")), user(result("call"), result("a--b"))],
        ["renamed_call", "renamed_call"],
    ),
    "names that are not allowed": (
        [
            USER,
            assistant(use("a", "x.y"), use("b", "n" * 129), use("c", "")),
            user(result("a"), result("b"), result("c")),
        ],
        [("tool_name", (1, "content", index, "name")) for index in range(3)],
        [
            USER,
            assistant(use("a", "x--y"), use("b", "n" * 115 + "-43a2741a46a7"), use("c", "unnamed")),
            user(result("a"), result("b"), result("c")),
        ],
        ["renamed_tool"] * 3,
    ),
    "an unanswered server tool": (
        [USER, assistant(server(), text("x")), USER],
        [("unanswered_server_call", (1, "content", 0))],
        [USER, assistant(text("x")), USER],
        ["dropped_part"],
    ),
    "an answer of a server tool without its call": (
        [USER, assistant(SEARCHED, text("x"))],
        [("orphan_server_result", (1, "content", 0))],
        [USER, assistant(text("x"))],
        ["dropped_part"],
    ),
    "two answers of a server tool": (
        [USER, assistant(server(), SEARCHED, SEARCHED, text("x"))],
        [("duplicate_result", (1, "content", 2))],
        [USER, assistant(server(), SEARCHED, text("x"))],
        ["dropped_part"],
    ),
    "thinking without a signature": (
        [USER, assistant(thinking("hm", ""), text())],
        [("thinking_unsigned", (1, "content", 0))],
        [USER, assistant(text())],
        ["dropped_thinking"],
    ),
    "thinking twice": (
        [USER, assistant(thinking(), redacted(), text()), assistant(redacted(), thinking(), text())],
        [("thinking_order", (2, "content", 0)), ("thinking_order", (2, "content", 1))],
        [USER, assistant(thinking(), redacted(), text()), assistant(text())],
        ["dropped_thinking", "dropped_thinking"],
    ),
    "thinking at the end": (
        [USER, assistant(text(), thinking(), redacted()), USER],
        [("thinking_last", (1, "content", 2))],
        [USER, assistant(text()), USER],
        ["dropped_thinking", "dropped_thinking"],
    ),
    "instructions first": (
        [{"role": "system", "content": "S"}, USER, ANSWER],
        [("system_placement", (0,))],
        [USER, {"role": "system", "content": "S"}, ANSWER],
        ["moved_system"],
    ),
    "instructions after the assistant": (
        [USER, ANSWER, {"role": "system", "content": "S"}, USER],
        [("system_placement", (2,))],
        [USER, ANSWER, USER, {"role": "system", "content": "S"}],
        ["moved_system"],
    ),
    "instructions before the user": (
        [USER, {"role": "system", "content": "S"}, USER, ANSWER],
        [("system_placement", (1,))],
        [USER, USER, {"role": "system", "content": "S"}, ANSWER],
        ["moved_system"],
    ),
    "instructions between a call and its answer": (
        [USER, assistant(use()), {"role": "system", "content": "S"}, user(result())],
        [("unanswered_call", (1, "content", 0)), ("system_placement", (2,)), ("orphan_result", (3, "content", 0))],
        [USER, assistant(use()), user(result()), {"role": "system", "content": "S"}],
        ["moved_system"],
    ),
    "instructions without a user message": (
        [{"role": "system", "content": "S"}, ANSWER],
        [("system_placement", (0,))],
        [ANSWER],
        ["dropped_message"],
    ),
    "too many cache marks": (
        [user(*(text(str(n), cache_control=MARK) for n in range(6)))],
        [("cache_control", (0, "content", 0)), ("cache_control", (0, "content", 1))],
        [user(text("0"), text("1"), *(text(str(n), cache_control=MARK) for n in range(2, 6)))],
        ["dropped_mark", "dropped_mark"],
    ),
    "thinking with a cache mark": (
        [USER, assistant(thinking(cache_control=MARK), text())],
        [("cache_control", (1, "content", 0))],
        [USER, assistant(thinking(), text())],
        ["dropped_mark"],
    ),
    "white space at the end": (
        [USER, assistant(text("Hello\n"))],
        [("prefill", (1, "content", 0))],
        [USER, assistant(text("Hello"))],
        ["trimmed_text"],
    ),
    "a blank text at the end": (
        [USER, assistant(text("Hello"), text("\n"))],
        [("prefill", (1, "content", 1))],
        [USER, assistant(text("Hello"))],
        ["trimmed_text"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rule_is_reported_and_repaired(name: str) -> None:
    messages, findings, expected, changes = BROKEN[name]
    before = copy.deepcopy(messages)
    actual_findings = validate(messages, ANTHROPIC)
    assert [(finding.rule, finding.path) for finding in actual_findings] == findings
    repaired = repair(messages, ANTHROPIC)
    assert [change.change for change in repaired.changes] == changes
    assert repaired.transcript == expected
    assert messages == before
    if "trimmed_text" in changes:  # a run that ends in an answer is no prefill
        assert not validate(recorded(*messages), ANTHROPIC)
        assert repair(recorded(*messages), ANTHROPIC).transcript == messages
    elif not any(isinstance(message, int) for message in messages):
        built = recorded(*messages)
        assert [(finding.rule, finding.path) for finding in validate(built, ANTHROPIC)] == findings
        assert all(finding.seq for finding in validate(built, ANTHROPIC))
        assert repair(built, ANTHROPIC).transcript == expected


def test_every_rule_has_a_case() -> None:
    rules = {rule for _, findings, _, _ in BROKEN.values() for rule, _ in findings}
    tested_elsewhere = {
        "thinking_edited",
        "thinking_prefix",
        "thinking_first",
        "error_and_value",
    }  # tested below or in test_transcripts.py
    described = {name for module in (rules_module, signed_module) for name in (module.__doc__ or "").split("``")[1::2]}
    documented = {name for name in described if "_" in name or name == "prefill"}
    assert documented - {"tool_use", "tool_result", "thinking_…", "signed_reasoning"} == rules | tested_elsewhere


# Signed thinking.

TALK = [
    USER,
    assistant(thinking("a", "1"), text("x"), use("t1")),
    user(result("t1")),
    assistant(thinking("b", "2"), text("y")),
]


def test_repair_drops_edited_thinking() -> None:
    built = recorded(*TALK)
    built[1]["content"][0]["thinking"] = "another thought"
    findings = validate(built, ANTHROPIC)
    assert [(finding.rule, finding.path, finding.seq) for finding in findings] == [
        ("thinking_edited", (1, "content", 0), 2)
    ]
    repaired = repair(built, ANTHROPIC)
    assert [change.change for change in repaired.changes] == ["dropped_thinking"]
    assert repaired.transcript == [USER, assistant(text("x"), use("t1")), TALK[2], TALK[3]]


def test_validate_reports_thinking_that_is_not_in_the_log() -> None:
    built = recorded(*TALK)
    built.append(assistant(thinking("c", "3"), text("z")))
    assert rules_of(built) == ["thinking_edited"]
    assert repair(built, ANTHROPIC).transcript == [*TALK, assistant(text("z"))]


def test_validate_reports_thinking_in_another_order() -> None:
    built = recorded(*TALK)
    first_content, second_content = built[1]["content"], built[3]["content"]
    first_content[0], second_content[0] = second_content[0], first_content[0]
    assert rules_of(built) == ["thinking_order"]
    repaired = repair(built, ANTHROPIC)
    assert validate(repaired.transcript, ANTHROPIC) == []
    assert len(repaired.changes) == 1


def test_validate_accepts_edited_thinking_in_a_plain_list() -> None:
    edited = copy.deepcopy(TALK)
    edited[1]["content"][0]["thinking"] = "another thought"
    assert validate(edited, ANTHROPIC) == []


def test_repair_keeps_thinking_before_an_inserted_result() -> None:
    messages = [USER, assistant(thinking("a", "1"), use("t1")), USER, assistant(thinking("b", "2"), text("y"))]
    repaired = repair(messages, ANTHROPIC)
    assert [change.change for change in repaired.changes] == ["answered_call", "dropped_thinking"]
    assert repaired.transcript[1] == messages[1]
    assert repaired.transcript[3] == assistant(text("y"))


def test_repair_keeps_thinking_before_a_changed_block() -> None:
    messages = [
        USER,
        assistant(thinking("a", "1"), use("t1", "x.y"), thinking("b", "2"), use("t2")),
        user(result("t1"), result("t2")),
    ]
    assert repair(messages, ANTHROPIC).transcript[1] == assistant(thinking("a", "1"), use("t1", "x--y"), use("t2"))


@pytest.mark.parametrize("change", ["mark", "unmark", "blocks", "nothing"])
def test_change_that_keeps_the_signature_valid_is_no_edit(change: str) -> None:
    talk = copy.deepcopy(TALK)
    talk[1]["content"][1]["cache_control"] = MARK
    talk[2]["content"][0]["content"] = [text("ok", cache_control=MARK)]
    built = recorded(*talk)
    if change == "mark":
        built[2]["content"][0]["cache_control"] = MARK
    elif change == "unmark":
        del built[1]["content"][1]["cache_control"]
    elif change == "blocks":
        built[0]["content"] = [text("Hi")]
    assert validate(built, ANTHROPIC) == []
    assert repair(built, ANTHROPIC).changes == ()


def test_repair_drops_thinking_after_a_manual_edit() -> None:
    built = recorded(*TALK)
    built[2]["content"][0]["content"] = "something else"
    repaired = repair(built, ANTHROPIC)
    assert [(change.change, change.path, change.seq) for change in repaired.changes] == [
        ("dropped_thinking", (3, "content", 0), 6)
    ]
    assert repaired.transcript[1] == TALK[1]
    assert repaired.transcript[3] == assistant(text("y"))


def test_repair_drops_thinking_after_an_omitted_result() -> None:
    snapshot = snapshot_of(parse(TALK, ANTHROPIC))
    built = build(snapshot, ANTHROPIC, max_result_bytes=1)
    assert [(finding.rule, finding.path) for finding in validate(built, ANTHROPIC)] == [
        ("thinking_prefix", (3, "content", 0))
    ]
    repaired = repair(built, ANTHROPIC)
    assert validate(repaired.transcript, ANTHROPIC) == []
    assert repaired.transcript[3] == assistant(text("y"))
    assert repaired.transcript[1] == TALK[1]


async def test_erased_event_makes_later_thinking_stale() -> None:
    async with open_store("memory:") as store:
        for seq, stale in ((1, [2, 6]), (2, []), (3, [6]), (5, [6]), (6, []), (7, [])):
            run = f"run-{seq}"
            await import_transcript(store, "a", run, TALK, ANTHROPIC)
            await store.redact_events("a", run, [seq])
            built = build(await store.load_run("a", run), ANTHROPIC)
            findings = [finding for finding in validate(built, ANTHROPIC) if finding.rule == "thinking_prefix"]
            assert [finding.seq for finding in findings] == stale
            assert validate(repair(built, ANTHROPIC).transcript, ANTHROPIC) == []


def request_with(system: JsonValue, tools: JsonValue = None) -> ModelRequest:
    return model_request(run_of(), ANTHROPIC, model="m", system=system, tools=tools)


def talk_with_requests(*requests: ModelRequest) -> Transcript:
    first, *rest = [event.data for event in parse(TALK, ANTHROPIC)]
    return build(run_of(requests[0], first, *rest[:-2], *requests[1:], *rest[-2:]), ANTHROPIC)


def test_repair_drops_thinking_signed_with_another_system_prompt_or_tools() -> None:
    for other in (request_with("T"), request_with("S", [{"name": "f"}]), request_with(None)):
        built = talk_with_requests(request_with("S"), other)
        assert built == TALK
        findings = validate(built, ANTHROPIC)
        assert [(finding.rule, finding.path) for finding in findings] == [("thinking_prefix", (1, "content", 0))]
        repaired = repair(built, ANTHROPIC)
        assert [change.change for change in repaired.changes] == ["dropped_thinking"]
        assert repaired.transcript == [USER, assistant(text("x"), use("t1")), *TALK[2:]]
        assert validate(repaired.transcript, ANTHROPIC) == []
        assert repair(repaired.transcript, ANTHROPIC).changes == ()
    assert validate(talk_with_requests(request_with("S"), request_with("S")), ANTHROPIC) == []


def test_validate_and_repair_use_the_request_argument() -> None:
    built = talk_with_requests(request_with("S"), request_with("S"))
    assert validate(built, ANTHROPIC, request={"system": "S"}) == []
    assert rules_of(built, request={"system": "T"}) == ["thinking_prefix", "thinking_prefix"]
    assert rules_of(built, request={"system": "S", "tools": []}) == ["thinking_prefix", "thinking_prefix"]
    repaired = repair(built, ANTHROPIC, request={"system": "T"})
    assert [change.change for change in repaired.changes] == ["dropped_thinking"] * 2
    assert validate(repaired.transcript, ANTHROPIC, request={"system": "T"}) == []
    # Thinking recorded without a request, or after a request to another provider, is not known to be stale.
    assert validate(recorded(*TALK), ANTHROPIC, request={"system": "T"}) == []
    foreign = model_request(run_of(), "bedrock", model="m", system="S")
    assert validate(talk_with_requests(foreign, request_with("T")), ANTHROPIC) == []


BUDGET: dict[str, JsonValue] = {"thinking": {"type": "enabled", "budget_tokens": 2048}}


def repaired_with_budget(messages: list[Message]) -> Repair:
    repaired = repair(messages, ANTHROPIC, request=BUDGET)
    assert validate(repaired.transcript, ANTHROPIC, request=repaired.request) == []
    assert repair(repaired.transcript, ANTHROPIC, request=repaired.request).changes == ()
    return repaired


def test_thinking_budget_requires_thinking_before_the_last_call() -> None:
    bare = [USER, assistant(text("x"), use("t1")), user(result("t1"))]
    assert validate(bare, ANTHROPIC) == []
    for mode in ("adaptive", "disabled"):
        assert validate(bare, ANTHROPIC, request={"thinking": {"type": mode}}) == []
    findings = validate(bare, ANTHROPIC, request=BUDGET)
    assert [(finding.rule, finding.path) for finding in findings] == [("thinking_first", (1, "content", 0))]
    repaired = repaired_with_budget(bare)
    assert repaired.transcript == bare
    assert [change.change for change in repaired.changes] == ["thinking_off"]
    assert repaired.request == {}
    with_thinking = repaired_with_budget(TALK[:3])
    assert (with_thinking.changes, with_thinking.request) == ((), BUDGET)
    assert validate([*bare, ANSWER], ANTHROPIC, request=BUDGET) == []
    # The model thinks once in a turn, and a tool result does not end the turn.
    turn = [*TALK[:3], assistant(use("t2")), user(result("t2"))]
    assert validate(turn, ANTHROPIC, request=BUDGET) == []
    assert rules_of([*bare, assistant(use("t2")), user(result("t2"))], request=BUDGET) == ["thinking_first"]
    assert rules_of([*turn, USER, assistant(use("t3")), user(result("t3"))], request=BUDGET) == ["thinking_first"]
    assert validate([*bare, assistant(thinking(), use("t2")), user(result("t2"))], ANTHROPIC, request=BUDGET) == []


def test_validate_uses_the_recorded_parameters() -> None:
    first = ModelRequest(ANTHROPIC, "m", parameters=BUDGET)
    built = live(first, UserMessage("U"), ToolCall("t1", "f"), ToolResult("t1", "f", result_json="1"))
    assert rules_of(built) == ["thinking_first"]
    repaired = repair(built, ANTHROPIC)
    assert repaired.request == {"model": "m"}
    assert validate(repaired.transcript, ANTHROPIC) == []


def test_window_drops_thinking_signed_with_messages_it_cuts() -> None:
    more = [
        {"role": "user", "content": "And then?"},
        assistant(thinking("c", "3"), text("x"), use("t2")),
        user(result("t2")),
        assistant(thinking("d", "4"), text("y")),
    ]
    built = recorded(*TALK, *more)
    window_result = window(built, ANTHROPIC, since_turn=-1)
    assert [(loss.reason, loss.seq) for loss in window_result.left_out] == [
        ("window", 1),
        ("reasoning", 9),
        ("reasoning", 13),
    ]
    assert window_result.transcript == [more[0], assistant(text("x"), use("t2")), more[2], assistant(text("y"))]
    assert validate(window_result.transcript, ANTHROPIC) == []
    assert [window_result.transcript.seq_at((1, "content", index)) for index in range(2)] == [10, 11]
    assert window(built, ANTHROPIC, since_turn=1).transcript == built


def test_window_drops_the_budget_with_the_thinking_it_requires() -> None:
    talk = [
        USER,
        assistant(thinking("a", "1"), text("x")),
        USER,
        assistant(thinking("b", "2"), use("t1")),
        user(result("t1")),
    ]
    recorded_request = model_request(run_of(), ANTHROPIC, model="m", parameters=BUDGET)
    run = run_of(recorded_request, *events_of(*talk))
    assert validate(build(run, ANTHROPIC), ANTHROPIC) == []
    window_result = window(run, ANTHROPIC, since_turn=-1)
    assert window_result.transcript == [USER, assistant(use("t1")), user(result("t1"))]
    assert window_result.request == {"model": "m"}
    assert validate(window_result.transcript, ANTHROPIC) == []
    assert validate(window_result.transcript, ANTHROPIC, request=window_result.request) == []
    assert rules_of(window_result.transcript, request=BUDGET) == ["thinking_first"]
    assert window(window_result.transcript, ANTHROPIC, since_turn=1).request == {"model": "m"}
    assert window(run, ANTHROPIC, since_turn=1).request == {"model": "m", **BUDGET}


# Requests.


def test_request_has_every_recorded_argument() -> None:
    tools: JsonValue = [{"name": "orders--find", "input_schema": {"type": "object"}, "cache_control": MARK}]
    system: JsonValue = [text("S", cache_control=MARK)]
    parameters: dict[str, JsonValue] = {"thinking": {"type": "adaptive"}, "max_tokens": 4096}
    recorded_request = model_request(
        run_of(), ANTHROPIC, model="claude", system=system, tools=tools, parameters=parameters
    )
    arguments = request(run_of(SystemMessage("ignored"), recorded_request, UserMessage("U")), ANTHROPIC)
    assert arguments == {
        "messages": [USER | {"content": "U"}],
        "model": "claude",
        "system": system,
        "tools": tools,
        **parameters,
    }
    assert request(run_of(SystemMessage("S"), SystemMessage("T"), UserMessage("U")), ANTHROPIC) == {
        "messages": [{"role": "user", "content": "U"}],
        "system": "S\n\nT",
    }


# The types of the official package.


def test_released_types_accept_all_valid_messages_without_beta_blocks() -> None:
    beta = {"compaction", "a server of tools"}
    for name, messages in VALID.items():
        if name not in beta:
            judge_released(messages)


@pytest.mark.parametrize(
    "wrong",
    [
        [{"role": "critic", "content": "x"}],
        [user({"type": "text"})],
        [user(result(content=[{"type": "text", "text": 5}]))],
        [assistant(use(arguments={}) | {"input": 5})],
        [assistant(COMPACTION | {"content": 5})],
    ],
)
def test_judge_refuses_invalid_messages(wrong: list[Message]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        CASE.judge(wrong)


def test_parse_stores_an_empty_residual_for_an_empty_signature() -> None:
    """Event ids stay the same in every release, so the events with these ids must stay the same too."""
    thinking = {"type": "thinking", "thinking": "hm", "signature": ""}
    messages: list[Any] = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [thinking]}]
    events = parse(messages, "anthropic")
    assert isinstance(events[1].data, Thinking)
    assert events[1].data.structured == {"anthropic": {}}
    assert build(snapshot_of(events), "anthropic") == messages
