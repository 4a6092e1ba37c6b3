"""Which payload stands for which event type, and a payload's way to checked JSON and back.

Built-in payloads are registered here; ``register_payload`` adds others, which then behave like built-in ones in every
store, in the reader, in JSONL and on the command line.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast, get_type_hints

import msgspec
from msgspec.structs import astuple, replace

from agent_memory_log.errors import DecodeError, InvalidArgument, InvalidEvent
from agent_memory_log.events.encodable import check_struct, checks_of
from agent_memory_log.events.fields import describe, fields_of
from agent_memory_log.events.jsonvalue import NotJson, check_text, decode_json, encode_json, plain_form
from agent_memory_log.events.payloads import (
    RESERVED_TYPES,
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
from agent_memory_log.events.unchanging import field_of, is_flat_text

_Payload = TypeVar("_Payload", bound=EventData)

_MAPS: tuple[object, ...] = (Mapping[str, Any], dict[str, Any])


class _Codec:
    """One payload type's way to checked JSON and back."""

    __slots__ = ("decode", "looks", "maps", "payload_type", "proven", "safe", "verbatim", "verbatim_key")

    def __init__(self, payload_type: type[EventData]) -> None:
        self.payload_type = payload_type
        self.decode: Callable[[str | bytes], EventData] = msgspec.json.Decoder(payload_type).decode
        fields_of(payload_type)
        checks_of(payload_type)
        hints = get_type_hints(payload_type, include_extras=True)
        fields = msgspec.structs.fields(payload_type)
        # Combinations of value types that were read back once, and always will be what they are, after a look.
        self.proven: set[tuple[type, ...]] = set()
        frozen = payload_type.__struct_config__.frozen
        known = [(field.name, field_of(hints[field.name])) for field in fields]
        # A map can be changed, and is copied where it holds text alone, else read back.
        self.maps = tuple(field.name for field in fields if hints[field.name] in _MAPS)
        self.looks = tuple((name, one.look) for name, one in known if one.look is not None)
        self.safe = tuple(
            frozenset[type]() if not frozen else frozenset({dict}) if name in self.maps else one.types
            for name, one in known
        )
        self.verbatim = payload_type.__verbatim__
        self.verbatim_key = next((field.encode_name for field in fields if field.name == self.verbatim), None)

    def without_verbatim(self, data: EventData) -> EventData:
        """The payload less its JSON text."""
        return replace(data, **{self.verbatim or "": ""})

    def is_safe(self, shape: tuple[type, ...]) -> bool:
        """Whether payloads with values of these types need no more than a look, once one was read back."""
        return all(kind in kinds for kind, kinds in zip(shape, self.safe, strict=True))

    def own(self, data: EventData) -> EventData | None:
        """A payload of a proven shape, sharing nothing mutable with ``data``; None where it must be read back."""
        for name, look in self.looks:
            if not look(getattr(data, name)):
                return None
        if not self.maps:
            return data
        maps = {name: cast("dict[object, object]", getattr(data, name)) for name in self.maps}
        if not all(map(is_flat_text, maps.values())):
            return None
        return replace(data, **{name: value.copy() for name, value in maps.items()})


_by_type: dict[str, _Codec] = {}
_by_class: dict[type[EventData], _Codec] = {}


def register_payload(payload_type: type[_Payload]) -> type[_Payload]:
    """Make ``payload_type`` stand for events of its ``event_type``; usable as a class decorator.

    The class is a subclass of ``EventData`` with a non-empty ``event_type`` that is neither built in nor reserved;
    those that begin with ``memory_`` are. Registering the same class again, or a reloaded version of it, replaces it.
    Events of the type that were read before keep their ``UnknownPayload``; ``decode_event`` reads those too. Raises
    ``InvalidArgument``.

        @register_payload
        class Handoff(EventData, frozen=True):
            event_type = "handoff"
            to_agent: str
            reason: str = ""
    """
    return _register(payload_type, reserved=False)


def register_own_payload(payload_type: type[_Payload]) -> type[_Payload]:
    """``register_payload`` for this library's own payloads, whose types are reserved."""
    return _register(payload_type, reserved=True)


def _register(payload_type: type[_Payload], *, reserved: bool) -> type[_Payload]:
    if not (isinstance(payload_type, type) and issubclass(payload_type, EventData)):
        raise InvalidArgument(f"{describe(payload_type)} must be a subclass of EventData to be registered")
    name = payload_type.__qualname__
    event_type = payload_type.event_type
    if not isinstance(event_type, str) or not event_type:
        raise InvalidArgument(f"{name} needs a class attribute event_type with the text that stands for it")
    event_type = str.__str__(event_type)
    try:
        check_text(event_type, "")
    except NotJson as error:
        raise InvalidArgument(f"the event type {event_type!r} of {name} {error}") from error
    if payload_type.__struct_config__.array_like:
        raise InvalidArgument(f"{name} is array_like, but a payload is stored as a map")
    if not reserved and (event_type in RESERVED_TYPES or is_reserved_type(event_type)):
        raise InvalidArgument(f"the event type {event_type!r} is reserved for this library: choose another one")
    known = _by_type.get(event_type)
    if known is not None and (known.payload_type.__module__, known.payload_type.__qualname__) != (
        payload_type.__module__,
        name,
    ):
        raise InvalidArgument(f"the event type {event_type!r} already stands for {known.payload_type.__qualname__}")
    try:
        codec = _Codec(payload_type)
    except (TypeError, NameError) as error:  # a NameError is an annotation that names nothing
        raise InvalidArgument(f"{name} has a field that JSON text cannot be decoded to: {error}") from error
    if type(payload_type.event_type) is not str:
        payload_type.event_type = event_type  # an enum's member has another str(), and not every driver takes one
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
    return codec.payload_type.from_map(cast("Mapping[str, object]", data))


def decode_payload(event_type: str, text: str | bytes) -> EventData:
    """The payload whose JSON text ``encode_payload`` wrote, or another release, or another program by hand.

    Raises ``DecodeError`` naming the event type, the field and what was found.
    """
    codec = _by_type.get(event_type)
    if codec is not None:
        try:
            return codec.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            pass  # not as we write it: read it by the lenient rules, which name the field if those fail too
    try:
        data = decode_json(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise DecodeError(f"{event_type}: data is not JSON: {error}") from error
    return payload_from_map(event_type, data)


def decode_parts(event_type: str, text: str | bytes, verbatim: str | None) -> EventData:
    """The payload whose parts ``encode_parts`` gave. Raises ``DecodeError``."""
    payload = decode_payload(event_type, text)
    if verbatim is None:
        return payload
    field = payload.__verbatim__
    if field is None or type(verbatim) is not str:
        raise DecodeError(f"{event_type}: has no field for the text kept beside its data, found {describe(verbatim)}")
    return replace(payload, **{field: verbatim})


def decode_map(event_type: str, data: dict[str, Any]) -> EventData:
    """The payload of a map whose values are as JSON has them, as a store of documents gives it back.

    It may come to share what is mutable in ``data``. Raises ``DecodeError`` naming the event type, the field and what
    was found.
    """
    codec = _by_type.get(event_type)
    if codec is not None:
        try:
            return msgspec.convert(data, codec.payload_type, str_keys=True)
        except (msgspec.ValidationError, RecursionError):
            pass  # not as we write it: see decode_payload
    return payload_from_map(event_type, data)


def verbatim_key(event_type: str) -> str | None:
    """The key, in the payload's map, of the text that ``encode_parts`` gives beside the JSON; None if it has none."""
    codec = _by_type.get(event_type)
    return None if codec is None else codec.verbatim_key


def encode_payload(data: EventData) -> tuple[bytes, EventData]:
    """The payload's checked JSON, and an equal payload that shares nothing mutable with ``data``.

    Raises ``InvalidEvent`` naming the field.
    """
    text, verbatim, owned = encode_parts(data)
    return (text if verbatim is None else encode_json(owned)), owned


def encode_parts(data: EventData) -> tuple[bytes, str | None, EventData]:
    """``encode_payload`` in parts: the JSON less the payload's JSON text, and that text as it is (None: it has none).

    JSON text inside JSON is all escapes: kept beside it, it is smaller, and an exact copy.

    The equal payload is ``data`` itself when nothing in it is mutable. Otherwise it is read back from the JSON, which
    is also the check: what was just written decodes to what was given, so it will decode again later. Raises
    ``InvalidEvent`` naming the field.
    """
    codec = _by_class.get(type(data))
    if codec is not None and tuple(map(type, astuple(data))) in codec.proven:
        owned = codec.own(data)
        if owned is not None:
            try:
                return _in_parts(owned, codec)
            except UnicodeEncodeError:
                pass  # the field is named below
    if codec is None:
        unknown = _own_unregistered(data)
        return encode_json(unknown.data), None, unknown
    return _in_parts(_read_back(data, codec), codec)


def _in_parts(data: EventData, codec: _Codec) -> tuple[bytes, str | None, EventData]:
    verbatim: str = getattr(data, codec.verbatim) if codec.verbatim else ""
    if not verbatim:
        return encode_json(data), None, data
    if not verbatim.isascii():
        verbatim.encode()
    return encode_json(codec.without_verbatim(data)), verbatim, data


def _read_back(data: EventData, codec: _Codec) -> EventData:
    """An equal payload, sharing nothing mutable with ``data``, after a look at each of its values."""
    try:
        check_struct(data, "data")
    except NotJson as error:
        raise InvalidEvent(f"{data.event_type}: {error.path} {error}", field=error.path) from error
    try:
        owned = codec.decode(encode_json(data))
    except Exception as error:
        raise _invalid(data, error) from error
    if not _equal(owned, data):
        _check_forms(data, owned, "data", data.event_type)
        return owned
    shape = tuple(map(type, astuple(data)))
    if codec.is_safe(shape):
        codec.proven.add(shape)
    return owned


def _own_unregistered(data: EventData) -> UnknownPayload:
    if not isinstance(data, UnknownPayload):
        raise InvalidEvent(
            f"{describe(data)} is not a registered payload: register its class with register_payload", field="data"
        )
    if not isinstance(data.type, str) or not data.type or data.type in _by_type:
        raise InvalidEvent(
            f"an UnknownPayload stands for a type that has no payload of its own, found {describe(data.type)}",
            field="type",
        )
    event_type = str.__str__(data.type)
    try:
        check_text(event_type, "")
    except NotJson as error:
        raise InvalidEvent(f"the event type {event_type!r} {error}", field="type") from error
    return UnknownPayload(type=event_type, data=data.to_map())


def _equal(owned: EventData, data: EventData) -> bool:
    try:
        return owned == data
    except Exception:  # noqa: BLE001  # a value of a caller's own class may raise anything when it is compared
        return False


def _check_forms(given: msgspec.Struct, read: msgspec.Struct, where: str, event_type: str) -> None:
    """Accept what differs only in form (a list for a tuple, an enum for its text); refuse anything else, naming it."""
    for name in read.__struct_fields__:
        value, back = getattr(given, name), getattr(read, name)
        place = f"{where}.{name}"
        if isinstance(back, msgspec.Struct) and type(value) is type(back):
            _check_forms(value, back, place, event_type)
        elif not _same(value, back):
            raise InvalidEvent(
                f"{event_type}: {place} cannot be stored: {describe(value)} would come back as {describe(back)}",
                field=place,
            )


def _same(given: object, read: object) -> bool:
    """Whether a value and what was read back are one value: in equal types, or in another form of the same."""
    if isinstance(given, enum.Enum) is not isinstance(read, enum.Enum):
        given = given.value if isinstance(given, enum.Enum) else given
        read = read.value if isinstance(read, enum.Enum) else read
    if isinstance(read, Mapping) and isinstance(given, Mapping):
        given_map = _plain_keys(cast("Mapping[object, object]", given))
        read_map = _plain_keys(cast("Mapping[object, object]", read))
        return given_map.keys() == read_map.keys() and all(_same(given_map[key], read_map[key]) for key in read_map)
    if isinstance(read, (list, tuple)) and isinstance(given, (list, tuple)):
        given_items, read_items = cast("Sequence[object]", given), cast("Sequence[object]", read)
        return len(given_items) == len(read_items) and all(map(_same, given_items, read_items))
    if isinstance(read, msgspec.Struct) and type(given) is type(read):
        return all(_same(getattr(given, name), getattr(read, name)) for name in read.__struct_fields__)
    # Numbers may stand for each other where they are equal; a boolean and a number may not, nor text and a date.
    if isinstance(given, bool) is not isinstance(read, bool):
        return False
    return _plain(cast("Any", given)) == _plain(cast("Any", read))


def _plain_keys(value: Mapping[object, object]) -> dict[object, object]:
    return {_plain(key): item for key, item in value.items()}


def _plain(value: object) -> object:
    """A subclass of text or of a number as that itself, because its ``==`` may be another."""
    return plain_form(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else value


def _invalid(data: EventData, error: Exception) -> InvalidEvent:
    """Name the field that could not be written; the encoder itself only says why."""
    place, value, reason = _blame(data, error, "data")
    return InvalidEvent(f"{data.event_type}: {place} cannot be stored: {reason}; found {describe(value)}", field=place)


def _blame(struct: msgspec.Struct, error: Exception, where: str) -> tuple[str, object, Exception]:
    for field in msgspec.structs.fields(type(struct)):
        value = getattr(struct, field.name)
        place = f"{where}.{field.name}"
        try:
            if isinstance(value, str):
                check_text(value, "")
            read: object = msgspec.json.decode(encode_json(value), type=field.type)
            _ = read == value
        except Exception as reason:  # noqa: BLE001  # see encode_payload
            return _blame(value, reason, place) if isinstance(value, msgspec.Struct) else (place, value, reason)
    return where, struct, error


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
    ModelRequest,
):
    register_payload(_builtin)
