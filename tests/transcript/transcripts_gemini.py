"""Provides the Gemini contents of the tests that run for every provider."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from agent_memory_log import JsonValue
from tests.transcript.gemini_judge import judge_messages
from tests.transcript.test_gemini import (
    CODE,
    DOCUMENTED,
    GEMINI,
    IMAGE,
    ODD,
    RAN,
    good_messages,
    model,
    odd_messages,
    text,
    thought,
    user,
)
from tests.transcript.transcripts import THOUGHT, Case, Message, arguments, names, spoken_texts

# Results with an error and a value break a rule of the log.
VALID = {name: messages for name, messages in DOCUMENTED.items() if name != "responses"}


def _signed(number: int) -> Message:
    return {"thoughtSignature": base64.b64encode(f"{THOUGHT} {number}".encode()).decode()}


@st.composite
def sound_conversations(draw: st.DrawFn) -> list[Message]:
    """Draw a valid conversation."""
    messages: list[Message] = []
    number = 0
    for _ in range(draw(st.integers(0, 3))):
        messages.append(user(*draw(st.sampled_from([[text("a"), text("b")], [text("c"), IMAGE]]))))
        for _ in range(draw(st.integers(0, 2))):
            has_ids = draw(st.booleans())
            parts: list[Any] = []
            answers: list[Message] = []
            for _ in range(draw(st.integers(1, 3))):
                number += 1
                parts += draw(st.sampled_from([[], [thought(f"{THOUGHT} {number}", **_signed(number))]]))
                parts += draw(st.sampled_from([[], [text("Let me look.")], [text("So:"), CODE, RAN]]))
                name = draw(names)
                own_id = {"id": f"c{number}"} if has_ids else {}
                body = {**own_id, "name": name, "args": json.loads(draw(arguments))}
                parts.append({"functionCall": body, **draw(st.sampled_from([{}, _signed(number)]))})
                response = draw(st.sampled_from([{"output": 1.5}, {"error": "no"}, {"a": {"b": None}}]))
                answers.append({"functionResponse": {**own_id, "name": name, "response": response}})
            messages.append(model(*parts))
            messages.append(user(*(draw(st.permutations(answers)) if has_ids else answers)))
        if draw(st.booleans()):
            number += 1
            messages.append(model(text(draw(spoken_texts), **draw(st.sampled_from([{}, _signed(number)])))))
    return messages


def tools(name: str, description: str, schema: Mapping[str, JsonValue]) -> JsonValue:
    """Return the tools with one function."""
    return [{"functionDeclarations": [{"name": name, "description": description, "parametersJsonSchema": schema}]}]


CASE = Case(GEMINI, ODD, VALID, good_messages, odd_messages, sound_conversations(), judge_messages, tools)
