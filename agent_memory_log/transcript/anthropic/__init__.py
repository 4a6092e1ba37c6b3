"""The Messages API of Anthropic: the ``messages`` list, and ``system``, ``tools`` and the rest beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.transcript.anthropic.building import AnthropicBuilder
from agent_memory_log.transcript.anthropic.parsing import AnthropicParser
from agent_memory_log.transcript.anthropic.rendering import PROVIDER
from agent_memory_log.transcript.anthropic.repairing import repair
from agent_memory_log.transcript.anthropic.rules import role_of, validate
from agent_memory_log.transcript.anthropic.shapes import THINKING
from agent_memory_log.transcript.anthropic.signed import sendable
from agent_memory_log.transcript.kinds import is_list, is_map
from agent_memory_log.transcript.model import Message
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


def parser(source: str) -> AnthropicParser:
    """A parser for one transcript."""
    return AnthropicParser(source)


def builder(messages: list[Message], max_result_bytes: int | None) -> AnthropicBuilder:
    """A builder that fills ``messages``."""
    return AnthropicBuilder(messages, max_result_bytes)


def arguments(recorded: RecordedRequest, transcript: Transcript) -> dict[str, JsonValue]:
    """The arguments of ``messages.create`` beside the messages."""
    del transcript
    found: dict[str, JsonValue] = {}
    if recorded.own:
        found.update(recorded.parameters or {})
        if recorded.model is not None:
            found["model"] = recorded.model
    system = recorded.system if recorded.own else None
    if system is None:
        system = recorded.system_text or None
    if system is not None:
        found["system"] = system
    if recorded.own and recorded.tools is not None:
        found["tools"] = recorded.tools
    elif recorded.definitions:
        found["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
            for tool in recorded.definitions
        ]
    return found


def seams(messages: Sequence[Message]) -> Seams:
    """A turn begins where the user says something; a round with the assistant's message."""
    turns: list[int] = []
    openings: list[int] = []
    rounds: list[int] = []
    opening = False
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "assistant":
            if index and messages[index - 1].get("role") != "assistant":
                rounds.append(index)
            opening = False
        elif role == "user" and not _answers(message):
            if not opening:
                turns.append(index)
                openings.append(index + 1)
            opening = True
        if opening:
            openings[-1] = index + 1
    return Seams(0, turns, openings, rounds)


def without_reasoning(message: Message) -> Message | None:
    """The message without its thinking; itself where it has none, None where it has nothing else."""
    content = message.get("content")
    if message.get("role") != "assistant" or not is_list(content):
        return message
    left: list[Any] = [block for block in content if not _is_thinking(block)]
    if len(left) == len(content):
        return message
    return {**message, "content": left} if left else None


def _is_thinking(block: object) -> bool:
    kind = role_of(block, "type")
    return isinstance(kind, str) and kind in THINKING


def _answers(message: Message) -> bool:
    content = message.get("content")
    return is_list(content) and any(is_map(block) and block.get("type") == "tool_result" for block in content)
