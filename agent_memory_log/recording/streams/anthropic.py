"""Joins the stream of Anthropic Messages."""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.fields import describe
from agent_memory_log.recording.sdk_objects import Map, map_at
from agent_memory_log.recording.streams.pieces import Blocks, Joined, add_text, index_at, items_at, text_at, type_of

_ADVICE = "record the final answer that the SDK puts together instead"
_MESSAGE = frozenset({"message_start", "message_delta"})


def join_anthropic(events: Sequence[Map]) -> Joined:
    """Return a ``Message``."""
    answer: Map = {"role": "assistant"}
    error: object = None
    blocks = Blocks()
    for event in events:
        kind = type_of(event)
        if kind == "content_block_start":
            blocks.begin(index_at(event, "index"), dict(map_at(event, "content_block")))
        elif kind == "content_block_delta":
            index = index_at(event, "index")
            delta = map_at(event, "delta")
            if delta.get("type") == "input_json_delta":
                blocks.add_arguments(index, text_at(delta, "partial_json"))
            else:
                _add_delta(blocks.at(index), delta)
        elif kind in _MESSAGE:
            _update(answer, event)
        elif kind == "error":
            error = event.get("error") or "error"
    if "type" not in answer and error is None:
        raise DecodeError("a stream of anthropic begins without message_start; record the whole stream")
    answer["content"] = blocks.content()
    return Joined.of(answer, is_complete=answer.get("stop_reason") is not None, error=error)


def _update(answer: Map, event: Map) -> None:
    answer.update(map_at(event, "message"))
    answer.update(map_at(event, "delta"))
    usage = {key: value for key, value in map_at(event, "usage").items() if value is not None}
    answer["usage"] = {**map_at(answer, "usage"), **usage}


def _add_delta(block: Map, delta: Map) -> None:
    kind = delta.get("type")
    if kind == "text_delta":
        add_text(block, "text", text_at(delta, "text"))
    elif kind == "thinking_delta":
        add_text(block, "thinking", text_at(delta, "thinking"))
    elif kind == "signature_delta":
        block["signature"] = text_at(delta, "signature")
    elif kind == "citations_delta":
        items_at(block, "citations").append(delta.get("citation"))
    elif kind == "compaction_delta":
        block.update((key, value) for key, value in delta.items() if key != "type")
    else:
        raise DecodeError(f"a stream of anthropic has a delta of unknown type {describe(kind)}; {_ADVICE}")
