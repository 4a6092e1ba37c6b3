"""Supports OpenAI Responses."""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.openai_responses.building import ResponsesBuilder
from agent_memory_log.transcript.openai_responses.items import is_from_model, kind_of, side_of
from agent_memory_log.transcript.openai_responses.parsing import ResponsesParser
from agent_memory_log.transcript.openai_responses.rendering import CALLS, PROVIDER, VENDOR_RULES
from agent_memory_log.transcript.openai_responses.repairing import repair, unbound
from agent_memory_log.transcript.openai_responses.rules import validate
from agent_memory_log.transcript.openai_responses.shapes import is_sound
from agent_memory_log.transcript.provider import Provider
from agent_memory_log.transcript.requests import ToolDefinition


def _without_reasoning(message: WireMessage) -> WireMessage | None:
    """Return an item without encrypted reasoning and without an id that binds it to reasoning; None if it is empty.

    The provider knows from an item's id which reasoning belongs to it, and refuses the item without that reasoning.
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


def _tools(definitions: Sequence[ToolDefinition]) -> JsonValue:
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.schema,
            "strict": False,
        }
        for tool in definitions
    ]


RESPONSES = Provider(
    name=PROVIDER,
    messages_key="input",
    system_key="instructions",
    parser=ResponsesParser,
    builder=ResponsesBuilder,
    validate=validate,
    repair=repair,
    system_from_text=str,
    tools_from_definitions=_tools,
    side_of=side_of,
    joins_model=True,
    vendor_rules=VENDOR_RULES,
    without_reasoning=_without_reasoning,
)
