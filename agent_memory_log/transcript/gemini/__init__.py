"""Supports ``generateContent`` of Gemini, in the Gemini API and in Vertex AI. Binary content is base64 text."""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.gemini.building import GeminiBuilder
from agent_memory_log.transcript.gemini.parsing import GeminiParser
from agent_memory_log.transcript.gemini.rendering import PROVIDER, result_in
from agent_memory_log.transcript.gemini.repairing import repair
from agent_memory_log.transcript.gemini.rules import is_model, validate
from agent_memory_log.transcript.json_types import list_in
from agent_memory_log.transcript.provider import Provider
from agent_memory_log.transcript.requests import ToolDefinition
from agent_memory_log.transcript.windows import Side


def _side_of(message: WireMessage) -> Side:
    if is_model(message):
        return Side("model")
    return Side("tool" if any(result_in(part) is not None for part in list_in(message.get("parts"))) else "user")


def _tools(definitions: Sequence[ToolDefinition]) -> JsonValue:
    declarations: list[JsonValue] = []
    for tool in definitions:
        described: dict[str, JsonValue] = {"description": tool.description} if tool.description else {}
        declarations.append({"name": tool.name, **described, "parametersJsonSchema": tool.schema})
    return [{"functionDeclarations": declarations}]


GEMINI = Provider(
    name=PROVIDER,
    messages_key="contents",
    system_key="systemInstruction",
    parser=GeminiParser,
    builder=GeminiBuilder,
    validate=validate,
    repair=repair,
    system_from_text=lambda text: {"parts": [{"text": text}]},
    tools_from_definitions=_tools,
    side_of=_side_of,
    joins_model=True,
    without_reasoning=lambda message: message,  # a signature covers no earlier content
)
