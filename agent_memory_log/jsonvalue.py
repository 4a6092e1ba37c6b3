"""JSON values: what may stand in a free-form field, and the text two equal values share.

``structured``, ``extra``, example inputs, unknown payloads and run ``meta`` hold any JSON value. JSON has no NaN, no
lone surrogates and no keys but text, and msgspec writes some of those silently as something else, so every free-form
value is walked once before it is written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

import msgspec

if TYPE_CHECKING:
    JsonValue = Union[None, bool, int, float, str, Sequence["JsonValue"], Mapping[str, "JsonValue"]]
else:
    JsonValue = Any  # msgspec resolves annotations when a struct is defined, and has no recursive unions
"""Any JSON value: null, booleans, integers of any size, finite floats, text, arrays, objects with text keys."""

MAX_DEPTH = 64
"""How deeply a free-form value may nest: ``[[]]`` is 2. MongoDB stops at 100 levels, of which an event's own maps take some."""

MAX_INT_DIGITS = 4300
"""The longest integer, in decimal digits, that Python turns into text by default (``sys.get_int_max_str_digits``)."""

_INT_LIMIT = 10**MAX_INT_DIGITS

encode_json = msgspec.json.Encoder().encode
"""Compact JSON bytes of a checked value, in the value's own key order."""

encode_canonical = msgspec.json.Encoder(order="sorted").encode
"""Compact JSON bytes with object keys sorted: equal for equal JSON, and different for 1, 1.0 and true."""

decode_json = msgspec.json.Decoder().decode
"""JSON text or bytes to plain values, integers of any size exact."""


class NotJson(ValueError):
    """A value that JSON cannot carry; ``path`` says where in it, as in ``.items[3]``."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


def own_json(value: object) -> JsonValue:
    """Return a copy of ``value`` in plain dicts, lists, text, numbers and booleans that shares nothing mutable with it.

    Tuples become lists, subclasses of the plain types become the plain type. Raises ``NotJson`` for anything else.
    """
    return _own(value, "", 1)


def _own(value: object, path: str, depth: int) -> JsonValue:
    kind = type(value)
    if kind is str:
        check_text(value, path)  # type: ignore[arg-type]  # mypy does not narrow on `type(x) is`
        return value  # type: ignore[return-value]  # as above
    if value is None or kind is bool:
        return value  # type: ignore[return-value]  # as above
    if isinstance(value, int):
        if not -_INT_LIMIT < value < _INT_LIMIT:
            raise NotJson(f"is an integer of more than {MAX_INT_DIGITS} digits", path)
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(f"is {float(value)!r}, which JSON cannot write", path)
        return float(value)
    if isinstance(value, str):
        text = str.__str__(value)
        check_text(text, path)
        return text
    if isinstance(value, (Mapping, list, tuple)) and depth > MAX_DEPTH:
        raise NotJson(f"nests deeper than {MAX_DEPTH} levels", path)
    if isinstance(value, Mapping):
        return _own_map(value, path, depth)
    if isinstance(value, (list, tuple)):
        return [_own(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise NotJson(f"is of type {kind.__name__}, which is not JSON", path)


def _own_map(value: Mapping[object, object], path: str, depth: int) -> dict[str, JsonValue]:
    owned: dict[str, JsonValue] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise NotJson(f"has the key {key!r}, which is not text", path)
        text = str.__str__(key)
        check_text(text, f"{path} (a key)")
        owned[text] = _own(item, f"{path}.{text}", depth + 1)
    return owned


def check_text(text: str, path: str) -> None:
    """Raise ``NotJson`` when ``text`` holds a lone surrogate, which no UTF-8 can write."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise NotJson(f"holds a lone surrogate at character {error.start}", path) from None
