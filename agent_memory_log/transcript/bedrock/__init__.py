"""Supports the Converse API of Bedrock. Binary content is base64 text."""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.transcript.bedrock.building import BedrockBuilder
from agent_memory_log.transcript.bedrock.parsing import BedrockParser
from agent_memory_log.transcript.bedrock.rendering import PROVIDER
from agent_memory_log.transcript.bedrock.repairing import repair
from agent_memory_log.transcript.bedrock.rules import kind_of, signed_of, validate
from agent_memory_log.transcript.conversion.blocks import without_blocks
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.json_types import list_in
from agent_memory_log.transcript.provider import Provider
from agent_memory_log.transcript.requests import ToolDefinition
from agent_memory_log.transcript.windows import Side, side_of_role


def _side_of(message: WireMessage) -> Side:
    if message.get("role") == "user" and any(
        kind_of(block) == "toolResult" for block in list_in(message.get("content"))
    ):
        return Side("tool")
    return side_of_role(message.get("role"))


def _tools(definitions: Sequence[ToolDefinition]) -> JsonValue:
    tools: list[JsonValue] = []
    for tool in definitions:
        described: dict[str, JsonValue] = {"description": tool.description} if tool.description else {}
        tools.append({"toolSpec": {"name": tool.name, **described, "inputSchema": {"json": tool.schema}}})
    return {"tools": tools}


BEDROCK = Provider(
    name=PROVIDER,
    tools_key="toolConfig",
    model_key="modelId",
    parser=BedrockParser,
    builder=BedrockBuilder,
    validate=validate,
    repair=repair,
    system_from_text=lambda text: [{"text": text}],
    tools_from_definitions=_tools,
    side_of=_side_of,
    without_reasoning=lambda message: without_blocks(message, lambda block: signed_of(block) is not None),
)
