"""Decides whether a run has enough messages for an extractor to read it."""

from __future__ import annotations

from agent_memory_log.events.payloads import EventType
from agent_memory_log.memory.records.messages import type_of
from agent_memory_log.memory.records.principals import CONVERSATIONS
from agent_memory_log.memory.records.protocols import RunSlice

MIN_MESSAGES = 4
"""The least number of messages of a run. A shorter run is read later, because it rarely states anything yet."""

_MESSAGES = frozenset({EventType.USER_MESSAGE, EventType.ASSISTANT_MESSAGE, EventType.TOOL_CALL, EventType.TOOL_RESULT})


def has_too_few_messages(new: RunSlice, least: int = MIN_MESSAGES) -> bool:
    """Return whether a run has fewer than ``least`` messages: those of user and assistant, tool calls and results.

    Returns False for a run that was read before, because it had enough messages then, and for a conversation that
    ``ingest`` stored, because it may be short and finished.
    """
    if new.after or new.agent.startswith(CONVERSATIONS):
        return False
    count = 0
    for event in new.events:
        count += type_of(event) in _MESSAGES
        if count == least:
            return False
    return True
