"""A step of a run as ATIF shows it, and where in it each event is.

What an imported step had beside that is in ``structured`` of its events, part by part: an event that is erased takes
its own with it. It is put back where ``exact``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from agent_memory_log.events.event import Event, format_timestamp
from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, decode_json, own_json
from agent_memory_log.events.payloads import (
    AssistantMessage,
    EventData,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agent_memory_log.interchange.atif.documents import JsonMap
from agent_memory_log.interchange.atif.images import ATIF, image_parts
from agent_memory_log.interchange.atif.payloads import CALLS, MESSAGE, REASONING, RESULTS
from agent_memory_log.interchange.steps import Answer, Step
from agent_memory_log.interchange.usage import MODEL_LABEL, Usage, usage_in
from agent_memory_log.transcript.differences import apply, residual_of_provider
from agent_memory_log.transcript.json_types import is_map

_BETWEEN = "\n\n"
"""What stands between the texts of several events in one field."""


METRICS = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "cached_tokens": "cache_read",
    "cost_usd": "cost_usd",
}
"""ATIF's metrics, by the fields of ``Usage``."""

Positions = list[tuple[Event, JsonMap]]
"""Where in a step each event is, as ``payload_at`` finds it; an empty map where ATIF has no field for the event."""


def render_step(step: Step, number: int, *, exact: bool) -> tuple[JsonMap, Positions]:
    """The step as the ``number``-th of a document, and the positions of its events."""
    rendered, positions = _render_message(step, number)
    if exact and step.label:
        for event in step.messages[:1]:
            rendered = apply(rendered, _kept(event.data))
    positions.extend((event, {}) for event in step.others)
    if step.calls:
        rendered[CALLS] = [_render_call(cast("ToolCall", event.data), exact=exact) for event in step.calls]
        positions.extend((event, {"at": f"{CALLS}[{index}]"}) for index, event in enumerate(step.calls))
    if step.answers:
        observation = rendered.get("observation")
        results = [_render_result(answer, exact=exact) for answer in step.answers]
        rendered["observation"] = {**(observation if isinstance(observation, Mapping) else {}), "results": results}
        for index, answer in enumerate(step.answers):
            position: JsonMap = {"at": f"{RESULTS}[{index}]"}
            data = cast("ToolResult", answer.event.data)
            if data.error_message and is_absent_text(data.result_json):
                position["is_error"] = True
            positions.append((answer.event, position))
    return rendered, positions


def _render_message(step: Step, number: int) -> tuple[JsonMap, Positions]:
    """The step without its calls and results, and the positions of what is in it."""
    first = (step.made or [answer.event for answer in step.answers])[0]
    rendered: JsonMap = {"step_id": number, "timestamp": format_timestamp(first.timestamp), "source": step.source}
    message, positions = _joined(step.messages, MESSAGE)
    images = [part for event in step.messages for part in image_parts(getattr(event.data, "structured", None))]
    if step.source == "agent":
        model = next((event.labels[MODEL_LABEL] for event in step.made if event.labels.get(MODEL_LABEL)), "")
        model = model or (step.request.model if step.request is not None else "")
        if model:
            rendered["model_name"] = model
    rendered["message"] = _with_images(message, images) if images else message
    if step.thinking:
        reasoning, found = _joined(step.thinking, REASONING)
        positions += found
        if reasoning:
            rendered[REASONING] = reasoning
    metrics = metrics_of(usage_in(step.made)) if step.source == "agent" else {}
    if step.parent is not None:
        rendered["llm_call_count"] = 0
    elif metrics:
        rendered["metrics"] = metrics
    return rendered, positions


def metrics_of(usage: Usage) -> JsonMap:
    """ATIF's metrics; empty where nothing was reported."""
    counts = {metric: getattr(usage, field) for metric, field in METRICS.items()}
    return {metric: count for metric, count in counts.items() if count is not None}


def _render_call(data: ToolCall, *, exact: bool) -> JsonMap:
    """A call as ATIF has it; arguments that are no JSON object are left to ``extra``."""
    rendered: JsonMap = {
        "tool_call_id": data.tool_call_id,
        "function_name": data.tool_name,
        "arguments": _arguments(data.payload_json),
    }
    return apply(rendered, _kept(data)) if exact else rendered


def _render_result(answer: Answer, *, exact: bool) -> JsonMap:
    """A result as ATIF has it; it names its call where it answers one of its step."""
    data = cast("ToolResult", answer.event.data)
    rendered: JsonMap = {"source_call_id": data.tool_call_id} if answer.call is not None else {}
    text = data.error_message if is_absent_text(data.result_json) else data.result_json
    images = image_parts(data.structured)
    if images:
        rendered["content"] = _with_images(text, images)
    elif text:
        rendered["content"] = text
    return apply(rendered, _kept(data)) if exact else rendered


def _with_images(text: str, images: list[JsonValue]) -> list[JsonValue]:
    return [*([{"type": "text", "text": text}] if text else []), *images]


def _joined(events: Sequence[Event], at: str) -> tuple[str, Positions]:
    """The texts of ``events`` as one, and the position of each."""
    texts = [event.data.text if isinstance(event.data, Thinking) else _message_of(event) for event in events]
    if len(events) == 1:
        return texts[0], [(events[0], {"at": at})]
    joined: list[str] = []
    positions: Positions = []
    end = 0
    for event, text in zip(events, texts, strict=True):
        start = end + len(_BETWEEN) if text and joined else end
        end = start + len(text)
        if text:
            joined.append(text)
        positions.append((event, {"at": at, "span": [start, end]}))
    return _BETWEEN.join(joined), positions


def _message_of(event: Event) -> str:
    return cast("AssistantMessage | SystemMessage | UserMessage", event.data).message


def _kept(data: EventData) -> Mapping[str, JsonValue]:
    return residual_of_provider(ATIF, getattr(data, "structured", None))


def _arguments(text: str) -> JsonMap:
    try:
        found = own_json(cast("object", decode_json(text)))
        return found if is_map(found) else {}
    except (msgspec.DecodeError, NotJson, UnicodeError, RecursionError):
        return {}
