"""Checks that every answer that an SDK's types can express is recorded, sent back and replayed exactly."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import anthropic.types
import anthropic.types.beta
import openai.types.responses
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory_log import open_sync_store
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.recording import SyncRunRecorder
from agent_memory_log.replay import Replayer
from agent_memory_log.transcript import build, repair, validate
from tests.effort import EXAMPLES
from tests.recording.sdk_shapes import shapes_of

GOOGLE = import_module("google.genai.types")
USAGE = {"input_tokens": 1, "output_tokens": 1}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-4-8", "usage": USAGE}
RESPONSE = {"id": "resp_1", "object": "response", "model": "gpt-5.2", "status": "completed"}

PARTS: dict[str, st.SearchStrategy[Any]] = {
    "anthropic": shapes_of(anthropic.types.ContentBlock) | shapes_of(anthropic.types.beta.BetaContentBlock),
    "openai-responses": shapes_of(openai.types.responses.ResponseOutputItem),
    # Google's package drops a null in a part.
    "gemini": shapes_of(GOOGLE.Part).map(lambda part: {key: part[key] for key in part if part[key] is not None}),
}
"""Draws a part of an answer of each provider."""


def answers_of(provider: str, parts: list[Any]) -> tuple[dict[str, Any], Any]:
    """Return an answer with these parts as the provider sends it, and as the object of its SDK."""
    answer: dict[str, Any]
    if provider == "anthropic":
        answer = {**MESSAGE, "content": parts}
        construct = import_module("anthropic._models").construct_type
        return answer, construct(type_=anthropic.types.beta.BetaMessage, value=answer)
    if provider == "openai-responses":
        answer = {**RESPONSE, "output": parts}
        construct = import_module("openai._models").construct_type
        return answer, construct(type_=openai.types.responses.Response, value=answer)
    answer = {"responseId": "r", "candidates": [{"content": {"role": "model", "parts": parts}}]}
    return answer, GOOGLE.GenerateContentResponse.model_validate(answer)


def messages_of(provider: str, parts: list[Any]) -> list[Any]:
    """Return the messages to send back for these parts."""
    if provider == "openai-responses":
        return parts
    return [{"role": "assistant", "content": parts} if provider == "anthropic" else {"role": "model", "parts": parts}]


@pytest.mark.parametrize("provider", PARTS)
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_any_answer_is_sent_back_and_replayed_exactly(provider: str, data: st.DataObject) -> None:
    parts = data.draw(st.lists(PARTS[provider], min_size=1, max_size=4))
    expected = encode_canonical(messages_of(provider, parts))
    for answer in answers_of(provider, parts):
        with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
            recorder.user("Hi")
            recorded = recorder.record_response(answer)
            snapshot = store.load_run("agent", "run")
        transcript = build(snapshot, provider)
        assert encode_canonical(transcript[1:]) == expected
        turn = Replayer(snapshot).model_turn()
        assert encode_canonical(turn.messages) == expected
        assert turn.tool_calls == recorded.tool_calls
        repaired = repair(transcript, provider)
        assert validate(repaired.transcript, provider, request=repaired.request) == []
