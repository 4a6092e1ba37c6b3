"""Converts the images in a provider's message blocks to ATIF image parts, which hold a path, URL or ``data:`` URL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.transcript.gemini.rendering import value_in

ATIF = "atif"
"""The key in ``structured`` for the data of an imported trajectory. No images are read from it."""

_BY_ENDING = {
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "png": "image/png",
    "webp": "image/webp",
}
_MEDIA_TYPES = frozenset(_BY_ENDING.values())


def image_parts(structured: JsonValue) -> list[JsonValue]:
    """Return the parts for all images in a payload's ``structured``, in order. Skip image types that ATIF lacks."""
    if not isinstance(structured, Mapping):
        return []
    values = [value for key, value in structured.items() if key != ATIF]
    return [
        {"type": "image", "source": {"media_type": media_type, "path": path}}
        for media_type, path in _images_in(values)
        if media_type in _MEDIA_TYPES
    ]


def _images_in(value: JsonValue) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        image = _image(value)
        if image is not None:
            yield image
            return
        for inner in value.values():
            yield from _images_in(inner)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            yield from _images_in(inner)


def _image(block: Mapping[str, JsonValue]) -> tuple[str, str] | None:
    kind = block.get("type")
    if kind in ("image_url", "input_image"):  # OpenAI: Chat, Responses
        image = block.get("image_url")
        return _from_url(image.get("url") if isinstance(image, Mapping) else image)
    if kind == "image":  # Anthropic
        source = block.get("source")
        if isinstance(source, Mapping):
            return _from_data(source.get("media_type"), source.get("data")) or _from_url(source.get("url"))
        return None
    image = block.get("image")  # Bedrock
    if isinstance(image, Mapping) and isinstance(image.get("source"), Mapping):
        source = cast("Mapping[str, JsonValue]", image["source"])
        return _from_data(f"image/{image.get('format')}", source.get("bytes"))
    return _of_gemini(block)


def _of_gemini(block: Mapping[str, JsonValue]) -> tuple[str, str] | None:
    data, file = value_in(block, "inlineData"), value_in(block, "fileData")
    if isinstance(data, Mapping):
        fields = cast("Mapping[str, JsonValue]", data)
        return _from_data(value_in(fields, "mimeType"), fields.get("data"))
    if isinstance(file, Mapping):
        fields = cast("Mapping[str, JsonValue]", file)
        media_type, uri = value_in(fields, "mimeType"), value_in(fields, "fileUri")
        return (media_type, uri) if isinstance(media_type, str) and isinstance(uri, str) else _from_url(uri)
    return None


def _from_data(media_type: JsonValue, data: JsonValue) -> tuple[str, str] | None:
    if isinstance(media_type, str) and isinstance(data, str):
        return media_type, f"data:{media_type};base64,{data}"
    return None


def _from_url(url: JsonValue) -> tuple[str, str] | None:
    if not isinstance(url, str):
        return None
    if url.startswith("data:"):
        return url[len("data:") :].partition(",")[0].partition(";")[0], url
    ending = url.partition("?")[0].rpartition(".")[2].lower()
    return (_BY_ENDING[ending], url) if ending in _BY_ENDING else None
