"""Provides the Chat Completions inputs of the tests that run for every provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from agent_memory_log import JsonValue
from tests.transcript.transcripts import (
    Case,
    Message,
    arguments,
    consume,
    json_values,
    maps,
    names,
    shaped,
    spoken_texts,
    texts,
)

CHAT = "openai-chat"


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
    "no messages": [],
    "an empty message": [{}],
    "no role": [{"content": "x"}, USER],
    "an unknown role": [{"role": "critic", "content": "x", "score": 1}, ASSISTANT, {"role": 5}, {"role": None}],
    "a role that is no text": [{"role": value, "content": "x"} for value in ODD_VALUES],
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
    "an id used twice in one message": [calls(call("a", "f"), call("a", "g")), tool("1", "a"), tool("2", "a")],
    "an id used in many messages": [calls(call()), tool(), calls(call()), tool(), calls(call()), tool()],
    "calls after calls": [calls(call("a")), calls(call("b")), calls(call("c"), content="x"), calls(call("d"))],
    "assistant after assistant": [ASSISTANT, ASSISTANT, calls(call()), ASSISTANT],
    "text and then calls in another message": [ASSISTANT, calls(call())],
    "text and then calls with content in another message": [ASSISTANT, calls(call(), content="x"), calls(call())],
    "an unknown message in between": [ASSISTANT, {"role": "x"}, calls(call())],
    "tool_calls null": [{**ASSISTANT, "tool_calls": None}, calls(call())],
    "tool_calls empty": [{**ASSISTANT, "tool_calls": []}, {"role": "assistant", "content": None, "tool_calls": []}],
    "tool_calls not a list": [{**ASSISTANT, "tool_calls": value} for value in ODD_VALUES],
    "tool_calls that are no maps": [calls(None), calls(call(), 3), calls([call()]), calls("x", content="y")],
    "an empty call": [calls({}), calls({}, {})],
    "a call without id": [calls({"type": "function", "function": {"name": "f", "arguments": "{}"}}), tool(call_id="")],
    "a call without function": [calls({"id": "c1", "type": "function"}), tool()],
    "a call without type": [calls({"id": "c1", "function": {"name": "f", "arguments": "{}"}})],
    "a call with a malformed function": [calls({"id": "c", "type": "function", "function": f}) for f in ODD_VALUES],
    "a call with extra fields": [
        calls({**call(), "index": 0, "function": {"name": "f", "arguments": "", "strict": True}}),
    ],
    "a call with a malformed id and name": [
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
    "a tool message with extra fields": [tool(name="f", is_error=True, cache_control={"type": "ephemeral"})],
    "a tool message with a malformed id": [tool(call_id=None), tool(call_id=3), {"role": "tool", "content": "x"}],  # type: ignore[arg-type]  # odd on purpose
    "a refusal": [{"role": "assistant", "content": None, "refusal": "No."}, {**ASSISTANT, "refusal": None}],
    "a refusal and calls": [calls(call(), refusal="No."), calls(call(), refusal=None, audio=None, annotations=[])],
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
    "malformed legacy calls": [
        {"role": "assistant", "content": None, "function_call": value} for value in ODD_VALUES
    ],
    "current and legacy calls": [
        calls(call(), function_call={"name": "f", "arguments": "{}"}),
        calls(call(), function_call=None),
    ],
    "keys that residuals use": [
        {**USER, "fields": {"content": 1}, "without": ["role"], "openai-chat": {"fields": {}}},
        calls({**call(), "message": {}, "function_call": True, "fields": {}}),
    ],
    "unusual keys": [{**USER, "": 1, "$set": {"a.b": None}, "a.b": "\0", "🧾": "𐀀"}],
    "names with escapes": [
        calls(*(call(f"c{n}", name) for n, name in enumerate(
            ["a--b", "a.b", "a-_2e-b", "a-_", "--", "-_2d-", "a__b", "mcp__s__t", "", " ", "-_110000-", "-_d800-", "ü"]
        ))),
    ],
    "long ids": [calls(call("i" * 41), call("i" * 41)), tool(call_id="i" * 41), tool(call_id="i" * 41)],
    "parts with extra fields": [
        {
            **USER,
            "content": [
                {"type": "text", "text": "a\nb", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": ""},
            ],
        },
        {**USER, "content": [{"type": "text"}, {"type": "text", "text": "x", "type ": 1}, 3, None]},
        tool([{"type": "text", "text": "a"}, {"type": "text", "text": "b", "x": 1.0}]),
    ],
    "reasoning": [
        {**ASSISTANT, "reasoning_content": "Hm."},
        {**ASSISTANT, "reasoning": "Hm. Ah.", "reasoning_details": [
            {"type": "reasoning.text", "text": "Hm. ", "index": 0},
            {"type": "reasoning.text", "text": "Ah.", "signature": "s", "format": None, "index": 1},
        ]},
        {**ASSISTANT, "reasoning": None, "reasoning_details": [{"type": "reasoning.encrypted", "data": "d"}]},
        {**ASSISTANT, "reasoning": "Hm.", "reasoning_content": "Ah.", "reasoning_details": []},
        calls(call("a"), reasoning_content="Hm."), tool(call_id="a"),
        calls(call("b"), reasoning="Hm."), calls(call("c"), reasoning="Hm."),
        {"role": "assistant", "reasoning": "Hm."},
    ],
    "thinking parts": [
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}], "closed": True},
            {"type": "text", "text": "Hello"},
            {"type": "thinking", "thinking": "Ah."},
        ]},
        calls(call("a"), content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]),
        {"role": "assistant", "content": [{"type": "thinking"}, {"type": "thinking", "thinking": ODD_VALUES}]},
    ],
    "reasoning that is no text": [
        {**ASSISTANT, key: value}
        for key in ("reasoning", "reasoning_content", "reasoning_details")
        for value in ODD_VALUES
    ],
    "empty ids": [
        calls(call("", "f"), call("", "g")), tool("1", ""), tool("2", ""), tool("3", ""),
        calls(call("", "h")), USER, tool("4", ""), tool("5", "", name="h"),
    ],
}  # fmt: skip

VALID: dict[str, list[Message]] = {
    "an empty conversation": [],
    "a conversation": [{"role": "system", "content": "S"}, USER, calls(call()), tool(), ASSISTANT],
    "parallel calls, answered in another order": [USER, calls(call("a"), call("b")), tool("2", "b"), tool("1", "a")],
    "an id used again": [USER, calls(call()), tool(), calls(call()), tool(), ASSISTANT],
    "a custom call": [
        USER,
        calls({"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}),
        tool(),
    ],
    "parts": [
        {"role": "developer", "content": [{"type": "text", "text": "D"}]},
        {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "u"}}]},
        {"role": "assistant", "content": [{"type": "text", "text": "x"}, {"type": "refusal", "refusal": "No."}]},
    ],
    "a refusal and audio": [
        USER,
        {"role": "assistant", "refusal": "No."},
        {"role": "assistant", "content": None, "audio": {"id": "audio_1"}},
    ],
    "a legacy call": [
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
    ],
    "repeated assistant and user messages": [ASSISTANT, calls(call(), content="x"), tool(), USER, USER],
}

ids = st.sampled_from(["", "c1", "c2"])
_functions = maps({"name": texts, "arguments": texts, "strict": st.booleans()})
_odd_calls = maps(
    {
        "id": ids,
        "type": st.sampled_from(["function", "custom"]),
        "function": _functions,
        "custom": maps({"name": texts, "input": texts}),
        "index": st.integers(),
    }
)
_thoughts = st.sampled_from(["", "a", "ab", "aab"])
_odd_details = st.lists(
    maps({"type": st.just("reasoning.text"), "text": _thoughts, "summary": _thoughts, "data": texts}) | json_values,
    max_size=3,
)
_odd_parts = maps(
    {"type": st.sampled_from(["text", "thinking"]), "text": texts, "thinking": _thoughts | _odd_details | json_values}
)
odd_messages = maps(
    {
        "role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function", "critic"]),
        "content": texts | st.none() | st.lists(_odd_parts, max_size=3),
        "tool_calls": st.lists(_odd_calls, max_size=3) | st.none(),
        "tool_call_id": ids,
        "function_call": _functions | st.none(),
        "name": texts,
        "refusal": texts | st.none(),
        "reasoning": texts | _odd_details,
        "reasoning_content": texts | st.none(),
        "reasoning_details": _odd_details,
        CHAT: json_values,
    }
)
_good_ids = st.sampled_from(["c1", "c2", "c3"])
_good_calls = st.builds(call, _good_ids, names, arguments)
_text_parts = st.lists(shaped({"type": st.just("text"), "text": texts}), min_size=1, max_size=2)
good_messages: st.SearchStrategy[Message] = st.one_of(
    shaped(
        {"role": st.sampled_from(["system", "user", "assistant", "developer"]), "content": texts | _text_parts},
        name=st.just("ann"),
    ),
    shaped(
        {
            "role": st.just("assistant"),
            "content": texts | st.none(),
            "tool_calls": st.lists(_good_calls, min_size=1, max_size=3),
        }
    ),
    st.builds(tool, texts | _text_parts, _good_ids),
)


@st.composite
def sound_conversations(draw: st.DrawFn) -> list[Message]:
    """Draw a valid conversation. Chat Completions has no reasoning."""
    messages: list[Message] = [{"role": "system", "content": draw(spoken_texts)}] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 3))):
        messages.append({"role": "user", "content": draw(spoken_texts)})
        for _ in range(draw(st.integers(0, 2))):
            count = draw(st.integers(1, 3))
            requested_calls = [call(f"c{n}", draw(names), draw(arguments)) for n in range(count)]
            messages.append(calls(*requested_calls, content=draw(spoken_texts | st.none())))
            answers = [tool(draw(texts), requested_call["id"]) for requested_call in requested_calls]
            messages += draw(st.permutations(answers))
        if draw(st.booleans()):
            messages.append({"role": "assistant", "content": draw(spoken_texts)})
    return messages


_adapter = TypeAdapter(list[ChatCompletionMessageParam])


def judge(messages: Sequence[Message]) -> None:
    """Raise if the messages do not fit the types of the ``openai`` package."""
    consume(_adapter.validate_python(list(messages)))


def tools(name: str, description: str, schema: Mapping[str, JsonValue]) -> JsonValue:
    """Return a list with one tool."""
    return [{"type": "function", "function": {"name": name, "description": description, "parameters": schema}}]


CASE = Case(CHAT, ODD, VALID, good_messages, odd_messages, sound_conversations(), judge, tools)
