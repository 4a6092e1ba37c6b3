"""The registry of payload classes by event type, and the conversion of payloads to checked JSON and back.

This module registers the built-in payloads. ``register_payload`` adds others, which then behave like built-in ones in
every store, in the reader, in JSONL and on the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, get_type_hints

import msgspec
from msgspec.structs import astuple, force_setattr, replace

from agent_memory_log.errors import DecodeError, InvalidArgument, InvalidEvent
from agent_memory_log.events.context_payloads import Checkpoint, Compaction, InjectedContext
from agent_memory_log.events.fields import (
    INT64_MAX,
    INT64_MIN,
    UNKNOWN_FIELDS,
    Int64,
    JsonText,
    describe,
    fields_of,
    is_nullable,
    without_none,
)
from agent_memory_log.events.jsonvalue import NotJson, check_text, decode_json, encode_json
from agent_memory_log.events.payloads import (
    Annotation,
    AssistantMessage,
    EventData,
    ModelRequest,
    PlannerNote,
    Redacted,
    Redaction,
    RetryHint,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)
from agent_memory_log.events.reserved import is_reserved_type
from agent_memory_log.events.writing import checks_of, has_unknown, read_back, wire_json

_Payload = TypeVar("_Payload", bound=EventData)

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
    InjectedContext,
    Compaction,
    Checkpoint,
)
"""The payload classes that are registered by default."""

# Pairs instead of a dict, because an annotation may be unhashable.
_SCALARS: tuple[tuple[object, type], ...] = (
    (str, str),
    (JsonText, str),
    (bool, bool),
    (bytes, bytes),
    (int, int),
    (Int64, int),
    (Any, str),
    (Any, bool),
)


class _Codec:
    """The conversion of one payload class to checked JSON and back."""

    __slots__ = ("_integers", "_scalars", "decode", "payload_type", "proven", "verbatim", "verbatim_key")

    def __init__(self, payload_type: type[EventData]) -> None:
        self.payload_type = payload_type
        self.decode: Callable[[str | bytes], EventData] = msgspec.json.Decoder(payload_type).decode
        fields_of(payload_type)
        checks_of(payload_type)
        hints = get_type_hints(payload_type, include_extras=True)
        fields = msgspec.structs.fields(payload_type)
        self.verbatim = payload_type.__verbatim__
        self.verbatim_key = next((field.encode_name for field in fields if field.name == self.verbatim), None)
        scalars = tuple(
            frozenset({msgspec.UnsetType}) if field.name == UNKNOWN_FIELDS else _scalars_of(hints[field.name])
            for field in fields
        )
        self._integers = tuple(place for place, kinds in enumerate(scalars) if int in kinds)
        # The scalar types of each field. Empty if a field has no scalar type, or if the payload is mutable.
        self._scalars = scalars if all(scalars) and payload_type.__struct_config__.frozen else ()
        # Combinations of scalar types whose values were read back once.
        self.proven: set[tuple[type, ...]] = set()

    def reads_back_as_itself(self, values: tuple[Any, ...]) -> bool:
        """Return whether a payload with these values holds only scalars, and one with values of the same types was read
        back before.

        Without this shortcut, every payload would be read back, and an append of a hundred events would take 10 %
        longer.
        """
        if tuple(map(type, values)) not in self.proven:
            return False
        for place in self._integers:  # noqa: SIM110  # faster than all(), and most payloads reach this loop
            if not INT64_MIN <= (values[place] or 0) <= INT64_MAX:
                return False
        return True

    def read_back(self, data: EventData, *, unknown: bool) -> EventData:
        """Return a copy that was decoded from JSON. ``unknown`` is ``has_unknown(data)``. See ``writing.read_back``."""
        if unknown:
            return read_back(data, wire_json, self._decode_wire, data.event_type)
        owned = read_back(data, encode_json, self.decode, data.event_type)
        if self._scalars:
            shape = tuple(map(type, astuple(data)))
            if all(kind in kinds for kind, kinds in zip(shape, self._scalars, strict=True)):
                self.proven.add(shape)
        return owned

    def _decode_wire(self, text: bytes) -> EventData:
        return self.payload_type.from_map(decode_json(text))


def _scalars_of(hint: object) -> frozenset[type]:
    """Return the scalar types that a field may hold. JSON of a value of these types decodes to an equal value."""
    inner = without_none(hint)
    kinds = {kind for annotation, kind in _SCALARS if annotation == inner}
    return frozenset(kinds | {type(None)} if is_nullable(hint) else kinds)


_by_type: dict[str, _Codec] = {}
_by_class: dict[type[EventData], _Codec] = {}


def register_payload(payload_type: type[_Payload]) -> type[_Payload]:
    """Register the payload class for events of its ``event_type``. It can be used as a class decorator:

        @register_payload
        class Handoff(EventData, frozen=True):
            event_type = "handoff"
            to_agent: str
            reason: str = ""

    A second registration of the same class, or of its reloaded version, replaces the first. Events that were read
    before the registration keep their ``UnknownPayload``, and ``decode_event`` converts them.

    Args:
        payload_type: A subclass of ``EventData`` with a non-empty ``event_type``. The type must not be built in.
            Types that begin with ``memory_`` are reserved.

    Returns:
        The class itself.

    Raises:
        InvalidArgument: The class or its event type cannot be registered. The message gives the reason.
    """
    return _register(payload_type, reserved=False)


def register_own_payload(payload_type: type[_Payload]) -> type[_Payload]:
    """Register one of this library's own payloads, whose event types are reserved. See ``register_payload``."""
    return _register(payload_type, reserved=True)


def _register(payload_type: type[_Payload], *, reserved: bool) -> type[_Payload]:
    if not (isinstance(payload_type, type) and issubclass(payload_type, EventData)):
        raise InvalidArgument(f"expected a subclass of EventData, got {describe(payload_type)}")
    name = payload_type.__qualname__
    event_type = payload_type.event_type
    if not isinstance(event_type, str) or not event_type:
        raise InvalidArgument(f"{name} needs a class attribute event_type with a non-empty text")
    event_type = str.__str__(event_type)
    try:
        check_text(event_type, "")
    except NotJson as error:
        raise InvalidArgument(f"the event type {event_type!r} of {name} {error}") from error
    if payload_type.__struct_config__.array_like:
        raise InvalidArgument(f"{name} is array_like, but a payload is stored as a map")
    if not reserved and is_reserved_type(event_type):
        raise InvalidArgument(f"the event type {event_type!r} is reserved for this library: choose another type")
    registered = _by_type.get(event_type)
    if registered is not None and (registered.payload_type.__module__, registered.payload_type.__qualname__) != (
        payload_type.__module__,
        name,
    ):
        raise InvalidArgument(
            f"the event type {event_type!r} is already registered for {registered.payload_type.__qualname__}"
        )
    try:
        codec = _Codec(payload_type)
    except (TypeError, NameError) as error:  # NameError: an annotation uses an undefined name
        raise InvalidArgument(f"{name} has a field that cannot be decoded from JSON: {error}") from error
    if type(payload_type.event_type) is not str:
        payload_type.event_type = event_type  # str() of an enum member differs, and some drivers refuse one
    _by_type[event_type] = codec
    _by_class[payload_type] = codec
    return payload_type


def payload_types() -> dict[str, type[EventData]]:
    """Return the built-in and registered payload classes by event type."""
    return {event_type: codec.payload_type for event_type, codec in _by_type.items()}


def payload_from_map(event_type: str, data: object) -> EventData:
    """Return the payload that the map ``data`` describes. For an unknown type, it is an ``UnknownPayload``.

    Raises ``DecodeError`` with the event type, the field and the value.
    """
    codec = _by_type.get(event_type)
    if codec is None:
        return UnknownPayload.of(event_type, data)
    if not isinstance(data, Mapping):
        raise DecodeError(f"{event_type}: data must be a map, got {describe(data)}")
    return codec.payload_type.from_map(cast("Mapping[str, object]", data))


def decode_payload(event_type: str, text: str | bytes) -> EventData:
    """Decode a payload from JSON text that any release of this library or another program wrote.

    Raises ``DecodeError`` with the event type, the field and the value.
    """
    codec = _by_type.get(event_type)
    if codec is not None:
        try:
            return codec.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            pass  # not written by this library: use the lenient rules, whose errors name the field
    try:
        data = decode_json(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise DecodeError(f"{event_type}: data is not JSON: {error}") from error
    return payload_from_map(event_type, data)


def decode_parts(event_type: str, text: str | bytes, verbatim: str | None) -> EventData:
    """Decode a payload from the parts that ``encode_parts`` returned. Raises ``DecodeError``."""
    try:
        payload = _by_type[event_type].decode(text)
    except (KeyError, msgspec.MsgspecError, UnicodeError, RecursionError):
        payload = decode_payload(event_type, text)
    if verbatim is not None:
        field = payload.__verbatim__
        if field is None or type(verbatim) is not str:
            raise DecodeError(f"{event_type}: has no field for the text next to its data, got {describe(verbatim)}")
        force_setattr(payload, field, verbatim)  # no caller has this new payload yet
    return payload


def decode_map(event_type: str, data: dict[str, Any]) -> EventData:
    """Return the payload of a map of JSON values, as a document database returns it.

    The payload may share mutable values with ``data``. Raises ``DecodeError`` with the event type, the field and the
    value.
    """
    codec = _by_type.get(event_type)
    if codec is not None:
        try:
            return msgspec.convert(data, codec.payload_type)
        except (msgspec.ValidationError, RecursionError):
            pass
        try:
            # Only a registered payload with a map whose keys are no text needs this option, which doubles the time.
            return msgspec.convert(data, codec.payload_type, str_keys=True)
        except (msgspec.ValidationError, RecursionError):
            pass  # not written by this library: see decode_payload
    return payload_from_map(event_type, data)


def verbatim_key(event_type: str) -> str | None:
    """Return the map key of the type's verbatim text (see ``encode_parts``), or None if the type has no such text."""
    codec = _by_type.get(event_type)
    return None if codec is None else codec.verbatim_key


def encode_payload(data: EventData) -> tuple[bytes, EventData]:
    """Return the payload's checked JSON and an equal payload that shares nothing mutable with ``data``.

    Raises ``InvalidEvent`` with the field.
    """
    text, verbatim, owned = encode_parts(data)
    return (text if verbatim is None else wire_json(owned)), owned


def encode_parts(data: EventData) -> tuple[bytes, str | None, EventData]:
    """Check a payload and return its JSON, its verbatim text, and an equal payload.

    The verbatim text is the value of the field that ``__verbatim__`` names, for example a tool's result. Inside JSON it
    would need many escapes, so the JSON leaves it out. It is None if the payload has no such text.

    The equal payload is ``data`` itself if it holds only scalars. Otherwise it is decoded from the JSON. This proves
    that the JSON can be decoded later. Raises ``InvalidEvent`` with the field.
    """
    codec = _by_class.get(type(data))
    if codec is None:
        unknown = _own_unregistered(data)
        return encode_json(unknown.data), None, unknown
    if codec.proven and codec.reads_back_as_itself(astuple(data)):
        try:
            if codec.verbatim is None:
                return encode_json(data), None, data
            return _in_parts(data, codec, encode_json)
        except UnicodeEncodeError:
            pass  # a lone surrogate: the error of read_back names the field
    has_more = has_unknown(data)
    return _in_parts(codec.read_back(data, unknown=has_more), codec, wire_json if has_more else encode_json)


def _in_parts(
    data: EventData, codec: _Codec, encode: Callable[[EventData], bytes]
) -> tuple[bytes, str | None, EventData]:
    field = codec.verbatim
    verbatim: str = getattr(data, field) if field else ""
    if not field or not verbatim:
        return encode(data), None, data
    if not verbatim.isascii():
        verbatim.encode()
    rest = replace(data)
    force_setattr(rest, field, "")  # replace(data, **{field: ""}) takes twice as long
    return encode(rest), verbatim, data


def _own_unregistered(data: EventData) -> UnknownPayload:
    if not isinstance(data, UnknownPayload):
        raise InvalidEvent(
            f"expected a registered payload, got {describe(data)}: register its class with register_payload",
            field="data",
        )
    if not isinstance(data.type, str) or not data.type or data.type in _by_type:
        raise InvalidEvent(
            f"the type of an UnknownPayload must have no registered payload class, got {describe(data.type)}",
            field="type",
        )
    event_type = str.__str__(data.type)
    try:
        check_text(event_type, "")
    except NotJson as error:
        raise InvalidEvent(f"the event type {event_type!r} {error}", field="type") from error
    return UnknownPayload(type=event_type, data=data.to_map())


for _payload_type in BUILT_IN:
    register_payload(_payload_type)
