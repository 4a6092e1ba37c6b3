"""Joins the stream of Gemini. Each chunk is an answer of its own that holds the next parts.

Consecutive texts become one part, unless a part has a signature: the API says that such a part must stay alone. Vertex
AI can also stream the arguments of a call; each piece names its place in the arguments as a JSON path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.fields import describe
from agent_memory_log.recording.sdk_objects import Map, map_at, maps_in
from agent_memory_log.recording.streams.pieces import Joined, Pieces, add_text, put_together
from agent_memory_log.transcript.gemini.rendering import CALL, key_in, value_in

_TEXT_FIELDS = frozenset({"text", "thought"})
_STEPS = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]")
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")
_MOST_ITEMS = 10_000
"""The longest list in streamed arguments. A path may name any index, and the list is filled up to it."""

_LONGEST_INDEX = 9
_DEEPEST = 100
"""The most steps of a path."""


def join_gemini(events: Sequence[Map]) -> Joined:
    """Return a ``GenerateContentResponse``."""
    answer: Map = {}
    candidate: Map = {}
    parts: list[Map] = []
    content: Map = {}
    error: object = None
    for event in events:
        answer.update((key, value) for key, value in event.items() if key not in ("candidates", "error"))
        error = error or event.get("error")
        for chunk in maps_in(event.get("candidates")):
            if chunk.get("index"):
                raise DecodeError(
                    "a stream of gemini has several candidates; record the candidate that the agent continues"
                )
            candidate.update((key, value) for key, value in chunk.items() if key != "content" and value is not None)
            chunk_content = map_at(chunk, "content")
            content.update((key, value) for key, value in chunk_content.items() if key != "parts")
            for part in maps_in(chunk_content.get("parts")):
                _add_part(parts, part)
    for part in parts:
        put_together(part)
    content = {"role": "model", **content}
    if parts:
        content["parts"] = parts
    answer["candidates"] = [{**candidate, "content": content}]
    is_blocked = bool(value_in(map_at(value_in(answer, "promptFeedback")), "blockReason"))
    is_complete = is_blocked or bool(value_in(candidate, "finishReason"))
    return Joined.of(answer, is_complete=is_complete, error=error)


def _add_part(parts: list[Map], part: Map) -> None:
    last = parts[-1] if parts else {}
    call = value_in(part, CALL)
    if isinstance(call, dict):
        _add_call(parts, part, cast("Map", call))
    elif isinstance(part.get("text"), str) and part.keys() <= _TEXT_FIELDS:
        if "text" in last and last.keys() <= _TEXT_FIELDS and last.get("thought") == part.get("thought"):
            add_text(last, "text", part["text"])
        elif part["text"]:
            parts.append(dict(part))
    else:
        parts.append(part)


def _add_call(parts: list[Map], part: Map, chunk: Map) -> None:
    """Add a call, or continue the last part if it is a call that the last chunk left open."""
    last = parts[-1] if parts else {}
    open_call = map_at(last, CALL)
    pieces = maps_in(value_in(chunk, "partialArgs"))
    goes_on = bool(value_in(chunk, "willContinue"))
    if open_call.get("willContinue") is True:
        call = open_call
    elif pieces or goes_on:
        call = {key: value for key, value in chunk.items() if key in ("id", "name", "args") and value is not None}
        parts.append({**{key: value for key, value in part.items() if key != key_in(part, CALL)}, CALL: call})
    else:
        parts.append(part)
        return
    for piece in pieces:
        _add_argument(call.setdefault("args", {}), piece)
    if goes_on:
        call["willContinue"] = True
    else:
        call.pop("willContinue", None)
        call.setdefault("args", {})


def _add_argument(arguments: Map, piece: Map) -> None:
    """Set the value at the path of ``piece``, or add its text to the text there."""
    path = value_in(piece, "jsonPath")
    steps: list[tuple[str, str, str]] = _STEPS.findall(path) if isinstance(path, str) else []
    key = next((key for key in _VALUES if value_in(piece, key) is not None), None)
    last = len(steps) - 1
    grown: Any = arguments if steps and key is not None and last < _DEEPEST else None
    for number, (name, index, quoted) in enumerate(steps):
        step: Any = int(index[:_LONGEST_INDEX]) if index else name or quoted
        if isinstance(grown, list) and index and step < _MOST_ITEMS:
            items = cast("list[object]", grown)
            items.extend([None] * (step + 1 - len(items)))
            old: object = items[step]
        elif isinstance(grown, dict) and not index:
            old = cast("Map", grown).get(step)
        else:
            break
        if number == last:
            value = None if key == "nullValue" else value_in(piece, key or "")
            if isinstance(value, str) and isinstance(old, Pieces):
                old.texts.append(value)
            else:
                grown[step] = Pieces(value) if isinstance(value, str) else value
            return
        if old is None:
            grown[step] = old = [] if steps[number + 1][1] else {}
        grown = old
    raise DecodeError(f"a stream of gemini has an argument without a valid path or value: {describe(piece)}")
