"""Supports OpenAI Chat Completions."""

from __future__ import annotations

from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.openai_chat.building import ChatBuilder
from agent_memory_log.transcript.openai_chat.parsing import ChatParser
from agent_memory_log.transcript.openai_chat.rendering import PROVIDER
from agent_memory_log.transcript.openai_chat.repairing import repair
from agent_memory_log.transcript.openai_chat.rules import validate
from agent_memory_log.transcript.provider import Provider
from agent_memory_log.transcript.requests import ToolDefinition
from agent_memory_log.transcript.windows import side_of_role


def _function(tool: ToolDefinition) -> WireMessage:
    return {"name": tool.name, "description": tool.description, "parameters": tool.schema}


CHAT = Provider(
    name=PROVIDER,
    parser=ChatParser,
    builder=ChatBuilder,
    validate=validate,
    repair=repair,
    system_from_text=None,
    tools_from_definitions=lambda tools: [{"type": "function", "function": _function(tool)} for tool in tools],
    side_of=lambda message: side_of_role(message.get("role")),
    without_reasoning=lambda message: message,  # messages never hold reasoning
)
