"""The built-in payloads: a frozen struct for each event type, and the map that each is stored as.

The keys of a payload's map are the wire contract that this library shares with the Go original. ``payload_json`` has
the key ``payload``, and ``duration_ns`` has the key ``duration``. A field that is empty or zero is left out of the map,
unless its description says *always written*. ``RetryHint`` and the maps of ``nested.py`` write every field.

To add a built-in payload, write a struct here, add its type to ``EventType`` and the struct to ``BUILT_IN`` in
``registry.py``, and add a row to ``tests/events/test_payloads.py``. ``context_payloads.py`` has the payloads for the
contexts of models.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import ClassVar, Self, cast

import msgspec

from agent_memory_log.errors import DecodeError, InvalidEvent
from agent_memory_log.events.fields import NO_UNKNOWN, Int64, JsonText, Unknown, decode_json_text, describe, read_struct
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, own_map
from agent_memory_log.events.nested import Bounds, ToolTelemetry
from agent_memory_log.events.writing import struct_to_map


class EventType(enum.StrEnum):
    """The event types of the built-in payloads.

    A run may also hold the types of registered payloads, and types that a newer release wrote.
    """

    USER_MESSAGE = "user_message"
    ASSISTANT_MESSAGE = "assistant_message"
    SYSTEM_MESSAGE = "system_message"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    THINKING = "thinking"
    PLANNER_NOTE = "planner_note"
    RETRY_HINT = "retry_hint"
    ANNOTATION = "annotation"
    REDACTED = "redacted"
    REDACTION = "redaction"
    MODEL_REQUEST = "model_request"
    INJECTED_CONTEXT = "injected_context"
    COMPACTION = "compaction"
    CHECKPOINT = "checkpoint"


class EventData(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The base class of every payload.

    To define your own payload, write a frozen subclass with an ``event_type`` and register it with
    ``register_payload``. Its fields may have any type that msgspec can encode to JSON and decode again.

    Attributes:
        event_type: The type of the events that carry this payload.
    """

    event_type: ClassVar[str] = ""

    __verbatim__: ClassVar[str | None] = None
    """The field with JSON text that a store may keep next to the payload's JSON, instead of escaped inside it."""

    def to_map(self) -> dict[str, JsonValue]:
        """Return the payload as a new map with the keys of the wire contract.

        The map shares nothing with the payload. A field of JSON text that holds only white space is left out.

        Raises:
            InvalidEvent: A value cannot be written as JSON. The error names the field.
        """
        return struct_to_map(self, self.event_type)

    @classmethod
    def from_map(cls, data: Mapping[str, object]) -> Self:
        """Return the payload that a map describes.

        The nested maps and ``RetryHint`` may have keys in CamelCase, any other case or snake_case. Built-in payloads
        keep unknown keys in ``unknown_fields``; other payloads ignore them.

        Raises:
            DecodeError: A field is missing or has a wrong type. The error names the event type, the field and the
                value.
        """
        return read_struct(cls, data, cls.event_type)


class BuiltInData(EventData, frozen=True, kw_only=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """The base class of the built-in payloads, which keep unknown keys: msgspec fails, and ``read_struct`` reads them.

    Attributes:
        unknown_fields: The keys and values of the stored map that have no field here, or ``msgspec.UNSET``. A newer
            release or another program wrote them. They are written back unchanged.
    """

    unknown_fields: Unknown = NO_UNKNOWN


class _Message(BuiltInData, frozen=True):
    message: str = ""
    structured: JsonValue = None


class UserMessage(_Message, frozen=True):
    """A message from the user.

    Attributes:
        message: The text of the message.
        structured: Any JSON value in addition to the text or instead of it. It is left out of the map only if it is
            None.
    """

    event_type = EventType.USER_MESSAGE.value


class AssistantMessage(_Message, frozen=True):
    """A message from the assistant. It has the fields of ``UserMessage``."""

    event_type = EventType.ASSISTANT_MESSAGE.value


class SystemMessage(_Message, frozen=True):
    """Instructions to the model. It has the fields of ``UserMessage``."""

    event_type = EventType.SYSTEM_MESSAGE.value


class ToolCall(BuiltInData, frozen=True):
    """A tool call that the model requested.

    Attributes:
        tool_call_id: The id of the call. *Always written*, may be ``""``. Providers may use an id again within a run,
            so ``Reader`` pairs calls and results by their order.
        tool_name: The name of the tool. *Always written*, may be ``""``.
        parent_tool_call_id: The id of the call that made this call.
        payload_json: The arguments as JSON text, exactly as the model wrote them, even if they are not valid JSON.
            ``input()`` decodes them.
        queue: The queue on which the call was scheduled.
        expected_children_total: The number of calls that this call is expected to make.
        structured: Content from the provider that has no field here, keyed by provider.
    """

    event_type = EventType.TOOL_CALL.value
    __verbatim__ = "payload_json"

    tool_call_id: str
    tool_name: str
    parent_tool_call_id: str = ""
    payload_json: JsonText = msgspec.field(default="", name="payload")
    queue: str = ""
    expected_children_total: Int64 = 0
    structured: JsonValue = None

    def input(self, *, exact_numbers: bool = False) -> object:
        """Return the decoded arguments, or None if there are no arguments.

        Args:
            exact_numbers: Return numbers with a fraction or an exponent as ``Decimal``, with every digit. The default
                is ``float``, which has about 16 digits. Integers are always exact, whatever their size.

        Raises:
            DecodeError: ``payload_json`` is not JSON, or a number is too large for a ``float``.
        """
        return decode_json_text(self.payload_json, "tool_call", "payload", exact_numbers=exact_numbers)


class RetryHint(BuiltInData, frozen=True, omit_defaults=False, rename="pascal"):
    """Advice for repeating a failed tool call. It is part of a ``ToolResult`` or an event of its own.

    Every field is always written.

    Attributes:
        reason: The kind of failure. The Go original uses ``invalid_arguments``, ``missing_fields``,
            ``malformed_response``, ``timeout``, ``rate_limited`` and ``tool_unavailable``, but any text is stored.
        tool: The name of the tool to call.
        restrict_to_tool: Whether the model may call only that tool.
        missing_fields: The names of missing arguments, or None.
        example_input: A map of valid example arguments, or None.
        prior_input: A map of the arguments of the failed call, or None.
        clarifying_question: A question for the user.
        message: An explanation for the model, which transcripts send beside the error message of the result.
    """

    __loose_keys__: ClassVar[bool] = True
    event_type = EventType.RETRY_HINT.value

    reason: str = ""
    tool: str = ""
    restrict_to_tool: bool = False
    missing_fields: tuple[str, ...] | None = None
    example_input: Mapping[str, JsonValue] | None = None
    prior_input: Mapping[str, JsonValue] | None = None
    clarifying_question: str = ""
    message: str = ""


class ToolResult(BuiltInData, frozen=True):
    """The result of a tool call.

    Attributes:
        tool_call_id: The id of the call. *Always written*, may be ``""``.
        tool_name: The name of the tool. *Always written*, may be ``""``.
        parent_tool_call_id: The id of the call that made this tool's call.
        result_json: The result as JSON text, exactly as the tool returned it, even if it is not valid JSON.
            ``result()`` decodes it.
        server_data: JSON text for the application's own use. It is never sent to a model.
        preview: A short form of the result for people.
        bounds: The limits of a partial result, or None.
        duration_ns: The duration of the call in nanoseconds.
        telemetry: The cost of the call, or None.
        retry_hint: Advice for repeating the call, or None.
        error_message: The reason why the call failed, or ``""`` if it succeeded.
        structured: Content from the provider that has no field here, keyed by provider.
    """

    event_type = EventType.TOOL_RESULT.value
    __verbatim__ = "result_json"

    tool_call_id: str
    tool_name: str
    parent_tool_call_id: str = ""
    result_json: JsonText = ""
    server_data: JsonText = ""
    preview: str = ""
    bounds: Bounds | None = None
    duration_ns: Int64 = msgspec.field(default=0, name="duration")
    telemetry: ToolTelemetry | None = None
    retry_hint: RetryHint | None = None
    error_message: str = ""
    structured: JsonValue = None

    def result(self, *, exact_numbers: bool = False) -> object:
        """Return the decoded result, or None if there is no result.

        Args:
            exact_numbers: See ``ToolCall.input``.

        Raises:
            DecodeError: ``result_json`` is not JSON, or a number is too large for a ``float``.
        """
        return decode_json_text(self.result_json, "tool_result", "result_json", exact_numbers=exact_numbers)


class PlannerNote(BuiltInData, frozen=True):
    """A note that the planner wrote for itself. ``note`` is *always written* and may be ``""``."""

    event_type = EventType.PLANNER_NOTE.value

    note: str


class Thinking(BuiltInData, frozen=True):
    """A thinking block of the model, stored exactly as the provider requires it in the next request.

    Attributes:
        text: The text of the block. It may be ``""`` if the block has a signature.
        signature: The provider's signature of the block.
        redacted: The bytes of a block that the provider encrypted. They are base64 text in the map.
        content_index: The index of the block in its message, from 0. *Always written*.
        final: Whether the block is complete. *Always written*.
        structured: Content from the provider that has no field here, keyed by provider.
    """

    event_type = EventType.THINKING.value

    text: str = ""
    signature: str = ""
    redacted: bytes = b""
    # msgspec leaves out a field that equals its default, but not a field with the factory int or bool.
    content_index: Int64 = msgspec.field(default_factory=int)
    final: bool = msgspec.field(default_factory=bool)
    structured: JsonValue = None


class ModelRequest(BuiltInData, frozen=True):
    """The arguments of a model request, without the conversation.

    Signed thinking is valid only with the same arguments, and a replay repeats the request with them. Create this
    payload with ``agent_memory_log.transcript.model_request``. It stores system prompt and tools only if they changed.

    Attributes:
        provider: The name of the provider's transcripts, such as ``anthropic``. *Always written*.
        model: The name of the model. *Always written*.
        system: The system prompt, or None if there is no system prompt or an earlier request of the run holds it.
        system_hash: A fingerprint of the system prompt, or ``""`` if there is no system prompt.
        tools: The tool definitions, or None if there are no tools or an earlier request of the run holds them.
        tools_hash: A fingerprint of the tool definitions, or ``""`` if there are no tools.
        parameters: The other arguments, such as ``{"thinking": {"type": "adaptive"}}``, or None if not recorded.
    """

    event_type = EventType.MODEL_REQUEST.value

    provider: str
    model: str
    system: JsonValue = None
    system_hash: str = ""
    tools: JsonValue = None
    tools_hash: str = ""
    parameters: Mapping[str, JsonValue] | None = None


class Annotation(BuiltInData, frozen=True):
    """A remark about the run from a person or a process. Put its metadata in the event's labels."""

    event_type = EventType.ANNOTATION.value

    message: str = ""


class Redacted(BuiltInData, frozen=True):
    """The payload that replaces the payload of a redacted event.

    Attributes:
        original_type: The event's type before the redaction. *Always written*.
        reason: The reason for the redaction.
    """

    event_type = EventType.REDACTED.value

    original_type: str
    reason: str = ""


class Redaction(BuiltInData, frozen=True):
    """The redaction marker, which ``redact_events`` appends to notify followers and readers that hold a snapshot.

    Attributes:
        seqs: The seqs of the redacted events. *Always written*.
        reason: The reason for the redaction.
    """

    event_type = EventType.REDACTION.value

    seqs: tuple[int, ...]
    reason: str = ""


class UnknownPayload(EventData, frozen=True):
    """The payload of an event type without a registered payload class. Its map is written back unchanged.

    Attributes:
        type: The event type.
        data: The payload's map.
    """

    type: str
    data: Mapping[str, JsonValue]

    @property
    def event_type(self) -> str:  # type: ignore[override]  # the only payload whose type differs between events
        """The event type, which is ``type``."""
        return self.type

    def to_map(self) -> dict[str, JsonValue]:
        """Return a new map that equals ``data``. Raises ``InvalidEvent`` if ``data`` is not a map of JSON values."""
        if not isinstance(self.data, Mapping):
            raise InvalidEvent(f"{self.type}: data must be a map, got {describe(self.data)}", field="data")
        try:
            return own_map(self.data)
        except NotJson as error:
            raise InvalidEvent(f"{self.type}: data{error.path} {error}", field=f"data{error.path}") from error

    @classmethod
    def from_map(cls, data: Mapping[str, object]) -> Self:
        """Raise ``DecodeError``, because a map does not hold its event type. Use ``UnknownPayload.of``."""
        raise DecodeError(
            f"an unknown payload needs its event type, got only {describe(data)}: use UnknownPayload.of(type, data)"
        )

    @classmethod
    def of(cls, event_type: str, data: object) -> Self:
        """Return a payload of ``event_type`` with a copy of ``data``.

        Raises ``DecodeError`` if ``data`` is not a JSON map.
        """
        if not isinstance(data, Mapping):
            raise DecodeError(f"{event_type}: data must be a map, got {describe(data)}")
        try:
            return cls(type=event_type, data=own_map(cast("Mapping[object, object]", data)))
        except NotJson as error:
            raise DecodeError(f"{event_type}: data{error.path} {error}") from error
