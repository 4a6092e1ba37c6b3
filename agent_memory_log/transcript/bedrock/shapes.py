"""What each block of a Converse message must hold; of blocks not known, anything.

Blobs are base64 text in our JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.bedrock.rendering import encrypted_bytes
from agent_memory_log.transcript.shapes import (
    Check,
    Flaw,
    any_map,
    anything,
    boolean,
    choice,
    count,
    list_of,
    one_of,
    record,
    some_text,
    text,
)

_URI = re.compile(r"s3://[a-z0-9][.\-a-z0-9]{1,61}[a-z0-9](/.*)?")
_ACCOUNT = re.compile(r"[0-9]{12}")
_LONGEST_URI = 1024
_LONGEST_DOCUMENT_NAME = 200
_LONGEST_REFERENCE = 128


def _blob(value: object) -> Flaw | None:
    if isinstance(value, str) and encrypted_bytes(value):
        return None
    return Flaw((), f"must be base64 text of at least one byte, found {describe(value)}")


def _matching(pattern: re.Pattern[str], longest: int) -> Check:
    def check(value: object) -> Flaw | None:
        if isinstance(value, str) and len(value) <= longest and pattern.fullmatch(value):
            return None
        return Flaw((), f"must match {pattern.pattern}, found {describe(value)}")

    return check


def _text_up_to(longest: int) -> Check:
    def check(value: object) -> Flaw | None:
        if isinstance(value, str) and 0 < len(value) <= longest:
            return None
        return Flaw((), f"must be text of 1 to {longest} characters, found {describe(value)}")

    return check


def _map(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    return record(required, optional, closed=True)


_LOCATION = _map({"uri": _matching(_URI, _LONGEST_URI)}, {"bucketOwner": _matching(_ACCOUNT, 12)})
_SOURCE = choice({"bytes": _blob, "s3Location": _LOCATION})
_ERROR = _map({}, {"message": text})
_CITATIONS = _map({"enabled": boolean})
_TEXTS = list_of(choice({"text": text}))

_IMAGE = _map({"format": one_of("png", "jpeg", "gif", "webp"), "source": _SOURCE}, {"error": _ERROR})
_DOCUMENT = _map(
    {
        "name": _text_up_to(_LONGEST_DOCUMENT_NAME),
        "source": choice({"bytes": _blob, "s3Location": _LOCATION, "text": text, "content": _TEXTS}),
    },
    {
        "format": one_of("pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"),
        "context": text,
        "citations": _CITATIONS,
    },
)
_VIDEO = _map(
    {
        "format": one_of("mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"),
        "source": _SOURCE,
    }
)
_AUDIO = _map({"format": some_text, "source": _SOURCE}, {"error": _ERROR})
_SEARCH_RESULT = _map(
    {"source": text, "title": text, "content": list_of(_map({"text": text}))}, {"citations": _CITATIONS}
)
_RESULT_PART = choice(
    {
        "json": any_map,
        "text": text,
        "image": _IMAGE,
        "document": _DOCUMENT,
        "video": _VIDEO,
        "searchResult": _SEARCH_RESULT,
    },
    or_unknown=True,
)
_RANGE = {"start": count, "end": count}
_CITED = choice(
    {
        "web": _map({}, {"url": text, "domain": text}),
        "documentChar": _map({}, {"documentIndex": count, **_RANGE}),
        "documentPage": _map({}, {"documentIndex": count, **_RANGE}),
        "documentChunk": _map({}, {"documentIndex": count, **_RANGE}),
        "searchResultLocation": _map({}, {"searchResultIndex": count, **_RANGE}),
    }
)
_CITATION = _map({}, {"title": text, "source": text, "sourceContent": _TEXTS, "location": _CITED})
_REFERENCE = _map(
    {},
    {
        "type": _text_up_to(64),
        "name": _text_up_to(_LONGEST_REFERENCE),
        "serverName": _text_up_to(_LONGEST_REFERENCE),
    },
)

_RESULT = _map(
    {"toolUseId": text, "content": list_of(_RESULT_PART)}, {"status": one_of("success", "error"), "type": text}
)

_BLOCK = choice(
    {
        "text": text,
        "image": _IMAGE,
        "document": _DOCUMENT,
        "video": _VIDEO,
        "audio": _AUDIO,
        "toolUse": _map({"toolUseId": text, "name": text, "input": any_map}, {"type": one_of("server_tool_use")}),
        "toolResult": _RESULT,
        "guardContent": choice(
            {
                "text": _map(
                    {"text": text}, {"qualifiers": list_of(one_of("grounding_source", "query", "guard_content"))}
                ),
                "image": _map({"format": one_of("png", "jpeg"), "source": choice({"bytes": _blob})}),
            }
        ),
        "cachePoint": _map({"type": one_of("default")}, {"ttl": one_of("5m", "1h")}),
        "reasoningContent": choice(
            {"reasoningText": _map({"text": text}, {"signature": text}), "redactedContent": _blob}
        ),
        "citationsContent": _map({}, {"content": _TEXTS, "citations": list_of(_CITATION)}),
        "searchResult": _SEARCH_RESULT,
        "toolAddition": _map({"tool": _REFERENCE}),
        "toolRemoval": _map({"tool": _REFERENCE}),
    },
    or_unknown=True,
)

_ENVELOPE = _map({"role": one_of("user", "assistant", "system"), "content": anything})


def flaw_of_message(message: object) -> Flaw | None:
    """The first thing that is wrong with a message, its blocks apart."""
    flaw = _ENVELOPE(message)
    if flaw is not None:
        return flaw
    content = cast("Mapping[str, object]", message)["content"]
    return None if isinstance(content, list) else Flaw(("content",), f"must be a list, found {describe(content)}")


def flaw_of(block: object) -> Flaw | None:
    """The first thing that is wrong with a block."""
    return _BLOCK(block)


def flaw_of_part(part: object) -> Flaw | None:
    """The first thing that is wrong with a block inside a result."""
    return _RESULT_PART(part)
