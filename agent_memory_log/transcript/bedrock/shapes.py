"""Defines the required fields of each block of a Converse message. Unknown blocks may hold anything.

Binary content is base64 text in messages and in the log.
"""

from __future__ import annotations

import re

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.conversion.rendering import bytes_of_base64
from agent_memory_log.transcript.validity.shapes import (
    Check,
    Flaw,
    any_list,
    any_map,
    boolean,
    choice,
    closed_record,
    count,
    list_of,
    one_of,
    optional,
    some_text,
    text,
)

_URI = re.compile(r"s3://[a-z0-9][.\-a-z0-9]{1,61}[a-z0-9](/.*)?")
_ACCOUNT = re.compile(r"[0-9]{12}")
_LONGEST_URI = 1024
_LONGEST_DOCUMENT_NAME = 200
_LONGEST_REFERENCE = 128


def _blob(value: object) -> Flaw | None:
    if isinstance(value, str) and bytes_of_base64(value):
        return None
    return Flaw((), f"must be base64 text of at least one byte, got {describe(value)}")


def _matching(pattern: re.Pattern[str], longest: int) -> Check:
    def check(value: object) -> Flaw | None:
        if isinstance(value, str) and len(value) <= longest and pattern.fullmatch(value):
            return None
        return Flaw((), f"must match {pattern.pattern}, got {describe(value)}")

    return check


def _text_up_to(longest: int) -> Check:
    def check(value: object) -> Flaw | None:
        if isinstance(value, str) and 0 < len(value) <= longest:
            return None
        return Flaw((), f"must be text of 1 to {longest} characters, got {describe(value)}")

    return check


_LOCATION = closed_record(uri=_matching(_URI, _LONGEST_URI), bucketOwner=optional(_matching(_ACCOUNT, 12)))
_SOURCE = choice(bytes=_blob, s3Location=_LOCATION)
_ERROR = optional(closed_record(message=optional(text)))
_CITATIONS = optional(closed_record(enabled=boolean))
_TEXTS = list_of(choice(text=text))

_IMAGE = closed_record(format=one_of("png", "jpeg", "gif", "webp"), source=_SOURCE, error=_ERROR)
_DOCUMENT = closed_record(
    name=_text_up_to(_LONGEST_DOCUMENT_NAME),
    source=choice(bytes=_blob, s3Location=_LOCATION, text=text, content=_TEXTS),
    format=optional(one_of("pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md")),
    context=optional(text),
    citations=_CITATIONS,
)
_VIDEO = closed_record(
    format=one_of("mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"), source=_SOURCE
)
_AUDIO = closed_record(format=some_text, source=_SOURCE, error=_ERROR)
_SEARCH_RESULT = closed_record(source=text, title=text, content=list_of(closed_record(text=text)), citations=_CITATIONS)
_RESULT_PART = choice(
    json=any_map,
    text=text,
    image=_IMAGE,
    document=_DOCUMENT,
    video=_VIDEO,
    searchResult=_SEARCH_RESULT,
    or_unknown=True,
)
_RANGE = {"start": optional(count), "end": optional(count)}
_DOCUMENT_RANGE = closed_record(documentIndex=optional(count), **_RANGE)
_CITED = choice(
    web=closed_record(url=optional(text), domain=optional(text)),
    documentChar=_DOCUMENT_RANGE,
    documentPage=_DOCUMENT_RANGE,
    documentChunk=_DOCUMENT_RANGE,
    searchResultLocation=closed_record(searchResultIndex=optional(count), **_RANGE),
)
_CITATION = closed_record(
    title=optional(text), source=optional(text), sourceContent=optional(_TEXTS), location=optional(_CITED)
)
_REFERENCE = closed_record(
    type=optional(_text_up_to(64)),
    name=optional(_text_up_to(_LONGEST_REFERENCE)),
    serverName=optional(_text_up_to(_LONGEST_REFERENCE)),
)
_GUARDED = choice(
    text=closed_record(text=text, qualifiers=optional(list_of(one_of("grounding_source", "query", "guard_content")))),
    image=closed_record(format=one_of("png", "jpeg"), source=choice(bytes=_blob)),
)

_BLOCK = choice(
    text=text,
    image=_IMAGE,
    document=_DOCUMENT,
    video=_VIDEO,
    audio=_AUDIO,
    toolUse=closed_record(
        toolUseId=text, name=text, input=any_map, type=optional(one_of("tool_use", "server_tool_use"))
    ),
    toolResult=closed_record(
        toolUseId=text,
        content=list_of(_RESULT_PART),
        status=optional(one_of("success", "error")),
        type=optional(text),
    ),
    guardContent=_GUARDED,
    cachePoint=closed_record(type=one_of("default"), ttl=optional(one_of("5m", "1h"))),
    reasoningContent=choice(reasoningText=closed_record(text=text, signature=optional(text)), redactedContent=_blob),
    citationsContent=closed_record(content=optional(_TEXTS), citations=optional(list_of(_CITATION))),
    searchResult=_SEARCH_RESULT,
    toolAddition=closed_record(tool=_REFERENCE),
    toolRemoval=closed_record(tool=_REFERENCE),
    or_unknown=True,
)

_ENVELOPE = closed_record(role=one_of("user", "assistant", "system"), content=any_list)


def flaw_of_message(message: object) -> Flaw | None:
    """Return the first flaw of a message, without its blocks, or None."""
    return _ENVELOPE(message)


def flaw_of(block: object) -> Flaw | None:
    """Return the first flaw of a block, or None."""
    return _BLOCK(block)


def flaw_of_part(part: object) -> Flaw | None:
    """Return the first flaw of a block inside a result, or None."""
    return _RESULT_PART(part)
