"""Reads and writes media in the contents of Gemini. The types are those of Google's guides to each kind of media."""

from __future__ import annotations

from agent_memory_log.media.media_format import PDF, Accepted, Fields, MediaFormat, Part, map_in, text_in
from agent_memory_log.media.media_types import PLAIN_TEXT, type_of_url
from agent_memory_log.media.model import Audio, Document, Image, Media, Video, kind_for

_OWN_FILES = ("gs://", "https://generativelanguage.googleapis.com/")
_STANDARD = str.maketrans("-_", "+/")


def _read_gemini(part: Fields) -> Media | None:
    inline = map_in(part, "inlineData") or map_in(part, "inline_data")
    body = inline or map_in(part, "fileData") or map_in(part, "file_data")
    if not body:
        return None
    address = text_in(body, "fileUri") or text_in(body, "file_uri")
    media_type = text_in(body, "mimeType") or text_in(body, "mime_type") or type_of_url(address)
    kind, name = kind_for(media_type), text_in(body, "displayName") or text_in(body, "display_name")
    if inline:
        data = text_in(body, "data").rstrip("=").translate(_STANDARD)  # Google's SDK writes URL-safe base64
        return kind(media_type=media_type, data=data + "=" * (-len(data) % 4), name=name)
    if address.startswith(_OWN_FILES):
        return kind.from_file_id(address, "gemini", media_type, name=name)
    return kind.from_url(address, media_type, name=name)


def _write_gemini(media: Media, names: set[str]) -> Part:
    del names
    if media.data:
        return {"inlineData": {"mimeType": media.media_type, "data": media.data}}
    body = {"fileUri": media.url or media.file_id}
    return {"fileData": {"mimeType": media.media_type, **body} if media.media_type else body}


_IMAGES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")
_DOCUMENTS = (PDF, PLAIN_TEXT, "text/html", "text/markdown", "text/csv", "text/xml")
_AUDIO = ("audio/wav", "audio/mpeg", "audio/aiff", "audio/aac", "audio/ogg", "audio/flac")
_VIDEO = ("video/mp4", "video/mpeg", "video/quicktime", "video/x-flv", "video/webm", "video/x-ms-wmv", "video/3gpp")

GEMINI = MediaFormat(
    "gemini",
    "Gemini",
    {
        Image: Accepted(_IMAGES, _IMAGES, in_results=False),
        Document: Accepted(_DOCUMENTS, _DOCUMENTS, in_results=False),
        Audio: Accepted(_AUDIO, _AUDIO, in_results=False),
        Video: Accepted(_VIDEO, _VIDEO, in_results=False),
    },
    _read_gemini,
    _write_gemini,
    frozenset(
        {"inlineData", "inline_data", "fileData", "file_data", "mimeType", "mime_type", "data"}
        | {"fileUri", "file_uri", "displayName", "display_name"}
    ),
)
