"""Where two JSON values differ, for people: paths into them, and both sides in short."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Literal, cast

import msgspec

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import (
    MAX_DEPTH,
    JsonValue,
    encode_canonical,
    encode_json,
    json_or_text,
    own_json,
)

_SHOWN = 120
_BEFORE = 20
"""How many characters of two long texts are shown from before the place where they part."""

_SHOWN_DIFFERENCES = 20
_DEEPEST = 200
"""How deeply what an agent gives may nest: more than a field may, as arguments are recorded as text."""

_NOTHING = object()
"""Stands where one side has nothing."""

_PLAIN_KEY = re.compile(r"[^\W\d][\w-]*")


class Difference(msgspec.Struct, frozen=True):
    """A place where two JSON values differ.

    - ``path``: the place, as ``filter.tags[0]``, with keys that are no words as ``filter["a.b"]``; ``""`` for the
      values themselves.
    - ``left``, ``right``: what stands there on either side.
    - ``only``: ``left`` or ``right`` where the other side has nothing there, ``""`` where both have something.
    """

    path: str
    left: JsonValue = None
    right: JsonValue = None
    only: Literal["", "left", "right"] = ""

    def describe(self, left: str, right: str) -> str:
        """The difference on a line, its sides named by ``left`` and ``right``: ``id: recorded 7, called with 8``."""
        one, two = _shown_together(_json(self.left), _json(self.right))
        one = "nothing" if self.only == "right" else one
        two = "nothing" if self.only == "left" else two
        return f"{self.path or 'all of it'}: {left} {one}, {right} {two}"


def differences(left: JsonValue, right: JsonValue) -> list[Difference]:
    """Where two JSON values differ, in the order of ``left``, as deep inside as it can be said; none if they are equal.

    Compared as JSON: the order of keys does not matter, and 1, 1.0 and true are three values.
    """
    found: list[Difference] = []
    if encode_canonical(left) != encode_canonical(right):
        _compare(left, right, "", found)
    return found


def describe_all(found: Sequence[Difference], left: str, right: str) -> list[str]:
    """A line for each of the differences; of very many, for the first ones, and how many more there are."""
    lines = [difference.describe(left, right) for difference in found[:_SHOWN_DIFFERENCES]]
    more = len(found) - len(lines)
    return [*lines, f"and {more:,} more"] if more else lines


def own_value(value: object) -> JsonValue:
    """``own_json`` for what an agent gives. Raises ``NotJson``."""
    return own_json(value, MAX_DEPTH - _DEEPEST + 1)


def json_in(text: str) -> JsonValue:
    """The JSON value that ``text`` is, None where it is blank, and ``text`` itself where it is no JSON."""
    return None if is_absent_text(text) else json_or_text(text)


def arguments_in(text: str) -> JsonValue:
    """The arguments of a call that are recorded as ``text``: none are an empty map."""
    return {} if is_absent_text(text) else json_or_text(text)


def shown(value: JsonValue) -> str:
    """A value as JSON on one line, cut where it is long."""
    text = _json(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def shown_name(name: str) -> str:
    """A tool's name as it is, or as JSON where it could be taken for something else."""
    return name if name.isprintable() and name and " " not in name else shown(name)


def _compare(left: JsonValue, right: JsonValue, path: str, found: list[Difference]) -> None:
    pairs: Iterable[tuple[str, object, object]]
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        keys = dict.fromkeys([*left, *right])
        pairs = ((_inside(path, key), left.get(key, _NOTHING), right.get(key, _NOTHING)) for key in keys)
    elif _is_list(left) and _is_list(right):
        both = zip_longest(cast("Sequence[object]", left), cast("Sequence[object]", right), fillvalue=_NOTHING)
        pairs = ((f"{path}[{index}]", *values) for index, values in enumerate(both))
    else:
        if encode_canonical(left) != encode_canonical(right):
            found.append(Difference(path, left, right))
        return
    for place, one, two in pairs:
        if two is _NOTHING:
            found.append(Difference(place, left=cast("JsonValue", one), only="left"))
        elif one is _NOTHING:
            found.append(Difference(place, right=cast("JsonValue", two), only="right"))
        else:
            _compare(cast("JsonValue", one), cast("JsonValue", two), place, found)


def _inside(path: str, key: str) -> str:
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{shown(key)}]"
    return f"{path}.{key}" if path else key


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _json(value: JsonValue) -> str:
    return encode_json(value).decode()


def _shown_together(one: str, two: str) -> tuple[str, str]:
    """Both in short, cut so that the place where they part is seen."""
    pairs = enumerate(zip(one, two, strict=False))
    same = next((at for at, (ours, theirs) in pairs if ours != theirs), min(len(one), len(two)))
    begin = same - _BEFORE if same > _SHOWN - _BEFORE else 0
    return _cut(one, begin), _cut(two, begin)


def _cut(text: str, begin: int) -> str:
    end = begin + _SHOWN
    return ("…" if begin else "") + text[begin:end] + ("…" if end < len(text) else "")
