"""Defines ``Image``, ``Document``, ``Audio`` and ``Video``. Each checks its fields when it is created."""

from __future__ import annotations

import base64
import binascii
import re
from typing import ClassVar, Self

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.media.media_types import type_of_url

MAX_CONTENT_BYTES = 32 * 1024 * 1024
"""The most bytes of one message or result with media: text as UTF-8, media as base64.

It is the size of the largest request to Anthropic.
"""

_LONGEST_TEXT = 8192
_DETAILS = frozenset({"", "low", "high", "auto", "original"})
_MEDIA_TYPE = re.compile(r"[a-z0-9]{1,64}/[a-z0-9][a-z0-9.+_-]{0,127}")
_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^;,]*)*;base64,")


class Media(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="type"):
    """The base class of media. Exactly one of ``data``, ``url`` and ``file_id`` is set.

    Create media with ``from_bytes``, ``from_url`` or ``from_file_id``. Every way of creation raises ``InvalidArgument``
    for a field that is not valid, and names the field.

    Attributes:
        media_type: The media type in lower case, such as ``image/png``. It is ``""`` if a URL or file id does not tell.
        data: The content as base64 text.
        url: The ``https:`` or ``http:`` address of the content.
        file_id: The id of a file at ``provider``, or the file's address in S3 for Bedrock. No other provider gets it.
        provider: The provider that ``file_id`` belongs to, such as ``anthropic``; ``""`` without a file id.
        name: The file name or title; ``""`` if it has none.
        detail: How closely OpenAI's models look at it: ``low``, ``high``, ``auto``, ``original``, or ``""``.
    """

    kind: ClassVar[str] = "media"

    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""
    provider: str = ""
    name: str = ""
    detail: str = ""

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str, *, name: str = "", detail: str = "") -> Self:
        """Return media with this content."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise InvalidArgument(f"data must be bytes, got {describe(data)}")
        if len(data) > MAX_CONTENT_BYTES:
            raise InvalidArgument(f"data has {len(data):,} bytes; the limit is {MAX_CONTENT_BYTES:,} as base64")
        return cls(media_type=media_type, data=base64.b64encode(data).decode(), name=name, detail=detail)

    @classmethod
    def from_url(cls, url: str, media_type: str = "", *, name: str = "", detail: str = "") -> Self:
        """Return media at a URL. A ``data:`` URL becomes ``data``. Without a media type, the URL's ending decides."""
        if not isinstance(url, str):
            raise InvalidArgument(f"url must be text, got {describe(url)}")
        header = _DATA_URL.match(url, 0, _LONGEST_TEXT)
        if header is not None:
            media_type = media_type or header[1].lower()
            return cls(media_type=media_type, data=url[header.end() :], name=name, detail=detail)
        return cls(media_type=media_type or type_of_url(url), url=url, name=name, detail=detail)

    @classmethod
    def from_file_id(
        cls, file_id: str, provider: str, media_type: str = "", *, name: str = "", detail: str = ""
    ) -> Self:
        """Return media that was uploaded to ``provider``."""
        return cls(media_type=media_type, file_id=file_id, provider=provider, name=name, detail=detail)

    @property
    def data_url(self) -> str:
        """The content as a ``data:`` URL; ``""`` without data."""
        return f"data:{self.media_type};base64,{self.data}" if self.data else ""

    def content(self) -> bytes:
        """Return the content's bytes; empty for media with a URL or file id."""
        return base64.b64decode(self.data)

    def described(self) -> str:
        """Return a short description for messages, such as ``image (image/png, 1,024 bytes)``."""
        size = f"{_size_of(self.data):,} bytes" if self.data else "a URL" if self.url else f"a file at {self.provider}"
        return f"{self.kind} ({self.media_type}, {size})" if self.media_type else f"{self.kind} ({size})"

    @classmethod
    def fits(cls, media_type: str) -> bool:
        """Return whether media of this class may have the media type."""
        return media_type.startswith(f"{cls.kind}/")

    def __post_init__(self) -> None:
        for field in ("media_type", "url", "file_id", "provider", "name"):
            text = getattr(self, field)
            if not isinstance(text, str) or len(text) > _LONGEST_TEXT:
                raise InvalidArgument(f"{field} must be text of at most {_LONGEST_TEXT:,} characters")
        if not isinstance(self.detail, str) or self.detail not in _DETAILS:
            raise InvalidArgument(f"detail must be low, high, auto or original, got {describe(self.detail)}")
        if (self.data != "") + (self.url != "") + (self.file_id != "") != 1:
            raise InvalidArgument("exactly one of data, url and file_id must be set, and data must not be empty")
        if self.media_type or self.data:
            self._check_media_type()
        if self.url and not self.url.startswith(("https://", "http://")):
            raise InvalidArgument(f"url must begin with https:// or http://, got {describe(self.url)}")
        if bool(self.file_id) != bool(self.provider):
            raise InvalidArgument("provider must be set for a file_id, and only for it")
        if self.data:
            _check_base64(self.data)

    def _check_media_type(self) -> None:
        if not _MEDIA_TYPE.fullmatch(self.media_type) or not self.fits(self.media_type):
            raise InvalidArgument(f"media_type of {self.kind} does not fit, got {describe(self.media_type)}")


class Image(Media, frozen=True, tag="image"):
    """An image. Its media type begins with ``image/``."""

    kind = "image"


class Audio(Media, frozen=True, tag="audio"):
    """A sound recording. Its media type begins with ``audio/``."""

    kind = "audio"


class Video(Media, frozen=True, tag="video"):
    """A video. Its media type begins with ``video/``."""

    kind = "video"


class Document(Media, frozen=True, tag="document"):
    """A document. It may have any media type, except those of the other kinds."""

    kind = "document"

    @classmethod
    def fits(cls, media_type: str) -> bool:
        """Return whether no other kind has the media type."""
        return not media_type.startswith(("image/", "audio/", "video/"))


def kind_for(media_type: str) -> type[Media]:
    """Return the class of media with this media type; ``Document`` for an unknown one."""
    return next((kind for kind in (Image, Audio, Video) if kind.fits(media_type)), Document)


def _size_of(data: str) -> int:
    return len(data) // 4 * 3 - data.endswith("=") - data.endswith("==")


def _check_base64(data: str) -> None:
    """Raise ``InvalidArgument`` unless ``data`` is the standard base64 of its bytes."""
    if not isinstance(data, str):
        raise InvalidArgument(f"data must be base64 text, got {describe(data)}")
    if len(data) > MAX_CONTENT_BYTES:
        raise InvalidArgument(f"data has {len(data):,} bytes as base64; the limit is {MAX_CONTENT_BYTES:,}")
    last = data[-4:]
    try:
        binascii.a2b_base64(data, strict_mode=True)
        is_standard = base64.b64encode(base64.b64decode(last)).decode() == last
    except ValueError:  # binascii.Error, or a character that is not ASCII
        is_standard = False
    if not is_standard:
        raise InvalidArgument(f"data must be standard base64 text, got {describe(data[:40])}")
