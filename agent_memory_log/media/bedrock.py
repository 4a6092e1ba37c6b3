"""Reads and writes media in the messages of Bedrock."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent_memory_log.media import media_types
from agent_memory_log.media.media_format import (
    IMAGE_TYPES,
    Accepted,
    Fields,
    MediaFormat,
    Part,
    map_in,
    short_name,
    text_document,
    text_in,
    texts_in,
)
from agent_memory_log.media.media_types import without_ending
from agent_memory_log.media.model import Audio, Document, Image, Media, Video

_BEDROCK_KINDS: Mapping[str, tuple[type[Media], Mapping[str, str]]] = {
    "image": (Image, media_types.IMAGES),
    "document": (Document, media_types.DOCUMENTS),
    "video": (Video, {**media_types.VIDEOS, "mpg": "video/mpeg"}),
    "audio": (Audio, media_types.AUDIO),
}
_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9()\[\]-]+", re.ASCII)
_LONGEST_NAME = 200


def _read_bedrock(part: Fields) -> Media | None:
    key = next((key for key in _BEDROCK_KINDS if isinstance(part.get(key), Mapping)), None)
    if key is None:
        return None
    kind, types = _BEDROCK_KINDS[key]
    body = map_in(part, key)
    source, name = map_in(body, "source"), text_in(body, "name")
    if "text" in source or "content" in source:
        return text_document(texts_in(source.get("text") or source.get("content")), name)
    media_type = types.get(text_in(body, "format"), "")
    location = text_in(map_in(source, "s3Location"), "uri")
    if location:
        return kind.from_file_id(location, "bedrock", media_type, name=name)
    return kind(media_type=media_type, data=text_in(source, "bytes"), name=name)


def _write_bedrock(media: Media, names: set[str]) -> Part:
    source = {"s3Location": {"uri": media.file_id}} if media.file_id else {"bytes": media.data}
    body: Part = {"format": short_name(media)}
    if isinstance(media, Document):
        body["name"] = _unused(_bedrock_name(media), names)
    return {media.kind: {**body, "source": source}}


def _bedrock_name(media: Media) -> str:
    """Return a document's name with only the characters that Bedrock accepts."""
    name = _NOT_IN_NAME.sub(" ", without_ending(media.name, media.media_type)).strip()
    return name[:_LONGEST_NAME].rstrip() or "Document"


def _unused(name: str, names: set[str]) -> str:
    """Return ``name``, or its first numbered form that is not in ``names``. Bedrock refuses equal names."""
    unused, number = name, 1
    while unused.lower() in names:
        number += 1
        unused = f"{name[: _LONGEST_NAME - 8]} {number}"
    names.add(unused.lower())
    return unused


BEDROCK = MediaFormat(
    "bedrock",
    "Bedrock",
    {
        Image: Accepted(IMAGE_TYPES),
        Document: Accepted(tuple(media_types.DOCUMENTS.values())),
        Video: Accepted(tuple(media_types.VIDEOS.values())),
        Audio: Accepted(tuple(media_types.AUDIO.values()), in_results=False),
    },
    _read_bedrock,
    _write_bedrock,
    frozenset({*_BEDROCK_KINDS, "format", "name", "source", "bytes", "s3Location", "uri", "text", "content"}),
)
