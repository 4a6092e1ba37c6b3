"""Tests which fields of a Chat Completions stream grow, and that the SDK's own stream helpers are read."""

from __future__ import annotations

import json
from typing import Any

import httpx2 as httpx
import pytest
from anthropic import Anthropic
from openai import OpenAI
from openai.types.chat import ChatCompletionAssistantMessageParam
from pydantic import TypeAdapter

from agent_memory_log import open_sync_store
from agent_memory_log.recording import SyncRunRecorder
from agent_memory_log.transcript import build, repair, validate
from tests.recording.test_record_response import (
    AGENT,
    RESPONSE,
    RUN,
    STREAMED,
    anthropic_stream,
    chat_stream,
    responses_stream,
)


def recorded(response: object, provider: str = "openai-chat") -> list[dict[str, Any]]:
    with open_sync_store("memory:") as store, SyncRunRecorder(store, AGENT, RUN) as recorder:
        assert not recorder.record_response(response, provider=provider).partial
        return [dict(message) for message in build(store.load_run(AGENT, RUN), provider)]


def chunks(*deltas: dict[str, Any]) -> list[dict[str, Any]]:
    ends = [None] * (len(deltas) - 1) + ["stop"]
    return [
        {"id": "r", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        for delta, end in zip(deltas, ends, strict=True)
        for choice in [{"index": 0, "delta": delta, "finish_reason": end}]
    ]


GROWN: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "a repeated channel, which changes": (
        [{"channel": "analysis", "reasoning": "a"}, {"channel": "analysis", "reasoning": "b"}, {"channel": "final"}],
        {"channel": "final", "reasoning": "ab"},
    ),
    "reasoning details": (
        [
            {
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "", "signature": "", "format": "f-v1", "index": 0}
                ]
            },
            {"reasoning_details": [{"type": "reasoning.text", "text": "a", "format": "f-v1", "index": 0}]},
            {"reasoning_details": [{"type": "reasoning.text", "text": "b", "format": "f-v1", "index": 0}]},
            {"reasoning_details": [{"type": "reasoning.text", "signature": "c2ln", "format": "f-v1", "index": 0}]},
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "ZW", "format": "f-v1", "index": 0}]},
            {"reasoning_details": []},
        ],
        {
            "reasoning_details": [
                {"type": "reasoning.text", "text": "ab", "signature": "c2ln", "format": "f-v1", "index": 0},
                {"type": "reasoning.encrypted", "data": "ZW", "format": "f-v1", "index": 0},
            ]
        },
    ),
    "thinking parts and then text": (
        [
            {"content": ""},
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]},
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "m."}]}]},
            {"content": "It "},
            {"content": "is."},
        ],
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "Hmm."}]},
                {"type": "text", "text": "It is."},
            ]
        },
    ),
    "text and then parts": (
        [{"content": "It "}, {"content": [{"type": "text", "text": "is."}]}],
        {"content": [{"type": "text", "text": "It is."}]},
    ),
    "names that are repeated": (
        [
            {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}}]},
            {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "}"}}]},
            {"tool_calls": [{"index": 0, "id": "", "type": None, "function": {"name": "", "arguments": " "}}]},
        ],
        {"tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{} "}}]},
    ),
    "calls with the same index": (
        [
            {"tool_calls": [{"index": 0, "id": n, "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
            for n in ("a", "b")
        ],
        {
            "tool_calls": [
                {"id": n, "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in ("a", "b")
            ]
        },
    ),
    "calls without an index": (
        [
            {"tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}}]},
            {"tool_calls": [{"function": {"arguments": "}"}}]},
            {"tool_calls": [{"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
        ],
        {
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ]
        },
    ),
    "no calls in each chunk": (
        [{"content": "a", "tool_calls": []}, {"content": "b", "tool_calls": []}],
        {"content": "ab"},
    ),
}


@pytest.mark.parametrize("name", GROWN)
def test_known_texts_grow_and_others_are_set(name: str) -> None:
    deltas, expected = GROWN[name]
    assert recorded(chunks(*deltas)) == [{"role": "assistant", "content": None, **expected}]


def test_a_stream_without_a_finish_reason_is_complete_if_it_ends_with_its_usage() -> None:
    events = chunks({"content": "a"}, {"content": "b"})
    events[-1]["choices"][0]["finish_reason"] = ""
    usage: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": 1}}
    assert recorded([*events, usage]) == [{"role": "assistant", "content": "ab"}]


def client(events: list[dict[str, Any]]) -> OpenAI:
    lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=lines)

    transport = httpx.MockTransport(answer)
    return OpenAI(api_key="none", base_url="http://localhost", http_client=httpx.Client(transport=transport))


def test_the_stream_helper_of_openai_gives_the_same_answer() -> None:
    ask = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    with client(chat_stream()).chat.completions.stream(**ask) as stream:  # type: ignore[arg-type]  # a plain map
        assert recorded(stream) == STREAMED["openai-chat"]
    with client(chat_stream()).chat.completions.stream(**ask) as stream:  # type: ignore[arg-type]  # a plain map
        final = stream.get_final_completion()
    (message,) = recorded(final)
    assert {key: value for key, value in message.items() if value is not None} == {
        key: value for key, value in STREAMED["openai-chat"][0].items() if value is not None
    }
    TypeAdapter(ChatCompletionAssistantMessageParam).validate_python(message)


def test_the_stream_helper_of_anthropic_gives_the_same_answer() -> None:
    streamed = [event for event in anthropic_stream() if event["type"] != "ping"]
    lines = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in streamed)
    transport = httpx.MockTransport(
        lambda _: httpx.Response(200, headers={"content-type": "text/event-stream"}, text=lines)
    )
    anthropic = Anthropic(api_key="none", base_url="http://localhost", http_client=httpx.Client(transport=transport))
    ask: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    with anthropic.messages.stream(**ask) as stream:
        events = list(stream)
    assert {event.type for event in events} > {"text", "message_stop"}
    assert recorded(events, "anthropic") == STREAMED["anthropic"]


def test_the_stream_helper_of_responses_gives_the_same_answer() -> None:
    items = [item for item in RESPONSE["output"] if item["type"] != "an_item_of_tomorrow"]  # the SDK warns about it
    events = [event for event in responses_stream() if "item" not in event or event["item"] in items]
    events[-1] = {**events[-1], "response": {**RESPONSE, "output": items}}
    with client(events).responses.stream(model="m", input="Hi") as stream:
        sent = recorded(stream, "openai-responses")
    assert sent == [item for item in STREAMED["openai-responses"] if item["type"] != "an_item_of_tomorrow"]


PLACEHOLDERS: dict[str, Any] = {
    "role": "assistant",
    "content": "4",
    "tool_calls": [],
    "refusal": "",
    "annotations": None,
    "audio": {"data": "", "expires_at": 0, "id": "", "transcript": ""},
    "function_call": {"arguments": "", "name": ""},
}


def test_the_placeholders_of_a_vendor_stay_as_they_came() -> None:
    message = PLACEHOLDERS
    answer = {"model": "claude-sonnet-4-6", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    assert recorded(answer) == [message]
    assert not validate([{"role": "user", "content": "2+2"}, message], "openai-chat", request={"model": "claude"})


def test_placeholders_are_not_sent_to_openai() -> None:
    answer = {"model": "gpt-4o", "choices": [{"index": 0, "message": PLACEHOLDERS, "finish_reason": "stop"}]}
    (sent,) = recorded(answer)
    assert sent == {"role": "assistant", "content": "4", "refusal": "", "annotations": None}
    TypeAdapter(ChatCompletionAssistantMessageParam).validate_python(sent)


def test_the_empty_list_of_calls_that_an_sdk_adds_is_not_sent_to_openai() -> None:
    message: dict[str, Any] = {"role": "assistant", "content": "4", "tool_calls": []}
    answer: dict[str, Any] = {
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": {**message}, "finish_reason": "stop"}],
    }
    (sent,) = recorded(answer)
    assert sent == {"role": "assistant", "content": "4"}
    TypeAdapter(ChatCompletionAssistantMessageParam).validate_python(sent)
    (finding,) = validate([{"role": "user", "content": "2+2"}, message], "openai-chat", request={"model": "gpt-4o"})
    assert (finding.rule, finding.path) == ("empty_calls", (1, "tool_calls"))
    repaired = repair([{"role": "user", "content": "2+2"}, message], "openai-chat", request={"model": "gpt-4o"})
    assert [change.change for change in repaired.changes] == ["dropped_calls"]
    assert repaired.transcript[1] == sent
