"""Tests that a stream which is cut off or fails is recorded as a partial answer, and that nothing is run from it."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from agent_memory_log import AssistantMessage, Reader, UserMessage, open_store, open_sync_store
from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.recording import RecordedResponse, RunRecorder, SyncRunRecorder
from agent_memory_log.replay import Replayer, diff
from agent_memory_log.transcript import build, repair, validate
from tests.recording.test_record_response import AGENT, CONVERSE, RUN, STREAMS

PROVIDERS = sorted(STREAMS)

TEXT_THEN_CALL: dict[str, list[dict[str, Any]]] = {
    "anthropic": [
        {"type": "message_start", "message": {"type": "message", "role": "assistant", "model": "m", "id": "r"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Let me "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "see."}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "c1", "name": "pay", "input": {}},
        },
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"eur": 1'}},
    ],
    "bedrock": [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Let me "}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "see."}}},
        {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "c1", "name": "pay"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolUse": {"input": '{"eur": 1'}}}},
    ],
    "gemini": [
        {"modelVersion": "m", "responseId": "r", "candidates": [{"content": {"role": "model", "parts": [part]}}]}
        for part in (
            {"text": "Let me "},
            {"text": "see."},
            {"functionCall": {"name": "pay", "willContinue": True}},
            {"functionCall": {"partialArgs": [{"jsonPath": "$.eur", "numberValue": 1}], "willContinue": True}},
        )
    ],
    "openai-chat": [
        {"id": "r", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in (
            {"role": "assistant", "content": "Let me "},
            {"content": "see."},
            {
                "tool_calls": [
                    {"index": 0, "id": "c1", "type": "function", "function": {"name": "pay", "arguments": ""}}
                ]
            },
            {"tool_calls": [{"index": 0, "function": {"arguments": '{"eur": 1'}}]},
        )
    ],
    "openai-responses": [
        {"type": "response.created", "response": {"id": "r", "model": "m", "output": [], "status": "in_progress"}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "message", "id": "m1", "role": "assistant", "content": [], "status": "in_progress"},
        },
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Let me "},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "see."},
        {
            "type": "response.output_item.added",
            "output_index": 1,
            "item": {"type": "function_call", "id": "f1", "call_id": "c1", "name": "pay", "arguments": ""},
        },
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"eur": 1'},
    ],
}

ERRORS: dict[str, dict[str, Any]] = {
    "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    "bedrock": {"throttlingException": {"message": "Overloaded"}},
    "gemini": {"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}},
    "openai-chat": {"error": {"message": "Overloaded", "code": 502}, "choices": []},
    "openai-responses": {"type": "error", "code": "server_error", "message": "Overloaded"},
}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("ending", ["cut_off", "error"])
async def test_text_is_kept_and_no_call_waits(provider: str, ending: str) -> None:
    events = [*TEXT_THEN_CALL[provider], *([ERRORS[provider]] if ending == "error" else [])]
    async with open_store("memory:") as store, RunRecorder(store, AGENT, RUN) as recorder:
        await recorder.user("Pay.")
        answer = await recorder.record_response(events)
        await recorder.user("Well?")
        snapshot = await store.load_run(AGENT, RUN)
    assert (answer.text, answer.partial, answer.tool_calls) == ("Let me see.", ending, ())
    (event,) = answer.events
    assert event.labels["partial"] == ending
    assert ("Overloaded" in event.labels.get("error", "")) == (ending == "error")
    assert '"eur"' in json.dumps(event.to_map()).replace("\\", "")  # nothing that came is lost
    assert not Reader(snapshot).tool_calls()
    assert not Reader(snapshot).open_tool_calls()

    left = build(snapshot, provider)
    assert [loss.reason for loss in left.losses] == ["partial"]
    assert "see." not in json.dumps(left)
    with_partial = build(snapshot, provider, partial="keep")
    assert "Let me see." in json.dumps(with_partial)
    for transcript in (left, with_partial):
        assert "pay" not in json.dumps(transcript)
        assert not repair(transcript, provider).changes
    assert not [finding for finding in validate(with_partial, provider) if finding.rule != "empty_message"]
    assert diff(snapshot, snapshot).same

    with Replayer(snapshot, provider) as replayer:
        turn = replayer.model_turn()
        assert (turn.text, turn.partial, turn.tool_calls) == ("Let me see.", ending, ())
        assert "pay" not in json.dumps(turn.messages)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_cut_anywhere_is_partial_or_empty_or_complete(provider: str) -> None:
    events = STREAMS[provider]()
    kinds: list[str] = []
    for end in range(len(events) + 1):
        with open_sync_store("memory:") as store, SyncRunRecorder(store, AGENT, RUN) as recorder:
            try:
                answer = recorder.record_response(copy.deepcopy(events[:end]), provider=provider)
            except DecodeError:
                assert not store.load_run(AGENT, RUN).version
                kinds.append("empty")
                continue
            kinds.append("partial" if answer.partial else "complete")
            snapshot = store.load_run(AGENT, RUN)
            assert bool(Reader(snapshot).tool_calls()) == (not answer.partial)
    assert kinds == sorted(kinds, key=["empty", "partial", "complete"].index)
    assert {"empty", "complete"} <= set(kinds)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_only_an_error_is_raised_with_its_text(provider: str) -> None:
    async with open_store("memory:") as store, RunRecorder(store, AGENT, RUN) as recorder:
        with pytest.raises(DecodeError, match="Overloaded"):
            await recorder.record_response(
                [TEXT_THEN_CALL[provider][0], ERRORS[provider]][provider in ("gemini", "openai-chat") :],
                provider=provider,
            )
        assert not (await store.load_run(AGENT, RUN)).version


class ConnectionLost(Exception):
    pass


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_stream_that_raises_is_recorded_and_raises_on(provider: str) -> None:
    def stream() -> Iterator[dict[str, Any]]:
        yield from TEXT_THEN_CALL[provider]
        raise ConnectionLost("peer closed the connection")

    async def asynchronous() -> AsyncIterator[dict[str, Any]]:
        for event in stream():
            yield event

    with open_sync_store("memory:") as store, SyncRunRecorder(store, AGENT, RUN) as recorder:
        with pytest.raises(ConnectionLost):
            recorder.record_response(stream())
        (event,) = store.load_run(AGENT, RUN).log
    async with open_store("memory:") as async_store, RunRecorder(async_store, AGENT, RUN) as async_recorder:
        with pytest.raises(ConnectionLost):
            await async_recorder.record_response(asynchronous())
        (other,) = (await async_store.load_run(AGENT, RUN)).log
    for recorded in (event, other):
        assert isinstance(recorded.data, AssistantMessage)
        assert recorded.data.message == "Let me see."
        assert recorded.labels["error"] == "ConnectionLost: peer closed the connection"


async def test_an_answer_that_the_user_stops_is_recorded() -> None:
    began = asyncio.Event()

    async def stream() -> AsyncIterator[dict[str, Any]]:
        for event in TEXT_THEN_CALL["anthropic"]:
            yield event
        began.set()
        await asyncio.Event().wait()

    async with open_store("memory:") as store, RunRecorder(store, AGENT, RUN) as recorder:
        task = asyncio.create_task(recorder.record_response(stream()))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (event,) = (await store.load_run(AGENT, RUN)).log
    assert event.labels["partial"] == "cut_off"


async def test_the_key_stays_free_for_a_complete_answer() -> None:
    async with open_store("memory:") as store, RunRecorder(store, AGENT, RUN) as recorder:
        first: RecordedResponse = await recorder.record_response(TEXT_THEN_CALL["bedrock"], key="turn-1")
        assert first.partial == "cut_off"
        assert await recorder.recorded_response("turn-1") is None
        again = await recorder.record_response(CONVERSE, key="turn-1")
        assert not again.was_recorded
        assert not again.partial
        recorded = await recorder.recorded_response("turn-1")
        assert recorded is not None
        snapshot = await store.load_run(AGENT, RUN)
    assert recorded.events == again.events
    assert len(build(snapshot, "bedrock")) == 1


def test_unknown_treatment_is_refused() -> None:
    with open_sync_store("memory:") as store:
        store.append_events(AGENT, RUN)
        with SyncRunRecorder(store, AGENT, RUN) as recorder:
            recorder.record(UserMessage("Hi"))
        with pytest.raises(InvalidArgument, match="partial must be leave_out or keep"):
            build(store.load_run(AGENT, RUN), "anthropic", partial="complete")  # type: ignore[arg-type]  # wrong on purpose
