"""Joins the events of a provider's stream to the answer that the provider returns without streaming.

There is one function for each provider. Unknown stream content raises an error, because the answer must be sent back
exactly. The caller can then record the final message of the SDK instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import msgspec

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import decode_json
from agent_memory_log.recording.sdk_objects import Map, map_at, maps_in

_ADVICE = "record the final answer that the SDK puts together instead"

_ANTHROPIC_TYPES = frozenset({"message_start", "ping"})
_ANTHROPIC_MESSAGE = frozenset({"message_start", "message_delta"})
_BEDROCK_KEYS = frozenset({"messageStart", "contentBlockStart", "contentBlockDelta", "messageStop"})
_RESPONSES_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


def provider_of_stream(events: Sequence[Map]) -> str | None:
    """Return the name of the provider whose events these are, or None if it cannot be detected."""
    for event in events:
        kind = event.get("type")
        if kind in _ANTHROPIC_TYPES:
            return "anthropic"
        if isinstance(kind, str) and kind.startswith("response."):
            return "openai-responses"
        if isinstance(event.get("choices"), list):
            return "openai-chat"
        if not _BEDROCK_KEYS.isdisjoint(event):
            return "bedrock"
    return None


def joined(events: Sequence[Map], provider: str) -> Map:
    """Return the answer that the stream ``events`` contains. Raises ``DecodeError`` if it was cut off or failed."""
    return _JOINERS[provider](events)


class _Pieces:
    """Text that still grows. Its pieces are joined once, at the end of the stream."""

    def __init__(self, text: str) -> None:
        self.texts = [text]


class _Items(list[object]):
    """A list that still grows, and the growing maps in it by their index."""

    def __init__(self, items: Iterable[object] = ()) -> None:
        super().__init__(items)
        self.by_index: dict[str, Map] = {}


def _add(grown: Map, key: str, text: str) -> None:
    """Append ``text`` to the text at ``key``."""
    pieces = grown.get(key)
    if not isinstance(pieces, _Pieces):
        grown[key] = pieces = _Pieces(pieces or "")
    pieces.texts.append(text)


def _items_at(grown: Map, key: str) -> _Items:
    """Return the growing list at ``key``; create it if necessary."""
    items = grown.get(key)
    if not isinstance(items, _Items):
        grown[key] = items = _Items(cast("list[object]", items) if isinstance(items, list) else ())
    return items


def _put_together(grown: Map) -> None:
    """Join all text pieces in ``grown`` and in the maps inside it."""
    for key, value in grown.items():
        if isinstance(value, _Pieces):
            grown[key] = "".join(value.texts)
        elif isinstance(value, dict):
            _put_together(cast("Map", value))
        elif isinstance(value, list):
            grown[key] = [*cast("list[object]", value)]
            for inner in maps_in(cast("object", value)):
                _put_together(inner)


class _Blocks:
    """The content blocks of an answer by index, and the pieces of their calls' arguments."""

    def __init__(self) -> None:
        self._blocks: dict[int, Map] = {}
        self._arguments: dict[int, list[str]] = {}

    def begin(self, index: int, block: Map) -> None:
        self._blocks[index] = block

    def at(self, index: int) -> Map:
        if index not in self._blocks:
            raise DecodeError(f"a stream continues block {index}, but the start of this block is missing")
        return self._blocks[index]

    def at_or_new(self, index: int) -> Map:
        return self._blocks.setdefault(index, {})

    def add_arguments(self, index: int, text: str) -> None:
        self._arguments.setdefault(index, []).append(text)

    def content(self, *inside: str) -> list[Map]:
        """Return the blocks in order. ``inside`` is the path from a block to the map that gets the call's arguments."""
        for block in self._blocks.values():
            _put_together(block)
        for index, pieces in self._arguments.items():
            text = "".join(pieces)
            if text:
                map_at(self.at(index), *inside)["input"] = _arguments(text)
        return [self._blocks[index] for index in sorted(self._blocks)]


def _anthropic(events: Sequence[Map]) -> Map:
    answer: Map = {}
    blocks = _Blocks()
    for event in events:
        kind = event.get("type")
        if kind == "content_block_start":
            blocks.begin(_index(event, "index"), dict(map_at(event, "content_block")))
        elif kind == "content_block_delta":
            index = _index(event, "index")
            delta = map_at(event, "delta")
            if delta.get("type") == "input_json_delta":
                blocks.add_arguments(index, _text(delta, "partial_json"))
            else:
                _anthropic_delta(blocks.at(index), delta)
        elif kind in _ANTHROPIC_MESSAGE:
            _anthropic_message(answer, event)
        elif kind == "error":
            raise DecodeError(f"the stream ended with an error: {describe(event.get('error'))}")
    if not events or events[-1].get("type") != "message_stop" or "role" not in answer:
        raise _cut_off("anthropic", "message_start or message_stop")
    answer["content"] = blocks.content()
    return answer


def _anthropic_message(answer: Map, event: Map) -> None:
    answer.update(map_at(event, "message"))
    answer.update(map_at(event, "delta"))
    usage = {key: value for key, value in map_at(event, "usage").items() if value is not None}
    answer["usage"] = {**map_at(answer, "usage"), **usage}


def _anthropic_delta(block: Map, delta: Map) -> None:
    kind = delta.get("type")
    if kind == "text_delta":
        _add(block, "text", _text(delta, "text"))
    elif kind == "thinking_delta":
        _add(block, "thinking", _text(delta, "thinking"))
    elif kind == "signature_delta":
        block["signature"] = _text(delta, "signature")
    elif kind == "citations_delta":
        _items_at(block, "citations").append(delta.get("citation"))
    elif kind == "compaction_delta":
        block.update((key, value) for key, value in delta.items() if key != "type")
    else:
        raise DecodeError(f"a stream of anthropic has a delta of unknown type {describe(kind)}; {_ADVICE}")


def _chat(events: Sequence[Map]) -> Map:
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
        raise _cut_off("openai-chat", "finish_reason")
    _put_together(message)
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
            items = _items_at(grown, key)
            for item in cast("list[object]", value):
                _grow_items(items, item)
        elif isinstance(value, dict):
            grown[key] = inner = cast("Map", old if isinstance(old, dict) else {})
            _grow(inner, cast("Map", value))
        elif isinstance(value, str) and isinstance(old, (str, _Pieces)) and key not in _COMPLETE:
            _add(grown, key, value)
        elif not (value == "" and old):
            grown[key] = value


def _grow_items(items: _Items, item: object) -> None:
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


def _responses(events: Sequence[Map]) -> Map:
    done: dict[int, Map] = {}
    answer: Map | None = None
    for event in events:
        kind = event.get("type")
        if kind == "response.output_item.done":
            done[_index(event, "output_index")] = map_at(event, "item")
        elif kind in _RESPONSES_ENDS:
            answer = dict(map_at(event, "response"))
        elif kind == "error":
            raise DecodeError(f"the stream ended with an error: {describe(event.get('message'))}")
    if answer is None:
        raise _cut_off("openai-responses", "response.completed")
    if not answer.get("output"):
        answer["output"] = [done[index] for index in sorted(done)]  # some servers do not repeat the items at the end
    return answer


def _bedrock(events: Sequence[Map]) -> Map:
    answer: Map = {}
    message: Map = {"role": "assistant"}
    blocks = _Blocks()
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
            blocks.begin(_index(start, "contentBlockIndex"), {"toolUse": {**map_at(opened, "toolUse"), "input": {}}})
        elif "contentBlockDelta" in event:
            block_delta = map_at(event, "contentBlockDelta")
            index = _index(block_delta, "contentBlockIndex")
            delta = map_at(block_delta, "delta")
            if "toolUse" in delta:
                blocks.add_arguments(index, _text(map_at(delta, "toolUse"), "input"))
            else:
                _bedrock_delta(blocks.at_or_new(index), delta)
        for key in event:
            if key.endswith("Exception"):
                raise DecodeError(f"the stream ended with an error: {key} {describe(event[key])}")
    if "stopReason" not in answer:
        raise _cut_off("bedrock", "messageStop")
    message["content"] = blocks.content("toolUse")
    return {**answer, "output": {"message": message}}


def _bedrock_delta(block: Map, delta: Map) -> None:
    if "text" in delta:
        if "citationsContent" in block:
            block["citationsContent"]["content"].append({"text": _text(delta, "text")})
        else:
            _add(block, "text", _text(delta, "text"))
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
                _add(text, key, _text(part, key))
    elif "citation" in delta:
        if "citationsContent" not in block:
            first_text = block.pop("text", None)
            content = [] if first_text is None else [{"text": first_text}]
            block["citationsContent"] = {"content": content, "citations": []}
        block["citationsContent"]["citations"].append(delta["citation"])
    else:
        raise DecodeError(f"a stream of bedrock has an unknown delta ({', '.join(delta) or 'empty'}); use Converse")


_JOINERS: dict[str, Callable[[Sequence[Map]], Map]] = {
    "anthropic": _anthropic,
    "bedrock": _bedrock,
    "openai-chat": _chat,
    "openai-responses": _responses,
}


def _arguments(text: str) -> object:
    """Return a call's arguments. Text that is not a JSON object, as in a shortened answer, gives ``INVALID_JSON``.

    Anthropic's documentation recommends this form.
    """
    try:
        arguments: object = decode_json(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"INVALID_JSON": text}
    return arguments if isinstance(arguments, dict) else {"INVALID_JSON": text}  # pyright: ignore[reportUnknownVariableType]  # any JSON object


def _index(event: Map, key: str) -> int:
    index = event.get(key)
    if type(index) is not int:
        raise DecodeError(f"a stream event must have an integer {key}, got {describe(index)}")
    return index


def _text(delta: Map, key: str) -> str:
    text = delta.get(key)
    if not isinstance(text, str):
        raise DecodeError(f"a stream delta must have text as {key}, got {describe(text)}")
    return text


def _cut_off(provider: str, end: str) -> DecodeError:
    return DecodeError(f"a stream of {provider} was cut off: it has no {end}; request the answer again")
