"""Joins the stream of Bedrock Converse."""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory_log.errors import DecodeError
from agent_memory_log.recording.sdk_objects import Map, map_at
from agent_memory_log.recording.streams.pieces import Blocks, Joined, add_text, index_at, text_at


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
            opened = map_at(start, "start")
            if set(opened) != {"toolUse"}:
                raise DecodeError(
                    f"a stream of bedrock has an unknown block ({', '.join(opened) or 'empty'}); use Converse"
                )
            blocks.begin(index_at(start, "contentBlockIndex"), {"toolUse": {**map_at(opened, "toolUse"), "input": {}}})
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


def _add_delta(block: Map, delta: Map) -> None:
    if "text" in delta:
        if "citationsContent" in block:
            block["citationsContent"]["content"].append({"text": text_at(delta, "text")})
        else:
            add_text(block, "text", text_at(delta, "text"))
    elif "reasoningContent" in delta:
        part = map_at(delta, "reasoningContent")
        reasoning: Map = block.setdefault("reasoningContent", {})
        redacted = part.get("redactedContent")
        if redacted is not None:
            old = reasoning.get("redactedContent")
            reasoning["redactedContent"] = redacted if old is None else old + redacted
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
    else:
        raise DecodeError(f"a stream of bedrock has an unknown delta ({', '.join(delta) or 'empty'}); use Converse")
