"""Every error that this library raises, in one class tree.

    AgentMemoryLogError
    ├── InvalidArgument       an argument is invalid in every store: a limit of 0, an unknown URL option
    │   └── BackendNotFound   no installed package serves the URL's scheme
    ├── InvalidEvent          an id, label, timestamp, payload field or meta value cannot be stored
    ├── DecodeError           a map, a line or a stored row cannot be decoded
    ├── VersionConflict       ``expected_version`` is not the run's version
    ├── EventConflict         the run has an event with this ``event_id`` and a different body
    ├── EventTooLarge         an event or a batch exceeds the backend's size limit
    ├── CursorOutOfRange      a seq, an ``after`` or a cursor is outside the run or the list
    ├── RunDeleted            the run was deleted while it was being read
    ├── RunExpired            the run is past its ``expires_at``
    ├── StoreUnavailable      the file, disk or server of the store failed
    │   ├── StoreCorrupt      the stored data is damaged, or was not written by this library
    │   │   └── EventsMissing  events that a run must hold are missing
    │   └── TooManyRequests   a server received too many requests from this caller
    ├── AccessDenied          the caller's token does not allow the call
    │   └── Unauthenticated   a server does not know the caller
    ├── MemoryStopped         policy or execution stopped a memory call, or a sweep was too large
    ├── ModelFailed           the model that memory uses returned no usable answer
    │   ├── ModelTimeout      no answer in time, or no connection
    │   ├── ModelUnavailable  the model's server refused the call, or kept failing
    │   ├── ModelInvalidJson  the answer is not JSON
    │   ├── ModelInvalidSchema  the answer is JSON, but does not have the requested shape
    │   └── ModelEmpty        the answer holds no text
    ├── StoreClosed           the handle was closed, inherited by a fork, or used from another event loop
    ├── SchemaTooNew          a newer release wrote the data
    ├── ReplayDivergence      a replayed agent does something other than the recording
    └── ToolFailed            the recorded result of a replayed tool call is an error

Each class has a stable ``code`` to match on in logs and across processes. An error that was caused by a driver's
exception has that exception as its ``__cause__``. Errors keep all their attributes when they are pickled.
"""

from __future__ import annotations

from typing import ClassVar


class AgentMemoryLogError(Exception):
    """The root of the tree. Catch it to catch every error that this library raises on purpose.

    Attributes:
        code: The stable name of the error class, for logs and for programs.
    """

    code: ClassVar[str] = "agent_memory_log_error"

    def __reduce__(self) -> tuple[object, ...]:
        # Exception.__reduce__ calls __init__ with positional arguments only and would lose the keyword arguments.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(cls: type[AgentMemoryLogError], args: tuple[object, ...], state: dict[str, object]) -> AgentMemoryLogError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class InvalidArgument(AgentMemoryLogError):
    """An argument that is invalid in every store. Correct the call: the message names the argument and the value."""

    code = "invalid_argument"


class BackendNotFound(InvalidArgument):
    """No installed package serves the URL's scheme, or its driver is missing. The message says what to install."""

    code = "backend_not_found"


class InvalidEvent(AgentMemoryLogError):
    """A value that cannot be stored and read back unchanged. Nothing was written.

    Correct the field that the error names.

    Attributes:
        field: The path of the value, for example ``labels.role`` or ``data.structured.items[3]``.
    """

    code = "invalid_event"

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class DecodeError(AgentMemoryLogError):
    """A map, a line or a stored row that cannot be decoded. The message names the event type and the field.

    Correct the input. If the row came from a store, run ``amlog verify``.
    """

    code = "decode_error"


class VersionConflict(AgentMemoryLogError):
    """``expected_version`` is not the run's version. Nothing was stored.

    Load the new events, decide again and retry.

    Attributes:
        expected: The ``expected_version`` of the append.
        actual: The run's version.
    """

    code = "version_conflict"

    def __init__(self, message: str, *, expected: int, actual: int) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual


class EventConflict(AgentMemoryLogError):
    """The run has an event with this ``event_id`` and a different body. Nothing was stored.

    Use a new ``event_id`` for a new event. A retry must append the same body.

    Attributes:
        event_id: The id that both events have.
        seq: The seq of the stored event, or 0 if both events are in the same batch.
    """

    code = "event_conflict"

    def __init__(self, message: str, *, event_id: str, seq: int) -> None:
        super().__init__(message)
        self.event_id = event_id
        self.seq = seq


class EventTooLarge(AgentMemoryLogError):
    """An event or a batch exceeds the backend's size limit. Nothing was stored. Split the batch, or store less.

    Attributes:
        size: The encoded size in bytes.
        limit: The backend's limit in bytes.
    """

    code = "event_too_large"

    def __init__(self, message: str, *, size: int, limit: int) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit


class CursorOutOfRange(AgentMemoryLogError):
    """A seq, an ``after`` or a page cursor that is outside the run or the list. Read again from the start."""

    code = "cursor_out_of_range"


class RunDeleted(AgentMemoryLogError):
    """The run was deleted while it was being read, followed or copied. Stop: its events are gone."""

    code = "run_deleted"


class RunExpired(AgentMemoryLogError):
    """The run is past its ``expires_at``. Every call except ``delete_run`` refuses it."""

    code = "run_expired"


class StoreUnavailable(AgentMemoryLogError):
    """The file, disk or server of the store failed, or the file no longer exists. The message says why.

    Unless the file is gone, acknowledged appends are intact. If the cause is temporary, such as a full disk or a lock,
    it is safe to append the same events again.
    """

    code = "store_unavailable"


class StoreCorrupt(StoreUnavailable):
    """The stored data is damaged, or was not written by this library. Run ``amlog verify``, and restore a backup."""

    code = "store_corrupt"


class EventsMissing(StoreCorrupt):
    """Events that a run must hold are missing. The events before and after them can be read.

    Attributes:
        first_seq: The seq of the first missing event.
        last_seq: The seq of the last missing event.
    """

    code = "events_missing"

    def __init__(self, message: str, *, first_seq: int, last_seq: int) -> None:
        super().__init__(message)
        self.first_seq = first_seq
        self.last_seq = last_seq


class TooManyRequests(StoreUnavailable):
    """A server received too many requests from this caller, or is too busy. Nothing was written.

    Wait, then send the same request again.

    Attributes:
        retry_after: The seconds to wait.
    """

    code = "too_many_requests"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AccessDenied(AgentMemoryLogError):
    """The caller's token does not allow the call. Nothing was read or written.

    Ask the operator of the server for a token with the right that the message names.
    """

    code = "access_denied"


class Unauthenticated(AccessDenied):
    """A server does not know the caller: the token is missing, unknown, expired or revoked."""

    code = "unauthenticated"


class MemoryStopped(AgentMemoryLogError):
    """Policy stopped a memory call, or execution denied a retrieval. No memory was stored or returned.

    Attributes:
        reason: A stable text to match on, for example ``scope_denied:workspace``.
    """

    code = "memory_stopped"

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class ModelFailed(AgentMemoryLogError):
    """The model that memory uses returned no usable answer. No memory was stored.

    The ``code`` of each subclass is the stable reason in reports and events.
    """

    code = "llm_failed"


class ModelTimeout(ModelFailed):
    """The model did not answer in time, or its server could not be reached. Retry later: no event is lost."""

    code = "llm_timeout"


class ModelUnavailable(ModelFailed):
    """The model's server refused the call, or kept failing. The message includes the server's message.

    Check the key, the model's name and the limits of your account. Retry later.
    """

    code = "llm_unavailable"


class ModelInvalidJson(ModelFailed):
    """The model's answer is not JSON. Try again, or use a model that supports JSON output."""

    code = "llm_invalid_json"


class ModelInvalidSchema(ModelFailed):
    """The model's answer is JSON without the requested shape. The message names the path. Try another model."""

    code = "llm_invalid_schema"


class ModelEmpty(ModelFailed):
    """The model's answer holds no text. Try again, or raise its limit of output tokens."""

    code = "llm_empty"


class StoreClosed(AgentMemoryLogError):
    """The handle was closed, inherited by a fork, or used from another event loop. Open a new one."""

    code = "store_closed"


class SchemaTooNew(AgentMemoryLogError):
    """A newer release wrote the data. Upgrade this library to read it.

    Attributes:
        actual: The format or schema number of the data.
        supported: The newest number that this release reads.
    """

    code = "schema_too_new"

    def __init__(self, message: str, *, actual: int, supported: int) -> None:
        super().__init__(message)
        self.actual = actual
        self.supported = supported


class ReplayDivergence(AgentMemoryLogError):
    """A replayed agent does something other than the recording. The message shows both.

    Attributes:
        reason: A stable name: ``other_tool``, ``other_arguments``, ``other_order``, ``unexpected_call``,
            ``missing_call``, ``unexpected_turn``, ``missing_turn``, ``other_messages`` or ``no_result``.
        seq: The event of the recording that differs, or None if there is no such event.
    """

    code = "replay_divergence"

    def __init__(self, message: str, *, reason: str, seq: int | None) -> None:
        super().__init__(message)
        self.reason = reason
        self.seq = seq


class ToolFailed(AgentMemoryLogError):
    """The recorded result of a replayed tool call is an error. The message is the recorded error message.

    Attributes:
        tool_name: The name of the called tool.
        tool_call_id: The id of the call.
    """

    code = "tool_failed"

    def __init__(self, message: str, *, tool_name: str, tool_call_id: str) -> None:
        super().__init__(message)
        self.tool_name = tool_name
        self.tool_call_id = tool_call_id
