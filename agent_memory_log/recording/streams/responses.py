"""Joins the stream of OpenAI Responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agent_memory_log.recording.sdk_objects import Map, map_at
from agent_memory_log.recording.streams.pieces import (
    Items,
    Joined,
    add_text,
    index_at,
    items_at,
    put_together,
    text_at,
    type_of,
)

_BEGINS = frozenset({"response.created", "response.in_progress", "response.queued"})
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class _Place(NamedTuple):
    """The place in an item that a delta continues: a text of the item, or the text of a part in one of its lists."""

    text: str
    parts: str = ""
    position: str = ""
    part_type: str = ""


_DELTAS = {
    "response.output_text.delta": _Place("text", "content", "content_index", "output_text"),
    "response.refusal.delta": _Place("refusal", "content", "content_index", "refusal"),
    "response.reasoning_text.delta": _Place("text", "content", "content_index", "reasoning_text"),
    "response.reasoning_summary_text.delta": _Place("text", "summary", "summary_index", "summary_text"),
    "response.function_call_arguments.delta": _Place("arguments"),
    "response.custom_tool_call_input.delta": _Place("input"),
}


def join_responses(events: Sequence[Map]) -> Joined:
    """Return a ``Response``."""
    done: dict[int, Map] = {}
    answer: Map = {}
    error: object = None
    is_complete = False
    for event in events:
        kind = type_of(event)
        if kind == "response.output_item.done":
            done[index_at(event, "output_index")] = map_at(event, "item")
        elif kind in _BEGINS or kind in _ENDS:
            answer = dict(map_at(event, "response"))
            is_complete = kind in _ENDS
        elif kind == "error":
            error = event if event.get("message") else event.get("error")
    if done and error is None:
        error = answer.get("error")
    if not answer.get("output"):
        if not is_complete:
            done = {**_unfinished(events), **done}
        answer["output"] = [done[index] for index in sorted(done)]  # some servers do not repeat the items at the end
    return Joined.of(answer, is_complete=is_complete, error=error)


def _unfinished(events: Sequence[Map]) -> dict[int, Map]:
    """Return the items of a stream that was cut off, with the texts that came."""
    items: dict[int, Map] = {}
    for event in events:
        kind = type_of(event)
        if kind == "response.output_item.added":
            items[index_at(event, "output_index")] = dict(map_at(event, "item"))
        place = _DELTAS.get(kind)
        item = None if place is None else items.get(index_at(event, "output_index"))
        if place is None or item is None:
            continue
        grown = item if not place.parts else _part(items_at(item, place.parts), event, place)
        add_text(grown, place.text, text_at(event, "delta"))
    for item in items.values():
        put_together(item)
    return items


def _part(parts: Items, event: Map, place: _Place) -> Map:
    new: Map = {"type": place.part_type, place.text: ""}
    part = parts.by_index.setdefault(str(event.get(place.position)), new)
    if part is new:
        parts.append(part)
    return part
