"""Makes the stream of server-sent events for an answer. Each text, and the input of each call, is one delta."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.replay.clients.answers import Map
from agent_memory_log.transcript.anthropic.rendering import PROVIDER as ANTHROPIC
from agent_memory_log.transcript.json_types import is_map, list_in, map_in
from agent_memory_log.transcript.openai_chat.rendering import PROVIDER as CHAT
from agent_memory_log.transcript.openai_responses.rendering import PROVIDER as RESPONSES

_ITEM_TEXTS = {
    "code_interpreter_call": ("code", "response.code_interpreter_call_code"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
    "function_call": ("arguments", "response.function_call_arguments"),
    "mcp_call": ("arguments", "response.mcp_call_arguments"),
}
"""For each type of item with a text of its own: the key of the text, and the prefix of its events."""

_PART_TEXTS = {
    "output_text": ("text", "response.output_text"),
    "reasoning_text": ("text", "response.reasoning_text"),
    "refusal": ("refusal", "response.refusal"),
    "summary_text": ("text", "response.reasoning_summary_text"),
}
"""The same for the types of parts."""


def answer_stream(body: Map, provider: str, *, with_usage: bool, partial: str, error: str) -> bytes:
    """Return the answer as a stream.

    Args:
        body: The answer without streaming.
        provider: The provider.
        with_usage: Whether the stream of OpenAI Chat ends with the usage, which its API sends only on request.
        partial: ``cut_off`` or ``error`` for a partial answer, else ``""``. A partial answer has no end.
        error: The error that a partial answer ended with. The SDK raises it.
    """
    events, ends, errors = _STREAMS[provider]
    sent = list(events(body))
    if not partial:
        sent += ends(body)
    elif partial == "error":
        sent.append(errors(error))
    if provider == CHAT:
        if with_usage and not partial:
            sent.append({**_chunk(body), "choices": [], "usage": body["usage"]})
        end = b"" if partial else b"data: [DONE]\n\n"
        return b"".join(b"data: %b\n\n" % encode_json(event) for event in sent) + end
    numbered: list[Map] = [{**event, "sequence_number": index} for index, event in enumerate(sent)]
    typed = numbered if provider == RESPONSES else sent
    return b"".join(b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), encode_json(event)) for event in typed)


# Anthropic.


def _anthropic(body: Map) -> Iterator[Map]:
    yield {"type": "message_start", "message": {**body, "content": [], "stop_reason": None}}
    for index, block in enumerate(body["content"]):
        start, deltas = _opened_block(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}


def _anthropic_end(body: Map) -> Iterator[Map]:
    delta = {"stop_reason": body["stop_reason"], "stop_sequence": body["stop_sequence"]}
    yield {"type": "message_delta", "delta": delta, "usage": body["usage"]}
    yield {"type": "message_stop"}


def _anthropic_error(message: str) -> Map:
    return {"type": "error", "error": {"type": "api_error", "message": message}}


def _opened_block(block: object) -> tuple[object, list[Map]]:
    """Return a block as its stream begins, and the deltas that complete it."""
    if not is_map(block):
        return block, []
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        citations = list_in(block.get("citations"))
        start: Map = {**block, "text": "", **({"citations": []} if citations else {})}
        deltas: list[Map] = [{"type": "citations_delta", "citation": citation} for citation in citations]
        return start, [*deltas, {"type": "text_delta", "text": block["text"]}]
    if kind == "thinking":
        pairs = [(key, block[key]) for key in ("thinking", "signature") if isinstance(block.get(key), str)]
        deltas = [{"type": f"{key}_delta", key: text} for key, text in pairs]
        return {**block, **dict.fromkeys((key for key, _ in pairs), "")}, deltas
    if is_map(block.get("input")):
        delta = {"type": "input_json_delta", "partial_json": encode_json(block["input"]).decode()}
        return {**block, "input": {}}, [delta]
    return block, []


# OpenAI Chat Completions.


def _chunk(body: Map) -> Map:
    return {**{key: body[key] for key in ("id", "created", "model")}, "object": "chat.completion.chunk"}


def _chat(body: Map) -> Iterator[Map]:
    message: Map = body["choices"][0]["message"]
    calls = [{"index": index, **map_in(call)} for index, call in enumerate(list_in(message.get("tool_calls")))]
    delta = {**message, "tool_calls": calls} if calls else message
    yield {**_chunk(body), "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def _chat_end(body: Map) -> Iterator[Map]:
    choice: Map = {"index": 0, "delta": {}, "finish_reason": body["choices"][0]["finish_reason"]}
    yield {**_chunk(body), "choices": [choice]}


def _chat_error(message: str) -> Map:
    return {"error": {"message": message, "type": "server_error", "param": None, "code": None}}


# OpenAI Responses.


def _responses(body: Map) -> Iterator[Map]:
    empty: Map = {
        **body,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": None,
    }
    yield {"type": "response.created", "response": empty}
    yield {"type": "response.in_progress", "response": empty}
    for index, item in enumerate(body["output"]):
        place = {"item_id": item.get("id", ""), "output_index": index}
        key, prefix = _ITEM_TEXTS.get(str(item.get("type")), ("", ""))
        lists = [name for name in ("content", "summary") if list_in(item.get(name))]
        start: Map = {**item, **{name: [] for name in lists}, **({key: ""} if key in item else {})}
        if "status" in item:
            start["status"] = "in_progress"
        yield {"type": "response.output_item.added", "output_index": index, "item": start}
        for name in lists:
            for part_index, part in enumerate(item[name]):
                yield from _part(map_in(part), {**place, f"{name}_index": part_index}, name)
        if isinstance(item.get(key), str):
            yield from _text(item[key], place, key, prefix)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _responses_end(body: Map) -> Iterator[Map]:
    status = body["status"] if body["status"] in ("failed", "incomplete") else "completed"
    yield {"type": f"response.{status}", "response": body}


def _responses_error(message: str) -> Map:
    return {"type": "error", "code": None, "message": message, "param": None}


def _part(part: Map, place: Map, name: str) -> Iterator[Map]:
    kind = "content_part" if name == "content" else "reasoning_summary_part"
    key, prefix = _PART_TEXTS.get(str(part.get("type")), ("", ""))
    annotations = list_in(part.get("annotations"))
    start: Map = {**part, **({key: ""} if key in part else {}), **({"annotations": []} if annotations else {})}
    yield {"type": f"response.{kind}.added", **place, "part": start}
    if isinstance(part.get(key), str):
        yield from _text(part[key], place, key, prefix)
    for index, annotation in enumerate(annotations):
        added = {"annotation_index": index, "annotation": annotation}
        yield {"type": "response.output_text.annotation.added", **place, **added}
    yield {"type": f"response.{kind}.done", **place, "part": part}


def _text(text: str, place: Map, key: str, prefix: str) -> Iterator[Map]:
    more: Map = {"logprobs": []} if prefix == "response.output_text" else {}
    yield {"type": f"{prefix}.delta", **place, "delta": text, **more}
    yield {"type": f"{prefix}.done", **place, key: text, **more}


_Events = Callable[[Map], Iterator[Map]]

_STREAMS: dict[str, tuple[_Events, _Events, Callable[[str], Map]]] = {
    ANTHROPIC: (_anthropic, _anthropic_end, _anthropic_error),
    CHAT: (_chat, _chat_end, _chat_error),
    RESPONSES: (_responses, _responses_end, _responses_error),
}
"""For each provider: the events with the content, the events at the end, and the event of an error."""
