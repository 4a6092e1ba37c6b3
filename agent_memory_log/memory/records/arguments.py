"""Arguments of memory's calls that several calls take, checked."""

from __future__ import annotations

from collections.abc import Iterable

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe


def names_of(names: Iterable[str] | None, what: str) -> frozenset[str] | None:
    """Several names, None for no choice. Raises ``InvalidArgument``."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidArgument(f"{what} must be several names, found {describe(names)}")
    found = frozenset(names)
    for one in found:
        if not isinstance(one, str):
            raise InvalidArgument(f"one of {what} must be text, found {describe(one)}")
    return found
