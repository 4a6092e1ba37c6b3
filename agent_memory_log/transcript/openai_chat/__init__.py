"""Supports OpenAI Chat Completions, and the vendors that speak its shape."""

from __future__ import annotations

from msgspec.structs import replace

from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.openai_chat.building import ChatBuilder
from agent_memory_log.transcript.openai_chat.parsing import ChatParser
from agent_memory_log.transcript.openai_chat.reasoning import without_signed_reasoning
from agent_memory_log.transcript.openai_chat.rendering import PROVIDER, vendor_rules
from agent_memory_log.transcript.openai_chat.repairing import repair
from agent_memory_log.transcript.openai_chat.rules import validate
from agent_memory_log.transcript.provider import Provider
from agent_memory_log.transcript.requests import ToolDefinition
from agent_memory_log.transcript.vendors.profiles import ANY_VENDOR, VENDORS, Vendor
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
    vendor_rules=vendor_rules(ANY_VENDOR),
    without_reasoning=without_signed_reasoning,
)


def _at_vendor(vendor: Vendor) -> Provider:
    """Return the package of a vendor. It stores residuals under the vendor's name, so they are foreign elsewhere."""
    limits = vendor_rules(vendor)

    class VendorParser(ChatParser):
        provider = vendor.name
        rules = limits

    class VendorBuilder(ChatBuilder):
        provider = vendor.name
        rules = limits
        reasoning = vendor.reasoning

        def begin(self, message: WireMessage, seq: int, parts: list[int]) -> None:
            """Begin a message, without the fields that the vendor refuses."""
            for key in vendor.refuses:
                message.pop(key, None)
            super().begin(message, seq, parts)

    return replace(CHAT, name=vendor.name, parser=VendorParser, builder=VendorBuilder, vendor_rules=limits)


VENDOR_CHATS = tuple(_at_vendor(vendor) for vendor in VENDORS.values())
"""The packages of the vendors."""
