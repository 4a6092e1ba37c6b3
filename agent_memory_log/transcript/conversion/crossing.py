"""Carries content with media from the form of one provider, or of the log, into the form of another provider."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec

from agent_memory_log.errors import InvalidEvent
from agent_memory_log.events.fields import describe, is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import EventData, ToolResult, UnknownPayload, UserMessage
from agent_memory_log.media import FORMATS, MAX_CONTENT_BYTES, Media
from agent_memory_log.media.formats import NEUTRAL, read_media
from agent_memory_log.media.media_format import MediaFormat
from agent_memory_log.media.openai import CHAT
from agent_memory_log.transcript.conversion.foreign import content_beside_text
from agent_memory_log.transcript.conversion.text_parts import TextParts
from agent_memory_log.transcript.vendors.profiles import VENDORS

_PARTS = TextParts({}, "\n")
"""The text of users and tools. Every provider joins it in this way, so spans of all providers are alike."""

_TEXT_TYPES = (None, "text", "input_text")
_CONTENT_KEYS = ("content", "output", "message")

Content = str | Media | Sequence[str | Media]
"""The content of a message or result: text, media, or a list of both."""


def holds_media(value: object) -> bool:
    """Return whether a value is media or a list with media."""
    if isinstance(value, Media):
        return True
    return isinstance(value, (list, tuple)) and any(isinstance(part, Media) for part in cast("list[object]", value))


def text_and_structured(content: object, field: str) -> tuple[str, JsonValue]:
    """Return the text of content with media, and the ``structured`` value that holds its media.

    Raises ``InvalidEvent``, with the path in ``field``, for a part that is neither text nor media, and for content that
    is too large.
    """
    parts = cast("Iterable[object]", content if isinstance(content, (list, tuple)) else [content])
    stored: list[JsonValue] = []
    size = 0
    for index, part in enumerate(parts):
        if isinstance(part, Media):
            stored.append(cast("JsonValue", msgspec.to_builtins(part)))
            size += len(part.data) + len(part.url)
        elif isinstance(part, str):
            stored.append({"text": part})
            size += len(part.encode(errors="surrogatepass"))
        else:
            raise InvalidEvent(f"{field}[{index}] must be text or media, got {describe(part)}", field=f"data.{field}")
    if size > MAX_CONTENT_BYTES:
        raise InvalidEvent(
            f"{field} has {size:,} bytes with its media as base64; the limit is {MAX_CONTENT_BYTES:,}: use URLs",
            field=f"data.{field}",
        )
    text, spans = _PARTS.split(stored)
    return text, {NEUTRAL: {"parts": spans}}


def parts_of(data: EventData) -> list[str | Media]:
    """Return the text and the media of a user's message or of a tool's result, in order.

        image = next(part for part in parts_of(event.data) if isinstance(part, Image))

    The media may come from ``recorder.user``, from ``call.result`` or from a message of any provider. Media that cannot
    be read is left out. A block of the user that fits no payload is one part. Other payloads have no parts.
    """
    if isinstance(data, UnknownPayload):
        data = user_message_of(data) or data
    if not isinstance(data, (UserMessage, ToolResult)):
        return []
    content = _content_of(data)
    if content is None:
        text = _text_of(data)
        return [text] if text else []
    return [part for part in content.parts if not isinstance(part, Lost)]


class Lost(NamedTuple):
    """The reason and the message of a ``Loss``."""

    reason: str
    message: str


class Crossing(NamedTuple):
    """Content in the form of another provider.

    Attributes:
        text: The text.
        structured: The ``structured`` value of a payload of that provider; None if no media is left.
        losses: What the provider does not accept.
    """

    text: str
    structured: JsonValue
    losses: list[Lost]

    def result(self, data: ToolResult) -> ToolResult:
        """Return the result with this content."""
        if is_absent_text(data.result_json) and data.error_message:
            return msgspec.structs.replace(data, error_message=self.text, structured=self.structured)
        return msgspec.structs.replace(data, result_json=self.text, structured=self.structured)


def cross(data: UserMessage | ToolResult, provider: str, names: set[str]) -> Crossing | None:
    """Return the content of a payload in the form of ``provider``; None if it is only text, or in that form already.

    ``names`` holds the names of the documents so far. The names of documents in the content are added to it.
    """
    structured = data.structured
    target = _format_of(provider)
    if target is None or not isinstance(structured, Mapping) or provider in structured:
        return None
    content = _content_of(data)
    if content is None or all(isinstance(part, str) for part in content.parts):
        return None
    parts: list[JsonValue] = []
    losses: list[Lost] = []
    crossed = 0
    for part in content.parts:
        if isinstance(part, Lost):
            losses.append(part)
        elif isinstance(part, str):
            if not is_absent_text(part):  # some providers refuse blank text
                parts.append({"text": part})
        else:
            try:
                parts.append(target.written(part, names, in_result=isinstance(data, ToolResult)))
                crossed += 1
            except ValueError as error:
                losses.append(Lost("media", f"the {part.described()} of the {data.event_type}: {error}"))
    if FORMATS[content.source].accepted:  # other data was never sent to a provider
        losses += [_lost(name, FORMATS[content.source]) for name in content.beside]
    text, spans = _PARTS.split(parts)
    return Crossing(text, {provider: {"parts": spans}} if crossed else None, losses)


def _format_of(provider: str) -> MediaFormat | None:
    """Return the form of media of a provider. Vendors have the form of Chat Completions."""
    return FORMATS.get(CHAT.provider if provider in VENDORS else provider)


def user_message_of(data: UnknownPayload) -> UserMessage | None:
    """Return a user's message with a block that fits no payload; None for a block that is not the user's."""
    provider, _, unit = data.type.rpartition(".")
    block = data.data.get("block")
    if unit != "block" or data.data.get("role") != "user" or not isinstance(block, Mapping):
        return None
    return UserMessage("", {provider: {"parts": [{"part": block}]}})


class _Content(NamedTuple):
    """Content in the form of the provider ``source``, with the names of its fields beside text and media."""

    source: str
    parts: list[str | Media | Lost]
    beside: tuple[str, ...]


def _text_of(data: UserMessage | ToolResult) -> str:
    if isinstance(data, UserMessage):
        return data.message
    return data.error_message if is_absent_text(data.result_json) else data.result_json


def _content_of(data: UserMessage | ToolResult) -> _Content | None:
    """Return the content of a payload; None if it is not a list of parts."""
    if not isinstance(data.structured, Mapping):
        return None
    for provider, residual in data.structured.items():
        source = _format_of(provider)
        if source is not None and isinstance(residual, Mapping):
            parts = _parts_in(_text_of(data), residual)
            if parts is not None:
                return _read(parts, source, _beside_parts(residual))
    return None


def _beside_parts(residual: Mapping[str, JsonValue]) -> Iterator[str]:
    fields = residual.get("fields")
    rest = {key: value for key, value in residual.items() if key not in ("parts", "fields")}
    if isinstance(fields, Mapping):
        rest["fields"] = {key: value for key, value in fields.items() if key not in _CONTENT_KEYS}
    return content_beside_text(rest)


def _parts_in(text: str, residual: Mapping[str, JsonValue]) -> Sequence[JsonValue] | None:
    """Return the parts as their provider sent them; None if the content was not a list of parts."""
    spans = residual.get("parts")
    if spans is not None:
        return _PARTS.join(text, spans)
    fields = residual.get("fields")
    if isinstance(fields, Mapping):
        for key in _CONTENT_KEYS:
            content = fields.get(key)
            if isinstance(content, (list, tuple)):
                return cast("Sequence[JsonValue]", content)
    return None


def _read(parts: Sequence[JsonValue], source: MediaFormat, names: Iterable[str]) -> _Content:
    beside = list(names)
    read: list[str | Media | Lost] = []
    for part in parts:
        if not isinstance(part, Mapping):
            read.append(_lost(describe(part), source))
            continue
        text = part.get("text")
        if isinstance(text, str) and part.get("type") in _TEXT_TYPES:
            read.append(text)
            beside += _fields_beside({key: value for key, value in part.items() if key not in ("type", "text")})
            continue
        try:
            media = read_media(part, source)
        except ValueError as error:
            read.append(Lost("media", f"media in the form of {source.label} cannot be read: {error}"))
            continue
        if media is None:
            read.append(_lost(str(part.get("type") or next(iter(part), "part")), source))
        else:
            read.append(media)
            beside += _fields_beside(source.beside_media(part))
    return _Content(source.provider, read, tuple(dict.fromkeys(beside)))


def _fields_beside(fields: Mapping[str, JsonValue]) -> Iterator[str]:
    return content_beside_text({"fields": fields}) if fields else iter(())


def _lost(name: str, source: MediaFormat) -> Lost:
    return Lost("other_provider", f"{name}, which only {source.label} accepts in this form")
