"""A tool call that is being made: what its code says came of it, and inside which call it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from time import monotonic_ns
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from agent_memory_log.errors import InvalidArgument, InvalidEvent
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, encode_json, own_json
from agent_memory_log.events.payloads import Bounds, RetryHint, ToolCall, ToolResult, ToolTelemetry

_Call = TypeVar("_Call")

INTERRUPTED = "interrupted"
"""How the error message of a call begins whose code was cancelled or stopped."""


class RecordedCall:
    """A tool call that was recorded, and what its code says came of it; the result is recorded when its block ends.

    - ``event``: the call as it stands in the store; ``tool_call_id``, ``tool_name``: its own.
    - ``recorded``: the result that is there already, as the step was done before; None when the tool is to be run. What
      is recorded stays: a result given again is dropped. Where it was erased, a result without content.

    A block that ends without a word of what came of it is recorded as a result without content: the call is answered.
    An exception is recorded in place of whatever was said before it.
    """

    def __init__(self, event: Event, data: ToolCall, recorded: ToolResult | None) -> None:
        """Made by ``tool_call``."""
        self.event = event
        self.tool_call_id = data.tool_call_id
        self.tool_name = data.tool_name
        self.recorded = recorded
        self._parent = data.parent_tool_call_id
        self._outcome = ToolResult(data.tool_call_id, data.tool_name)
        self._begun = monotonic_ns()

    def result(
        self,
        value: JsonValue,
        *,
        preview: str = "",
        bounds: Bounds | None = None,
        server_data: JsonValue = None,
        telemetry: ToolTelemetry | None = None,
    ) -> None:
        """Say what the tool returned, in place of what was said before.

        ``value``: text is kept as it is, be it JSON or the text a model is to read; anything else becomes compact JSON,
        ``None`` the text ``null``. ``server_data`` (None: there is none) likewise; it is never sent to a model. The
        rest is as in ``ToolResult``. Raises ``InvalidEvent`` for a value that is not JSON.
        """
        self._set_outcome(
            server_data,
            result_json=json_text(value, "result_json"),
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
        server_data: JsonValue = None,
        telemetry: ToolTelemetry | None = None,
    ) -> None:
        """Say that the tool failed, in place of what was said before; the model is sent ``message``.

        ``retry_hint`` says how the call could be put right; it is kept where an exception follows. The rest is as for
        ``result``. Raises ``InvalidArgument`` for an empty message.
        """
        if not isinstance(message, str) or not message.strip():
            raise InvalidArgument(f"a failed call needs a message that says why, found {describe(message)}")
        self._set_outcome(
            server_data, preview=preview, telemetry=telemetry, retry_hint=retry_hint, error_message=message
        )

    def _set_outcome(self, server_data: JsonValue, **fields: Any) -> None:  # noqa: ANN401  # those of ToolResult
        text = "" if server_data is None else json_text(server_data, "server_data")
        self._outcome = ToolResult(self.tool_call_id, self.tool_name, server_data=text, **fields)

    def retry(self, hint: RetryHint) -> None:
        """Say that the tool failed and how to put it right; the model is sent the message, question or reason."""
        self.fail(hint.message or hint.clarifying_question or hint.reason or "try again", retry_hint=hint)

    def outcome(self, error: BaseException | None) -> tuple[ToolResult, dict[str, str]]:
        """The result as it is to be recorded, now that the block has ended, and its labels."""
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
        changes = {"parent_tool_call_id": self._parent, "duration_ns": monotonic_ns() - self._begun}
        return msgspec.structs.replace(outcome, **changes), labels


class Enclosing(Generic[_Call]):
    """Inside which calls code runs: follows it into tasks, and into threads that run in a copy of its context."""

    def __init__(self, owner: object) -> None:
        """For one block of one ``owner``, a recorder or a replayer."""
        self._owner = owner
        self._entered: tuple[_Call, Token[_Link | None]] | None = None

    def enter(self, call: _Call) -> None:
        """From now on the code of this context runs inside ``call``."""
        self._entered = call, _innermost.set(_Link(self._owner, call, _innermost.get()))

    def leave(self) -> _Call | None:
        """The block of the call has ended; which call it was."""
        if self._entered is None:
            return None
        call, token = self._entered
        self._entered = None
        with suppress(ValueError):  # entered in another context, as a generator may be: that one stays as it is
            _innermost.reset(token)
        return call

    @staticmethod
    def call_of(owner: object) -> object:
        """The innermost call of ``owner`` that this code runs inside of, or None; those of others do not count."""
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
    """What the blocks of both recorders have in common: code inside a block runs inside its call."""

    def __init__(self, recorder: object, begin: Callable[[], Any], end: Callable[[RecordedCall, Any], Any]) -> None:
        """Made by ``tool_call``; ``begin`` gives the recorded call, ``end`` records what came of it."""
        self._enclosing = Enclosing[RecordedCall](recorder)
        self._begin = begin
        self._end = end

    def _enter(self, call: RecordedCall) -> RecordedCall:
        self._enclosing.enter(call)
        return call

    def _leave(self) -> RecordedCall | None:
        """The block has ended; its call, if the result is still to be recorded."""
        call = self._enclosing.leave()
        return call if call is not None and call.recorded is None else None


def json_text(value: object, field: str) -> str:
    """Text as it is, anything else as compact JSON. Raises ``InvalidEvent`` naming ``field`` when it is not JSON."""
    if isinstance(value, str):
        return str.__str__(value)
    try:
        return encode_json(own_json(value)).decode()
    except NotJson as error:
        raise InvalidEvent(f"{field}{error.path} {error}", field=f"data.{field}{error.path}") from error


def payload_text(payload: str | Mapping[str, JsonValue] | None) -> str:
    """A call's arguments as JSON text: text as it is, ``""`` where there are none."""
    return "" if payload is None else json_text(payload, "payload")


def _message_of(error: BaseException) -> str:
    """What is recorded of an exception: its message, or its class where it has none."""
    name = type(error).__name__
    if not isinstance(error, Exception):
        return f"{INTERRUPTED}: {name}"
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # an exception's own text may raise anything, and must not replace it
        return name
    # A lone surrogate, as in the name of a file, cannot be stored.
    return text.encode(errors="backslashreplace").decode() if text.strip() else name
