"""Arguments of memory's calls that several calls take, checked."""

from __future__ import annotations

from collections.abc import Iterable

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import NotJson, check_text


def text_of(value: object, name: str) -> str:
    """A text that can be stored. Raises ``InvalidArgument`` naming the argument."""
    if type(value) is str and value.isascii():
        return value
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} must be text, found {describe(value)}")
    try:
        check_text(value, "")
    except NotJson as error:
        raise InvalidArgument(f"{name} {error}") from error
    return str.__str__(value)


def names_of(names: Iterable[str] | None, what: str) -> frozenset[str] | None:
    """Several names, None for no choice. Raises ``InvalidArgument``, for a text too, which holds letters."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidArgument(f"{what} must be several names, found {describe(names)}")
    chosen = frozenset(names)
    for name in chosen:
        if not isinstance(name, str):
            raise InvalidArgument(f"one of {what} must be text, found {describe(name)}")
    return chosen
