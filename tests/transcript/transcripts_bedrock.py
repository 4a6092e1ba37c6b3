"""Provides the Converse inputs of the tests that run for every provider."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from agent_memory_log import JsonValue
from tests.transcript.converse_judge import judge_messages
from tests.transcript.test_bedrock import (
    BEDROCK,
    DOCUMENTED,
    IMAGE,
    ODD,
    assistant,
    good_messages,
    odd_messages,
    result,
    text,
    thought,
    use,
    user,
)
from tests.transcript.transcripts import THOUGHT, Case, Message, arguments, names, spoken_texts


def _encrypted(number: int) -> Message:
    return {"reasoningContent": {"redactedContent": base64.b64encode(f"{THOUGHT} {number}".encode()).decode()}}


@st.composite
def sound_conversations(draw: st.DrawFn) -> list[Message]:
    """Draw a valid conversation."""
    messages: list[Message] = []
    number = 0
    for _ in range(draw(st.integers(0, 3))):
        opening = draw(st.sampled_from([[text("a"), text("b")], [text("c"), IMAGE]]))
        if messages and messages[-1]["role"] == "user":
            messages[-1]["content"] += opening
        else:
            messages.append(user(*opening))
        for _ in range(draw(st.integers(0, 2))):
            blocks: list[Any] = []
            call_ids: list[str] = []
            for _ in range(draw(st.integers(1, 3))):
                number += 1
                reasoning = [thought(f"{THOUGHT} {number}", f"{THOUGHT} signed {number}"), _encrypted(number)]
                blocks += draw(st.sampled_from([[], reasoning[:1], reasoning[1:], reasoning]))
                server_blocks = [use(f"s{number}", "nova_grounding", {"q": 1}, type="server_tool_use")]
                server_blocks.append(result(f"s{number}", text("found"), type="nova_grounding_result"))
                blocks += draw(st.sampled_from([[], [text("Let me look.")], server_blocks]))
                call_ids.append(f"c{number}")
                blocks.append(use(call_ids[-1], draw(names), json.loads(draw(arguments)) or {"id": 1}))
            messages.append(assistant(*blocks))
            kinds = st.sampled_from([[text("ok")], [{"json": {"a": 1.5}}], [text("a"), IMAGE]])
            failed = st.sampled_from([{}, {"status": "error"}])
            answers = [result(call_id, *draw(kinds), **draw(failed)) for call_id in call_ids]
            messages.append(user(*draw(st.permutations(answers))))
        if draw(st.booleans()):
            number += 1
            thoughts = [thought(f"{THOUGHT} {number}", f"{THOUGHT} signed {number}")] if draw(st.booleans()) else []
            messages.append(assistant(*thoughts, text(draw(spoken_texts))))
    return messages


def tools(name: str, description: str, schema: Mapping[str, JsonValue]) -> JsonValue:
    """Return a ``toolConfig`` with one tool."""
    return {"tools": [{"toolSpec": {"name": name, "description": description, "inputSchema": {"json": schema}}}]}


CASE = Case(BEDROCK, ODD, DOCUMENTED, good_messages, odd_messages, sound_conversations(), judge_messages, tools)
