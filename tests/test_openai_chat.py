"""OpenAI Chat messages to events and back: nothing of a message may be lost, whatever it holds."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_memory_log import (
    Annotation,
    AssistantMessage,
    DecodeError,
    Event,
    EventConflict,
    EventData,
    EventTooLarge,
    InvalidArgument,
    InvalidEvent,
    JsonValue,
    PlannerNote,
    Reader,
    Redacted,
    Snapshot,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
    decode_event,
    new_event,
    open_store,
)
from agent_memory_log.jsonvalue import encode_canonical
from agent_memory_log.samples import sample_lines
from agent_memory_log.transcript import build, import_transcript, parse, provider_names, read_chat_lines
from agent_memory_log.transcript.residual import difference

CHAT = "openai-chat"
TAU = Path(__file__).resolve().parents[2] / "shared" / "data" / "tau_airline_train.jsonl"

Message = dict[str, Any]


def snapshot_of(events: list[Event]) -> Snapshot:
    return Snapshot("agent", "run", events, version=len(events))


def live(*payloads: EventData) -> list[dict[str, JsonValue]]:
    return build(snapshot_of([new_event(payload) for payload in payloads]), CHAT)


def assert_exact(messages: Sequence[Mapping[str, JsonValue]]) -> list[Event]:
    before = copy.deepcopy(messages)
    events = parse(messages, CHAT)
    rebuilt = build(snapshot_of(events), CHAT)
    assert encode_canonical(rebuilt) == encode_canonical(messages)
    assert messages == before
    for event in events:
        assert Event.from_map(event.to_map()) == event
    assert len({event.event_id for event in events}) == len(events)
    return events


def call(call_id: str = "c1", name: str = "orders_get", arguments: str = '{"id": 7}') -> Message:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*tool_calls: object, **fields: object) -> Message:
    return {"role": "assistant", "content": None, "tool_calls": list(tool_calls), **fields}


def tool(content: object = "ok", call_id: str = "c1", **fields: object) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **fields}


USER: Message = {"role": "user", "content": "Hi"}
ASSISTANT: Message = {"role": "assistant", "content": "Hello"}

ODD_VALUES: list[Any] = [0, 1.0, False, True, None, "x", {}, {"a": 1}, [], [[]], ["x", None], 10**40]

ODD_TEXTS = ["", " ", "\n\t", "\u00a0", "null", "{}", "[]", "[1, 2]", "plain", '{ "a" : 1.0 }', "{broken"]

ODD: dict[str, list[Message]] = {
    "nothing at all": [],
    "an empty message": [{}],
    "no role": [{"content": "x"}, USER],
    "an unknown role": [{"role": "critic", "content": "x", "score": 1}, ASSISTANT, {"role": 5}, {"role": None}],
    "a developer": [{"role": "developer", "content": "Be brief."}],
    "names": [{**USER, "name": "ann"}, {**ASSISTANT, "name": "bot"}, {"role": "system", "content": "x", "name": "n"}],
    "null content": [{"role": role, "content": None} for role in ("user", "assistant", "system", "tool")],
    "no content": [{"role": role} for role in ("user", "assistant", "system", "tool", "function")],
    "content that is no text": [
        {"role": role, "content": value}
        for role in ("user", "assistant", "system", "tool")
        for value in ODD_VALUES
    ],
    "parts": [
        {
            "role": role,
            "content": [
                {"type": "text", "text": "one"},
                {"type": "image_url", "image_url": {"url": "u"}},
                {"type": "text", "text": 3},
            ],
        }
        for role in ("user", "assistant", "system", "developer")
    ],
    "empty text": [{"role": role, "content": ""} for role in ("user", "assistant", "system", "tool")],
    "content and calls": [calls(call(), content="Let me look."), tool()],
    "empty content and calls": [calls(call(), content=""), tool()],
    "no content and calls": [{"role": "assistant", "tool_calls": [call()]}],
    "parts and calls": [calls(call(), content=[{"type": "text", "text": "x"}])],
    "parallel calls": [calls(call("a"), call("b"), call("c")), tool("1", "b"), tool("2", "a"), tool("3", "c")],
    "one id twice in a message": [calls(call("a", "f"), call("a", "g")), tool("1", "a"), tool("2", "a")],
    "one id again and again": [calls(call()), tool(), calls(call()), tool(), calls(call()), tool()],
    "calls after calls": [calls(call("a")), calls(call("b")), calls(call("c"), content="x"), calls(call("d"))],
    "assistant after assistant": [ASSISTANT, ASSISTANT, calls(call()), ASSISTANT],
    "text, then calls in the next message": [ASSISTANT, calls(call())],
    "text, then calls with content in the next": [ASSISTANT, calls(call(), content="x"), calls(call())],
    "an unknown message between": [ASSISTANT, {"role": "x"}, calls(call())],
    "tool_calls null": [{**ASSISTANT, "tool_calls": None}, calls(call())],
    "tool_calls empty": [{**ASSISTANT, "tool_calls": []}, {"role": "assistant", "content": None, "tool_calls": []}],
    "tool_calls not a list": [{**ASSISTANT, "tool_calls": value} for value in ODD_VALUES],
    "tool_calls of no maps": [calls(None), calls(call(), 3), calls([call()]), calls("x", content="y")],
    "a call that is empty": [calls({}), calls({}, {})],
    "a call without id": [calls({"type": "function", "function": {"name": "f", "arguments": "{}"}}), tool(call_id="")],
    "a call without function": [calls({"id": "c1", "type": "function"}), tool()],
    "a call without type": [calls({"id": "c1", "function": {"name": "f", "arguments": "{}"}})],
    "a call whose function is odd": [calls({"id": "c", "type": "function", "function": f}) for f in ODD_VALUES],
    "a call with more fields": [
        calls({**call(), "index": 0, "function": {"name": "f", "arguments": "", "strict": True}}),
    ],
    "a call with an odd id and name": [
        calls({"id": None, "type": "function", "function": {"name": None, "arguments": None}}),
        calls({"id": 7, "type": "function", "function": {"name": 7, "arguments": {"b": 1, "a": 1.0}}}),
    ],
    "arguments": [
        calls(call(arguments=text)) for text in ODD_TEXTS
    ],
    "a custom call": [calls({"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}), tool()],
    "tool contents": [
        tool(content) for content in ODD_TEXTS
    ],
    "tool content in parts": [tool([{"type": "text", "text": "x"}]), tool([]), tool([{"type": "text", "text": " "}])],
    "a tool message with more fields": [tool(name="f", is_error=True, cache_control={"type": "ephemeral"})],
    "a tool message with an odd id": [tool(call_id=None), tool(call_id=3), {"role": "tool", "content": "x"}],  # type: ignore[arg-type]  # odd on purpose
    "a refusal": [{"role": "assistant", "content": None, "refusal": "No."}, {**ASSISTANT, "refusal": None}],
    "a refusal beside calls": [calls(call(), refusal="No."), calls(call(), refusal=None, audio=None, annotations=[])],
    "audio and annotations": [
        {"role": "assistant", "content": None, "audio": {"id": "audio_1"}},
        {**ASSISTANT, "annotations": [{"type": "url_citation", "url_citation": {"start_index": 0}}]},
    ],
    "a legacy call": [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "assistant", "content": "x", "function_call": {"name": "f", "arguments": ""}},
        {"role": "assistant", "content": None, "function_call": {"name": "g", "arguments": "{}"}},
    ],
    "odd legacy calls": [
        {"role": "assistant", "content": None, "function_call": value} for value in ODD_VALUES
    ],
    "both kinds of call": [
        calls(call(), function_call={"name": "f", "arguments": "{}"}),
        calls(call(), function_call=None),
    ],
    "keys that residuals use": [
        {**USER, "fields": {"content": 1}, "without": ["role"], "openai-chat": {"fields": {}}},
        calls({**call(), "message": {}, "function_call": True, "fields": {}}),
    ],
    "keys that are odd": [{**USER, "": 1, "$set": {"a.b": None}, "a.b": "\0", "🧾": "𐀀"}],
}  # fmt: skip


@pytest.mark.parametrize("messages", ODD.values(), ids=ODD.keys())
def test_what_is_odd_comes_back(messages: list[Message]) -> None:
    assert_exact(messages)
    for message in messages:
        assert_exact([message])
        assert_exact([ASSISTANT, message, calls(call())])


# A busy machine is no finding.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", " ", "text", "null", "{}", "assistant", "function", "custom", "a"])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "x"]), inner),
    max_leaves=6,
)


def maps(known: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Message]:
    """Maps of some of these keys, each with what belongs there or with anything."""
    return st.fixed_dictionaries({}, optional={key: value | json_values for key, value in known.items()})


texts = st.sampled_from(["", " ", "Hi", '{"a": 1}', "null", "[]", "a\nb"])
ids = st.sampled_from(["", "c1", "c2"])
functions = maps({"name": texts, "arguments": texts, "strict": st.booleans()})
odd_calls = maps(
    {
        "id": ids,
        "type": st.sampled_from(["function", "custom"]),
        "function": functions,
        "custom": maps({"name": texts, "input": texts}),
        "index": st.integers(),
    }
)
odd_messages = maps(
    {
        "role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function", "critic"]),
        "content": texts | st.none() | st.lists(maps({"type": st.just("text"), "text": texts}), max_size=2),
        "tool_calls": st.lists(odd_calls, max_size=3) | st.none(),
        "tool_call_id": ids,
        "function_call": functions | st.none(),
        "name": texts,
        "refusal": texts | st.none(),
        "openai-chat": json_values,
    }
)
good_calls = st.builds(call, ids, st.sampled_from(["f", "g"]), texts)
good_messages: st.SearchStrategy[Message] = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": texts}),
    st.fixed_dictionaries(
        {
            "role": st.just("assistant"),
            "content": texts | st.none(),
            "tool_calls": st.lists(good_calls, min_size=1, max_size=3),
        }
    ),
    st.builds(tool, texts, ids),
)


@unhurried
@given(st.lists(good_messages, max_size=12))
def test_any_conversation_comes_back(messages: list[Message]) -> None:
    assert_exact(messages)


@unhurried
@given(st.lists(odd_messages | good_messages, max_size=6))
def test_any_maps_come_back(messages: list[Message]) -> None:
    assert_exact(messages)


@unhurried
@given(st.lists(odd_messages | good_messages, max_size=4))
async def test_any_maps_come_back_from_a_store(messages: list[Message]) -> None:
    async with open_store("memory:") as store:
        first = await import_transcript(store, "a", "r", messages, CHAT)
        again = await import_transcript(store, "a", "r", messages, CHAT)
        assert (again.version, again.inserted, again.events) == (first.version, 0, first.events)
        rebuilt = build(await store.load_run("a", "r"), CHAT)
    assert encode_canonical(rebuilt) == encode_canonical(messages)


@unhurried
@given(st.lists(odd_messages | good_messages, max_size=6), st.data())
def test_a_longer_conversation_begins_with_the_same_events(messages: list[Message], data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(messages)))
    whole, prefix = parse(messages, CHAT, source="run"), parse(messages[:end], CHAT, source="run")
    assert [(e.event_id, e.type, e.data, e.labels) for e in prefix] == [
        (e.event_id, e.type, e.data, e.labels) for e in whole[: len(prefix)]
    ]


anything = st.one_of(
    st.builds(UserMessage, texts, json_values),
    st.builds(ToolCall, ids, texts, ids, texts, structured=json_values),
    st.builds(ToolResult, ids, texts, ids, texts, server_data=st.just('"secret"'), structured=json_values),
    *(
        st.builds(kind, texts, structured=st.fixed_dictionaries({CHAT: maps({
            "fields": st.dictionaries(texts, json_values), "without": st.lists(texts | st.just("role")),
            "message": maps({"fields": st.dictionaries(texts, json_values)}), "function_call": st.just(True),
        })}))
        for kind in (UserMessage, AssistantMessage, SystemMessage)
    ),
    st.builds(ToolCall, ids, texts, ids, texts, structured=st.fixed_dictionaries({CHAT: maps({
        "fields": st.dictionaries(texts, json_values), "message": maps({"without": st.lists(st.just("role"))}),
        "function_call": st.just(True),
    })})),
    st.builds(Redacted, st.sampled_from(["user_message", "tool_call", "thinking", "assistant_message"])),
    st.builds(Thinking, texts),
)  # fmt: skip


@unhurried
@given(st.lists(anything, max_size=8))
def test_no_run_is_beyond_building(payloads: list[EventData]) -> None:
    rebuilt = live(*payloads)
    assert b"secret" not in encode_canonical(rebuilt)
    assert all(isinstance(message, dict) for message in rebuilt)


def test_the_sample_comes_back() -> None:
    runs = list(read_chat_lines(sample_lines("support.jsonl")))
    assert len(runs) == 5
    for line in runs:
        assert line.run
        assert_exact(line.messages)


@pytest.mark.skipif(not TAU.exists(), reason="the tau-bench runs are not part of the project")
def test_a_hundred_real_runs_come_back() -> None:
    with TAU.open("rb") as file:
        runs = list(read_chat_lines(file))
    assert (len(runs), sum(len(line.messages) for line in runs)) == (100, 2686)
    reused = 0
    for line in runs:
        events = assert_exact(line.messages)
        reader = Reader(
            Snapshot("a", "r", [_at(event, seq) for seq, event in enumerate(events, 1)], version=len(events))
        )
        ids = [decode_event(event, ToolCall).tool_call_id for event in reader.tool_calls()]
        reused += len(set(ids)) < len(ids)
        for result in reader.filter_by_type("tool_result"):
            asked = reader.call_for(result)
            assert asked is not None
            assert decode_event(asked, ToolCall).tool_name == decode_event(result, ToolResult).tool_name
    assert reused == 25


def _at(event: Event, seq: int) -> Event:
    return Event(event.type, event.timestamp, event.data, event.labels, event.event_id, seq)


def test_events_are_typed_labelled_and_plain_where_nothing_is_odd() -> None:
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


def test_what_is_found_in_odd_places_is_typed_too() -> None:
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


def test_calls_alone_make_no_empty_assistant_message() -> None:
    nothing_said: list[Message] = [{}, {"refusal": None, "audio": None, "annotations": []}, {"content": ""}]
    for fields in nothing_said:
        assert [event.type for event in parse([ASSISTANT, calls(call(), call("c2"), **fields)], CHAT)] == [
            "assistant_message",
            "tool_call",
            "tool_call",
        ]
    assert [event.type for event in parse([calls(call(), refusal="No.")], CHAT)] == ["assistant_message", "tool_call"]


def test_no_residual_is_kept_that_is_not_needed() -> None:
    events = parse([ASSISTANT, USER, calls(call()), tool(), calls(call(), content="x"), USER, calls(call("c2"))], CHAT)
    for event in events:
        assert "structured" not in event.data.to_map()


def test_a_result_answers_the_latest_open_call_with_its_id() -> None:
    events = parse([calls(call("a", "f"), call("a", "g")), *[tool(call_id="a", name="h")] * 3], CHAT)
    assert [decode_event(event, ToolResult).tool_name for event in events[2:]] == ["g", "f", "h"]


def test_numbers_of_another_kind_are_a_difference() -> None:
    for one, other in ((1, 1.0), (1, True), ([0], [False]), ({"a": 1.0}, {"a": 1})):
        assert difference({"x": one}, {"x": other}) == {"fields": {"x": other}}
        assert difference({"x": one}, {"x": one}) == {}


def test_a_redacted_call_leaves_nothing_behind_in_other_events() -> None:
    events = parse([calls({**call(arguments="secret"), "x": "secret"}, call("c2"), content="Hm", refusal="No.")], CHAT)
    assert [b"secret" in encode_canonical(event.to_map()) for event in events] == [False, True, False]


def test_a_run_recorded_by_hand() -> None:
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
        ToolResult("1", "f", result_json="[]", error_message="ignored", preview="p"),
        ToolCall("3", "h"),
        ToolResult("3", "h"),
        Annotation("x"),
        AssistantMessage("Done"),
    ) == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U"},
        calls(call("1", "f", '{"a": 1}'), call("2", "g", "{}"), content="A"),
        tool("broken", "2"),
        tool("[]", "1"),
        calls(call("3", "h", "{}")),
        tool("", "3"),
        {"role": "assistant", "content": "Done"},
    ]


def test_calls_inside_a_call_are_not_the_models() -> None:
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
    # In the log of the inner agent itself, the parent is a call of another run.
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
def test_what_a_user_keeps_in_structured_is_left_alone(structured: JsonValue) -> None:
    for message, content in ((UserMessage("U", structured), "U"), (AssistantMessage("U", structured), "U")):
        assert live(message)[0]["content"] == content
    assert live(ToolCall("c1", "f", structured=structured)) == [calls(call("c1", "f", "{}"))]
    assert live(ToolResult("c1", "f", result_json="1", structured=structured)) == [tool("1", "c1")]


@pytest.mark.parametrize("part", ["x", 1, [], {"fields": 1}, {"other": {}}])
def test_what_a_user_keeps_in_a_calls_structured_is_left_alone(part: JsonValue) -> None:
    odd = ToolCall("c1", "f", structured={CHAT: {"message": part, "function_call": "yes"}})
    assert live(AssistantMessage("A"), odd) == [calls(call("c1", "f", "{}"), content="A")]


async def test_redacted_events_are_left_out() -> None:
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
            rebuilt = build(await store.load_run("a", run), CHAT)
            assert 5 <= len(rebuilt) <= 6
            again = await import_transcript(store, "a", run, messages, CHAT)
            assert again.inserted == 0
        await store.redact_events("a", "run-2", range(1, 9))
        assert build(await store.load_run("a", "run-2"), CHAT) == []
        # The call after a redacted message is not joined to the message before it.
        rebuilt = build(await store.load_run("a", "run-7"), CHAT)
        assert [message["content"] for message in rebuilt] == ["Hi", "x", "1", "2", None]


def test_what_is_built_can_be_changed() -> None:
    snapshot = snapshot_of(parse([{**USER, "x": [1]}, {"role": "z", "x": [1]}, calls({**call(), "x": [1]})], CHAT))
    first: Any = build(snapshot, CHAT)
    expected = copy.deepcopy(first)
    first[0]["x"].append(2)
    first[1]["x"].append(2)
    first[2]["tool_calls"][0]["x"].append(2)
    assert build(snapshot, CHAT) == expected


def test_ids_stand_for_the_place_and_nothing_else() -> None:
    one = parse([USER, ASSISTANT], CHAT, source="run")
    other = parse([{"role": "user", "content": "other"}, calls(call())], CHAT, source="run")
    assert one[0].event_id == other[0].event_id
    assert {len(event.event_id) for event in one + other} == {32}
    # What a message comes to does not move the ids of those after it.
    more = parse([calls(call(), call("c2"), content="x"), ASSISTANT], CHAT, source="run")
    assert more[-1].event_id == one[-1].event_id
    assert parse([USER], CHAT, source="run 2")[0].event_id != one[0].event_id
    assert parse([USER], CHAT)[0].event_id != one[0].event_id


async def test_importing_again_stores_what_is_new() -> None:
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
        with pytest.raises(EventConflict, match="event 2 of the transcript"):
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


async def test_a_message_no_store_takes_is_named_and_those_before_it_are_stored() -> None:
    deep: JsonValue = "x"
    for _ in range(62):
        deep = [deep]
    messages = [USER, ASSISTANT, USER, {**USER, "x": deep}, USER]
    assert_exact_without_store(messages)
    async with open_store("memory:") as store:
        with pytest.raises(InvalidEvent, match=r"event 4 of the transcript: .*nests deeper"):
            await import_transcript(store, "a", "r", messages, CHAT)
        assert (await store.load_run("a", "r")).version == 3
    async with open_store("memory:?max_event_bytes=100") as store:
        with pytest.raises(EventTooLarge, match=r"event 2 of the transcript: .*the limit is 100"):
            await import_transcript(store, "a", "r", [USER, {**USER, "content": "x" * 200}], CHAT)


def assert_exact_without_store(messages: list[Message]) -> None:
    assert build(snapshot_of(parse(messages, CHAT)), CHAT) == messages


@pytest.mark.parametrize("provider", ["", "openai", "OPENAI-CHAT", None, []])
def test_an_unknown_provider_is_refused_with_those_known(provider: Any) -> None:
    for use in (lambda: parse([], provider), lambda: build(snapshot_of([]), provider)):
        with pytest.raises(InvalidArgument, match="known: openai-chat"):
            use()
    assert provider_names() == (CHAT,)


@pytest.mark.parametrize("message", [None, "x", 1, [], [("role", "user")]])
def test_a_message_that_is_no_map_is_named(message: Any) -> None:
    with pytest.raises(DecodeError, match=r"^messages\[2\] must be a map"):
        parse([USER, USER, message], CHAT)


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, "\ud800", b"x", object(), {"\ud800": 1}])
def test_a_message_that_is_no_json_is_named(value: Any) -> None:
    with pytest.raises(DecodeError, match=r"^messages\[1\]"):
        parse([USER, {**USER, "content": value}], CHAT)


@pytest.mark.parametrize("messages", [None, 1, "x", b"x", USER])
def test_messages_must_be_a_list(messages: Any) -> None:
    with pytest.raises(DecodeError, match=r"^messages must be a list of maps"):
        parse(messages, CHAT)


def test_lines_of_a_file() -> None:
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
def test_a_bad_line_is_named(line: bytes) -> None:
    reading = read_chat_lines([b'{"messages":[]}', line])
    assert next(reading).line == 1
    with pytest.raises(DecodeError, match=r"^line 2"):
        next(reading)
    with contextlib.suppress(StopIteration):
        next(reading)
