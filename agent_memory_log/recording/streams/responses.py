"""Joins the stream of OpenAI Responses."""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.fields import describe
from agent_memory_log.recording.sdk_objects import Map, map_at
from agent_memory_log.recording.streams.pieces import cut_off, index_at

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


def join_responses(events: Sequence[Map]) -> Map:
    """Return a ``Response``."""
    done: dict[int, Map] = {}
    answer: Map | None = None
    for event in events:
        kind = event.get("type")
        if kind == "response.output_item.done":
            done[index_at(event, "output_index")] = map_at(event, "item")
        elif kind in _ENDS:
            answer = dict(map_at(event, "response"))
        elif kind == "error":
            raise DecodeError(f"the stream ended with an error: {describe(event.get('message'))}")
    if answer is None:
        raise cut_off("openai-responses", "response.completed")
    if not answer.get("output"):
        answer["output"] = [done[index] for index in sorted(done)]  # some servers do not repeat the items at the end
    return answer
