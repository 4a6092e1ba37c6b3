"""Lists the vendors that speak the shape of OpenAI Chat Completions, and how each one differs from OpenAI.

A vendor's name is a provider name. A base URL chooses the vendor of its host, and ``openai-compatible`` if the table
has no such host. ``openai-chat`` stands for OpenAI's own API, and for runs without a vendor's name.

The facts are from the vendors' documentation and from the errors of their APIs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import urlsplit

import msgspec

ANY_ID = r"(?s:.*)"
"""The pattern of vendors that accept any call id. Some servers send empty ids."""


class Vendor(msgspec.Struct, frozen=True):
    """The differences between a vendor and OpenAI.

    Reasoning that came from the vendor goes back as it came, in the same fields. Fields that are not OpenAI's, such as
    ``extra_content`` with Gemini's thought signatures, go back too.

    Attributes:
        name: The provider name.
        hosts: The ends of the vendor's host names, some with a port.
        reasoning: The field for reasoning that the log has only as text: a field of the message, or ``content`` for a
            ``thinking`` part in the content. ``""`` if the vendor accepts no such reasoning.
        refuses: The fields of answers that the vendor refuses in requests. ``build`` leaves them out.
        call_ids: The pattern of call ids.
        longest_call_id: The longest call id, in characters; 0 means any length.
        telemetry: The name in OpenTelemetry; ``""`` means ``name``.
    """

    name: str
    hosts: tuple[str, ...] = ()
    reasoning: str = ""
    refuses: frozenset[str] = frozenset()
    call_ids: str = ANY_ID
    longest_call_id: int = 0
    telemetry: str = ""


ANY_VENDOR = Vendor("openai-compatible")
"""Any vendor that has no row of its own."""

_TABLE = (
    Vendor("azure", ("openai.azure.com",), call_ids=".+", longest_call_id=40, telemetry="azure.ai.openai"),
    Vendor("cerebras", ("api.cerebras.ai",)),
    Vendor("deepseek", ("api.deepseek.com",), "reasoning_content"),
    Vendor("fireworks", ("api.fireworks.ai",), "reasoning_content"),
    Vendor("gemini-compatible", ("generativelanguage.googleapis.com",), telemetry="gcp.gemini"),
    Vendor("groq", ("api.groq.com",), "reasoning", refuses=frozenset({"annotations", "channel", "executed_tools"})),
    Vendor("huggingface", ("router.huggingface.co",)),
    Vendor(
        "mistral",
        ("api.mistral.ai",),
        "content",
        call_ids="[a-zA-Z0-9]{9}",
        longest_call_id=9,
        telemetry="mistral_ai",
    ),
    Vendor("moonshot", ("api.moonshot.ai", "api.moonshot.cn"), "reasoning_content"),
    Vendor("ollama", ("localhost:11434", "127.0.0.1:11434", "ollama.com"), "reasoning"),
    Vendor("openrouter", ("openrouter.ai",), "reasoning"),
    Vendor("snowflake", ("snowflakecomputing.com",)),
    Vendor("together", ("api.together.xyz", "api.together.ai"), "reasoning"),
    Vendor("vllm", (), "reasoning"),
    Vendor("xai", ("api.x.ai",), "reasoning_content", telemetry="x_ai"),
    Vendor("zai", ("api.z.ai", "open.bigmodel.cn"), "reasoning_content"),
    ANY_VENDOR,
)

VENDORS = {vendor.name: vendor for vendor in _TABLE}
"""The vendors by name."""

_OWN_CHAT = "openai-chat"
_OWN_HOST = "api.openai.com"
_OWN_MODEL = re.compile(r"(ft:)?(gpt-(?!oss)|chatgpt-|codex-|computer-use-|o\d)", re.ASCII)


@lru_cache(maxsize=256)
def is_openai_model(model: str) -> bool:
    """Return whether OpenAI's own API, or Azure, has a model of this name. Other models are at vendors."""
    return _OWN_MODEL.match(model) is not None


def provider_name(provider: str) -> str:
    """Return the provider name for a base URL. Other text is returned unchanged."""
    if not provider.startswith(("https://", "http://")):
        return provider
    host = urlsplit(provider).netloc.lower().rpartition("@")[2]
    if _is_at(host, _OWN_HOST):
        return _OWN_CHAT
    return next((vendor.name for vendor in _TABLE for end in vendor.hosts if _is_at(host, end)), ANY_VENDOR.name)


def _is_at(host: str, end: str) -> bool:
    if ":" not in end:
        host = host.partition(":")[0]
    return host == end or host.endswith(f".{end}")
