"""Every error this library raises, in one small tree.

    AgentMemoryLogError
    ├── InvalidArgument       an argument no store takes: a limit of 0, an unknown URL option
    │   └── BackendNotFound   a URL whose scheme no installed package serves
    ├── InvalidEvent          what was to be stored cannot be: an id, label, timestamp, payload field or meta value
    ├── DecodeError           a map, a line or a stored row that is not what it says it is
    ├── VersionConflict       ``expected_version`` is not the run's version
    ├── EventConflict         the ``event_id`` is known, with another body
    ├── EventTooLarge         an event or a batch over the backend's size limit
    ├── CursorOutOfRange      a seq, an ``after`` or a cursor that points where nothing can be
    ├── RunDeleted            the run a follower reads was deleted
    ├── RunExpired            the run is past its ``expires_at``
    ├── StoreUnavailable      the file, disk or server behind the store refused
    │   └── StoreCorrupt      what is there is damaged, or is not a store of ours
    │       └── EventsMissing  events that a run must hold are gone
    ├── MemoryStopped         a memory call that policy stopped, a retrieval that execution denied, too large a sweep
    ├── ModelFailed           the model behind memory gave nothing that can be used
    │   ├── ModelTimeout      no answer in time, or no connection
    │   ├── ModelUnavailable  the model's server refused, or went on failing
    │   ├── ModelInvalidJson  the answer is not JSON
    │   ├── ModelInvalidSchema  the answer is JSON, but not of the shape that was asked for
    │   └── ModelEmpty        the answer holds no text
    ├── StoreClosed           a handle that was closed, inherited by a fork, or is used from another event loop
    ├── SchemaTooNew          the data was written by a newer release than this one
    ├── ReplayDivergence      an agent that is replayed does not do what was recorded
    └── ToolFailed            a replayed tool's recorded result is an error

Each class has a stable ``code`` to match on in logs and across processes. A driver's exception is always chained as
``__cause__``. Errors survive pickling, so they cross process boundaries whole.
"""

from __future__ import annotations

from typing import ClassVar


class AgentMemoryLogError(Exception):
    """The root of the tree: catch it to catch everything this library raises on purpose."""

    code: ClassVar[str] = "agent_memory_log_error"

    def __reduce__(self) -> tuple[object, ...]:
        # Exception's own __reduce__ calls __init__ with positional arguments only and would lose the keyword ones.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(cls: type[AgentMemoryLogError], args: tuple[object, ...], state: dict[str, object]) -> AgentMemoryLogError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class InvalidArgument(AgentMemoryLogError):
    """An argument that no store takes."""

    code = "invalid_argument"


class BackendNotFound(InvalidArgument):
    """No installed package serves this URL scheme, or its driver is missing; the message says what to install."""

    code = "backend_not_found"


class InvalidEvent(AgentMemoryLogError):
    """What was to be stored cannot be stored and come back unchanged; nothing was written.

    ``field`` names the place, as in ``labels.role`` or ``data.structured.items[3]``.
    """

    code = "invalid_event"

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class DecodeError(AgentMemoryLogError):
    """A map, a line or a stored row is not what it says it is; the message names event type, field and finding."""

    code = "decode_error"


class VersionConflict(AgentMemoryLogError):
    """``expected_version`` is not the run's version; nothing was stored.

    Load what is new and decide again; ``actual`` is the run's version.
    """

    code = "version_conflict"

    def __init__(self, message: str, *, expected: int, actual: int) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual


class EventConflict(AgentMemoryLogError):
    """An event with this ``event_id`` and another body is already there; nothing was stored.

    ``seq`` is its place in the run (0: in the same batch).
    """

    code = "event_conflict"

    def __init__(self, message: str, *, event_id: str, seq: int) -> None:
        super().__init__(message)
        self.event_id = event_id
        self.seq = seq


class EventTooLarge(AgentMemoryLogError):
    """An event or a batch is over the backend's limit, both in bytes as encoded; nothing was stored."""

    code = "event_too_large"

    def __init__(self, message: str, *, size: int, limit: int) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit


class CursorOutOfRange(AgentMemoryLogError):
    """A seq, an ``after`` or a page cursor points where nothing can be."""

    code = "cursor_out_of_range"


class RunDeleted(AgentMemoryLogError):
    """The run was deleted while it was being followed."""

    code = "run_deleted"


class RunExpired(AgentMemoryLogError):
    """The run is past the instant it was to be kept until."""

    code = "run_expired"


class StoreUnavailable(AgentMemoryLogError):
    """The file, disk or server behind the store refused, or the file is gone; the message says why.

    Otherwise what was acknowledged before is intact. Where the cause passes, as a full disk or a lock does, appending
    the same again is safe.
    """

    code = "store_unavailable"


class StoreCorrupt(StoreUnavailable):
    """The data behind the store is damaged, or was never a store of ours."""

    code = "store_corrupt"


class EventsMissing(StoreCorrupt):
    """Events that a run must hold are gone, from ``first_seq`` to ``last_seq``; those around them can be read."""

    code = "events_missing"

    def __init__(self, message: str, *, first_seq: int, last_seq: int) -> None:
        super().__init__(message)
        self.first_seq = first_seq
        self.last_seq = last_seq


class MemoryStopped(AgentMemoryLogError):
    """Policy stopped a memory call, or execution denied a retrieval; no memory was stored or returned.

    ``reason`` is stable text to match on, as in ``scope_denied:workspace``.
    """

    code = "memory_stopped"

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class ModelFailed(AgentMemoryLogError):
    """The model behind memory gave nothing that can be used; no memory was stored.

    The ``code`` of each class below is the stable reason that reports and events carry.
    """

    code = "llm_failed"


class ModelTimeout(ModelFailed):
    """No answer within the time allowed, or no connection to the model's server."""

    code = "llm_timeout"


class ModelUnavailable(ModelFailed):
    """The model's server refused the call, or went on failing; the message has what it said."""

    code = "llm_unavailable"


class ModelInvalidJson(ModelFailed):
    """The model's answer is not JSON."""

    code = "llm_invalid_json"


class ModelInvalidSchema(ModelFailed):
    """The model's answer is JSON, but not of the shape that was asked for; the message names the place."""

    code = "llm_invalid_schema"


class ModelEmpty(ModelFailed):
    """The model's answer holds no text."""

    code = "llm_empty"


class StoreClosed(AgentMemoryLogError):
    """The handle was closed, inherited by a fork, or is used from another event loop than its own: open a new one."""

    code = "store_closed"


class SchemaTooNew(AgentMemoryLogError):
    """The data was written by a newer release; upgrade this one to read it."""

    code = "schema_too_new"

    def __init__(self, message: str, *, found: int, known: int) -> None:
        super().__init__(message)
        self.found = found
        self.known = known


class ReplayDivergence(AgentMemoryLogError):
    """An agent that is replayed does not do what was recorded; the message has both sides.

    ``reason`` is a stable name: ``other_tool``, ``other_arguments``, ``other_order``, ``unexpected_call``,
    ``missing_call``, ``unexpected_turn``, ``missing_turn``, ``other_messages``, ``no_result``. ``seq`` is the event of
    the recording that it is about, None where there is none.
    """

    code = "replay_divergence"

    def __init__(self, message: str, *, reason: str, seq: int | None) -> None:
        super().__init__(message)
        self.reason = reason
        self.seq = seq


class ToolFailed(AgentMemoryLogError):
    """A replayed tool's recorded result is an error; the message is the one that was recorded.

    ``tool_name`` and ``tool_call_id`` are those of the call.
    """

    code = "tool_failed"

    def __init__(self, message: str, *, tool_name: str, tool_call_id: str) -> None:
        super().__init__(message)
        self.tool_name = tool_name
        self.tool_call_id = tool_call_id
