"""Translates the driver's errors to this library's, and decides which of them are temporary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pymongo.errors import (
    AutoReconnect,
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    ExecutionTimeout,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
)

from agent_memory_log.errors import AgentMemoryLogError, StoreClosed, StoreUnavailable

# The server's error codes after which the same command may succeed: the retryable codes of the driver specifications,
# conflicts with another write, and wtimeout. After wtimeout, a repetition shows whether the write was stored.
_PASSING = frozenset(
    {6, 7, 24, 43, 63, 64, 79, 89, 91, 100, 112, 133, 134, 150, 175, 189, 234, 262, 290, 317, 358, 384, 9001, 10107}
    | {11600, 11601, 11602, 13388, 13435, 13436, 46841, 50915}
)
_HINTS = {
    13: "this user lacks a privilege; docs/mongodb.md lists the privileges",
    18: "the user, the password or authSource is wrong",
    8000: "the user or the password is wrong",
    50: "the server did not answer in time",
    14031: "the server's disk is full",
    10334: "the document would exceed MongoDB's size limit",
}
_NO_CHANGE_STREAMS = frozenset({40573, 40415, 59, 115, 16410})


def passes(error: PyMongoError) -> bool:
    """Return whether the same command may succeed a moment later."""
    if isinstance(error, OperationFailure):
        return error.code in _PASSING or error.has_error_label("RetryableWriteError")
    if isinstance(error, ConfigurationError):
        return False
    return isinstance(error, (AutoReconnect, ConnectionFailure, WaitQueueTimeoutError))


def is_timeout(error: PyMongoError) -> bool:
    """Return whether a time limit of the driver or the server was exceeded."""
    return isinstance(error, (ExecutionTimeout, ServerSelectionTimeoutError)) or error.timeout


def has_no_change_streams(error: OperationFailure) -> bool:
    """Return whether the server has no change streams or this user may not open one."""
    return error.code in _NO_CHANGE_STREAMS or error.code == 13  # noqa: PLR2004  # Unauthorized


def write_concern_code(reply: Mapping[str, object]) -> int | None:
    """Return the code of a reply's write concern error, or None. The server executed the write but did not meet it."""
    error = reply.get("writeConcernError")
    return cast("int", cast("Mapping[str, object]", error).get("code", 0)) if error else None


def translated(error: Exception, where: str) -> AgentMemoryLogError:
    """Return this library's error for the driver's. The caller raises it ``from`` the original."""
    if isinstance(error, InvalidOperation):
        return StoreClosed(f"{where}: the client of this store handle was closed; open a new handle")
    if isinstance(error, DocumentTooLarge):
        return StoreUnavailable(f"{where}: {error}")
    if isinstance(error, OperationFailure):
        hint = _HINTS.get(error.code or 0)
        text = str((error.details or {}).get("errmsg") or error)
        reason = f"{hint}: {text}" if hint else text
        return StoreUnavailable(f"{where}: {reason} (code {error.code})")
    if isinstance(error, ServerSelectionTimeoutError):
        return StoreUnavailable(f"{where}: no server could be reached in time: {error}")
    return StoreUnavailable(f"{where}: {type(error).__name__}: {error}")
