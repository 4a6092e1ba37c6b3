"""Errors as problem documents (RFC 9457), and back again, so that a remote call raises what a local call raises."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping

from agent_memory_log.errors import (
    AccessDenied,
    AgentMemoryLogError,
    CursorOutOfRange,
    DecodeError,
    EventConflict,
    EventTooLarge,
    InvalidArgument,
    InvalidEvent,
    MemoryStopped,
    RunDeleted,
    RunExpired,
    SchemaTooNew,
    StoreCorrupt,
    StoreUnavailable,
    TooManyRequests,
    Unauthenticated,
    VersionConflict,
)

MEDIA_TYPE = "application/problem+json"

_STATUS: Mapping[type[AgentMemoryLogError], int] = {
    Unauthenticated: 401,
    AccessDenied: 403,
    VersionConflict: 409,
    EventConflict: 409,
    RunDeleted: 410,
    RunExpired: 410,
    EventTooLarge: 413,
    CursorOutOfRange: 416,
    InvalidArgument: 422,
    InvalidEvent: 422,
    DecodeError: 422,
    SchemaTooNew: 422,
    MemoryStopped: 422,
    TooManyRequests: 429,
    StoreCorrupt: 500,
    StoreUnavailable: 503,
}
"""The HTTP status of an error class and of its subclasses without a status of their own. Others have 500."""


def status_of(error: AgentMemoryLogError) -> int:
    """Return the HTTP status of an error."""
    return next((_STATUS[cls] for cls in type(error).__mro__ if cls in _STATUS), 500)


def problem_of(error: AgentMemoryLogError) -> dict[str, object]:
    """Return the problem document of an error: ``status``, ``code``, ``detail``, and its attributes by name."""
    attributes = {name: getattr(error, name) for name in _attributes(type(error))}
    return {"type": "about:blank", "status": status_of(error), "code": error.code, "detail": str(error), **attributes}


def error_of(problem: Mapping[str, object]) -> AgentMemoryLogError | None:
    """Return the error of a problem document, or None if this release knows no such error."""
    cls = _CLASSES.get(str(problem.get("code")))
    if cls is None or not problem.keys() >= _attributes(cls):
        return None
    return cls(str(problem.get("detail")), **{name: problem[name] for name in _attributes(cls)})


def _classes(cls: type[AgentMemoryLogError]) -> Iterator[type[AgentMemoryLogError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _classes(child)


_CLASSES = {cls.code: cls for cls in _classes(AgentMemoryLogError)}
"""The error classes by code."""


def _attributes(cls: type[AgentMemoryLogError]) -> frozenset[str]:
    """Return the names of the attributes of an error class, which are its keyword arguments."""
    if cls.__init__ is Exception.__init__:
        return frozenset()
    parameters = inspect.signature(cls.__init__).parameters.values()
    return frozenset(parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY)
