"""Provides the Responses inputs of the tests that run for every provider."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from agent_memory_log import JsonValue
from tests.transcript.responses_judge import judge_input
from tests.transcript.test_openai_responses import (
    DOCUMENTED,
    ODD,
    RESPONSES,
    assistant_message,
    call,
    good_items,
    items_of_kinds,
    output,
    reasoning,
    text,
)
from tests.transcript.transcripts import THOUGHT, Case, Message, arguments, names, spoken_texts


@st.composite
def sound_conversations(draw: st.DrawFn) -> list[Message]:
    """Draw a valid conversation."""
    items: list[Message] = []
    number = 0

    def thought() -> list[Message]:
        if not draw(st.booleans()):
            return []
        return [reasoning(f"rs_{number}", f"{THOUGHT} encrypted {number}", draw(st.sampled_from(["", THOUGHT])))]

    for _ in range(draw(st.integers(0, 3))):
        items.append({"role": "user", "content": draw(spoken_texts)})
        for _ in range(draw(st.integers(0, 2))):
            number += 1
            items += thought()
            call_ids = [f"c{number}_{part}" for part in range(draw(st.integers(1, 3)))]
            items += [call(call_id, draw(names), draw(arguments), id=f"f{call_id}") for call_id in call_ids]
            answers = [output(draw(st.sampled_from(["ok", "", '{"a": 1}'])), call_id) for call_id in call_ids]
            items += draw(st.permutations(answers))
        if draw(st.booleans()):
            number += 1
            items += [*thought(), assistant_message(text(draw(spoken_texts)), item_id=f"msg_{number}")]
    return items


def tools(name: str, description: str, schema: Mapping[str, JsonValue]) -> JsonValue:
    """Return a list with one tool."""
    return [{"type": "function", "name": name, "description": description, "parameters": schema, "strict": False}]


CASE = Case(RESPONSES, ODD, DOCUMENTED, good_items, items_of_kinds, sound_conversations(), judge_input, tools)
