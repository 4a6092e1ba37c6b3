"""Defines the form of a partial answer: an answer whose stream was cut off or failed.

A partial answer is one ``AssistantMessage`` with the text that came. The messages as they came, with thinking and
calls, are in ``structured`` under ``partial``. They are no events of their own, so no call of theirs is ever open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import AssistantMessage, EventData

_KEY = "partial"


def partial_answer(text: str, provider: str, messages: Sequence[Mapping[str, JsonValue]]) -> AssistantMessage:
    """Return the payload of a partial answer of ``provider``."""
    return AssistantMessage(text, {_KEY: {provider: list(messages)}})


def is_partial(data: EventData) -> bool:
    """Return whether the payload is a partial answer."""
    return isinstance(data, AssistantMessage) and isinstance(data.structured, Mapping) and _KEY in data.structured
