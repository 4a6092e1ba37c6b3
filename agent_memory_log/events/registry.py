"""Which payload stands for which event type, and a payload's way to checked JSON and back.

Built-in payloads are registered here; ``register_payload`` adds others, which then behave like built-in ones in every
store, in the reader, in JSONL and on the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, get_type_hints

import msgspec
from msgspec.structs import astuple, replace

from agent_memory_log.errors import DecodeError, InvalidArgument, InvalidEvent
from agent_memory_log.events.fields import (
    Int64,
    JsonText,
    describe,
    fields_of,
    is_int64,
    is_nullable,
    without_none,
)
from agent_memory_log.events.jsonvalue import NotJson, check_text, decode_json, encode_json
from agent_memory_log.events.payloads import BUILT_IN, RESERVED_TYPES, EventData, UnknownPayload
from agent_memory_log.events.reserved import is_reserved_type
from agent_memory_log.events.writing import checks_of, read_back

_Payload = TypeVar("_Payload", bound=EventData)

# In pairs, because an annotation need not be hashable.
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
    """One payload type's way to checked JSON and back."""

    __slots__ = ("_integers", "_proven", "_scalars", "decode", "payload_type", "verbatim", "verbatim_key")

    def __init__(self, payload_type: type[EventData]) -> None:
        self.payload_type = payload_type
        self.decode: Callable[[str | bytes], EventData] = msgspec.json.Decoder(payload_type).decode
        fields_of(payload_type)
        checks_of(payload_type)
        hints = get_type_hints(payload_type, include_extras=True)
        fields = msgspec.structs.fields(payload_type)
        self.verbatim = payload_type.__verbatim__
        self.verbatim_key = next((field.encode_name for field in fields if field.name == self.verbatim), None)
        scalars = tuple(_scalars_of(hints[field.name]) for field in fields)
        self._integers = tuple(field.name for field, kinds in zip(fields, scalars, strict=True) if int in kinds)
        # For each field the types that are scalars; nothing where a field has none, or the payload can be changed.
        self._scalars = scalars if all(scalars) and payload_type.__struct_config__.frozen else ()
        # Combinations of value types, all of them scalars, that were read back once.
        self._proven: set[tuple[type, ...]] = set()

    def reads_back_as_itself(self, data: EventData) -> bool:
        """Whether ``data`` holds nothing but scalars, of a combination of types that was read back before.

        Reading back every payload makes an append of a hundred events take a tenth more time.
        """
        if not self._proven or tuple(map(type, astuple(data))) not in self._proven:
            return False
        for name in self._integers:  # noqa: SIM110  # faster than all(), and most payloads pass here
            if not is_int64(getattr(data, name) or 0):
                return False
        return True

    def read_back(self, data: EventData) -> EventData:
        """See ``writing.read_back``."""
        owned = read_back(data, self.decode, data.event_type)
        if self._scalars:
            shape = tuple(map(type, astuple(data)))
            if all(kind in kinds for kind, kinds in zip(shape, self._scalars, strict=True)):
                self._proven.add(shape)
        return owned


def _scalars_of(hint: object) -> frozenset[type]:
    """The types of a field's values that are immutable, and whose JSON decodes to what is equal to them."""
    inner = without_none(hint)
    none = {type(None)} if is_nullable(hint) else set[type]()
    return frozenset({kind for annotation, kind in _SCALARS if annotation == inner} | none)


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
    registered = _by_type.get(event_type)
    if registered is not None and (registered.payload_type.__module__, registered.payload_type.__qualname__) != (
        payload_type.__module__,
        name,
    ):
        raise InvalidArgument(
            f"the event type {event_type!r} already stands for {registered.payload_type.__qualname__}"
        )
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

    The equal payload is ``data`` itself when all in it is a scalar. Otherwise it is read back from the JSON, which is
    also the check: what was just written decodes to what was given, so it will decode again later. Raises
    ``InvalidEvent`` naming the field.
    """
    codec = _by_class.get(type(data))
    if codec is None:
        unknown = _own_unregistered(data)
        return encode_json(unknown.data), None, unknown
    if codec.reads_back_as_itself(data):
        try:
            return _in_parts(data, codec)
        except UnicodeEncodeError:
            pass  # a lone surrogate: reading back names the field
    return _in_parts(codec.read_back(data), codec)


def _in_parts(data: EventData, codec: _Codec) -> tuple[bytes, str | None, EventData]:
    field = codec.verbatim
    verbatim: str = getattr(data, field) if field else ""
    if not field or not verbatim:
        return encode_json(data), None, data
    if not verbatim.isascii():
        verbatim.encode()
    return encode_json(replace(data, **{field: ""})), verbatim, data


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


for _payload_type in BUILT_IN:
    register_payload(_payload_type)
