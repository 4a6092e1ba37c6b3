"""Converts the images in payloads to ATIF image parts, which hold a path, a URL or a ``data:`` URL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.media import Image
from agent_memory_log.media.formats import read_any
from agent_memory_log.media.media_types import IMAGES

ATIF = "atif"
"""The key in ``structured`` for the data of an imported trajectory. No images are read from it."""

_MEDIA_TYPES = frozenset(IMAGES.values())


def image_parts(structured: JsonValue) -> list[JsonValue]:
    """Return the parts for all images in a payload's ``structured``, in order. Skip image types that ATIF lacks."""
    if not isinstance(structured, Mapping):
        return []
    values = [value for key, value in structured.items() if key != ATIF]
    return [
        {
            "type": "image",
            "source": {"media_type": image.media_type, "path": image.url or image.data_url or image.file_id},
        }
        for image in _images_in(values)
        if image.media_type in _MEDIA_TYPES
    ]


def _images_in(value: JsonValue) -> Iterator[Image]:
    if isinstance(value, Mapping):
        media = read_any(value)
        if isinstance(media, Image):
            yield media
        elif media is None:
            for inner in value.values():
                yield from _images_in(inner)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            yield from _images_in(inner)
