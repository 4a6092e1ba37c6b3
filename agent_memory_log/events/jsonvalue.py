"""Checks, copies and encodes JSON values, the values of free-form fields.

``structured``, ``extra``, example inputs, unknown payloads and run ``meta`` hold any JSON value. JSON has no NaN and no
lone surrogates, and its keys are text. msgspec silently changes some values that break these rules. So this module
checks every free-form value before it is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union, cast

import msgspec

if TYPE_CHECKING:
    JsonValue = Union[None, bool, int, float, str, Sequence["JsonValue"], Mapping[str, "JsonValue"]]  # noqa: UP007  # a recursive type
else:
    JsonValue = Any  # msgspec resolves annotations when a struct is defined, and has no recursive unions
"""Any JSON value: null, a boolean, an integer of any size, a finite float, text, an array, an object with text keys."""

MAX_DEPTH = 64
"""The most levels of nesting in a free-form value. ``[[]]`` has two levels.

MongoDB allows 100 levels in a document, and the event's own maps need some of them.
"""

MAX_INT_DIGITS = 4300
"""The most decimal digits of an integer. It is Python's default limit (``sys.get_int_max_str_digits``)."""

_INT_LIMIT = 10**MAX_INT_DIGITS


def plain_form(value: object) -> object:
    """Return a plain ``str``, ``int``, ``float`` or ``dict`` for a value of a subclass, which msgspec cannot encode.

    Raises ``TypeError`` for any other value.
    """
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
"""Encode a checked value as compact JSON bytes. Keys keep their order."""

encode_canonical = msgspec.json.Encoder(enc_hook=plain_form, order="sorted").encode
"""Encode a checked value as compact JSON bytes with sorted keys. 1, 1.0 and true give three different texts."""

decode_json = msgspec.json.Decoder().decode
"""Decode JSON text or bytes. Integers of any size are exact."""


def json_or_text(text: str) -> JsonValue:
    """Return the decoded JSON value of ``text``, or the text itself if it is not JSON, as models sometimes write."""
    try:
        return cast("JsonValue", decode_json(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


class NotJson(ValueError):
    """The error for a value that JSON cannot carry. ``path`` is the path inside the value, such as ``.items[3]``."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


_Convert = Callable[[object, int], JsonValue]


def own_json(value: object, depth: int = 1, convert: _Convert | None = None) -> JsonValue:  # noqa: PLR0911  # the fast forms come first
    """Return a copy of ``value`` that consists of plain types and shares nothing mutable with it.

    Tuples become lists, and instances of subclasses of the plain types become plain values. ``depth`` is the nesting
    level of ``value``. ``convert`` returns the JSON value of any other value at a level. Without it, the function
    raises ``NotJson``.
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
        text = str.__str__(value)  # str's own method, because a subclass may override it
        check_text(text, "")
        return text
    if isinstance(value, (list, tuple, Mapping)):
        if depth > MAX_DEPTH:
            raise NotJson(f"nests deeper than {MAX_DEPTH} levels", "")
        if isinstance(value, Mapping):
            return own_map(cast("Mapping[object, object]", value), depth, convert)
        return _own_list(cast("Sequence[object]", value), depth, convert)
    if convert is None:
        raise NotJson(f"is of type {type(value).__name__}, which is not JSON", "")
    return convert(value, depth)


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


# Each caller adds its part to the path of an error that it passes on, so that valid values cost nothing extra.


def _own_list(value: Sequence[object], depth: int, convert: _Convert | None) -> list[JsonValue]:
    owned: list[JsonValue] = []
    try:
        for item in value:
            owned.append(own_json(item, depth + 1, convert))  # noqa: PERF401  # the error path uses its length
    except NotJson as error:
        error.path = f"[{len(owned)}]{error.path}"
        raise
    return owned


def own_map(value: Mapping[Any, object], depth: int = 1, convert: _Convert | None = None) -> dict[str, JsonValue]:
    """Return a copy of a map. ``convert`` may convert a key to text. See ``own_json``."""
    owned: dict[str, JsonValue] = {}
    for key, item in value.items():
        text = str.__str__(key) if isinstance(key, str) else _key_text(key, depth, convert)
        if not text.isascii():
            _check_key(text)
        try:
            owned[text] = own_json(item, depth + 1, convert)
        except NotJson as error:
            error.path = f".{text}{error.path}"
            raise
    if convert is not None and len(owned) < len(value):
        raise NotJson("has two keys that are written as the same text", "")
    return owned


def _key_text(key: object, depth: int, convert: _Convert | None) -> str:
    text = None if convert is None else own_json(key, depth, convert)
    if not isinstance(text, str):
        raise NotJson(f"has a key of type {type(key).__name__}, which is not text", "")
    return text


def _check_key(text: str) -> None:
    try:
        check_text(text, "")
    except NotJson as error:
        raise NotJson(f"has a key that {error}", "") from None


def check_text(text: str, path: str) -> None:
    """Raise ``NotJson`` if ``text`` holds a lone surrogate, which UTF-8 cannot encode."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise NotJson(f"holds a lone surrogate at character {error.start}", path) from None
