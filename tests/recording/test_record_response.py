"""Tests that ``build`` returns exactly the messages to send back for recorded answers of SDKs."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import anthropic.types
import openai.types.chat
import openai.types.responses
import pydantic
import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.responses import ResponseStreamEvent

from agent_memory_log import (
    Annotation,
    AssistantMessage,
    Event,
    PlannerNote,
    Store,
    Thinking,
    ToolCall,
    UserMessage,
    decode_event,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import DecodeError, EventConflict, InvalidArgument
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.recording import RecordedResponse, RunRecorder, SyncRunRecorder
from agent_memory_log.recording.streams.bedrock import join_bedrock
from agent_memory_log.transcript import build, request, validate
from tests.transcript.gemini_judge import response_of

AGENT = "agent"
RUN = "run"

MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-4-8",
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 9, "output_tokens": 70, "cache_read_input_tokens": 3},
    "content": [
        {"type": "thinking", "thinking": "", "signature": "c2lnbmVk"},
        {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"},
        {
            "type": "text",
            "text": "The sky is blue.",
            "citations": [
                {
                    "type": "char_location",
                    "cited_text": "blue",
                    "document_index": 0,
                    "document_title": None,
                    "start_char_index": 0,
                    "end_char_index": 4,
                    "file_id": None,
                }
            ],
        },
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "sky"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [
                {
                    "type": "web_search_result",
                    "title": "Sky",
                    "url": "https://sky",
                    "encrypted_content": "eA==",
                    "page_age": None,
                }
            ],
        },
        {"type": "tool_use", "id": "toolu_1", "name": "orders--find", "input": {"id": 7, "big": 2**70, "x": 1.0}},
        {"type": "a_block_of_tomorrow", "holds": {"anything": [1, None]}},
        {"type": "tool_use", "id": "toolu_2", "name": "get_weather", "input": {}, "caller": {"type": "direct"}},
    ],
}

COMPLETION: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-5.1",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": None,
            "message": {
                "role": "assistant",
                "content": "Let me see.",
                "refusal": None,
                "annotations": [],
                "reasoning_content": "kept, as some servers want it back",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "orders--find", "arguments": '{"id":  7, "cut'},
                    },
                    {"id": "call_2", "type": "custom", "custom": {"name": "run", "input": "print(1)"}},
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
}

RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1.0,
    "model": "gpt-5.1",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "Think."}],
            "encrypted_content": "ZW5jcnlwdGVk",
        },
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "phase": "commentary",
            "content": [
                {"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []},
                {"type": "refusal", "refusal": "Not that."},
            ],
        },
        {
            "id": "ws_1",
            "type": "web_search_call",
            "status": "completed",
            "action": {"type": "search", "query": "sky", "queries": ["sky"]},
        },
        {
            "id": "fc_1",
            "type": "function_call",
            "call_id": "call_1",
            "name": "orders--find",
            "arguments": '{"id": 7}',
            "status": "completed",
        },
        {"id": "n_1", "type": "an_item_of_tomorrow", "holds": {"anything": [1, None]}},
        {"id": "ct_1", "type": "custom_tool_call", "call_id": "call_2", "name": "run", "input": "print(1)"},
    ],
    "usage": {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 3,
    },
}

CONVERSE: dict[str, Any] = {
    "ResponseMetadata": {"RequestId": "req-1", "HTTPStatusCode": 200},
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "", "signature": "c2lnbmVk"}}},
                {"reasoningContent": {"redactedContent": b"\x00encrypted"}},
                {"text": "Let me see."},
                {"citationsContent": {"content": [{"text": "Blue."}], "citations": [{"title": "Sky"}]}},
                {"toolUse": {"toolUseId": "tooluse_1", "name": "orders--find", "input": {"id": 7}}},
                {"toolUse": {"toolUseId": "tooluse_2", "name": "get_weather", "input": {}}},
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3},
    "metrics": {"latencyMs": 5},
}


GENERATED: dict[str, Any] = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [
                    {"text": "", "thought": True, "thoughtSignature": "c2lnbmVkIP/+"},
                    {"text": "Let me see."},
                    {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
                    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
                    {"functionCall": {"name": "orders--find", "args": {"id": 7}}, "thoughtSignature": "c2ln"},
                    {"functionCall": {"name": "get_weather", "args": {}}},
                ],
            },
            "finishReason": "STOP",
            "index": 0,
        }
    ],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2, "totalTokenCount": 3},
    "modelVersion": "gemini-3-pro",
    "responseId": "resp_1",
}


def _converse_message() -> dict[str, Any]:
    message: dict[str, Any] = copy.deepcopy(CONVERSE["output"]["message"])
    message["content"][1]["reasoningContent"]["redactedContent"] = "AGVuY3J5cHRlZA=="  # JSON, where botocore has bytes
    return message


SENT_BACK: dict[str, list[dict[str, Any]]] = {
    "anthropic": [{"role": "assistant", "content": MESSAGE["content"]}],
    "openai-chat": [COMPLETION["choices"][0]["message"]],
    "openai-responses": RESPONSE["output"],
    "bedrock": [_converse_message()],
    "gemini": [GENERATED["candidates"][0]["content"]],
}

ANSWERS: dict[str, dict[str, Any]] = {
    "anthropic": MESSAGE,
    "openai-chat": COMPLETION,
    "openai-responses": RESPONSE,
    "bedrock": CONVERSE,
    "gemini": GENERATED,
}

OBJECTS: dict[str, Callable[[], Any]] = {
    "anthropic": lambda: anthropic.types.Message.construct(**copy.deepcopy(MESSAGE)),
    "openai-chat": lambda: openai.types.chat.ChatCompletion.construct(**copy.deepcopy(COMPLETION)),
    "openai-responses": lambda: openai.types.responses.Response.construct(**copy.deepcopy(RESPONSE)),
    "bedrock": lambda: copy.deepcopy(CONVERSE),
    "gemini": lambda: response_of(GENERATED),
}

PROVIDERS = sorted(ANSWERS)


def built(snapshot: Any, provider: str) -> list[Any]:
    return list(build(snapshot, provider))


async def recorded(*responses: object, provider: str | None = None) -> tuple[list[Any], list[RecordedResponse]]:
    """Return the messages to send back after a user's message, and the recorded ``responses``."""
    async with open_store("memory:") as store, RunRecorder(store, AGENT, RUN) as recorder:
        await recorder.user("Where is my order?")
        answers = [await recorder.record_response(response, provider=provider) for response in responses]
        name = provider or answers[0].events[0].labels["provider"]
        return built(await store.load_run(AGENT, RUN), name)[1:], answers


# Complete answers.


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("with_provider", [False, True])
async def test_plain_answer_is_sent_back_exactly(provider: str, with_provider: bool) -> None:
    response = copy.deepcopy(ANSWERS[provider])
    sent, _ = await recorded(response, provider=provider if with_provider else None)
    assert sent == SENT_BACK[provider]
    assert response == ANSWERS[provider]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_sdk_object_is_sent_back_exactly(provider: str) -> None:
    sent, _ = await recorded(OBJECTS[provider]())
    assert sent == SENT_BACK[provider]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_synchronous_recorder_records_the_same_answer(provider: str) -> None:
    with open_sync_store("memory:") as store, SyncRunRecorder(store, AGENT, RUN) as recorder:
        call_event = recorder.record_response(OBJECTS[provider]()).tool_calls[0]
        assert isinstance(call_event.data, ToolCall)
        assert call_event.data.tool_name == "orders.find"
        assert built(store.load_run(AGENT, RUN), provider) == SENT_BACK[provider]


def test_sdk_object_from_a_constructor_is_sent_back_exactly() -> None:
    message = anthropic.types.Message(
        id="msg_1",
        type="message",
        role="assistant",
        model="claude",
        content=[anthropic.types.TextBlock(type="text", text="Hi.")],
        usage=anthropic.types.Usage(input_tokens=1, output_tokens=2),
    )
    sent, _ = asyncio.run(recorded(message))
    assert sent == [{"role": "assistant", "content": [{"type": "text", "text": "Hi."}]}]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_answer_details_become_labels_and_usage_appears_once(provider: str) -> None:
    _, (answer,) = await recorded(OBJECTS[provider]())
    expected = {
        "anthropic": {"model": "claude-opus-4-8", "response_id": "msg_1", "stop_reason": "tool_use"},
        "openai-chat": {"model": "gpt-5.1", "response_id": "chatcmpl-1", "stop_reason": "tool_calls"},
        "openai-responses": {"model": "gpt-5.1", "response_id": "resp_1", "stop_reason": "completed"},
        "bedrock": {"response_id": "req-1", "stop_reason": "tool_use"},
        "gemini": {"model": "gemini-3-pro", "response_id": "resp_1", "stop_reason": "STOP"},
    }[provider]
    for event in answer.events:
        assert expected.items() <= event.labels.items()
        assert event.labels["provider"] == provider
    assert [number for number, event in enumerate(answer.events) if "usage" in event.labels] == [0]
    assert '":3' in answer.events[0].labels["usage"]
    assert not answer.was_recorded


def test_answer_exposes_its_text_and_tool_calls() -> None:
    _, (answer,) = asyncio.run(recorded(MESSAGE))
    assert answer.text == "The sky is blue."
    assert [event.data for event in answer.tool_calls] == [
        ToolCall("toolu_1", "orders.find", payload_json=f'{{"id":7,"big":{2**70},"x":1.0}}'),
        ToolCall("toolu_2", "get_weather", payload_json="{}", structured=answer.tool_calls[1].data.structured),  # type: ignore[attr-defined]  # a ToolCall's
    ]
    assert [event.data.text for event in answer.events if isinstance(event.data, Thinking)] == ["", ""]


async def test_fields_added_by_an_sdk_are_not_sent_back() -> None:
    class Order(pydantic.BaseModel):
        id: int

    completion = openai.types.chat.ParsedChatCompletion[Order].construct(**copy.deepcopy(COMPLETION))
    completion.choices[0].message.parsed = Order(id=7)
    calls: Any = completion.choices[0].message.tool_calls
    calls[0].function.parsed_arguments = {"id": 7}
    assert (await recorded(completion))[0] == SENT_BACK["openai-chat"]

    response = openai.types.responses.ParsedResponse[Order].construct(**copy.deepcopy(RESPONSE))
    outputs: Any = response.output
    outputs[1].content[0].parsed = Order(id=7)
    outputs[3].parsed_arguments = {"id": 7}
    assert (await recorded(response))[0] == SENT_BACK["openai-responses"]

    message = anthropic.types.ParsedMessage[Order].construct(**copy.deepcopy(MESSAGE))
    blocks: Any = message.content
    blocks[2].parsed_output = Order(id=7)
    assert (await recorded(message))[0] == SENT_BACK["anthropic"]


async def test_only_the_id_of_audio_is_sent_back() -> None:
    answer = copy.deepcopy(COMPLETION)
    answer["choices"][0]["message"] = {
        "role": "assistant",
        "content": None,
        "audio": {"id": "audio_1", "data": "AAAA", "expires_at": 1, "transcript": "Hi."},
    }
    sent, _ = await recorded(answer)
    assert sent == [{"role": "assistant", "content": None, "audio": {"id": "audio_1"}}]
    async with open_store("memory:") as store, RunRecorder(store, AGENT, RUN) as recorder:
        assert (await recorder.record_response(answer)).text == "Hi."
        assert build(await store.load_run(AGENT, RUN), "anthropic") == [
            {"role": "assistant", "content": [{"type": "text", "text": "Hi."}]}
        ]


@pytest.mark.parametrize(
    ("empty", "reason"),
    [
        ({**MESSAGE, "content": [], "stop_reason": "end_turn"}, "end_turn"),
        (
            {**RESPONSE, "output": [], "status": "failed", "error": {"code": "rate_limit_exceeded"}},
            "rate_limit_exceeded",
        ),
        ({**RESPONSE, "output": [], "incomplete_details": {"reason": "max_output_tokens"}}, "max_output_tokens"),
        ({**CONVERSE, "output": {"message": {"role": "assistant", "content": []}}}, "tool_use"),
    ],
)
async def test_empty_answer_is_recorded_but_not_sent_back(empty: dict[str, Any], reason: str) -> None:
    sent, (answer,) = await recorded(empty)
    assert sent == []
    assert isinstance(answer.events[0].data, Annotation)
    assert answer.events[0].labels["stop_reason"] == reason
    assert "usage" in answer.events[0].labels


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        ({"choices": []}, "one choice"),
        ({**COMPLETION, "choices": COMPLETION["choices"] * 2}, "one choice"),
        ({"id": 1}, "cannot detect the provider"),
        ("text", "cannot detect the provider"),
        (None, "cannot detect the provider"),
        (7, "cannot detect the provider"),
        ([], "cannot detect the provider"),
        ({**MESSAGE, "role": "user"}, "must be a Message"),
        ({"output": {"message": 1}}, "output.message"),
        ({**MESSAGE, "content": [{"type": "text", "text": float("nan")}]}, "nan"),
        ({**MESSAGE, "usage": {"a": float("nan")}}, "usage"),
        (anthropic.types.Message.construct(content=[object()]), "cannot be read as JSON"),
    ],
)
async def test_invalid_answer_is_refused_and_not_stored(invalid: object, message: str) -> None:
    async with open_store("memory:") as store, RunRecorder(store, AGENT, RUN) as recorder:
        with pytest.raises(DecodeError, match=message):
            await recorder.record_response(invalid)
        with pytest.raises(InvalidArgument, match="unknown provider"):
            await recorder.record_response(MESSAGE, provider="nobody")
        with pytest.raises(DecodeError, match="openai-chat"):
            await recorder.record_response(MESSAGE, provider="openai-chat")
        assert not (await store.load_run(AGENT, RUN)).version
        await recorder.record_response(MESSAGE)  # the recorder can still be used
        assert built(await store.load_run(AGENT, RUN), "anthropic") == SENT_BACK["anthropic"]


# Answers in a conversation.


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("opening", ["user", "assistant", "nothing"])
async def test_every_answer_in_a_conversation_is_sent_back_exactly(provider: str, opening: str) -> None:
    async with open_store("memory:") as store:
        recorder = RunRecorder(store, AGENT, RUN)
        if opening == "user":
            await recorder.user("Hi.")
        elif opening == "assistant":
            await recorder.assistant("Hi.")
        before = len(built(await store.load_run(AGENT, RUN), provider))
        first = await recorder.record_response(OBJECTS[provider]())
        for call_event in first.tool_calls:
            async with recorder.tool_call(call_event) as call, recorder.tool_call("inner") as inner:
                inner.result("nothing the model knows of")
                call.result({"state": "sent"})
        recorder = RunRecorder(store, AGENT, RUN)
        # Answers with the same call ids that follow each other directly stay separate messages.
        await recorder.record_response(OBJECTS[provider]())
        await recorder.record_response(OBJECTS[provider]())
        await recorder.note("no part of the conversation")
        await recorder.record_response(OBJECTS[provider]())
        sent = built(await store.load_run(AGENT, RUN), provider)
    expected = SENT_BACK[provider]
    assert sent[before : before + len(expected)] == expected
    assert sent[-3 * len(expected) :] == expected * 3
    assert len(sent) > before + 4 * len(expected)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_calls_of_an_answer_are_not_recorded_again(provider: str) -> None:
    async with open_store("memory:") as store, RunRecorder(store, AGENT, RUN) as recorder:
        await recorder.user("Hi.")
        answer = await recorder.record_response(OBJECTS[provider]())
        for call_event in answer.tool_calls:
            assert isinstance(call_event.data, ToolCall)
            # The id alone identifies the call, because callers often change the arguments.
            async with recorder.tool_call(
                call_event.data.tool_name, {"id": 7, "more": True}, tool_call_id=call_event.data.tool_call_id
            ) as call:
                assert call.event == call_event
                call.result("ok")
        snapshot = await store.load_run(AGENT, RUN)
        # After its result, another call with the same id is a new call.
        for call_event in answer.tool_calls:
            answered = decode_event(call_event, ToolCall)
            async with recorder.tool_call(answered.tool_name, tool_call_id=answered.tool_call_id) as call:
                assert (call.event.seq > snapshot.last_seq, call.recorded) == (True, None)
    calls = [event for event in snapshot.log if isinstance(event.data, ToolCall)]
    assert len(calls) == 2
    assert [event.type for event in snapshot.log][-2:] == ["tool_result", "tool_result"]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_recorded_answer_is_returned_for_its_key(provider: str, tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        async with RunRecorder(store, AGENT, RUN) as recorder:
            assert await recorder.recorded_response("turn-1") is None
            first = await recorder.record_response(OBJECTS[provider](), key="turn-1")
            async with recorder.tool_call(first.tool_calls[0]) as call:
                call.result("ran once")
        version = (await store.load_run(AGENT, RUN)).version
        async with RunRecorder(store, AGENT, RUN) as recorder:
            again = await recorder.recorded_response("turn-1")
            assert again == RecordedResponse(first.events, was_recorded=True)
            other = {**copy.deepcopy(ANSWERS[provider]), "id": "another answer"}
            assert await recorder.record_response(other, key="turn-1") == again
            assert again is not None
            async with recorder.tool_call(again.tool_calls[0]) as call:
                assert call.recorded is not None
                assert call.recorded.result_json == "ran once"
            assert (await store.load_run(AGENT, RUN)).version == version
            with pytest.raises(InvalidArgument, match="key"):
                await recorder.recorded_response("")


@pytest.mark.parametrize("kind", [AssistantMessage, UserMessage])
async def test_answer_is_appended_after_events_of_another_writer(kind: Any) -> None:
    class Crowded:
        """A store in which another writer appends before each of the next ``left`` appends."""

        def __init__(self, store: Store) -> None:
            self.store = store
            self.left = 0

        async def append_events(self, *arguments: Any, **options: Any) -> Any:
            if self.left:
                self.left -= 1
                await self.store.append_events(AGENT, RUN, new_event(kind(f"hand-made {self.left}")))
            return await self.store.append_events(*arguments, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.store, name)

    async with open_store("memory:") as store:
        crowded: Any = Crowded(store)
        recorder = RunRecorder(crowded, AGENT, RUN)
        await recorder.record_response({**MESSAGE, "content": [{"type": "text", "text": "Hi."}]})
        crowded.left = 3
        await recorder.record_response(MESSAGE)
        snapshot = await store.load_run(AGENT, RUN)
    assert built(snapshot, "anthropic")[-1:] == SENT_BACK["anthropic"]
    assert [event.type for event in snapshot.log][1:5] == [kind.event_type] * 3 + ["thinking"]
    # The log equals one of a recorder whose first attempt succeeded.
    async with open_store("memory:") as store:
        recorder = RunRecorder(store, AGENT, RUN)
        for event in snapshot.log[:4]:
            await recorder.record(event.data)
        await recorder.record_response(MESSAGE)
        assert [event.data for event in (await store.load_run(AGENT, RUN)).log] == [
            event.data for event in snapshot.log
        ]


async def test_deleted_run_records_the_same_answer_again() -> None:
    async with open_store("memory:") as store, RunRecorder(store, AGENT, RUN) as recorder:
        await recorder.user("Hi.")
        first = await recorder.record_response(MESSAGE)
        await store.delete_run(AGENT, RUN)
        await recorder.user("Hi.")
        second = await recorder.record_response(MESSAGE)
    assert [event.data for event in second.events] == [event.data for event in first.events]


async def test_erased_events_do_not_affect_the_next_answer() -> None:
    async with open_store("memory:") as store, RunRecorder(store, AGENT, RUN) as recorder:
        await recorder.user("secret")
        first = await recorder.record_response(MESSAGE)
        await store.redact_events(AGENT, RUN, [event.seq for event in first.events])
        second = await recorder.record_response(MESSAGE)
        assert [event.data for event in second.events] == [event.data for event in first.events]
        assert built(await store.load_run(AGENT, RUN), "anthropic")[-1:] == SENT_BACK["anthropic"]


async def test_parallel_answers_of_one_step_are_never_mixed() -> None:
    """Several recorders record the same step at once. The log has all events of one answer."""
    async with open_store("memory:") as store:
        recorders = [RunRecorder(store, AGENT, RUN) for _ in range(4)]
        answers = [{**MESSAGE, "id": str(number)} for number in range(4)]
        outcomes = await asyncio.gather(
            *(recorder.record_response(answer, key="k") for recorder, answer in zip(recorders, answers, strict=True)),
            return_exceptions=True,
        )
        assert all(isinstance(outcome, (RecordedResponse, EventConflict)) for outcome in outcomes)
        snapshot = await store.load_run(AGENT, RUN)
    assert len({event.labels["response_id"] for event in snapshot.log}) == 1
    assert built(snapshot, "anthropic") == SENT_BACK["anthropic"]


async def test_call_that_the_provider_ran_itself_is_not_requested() -> None:
    """OpenAI runs a shell in its own container, and its answer has the call and the output."""
    action = {"commands": ["ls"], "timeout_ms": None, "max_output_length": None}
    ran: list[dict[str, Any]] = [
        {"type": "shell_call", "id": "sh_1", "call_id": "call_1", "action": action, "status": "completed"},
        {"type": "shell_call_output", "id": "sho_1", "call_id": "call_1", "output": [], "status": "completed"},
    ]
    requested = {**ran[0], "id": "sh_2", "call_id": "call_2"}
    sent, (answer,) = await recorded({**RESPONSE, "output": [*ran, requested]})
    assert sent == [*ran, requested]
    assert [decode_event(event, ToolCall).tool_call_id for event in answer.tool_calls] == ["call_2"]


# Streams.


def anthropic_stream() -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {
                **MESSAGE,
                "content": [],
                "stop_reason": None,
                "usage": {"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": 3},
            },
        },
        {"type": "ping"},
    ]
    for index, content_block in enumerate(copy.deepcopy(MESSAGE["content"])):
        block: dict[str, Any] = content_block
        deltas: list[dict[str, Any]] = []
        kind = block["type"]
        if kind == "thinking":
            deltas = [{"type": "thinking_delta", "thinking": ""}, {"type": "signature_delta", "signature": "c2lnbmVk"}]
            block = {"type": "thinking", "thinking": "", "signature": ""}
        elif kind == "text":
            deltas = [{"type": "citations_delta", "citation": citation} for citation in block["citations"]]
            deltas += [{"type": "text_delta", "text": text} for text in ("The sky ", "is blue.")]
            block = {"type": "text", "text": "", "citations": []}
        elif kind in ("tool_use", "server_tool_use"):
            text = (
                ""
                if not block["input"]
                else f'{{"id": 7, "big": {2**70}, "x": 1.0}}'
                if kind == "tool_use"
                else '{"query": "sky"}'
            )
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in ("", text[:9], text[9:])]
            block["input"] = {}
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 70, "input_tokens": None},
        }
    )
    events.append({"type": "message_stop"})
    return events


def chat_stream() -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "Let me "},
        {"content": "see."},
        {
            "tool_calls": [
                {"index": 0, "id": "call_1", "type": "function", "function": {"name": "orders--find", "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"id": '}}]},
        {
            "tool_calls": [
                {"index": 1, "id": "call_2", "type": "function", "function": {"name": "run", "arguments": "{"}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": "7}"}}, {"index": 1, "function": {"arguments": "}"}}]},
        {},
    ]
    head: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5.1"}
    last = len(deltas) - 1
    return [
        *(
            {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls" if n == last else None}]}
            for n, delta in enumerate(deltas)
        ),
        {**head, "choices": [], "usage": COMPLETION["usage"]},
    ]


def responses_stream() -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [
        {
            "type": "response.created",
            "sequence_number": 0,
            "response": {**RESPONSE, "output": [], "status": "in_progress"},
        }
    ]
    for index, item in enumerate(RESPONSE["output"]):
        event = {"type": "response.output_item.done", "sequence_number": 0, "output_index": index, "item": item}
        events.append(event)
    events.append({"type": "response.completed", "sequence_number": 9, "response": RESPONSE})
    return events


def converse_stream() -> list[dict[str, Any]]:
    def delta(index: int, **content: Any) -> dict[str, Any]:
        return {"contentBlockDelta": {"contentBlockIndex": index, "delta": content}}

    def start(index: int, call_id: str, name: str) -> dict[str, Any]:
        return {
            "contentBlockStart": {
                "contentBlockIndex": index,
                "start": {"toolUse": {"toolUseId": call_id, "name": name}},
            }
        }

    return [
        {"messageStart": {"role": "assistant"}},
        delta(0, reasoningContent={"text": ""}),
        delta(0, reasoningContent={"signature": "c2lnbmVk"}),
        {"contentBlockStop": {"contentBlockIndex": 0}},
        delta(1, reasoningContent={"redactedContent": b"\x00enc"}),
        delta(1, reasoningContent={"redactedContent": b"rypted"}),
        delta(2, text="Let me "),
        delta(2, text="see."),
        delta(3, text="Blue."),
        delta(3, citation={"title": "Sky"}),
        start(4, "tooluse_1", "orders--find"),
        start(5, "tooluse_2", "get_weather"),
        delta(4, toolUse={"input": '{"id"'}),
        delta(4, toolUse={"input": ": 7}"}),
        delta(5, toolUse={"input": ""}),
        {"contentBlockStop": {"contentBlockIndex": 4}},
        {"messageStop": {"stopReason": "tool_use"}},
        {"metadata": {"usage": CONVERSE["usage"], "metrics": {"latencyMs": 5}}},
    ]


def gemini_stream() -> list[dict[str, Any]]:
    parts = GENERATED["candidates"][0]["content"]["parts"]
    chunks = [
        [parts[0], {"text": "Let me "}],
        [{"text": "see."}],
        parts[2:4],
        [parts[4]],
        [parts[5]],
        [{"text": ""}],
    ]
    events: list[dict[str, Any]] = [
        {**GENERATED, "candidates": [{"content": {"role": "model", "parts": copy.deepcopy(chunk)}, "index": 0}]}
        for chunk in chunks
    ]
    events[-1]["candidates"][0]["finishReason"] = "STOP"
    return events


STREAMS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "anthropic": anthropic_stream,
    "bedrock": converse_stream,
    "gemini": gemini_stream,
    "openai-chat": chat_stream,
    "openai-responses": responses_stream,
}

STREAMED = {
    **SENT_BACK,
    "openai-chat": [
        {
            "role": "assistant",
            "content": "Let me see.",
            "refusal": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "orders--find", "arguments": '{"id": 7}'}},
                {"id": "call_2", "type": "function", "function": {"name": "run", "arguments": "{}"}},
            ],
        }
    ],
}


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_stream_is_recorded_like_the_complete_answer(provider: str) -> None:
    events = STREAMS[provider]()
    unchanged = copy.deepcopy(events)
    sent, (answer,) = await recorded(events)
    assert sent == STREAMED[provider]
    assert events == unchanged
    assert '":3' in answer.events[0].labels["usage"]
    assert answer.events[0].labels["stop_reason"] in ("tool_use", "tool_calls", "completed", "STOP")

    def generator() -> Iterator[dict[str, Any]]:
        yield from events

    async def asynchronous() -> AsyncIterator[dict[str, Any]]:
        for event in events:
            yield event

    assert (await recorded(generator()))[0] == sent
    assert (await recorded(asynchronous()))[0] == sent
    with open_sync_store("memory:") as store, SyncRunRecorder(store, AGENT, RUN) as recorder:
        recorder.record_response(generator())
        assert built(store.load_run(AGENT, RUN), provider) == sent
        with pytest.raises(InvalidArgument, match="cannot read the asynchronous stream"):
            recorder.record_response(asynchronous())


async def test_converse_stream_output_is_read() -> None:
    sent, (answer,) = await recorded({"ResponseMetadata": {"RequestId": "req-1"}, "stream": iter(converse_stream())})
    assert sent == SENT_BACK["bedrock"]
    assert answer.events[0].labels["provider"] == "bedrock"


async def test_anthropic_stream_equals_the_sdk_message() -> None:
    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(RawMessageStreamEvent)
    sdk_events = [event for event in anthropic_stream() if event["type"] != "ping"]
    sdk_events = [event for event in sdk_events if event.get("content_block", {}).get("type") != "a_block_of_tomorrow"]
    for number, event in enumerate(event for event in sdk_events if event["type"] == "content_block_start"):
        event["place"] = number
    renumbered = {event["index"]: event.pop("place") for event in sdk_events if event["type"] == "content_block_start"}
    sdk_events = [
        {**event, **({"index": renumbered[event["index"]]} if "index" in event else {})}
        for event in sdk_events
        if event.get("index", 0) in renumbered
    ]
    objects = [adapter.validate_python(event) for event in sdk_events]
    message: Any = None
    buffers: dict[int, bytes] = {}
    for event in objects:
        message = accumulate_event(event=event, current_snapshot=message, json_bufs=buffers)
    streamed, _ = await recorded(objects)
    expected, _ = await recorded(message)
    assert streamed == expected


async def test_openai_stream_equals_the_sdk_message() -> None:
    state: Any = ChatCompletionStreamState()
    chunks = [openai.types.chat.ChatCompletionChunk.construct(**chunk) for chunk in chat_stream()]
    for chunk in chunks:
        state.handle_chunk(chunk)
    expected, _ = await recorded(state.get_final_completion())
    streamed, _ = await recorded(chunks)
    added = {key: expected[0].pop(key) for key in ("annotations", "audio", "function_call")}
    assert set(added.values()) == {None}
    assert streamed == expected

    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(ResponseStreamEvent)
    events = [adapter.validate_python(responses_stream()[index]) for index in (1, 2)]
    final = openai.types.responses.ResponseCompletedEvent.construct(**responses_stream()[-1])
    assert (await recorded([*events, final]))[0] == SENT_BACK["openai-responses"]


async def test_items_missing_from_the_final_event_are_recorded() -> None:
    events = responses_stream()
    events[-1] = {**events[-1], "response": {**RESPONSE, "output": []}}
    assert (await recorded(events))[0] == SENT_BACK["openai-responses"]


async def test_incomplete_arguments_are_stored_as_text() -> None:
    events = anthropic_stream()
    for event in events:
        if event.get("delta", {}).get("type") == "input_json_delta" and event["delta"]["partial_json"].endswith("1.0}"):
            event["delta"]["partial_json"] = event["delta"]["partial_json"][:-1]
    sent, _ = await recorded(events)
    assert sent[0]["content"][5]["input"] == {"INVALID_JSON": f'{{"id": 7, "big": {2**70}, "x": 1.0'}


UNREADABLE: list[tuple[list[dict[Any, Any]], str]] = [
    (
        [*anthropic_stream()[:3], {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta"}}],
        "new_delta",
    ),
    ([*converse_stream()[:3], {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"new": 1}}}], "new"),
    ([*converse_stream()[:3], {"contentBlockStart": {"contentBlockIndex": 0, "start": {"new": {}}}}], "new"),
    ([{**chat_stream()[0], "choices": [{"index": 1, "delta": {}}]}], "several choices"),
    (
        [
            anthropic_stream()[0],
            {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "x"}},
        ],
        "start of this block is missing",
    ),
    ([anthropic_stream()[0], {"type": "content_block_start", "index": None}], "must have an integer index"),
    (
        [
            *anthropic_stream()[:3],
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 7}},
        ],
        "must have text",
    ),
    (
        [{"choices": [{"delta": {"content": text}}]} for text in (7, "x")],
        "continues content with text, but content is int 7",
    ),
    ([{"messageStart": {"role": "assistant"}, 7: {}}], "the keys of an answer must be text, got int 7"),
]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_events_whose_type_is_not_text_are_skipped(provider: str) -> None:
    first, *rest = STREAMS[provider]()
    odd: list[dict[str, Any]] = [{"type": []}, {"type": {}}, {"type": None}, {"type": 7}]
    assert (await recorded([first, *odd, *rest]))[0] == STREAMED[provider]


@pytest.mark.parametrize("status", [[], {}, 7])
async def test_answer_whose_status_is_not_text_is_recorded(status: Any) -> None:
    assert (await recorded({**RESPONSE, "status": status}))[0] == SENT_BACK["openai-responses"]


@pytest.mark.parametrize(("events", "message"), UNREADABLE)
async def test_unreadable_stream_is_refused(events: list[dict[Any, Any]], message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        await recorded(events)


async def test_events_can_be_recorded_while_a_stream_is_read() -> None:
    async with open_store("memory:") as store, RunRecorder(store, AGENT, RUN) as recorder:

        async def stream() -> AsyncIterator[dict[str, Any]]:
            for event in anthropic_stream():
                if event["type"] == "ping":
                    await recorder.note("the stream has begun")
                yield event

        await recorder.record_response(stream())
        snapshot = await store.load_run(AGENT, RUN)
    assert isinstance(snapshot.log[0].data, PlannerNote)
    assert built(snapshot, "anthropic") == SENT_BACK["anthropic"]


async def test_each_answer_reads_only_new_events() -> None:
    class Counting:
        def __init__(self, store: Store) -> None:
            self.store = store
            self.read = 0

        async def load_run(self, *arguments: Any, **options: Any) -> Any:
            snapshot = await self.store.load_run(*arguments, **options)
            self.read += len(snapshot.log)
            return snapshot

        def __getattr__(self, name: str) -> Any:
            return getattr(self.store, name)

    async with open_store("memory:") as store:
        counting: Any = Counting(store)
        recorder = RunRecorder(counting, AGENT, RUN)
        for _ in range(20):
            await recorder.user("next")
            await recorder.record_response(MESSAGE)
        snapshot = await store.load_run(AGENT, RUN)
    assert counting.read <= snapshot.version
    assert [event.type for event in snapshot.log].count("user_message") == 20
    assert isinstance(snapshot.log[0], Event)
    assert isinstance(snapshot.log[0].data, UserMessage)


# Blocks of Bedrock that are no text and no call.


def _converse_events(*blocks: tuple[dict[str, Any] | None, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return a stream whose blocks have the given starts and deltas."""
    events: list[dict[str, Any]] = [{"messageStart": {"role": "assistant"}}]
    for index, (start, deltas) in enumerate(blocks):
        if start is not None:
            events.append({"contentBlockStart": {"contentBlockIndex": index, "start": start}})
        events += [{"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}} for delta in deltas]
    return [*events, {"messageStop": {"stopReason": "end_turn"}}]


async def test_results_and_images_in_a_converse_stream_are_joined() -> None:
    sent, (answer,) = await recorded(
        _converse_events(
            (
                {"toolUse": {"toolUseId": "s1", "name": "nova_grounding", "type": "server_tool_use"}},
                [{"toolUse": {"input": '{"q": 1}'}}],
            ),
            (
                {"toolResult": {"toolUseId": "s1", "type": "nova_grounding_result", "status": "success"}},
                [
                    {"toolResult": [{"text": "The sky "}]},
                    {"toolResult": [{"text": "is blue."}, {"json": {"n": 1}}]},
                    {"toolResult": [{"text": "End"}]},
                ],
            ),
            (
                {"image": {"format": "png"}},
                [{"image": {"source": {"bytes": b"\x00a"}}}, {"image": {"source": {"bytes": b"b"}}}],
            ),
            (None, [{"text": "Blue."}]),
        )
    )
    assert sent[0]["content"] == [
        {"toolUse": {"toolUseId": "s1", "name": "nova_grounding", "type": "server_tool_use", "input": {"q": 1}}},
        {
            "toolResult": {
                "toolUseId": "s1",
                "type": "nova_grounding_result",
                "status": "success",
                "content": [{"text": "The sky is blue."}, {"json": {"n": 1}}, {"text": "End"}],
            }
        },
        {"image": {"format": "png", "source": {"bytes": "AGFi"}}},
        {"text": "Blue."},
    ]
    assert answer.tool_calls == ()
    assert validate([{"role": "user", "content": [{"text": "Hi"}]}, *sent], "bedrock") == []


CONVERSE_PARTS: dict[str, dict[str, tuple[dict[str, Any] | None, list[dict[str, Any]]]]] = {
    "ContentBlockStart": {
        "toolUse": ({"toolUse": {"toolUseId": "t", "name": "f"}}, []),
        "toolResult": ({"toolResult": {"toolUseId": "t"}}, []),
        "image": ({"image": {"format": "png"}}, []),
    },
    "ContentBlockDelta": {
        "text": (None, [{"text": "x"}]),
        "toolUse": ({"toolUse": {"toolUseId": "t", "name": "f"}}, [{"toolUse": {"input": "{}"}}]),
        "toolResult": ({"toolResult": {"toolUseId": "t"}}, [{"toolResult": [{"text": "x"}]}]),
        "reasoningContent": (None, [{"reasoningContent": {"text": "x"}}]),
        "citation": (None, [{"citation": {"title": "x"}}]),
        "image": (None, [{"image": {"source": {"bytes": b"x"}}}]),
    },
}


def _shape(name: str) -> Any:
    loader = import_module("botocore.loaders").Loader()
    model = import_module("botocore.model").ServiceModel(loader.load_service_model("bedrock-runtime", "service-2"))
    return model.shape_for(name)


@pytest.mark.parametrize("shape", CONVERSE_PARTS)
def test_every_part_of_a_converse_stream_is_joined(shape: str) -> None:
    """botocore's own description of the API names the parts of a stream."""
    for member in _shape(shape).members:
        (block,) = join_bedrock(_converse_events(CONVERSE_PARTS[shape][member])).answer["output"]["message"]["content"]
        assert block
    unknown: dict[str, Any] = {"hologram": {}}
    with pytest.raises(DecodeError, match="unknown"):
        join_bedrock(_converse_events((unknown, []) if shape == "ContentBlockStart" else (None, [unknown])))


async def test_result_without_its_beginning_is_refused() -> None:
    with pytest.raises(DecodeError, match="unknown delta"):
        join_bedrock(_converse_events((None, [{"toolResult": [{"text": "x"}]}])))


async def test_empty_text_of_bedrock_is_not_sent_back() -> None:
    use: dict[str, Any] = {"toolUse": {"toolUseId": "t", "name": "f", "input": {}}}
    message: dict[str, Any] = {"role": "assistant", "content": [{"text": ""}, use, {"text": ""}]}
    sent, _ = await recorded({"output": {"message": message}, "stopReason": "tool_use"})
    assert sent == [{"role": "assistant", "content": [use]}]
    empty, (answer,) = await recorded({"output": {"message": {"role": "assistant", "content": [{"text": ""}]}}})
    assert (empty, answer.text) == ([], "")
    streamed, _ = await recorded(_converse_events((None, [{"text": ""}]), (None, [{"text": "Hi"}])))
    assert streamed == [{"role": "assistant", "content": [{"text": "Hi"}]}]


# Arguments of the next request, and answers that are not finished.


@pytest.mark.parametrize(
    ("parameters", "container"),
    [
        (None, "container_1"),
        ({"container": "container_0"}, "container_1"),
        (
            {"container": {"id": None, "skills": [{"skill_id": "pdf"}]}},
            {"id": "container_1", "skills": [{"skill_id": "pdf"}]},
        ),
    ],
)
def test_next_request_continues_in_the_container_of_the_answer(
    parameters: dict[str, JsonValue] | None, container: JsonValue
) -> None:
    answer = {**MESSAGE, "container": {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z"}}
    with open_sync_store("memory:") as store, SyncRunRecorder(store, AGENT, RUN) as recorder:
        recorder.user("Hi")
        recorder.request("anthropic", model="m", parameters=parameters)
        assert recorder.record_response(answer).events[0].labels["container"] == "container_1"
        recorder.record_response({**MESSAGE, "container": None})
        run = store.load_run(AGENT, RUN)
    assert request(run, "anthropic")["container"] == container
    assert "container" not in request(run, "openai-chat")


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_answer_that_the_model_still_works_on_is_refused(status: str) -> None:
    with open_sync_store("memory:") as store, SyncRunRecorder(store, AGENT, RUN) as recorder:
        recorder.user("Hi")
        with pytest.raises(DecodeError, match=f"the answer is {status}; retrieve it again by its id .*resp_1"):
            recorder.record_response({**RESPONSE, "id": "resp_1", "output": [], "status": status})
        assert store.load_run(AGENT, RUN).version == 1
