"""The kinds of memory. A kind defines the content of a record; the envelope has the fields that all records share.

A kind is a registered, frozen struct. The content of an unregistered kind is preserved as an ``UnknownKind``. To add a
built-in kind, add a class here and register it at the end of the module.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal, TypeVar, cast

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, check_text, encode_canonical, own_map

_Kind = TypeVar("_Kind", bound="RecordData")


MEMORY_TYPES = ("semantic", "episodic", "procedural")
"""The types of memory: true statements, events that happened, and ways to do something."""


class RecordData(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base class of every kind.

    A kind whose ``record_key`` is not empty is *keyed*: a subject has at most one active record for each key.

    Attributes:
        kind: The name that the kind is stored under.
        memory_type: The default type of its records: ``semantic``, ``episodic`` or ``procedural``.
        default_ttl_days: The default lifetime of a record, in days. None: for ever.
        ages: Whether ``maintain`` may archive or consolidate its records when they are old and unused.
    """

    kind: ClassVar[str] = ""
    memory_type: ClassVar[str] = "semantic"
    default_ttl_days: ClassVar[int | None] = None
    ages: ClassVar[bool] = True

    @property
    def record_key(self) -> str:
        """The key of the record, or ``""`` if the kind has no keys."""
        return ""

    @property
    def record_value(self) -> str:
        """The value under the key, or ``""`` if the kind has no keys."""
        return ""

    def describe(self) -> str:
        """Return the record's default text."""
        return ""

    def same_as(self, other: RecordData) -> bool:
        """Return whether both have the same content, ignoring the case and the white space of their texts."""
        return type(other) is type(self) and _folded(self.to_map()) == _folded(other.to_map())

    def to_map(self) -> dict[str, JsonValue]:
        """Return the map to store, as a deep copy. Raises ``InvalidArgument`` with the field's name."""
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
        """The key without white space around it."""
        return self.key.strip()

    @property
    def record_value(self) -> str:
        """The value."""
        return self.value

    def describe(self) -> str:
        """Return key and value as text, such as ``language: english``."""
        return f"{self.record_key}: {self.value}"

    def same_as(self, other: RecordData) -> bool:
        """Return whether key and value are the same, ignoring case and white space."""
        return (
            type(other) is type(self)
            and isinstance(other, _Keyed)
            and fold_key(other.key) == fold_key(self.key)
            and fold_text(other.value) == fold_text(self.value)
        )


class Preference(_Keyed, frozen=True):
    """A wish of the user, as ``key`` and ``value``. By default it never expires; see ``MemoryPolicy``."""

    kind = "preference"


class Fact(_Keyed, frozen=True):
    """A fact about the user, as ``key`` and ``value``. By default it never expires."""

    kind = "fact"


class Episode(RecordData, frozen=True):
    """An event that happened. The record's text describes it.

    An episode never expires. ``maintain`` archives or consolidates old episodes.

    Attributes:
        category: ``task_result``, ``user_feedback``, ``error``, ``discovery`` or any other text.
        occurred_at: The time of the event, timezone-aware. None: unknown.
    """

    kind = "episode"
    memory_type = "episodic"

    category: str
    occurred_at: datetime | None = None


class Consent(RecordData, frozen=True):
    """The consent of a user to memories of a kind, or to one key of a kind.

    ``ask_consent``, ``give_consent`` and ``withdraw_consent`` write it. It is never archived or forgotten.

    Attributes:
        about_kind: The kind of memory.
        about_key: The key, or ``""`` for all records of the kind.
        status: ``asked``, ``given`` or ``withdrawn``. Only ``given`` allows a memory.
    """

    kind = "consent"
    ages = False

    about_kind: str
    about_key: str = ""
    status: Literal["asked", "given", "withdrawn"] = "asked"

    @property
    def record_key(self) -> str:
        """The kind, in which ``/`` is escaped, and the key after a ``/``."""
        return f"{self.about_kind.replace('%', '%25').replace('/', '%2F')}/{self.about_key.strip()}"

    @property
    def record_value(self) -> str:
        """The status."""
        return self.status

    def describe(self) -> str:
        """Return the consent in words."""
        about = f"the {self.about_kind} {self.about_key}" if self.about_key else f"every {self.about_kind}"
        return f"consent to remember {about}: {self.status}"


class Note(RecordData, frozen=True):
    """A free statement without a key. The record's text is the statement."""

    kind = "note"


class Relation(RecordData, frozen=True):
    """A relation between two things, such as ``Relation("Ana", "works_at", "Acme")``. It needs no text.

    The validity of its record is the time in which the relation holds. It may lie in the past. A subject or object is
    the same thing as another one with the same ``alias_key``.

    Attributes:
        subject: The name of the first thing.
        predicate: The relation.
        object: The name of the second thing.
    """

    kind = "relation"

    subject: str
    predicate: str
    object: str

    def describe(self) -> str:
        """Return the relation as text, such as ``Ana works at Acme``."""
        return f"{self.subject} {self.predicate.replace('_', ' ')} {self.object}"


class UnknownKind(RecordData, frozen=True):
    """The content of an unregistered kind: ``name`` is the kind and ``data`` its unchanged map."""

    name: str
    data: Mapping[str, JsonValue]

    @property
    def kind(self) -> str:  # type: ignore[override]  # the one kind whose name differs from record to record
        """The kind's name."""
        return self.name

    @property
    def record_key(self) -> str:
        """The text under ``key``, or ``""`` if there is no such text."""
        key = self.data.get("key")
        return key.strip() if isinstance(key, str) else ""

    @property
    def record_value(self) -> str:
        """The text under ``value``, or ``""`` if there is no such text."""
        value = self.data.get("value")
        return value if isinstance(value, str) else ""

    def to_map(self) -> dict[str, JsonValue]:
        """Return a copy of the map."""
        try:
            return own_map(self.data)
        except (NotJson, AttributeError) as error:
            raise InvalidArgument(f"the data of the kind {self.name!r} cannot be stored: {error}") from error


_kinds: dict[str, type[RecordData]] = {}


def register_kind(kind: type[_Kind]) -> type[_Kind]:
    """Register the class of a kind, so that its records are read as this class. Works as a class decorator.

        @register_kind
        class Procedure(RecordData, frozen=True):
            kind = "procedure"
            steps: tuple[str, ...]

    Registering the same class again, or a reloaded version of it, replaces the old one. Raises ``InvalidArgument`` if
    the class is not a frozen ``RecordData`` that JSON can store, or if another class has the name.
    """
    if not (isinstance(kind, type) and issubclass(kind, RecordData)) or issubclass(kind, UnknownKind):
        raise InvalidArgument(f"{describe(kind)} must be a subclass of RecordData to be registered")
    name = kind.kind
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{kind.__qualname__} needs a class attribute kind with the name of the kind")
    try:
        check_text(name, "")
    except NotJson as error:
        raise InvalidArgument(f"the kind {name!r} of {kind.__qualname__} {error}") from error
    if kind.memory_type not in MEMORY_TYPES:
        raise InvalidArgument(f"the memory_type of {kind.__qualname__} must be one of {', '.join(MEMORY_TYPES)}")
    registered = _kinds.get(name)
    if registered is not None and (registered.__module__, registered.__qualname__) != (
        kind.__module__,
        kind.__qualname__,
    ):
        raise InvalidArgument(f"the kind {name!r} is already registered for {registered.__qualname__}")
    if not kind.__struct_config__.frozen or kind.__struct_config__.array_like:
        raise InvalidArgument(
            f"{kind.__qualname__} must be frozen and must not be array_like, because it is stored as a map"
        )
    try:
        msgspec.json.Decoder(kind)
    except (TypeError, NameError) as error:  # a NameError means that an annotation has an unknown name
        raise InvalidArgument(f"{kind.__qualname__} has a field that JSON cannot represent: {error}") from error
    _kinds[name] = kind
    return kind


def kinds() -> dict[str, type[RecordData]]:
    """Return the registered kinds by name."""
    return dict(_kinds)


def kind_named(name: str) -> type[RecordData] | None:
    """Return the class that is registered for ``name``, or None."""
    return _kinds.get(name)


def read_kind(name: str, data: Mapping[str, JsonValue]) -> RecordData:
    """Return the data of a stored record. Return an ``UnknownKind`` if its kind is unregistered or cannot read it."""
    kind = _kinds.get(name)
    if kind is not None:
        try:
            return msgspec.convert(data, kind, str_keys=True)
        except (msgspec.ValidationError, ValueError, TypeError, RecursionError):
            pass
    return UnknownKind(name, data)


def fold_key(key: str) -> str:
    """Return a key in the form for comparison: trimmed, case-folded and with normalized accents."""
    return _caseless(key.strip())


def fold_keys(keys: Iterable[str]) -> frozenset[str]:
    """Return the folded keys, without empty ones."""
    return frozenset(folded for key in keys if (folded := fold_key(key)))


def fold_text(text: str) -> str:
    """Return a value in the form for comparison: folded like a key, with single spaces."""
    return _caseless(" ".join(text.split()))


def _caseless(text: str) -> str:
    """Return the form that is equal for all canonical caseless matches (Unicode Standard, definition D145)."""
    if text.isascii():
        return text.casefold()
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())


def _folded(value: Mapping[str, JsonValue]) -> bytes:
    return encode_canonical(_fold(value))


def _fold(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    if isinstance(value, str):
        return fold_text(value)
    if isinstance(value, dict):
        return {key: _fold(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_fold(item) for item in cast("list[object]", value)]
    return value


for _builtin in (Preference, Fact, Episode, Note, Relation, Consent):
    register_kind(_builtin)
