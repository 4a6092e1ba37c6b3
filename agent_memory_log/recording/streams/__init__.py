"""Joins the events of a provider's stream to the answer that the provider returns without streaming.

There is one module for each provider. Unknown stream content raises an error, because the answer must be sent back
exactly. The caller can then record the final message of the SDK instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent_memory_log.recording.sdk_objects import Map
from agent_memory_log.recording.streams.anthropic import join_anthropic
from agent_memory_log.recording.streams.bedrock import join_bedrock
from agent_memory_log.recording.streams.chat import join_chat
from agent_memory_log.recording.streams.gemini import join_gemini
from agent_memory_log.recording.streams.pieces import Joined, type_of
from agent_memory_log.recording.streams.responses import join_responses

_ANTHROPIC_TYPES = frozenset({"message_start", "ping"})
_BEDROCK_KEYS = frozenset({"messageStart", "contentBlockStart", "contentBlockDelta", "messageStop"})
_GEMINI_KEYS = frozenset({"candidates", "promptFeedback", "prompt_feedback"})


def provider_of_stream(events: Sequence[Map]) -> str | None:
    """Return the name of the provider whose events these are, or None if it cannot be detected."""
    for event in events:
        kind = type_of(event)
        if kind in _ANTHROPIC_TYPES:
            return "anthropic"
        if kind.startswith("response."):
            return "openai-responses"
        if isinstance(event.get("choices"), list):
            return "openai-chat"
        if not _BEDROCK_KEYS.isdisjoint(event):
            return "bedrock"
        if not _GEMINI_KEYS.isdisjoint(event):
            return "gemini"
    return None


def joined(events: Sequence[Map], provider: str) -> Joined:
    """Return the answer that the stream ``events`` contains, as far as it came."""
    return _JOINERS.get(provider, join_chat)(events)  # vendors speak the shape of openai-chat


_JOINERS: dict[str, Callable[[Sequence[Map]], Joined]] = {
    "anthropic": join_anthropic,
    "bedrock": join_bedrock,
    "gemini": join_gemini,
    "openai-chat": join_chat,
    "openai-responses": join_responses,
}
