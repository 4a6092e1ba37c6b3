"""Holds the outcome of a running tool call, and finds the call that encloses the running code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, Token
from time import monotonic_ns
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec

from agent_memory_log.errors import AgentMemoryLogError, InvalidArgument, InvalidEvent, ToolFailed
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe, in_quotes
from agent_memory_log.events.jsonvalue import NotJson
from agent_memory_log.events.nested import Bounds, ToolTelemetry
from agent_memory_log.events.payloads import RetryHint, ToolCall, ToolResult
from agent_memory_log.events.python_values import EncHook, value_text
from agent_memory_log.transcript.conversion.crossing import holds_media, text_and_structured

_Call = TypeVar("_Call")

INTERRUPTED = "interrupted"
"""The first word of the recorded error message of a call whose code was cancelled or stopped."""


class RecordedCall:
    """A recorded tool call. Its methods set the outcome of the call. The result is recorded when the call's block ends.
    After that, they raise ``InvalidArgument``.

    If the block sets no outcome, the recorded result has no content. If the block raises, the exception replaces the
    outcome that was set before.

    Attributes:
        event: The stored event of the call.
        tool_call_id: The id of the call.
        tool_name: The name of the tool.
        recorded: The result that the store already has for this call, or None if the tool must run. If it is set, a
            new outcome is ignored. If the stored result was erased, this is a result with an error message only.
    """

    def __init__(self, event: Event, data: ToolCall, recorded: ToolResult | None, enc_hook: EncHook | None) -> None:
        """Create the call; ``Recorder.tool_call`` does this."""
        self.event = event
        self.tool_call_id = data.tool_call_id
        self.tool_name = data.tool_name
        self.recorded = recorded
        self._enc_hook = enc_hook
        self._parent = data.parent_tool_call_id
        self._outcome = ToolResult(data.tool_call_id, data.tool_name)
        self._has_ended = False
        self._start_ns = monotonic_ns()

    def result(
        self,
        value: object,
        *,
        preview: str = "",
        bounds: Bounds | None = None,
        server_data: object = None,
        telemetry: ToolTelemetry | None = None,
    ) -> None:
        """Set the value that the tool returned. It replaces an outcome that was set before.

        Args:
            value: The value. Text is stored unchanged, whether it is JSON or plain text for the model. An ``Image``,
                ``Document`` or other media of ``agent_memory_log.media``, or a list of texts and media, is stored in
                ``structured``, with the text as the result. Any other value is encoded as compact JSON; None becomes
                ``null``. Besides JSON values, it may hold pydantic models, dataclasses, attrs classes, msgspec structs,
                enums, dates, times, UUIDs, sets, bytes (as base64) and ``Decimal`` (as a number with all its digits).
                For other types, give the recorder an ``enc_hook``.
            preview: See ``ToolResult``.
            bounds: See ``ToolResult``.
            server_data: Data for the application, encoded like ``value``. It is never sent to a model. None means no
                data.
            telemetry: See ``ToolResult``.

        Raises:
            InvalidEvent: ``value`` or ``server_data`` cannot be encoded as JSON: it has a type that nothing converts,
                NaN or an infinity. Or ``value`` holds media and is larger than ``MAX_CONTENT_BYTES``. The error names
                the part. If it leaves the block, the call stays open.
        """
        text, structured = (
            text_and_structured(value, "result_json")
            if holds_media(value)
            else (json_text(value, "result_json", self._enc_hook), None)
        )
        self._set_outcome(
            server_data,
            result_json=text,
            structured=structured,
            preview=preview,
            bounds=bounds,
            telemetry=telemetry,
        )

    def fail(
        self,
        message: str,
        *,
        retry_hint: RetryHint | None = None,
        preview: str = "",
        server_data: object = None,
        telemetry: ToolTelemetry | None = None,
    ) -> None:
        """Set the error with which the tool failed. It replaces an outcome that was set before.

        Args:
            message: The error message that the model receives.
            retry_hint: How to correct the call. It is recorded even if the block raises an exception later.
            preview: See ``ToolResult``.
            server_data: Data for the application, encoded as in ``result``.
            telemetry: See ``ToolResult``.

        Raises:
            InvalidArgument: ``message`` is blank or not text.
            InvalidEvent: ``server_data`` cannot be encoded as JSON.
        """
        if not isinstance(message, str) or not message.strip():
            raise InvalidArgument(f"message must be non-blank text that gives the reason, got {describe(message)}")
        self._set_outcome(
            server_data, preview=preview, telemetry=telemetry, retry_hint=retry_hint, error_message=message
        )

    def _set_outcome(self, server_data: object, **fields: Any) -> None:  # noqa: ANN401  # the fields of ToolResult
        if self._has_ended:
            raise InvalidArgument(
                f"the block of the call {in_quotes(self.tool_call_id)} of {in_quotes(self.tool_name)} has ended: set "
                "the outcome inside the block"
            )
        text = "" if server_data is None else json_text(server_data, "server_data", self._enc_hook)
        self._outcome = ToolResult(self.tool_call_id, self.tool_name, server_data=text, **fields)

    def retry(self, hint: RetryHint) -> None:
        """Set a failure with a hint for the next try. The model receives the hint's message, question or reason."""
        self.fail(hint.message or hint.clarifying_question or hint.reason or "try again", retry_hint=hint)

    def end(self) -> None:
        """Refuse further outcomes. The call's block does this when it ends."""
        self._has_ended = True

    def outcome(self, error: BaseException | None) -> tuple[ToolResult, dict[str, str]]:
        """Return the result to record at the end of the block, and its labels."""
        outcome = self._outcome
        labels: dict[str, str] = {}
        if error is not None:
            labels["error_type"] = type(error).__name__
            outcome = ToolResult(
                self.tool_call_id,
                self.tool_name,
                server_data=outcome.server_data,
                telemetry=outcome.telemetry,
                retry_hint=outcome.retry_hint,
                error_message=_message_of(error),
            )
        changes = {"parent_tool_call_id": self._parent, "duration_ns": monotonic_ns() - self._start_ns}
        return msgspec.structs.replace(outcome, **changes), labels


class Enclosing(Generic[_Call]):
    """Marks the code of one block as code inside a call.

    A context variable holds the mark. New tasks inherit it, and so do threads that run in a copy of the context.
    """

    def __init__(self, owner: object) -> None:
        """Create the mark for one block; ``owner`` is a recorder or a replayer."""
        self._owner = owner
        self._entered: tuple[_Call, Token[_Link | None]] | None = None

    def enter(self, call: _Call) -> None:
        """Mark the code of this context as code inside ``call``."""
        self._entered = call, _innermost.set(_Link(self._owner, call, _innermost.get()))

    def leave(self) -> _Call | None:
        """Remove the mark and return its call, or None if no call was entered."""
        if self._entered is None:
            return None
        call, token = self._entered
        self._entered = None
        with suppress(ValueError):  # a generator may end its block in another context, which has no mark to remove
            _innermost.reset(token)
        return call

    @staticmethod
    def call_of(owner: object) -> object:
        """Return the innermost call of ``owner`` that encloses the running code, or None."""
        link = _innermost.get()
        while link is not None and link.owner is not owner:
            link = link.outer
        return None if link is None else link.call


class _Link(NamedTuple):
    owner: object
    call: object
    outer: _Link | None


_innermost: ContextVar[_Link | None] = ContextVar("agent_memory_log_call", default=None)


class CallBlock:
    """The base class of both recorders' tool call blocks."""

    def __init__(self, recorder: object, begin: Callable[[], Any], end: Callable[[RecordedCall, Any], Any]) -> None:
        """Create the block; ``begin`` records the call and returns it, and ``end`` records its outcome."""
        self._enclosing = Enclosing[RecordedCall](recorder)
        self._begin = begin
        self._end = end

    def _enter(self, call: RecordedCall) -> RecordedCall:
        self._enclosing.enter(call)
        return call

    def _leave(self, error: BaseException | None) -> RecordedCall | None:
        """Return the block's call if its result must be recorded now, else None.

        An error of this library says nothing about the tool. It leaves the call open, so that it can be made again.
        """
        call = self._enclosing.leave()
        if call is not None:
            call.end()
        if call is None or call.recorded is not None:
            return None
        if error is not None and _is_library_error(error):
            error.add_note(f"no result was recorded: the call {call.tool_call_id} of {call.tool_name} is still open")
            return None
        return call


def _is_library_error(error: BaseException) -> bool:
    """Return whether this library raised the error or a part of it. ``ToolFailed`` repeats a tool's own failure."""
    if isinstance(error, BaseExceptionGroup):
        return any(_is_library_error(inner) for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, AgentMemoryLogError) and not isinstance(error, ToolFailed)


def json_text(value: object, field: str, enc_hook: EncHook | None) -> str:
    """Return text unchanged, and any other value as compact JSON.

    Raises ``InvalidEvent`` with the path in ``field`` if the value cannot be encoded as JSON.
    """
    if isinstance(value, str):
        return str.__str__(value)
    try:
        return value_text(value, enc_hook)
    except NotJson as error:
        raise InvalidEvent(f"{field}{error.path} {error}", field=f"data.{field}{error.path}") from error


def payload_text(payload: object, enc_hook: EncHook | None) -> str:
    """Return a call's arguments as JSON text. Text is returned unchanged; None gives ``""``."""
    return "" if payload is None else json_text(payload, "payload", enc_hook)


def _message_of(error: BaseException) -> str:
    """Return the message of an exception, or the name of its class if the message is blank."""
    name = type(error).__name__
    if not isinstance(error, Exception):
        return f"{INTERRUPTED}: {name}"
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # __str__ may raise anything; that error must not replace the first one
        return name
    # No store accepts a lone surrogate, which the name of a file can contain.
    return text.encode(errors="backslashreplace").decode() if text.strip() else name
