"""What counts as a message of a run, and how many an extractor must have before it looks."""

from __future__ import annotations

from agent_memory_log.events.payloads import EventType
from agent_memory_log.memory.records.messages import type_of
from agent_memory_log.memory.records.protocols import RunSlice

MIN_MESSAGES = 4
"""A run of fewer messages is left for later, as it hardly holds anything yet."""

_MESSAGES = frozenset({EventType.USER_MESSAGE, EventType.ASSISTANT_MESSAGE, EventType.TOOL_RESULT})


def has_too_few_messages(new: RunSlice, least: int = MIN_MESSAGES) -> bool:
    """Whether a run has fewer than ``least`` messages: of the user, of the assistant, or results of tools.

    One that was read before had enough then.
    """
    if new.after:
        return False
    count = 0
    for event in new.events:
        count += type_of(event) in _MESSAGES
        if count == least:
            return False
    return True
