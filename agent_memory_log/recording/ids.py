"""Makes the ids of recorded events. The id of a step with a key is derived from the key, so a repeat adds no event."""

from __future__ import annotations

import secrets

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.transfer.importing import derived_event_id


def step_id(agent: str, run: str, key: str, part: str, number: int = 0) -> str:
    """Return the event id for one ``part`` of the step ``key``.

    Raises ``InvalidArgument`` if ``key`` is empty or not text.
    """
    if not isinstance(key, str) or not key:
        raise InvalidArgument(f"a key must be non-empty text, got {describe(key)}")
    # The lengths mark where each text ends, so that different texts never give the same id.
    return derived_event_id("recorded", f"{agent}{run}{key}{part}", len(agent), len(run), len(key), number)


def result_id(call_event_id: str) -> str:
    """Return the event id for the result of the call whose event id is ``call_event_id``. A call has one result."""
    return derived_event_id("recorded result", call_event_id)


def new_call_id(event_id: str | None) -> str:
    """Return a tool call id of 37 characters, which every provider accepts.

    The id is derived from ``event_id``, which is derived from the step's key. Without ``event_id`` it is random.
    """
    return f"call_{secrets.token_hex(16) if event_id is None else event_id}"
