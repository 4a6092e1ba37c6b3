"""Which payload stands for which event type, and a payload's way to checked JSON and back.

Built-in payloads are registered here; ``register_payload`` adds others, which then behave like built-in ones in every
store, in the reader, in JSONL and on the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar, cast

import msgspec
from msgspec.structs import astuple

from agent_memory_log.errors import DecodeError, InvalidArgument, InvalidEvent
from agent_memory_log.fields import describe, fields_of
from agent_memory_log.jsonvalue import JsonValue, NotJson, check_text, decode_json, encode_json, own_json
from agent_memory_log.payloads import (
    RESERVED_TYPES,
    Annotation,
    AssistantMessage,
    EventData,
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

_Payload = TypeVar("_Payload", bound=EventData)

_SCALARS = frozenset({str, int, bool, bytes, type(None)})
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


class _Codec:
    """One payload type's way to checked JSON and back."""

    __slots__ = ("decode", "free_form", "integers", "payload_type", "proven")

    def __init__(self, payload_type: type[EventData]) -> None:
        self.payload_type = payload_type
        self.decode: Callable[[str | bytes], EventData] = msgspec.json.Decoder(payload_type).decode
        # Combinations of field types, all immutable, that were read back once and so will be again, integers aside.
        self.proven: set[tuple[type, ...]] = set()
        self.integers = tuple(
            field.name
            for field in msgspec.structs.fields(payload_type)
            if getattr(field.type, "__origin__", field.type) is int
        )
        # Values msgspec would write without a look; text, integers and bytes it checks itself.
        self.free_form = tuple(
            field.name
            for field in msgspec.structs.fields(payload_type)
            if getattr(field.type, "__origin__", field.type) not in (str, int, bool, bytes)
        )


_by_type: dict[str, _Codec] = {}
_by_class: dict[type[EventData], _Codec] = {}


def register_payload(payload_type: type[_Payload]) -> type[_Payload]:
    """Make ``payload_type`` stand for events of its ``event_type``; usable as a class decorator.

    The class is a subclass of ``EventData`` with a non-empty ``event_type`` that is neither built in nor reserved.
    Registering the same class again, or a reloaded version of it, replaces it. Events of the type that were read before
    keep their ``UnknownPayload``; ``decode_event`` reads those too. Raises ``InvalidArgument``.

        @register_payload
        class Handoff(EventData, frozen=True):
            event_type = "handoff"
            to_agent: str
            reason: str = ""
    """
    if not (isinstance(payload_type, type) and issubclass(payload_type, EventData)):
        raise InvalidArgument(f"{describe(payload_type)} must be a subclass of EventData to be registered")
    name = payload_type.__qualname__
    event_type = payload_type.event_type
    if not isinstance(event_type, str) or not event_type:
        raise InvalidArgument(f"{name} needs a class attribute event_type with the text that stands for it")
    if event_type in RESERVED_TYPES:
        raise InvalidArgument(f"the event type {event_type!r} is reserved for this library")
    known = _by_type.get(event_type)
    if known is not None and (known.payload_type.__module__, known.payload_type.__qualname__) != (
        payload_type.__module__,
        name,
    ):
        raise InvalidArgument(f"the event type {event_type!r} already stands for {known.payload_type.__qualname__}")
    try:
        codec = _Codec(payload_type)
    except TypeError as error:
        raise InvalidArgument(f"{name} has a field that JSON text cannot be decoded to: {error}") from error
    _by_type[event_type] = codec
    _by_class[payload_type] = codec
    return payload_type


def payload_types() -> dict[str, type[EventData]]:
    """The event types that have a payload of their own, built in and registered."""
    return {event_type: codec.payload_type for event_type, codec in _by_type.items()}


def payload_from_map(event_type: str, data: object) -> EventData:
    """The payload of an event of ``event_type`` with the map ``data``; an unknown type keeps its map.

    Raises ``DecodeError`` naming the event type, the field and what was found.
    """
    codec = _by_type.get(event_type)
    if codec is None:
        return UnknownPayload.of(event_type, data)
    if not isinstance(data, Mapping):
        raise DecodeError(f"{event_type}: data must be a map, found {describe(data)}")
    return codec.payload_type.from_map(data)


def decode_payload(event_type: str, text: str | bytes) -> EventData:
    """The payload whose JSON text ``encode_payload`` wrote, or another release, or another program by hand.

    Raises ``DecodeError`` naming the event type, the field and what was found.
    """
    codec = _by_type.get(event_type)
    if codec is not None:
        try:
            return codec.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass  # not as we write it: read it by the lenient rules, which name the field if those fail too
    try:
        data = decode_json(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"{event_type}: data is not JSON: {error}") from error
    return payload_from_map(event_type, data)


def encode_payload(data: EventData) -> tuple[bytes, EventData]:
    """The payload's checked JSON, and an equal payload that shares nothing mutable with ``data``.

    That is ``data`` itself when nothing in it is mutable. Otherwise it is read back from the JSON, which is also the
    check: what was just written decodes to what was given, so it will decode again later. Raises ``InvalidEvent``
    naming the field.
    """
    codec = _by_class.get(type(data))
    if codec is None:
        return _encode_unregistered(data)
    shape = tuple(map(type, astuple(data)))
    if shape in codec.proven:
        for name in codec.integers:
            if not _INT64_MIN <= getattr(data, name) <= _INT64_MAX:
                break
        else:
            try:
                return encode_json(data), data
            except UnicodeEncodeError as error:
                raise _invalid(data, error) from error
    for name in codec.free_form:
        value = getattr(data, name)
        if value is not None:
            _check_free_form(value, f"data.{name}")
    try:
        text = encode_json(data)
        owned = codec.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _invalid(data, error) from error
    if owned != data:
        owned = _check_types(data, owned)
    elif _SCALARS.issuperset(shape):
        codec.proven.add(shape)
    return text, owned


def _encode_unregistered(data: EventData) -> tuple[bytes, EventData]:
    if not isinstance(data, UnknownPayload):
        raise InvalidEvent(
            f"{describe(data)} is not a registered payload: register its class with register_payload", field="data"
        )
    if not isinstance(data.type, str) or not data.type or data.type in _by_type:
        raise InvalidEvent(
            f"an UnknownPayload stands for a type that has no payload of its own, found {describe(data.type)}",
            field="type",
        )
    if not isinstance(data.data, Mapping):
        raise InvalidEvent(f"{data.type}: data must be a map, found {describe(data.data)}", field="data")
    try:
        owned = cast("Mapping[str, JsonValue]", own_json(data.data))
        check_text(data.type, "")
    except NotJson as error:
        raise InvalidEvent(f"{data.type!r}: data{error.path} {error}", field=f"data{error.path}") from error
    return encode_json(owned), UnknownPayload(type=data.type, data=owned)


def _check_free_form(value: object, field: str) -> None:
    """Refuse what msgspec would write as something else: NaN as null, a key 1 as ``"1"``, a set as an array."""
    if isinstance(value, msgspec.Struct):
        for inner in fields_of(type(value)):
            inner_value = getattr(value, inner.name)
            if inner_value is not None:
                _check_free_form(inner_value, f"{field}.{inner.name}")
        return
    if isinstance(value, (Mapping, list, tuple, set, frozenset, float, str)):
        try:
            own_json(value)
        except NotJson as error:
            raise InvalidEvent(f"{field}{error.path} {error}", field=f"{field}{error.path}") from error


def _check_types(data: EventData, owned: EventData) -> EventData:
    """Accept what differs only in form (a list for a tuple, an enum for its text); refuse another type, naming it."""
    for field in msgspec.structs.fields(type(data)):
        given, read = getattr(data, field.name), getattr(owned, field.name)
        if given == read:
            continue
        same = type(given) is not type(read) and _plain(given) == _plain(read)
        if isinstance(given, (bytes, bytearray, memoryview)) is not isinstance(read, bytes) or not same:
            raise InvalidEvent(
                f"{data.event_type} field {field.name!r} cannot be stored: {describe(given)} would come back as "
                f"{describe(read)}",
                field=f"data.{field.name}",
            )
    return owned


def _plain(value: object) -> JsonValue:
    plain: JsonValue = msgspec.to_builtins(value)
    return own_json(plain)


def _invalid(data: EventData, error: Exception) -> InvalidEvent:
    """Name the field that could not be written; the encoder itself only says why."""
    for field in msgspec.structs.fields(type(data)):
        value = getattr(data, field.name)
        where = f"data.{field.name}"
        if isinstance(value, str):
            try:
                check_text(value, "")
            except NotJson as not_json:
                return InvalidEvent(f"{data.event_type} field {field.name!r} {not_json}", field=where)
        try:
            msgspec.convert(msgspec.to_builtins(value, builtin_types=(bytes,)), type=field.type)
        except (msgspec.MsgspecError, TypeError, ValueError) as reason:
            return InvalidEvent(
                f"{data.event_type} field {field.name!r} cannot be stored: {reason}; found {describe(value)}",
                field=where,
            )
    return InvalidEvent(f"{data.event_type}: cannot be stored: {error}", field="data")


for _builtin in (
    UserMessage,
    AssistantMessage,
    SystemMessage,
    ToolCall,
    ToolResult,
    Thinking,
    PlannerNote,
    RetryHint,
    Annotation,
    Redacted,
    Redaction,
):
    register_payload(_builtin)
