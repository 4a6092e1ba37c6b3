"""Joins the stream of OpenAI Chat Completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from agent_memory_log.errors import DecodeError
from agent_memory_log.recording.sdk_objects import Map, map_at, maps_in
from agent_memory_log.recording.streams.pieces import Items, Pieces, add_text, cut_off, items_at, put_together


def join_chat(events: Sequence[Map]) -> Map:
    """Return a Chat Completion."""
    answer: Map = {}
    message: Map = {}
    reason: object = None
    for event in events:
        for choice in maps_in(event.get("choices")):
            if choice.get("index", 0) != 0:
                raise DecodeError(
                    "a stream of openai-chat has several choices; record the choice that the agent continues"
                )
            _grow(message, map_at(choice, "delta"))
            reason = choice.get("finish_reason") or reason
        answer.update((key, value) for key, value in event.items() if key not in ("choices", "usage"))
        if event.get("usage"):
            answer["usage"] = event["usage"]
    if reason is None:
        raise cut_off("openai-chat", "finish_reason")
    put_together(message)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        for call in maps_in(cast("object", calls)):
            call.pop("index", None)
    message = {"role": "assistant", "content": None, **message}
    answer["choices"] = [{"index": 0, "message": message, "finish_reason": reason}]
    return answer


_COMPLETE = frozenset({"index", "type", "role", "id"})
"""The keys whose values are never split. Such a value is in one chunk, or repeated in every chunk."""


def _grow(grown: Map, delta: Map) -> None:
    for key, value in delta.items():
        old = grown.get(key)
        if value is None:
            grown.setdefault(key, None)
        elif isinstance(value, list):
            items = items_at(grown, key)
            for item in cast("list[object]", value):
                _grow_items(items, item)
        elif isinstance(value, dict):
            grown[key] = inner = cast("Map", old if isinstance(old, dict) else {})
            _grow(inner, cast("Map", value))
        elif isinstance(value, str) and isinstance(old, (str, Pieces)) and key not in _COMPLETE:
            add_text(grown, key, value)
        elif not (value == "" and old):
            grown[key] = value


def _grow_items(items: Items, item: object) -> None:
    delta = map_at(item)
    index = delta.get("index")
    if index is None:
        items.append(item)
        return
    new: Map = {}
    item_grown = items.by_index.setdefault(str(index), new)
    if item_grown is new:
        items.append(new)
    _grow(item_grown, delta)
