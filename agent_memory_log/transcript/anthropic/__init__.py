"""Supports the Messages API of Anthropic."""

from __future__ import annotations

from agent_memory_log.transcript.anthropic.building import AnthropicBuilder
from agent_memory_log.transcript.anthropic.parsing import AnthropicParser
from agent_memory_log.transcript.anthropic.rendering import PROVIDER
from agent_memory_log.transcript.anthropic.repairing import repair
from agent_memory_log.transcript.anthropic.rules import validate
from agent_memory_log.transcript.anthropic.shapes import THINKING, type_of
from agent_memory_log.transcript.anthropic.thinking import sendable
from agent_memory_log.transcript.conversion.blocks import without_blocks
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.json_types import list_in
from agent_memory_log.transcript.provider import Provider
from agent_memory_log.transcript.windows import Side, side_of_role


def _side_of(message: WireMessage) -> Side:
    if message.get("role") == "user" and any(
        type_of(block) == "tool_result" for block in list_in(message.get("content"))
    ):
        return Side("tool")
    return side_of_role(message.get("role"))


ANTHROPIC = Provider(
    name=PROVIDER,
    parser=AnthropicParser,
    builder=AnthropicBuilder,
    validate=validate,
    repair=repair,
    system_from_text=str,
    tools_from_definitions=lambda tools: [
        {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in tools
    ],
    sendable=sendable,
    side_of=_side_of,
    joins_model=True,
    without_reasoning=lambda message: without_blocks(message, lambda block: type_of(block) in THINKING),
)
