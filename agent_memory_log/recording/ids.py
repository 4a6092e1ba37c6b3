"""The ids of what is recorded: those of a step with a key stand for the key, so that doing it again adds nothing."""

from __future__ import annotations

import secrets

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.transfer.importing import derived_event_id


def step_id(agent: str, run: str, key: str, part: str, number: int = 0) -> str:
    """The id of the event that is the ``part`` of the step ``key``. Raises ``InvalidArgument`` for what is no key."""
    if not isinstance(key, str) or not key:
        raise InvalidArgument(f"a key must be non-empty text, found {describe(key)}")
    # The lengths say where one text ends and the next begins, whatever the texts hold.
    return derived_event_id("recorded", f"{agent}{run}{key}{part}", len(agent), len(run), len(key), number)


def result_id(call_event_id: str) -> str:
    """The id of the result of the call that was recorded under ``call_event_id``: a call has one."""
    return derived_event_id("recorded result", call_event_id)


def new_call_id(event_id: str | None) -> str:
    """An id for a call that came without: 37 characters every provider takes; that of a step stands for its key."""
    return f"call_{secrets.token_hex(16) if event_id is None else event_id}"
