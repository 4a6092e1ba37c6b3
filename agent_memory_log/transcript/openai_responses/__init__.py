"""OpenAI Responses: the ``input`` list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.transcript.model import Message
from agent_memory_log.transcript.openai_responses.building import ResponsesBuilder
from agent_memory_log.transcript.openai_responses.parsing import ResponsesParser
from agent_memory_log.transcript.openai_responses.rendering import CALLS, PROVIDER
from agent_memory_log.transcript.openai_responses.repairing import repair, unbound
from agent_memory_log.transcript.openai_responses.rules import validate
from agent_memory_log.transcript.openai_responses.shapes import is_sound
from agent_memory_log.transcript.openai_responses.turns import is_from_model, kind_of, seams
from agent_memory_log.transcript.requests import RecordedRequest
from agent_memory_log.transcript.transcripts import Transcript

__all__ = [
    "MESSAGES",
    "PROVIDER",
    "SYSTEM",
    "TOOLS",
    "arguments",
    "builder",
    "parser",
    "repair",
    "seams",
    "sendable",
    "validate",
    "without_reasoning",
]

MESSAGES = "input"
SYSTEM = "instructions"
TOOLS = "tools"


def parser(source: str) -> ResponsesParser:
    """A parser for one transcript."""
    return ResponsesParser(source)


def builder(messages: list[Message], max_result_bytes: int | None) -> ResponsesBuilder:
    """A builder of one transcript."""
    return ResponsesBuilder(messages, max_result_bytes)


def arguments(recorded: RecordedRequest, transcript: Transcript) -> dict[str, JsonValue]:
    """The arguments of ``responses.create`` beside the input."""
    del transcript
    found: dict[str, JsonValue] = {}
    if recorded.own:
        found.update(recorded.parameters or {})
        if recorded.model is not None:
            found["model"] = recorded.model
    if recorded.own and recorded.system is not None:
        found["instructions"] = recorded.system
    elif recorded.system_text:
        found["instructions"] = recorded.system_text
    if recorded.own and recorded.tools is not None:
        found["tools"] = recorded.tools
    elif recorded.definitions:
        found["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema,
                "strict": False,
            }
            for tool in recorded.definitions
        ]
    return found


def sendable(messages: Sequence[object], request: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The other arguments: with none of them a valid transcript is refused."""
    del messages
    return dict(request)


def without_reasoning(message: Message) -> Message | None:
    """None for encrypted reasoning, and for what cannot be without it; other items of the model's without their ids.

    By its id the provider knows what reasoning an item was made with, and refuses it alone.
    """
    kind = kind_of(message)
    if kind == "reasoning":
        return None if message.get("encrypted_content") else message
    if "id" not in message or kind == "item_reference" or not is_from_model(message):
        return message
    left = unbound(message)
    if is_sound(left):
        return left
    return message if kind in CALLS else None
