"""The kinds of memory: what a record is about, apart from the envelope that all records share.

A kind is a frozen struct, registered as payloads are; the map of a kind that is not registered survives as an
``UnknownKind``. To add one of the library's own: a class here, its row at the end.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar, TypeVar, cast

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, check_text, encode_canonical, own_map

_Kind = TypeVar("_Kind", bound="RecordData")


MEMORY_TYPES = ("semantic", "episodic", "procedural")
"""What a memory may be: what is true, what happened, how something is done."""


class RecordData(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base of every kind.

    - ``kind``: the name it is stored under.
    - ``memory_type``: ``semantic``, ``episodic`` or ``procedural``: what its records are unless they say otherwise.
    - ``default_ttl_days``, ``max_ttl_days``: how long a record is valid where nothing is said, and at most, in days
      (None: for ever).

    A kind whose ``record_key`` is not empty is *keyed*: a subject holds one active record for each key.
    """

    kind: ClassVar[str] = ""
    memory_type: ClassVar[str] = "semantic"
    default_ttl_days: ClassVar[int | None] = None
    max_ttl_days: ClassVar[int | None] = None

    @property
    def record_key(self) -> str:
        """What the record is found by; ``""`` where the kind has no keys."""
        return ""

    @property
    def record_value(self) -> str:
        """What is remembered under the key; ``""`` where the kind has no keys."""
        return ""

    def describe(self) -> str:
        """The record's text where none was given."""
        return ""

    def same_as(self, other: RecordData) -> bool:
        """Whether both say the same, whatever the case and the white space of their texts."""
        return type(other) is type(self) and _folded(self.to_map()) == _folded(other.to_map())

    def to_map(self) -> dict[str, JsonValue]:
        """The map it is stored as, sharing nothing with it. Raises ``InvalidArgument`` naming the field."""
        try:
            return own_map(cast("dict[str, object]", msgspec.to_builtins(self, str_keys=True)))
        except NotJson as error:
            raise InvalidArgument(f"{type(self).__name__}{error.path} {error}") from error
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgument(f"{type(self).__name__} cannot be stored: {error}") from error


class _Keyed(RecordData, frozen=True):
    key: str
    value: str

    @property
    def record_key(self) -> str:
        """The key as it was given, without white space around it."""
        return self.key.strip()

    @property
    def record_value(self) -> str:
        """The value."""
        return self.value

    def describe(self) -> str:
        """``language: english``."""
        return f"{self.record_key}: {self.value}"

    def same_as(self, other: RecordData) -> bool:
        """Whether key and value are the same, whatever their case and white space."""
        return (
            type(other) is type(self)
            and isinstance(other, _Keyed)
            and fold_key(other.key) == fold_key(self.key)
            and fold_text(other.value) == fold_text(self.value)
        )


class Preference(_Keyed, frozen=True):
    """How the user wants things: ``key`` and ``value``. Valid for 1 to 365 days, 180 where nothing is said."""

    kind = "preference"
    default_ttl_days = 180
    max_ttl_days = 365


class Fact(_Keyed, frozen=True):
    """Something about the user: ``key`` and ``value``. Valid for ever, unless said otherwise."""

    kind = "fact"


class Episode(RecordData, frozen=True):
    """Something that happened; the record's text says what.

    - ``category``: ``task_result``, ``user_feedback``, ``error``, ``discovery``; any text survives.
    - ``occurred_at``: when, timezone-aware (None: not known).

    Valid for ever; ``cleanup`` archives what is old and of little importance.
    """

    kind = "episode"
    memory_type = "episodic"

    category: str
    occurred_at: datetime | None = None


class UnknownKind(RecordData, frozen=True):
    """A record of a kind that is not registered here: ``name`` is the kind, ``data`` its map, kept unchanged."""

    name: str
    data: Mapping[str, JsonValue]

    @property
    def kind(self) -> str:  # type: ignore[override]  # the one kind whose name differs from record to record
        """The kind's name."""
        return self.name

    @property
    def record_key(self) -> str:
        """What stands under ``key``, where that is text."""
        key = self.data.get("key")
        return key.strip() if isinstance(key, str) else ""

    @property
    def record_value(self) -> str:
        """What stands under ``value``, where that is text."""
        value = self.data.get("value")
        return value if isinstance(value, str) else ""

    def to_map(self) -> dict[str, JsonValue]:
        """A new map, equal to the one that was read."""
        try:
            return own_map(self.data)
        except (NotJson, AttributeError) as error:
            raise InvalidArgument(f"the data of a {self.name!r} cannot be stored: {error}") from error


_kinds: dict[str, type[RecordData]] = {}


def register_kind(kind: type[_Kind]) -> type[_Kind]:
    """Make ``kind`` stand for records of its name; usable as a class decorator.

    Registering the same class again, or a reloaded version of it, replaces it. Raises ``InvalidArgument``.

        @register_kind
        class Procedure(RecordData, frozen=True):
            kind = "procedure"
            steps: tuple[str, ...]
    """
    if not (isinstance(kind, type) and issubclass(kind, RecordData)) or issubclass(kind, UnknownKind):
        raise InvalidArgument(f"{describe(kind)} must be a subclass of RecordData to be registered")
    name = kind.kind
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{kind.__qualname__} needs a class attribute kind with the name that stands for it")
    try:
        check_text(name, "")
    except NotJson as error:
        raise InvalidArgument(f"the kind {name!r} of {kind.__qualname__} {error}") from error
    if kind.memory_type not in MEMORY_TYPES:
        raise InvalidArgument(f"the memory_type of {kind.__qualname__} must be one of {', '.join(MEMORY_TYPES)}")
    known = _kinds.get(name)
    if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise InvalidArgument(f"the kind {name!r} already stands for {known.__qualname__}")
    if not kind.__struct_config__.frozen or kind.__struct_config__.array_like:
        raise InvalidArgument(f"{kind.__qualname__} must be frozen, and is stored as a map")
    try:
        msgspec.json.Decoder(kind)
    except (TypeError, NameError) as error:  # a NameError is an annotation that names nothing
        raise InvalidArgument(f"{kind.__qualname__} has a field that JSON cannot be decoded to: {error}") from error
    _kinds[name] = kind
    return kind


def kinds() -> dict[str, type[RecordData]]:
    """The registered kinds by name."""
    return dict(_kinds)


def kind_named(name: str) -> type[RecordData] | None:
    """The class that stands for ``name``; None where none is registered."""
    return _kinds.get(name)


def read_kind(name: str, data: Mapping[str, JsonValue]) -> RecordData:
    """The data of a stored record. What its kind cannot read, as a newer release may have written, stays a map."""
    kind = _kinds.get(name)
    if kind is not None:
        try:
            return msgspec.convert(data, kind, str_keys=True)
        except (msgspec.ValidationError, ValueError, TypeError, RecursionError):
            pass
    return UnknownKind(name, data)


def fold_key(key: str) -> str:
    """The form in which keys are compared: without white space around it, case-folded, accents in one spelling."""
    return _caseless(key.strip())


def fold_keys(keys: Iterable[str]) -> frozenset[str]:
    """The keys folded. Keys that are empty once folded are left out."""
    return frozenset(folded for key in keys if (folded := fold_key(key)))


def fold_text(text: str) -> str:
    """The form in which values are compared: as keys are, any run of white space one space."""
    return _caseless(" ".join(text.split()))


def _caseless(text: str) -> str:
    """The same for texts that differ in case, or in whether an accent is a character of its own: Unicode's D145."""
    if text.isascii():
        return text.casefold()
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())


def _folded(value: Mapping[str, JsonValue]) -> bytes:
    return encode_canonical(_fold(value))


def _fold(value: Any) -> Any:  # noqa: ANN401  # any JSON value, and what becomes of it
    if isinstance(value, str):
        return fold_text(value)
    if isinstance(value, dict):
        return {key: _fold(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_fold(item) for item in cast("list[object]", value)]
    return value


for _builtin in (Preference, Fact, Episode):
    register_kind(_builtin)
