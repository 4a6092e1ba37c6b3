"""What the driver's errors mean to a caller of the store, and which of them pass."""

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

# Codes of the server after which the same command may succeed: the retryable ones of the driver specifications (a
# primary that steps down, a node that shuts down or recovers), a plan or lock that an interfering write cost, and
# wtimeout, where a repetition finds out whether the write stands.
_PASSING = frozenset(
    {6, 7, 24, 43, 63, 64, 79, 89, 91, 100, 112, 133, 134, 150, 175, 189, 234, 262, 290, 317, 358, 384, 9001, 10107}
    | {11600, 11601, 11602, 13388, 13435, 13436, 46841, 50915}
)
_HINTS = {
    13: "this user may not do that: docs/mongodb.md lists the privileges",
    18: "the user, the password or authSource is wrong",
    8000: "the user or the password is wrong",
    50: "the server did not answer in time",
    14031: "the server's disk is full",
    10334: "the document would be larger than MongoDB holds",
}
_NO_CHANGE_STREAMS = frozenset({40573, 40415, 59, 115, 16410})


def passes(error: PyMongoError) -> bool:
    """Whether the same command may succeed a moment later."""
    if isinstance(error, OperationFailure):
        return error.code in _PASSING or error.has_error_label("RetryableWriteError")
    if isinstance(error, ConfigurationError):
        return False
    return isinstance(error, (AutoReconnect, ConnectionFailure, WaitQueueTimeoutError))


def is_timeout(error: PyMongoError) -> bool:
    """Whether time was up, for the driver or on the server."""
    return isinstance(error, (ExecutionTimeout, ServerSelectionTimeoutError)) or error.timeout


def has_no_change_streams(error: OperationFailure) -> bool:
    """Whether the server's topology has no change streams, or this user may not open one."""
    return error.code in _NO_CHANGE_STREAMS or error.code == 13  # noqa: PLR2004  # Unauthorized


def write_concern_code(reply: Mapping[str, object]) -> int | None:
    """The code of a reply's write concern error: the write stands, but not where it was asked to."""
    error = reply.get("writeConcernError")
    return cast("int", cast("Mapping[str, object]", error).get("code", 0)) if error else None


def translated(error: Exception, where: str) -> AgentMemoryLogError:
    """The error of this library for the driver's; raise it ``from`` the original."""
    if isinstance(error, InvalidOperation):
        return StoreClosed(f"{where}: the client of this store handle was closed: open a new one")
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
