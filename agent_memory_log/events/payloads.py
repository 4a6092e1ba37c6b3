"""The built-in payloads: one frozen struct for each event type, and the map each is stored as.

The keys of a payload's map are the wire contract shared with the Go original: ``payload_json`` is stored under
``payload``, ``duration_ns`` under ``duration``. A field is left out of the map when it is empty or zero, unless its
docstring says *always*; the nested maps (``Bounds``, ``ToolTelemetry``, ``RetryHint``) write every field.

To add a built-in payload: a struct here, its type in ``EventType``, its place in ``BUILT_IN``, and its row in
``tests/events/test_payloads.py``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from decimal import Decimal
from typing import ClassVar, Self, cast

import msgspec

from agent_memory_log.errors import DecodeError, InvalidEvent
from agent_memory_log.events.fields import Int64, JsonText, describe, is_absent_text, read_struct
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, own_map
from agent_memory_log.events.writing import struct_to_map


class EventType(enum.StrEnum):
    """The types this release writes. A run may hold others: registered ones, and those of newer releases."""

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


RESERVED_TYPES = frozenset({"injected_context", "compaction", "checkpoint"})
"""Types kept for later parts of this library; ``register_payload`` refuses them."""


class EventData(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The base of every payload.

    A payload of your own is a subclass with an ``event_type``, registered with ``register_payload``; its fields may be
    of any type msgspec encodes to JSON.
    """

    event_type: ClassVar[str] = ""

    __verbatim__: ClassVar[str | None] = None
    """The field whose JSON text a store may keep beside the payload's JSON, rather than escaped inside it."""

    def to_map(self) -> dict[str, JsonValue]:
        """The payload as a new map with the keys of the wire contract, sharing nothing with the payload.

        JSON text of white space alone is absent. Raises ``InvalidEvent`` naming the field when a
        free-form value is not JSON.
        """
        return struct_to_map(self, self.event_type)

    @classmethod
    def from_map(cls, data: Mapping[str, object]) -> Self:
        """Read a map, in any spelling that has been stored; unknown keys are ignored.

        Raises ``DecodeError`` naming the event type, the field and what was found.
        """
        return read_struct(cls, data, cls.event_type)


class _Message(EventData, frozen=True):
    message: str = ""
    structured: JsonValue = None


class UserMessage(_Message, frozen=True):
    """What the user said.

    ``message`` is its text; ``structured`` any JSON value beside or instead of it, left out only when null.
    """

    event_type = EventType.USER_MESSAGE.value


class AssistantMessage(_Message, frozen=True):
    """What the assistant said; the fields are those of ``UserMessage``."""

    event_type = EventType.ASSISTANT_MESSAGE.value


class SystemMessage(_Message, frozen=True):
    """Instructions given to the model; the fields are those of ``UserMessage``."""

    event_type = EventType.SYSTEM_MESSAGE.value


class ToolCall(EventData, frozen=True):
    """A tool the model asked for.

    - ``tool_call_id``, ``tool_name``: *always*; may be ``""``. Providers reuse ids within a run: calls and results pair
      by position (see ``Reader``).
    - ``parent_tool_call_id``: the call inside which this one was made.
    - ``payload_json``: the arguments as JSON **text**, byte for byte as the model wrote it, valid JSON or not. Decode
      it with ``input()``.
    - ``queue``: where the call was scheduled.
    - ``expected_children_total``: how many calls it will make itself.
    - ``structured``: what the provider sent that has no field here, keyed by provider.
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

    def input(self) -> object:
        """The arguments, decoded; None when there are none.

        Nothing is lost: integers of any size are ``int``, numbers with a fraction or an exponent are ``Decimal``.
        Raises ``DecodeError`` when the text is not JSON.
        """
        return _decode_text(self.payload_json, "tool_call", "payload")


class _NestedMap(msgspec.Struct, frozen=True, rename="pascal", forbid_unknown_fields=True):
    """A map inside a payload's map: it writes every field, and others have written its keys in several spellings.

    msgspec's own decoder must not take another spelling for a map without the field: it refuses unknown keys, and
    ``read_struct`` then reads them.
    """

    __loose_keys__: ClassVar[bool] = True
    __map_name__: ClassVar[str]

    def to_map(self) -> dict[str, JsonValue]:
        """The fields as a new map, with their names in CamelCase."""
        return struct_to_map(self, self.__map_name__)

    @classmethod
    def from_map(cls, data: Mapping[str, object]) -> Self:
        """Read the map in CamelCase, any other case or snake_case. Raises ``DecodeError`` naming the field."""
        return read_struct(cls, data, cls.__map_name__)


class Bounds(_NestedMap, frozen=True):
    """How a tool's result was cut: a nested map that writes every field.

    ``returned`` items of ``total`` (None: not known; 0 is a number), ``truncated``, ``next_cursor`` to ask for more,
    and ``refinement_hint``, advice on asking for less.
    """

    __map_name__ = "bounds"

    returned: Int64 = 0
    total: Int64 | None = None
    truncated: bool = False
    next_cursor: str | None = None
    refinement_hint: str = ""


class ToolTelemetry(_NestedMap, frozen=True):
    """What a tool's execution cost: a nested map that writes every field.

    ``duration_ms`` in milliseconds, ``tokens_used``, ``model``, and ``extra``, a map of anything else (None: no map).
    """

    __map_name__ = "telemetry"

    duration_ms: Int64 = 0
    tokens_used: Int64 = 0
    model: str = ""
    extra: Mapping[str, JsonValue] | None = None


class RetryHint(EventData, frozen=True, omit_defaults=False, rename="pascal", forbid_unknown_fields=True):
    """How a failed tool call could be put right; inside a ``ToolResult``, or as an event of its own. Writes every
    field.

    - ``reason``: the original uses ``invalid_arguments``, ``missing_fields``, ``malformed_response``, ``timeout``,
      ``rate_limited`` and ``tool_unavailable``; any text survives.
    - ``tool``: the tool meant; ``restrict_to_tool``: whether only that one may be tried.
    - ``missing_fields``: names of arguments that were missing (None: not said).
    - ``example_input``, ``prior_input``: maps of arguments (None: not said).
    - ``clarifying_question``: what to ask the user; ``message``: what to tell the model.
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


class ToolResult(EventData, frozen=True):
    """What came back from a tool call.

    - ``tool_call_id``, ``tool_name``: *always*; may be ``""``.
    - ``parent_tool_call_id``: the call inside which the answered call was made.
    - ``result_json``: the result as JSON **text**, byte for byte, valid JSON or not. Decode it with ``result()``.
    - ``server_data``: JSON text for the application's own use; never sent to a model.
    - ``preview``: a short form for people.
    - ``bounds``, ``telemetry``, ``retry_hint``: nested maps, absent only when None.
    - ``duration_ns``: how long the call took, in integer **nanoseconds**.
    - ``error_message``: why the call failed; ``""`` when it did not.
    - ``structured``: what the provider sent that has no field here, keyed by provider.
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

    def result(self) -> object:
        """The result, decoded; None when there is none. Numbers are exact, as in ``ToolCall.input``.

        Raises ``DecodeError`` when the text is not JSON.
        """
        return _decode_text(self.result_json, "tool_result", "result_json")


class PlannerNote(EventData, frozen=True):
    """A note the planner made for itself. ``note``: *always*; may be ``""``."""

    event_type = EventType.PLANNER_NOTE.value

    note: str


class Thinking(EventData, frozen=True):
    """A thinking block, kept exactly as the provider must get it back.

    - ``text``: what was thought; ``""`` with a signature is legitimate.
    - ``signature``: the provider's signature over the block.
    - ``redacted``: the bytes of a block the provider encrypted; base64 text in the map.
    - ``content_index``: the block's place in its message, from 0; *always*.
    - ``final``: whether the block is complete; *always*.
    - ``structured``: what the provider sent that has no field here, keyed by provider.
    """

    event_type = EventType.THINKING.value

    text: str = ""
    signature: str = ""
    redacted: bytes = b""
    # A default factory keeps msgspec from leaving these two out when they are zero.
    content_index: Int64 = msgspec.field(default_factory=int)
    final: bool = msgspec.field(default_factory=bool)
    structured: JsonValue = None


class ModelRequest(EventData, frozen=True):
    """What a model was asked with, beside the conversation: signed thinking is bound to it, and a replay must know it.

    ``agent_memory_log.transcript.model_request`` makes one, and stores system prompt and tools only when they changed.

    - ``provider``: the name of the provider's transcripts, as ``anthropic``; ``model``: the model's name; *always*.
    - ``system``, ``tools``: system prompt and tool definitions as they were sent; None where there are none, or where
      an earlier request of the run has the same.
    - ``system_hash``, ``tools_hash``: fingerprints of the two; ``""`` where there are none.
    - ``parameters``: the other arguments, as ``{"thinking": {"type": "adaptive"}}`` (None: not recorded).
    """

    event_type = EventType.MODEL_REQUEST.value

    provider: str
    model: str
    system: JsonValue = None
    system_hash: str = ""
    tools: JsonValue = None
    tools_hash: str = ""
    parameters: Mapping[str, JsonValue] | None = None


class Annotation(EventData, frozen=True):
    """A remark about the run, by a person or a process; its metadata goes to the event's labels."""

    event_type = EventType.ANNOTATION.value

    message: str = ""


class Redacted(EventData, frozen=True):
    """What stands where an event was: its type and why its content went. ``original_type``: *always*."""

    event_type = EventType.REDACTED.value

    original_type: str
    reason: str = ""


class Redaction(EventData, frozen=True):
    """The marker ``redact_events`` appends, so that warm readers and followers learn of it. ``seqs``: *always*."""

    event_type = EventType.REDACTION.value

    seqs: tuple[int, ...]
    reason: str = ""


class UnknownPayload(EventData, frozen=True):
    """The payload of a type this release does not know: its map, written back unchanged.

    ``type`` is the event's type and ``data`` the map.
    """

    type: str
    data: Mapping[str, JsonValue]

    @property
    def event_type(self) -> str:  # type: ignore[override]  # the one payload whose type differs from event to event
        """The event's type."""
        return self.type

    def to_map(self) -> dict[str, JsonValue]:
        """A new map, equal to the one that was read."""
        if not isinstance(self.data, Mapping):
            raise InvalidEvent(f"{self.type}: data must be a map, found {describe(self.data)}", field="data")
        try:
            return own_map(self.data)
        except NotJson as error:
            raise InvalidEvent(f"{self.type}: data{error.path} {error}", field=f"data{error.path}") from error

    @classmethod
    def from_map(cls, data: Mapping[str, object]) -> Self:
        """A map alone does not say its type: use ``of``. Raises ``DecodeError``."""
        raise DecodeError(
            f"an unknown payload needs its type, found only {describe(data)}: use UnknownPayload.of(type, data)"
        )

    @classmethod
    def of(cls, event_type: str, data: object) -> Self:
        """Keep ``data`` as the payload of an event of ``event_type``. Raises ``DecodeError`` when it is not a map."""
        if not isinstance(data, Mapping):
            raise DecodeError(f"{event_type}: data must be a map, found {describe(data)}")
        try:
            return cls(type=event_type, data=own_map(cast("Mapping[object, object]", data)))
        except NotJson as error:
            raise DecodeError(f"{event_type}: data{error.path} {error}") from error


BUILT_IN: tuple[type[EventData], ...] = (
    UserMessage,
    AssistantMessage,
    SystemMessage,
    ToolCall,
    ToolResult,
    Thinking,
    PlannerNote,
    RetryHint,
    ModelRequest,
    Annotation,
    Redacted,
    Redaction,
)
"""The payloads that need not be registered."""


_decode_exact = msgspec.json.Decoder(float_hook=Decimal).decode


def _decode_text(text: str, event_type: str, field: str) -> object:
    if is_absent_text(text):
        return None
    try:
        decoded: object = _decode_exact(text)
    except (msgspec.DecodeError, UnicodeEncodeError, ArithmeticError, RecursionError) as error:
        raise DecodeError(f"{event_type} field {field!r} is not JSON: {error}; found {describe(text)}") from error
    return decoded
