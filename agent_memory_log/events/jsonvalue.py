"""JSON values: what may stand in a free-form field, and the text two equal values share.

``structured``, ``extra``, example inputs, unknown payloads and run ``meta`` hold any JSON value. JSON has no NaN, no
lone surrogates and no keys but text, and msgspec writes some of those silently as something else, so every free-form
value is walked once before it is written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union, cast

import msgspec

if TYPE_CHECKING:
    JsonValue = Union[None, bool, int, float, str, Sequence["JsonValue"], Mapping[str, "JsonValue"]]  # noqa: UP007  # names itself
else:
    JsonValue = Any  # msgspec resolves annotations when a struct is defined, and has no recursive unions
"""Any JSON value: null, booleans, integers of any size, finite floats, text, arrays, objects with text keys."""

MAX_DEPTH = 64
"""How deeply a free-form value may nest: ``[[]]`` is 2.

MongoDB stops at 100 levels, of which an event's own maps take some.
"""

MAX_INT_DIGITS = 4300
"""The longest integer, in decimal digits, that Python turns into text by default (``sys.get_int_max_str_digits``)."""

_INT_LIMIT = 10**MAX_INT_DIGITS


def plain_form(value: object) -> object:
    """What msgspec does not write by itself but JSON has: a subclass of a plain type, any map. Else a ``TypeError``."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    raise TypeError(f"values of type {type(value).__name__} cannot be written as JSON")


encode_json = msgspec.json.Encoder(enc_hook=plain_form).encode
"""Compact JSON bytes of a checked value, in the value's own key order."""

encode_canonical = msgspec.json.Encoder(enc_hook=plain_form, order="sorted").encode
"""Compact JSON bytes with object keys sorted: equal for equal JSON, and different for 1, 1.0 and true."""

decode_json = msgspec.json.Decoder().decode
"""JSON text or bytes to plain values, integers of any size exact."""


def json_or_text(text: str) -> JsonValue:
    """The JSON value that ``text`` is; the text itself where it is none, as models write it at times."""
    try:
        return cast("JsonValue", decode_json(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


class NotJson(ValueError):
    """A value that JSON cannot carry; ``path`` says where in it, as in ``.items[3]``."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


def own_json(value: object, depth: int = 1) -> JsonValue:
    """Return a copy of ``value`` in plain dicts, lists, text, numbers and booleans that shares nothing mutable with it.

    Tuples become lists, subclasses of the plain types become the plain type. Raises ``NotJson`` for anything else.
    ``depth`` is the level that ``value`` itself stands at.
    """
    if type(value) is str:
        if not value.isascii():
            check_text(value, "")
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return _own_number(value)
    if isinstance(value, str):
        text = str.__str__(value)  # the plain type's own method, because a subclass may have another under its name
        check_text(text, "")
        return text
    if isinstance(value, (list, tuple, Mapping)):
        if depth > MAX_DEPTH:
            raise NotJson(f"nests deeper than {MAX_DEPTH} levels", "")
        if isinstance(value, Mapping):
            return own_map(cast("Mapping[object, object]", value), depth)
        return _own_list(cast("Sequence[object]", value), depth)
    raise NotJson(f"is of type {type(value).__name__}, which is not JSON", "")


def _own_number(value: float) -> float:
    if isinstance(value, int):
        number = int.__int__(value)  # see own_json
        if not -_INT_LIMIT < number < _INT_LIMIT:
            raise NotJson(f"is an integer of more than {MAX_INT_DIGITS} digits", "")
        return number
    real = float.__float__(value)
    if not math.isfinite(real):
        raise NotJson(f"is {real!r}, which JSON cannot write", "")
    return real


# Where in the value an error is gets said on its way out, so that a value without any pays nothing for it.


def _own_list(value: Sequence[object], depth: int) -> list[JsonValue]:
    owned: list[JsonValue] = []
    try:
        for item in value:
            owned.append(own_json(item, depth + 1))  # noqa: PERF401  # its length says where an error is
    except NotJson as error:
        error.path = f"[{len(owned)}]{error.path}"
        raise
    return owned


def own_map(value: Mapping[Any, object], depth: int = 1) -> dict[str, JsonValue]:
    """``own_json`` for what is known to be a map."""
    owned: dict[str, JsonValue] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise NotJson(f"has a key of type {type(key).__name__}, which is not text", "")
        text = str.__str__(key)
        if not text.isascii():
            _check_key(text)
        try:
            owned[text] = own_json(item, depth + 1)
        except NotJson as error:
            error.path = f".{text}{error.path}"
            raise
    return owned


def _check_key(text: str) -> None:
    try:
        check_text(text, "")
    except NotJson as error:
        raise NotJson(f"has a key that {error}", "") from None


def check_text(text: str, path: str) -> None:
    """Raise ``NotJson`` when ``text`` holds a lone surrogate, which no UTF-8 can write."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise NotJson(f"holds a lone surrogate at character {error.start}", path) from None
