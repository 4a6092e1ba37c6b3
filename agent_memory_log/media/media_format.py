"""Defines the form of media in a provider's messages, and what providers' readers and writers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.media import media_types
from agent_memory_log.media.media_types import PLAIN_TEXT
from agent_memory_log.media.model import Document, Media

Part = dict[str, Any]
"""A part of a message in a provider's form."""

Fields = Mapping[str, JsonValue]

IMAGE_TYPES = tuple(media_types.IMAGES.values())
PDF = "application/pdf"
ANY = ("*",)

SHORT_NAMES = {
    media_type: short_name
    for types in (media_types.AUDIO, media_types.VIDEOS, media_types.DOCUMENTS, media_types.IMAGES)
    for short_name, media_type in types.items()
}
"""The short name of each media type."""


class Accepted(msgspec.Struct, frozen=True):
    """The media of one kind that a provider accepts.

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
        keys: The keys in a part that ``read`` uses. Others belong to the provider alone.
    """

    provider: str
    label: str
    accepted: Mapping[type[Media], Accepted]
    read: Callable[[Fields], Media | None]
    write: Callable[[Media, set[str]], Part]
    keys: frozenset[str]

    def beside_media(self, part: Fields) -> dict[str, JsonValue]:
        """Return the fields of a part that are not its media."""
        beside: dict[str, JsonValue] = {}
        for key, value in part.items():
            if key not in self.keys:
                beside[key] = value
            elif isinstance(value, Mapping):
                beside |= self.beside_media(value)
        return beside

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
        if media_type != media.media_type:
            media = msgspec.structs.replace(media, media_type=media_type)
        return self.write(media, names)


def text_in(fields: Fields, key: str) -> str:
    """Return the text in a field; ``""`` if the field holds no text."""
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def map_in(fields: Fields, key: str) -> Fields:
    """Return the map in a field; an empty map if the field holds no map."""
    value = fields.get(key)
    return value if isinstance(value, Mapping) else {}


def text_document(text: str, name: str) -> Document:
    """Return a document of plain text."""
    return Document.from_bytes(text.encode(), PLAIN_TEXT, name=name)


def texts_in(content: JsonValue) -> str:
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


def short_name(media: Media) -> str:
    """Return the name of the format. Raise ``ValueError`` if the media type is not in the tables."""
    if media.media_type not in SHORT_NAMES:
        raise ValueError("its media type is not known")
    return SHORT_NAMES[media.media_type]
