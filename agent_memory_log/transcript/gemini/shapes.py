"""Defines the required fields of each part of a Gemini content. Unknown fields may hold anything.

Keys may be in camelCase, as the API writes them, or in snake_case, as Google's SDK does. A null means that a field is
absent. Binary content is base64 text, with either of the two alphabets, and
with or without padding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.gemini.rendering import MODEL, snake_case
from agent_memory_log.transcript.validity.shapes import (
    Check,
    Flaw,
    OptionalField,
    any_list,
    any_map,
    boolean,
    list_of,
    number,
    one_of,
    optional_or_null,
    or_null,
    record,
    some_text,
    text,
)

_BASE64 = re.compile(r"[A-Za-z0-9+/]*|[A-Za-z0-9_-]*", re.ASCII)
_LAST_CHARACTERS = {2: "AQgw", 3: "AEIMQUYcgkosw048"}
"""The possible last characters of base64 text with an incomplete last group, by the length of that group."""


def base64_text(value: object) -> Flaw | None:
    """Accept base64 text in either alphabet, with or without padding."""
    if isinstance(value, str):
        bare = value.rstrip("=")
        length = len(bare) % 4
        is_whole = not length or bare[-1] in _LAST_CHARACTERS.get(length, "")
        if is_whole and len(value) - len(bare) in (0, -len(bare) % 4) and _BASE64.fullmatch(bare):
            return None
    return Flaw((), f"must be base64 text, got {describe(value)}")


def _in_both_cases(**fields: Check | OptionalField) -> dict[str, Check | OptionalField]:
    return {**fields, **{snake_case(key): field for key, field in fields.items()}}


def _body(**fields: Check) -> Check:
    return record(**_in_both_cases(**{key: optional_or_null(check) for key, check in fields.items()}))


_BLOB = _body(mimeType=text, data=base64_text, displayName=text)
_FILE = _body(mimeType=text, fileUri=text, displayName=text)
_RESPONSE_PART = _body(inlineData=_BLOB, fileData=_FILE)

_DATA: Mapping[str, Check] = {
    "text": text,
    "functionCall": record(name=some_text, id=optional_or_null(text), args=optional_or_null(any_map)),
    "functionResponse": record(
        name=some_text, response=any_map, id=optional_or_null(text), parts=optional_or_null(list_of(_RESPONSE_PART))
    ),
    "inlineData": _BLOB,
    "fileData": _FILE,
    "executableCode": _body(code=text, language=text, id=text),
    "codeExecutionResult": _body(outcome=text, output=text, id=text),
    "toolCall": _body(toolType=text, args=any_map, id=text),
    "toolResponse": _body(toolType=text, response=any_map, id=text),
}
_BESIDE_DATA: Mapping[str, Check] = {
    "thought": boolean,
    "thoughtSignature": base64_text,
    "videoMetadata": _body(startOffset=text, endOffset=text, fps=number),
    "mediaResolution": any_map,
    "partMetadata": any_map,
}
_NAMES = {name: key for key in _DATA for name in (key, snake_case(key))}
_BESIDE_NAMES = frozenset(name for key in _BESIDE_DATA for name in (key, snake_case(key)))

_PART = record(**_in_both_cases(**{key: optional_or_null(check) for key, check in {**_DATA, **_BESIDE_DATA}.items()}))
_ENVELOPE = record(parts=or_null(any_list), role=optional_or_null(one_of("user", MODEL, "function", "tool")))


def flaw_of_message(message: object) -> Flaw | None:
    """Return the first flaw of a content, without its parts, or None."""
    return _ENVELOPE(message)


def flaw_of(part: object) -> Flaw | None:
    """Return the first flaw of a part, or None."""
    flaw = _PART(part)
    if flaw is not None:
        return flaw
    fields = [key for key, value in cast("Mapping[str, object]", part).items() if value is not None]
    kinds = [key for key in fields if key in _NAMES]
    if len(kinds) > 1:
        return Flaw((), f"must have only one of {', '.join(kinds)}")
    if not kinds and all(key in _BESIDE_NAMES for key in fields):
        return Flaw((), f"must have one of {', '.join(_DATA)}")
    return None
