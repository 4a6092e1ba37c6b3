"""Lists the form of media of each provider.

To add a provider, write a module with its reader and writer, and add its ``MediaFormat`` to ``FORMATS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.media.anthropic import ANTHROPIC
from agent_memory_log.media.bedrock import BEDROCK
from agent_memory_log.media.gemini import GEMINI
from agent_memory_log.media.media_format import Fields, MediaFormat, Part, map_in, text_in
from agent_memory_log.media.model import Audio, Document, Image, Media, Video
from agent_memory_log.media.openai import CHAT, RESPONSES

NEUTRAL = "media"
"""The key in ``structured`` for content with media that belongs to no provider."""


def _read_neutral(part: Fields) -> Media | None:
    if part.get("type") not in ("image", "document", "audio", "video"):
        return None
    return cast("Media", msgspec.convert(part, Image | Document | Audio | Video))


def _read_atif(part: Fields) -> Media | None:
    if part.get("type") != "image":
        return None
    source = map_in(part, "source")
    return Image.from_url(text_in(source, "path"), text_in(source, "media_type"))


def _write_neutral(media: Media, names: set[str]) -> Part:
    del names
    return cast("Part", msgspec.to_builtins(media))


_NEUTRAL_FORMAT = MediaFormat(
    NEUTRAL,
    "the log",
    {},
    _read_neutral,
    _write_neutral,
    frozenset(Media.__struct_fields__) | {"type"},
)

_ATIF = MediaFormat("atif", "ATIF", {}, _read_atif, _write_neutral, frozenset({"type", "source", "path", "media_type"}))

FORMATS: Mapping[str, MediaFormat] = {
    media_format.provider: media_format
    for media_format in (ANTHROPIC, CHAT, RESPONSES, BEDROCK, GEMINI, _NEUTRAL_FORMAT, _ATIF)
}
"""The forms of media by the key in ``structured``: each provider's, ``media`` for content that belongs to no provider,
and ``atif`` for imported trajectories."""


def read_media(part: Fields, media_format: MediaFormat) -> Media | None:
    """Return the media in a part; None if it holds no media. Raise ``ValueError`` if the media cannot be read."""
    try:
        return media_format.read(part)
    except (InvalidArgument, msgspec.ValidationError, UnicodeError) as error:
        raise ValueError(str(error)) from error


def read_any(part: Fields) -> Media | None:
    """Return the media in a part of any provider; None if no provider's reader can read it."""
    for media_format in FORMATS.values():
        try:
            media = read_media(part, media_format)
        except ValueError:
            continue
        if media is not None:
            return media
    return None
