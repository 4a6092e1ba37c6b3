"""Bedrock's Converse: the ``messages`` list; blobs are base64 text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.transcript.bedrock.building import BedrockBuilder
from agent_memory_log.transcript.bedrock.parsing import BedrockParser
from agent_memory_log.transcript.bedrock.rendering import PROVIDER
from agent_memory_log.transcript.bedrock.repairing import repair
from agent_memory_log.transcript.bedrock.rules import signed_of, validate
from agent_memory_log.transcript.bedrock.turns import seams
from agent_memory_log.transcript.model import Message
from agent_memory_log.transcript.requests import RecordedRequest, ToolDefinition
from agent_memory_log.transcript.shapes import list_in
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

MESSAGES = "messages"
SYSTEM = "system"
TOOLS = "toolConfig"


def parser(source: str) -> BedrockParser:
    """A parser for one transcript."""
    return BedrockParser(source)


def builder(messages: list[Message], max_result_bytes: int | None) -> BedrockBuilder:
    """A builder of one transcript."""
    return BedrockBuilder(messages, max_result_bytes)


def arguments(recorded: RecordedRequest, transcript: Transcript) -> dict[str, JsonValue]:
    """The arguments of ``converse`` beside the messages."""
    del transcript
    found: dict[str, JsonValue] = {}
    if recorded.own:
        found.update(recorded.parameters or {})
        if recorded.model is not None:
            found["modelId"] = recorded.model
    if recorded.own and recorded.system is not None:
        found["system"] = recorded.system
    elif recorded.system_text:
        found["system"] = [{"text": recorded.system_text}]
    if recorded.own and recorded.tools is not None:
        found["toolConfig"] = recorded.tools
    elif recorded.definitions:
        found["toolConfig"] = {"tools": [{"toolSpec": _specification(tool)} for tool in recorded.definitions]}
    return found


def sendable(messages: Sequence[object], request: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The other arguments: with none of them a valid transcript is refused."""
    del messages
    return dict(request)


def without_reasoning(message: Message) -> Message | None:
    """The message without signed reasoning; itself where it has none, None where it has nothing else."""
    blocks = list_in(message.get("content"))
    left = [block for block in blocks if signed_of(block) is None]
    if len(left) == len(blocks):
        return message
    return {**message, "content": left} if left else None


def _specification(tool: ToolDefinition) -> dict[str, JsonValue]:
    described: dict[str, JsonValue] = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "inputSchema": {"json": tool.schema}}
