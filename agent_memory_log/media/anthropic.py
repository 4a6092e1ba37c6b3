"""Reads and writes media in the messages of Anthropic."""

from __future__ import annotations

from agent_memory_log.media.media_format import (
    IMAGE_TYPES,
    PDF,
    Accepted,
    Fields,
    MediaFormat,
    Part,
    map_in,
    text_document,
    text_in,
    texts_in,
)
from agent_memory_log.media.media_types import PLAIN_TEXT
from agent_memory_log.media.model import Document, Image, Media


def _read_anthropic(part: Fields) -> Media | None:
    kind = {"image": Image, "document": Document}.get(text_in(part, "type"))
    if kind is None:
        return None
    source, name = map_in(part, "source"), text_in(part, "title")
    source_type = source.get("type")
    if source_type == "text":
        return text_document(text_in(source, "data"), name)
    if source_type == "content":
        return text_document(texts_in(source.get("content")), name)
    if source_type == "url":
        return kind.from_url(text_in(source, "url"), name=name)
    if source_type == "file":
        return kind.from_file_id(text_in(source, "file_id"), "anthropic", name=name)
    return kind(media_type=text_in(source, "media_type"), data=text_in(source, "data"), name=name)


def _write_anthropic(media: Media, names: set[str]) -> Part:
    del names
    if media.url:
        source = {"type": "url", "url": media.url}
    elif media.file_id:
        source = {"type": "file", "file_id": media.file_id}
    elif media.media_type == PLAIN_TEXT:
        source = {"type": "text", "media_type": PLAIN_TEXT, "data": _utf_8(media)}
    else:
        source = {"type": "base64", "media_type": media.media_type, "data": media.data}
    part: Part = {"type": media.kind, "source": source}
    if media.name and isinstance(media, Document):
        part["title"] = media.name
    return part


def _utf_8(media: Media) -> str:
    try:
        return media.content().decode()
    except UnicodeDecodeError:
        raise ValueError("its text is not UTF-8") from None


ANTHROPIC = MediaFormat(
    "anthropic",
    "Anthropic",
    {Image: Accepted(IMAGE_TYPES, IMAGE_TYPES), Document: Accepted((PDF, PLAIN_TEXT), (PDF,))},
    _read_anthropic,
    _write_anthropic,
    frozenset({"type", "source", "title", "data", "media_type", "url", "file_id", "content"}),
)
