"""Reads and writes media in the messages of both OpenAI interfaces."""

from __future__ import annotations

from collections.abc import Mapping

from agent_memory_log.media import media_types
from agent_memory_log.media.media_format import (
    ANY,
    IMAGE_TYPES,
    PDF,
    SHORT_NAMES,
    Accepted,
    Fields,
    MediaFormat,
    Part,
    map_in,
    short_name,
    text_in,
)
from agent_memory_log.media.media_types import type_of_url
from agent_memory_log.media.model import Audio, Document, Image, Media, kind_for


def _read_chat(part: Fields) -> Media | None:
    kind = part.get("type")
    if kind == "image_url":
        image = part.get("image_url")
        fields = image if isinstance(image, Mapping) else {"url": image}
        return Image.from_url(text_in(fields, "url"), detail=_detail(fields))
    if kind == "input_audio":
        audio = map_in(part, "input_audio")
        media_type = media_types.AUDIO.get(text_in(audio, "format"), "")
        return Audio(media_type=media_type, data=text_in(audio, "data"))
    return _read_file(map_in(part, "file"), "openai-chat") if kind == "file" else None


def _read_file(fields: Fields, provider: str) -> Media:
    name, data, detail = text_in(fields, "filename"), text_in(fields, "file_data"), _detail(fields)
    if text_in(fields, "file_id"):
        return Document.from_file_id(text_in(fields, "file_id"), provider, name=name, detail=detail)
    if data.startswith("data:"):
        media_type = data[len("data:") : 100].partition(",")[0].partition(";")[0].lower()
        return kind_for(media_type).from_url(data, name=name, detail=detail)
    if data:
        media_type = type_of_url(f"/{name}")
        return kind_for(media_type)(media_type=media_type, data=data, name=name, detail=detail)
    url = text_in(fields, "file_url")
    return kind_for(type_of_url(url)).from_url(url, name=name, detail=detail)


def _detail(fields: Fields) -> str:
    return text_in(fields, "detail")


def _write_chat(media: Media, names: set[str]) -> Part:
    del names
    if isinstance(media, Image):
        if media.file_id:
            raise ValueError("Chat Completions accepts no file id of an image")
        image = {"url": media.url or media.data_url}
        if media.detail in ("low", "high", "auto"):
            image["detail"] = media.detail
        return {"type": "image_url", "image_url": image}
    if isinstance(media, Audio):
        return {"type": "input_audio", "input_audio": {"data": media.data, "format": short_name(media)}}
    return {"type": "file", "file": _file(media)}


def _file(media: Media) -> Part:
    if media.file_id:
        return {"file_id": media.file_id}
    if media.url:
        return {"file_url": media.url}
    return {"filename": media.name or f"document.{_ending(media)}", "file_data": media.data_url}


def _ending(media: Media) -> str:
    return SHORT_NAMES.get(media.media_type) or media.media_type.rpartition("/")[2]


def _read_responses(part: Fields) -> Media | None:
    kind = part.get("type")
    if kind in ("input_image", "computer_screenshot"):
        file_id, detail = text_in(part, "file_id"), _detail(part)
        if file_id:
            return Image.from_file_id(file_id, "openai-responses", detail=detail)
        return Image.from_url(text_in(part, "image_url"), detail=detail)
    if kind == "input_file":
        return _read_file(part, "openai-responses")
    return _read_chat(part) if kind == "input_audio" else None


def _write_responses(media: Media, names: set[str]) -> Part:
    del names
    if isinstance(media, Image):
        part: Part = {"type": "input_image", "detail": media.detail or "auto"}
        if media.file_id:
            return {**part, "file_id": media.file_id}
        return {**part, "image_url": media.url or media.data_url}
    part = {"type": "input_file", **_file(media)}
    if media.detail in ("low", "high", "auto"):
        part["detail"] = media.detail
    return part


CHAT = MediaFormat(
    "openai-chat",
    "Chat Completions",
    {
        Image: Accepted(IMAGE_TYPES, IMAGE_TYPES, in_results=False),
        Audio: Accepted(("audio/wav", "audio/mpeg"), in_results=False),
        Document: Accepted((PDF,), in_results=False),
    },
    _read_chat,
    _write_chat,
    frozenset(
        {"type", "image_url", "url", "detail", "input_audio", "data", "format", "file"}
        | {"file_data", "file_id", "filename"}
    ),
)

RESPONSES = MediaFormat(
    "openai-responses",
    "OpenAI Responses",
    {Image: Accepted(IMAGE_TYPES, IMAGE_TYPES), Document: Accepted(ANY, ANY)},
    _read_responses,
    _write_responses,
    frozenset(
        {"type", "image_url", "detail", "file_id", "file_data", "file_url", "filename"}
        | {"input_audio", "data", "format"}
    ),
)
