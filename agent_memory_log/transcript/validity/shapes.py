"""Builds checks for the shape of a provider's maps. A check returns the first flaw of a JSON value, or None.

Providers combine these checks: ``record`` for maps, ``choice`` for maps with exactly one key, and ``tagged`` for maps
whose ``type`` selects the check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.findings import Path
from agent_memory_log.transcript.json_types import MAPS

_MAPS: tuple[Any, ...] = MAPS  # Any, so that isinstance does not change the value's type


class Flaw(NamedTuple):
    """A flaw in a value: its path in the value, and a text such as ``must be text, got 7``."""

    path: Path
    message: str

    def inside(self, step: int | str) -> Flaw:
        """Return the same flaw with a path that begins at the enclosing value."""
        return Flaw((step, *self.path), self.message)

    def described(self) -> str:
        """Return the flaw with its path, for example ``content[0].text must be text, got 7``."""
        position = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path).lstrip(".")
        return f"{position} {self.message}" if position else self.message


Check = Callable[[object], Flaw | None]


def anything(value: object) -> Flaw | None:
    """Accept any JSON."""
    del value
    return None


def text(value: object) -> Flaw | None:
    """Accept text, including the empty text."""
    return None if isinstance(value, str) else _flaw("text", value)


def some_text(value: object) -> Flaw | None:
    """Accept text that is not empty."""
    return None if isinstance(value, str) and value else _flaw("text that is not empty", value)


def boolean(value: object) -> Flaw | None:
    """Accept true or false."""
    return None if isinstance(value, bool) else _flaw("true or false", value)


def integer(value: object) -> Flaw | None:
    """Accept an integer."""
    return None if type(value) is int else _flaw("an integer", value)


def count(value: object) -> Flaw | None:
    """Accept an integer from 0."""
    return None if type(value) is int and value >= 0 else _flaw("an integer from 0", value)


def number(value: object) -> Flaw | None:
    """Accept a number."""
    return None if type(value) in (int, float) else _flaw("a number", value)


def any_map(value: object) -> Flaw | None:
    """Accept any map."""
    return None if isinstance(value, _MAPS) else _flaw("a map", value)


def any_list(value: object) -> Flaw | None:
    """Accept any list."""
    return None if isinstance(value, list) else _flaw("a list", value)


def one_of(*words: str) -> Check:
    """Return a check that accepts one of ``words``."""

    def check(value: object) -> Flaw | None:
        return None if isinstance(value, str) and value in words else _flaw(f"one of {', '.join(words)}", value)

    return check


def or_null(inner: Check) -> Check:
    """Return a check that accepts null and the values that ``inner`` accepts."""

    def check(value: object) -> Flaw | None:
        return None if value is None else inner(value)

    return check


def list_of(inner: Check) -> Check:
    """Return a check for a list whose items ``inner`` accepts."""

    def check(value: object) -> Flaw | None:
        if not isinstance(value, (list, tuple)):
            return _flaw("a list", value)
        items = cast("Sequence[object]", value)
        for index, item in enumerate(items):
            flaw = inner(item)
            if flaw is not None:
                return flaw.inside(index)
        return None

    return check


def map_of(inner: Check) -> Check:
    """Return a check for a map with any keys whose values ``inner`` accepts."""

    def check(value: object) -> Flaw | None:
        if not isinstance(value, _MAPS):
            return _flaw("a map", value)
        for key, item in cast("Mapping[str, object]", value).items():
            flaw = inner(item)
            if flaw is not None:
                return flaw.inside(key)
        return None

    return check


class OptionalField(NamedTuple):
    """A field of a ``record`` that may be absent."""

    check: Check


def optional(check: Check) -> OptionalField:
    """Return a field that may be absent."""
    return OptionalField(check)


def optional_or_null(check: Check) -> OptionalField:
    """Return a field that may be absent or null."""
    return OptionalField(or_null(check))


def record(**fields: Check | OptionalField) -> Check:
    """Return a check for a map with these fields; other fields are allowed."""
    required = [key for key, field in fields.items() if not isinstance(field, OptionalField)]
    checks = {key: field.check if isinstance(field, OptionalField) else field for key, field in fields.items()}

    def check(value: Any) -> Flaw | None:  # noqa: ANN401  # a cast would cost a call
        if not isinstance(value, _MAPS):
            return _flaw("a map", value)
        for key in required:
            if key not in value:
                return Flaw((), f"must have {key!r}")
        for key, item in value.items():
            field_check = checks.get(key)
            if field_check is None or (field_check is text and type(item) is str):
                continue
            flaw = field_check(item)
            if flaw is not None:
                return flaw.inside(key)
        return None

    return check


def closed_record(**fields: Check | OptionalField) -> Check:
    """Return a check for a map with these fields and no others."""
    open_check = record(**fields)

    def check(value: Any) -> Flaw | None:  # noqa: ANN401  # a cast would be a call
        for key in value if isinstance(value, _MAPS) else ():
            if key not in fields:
                return Flaw((), f"must have no {key!r}")
        return open_check(value)

    return check


def choice(*, or_unknown: bool = False, **kinds: Check) -> Check:
    """Return a check for a map of exactly one key, one of ``kinds``.

    With ``or_unknown``, other keys are allowed and may have any value.
    """

    def check(value: Any) -> Flaw | None:  # noqa: ANN401  # a cast would be a call
        if not isinstance(value, _MAPS):
            return _flaw("a map", value)
        if len(value) != 1:
            return Flaw((), f"must have exactly one key, has {len(value)}")
        key, item = next(iter(value.items()))
        kind_check = kinds.get(key)
        if kind_check is None:
            return None if or_unknown else Flaw((), f"must have one of {', '.join(kinds)}, has {key!r}")
        flaw = kind_check(item)
        return None if flaw is None else flaw.inside(key)

    return check


def tagged(**kinds: Check) -> Check:
    """Return a check for a map. The map's ``type`` selects the check from ``kinds``."""

    def check(value: Any) -> Flaw | None:  # noqa: ANN401  # a cast would be a call
        if not isinstance(value, _MAPS):
            return _flaw("a map", value)
        kind: object = value.get("type")
        kind_check = kinds.get(kind) if isinstance(kind, str) else None
        if kind_check is None:
            return Flaw(("type",), f"must be one of {', '.join(kinds)}, got {describe(kind)}")
        return kind_check(value)

    return check


def either(*checks: Check) -> Check:
    """Return a check that accepts a value if one of ``checks`` does. It reports the flaw with the longest path."""

    def check(value: object) -> Flaw | None:
        worst: Flaw | None = None
        for inner in checks:
            flaw = inner(value)
            if flaw is None:
                return None
            if worst is None or len(flaw.path) > len(worst.path):
                worst = flaw
        return worst

    return check


def _flaw(expected: str, value: object) -> Flaw:
    return Flaw((), f"must be {expected}, got {describe(value)}")
