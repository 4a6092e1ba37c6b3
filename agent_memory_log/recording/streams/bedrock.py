"""Joins the stream of Bedrock Converse."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from agent_memory_log.errors import DecodeError
from agent_memory_log.recording.sdk_objects import Map, map_at, maps_in
from agent_memory_log.recording.streams.pieces import Blocks, Items, Joined, add_text, index_at, items_at, text_at


def join_bedrock(events: Sequence[Map]) -> Joined:
    """Return a Converse output."""
    answer: Map = {}
    message: Map = {"role": "assistant"}
    error: object = None
    blocks = Blocks()
    for event in events:
        message.update(map_at(event, "messageStart"))
        answer.update(map_at(event, "messageStop"))
        if "usage" in map_at(event, "metadata"):
            answer["usage"] = event["metadata"]["usage"]
        if "contentBlockStart" in event:
            start = map_at(event, "contentBlockStart")
            blocks.begin(index_at(start, "contentBlockIndex"), _opened(map_at(start, "start")))
        elif "contentBlockDelta" in event:
            block_delta = map_at(event, "contentBlockDelta")
            index = index_at(block_delta, "contentBlockIndex")
            delta = map_at(block_delta, "delta")
            if "toolUse" in delta:
                blocks.add_arguments(index, text_at(map_at(delta, "toolUse"), "input"))
            else:
                _add_delta(blocks.at_or_new(index), delta)
        for key in event:
            if key.endswith("Exception"):
                error = f"{key}: {map_at(event, key).get('message')}"
    message["content"] = blocks.content("toolUse")
    return Joined.of({**answer, "output": {"message": message}}, is_complete="stopReason" in answer, error=error)


_OPENED: dict[str, Map] = {"toolUse": {"input": {}}, "toolResult": {"content": []}, "image": {}}
"""The blocks that begin with a start event, and their fields before the first delta."""


def _opened(start: Map) -> Map:
    if len(start) != 1 or not start.keys() <= _OPENED.keys():
        raise DecodeError(f"a stream of bedrock has an unknown block ({', '.join(start) or 'empty'}); use Converse")
    return {kind: {**map_at(start, kind), **deepcopy(fields)} for kind, fields in _OPENED.items() if kind in start}


def _add_delta(block: Map, delta: Map) -> None:
    if "text" in delta:
        if "citationsContent" in block:
            block["citationsContent"]["content"].append({"text": text_at(delta, "text")})
        else:
            add_text(block, "text", text_at(delta, "text"))
    elif "reasoningContent" in delta:
        part = map_at(delta, "reasoningContent")
        reasoning: Map = block.setdefault("reasoningContent", {})
        _add_bytes(reasoning, "redactedContent", part)
        for key in ("text", "signature"):
            if key in part:
                text: Map = reasoning.setdefault("reasoningText", {"text": ""})
                add_text(text, key, text_at(part, key))
    elif "citation" in delta:
        if "citationsContent" not in block:
            first_text = block.pop("text", None)
            content = [] if first_text is None else [{"text": first_text}]
            block["citationsContent"] = {"content": content, "citations": []}
        block["citationsContent"]["citations"].append(delta["citation"])
    elif "toolResult" in delta and "toolResult" in block:
        _add_result(items_at(map_at(block, "toolResult"), "content"), maps_in(delta["toolResult"]))
    elif "image" in delta:
        image = dict(map_at(delta, "image"))
        source = map_at(image, "source")
        grown: Map = block.setdefault("image", {})
        _add_bytes(grown.setdefault("source", {}), "bytes", source)
        grown["source"].update((key, value) for key, value in source.items() if key != "bytes")
        grown.update((key, value) for key, value in image.items() if key != "source")
    else:
        raise DecodeError(f"a stream of bedrock has an unknown delta ({', '.join(delta) or 'empty'}); use Converse")


def _add_bytes(grown: Map, key: str, delta: Map) -> None:
    """Append the bytes at ``key`` of ``delta``."""
    if delta.get(key) is not None:
        grown[key] = delta[key] if grown.get(key) is None else grown[key] + delta[key]


def _add_result(content: Items, parts: Sequence[Map]) -> None:
    """Append the parts of a tool's result. Text continues the text before it."""
    for part in parts:
        last = map_at(content[-1]) if content else {}
        if part.keys() == last.keys() == {"text"}:
            add_text(last, "text", text_at(part, "text"))
        else:
            content.append(dict(part))
