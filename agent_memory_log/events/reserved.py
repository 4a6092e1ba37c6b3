"""What is the library's own: agents whose id begins with ``@``, and event types that begin with ``memory_``.

Derived memory lives there, and believes what it reads there. So a store takes such events only with ``reserved=True``,
which memory's own writer passes, and an operator who copies a store or restores an export.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from agent_memory_log.errors import InvalidEvent
from agent_memory_log.events.fields import describe

RESERVED_AGENT_PREFIX = "@"
"""What the agent ids of the library's own runs begin with."""

RESERVED_TYPE_PREFIX = "memory_"
"""What the event types of derived memory begin with."""

TOMBSTONE_TYPE = "memory_tombstone"
"""The event that says what memory has forgotten. No store redacts it, or memory would learn all of that again."""


class _Typed(Protocol):
    @property
    def type(self) -> str: ...


def is_reserved(agent: str) -> bool:
    """Whether an agent id is one of the library's own."""
    return str.startswith(agent, RESERVED_AGENT_PREFIX)


def is_reserved_type(event_type: str) -> bool:
    """Whether an event type is one of derived memory."""
    return str.startswith(event_type, RESERVED_TYPE_PREFIX)


def check_not_reserved(agent: str, events: Iterable[_Typed], *, reserved: bool) -> None:
    """Check that an append writes nothing that is the library's own, unless ``reserved`` is True.

    Raises ``InvalidEvent`` naming the field, ``agent`` or ``type``.
    """
    if reserved is True:
        return
    # Not is_reserved and is_reserved_type: two more calls for each append are a hundredth of what it costs.
    if str.startswith(agent, RESERVED_AGENT_PREFIX):
        raise _reserved("agent", agent, RESERVED_AGENT_PREFIX, "such agents are the library's own")
    for event in events:
        if str.startswith(event.type, RESERVED_TYPE_PREFIX):
            raise _reserved("type", event.type, RESERVED_TYPE_PREFIX, "such events are derived memory's own")


def _reserved(field: str, value: str, prefix: str, reason: str) -> InvalidEvent:
    return InvalidEvent(
        f"{field} must not begin with {prefix}, found {describe(value)}: {reason}; choose another {field}; to restore "
        "an operator's export, pass reserved=True, or amlog import --reserved",
        field=field,
    )
