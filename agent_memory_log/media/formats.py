"""Says for each provider which media it accepts, and reads and writes media in its form.

To add a provider, write a reader and a writer and add a ``MediaFormat`` to ``FORMATS``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.media import media_types
from agent_memory_log.media.media_types import PLAIN_TEXT, type_of_url, without_ending
from agent_memory_log.media.model import Audio, Document, Image, Media, Video, kind_for

Part = dict[str, Any]
"""A part of a message in a provider's form."""

Fields = Mapping[str, JsonValue]

NEUTRAL = "media"
"""The key in ``structured`` for content with media that belongs to no provider."""


class Accepted(msgspec.Struct, frozen=True):
    """What a provider accepts of one kind of media.

    Attributes:
        types: The media types of data. ``*`` means every type.
        url_types: The media types behind URLs, as in ``types``; empty if the provider takes no URLs.
        in_results: Whether a tool's result may hold it.
    """

    types: Sequence[str]
    url_types: Sequence[str] = ()
    in_results: bool = True


class MediaFormat(msgspec.Struct, frozen=True):
    """The form of media in the messages of one provider.

    Attributes:
        provider: The provider's name in ``structured``.
        label: The name for people.
        accepted: What the provider accepts of each kind.
        read: Returns the media in a part; None if the part is no media. It raises ``ValueError`` or ``InvalidArgument``
            if the media cannot be read.
        write: Returns the part for media that the provider accepts. It takes the names of documents used so far, and
            raises ``ValueError`` with the reason if the media cannot be written.
        known: The keys in a part that ``read`` uses. Others belong to the provider alone.
    """

    provider: str
    label: str
    accepted: Mapping[type[Media], Accepted]
    read: Callable[[Fields], Media | None]
    write: Callable[[Media, set[str]], Part]
    known: frozenset[str]

    def has_more(self, part: Fields) -> bool:
        """Return whether a part has fields besides its media."""
        return any(
            key not in self.known or (isinstance(value, Mapping) and self.has_more(value))
            for key, value in part.items()
            if value is not None
        )

    def written(self, media: Media, names: set[str], *, in_result: bool) -> Part:
        """Return the part for ``media``. Raise ``ValueError`` with the reason if the provider does not accept it."""
        accepted = self.accepted.get(type(media))
        if accepted is None or (in_result and not accepted.in_results):
            raise ValueError(f"{self.label} accepts no {media.kind}{' in results' if in_result else ''}")
        if media.file_id:
            if media.provider != self.provider:
                raise ValueError(f"{self.label} cannot read a file at {media.provider}")
            return self.write(media, names)
        if media.url and not accepted.url_types:
            raise ValueError(f"{self.label} accepts no URL of this {media.kind}")
        types = accepted.url_types if media.url else accepted.types
        media_type = media_types.ALIASES.get(media.media_type, media.media_type)
        if media_type not in types and media_type.startswith("text/") and PLAIN_TEXT in types:
            media_type = PLAIN_TEXT
        if media_type and media_type not in types and "*" not in types:
            raise ValueError(f"{self.label} accepts only {', '.join(types)} here")
        return self.write(msgspec.structs.replace(media, media_type=media_type), names)


def _text(fields: Fields, key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def _map(fields: Fields, key: str) -> Fields:
    value = fields.get(key)
    return value if isinstance(value, Mapping) else {}


def _from_text(text: str, name: str) -> Document:
    return Document.from_bytes(text.encode(), PLAIN_TEXT, name=name)


def _texts_in(content: JsonValue) -> str:
    """Return the text of a document that consists of text blocks. Raise ``ValueError`` for other documents."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for block in content if isinstance(content, Sequence) else [None]:
        text = block.get("text") if isinstance(block, Mapping) else None
        if not isinstance(text, str):
            raise ValueError("the document's content is not only text")  # noqa: TRY004  # a value of the log, not a type
        texts.append(text)
    return "\n".join(texts)


# Anthropic.


def _read_anthropic(part: Fields) -> Media | None:
    kind = {"image": Image, "document": Document}.get(_text(part, "type"))
    if kind is None:
        return None
    source, name = _map(part, "source"), _text(part, "title")
    source_type = source.get("type")
    if source_type == "text":
        return _from_text(_text(source, "data"), name)
    if source_type == "content":
        return _from_text(_texts_in(source.get("content")), name)
    if source_type == "url":
        return kind.from_url(_text(source, "url"), name=name)
    if source_type == "file":
        return kind.from_file_id(_text(source, "file_id"), "anthropic", name=name)
    return kind(media_type=_text(source, "media_type"), data=_text(source, "data"), name=name)


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


# OpenAI.


def _read_chat(part: Fields) -> Media | None:
    kind = part.get("type")
    if kind == "image_url":
        image = part.get("image_url")
        fields = image if isinstance(image, Mapping) else {"url": image}
        return Image.from_url(_text(fields, "url"), detail=_detail(fields))
    if kind == "input_audio":
        audio = _map(part, "input_audio")
        media_type = media_types.AUDIO.get(_text(audio, "format"), "")
        return Audio(media_type=media_type, data=_text(audio, "data"))
    return _read_file(_map(part, "file"), "openai-chat") if kind == "file" else None


def _read_file(fields: Fields, provider: str) -> Media:
    name, data, detail = _text(fields, "filename"), _text(fields, "file_data"), _detail(fields)
    if _text(fields, "file_id"):
        return Document.from_file_id(_text(fields, "file_id"), provider, name=name, detail=detail)
    if data.startswith("data:"):
        media_type = data[len("data:") : 100].partition(",")[0].partition(";")[0].lower()
        return kind_for(media_type).from_url(data, name=name, detail=detail)
    if data:
        media_type = type_of_url(f"/{name}")
        return kind_for(media_type)(media_type=media_type, data=data, name=name, detail=detail)
    url = _text(fields, "file_url")
    return kind_for(type_of_url(url)).from_url(url, name=name, detail=detail)


def _detail(fields: Fields) -> str:
    return _text(fields, "detail")


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
        return {"type": "input_audio", "input_audio": {"data": media.data, "format": _short_name(media)}}
    return {"type": "file", "file": _file(media)}


def _file(media: Media) -> Part:
    if media.file_id:
        return {"file_id": media.file_id}
    if media.url:
        return {"file_url": media.url}
    return {"filename": media.name or f"document.{_ending(media)}", "file_data": media.data_url}


def _ending(media: Media) -> str:
    return _SHORT_NAMES.get(media.media_type) or media.media_type.rpartition("/")[2]


def _read_responses(part: Fields) -> Media | None:
    kind = part.get("type")
    if kind in ("input_image", "computer_screenshot"):
        file_id, detail = _text(part, "file_id"), _detail(part)
        if file_id:
            return Image.from_file_id(file_id, "openai-responses", detail=detail)
        return Image.from_url(_text(part, "image_url"), detail=detail)
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


# Bedrock.

_BEDROCK_KINDS: Mapping[str, tuple[type[Media], Mapping[str, str]]] = {
    "image": (Image, media_types.IMAGES),
    "document": (Document, media_types.DOCUMENTS),
    "video": (Video, {**media_types.VIDEOS, "mpg": "video/mpeg"}),
    "audio": (Audio, media_types.AUDIO),
}
_SHORT_NAMES = {
    media_type: short_name
    for types in (media_types.AUDIO, media_types.VIDEOS, media_types.DOCUMENTS, media_types.IMAGES)
    for short_name, media_type in types.items()
}

_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9()\[\]-]+", re.ASCII)
_LONGEST_NAME = 200


def _read_bedrock(part: Fields) -> Media | None:
    key = next((key for key in _BEDROCK_KINDS if isinstance(part.get(key), Mapping)), None)
    if key is None:
        return None
    kind, types = _BEDROCK_KINDS[key]
    body = _map(part, key)
    source, name = _map(body, "source"), _text(body, "name")
    if "text" in source or "content" in source:
        return _from_text(_texts_in(source.get("text") or source.get("content")), name)
    media_type = types.get(_text(body, "format"), "")
    location = _text(_map(source, "s3Location"), "uri")
    if location:
        return kind.from_file_id(location, "bedrock", media_type, name=name)
    return kind(media_type=media_type, data=_text(source, "bytes"), name=name)


def _write_bedrock(media: Media, names: set[str]) -> Part:
    source = {"s3Location": {"uri": media.file_id}} if media.file_id else {"bytes": media.data}
    body: Part = {"format": _short_name(media)}
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


def _short_name(media: Media) -> str:
    if media.media_type not in _SHORT_NAMES:
        raise ValueError("its media type is not known")
    return _SHORT_NAMES[media.media_type]


# The form of the log.


def _read_neutral(part: Fields) -> Media | None:
    if part.get("type") not in ("image", "document", "audio", "video"):
        return None
    return cast("Media", msgspec.convert(part, Image | Document | Audio | Video))


def _write_neutral(media: Media, names: set[str]) -> Part:
    del names
    return cast("Part", msgspec.to_builtins(media))


_IMAGES = tuple(media_types.IMAGES.values())
_PDF = "application/pdf"
_ANY = ("*",)

_FORMATS = (
    MediaFormat(
        "anthropic",
        "Anthropic",
        {Image: Accepted(_IMAGES, _IMAGES), Document: Accepted((_PDF, PLAIN_TEXT), (_PDF,))},
        _read_anthropic,
        _write_anthropic,
        frozenset({"type", "source", "title", "data", "media_type", "url", "file_id", "content"}),
    ),
    MediaFormat(
        "openai-chat",
        "Chat Completions",
        {
            Image: Accepted(_IMAGES, _IMAGES, in_results=False),
            Audio: Accepted(("audio/wav", "audio/mpeg"), in_results=False),
            Document: Accepted((_PDF,), in_results=False),
        },
        _read_chat,
        _write_chat,
        frozenset(
            {"type", "image_url", "url", "detail", "input_audio", "data", "format", "file"}
            | {"file_data", "file_id", "filename"}
        ),
    ),
    MediaFormat(
        "openai-responses",
        "OpenAI Responses",
        {Image: Accepted(_IMAGES, _IMAGES), Document: Accepted(_ANY, _ANY)},
        _read_responses,
        _write_responses,
        frozenset(
            {"type", "image_url", "detail", "file_id", "file_data", "file_url", "filename"}
            | {"input_audio", "data", "format"}
        ),
    ),
    MediaFormat(
        "bedrock",
        "Bedrock",
        {
            Image: Accepted(_IMAGES),
            Document: Accepted(tuple(media_types.DOCUMENTS.values())),
            Video: Accepted(tuple(media_types.VIDEOS.values())),
            Audio: Accepted(tuple(media_types.AUDIO.values()), in_results=False),
        },
        _read_bedrock,
        _write_bedrock,
        frozenset({*_BEDROCK_KINDS, "format", "name", "source", "bytes", "s3Location", "uri", "text", "content"}),
    ),
    MediaFormat(
        NEUTRAL,
        "the log",
        {},
        _read_neutral,
        _write_neutral,
        frozenset(Media.__struct_fields__) | {"type"},
    ),
)

FORMATS: Mapping[str, MediaFormat] = {media_format.provider: media_format for media_format in _FORMATS}
"""The forms of media by the provider's name. ``media`` is the form of content that belongs to no provider."""


def read_media(part: Fields, media_format: MediaFormat) -> Media | None:
    """Return the media in a part; None if it is none. Raise ``ValueError`` with the reason if it cannot be read."""
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
