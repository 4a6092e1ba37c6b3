"""Moves reasoning between assistant messages and ``Thinking`` events, byte for byte.

OpenAI's API returns no reasoning in Chat Completions; vendors do. It is in the fields ``reasoning``,
``reasoning_content`` and ``reasoning_details`` of a message, or in ``thinking`` parts of its content. All reasoning of
a message becomes one ``Thinking``, whose text is the reasoning's text. Its residual has the part
``reasoning: {"fields": …, "texts": …}``. ``fields`` holds the fields with ``""`` in place of each text that the payload
holds. ``texts`` lists where these texts go: the path, then the first character and the number of characters.
``fields.content`` holds the parts of the content by their position.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from agent_memory_log.events.jsonvalue import JsonValue, own_json
from agent_memory_log.events.payloads import Thinking
from agent_memory_log.transcript.conversion.parsing import JsonMap
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.json_types import is_list, is_map

_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
_TEXTS = frozenset({"reasoning", "reasoning_content", "summary", "text", "thinking"})
_DEEPEST = 6
"""The longest path of a text that is looked for. Vendors use at most five steps."""

_POSITION = re.compile(r"[0-9]{1,9}")

_Path = tuple[str | int, ...]


def take_reasoning(message: JsonMap) -> tuple[Thinking, JsonMap] | None:
    """Remove the reasoning from ``message``; return its payload and residual, or None if there is no reasoning."""
    fields: JsonMap = {key: message.pop(key) for key in _FIELDS if message.get(key)}
    content = message.get("content")
    if is_list(content):
        thinking = {str(position): part for position, part in enumerate(content) if _is_thinking(part)}
        if thinking:
            fields["content"] = cast("JsonValue", thinking)
            message["content"] = [part for part in content if not _is_thinking(part)]
    if not fields:
        return None
    pieces = list(_texts(fields, ()))
    joined = next((value for key in _FIELDS if isinstance(value := fields.get(key), str)), None)
    if joined is None:
        joined = "".join(text for _, _, text in pieces)
    texts: list[JsonValue] = []
    end = 0
    for path, holder, text in pieces:
        if text == joined:
            start = 0
        elif joined.startswith(text, end):
            start, end = end, end + len(text)
        else:
            continue
        holder[path[-1]] = ""
        texts.append([*path, start, len(text)])
    return Thinking(text=joined, final=True), {"reasoning": {"fields": fields, "texts": texts}}


def recorded_reasoning(data: Thinking, residual: Mapping[str, JsonValue]) -> WireMessage | None:
    """Return the fields that ``take_reasoning`` removed; None if the residual is not one of its residuals."""
    stored = residual.get("reasoning")
    if not isinstance(stored, Mapping) or not isinstance(stored.get("fields"), Mapping):
        return None
    fields = cast("WireMessage", own_json(stored["fields"]))
    if not fields.keys() <= {*_FIELDS, "content"}:
        return None
    texts = stored.get("texts")
    for entry in texts if isinstance(texts, (list, tuple)) else ():
        try:
            *path, start, length = cast("list[Any]", entry)
            holder: Any = fields
            for step in path[:-1]:
                holder = holder[step]
            if holder[path[-1]] != "":
                return None
            holder[path[-1]] = data.text[start : start + length]
        except (TypeError, ValueError, LookupError):
            return None
    return fields


def plain_reasoning(text: str, key: str) -> WireMessage:
    """Return the fields for reasoning that the log has only as text. ``key`` is ``Vendor.reasoning``."""
    if key != "content":
        return {key: text}
    return {"content": {"0": {"type": "thinking", "thinking": [{"type": "text", "text": text}]}}}


def put_reasoning(message: WireMessage, fields: WireMessage) -> None:
    """Put the fields into a message."""
    parts = fields.pop("content", None)
    message.update(fields)
    if not is_map(parts):
        return
    content = message.get("content")
    if not is_list(content):
        content = [{"type": "text", "text": content}] if content else []
    for position, part in sorted(parts.items(), key=lambda item: (len(item[0]), item[0])):
        content.insert(int(position) if _POSITION.fullmatch(position) else 0, part)
    message["content"] = content


def without_signed_reasoning(message: WireMessage) -> WireMessage:
    """Return a message without reasoning that is signed or encrypted. OpenRouter's details may be."""
    details = message.get("reasoning_details")
    if is_list(details) and any(
        is_map(detail) and (detail.get("signature") or detail.get("data")) for detail in details
    ):
        return {key: value for key, value in message.items() if key != "reasoning_details"}
    return message


def _is_thinking(part: JsonValue) -> bool:
    return is_map(part) and part.get("type") == "thinking"


def _texts(value: object, path: _Path) -> Iterator[tuple[_Path, Any, str]]:
    """Yield each text of the reasoning in ``value``: its path, the map that holds it, and the text."""
    if len(path) >= _DEEPEST:
        return
    items = value.items() if is_map(value) else enumerate(value) if is_list(value) else ()
    for key, inner in items:
        if isinstance(inner, str):
            if key in _TEXTS and inner:
                yield (*path, key), value, inner
        else:
            yield from _texts(inner, (*path, key))
