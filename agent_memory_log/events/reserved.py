"""The names that are reserved for the library.

They are agent ids that begin with ``@`` and event types that begin with ``memory_``. Derived memory is stored under
these names, and it trusts the events there. So a store accepts such events only with ``reserved=True``. The memory code
passes it, and an operator passes it to copy a store or restore an export.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from agent_memory_log.errors import InvalidEvent
from agent_memory_log.events.fields import describe

RESERVED_AGENT_PREFIX = "@"
"""The prefix of the agent ids of the library's own runs."""

RESERVED_TYPE_PREFIX = "memory_"
"""The prefix of the event types of derived memory."""

TOMBSTONE_TYPE = "memory_tombstone"
"""The type of the event that records forgotten memory. Stores never redact it, because memory would learn the
forgotten facts again.
"""


class _Typed(Protocol):
    @property
    def type(self) -> str: ...


def is_reserved(agent: str) -> bool:
    """Return whether an agent id is reserved for the library."""
    return str.startswith(agent, RESERVED_AGENT_PREFIX)


def is_reserved_type(event_type: str) -> bool:
    """Return whether an event type is reserved for derived memory."""
    return str.startswith(event_type, RESERVED_TYPE_PREFIX)


def check_not_reserved(agent: str, events: Iterable[_Typed], *, reserved: bool) -> None:
    """Check that an append has no reserved agent id and no reserved event type, unless ``reserved`` is True.

    Raises ``InvalidEvent`` with the field, ``agent`` or ``type``.
    """
    if reserved is True:
        return
    # Calls of is_reserved and is_reserved_type would make an append 1 % slower.
    if str.startswith(agent, RESERVED_AGENT_PREFIX):
        raise _reserved("agent", agent, RESERVED_AGENT_PREFIX, "such agents belong to the library")
    for event in events:
        if str.startswith(event.type, RESERVED_TYPE_PREFIX):
            raise _reserved("type", event.type, RESERVED_TYPE_PREFIX, "such events belong to derived memory")


def _reserved(field: str, value: str, prefix: str, reason: str) -> InvalidEvent:
    return InvalidEvent(
        f"{field} must not begin with {prefix}, got {describe(value)}: {reason}. Choose another {field}. To restore an "
        "operator's export, pass reserved=True or use amlog import --reserved",
        field=field,
    )
