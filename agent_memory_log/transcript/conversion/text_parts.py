"""Splits content that is a list of parts: the text goes into a payload, the lengths of the parts into the residual.

Providers accept ``[{"type": "text", "text": "…"}, …]`` in place of text. The payload's text joins all text parts, for
search and for other providers. The residual stores a *span* for each part. The span of a plain text part is
its number of characters. The span of a text part with more fields is ``{"characters": n, "fields": …}``. The span of
any other part is ``{"part": …}``. No text is stored twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from agent_memory_log.events.jsonvalue import JsonValue, encode_json, own_json
from agent_memory_log.transcript.differences import apply, difference, is_residual
from agent_memory_log.transcript.json_types import MAPS

_CHARACTERS = "characters"
_PART = "part"
_NOTHING: Mapping[str, JsonValue] = {}
_CHARACTERS_ONLY = frozenset({_CHARACTERS})


def size_beside_text(spans: object) -> int:
    """Return the JSON size, in bytes, of the parts in ``spans`` that are not text."""
    if not isinstance(spans, (list, tuple)):
        return 0
    span_list = cast("Sequence[object]", spans)
    parts = [
        cast("Mapping[str, JsonValue]", span)[_PART] for span in span_list if isinstance(span, MAPS) and _PART in span
    ]
    return sum(len(encode_json(part)) for part in parts)


class TextParts(msgspec.Struct, frozen=True):
    """The format of text parts in one kind of content.

    Attributes:
        default: The fields of a plain text part besides ``text``, for example ``{"type": "text"}``. A part is a text
            part if it has all these fields and a ``text``.
        separator: The text between two parts in the payload.
    """

    default: Mapping[str, JsonValue]
    separator: str

    def text_of(self, part: object) -> str | None:
        """Return the text of a text part; None for any other part."""
        if not isinstance(part, MAPS):
            return None
        fields = cast("Mapping[str, JsonValue]", part)
        text = fields.get("text")
        return text if type(text) is str and fields.items() >= self.default.items() else None

    def text_in(self, parts: Sequence[object]) -> str:
        """Return the text of all text parts."""
        if len(parts) == 1:
            return self.text_of(parts[0]) or ""
        return self.separator.join(text for part in parts if (text := self.text_of(part)) is not None)

    def split(self, parts: Sequence[JsonValue]) -> tuple[str, list[JsonValue]]:
        """Return the text of all text parts, and the spans from which ``join`` rebuilds the parts."""
        texts: list[str] = []
        spans: list[JsonValue] = []
        for part in parts:
            text = self.text_of(part)
            if text is None:
                spans.append({_PART: part})
                continue
            texts.append(text)
            fields = cast("Mapping[str, JsonValue]", part)
            # A text part with as few keys as a plain one is a plain text part.
            extra = difference(self.plain(text), fields) if len(fields) > len(self.default) + 1 else None
            spans.append({_CHARACTERS: len(text), **extra} if extra else len(text))
        return self.separator.join(texts), spans

    def join(self, text: str, spans: object) -> list[JsonValue] | None:
        """Return the parts that ``split`` received; None if ``split`` did not make the spans.

        The result shares nothing mutable with ``spans``.
        """
        if not isinstance(spans, (list, tuple)):
            return None
        parts: list[JsonValue] = []
        end = -len(self.separator)
        for span in cast("Sequence[object]", spans):
            if isinstance(span, Mapping) and _PART in span:
                if len(cast("Mapping[str, object]", span)) > 1:
                    return None
                parts.append(own_json(cast("Mapping[str, object]", span)[_PART]))
                continue
            extra = cast("Mapping[str, JsonValue]", span) if isinstance(span, Mapping) else _NOTHING
            length = extra.get(_CHARACTERS) if isinstance(span, Mapping) else cast("JsonValue", span)
            if type(length) is not int or length < 0 or not is_residual(extra, _CHARACTERS_ONLY):
                return None
            start = end + len(self.separator)
            end = start + length
            if end > len(text) or (start > 0 and not text.startswith(self.separator, start - len(self.separator))):
                return None
            parts.append(apply(self.plain(text[start:end]), extra))
        return parts if max(end, 0) == len(text) else None

    def plain(self, text: str) -> dict[str, JsonValue]:
        """Return a part that holds only text."""
        return {**self.default, "text": text}

    def difference(
        self, default: dict[str, JsonValue], original: Mapping[str, JsonValue], key: str
    ) -> dict[str, JsonValue]:
        """Return the residual of ``original``, whose ``key`` may hold text or a list of parts."""
        parts = original.get(key)
        if not isinstance(parts, list):
            return difference(default, original)
        spans = self.split(parts)[1]
        if self.join(cast("str", default[key]), spans) is None:
            return difference(default, original)
        return {**difference({**default, key: parts}, original), "parts": spans}

    def apply(self, default: dict[str, JsonValue], residual: Mapping[str, JsonValue], key: str) -> dict[str, JsonValue]:
        """Apply ``residual`` to ``default``, and replace the text under ``key`` with its parts."""
        spans = residual.get("parts")
        text = default.get(key)
        if spans is not None and isinstance(text, str):
            parts = self.join(text, spans)
            if parts is not None:
                default[key] = parts
        return apply(default, residual)
