"""What a provider's maps must hold, said as values: checks that find the first flaw in any JSON, and where it is.

A check takes a value and returns None, or the flaw. Providers build theirs from these: ``record`` for maps, ``choice``
for maps of exactly one key, ``tagged`` for maps whose ``type`` says what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.kinds import MAPS
from agent_memory_log.transcript.model import Path


class Flaw(NamedTuple):
    """What is wrong with a value: ``where`` in it, and a text like ``must be text, found 7``."""

    where: Path
    message: str

    def inside(self, step: int | str) -> Flaw:
        """The same flaw, seen from the value around."""
        return Flaw((step, *self.where), self.message)

    def told(self) -> str:
        """The flaw with its place, as in ``content[0].text must be text, found 7``."""
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.where).lstrip(".")
        return f"{place} {self.message}" if place else self.message


Check = Callable[[object], Flaw | None]


def anything(value: object) -> Flaw | None:
    """Any JSON."""
    del value
    return None


def text(value: object) -> Flaw | None:
    """Text, empty or not."""
    return None if isinstance(value, str) else _flaw("text", value)


def some_text(value: object) -> Flaw | None:
    """Text that is not empty."""
    return None if isinstance(value, str) and value else _flaw("text that is not empty", value)


def boolean(value: object) -> Flaw | None:
    """True or false."""
    return None if isinstance(value, bool) else _flaw("true or false", value)


def integer(value: object) -> Flaw | None:
    """An integer."""
    return None if type(value) is int else _flaw("an integer", value)


def count(value: object) -> Flaw | None:
    """An integer from 0."""
    return None if type(value) is int and value >= 0 else _flaw("an integer from 0", value)


def number(value: object) -> Flaw | None:
    """A number."""
    return None if type(value) in (int, float) else _flaw("a number", value)


def any_map(value: object) -> Flaw | None:
    """A map of anything."""
    return None if isinstance(value, MAPS) else _flaw("a map", value)


def one_of(*words: str) -> Check:
    """One of ``words``."""

    def check(value: object) -> Flaw | None:
        return None if isinstance(value, str) and value in words else _flaw(f"one of {', '.join(words)}", value)

    return check


def or_null(inner: Check) -> Check:
    """What ``inner`` takes, or null."""

    def check(value: object) -> Flaw | None:
        return None if value is None else inner(value)

    return check


def list_of(inner: Check, *, least: int = 0) -> Check:
    """A list of at least ``least`` of what ``inner`` takes."""

    def check(value: object) -> Flaw | None:
        if not isinstance(value, (list, tuple)):
            return _flaw("a list", value)
        items = cast("Sequence[object]", value)
        if len(items) < least:
            return Flaw((), f"must have at least {least} item{'s' if least > 1 else ''}, has {len(items)}")
        for index, item in enumerate(items):
            flaw = inner(item)
            if flaw is not None:
                return flaw.inside(index)
        return None

    return check


def map_of(inner: Check) -> Check:
    """A map of any keys to what ``inner`` takes."""

    def check(value: object) -> Flaw | None:
        if not isinstance(value, MAPS):
            return _flaw("a map", value)
        for key, item in cast("Mapping[str, object]", value).items():
            flaw = inner(item)
            if flaw is not None:
                return flaw.inside(key)
        return None

    return check


def record(
    required: Mapping[str, Check], optional: Mapping[str, Check] | None = None, *, closed: bool = False
) -> Check:
    """A map with all ``required`` keys and perhaps ``optional`` ones; ``closed``: with no others."""
    known = {**required, **(optional or {})}

    def check(value: object) -> Flaw | None:
        if not isinstance(value, MAPS):
            return _flaw("a map", value)
        given = cast("Mapping[str, object]", value)
        for key in required:
            if key not in given:
                return Flaw((), f"must have {key!r}")
        for key, item in given.items():
            inner = known.get(key)
            if inner is None:
                if closed:
                    return Flaw((), f"must have no {key!r}")
                continue
            flaw = inner(item)
            if flaw is not None:
                return flaw.inside(key)
        return None

    return check


def choice(kinds: Mapping[str, Check], *, or_unknown: bool = False) -> Check:
    """A map of exactly one key, one of ``kinds``; ``or_unknown``: any other key may hold anything."""

    def check(value: object) -> Flaw | None:
        if not isinstance(value, MAPS):
            return _flaw("a map", value)
        given = cast("Mapping[str, object]", value)
        if len(given) != 1:
            return Flaw((), f"must have exactly one key, has {len(given)}")
        key, item = next(iter(given.items()))
        inner = kinds.get(key)
        if inner is None:
            return None if or_unknown else Flaw((), f"must have one of {', '.join(kinds)}, has {key!r}")
        flaw = inner(item)
        return None if flaw is None else flaw.inside(key)

    return check


def tagged(kinds: Mapping[str, Check], *, or_unknown: bool = False) -> Check:
    """A map whose ``type`` is one of ``kinds``, and which that one takes; ``or_unknown``: or any other text."""

    def check(value: object) -> Flaw | None:
        if not isinstance(value, MAPS):
            return _flaw("a map", value)
        kind = cast("Mapping[str, object]", value).get("type")
        inner = kinds.get(kind) if isinstance(kind, str) else None
        if inner is not None:
            return inner(cast("object", value))
        if or_unknown and isinstance(kind, str):
            return None
        return Flaw(("type",), f"must be one of {', '.join(kinds)}, found {describe(kind)}")

    return check


def either(*checks: Check) -> Check:
    """What any of ``checks`` takes; the flaw is the one furthest inside."""

    def check(value: object) -> Flaw | None:
        worst: Flaw | None = None
        for inner in checks:
            flaw = inner(value)
            if flaw is None:
                return None
            if worst is None or len(flaw.where) > len(worst.where):
                worst = flaw
        return worst

    return check


def list_in(value: object) -> list[Any]:
    """The list that a value is; an empty one if it is none."""
    if not isinstance(value, list):
        return []
    found: list[Any] = cast("Any", value)
    return found


def map_in(value: object) -> dict[str, Any]:
    """The map that a value is; an empty one if it is none."""
    if not isinstance(value, dict):
        return {}
    found: dict[str, Any] = cast("Any", value)
    return found


def _flaw(wanted: str, value: object) -> Flaw:
    return Flaw((), f"must be {wanted}, found {describe(value)}")
