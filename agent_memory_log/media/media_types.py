"""Holds the media types that providers know, with the short name that each has as a format and as a file's ending."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

IMAGES = {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}

DOCUMENTS = {
    "pdf": "application/pdf",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "html": "text/html",
    "txt": "text/plain",
    "md": "text/markdown",
}

VIDEOS = {
    "mkv": "video/x-matroska",
    "mov": "video/quicktime",
    "mp4": "video/mp4",
    "webm": "video/webm",
    "flv": "video/x-flv",
    "mpeg": "video/mpeg",
    "wmv": "video/x-ms-wmv",
    "three_gp": "video/3gpp",
}

AUDIO = {
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "opus": "audio/opus",
    "m4a": "audio/mp4",
    "webm": "audio/webm",
}

ALIASES = {
    "image/jpg": "image/jpeg",
    "audio/mp3": "audio/mpeg",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "text/x-markdown": "text/markdown",
}
"""Other names of some media types, and the name that providers accept."""

PLAIN_TEXT = "text/plain"

_BY_ENDING = {**AUDIO, **VIDEOS, **DOCUMENTS, **IMAGES, "jpg": "image/jpeg", "htm": "text/html", "mpg": "video/mpeg"}
_ENDING = re.compile(r"\.([a-z0-9]{1,8})$")


def type_of_url(url: str) -> str:
    """Return the media type that the ending of a URL's path names; ``""`` if it names none."""
    try:
        path = urlsplit(url).path
    except ValueError:
        return ""
    ending = _ENDING.search(path[-16:].lower())
    return _BY_ENDING.get(ending[1], "") if ending is not None else ""


def without_ending(name: str, media_type: str) -> str:
    """Return a file name without an ending that only names its media type."""
    stem, dot, ending = name.rpartition(".")
    return stem if dot and _BY_ENDING.get(ending.lower()) == media_type else name
