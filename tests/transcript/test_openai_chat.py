"""Tests Chat Completions: parsing, building, importing, files, validation and repair."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_memory_log import (
    Annotation,
    AssistantMessage,
    EventData,
    JsonValue,
    PlannerNote,
    Reader,
    Snapshot,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
    decode_event,
    open_store,
)
from agent_memory_log.errors import DecodeError, EventConflict, EventTooLarge, InvalidEvent
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.samples import sample_lines
from agent_memory_log.transcript import (
    Transcript,
    build,
    import_transcript,
    parse,
    provider_names,
    read_chat_lines,
    repair,
    validate,
)
from agent_memory_log.transcript.differences import difference
from agent_memory_log.transcript.openai_chat import rules as rules_module
from agent_memory_log.transcript.validity.repairing import INTERRUPTED
from tests.transcript.transcripts import Message, assert_exact, run_of, snapshot_of
from tests.transcript.transcripts_openai_chat import ASSISTANT, CASE, CHAT, USER, call, calls, tool

TAU = Path(__file__).resolve().parents[3] / "shared" / "data" / "tau_airline_train.jsonl"


def live(*payloads: EventData) -> Transcript:
    return build(run_of(*payloads), CHAT)


def test_sample_runs_survive_parse_and_build() -> None:
    runs = list(read_chat_lines(sample_lines("support.jsonl")))
    assert len(runs) == 5
    for line in runs:
        assert line.run
        assert_exact(line.messages, CHAT)


@pytest.mark.skipif(not TAU.exists(), reason="the tau-bench runs are not part of the project")
def test_tau_bench_runs_survive_and_are_valid_everywhere() -> None:
    with TAU.open("rb") as file:
        runs = list(read_chat_lines(file))
    assert (len(runs), sum(len(line.messages) for line in runs)) == (100, 2686)
    reused = 0
    for line in runs:
        snapshot = snapshot_of(assert_exact(line.messages, CHAT))
        assert_valid_everywhere(snapshot)
        reader = Reader(snapshot)
        ids = [decode_event(event, ToolCall).tool_call_id for event in reader.tool_calls()]
        reused += len(set(ids)) < len(ids)
        for result in reader.filter_by_type("tool_result"):
            call_event = reader.call_for(result)
            assert call_event is not None
            assert decode_event(call_event, ToolCall).tool_name == decode_event(result, ToolResult).tool_name
    assert reused == 25


def assert_valid_everywhere(snapshot: Snapshot) -> None:
    """Check that the run is valid for every provider without a repair."""
    for provider in provider_names():
        built = build(snapshot, provider)
        assert validate(built, provider) == []
        assert repair(built, provider).changes == ()


def test_parse_makes_plain_typed_labelled_events() -> None:
    events = parse([{"role": "system", "content": "S"}, USER, calls(call()), tool("[1]"), ASSISTANT], CHAT)
    assert [event.data for event in events] == [
        SystemMessage("S"),
        UserMessage("Hi"),
        ToolCall("c1", "orders_get", payload_json='{"id": 7}'),
        ToolResult("c1", "orders_get", result_json="[1]"),
        AssistantMessage("Hello"),
    ]
    assert [event.labels["role"] for event in events] == ["system", "user", "assistant", "tool", "assistant"]
    assert [event.timestamp for event in events] == sorted({event.timestamp for event in events})


def test_parse_makes_typed_events_of_unusual_messages() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "image_url"}, {"type": "text", "text": "two"}]
    custom = {"id": "c2", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}
    events = parse(
        [
            {"role": "developer", "content": "D"},
            {"role": "user", "content": parts},
            calls(custom),
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "other", "content": "1"},
            tool({"a": 1}, "unknown", name="by name"),
            {"role": "critic"},
        ],
        CHAT,
    )
    data = [event.data for event in events]
    assert isinstance(data[0], SystemMessage)
    assert isinstance(data[1], UserMessage)
    assert data[1].message == "one\ntwo"
    assert isinstance(data[2], ToolCall)
    assert (data[2].tool_call_id, data[2].tool_name, data[2].payload_json) == ("c2", "sql", "SELECT 1")
    assert isinstance(data[3], ToolCall)
    assert (data[3].tool_call_id, data[3].tool_name) == ("", "f")
    assert isinstance(data[4], ToolResult)
    assert (data[4].tool_name, data[4].result_json) == ("f", "1")
    assert isinstance(data[5], ToolResult)
    assert (data[5].tool_name, data[5].result_json) == ("by name", '{"a":1}')
    assert data[6] == UnknownPayload("openai-chat.message", {"role": "critic"})


def test_parse_makes_no_assistant_message_of_calls_alone() -> None:
    fields_without_text: list[Message] = [{}, {"refusal": None, "audio": None, "annotations": []}, {"content": ""}]
    for fields in fields_without_text:
        assert [event.type for event in parse([ASSISTANT, calls(call(), call("c2"), **fields)], CHAT)] == [
            "assistant_message",
            "tool_call",
            "tool_call",
        ]
    assert [event.type for event in parse([calls(call(), refusal="No.")], CHAT)] == ["assistant_message", "tool_call"]


def test_parse_stores_no_residual_for_plain_messages() -> None:
    events = parse([ASSISTANT, USER, calls(call()), tool(), calls(call(), content="x"), USER, calls(call("c2"))], CHAT)
    for event in events:
        assert "structured" not in event.data.to_map()


def test_a_result_answers_the_latest_open_call_with_its_id() -> None:
    events = parse([calls(call("a", "f"), call("a", "g")), *[tool(call_id="a", name="h")] * 3], CHAT)
    assert [decode_event(event, ToolResult).tool_name for event in events[2:]] == ["g", "f", "h"]


def test_difference_holds_only_the_changed_inner_fields() -> None:
    original: Message = {"a": {"b": 1, "c": "long"}, "d": {}}
    assert difference(original, {"a": {"b": 2, "c": "long"}, "d": {}}, "a", "d") == {
        "inside": {"a": {"fields": {"b": 2}}}
    }
    assert difference(original, {"a": {"c": "long"}, "d": {"e": 1}}, "a") == {
        "fields": {"d": {"e": 1}},
        "inside": {"a": {"without": ["b"]}},
    }
    assert difference(original, {"a": 1, "d": {}}, "a") == {"fields": {"a": 1}}
    for arguments in ("x" * 500, ""):
        (event,) = parse([calls(call(name="a.b", arguments=arguments))], CHAT)
        assert encode_canonical(event.data.to_map()).count(b"xxxxx") <= 100


def test_difference_distinguishes_integers_floats_and_booleans() -> None:
    for first, second in ((1, 1.0), (1, True), ([0], [False]), ({"a": 1.0}, {"a": 1})):
        assert difference({"x": first}, {"x": second}) == {"fields": {"x": second}}
        assert difference({"x": first}, {"x": first}) == {}


def test_parse_stores_the_data_of_a_call_in_its_event_only() -> None:
    events = parse([calls({**call(arguments="secret"), "x": "secret"}, call("c2"), content="Hm", refusal="No.")], CHAT)
    assert [b"secret" in encode_canonical(event.to_map()) for event in events] == [False, True, False]


def test_build_converts_a_handmade_run() -> None:
    assert live(
        SystemMessage("S"),
        UserMessage("U", {"intent": "x"}),
        Thinking(text="hm"),
        AssistantMessage("A"),
        Thinking(text="hm"),
        ToolCall("1", "f", payload_json='{"a": 1}'),
        ToolCall("2", "g"),
        ToolResult("2", "g", error_message="broken", server_data='"no"'),
        PlannerNote("n"),
        ToolResult("1", "f", result_json="[]", error_message="too many", preview="p"),
        ToolCall("3", "h"),
        ToolResult("3", "h"),
        Annotation("x"),
        AssistantMessage("Done"),
    ) == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U"},
        calls(call("1", "f", '{"a": 1}'), call("2", "g", "{}"), content="A"),
        tool("broken", "2"),
        tool("too many\n[]", "1"),
        calls(call("3", "h", "{}")),
        tool("", "3"),
        {"role": "assistant", "content": "Done"},
    ]


def test_build_leaves_out_nested_calls() -> None:
    assert live(
        ToolCall("p", "f"),
        ToolCall("n", "g", "p"),
        ToolResult("n", "g", result_json="1"),
        ToolCall("m", "g", "p"),
        ToolCall("mm", "g", "m"),
        ToolResult("mm", "g", "m", result_json="1"),
        ToolResult("m", "g", "p", result_json="1"),
        ToolCall("q", "f"),
        ToolResult("p", "f", result_json="2"),
        ToolResult("q", "f", result_json="3"),
    ) == [calls(call("p", "f", "{}"), call("q", "f", "{}")), tool("2", "p"), tool("3", "q")]
    # In the inner agent's own log, the parent is a call of another run.
    assert live(ToolCall("n", "g", "elsewhere")) == [calls(call("n", "g", "{}"))]


USERS_OWN: list[JsonValue] = [
    None,
    False,
    "fields",
    [],
    {},
    {"fields": {"content": "x"}},
    {CHAT: None},
    {CHAT: "x"},
    {CHAT: []},
    {CHAT: {"fields": "x"}},
    {CHAT: {"fields": {"content": "x"}, "other": 1}},
    {CHAT: {"without": "role"}},
    {CHAT: {"without": [[]]}},
    {CHAT: {"fields": {"content": "x"}, "without": [1]}},
    {CHAT: {"fields": {"content": "x"}, "without": {"role": 1}}},
]


@pytest.mark.parametrize("structured", USERS_OWN)
def test_build_ignores_a_users_own_structured_values(structured: JsonValue) -> None:
    for message, content in ((UserMessage("U", structured), "U"), (AssistantMessage("U", structured), "U")):
        assert live(message)[0]["content"] == content
    assert live(ToolCall("c1", "f", structured=structured)) == [calls(call("c1", "f", "{}"))]
    assert live(ToolResult("c1", "f", result_json="1", structured=structured)) == [tool("1", "c1")]


@pytest.mark.parametrize("part", ["x", 1, [], {"fields": 1}, {"other": {}}])
def test_build_ignores_malformed_residuals_of_a_call(part: JsonValue) -> None:
    odd = ToolCall("c1", "f", structured={CHAT: {"message": part, "function_call": "yes"}})
    assert live(AssistantMessage("A"), odd) == [calls(call("c1", "f", "{}"), content="A")]


async def test_build_leaves_out_redacted_events() -> None:
    messages = [
        USER,
        calls(call("a"), call("b"), content="x"),
        tool("1", "a"),
        tool("2", "b"),
        ASSISTANT,
        calls(call()),
    ]
    async with open_store("memory:") as store:
        for seq in range(1, 9):
            run = f"run-{seq}"
            await import_transcript(store, "a", run, messages, CHAT)
            await store.redact_events("a", run, [seq])
            built = build(await store.load_run("a", run), CHAT)
            assert 5 <= len(built) <= 6
            again = await import_transcript(store, "a", run, messages, CHAT)
            assert again.inserted == 0
        await store.redact_events("a", "run-2", range(1, 9))
        assert build(await store.load_run("a", "run-2"), CHAT) == []
        # The call after a redacted message is not joined to the message before it.
        built = build(await store.load_run("a", "run-7"), CHAT)
        assert [message["content"] for message in built] == ["Hi", "x", "1", "2", None]


def test_event_id_depends_on_source_and_position() -> None:
    first = parse([USER, ASSISTANT], CHAT, source="run")
    second = parse([{"role": "user", "content": "other"}, calls(call())], CHAT, source="run")
    assert first[0].event_id == second[0].event_id
    assert {len(event.event_id) for event in first + second} == {32}
    # The number of events of a message does not change the ids of later messages.
    longer = parse([calls(call(), call("c2"), content="x"), ASSISTANT], CHAT, source="run")
    assert longer[-1].event_id == first[-1].event_id
    assert parse([USER], CHAT, source="run 2")[0].event_id != first[0].event_id
    assert parse([USER], CHAT)[0].event_id != first[0].event_id


async def test_repeated_import_stores_only_new_events() -> None:
    messages = [USER, calls(call()), tool(), ASSISTANT]
    async with open_store("memory:") as store:
        first = await import_transcript(store, "a", "r", messages[:3], CHAT, meta={"task": 1})
        again = await import_transcript(store, "a", "r", messages[:3], CHAT, meta={"task": 2})
        longer = await import_transcript(store, "a", "r", messages, CHAT)
        snapshot = await store.load_run("a", "r")
        assert [(r.version, r.inserted) for r in (first, again, longer)] == [(3, 3), (3, 0), (4, 1)]
        assert longer.events == tuple(snapshot.log)
        assert [event.event_id for event in snapshot.log] == [e.event_id for e in parse(messages, CHAT, source="r")]
        assert snapshot.meta == {"task": 1}
        with pytest.raises(
            EventConflict, match="the run 'r' of the agent 'a' holds another conversation, which differs at seq 2: "
        ):
            await import_transcript(store, "a", "r", [USER, USER], CHAT)
        assert (await store.load_run("a", "r")) == snapshot
        assert await import_transcript(store, "a", "r", [], CHAT) == await store.append_events("a", "r")


async def test_a_long_conversation_is_imported_in_batches() -> None:
    messages = [USER, ASSISTANT] * 1250
    async with open_store("memory:") as store:
        await import_transcript(store, "a", "r", messages[:700], CHAT)
        result = await import_transcript(store, "a", "r", messages, CHAT)
        assert (result.version, result.inserted, len(result.events)) == (2500, 1800, 2500)
        assert build(await store.load_run("a", "r"), CHAT) == messages


async def test_import_names_the_refused_event_and_stores_earlier_ones() -> None:
    deep: JsonValue = "x"
    for _ in range(62):
        deep = [deep]
    messages = [USER, ASSISTANT, USER, {**USER, "x": deep}, USER]
    assert build(snapshot_of(parse(messages, CHAT)), CHAT) == messages
    async with open_store("memory:") as store:
        with pytest.raises(InvalidEvent, match=r"event 4 of the transcript: .*nests deeper"):
            await import_transcript(store, "a", "r", messages, CHAT)
        assert (await store.load_run("a", "r")).version == 3
    async with open_store("memory:?max_event_bytes=100") as store:
        with pytest.raises(EventTooLarge, match=r"event 2 of the transcript: .*the limit is 100"):
            await import_transcript(store, "a", "r", [USER, {**USER, "content": "x" * 200}], CHAT)


@pytest.mark.parametrize("message", [None, "x", 1, [], [("role", "user")]])
def test_parse_error_names_the_message_that_is_no_map(message: Any) -> None:
    with pytest.raises(DecodeError, match=r"^messages\[2\] must be a map"):
        parse([USER, USER, message], CHAT)


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, "\ud800", b"x", object(), {"\ud800": 1}])
def test_parse_error_names_the_message_that_is_no_json(value: Any) -> None:
    with pytest.raises(DecodeError, match=r"^messages\[1\]"):
        parse([USER, {**USER, "content": value}], CHAT)


@pytest.mark.parametrize("messages", [None, 1, "x", b"x", USER])
def test_parse_refuses_messages_that_are_no_list(messages: Any) -> None:
    with pytest.raises(DecodeError, match=r"^messages must be a list of maps"):
        parse(messages, CHAT)


def test_read_chat_lines_yields_run_messages_and_other_keys() -> None:
    lines: list[bytes | str] = [
        b'{"run":"one","messages":[{"role":"user"}],"task":1}\n',
        b"\n",
        '{"messages": [], "run": 5}',
        b'{"messages":[],"run":""}',
    ]
    assert [tuple(line) for line in read_chat_lines(lines)] == [
        (1, "one", [{"role": "user"}], {"task": 1}),
        (3, None, [], {"run": 5}),
        (4, None, [], {"run": ""}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        b'{"messages": null}',
        b'{"messages": {}}',
        b'{"messages": [{}, 1]}',
        b'{"messages": [{"content": "\\ud800"}]}',
        b"[" * 100_000,
        b'{"messages": [], "x": 1e999}',
        b'{"messages": [], "x": ' + b"1" * 5000 + b"}",
    ],
)
def test_read_chat_lines_names_the_bad_line(line: bytes) -> None:
    reading = read_chat_lines([b'{"messages":[]}', line])
    assert next(reading).line == 1
    with pytest.raises(DecodeError, match=r"^line 2"):
        next(reading)
    with contextlib.suppress(StopIteration):
        next(reading)


# The rules. Each row holds messages, their findings, the repaired messages and the changes.

LEGACY: Message = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}

BROKEN: dict[str, tuple[list[Any], list[tuple[str, tuple[int | str, ...]]], list[Any], list[str]]] = {
    "no map": ([USER, 5], [("message_shape", (1,))], [USER], ["dropped_message"]),
    "no role": ([USER, {"content": "x"}], [("message_shape", (1,))], [USER], ["dropped_message"]),
    "a role that is no text": ([USER, {"role": []}], [("message_shape", (1,))], [USER], ["dropped_message"]),
    "no content": ([USER, {"role": "user"}], [("message_shape", (1, "content"))], [USER], ["dropped_part"]),
    "content without parts": (
        [USER, {"role": "system", "content": []}],
        [("message_shape", (1, "content"))],
        [USER],
        ["dropped_message"],
    ),
    "a part that the role cannot have": (
        [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "refusal", "refusal": "x"}, 5, {}]}],
        [("message_shape", (0, "content"))],
        [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
        ["dropped_part"] * 3,
    ),
    "an answer of a wrong type": (
        [USER, calls(call()), tool(5)],
        [("message_shape", (2, "content"))],
        [USER, calls(call()), tool("")],
        ["dropped_part"],
    ),
    "an answer without an id": (
        [USER, calls(call()), {"role": "tool", "content": "x"}],
        [("unanswered_call", (1, "tool_calls", 0)), ("message_shape", (2,))],
        [USER, calls(call()), tool(INTERRUPTED)],
        ["answered_call", "dropped_message"],
    ),
    "an assistant message without content": (
        [USER, {"role": "assistant"}, {"role": "assistant", "content": None}],
        [("empty_message", (1,)), ("empty_message", (2,))],
        [USER],
        ["dropped_message", "dropped_message"],
    ),
    "assistant content of a wrong type": (
        [USER, calls(call(), content=5), tool()],
        [("message_shape", (1, "content"))],
        [USER, calls(call()), tool()],
        ["dropped_part"],
    ),
    "no calls": (
        [USER, {"role": "assistant", "content": None, "tool_calls": []}],
        [("empty_message", (1,))],
        [USER],
        ["dropped_message"],
    ),
    "calls that are no list": (
        [USER, {**ASSISTANT, "tool_calls": "x"}],
        [("message_shape", (1, "tool_calls"))],
        [USER, ASSISTANT],
        ["dropped_call"],
    ),
    "malformed calls": (
        [USER, calls(call(), {"id": "x"}, 5, {**call("y"), "id": 5}, {**call("z"), "function": {"name": "f"}}), tool()],
        [("call_shape", (1, "tool_calls", index)) for index in range(1, 5)],
        [USER, calls(call()), tool()],
        ["dropped_call"] * 4,
    ),
    "a malformed legacy call": (
        [USER, {**ASSISTANT, "function_call": {"name": "f"}}],
        [("call_shape", (1, "function_call"))],
        [USER, ASSISTANT],
        ["dropped_call"],
    ),
    "a call without an answer": (
        [USER, calls(call("a"), call("b")), tool("1", "b"), USER],
        [("unanswered_call", (1, "tool_calls", 0))],
        [USER, calls(call("a"), call("b")), tool("1", "b"), tool(INTERRUPTED, "a"), USER],
        ["answered_call"],
    ),
    "a legacy call without an answer": (
        [USER, LEGACY],
        [("unanswered_call", (1, "function_call"))],
        [USER, LEGACY, {"role": "function", "name": "f", "content": INTERRUPTED}],
        ["answered_call"],
    ),
    "a late answer": (
        [USER, calls(call("a"), call("b")), tool("1", "b"), USER, tool("2", "a")],
        [("unanswered_call", (1, "tool_calls", 0)), ("orphan_result", (4,))],
        [USER, calls(call("a"), call("b")), tool("1", "b"), tool("2", "a"), USER],
        ["moved_result"],
    ),
    "an answer without a call": (
        [USER, tool("1", "x"), ASSISTANT],
        [("orphan_result", (1,))],
        [USER, ASSISTANT],
        ["dropped_result"],
    ),
    "a legacy answer without a call": (
        [USER, {"role": "function", "name": "f", "content": "1"}],
        [("orphan_result", (1,))],
        [USER],
        ["dropped_result"],
    ),
    "a legacy answer without a name": (
        [USER, LEGACY, {"role": "function", "content": "1"}],
        [("unanswered_call", (1, "function_call")), ("message_shape", (2,))],
        [USER, LEGACY, {"role": "function", "name": "f", "content": "1"}],
        ["named_result"],
    ),
    "two answers": (
        [USER, calls(call()), tool("1"), tool("2")],
        [("duplicate_result", (3,))],
        [USER, calls(call()), tool("1")],
        ["dropped_duplicate"],
    ),
    "the same call twice": (
        [USER, calls(call(), call()), tool("1"), tool("1")],
        [("duplicate_call", (1, "tool_calls", 1)), ("duplicate_result", (3,))],
        [USER, calls(call()), tool("1")],
        ["dropped_duplicate", "dropped_duplicate"],
    ),
    "two different calls with one id": (
        [USER, calls(call(name="f"), call(name="g")), tool("g"), tool("f")],
        [("duplicate_call", (1, "tool_calls", 1)), ("duplicate_result", (3,))],
        [USER, calls(call(name="f"), call("c1-2", name="g")), tool("g", "c1-2"), tool("f")],
        ["renamed_call"],
    ),
    "ids that are not allowed": (
        [USER, calls(call("x" * 41), call("")), tool("1", "x" * 41), tool("2", "")],
        [("call_id", (1, "tool_calls", 0)), ("call_id", (1, "tool_calls", 1))],
        [
            USER,
            calls(call("x" * 27 + "-ab0c12c723a3"), call("call")),
            tool("1", "x" * 27 + "-ab0c12c723a3"),
            tool("2", "call"),
        ],
        ["renamed_call", "renamed_call"],
    ),
    "names that are not allowed": (
        [
            USER,
            calls(
                call("a", "x.y"),
                call("b", "n" * 65),
                {"id": "c", "type": "custom", "custom": {"name": "", "input": ""}},
            ),
            *(tool("1", call_id) for call_id in "abc"),
            {**LEGACY, "function_call": {"name": "x y", "arguments": ""}},
            {"role": "function", "name": "x y", "content": "1"},
        ],
        [*(("tool_name", (1, "tool_calls", index)) for index in range(3)), ("tool_name", (5, "function_call"))],
        [
            USER,
            calls(
                call("a", "x--y"),
                call("b", "n" * 51 + "-449703b209df"),
                {"id": "c", "type": "custom", "custom": {"name": "unnamed", "input": ""}},
            ),
            *(tool("1", call_id) for call_id in "abc"),
            {**LEGACY, "function_call": {"name": "x-_20-y", "arguments": ""}},
            {"role": "function", "name": "x-_20-y", "content": "1"},
        ],
        ["renamed_tool"] * 4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rule_is_reported_and_repaired(name: str) -> None:
    messages, findings, expected, changes = BROKEN[name]
    before = copy.deepcopy(messages)
    actual_findings = validate(messages, CHAT)
    assert [(finding.rule, finding.path) for finding in actual_findings] == findings
    repaired = repair(messages, CHAT)
    assert [change.change for change in repaired.changes] == changes
    assert repaired.transcript == expected
    assert validate(repaired.transcript, CHAT) == []
    assert messages == before
    if not any(isinstance(message, int) for message in messages):
        built = build(snapshot_of(parse(messages, CHAT)), CHAT)
        assert [(finding.rule, finding.path) for finding in validate(built, CHAT)] == findings
        assert all(finding.seq for finding in validate(built, CHAT))
        assert repair(built, CHAT).transcript == expected


def test_every_rule_has_a_case() -> None:
    rules = {rule for _, findings, _, _ in BROKEN.values() for rule, _ in findings}
    documented = {name for name in (rules_module.__doc__ or "").split("``")[1::2] if "_" in name}
    # tested in test_transcripts.py and, because it depends on the model, in test_chat_streams.py
    elsewhere = {"error_and_value", "empty_calls"}
    assert documented - {"tool_calls"} == rules | elsewhere


def test_finding_has_the_seq_of_its_call() -> None:
    built = build(run_of(UserMessage("U"), AssistantMessage("A"), ToolCall("a", "f"), ToolCall("b", "f")), CHAT)
    assert [(finding.rule, finding.seq) for finding in validate(built, CHAT)] == [
        ("unanswered_call", 3),
        ("unanswered_call", 4),
    ]
    assert [(change.change, change.seq) for change in repair(built, CHAT).changes] == [
        ("answered_call", 3),
        ("answered_call", 4),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        [{"role": "critic", "content": "x"}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "assistant", "tool_calls": [{"id": "x"}]}],
        [{"role": "tool", "content": "x"}],
    ],
)
def test_judge_refuses_invalid_messages(wrong: Sequence[Message]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        CASE.judge(wrong)
