"""Joins the stream of OpenAI Chat Completions, and of the vendors that speak its shape.

A field of a chunk grows, or it is set. ``_GROWING`` names the texts that grow. Every other text, such as ``type`` or
``format``, is set: vendors send it once, or repeat it in every chunk.

A vendor may send an answer without a ``finish_reason``. Such an answer is complete if it ends with its usage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from agent_memory_log.errors import DecodeError
from agent_memory_log.recording.sdk_objects import Map, map_at, maps_in
from agent_memory_log.recording.streams.pieces import Items, Joined, Pieces, add_text, items_at, put_together

_GROWING = frozenset(
    {
        "arguments",
        "content",
        "data",
        "input",
        "reasoning",
        "reasoning_content",
        "refusal",
        "summary",
        "text",
        "thinking",
        "transcript",
    }
)
"""The keys of texts that the pieces in the chunks make up."""

_LISTS_OF_PARTS = frozenset({"content", "thinking"})
"""The keys of lists whose parts have no index: a part continues the last part if both have the same type."""


def join_chat(events: Sequence[Map]) -> Joined:
    """Return a Chat Completion."""
    answer: Map = {}
    message: Map = {}
    reason: object = None
    error: object = None
    for event in events:
        for choice in maps_in(event.get("choices")):
            if choice.get("index", 0) != 0:
                raise DecodeError(
                    "a stream of openai-chat has several choices; record the choice that the agent continues"
                )
            _grow(message, map_at(choice, "delta"))
            reason = choice.get("finish_reason") or reason
        answer.update((key, value) for key, value in event.items() if key not in ("choices", "usage", "error"))
        if event.get("usage"):
            answer["usage"] = event["usage"]
        error = error or event.get("error") or map_at(event, "x_groq").get("error")
    put_together(message)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        for call in maps_in(cast("object", calls)):
            call.pop("index", None)
    if not calls:
        message.pop("tool_calls", None)  # vendors that send no calls in each chunk say nothing
    message = {"role": "assistant", "content": None, **message}
    answer["choices"] = [{"index": 0, "message": message, "finish_reason": reason}]
    if error is None and reason == "error":
        error = "the finish_reason is error"
    ended_with_usage = bool(events) and not events[-1].get("choices") and bool(events[-1].get("usage"))
    return Joined.of(answer, is_complete=bool(reason) or ended_with_usage, error=error)


def _grow(grown: Map, delta: Map) -> None:
    """Add the fields of ``delta``, which a chunk sent, to those of ``grown``."""
    for key, value in delta.items():
        old = grown.get(key)
        if value is None:
            grown.setdefault(key, None)
        elif isinstance(value, list):
            if isinstance(old, (str, Pieces)):
                grown[key] = []
                _grow_text(grown, key, old)
            items = items_at(grown, key)
            for item in cast("list[object]", value):
                _grow_items(items, item, key)
        elif isinstance(value, dict):
            grown[key] = inner = cast("Map", old if isinstance(old, dict) else {})
            _grow(inner, cast("Map", value))
        elif isinstance(value, str) and key in _GROWING:
            _grow_text(grown, key, value)
        elif not (value == "" and old):
            grown[key] = value


def _grow_text(grown: Map, key: str, text: str | Pieces) -> None:
    """Append ``text`` to the text at ``key``, or to the list of parts there."""
    if isinstance(text, Pieces):
        text = "".join(text.texts)
    if not isinstance(grown.get(key), list):
        add_text(grown, key, text)
    elif text:
        _grow_items(items_at(grown, key), {"type": "text", "text": text}, key)


def _grow_items(items: Items, item: object, key: str) -> None:
    """Add ``item`` to the item that it continues, or to the end of ``items``."""
    delta = map_at(item)
    if not delta and item != {}:
        items.append(item)
        return
    index = str(delta.get("index"))
    last = items.by_index.get(index)
    if last is None or not _continues(last, delta, key):
        new: Map = {}
        items.by_index[index] = last = new
        items.append(last)
    _grow(last, delta)


def _continues(last: Map, delta: Map, key: str) -> bool:
    """Return whether ``delta`` continues ``last``, the last item of a list that has the same index or no index either.

    Some vendors give every call the same index. Their calls differ by id.
    """
    if delta.get("index") is None and key in _LISTS_OF_PARTS:
        return last.get("type") == delta.get("type") in ("text", "thinking")
    if delta.get("index") is None and key != "tool_calls":
        return False
    pairs = [(last.get(name), delta.get(name)) for name in ("id", "type")]
    return all(not old or not new or old == new for old, new in pairs)
