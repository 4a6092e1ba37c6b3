"""Compares two JSON values and describes each difference with its path and both values."""

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
"""The number of characters that are printed before the first difference of two long texts."""

_SHOWN_DIFFERENCES = 20
_DEEPEST = 200
"""The maximum nesting depth of an agent's values. Fields allow less depth, but arguments are recorded as text."""

_NOTHING = object()
"""The placeholder for a value that one side does not have."""

_PLAIN_KEY = re.compile(r"[^\W\d][\w-]*")


class Difference(msgspec.Struct, frozen=True):
    """A difference between two JSON values.

    Attributes:
        path: The path of the difference, such as ``filter.tags[0]``. A key that is not a plain word is quoted, such as
            ``filter["a.b"]``. The path of the compared values is ``""``.
        left: The value at the path on the left side.
        right: The value at the path on the right side.
        only: The name of the side that has a value, ``left`` or ``right``; ``""`` if both have one.
    """

    path: str
    left: JsonValue = None
    right: JsonValue = None
    only: Literal["", "left", "right"] = ""

    def describe(self, left: str, right: str) -> str:
        """Return the difference as one line, such as ``id: recorded 7, now 8``.

        ``left`` and ``right`` are the labels of the two sides, here ``recorded`` and ``now``.
        """
        left_text, right_text = _shorten_together(_json(self.left), _json(self.right))
        left_text = "nothing" if self.only == "right" else left_text
        right_text = "nothing" if self.only == "left" else right_text
        return f"{self.path or 'the value'}: {left} {left_text}, {right} {right_text}"


def differences(left: JsonValue, right: JsonValue) -> list[Difference]:
    """Return the differences of two JSON values in the order of ``left``. Equal values give an empty list.

    Each path leads as deep into the values as possible. The order of keys does not matter; 1, 1.0 and true are three
    different values.
    """
    results: list[Difference] = []
    if encode_canonical(left) != encode_canonical(right):
        _compare(left, right, "", results)
    return results


def describe_all(items: Sequence[Difference], left: str, right: str) -> list[str]:
    """Return one line for each of the first 20 differences, and a last line with the number of the others."""
    lines = [difference.describe(left, right) for difference in items[:_SHOWN_DIFFERENCES]]
    more = len(items) - len(lines)
    return [*lines, f"and {more:,} more"] if more else lines


def own_value(value: object) -> JsonValue:
    """Copy a value that comes from an agent. Raises ``NotJson`` if it is not JSON."""
    return own_json(value, MAX_DEPTH - _DEEPEST + 1)


def json_in(text: str) -> JsonValue:
    """Return the JSON value of ``text``. Blank text gives None, and text that is not JSON gives itself."""
    return None if is_absent_text(text) else json_or_text(text)


def arguments_in(text: str) -> JsonValue:
    """Return the arguments that are recorded as ``text``. Blank text gives an empty map."""
    return {} if is_absent_text(text) else json_or_text(text)


def short_json(value: JsonValue) -> str:
    """Return a value as one line of JSON with at most 120 characters."""
    text = _json(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def readable_name(name: str) -> str:
    """Return a tool's name, or its JSON form if the name is empty or contains a space or unprintable character."""
    return name if name.isprintable() and name and " " not in name else short_json(name)


def _compare(left: JsonValue, right: JsonValue, path: str, results: list[Difference]) -> None:
    pairs: Iterable[tuple[str, object, object]]
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        keys = dict.fromkeys([*left, *right])
        pairs = ((_inside(path, key), left.get(key, _NOTHING), right.get(key, _NOTHING)) for key in keys)
    elif _is_list(left) and _is_list(right):
        both = zip_longest(cast("Sequence[object]", left), cast("Sequence[object]", right), fillvalue=_NOTHING)
        pairs = ((f"{path}[{index}]", *values) for index, values in enumerate(both))
    else:
        if encode_canonical(left) != encode_canonical(right):
            results.append(Difference(path, left, right))
        return
    for inner_path, left_item, right_item in pairs:
        if right_item is _NOTHING:
            results.append(Difference(inner_path, left=cast("JsonValue", left_item), only="left"))
        elif left_item is _NOTHING:
            results.append(Difference(inner_path, right=cast("JsonValue", right_item), only="right"))
        else:
            _compare(cast("JsonValue", left_item), cast("JsonValue", right_item), inner_path, results)


def _inside(path: str, key: str) -> str:
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{short_json(key)}]"
    return f"{path}.{key}" if path else key


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _json(value: JsonValue) -> str:
    return encode_json(value).decode()


def _shorten_together(left: str, right: str) -> tuple[str, str]:
    """Shorten both texts so that their first difference is visible."""
    pairs = enumerate(zip(left, right, strict=False))
    same = next((index for index, (first, second) in pairs if first != second), min(len(left), len(right)))
    begin = same - _BEFORE if same > _SHOWN - _BEFORE else 0
    return _cut(left, begin), _cut(right, begin)


def _cut(text: str, begin: int) -> str:
    end = begin + _SHOWN
    return ("…" if begin else "") + text[begin:end] + ("…" if end < len(text) else "")
