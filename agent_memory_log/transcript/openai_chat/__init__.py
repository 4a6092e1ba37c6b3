"""OpenAI Chat Completions: the ``messages`` list, and ``tools`` and the rest beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.transcript.model import Message
from agent_memory_log.transcript.openai_chat.building import ChatBuilder
from agent_memory_log.transcript.openai_chat.parsing import ChatParser
from agent_memory_log.transcript.openai_chat.rendering import PROVIDER, text_message
from agent_memory_log.transcript.openai_chat.repairing import repair
from agent_memory_log.transcript.openai_chat.rules import validate
from agent_memory_log.transcript.requests import RecordedRequest
from agent_memory_log.transcript.transcripts import Transcript
from agent_memory_log.transcript.windows import Seams

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

MESSAGES = "messages"
SYSTEM = "system"
TOOLS = "tools"


def parser(source: str) -> ChatParser:
    """A parser for one transcript."""
    return ChatParser(source)


def builder(messages: list[Message], max_result_bytes: int | None) -> ChatBuilder:
    """A builder that fills ``messages``."""
    return ChatBuilder(messages, max_result_bytes)


def arguments(recorded: RecordedRequest, transcript: Transcript) -> dict[str, JsonValue]:
    """The arguments of ``chat.completions.create`` beside the messages, which begin with the system prompt."""
    found: dict[str, JsonValue] = {}
    if recorded.own:
        found.update(recorded.parameters or {})
        if recorded.model is not None:
            found["model"] = recorded.model
    if recorded.system_text and not (transcript and _is_instruction(transcript[0])):
        transcript.prepend(text_message("system", recorded.system_text))
    if recorded.own and recorded.tools is not None:
        found["tools"] = recorded.tools
    elif recorded.definitions:
        found["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in recorded.definitions
        ]
    return found


def seams(messages: Sequence[Message]) -> Seams:
    """Instructions at the beginning stay; a turn begins where the user says something, a round with the assistant."""
    head = 0
    while head < len(messages) and _is_instruction(messages[head]):
        head += 1
    turns: list[int] = []
    openings: list[int] = []
    rounds: list[int] = []
    opening = False
    for index in range(head, len(messages)):
        role = messages[index].get("role")
        if role == "assistant":
            rounds.append(index)
            opening = False
        elif role == "user" and not opening:
            turns.append(index)
            openings.append(index)
            opening = True
        if opening:
            openings[-1] = index + 1
    return Seams(head, turns, openings, rounds)


def sendable(messages: Sequence[object], request: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The other arguments: with none of them a valid transcript is refused."""
    del messages
    return dict(request)


def without_reasoning(message: Message) -> Message | None:
    """The message itself: Chat Completions takes no reasoning."""
    return message


def _is_instruction(message: Message) -> bool:
    return message.get("role") in ("system", "developer")  # a tuple: a role may be anything, a list too
