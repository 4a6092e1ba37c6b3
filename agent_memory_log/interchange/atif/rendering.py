"""Converts a step of a run to an ATIF step, with the position of each event in it.

The other data of an imported step is in ``structured`` of its events. With ``exact``, it is put back into the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from agent_memory_log.events.context_payloads import InjectedContext
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
"""The separator between the texts of several events in one field."""


METRICS = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "cached_tokens": "cache_read",
    "cost_usd": "cost_usd",
}
"""The field of ``Usage`` for each metric of ATIF."""

_WITH_TEXT = (Thinking, InjectedContext)

Positions = list[tuple[Event, JsonMap]]
"""The position of each event in a step, for ``payload_at``. It is an empty map if ATIF has no field for the event."""


def render_step(step: Step, number: int, *, exact: bool) -> tuple[JsonMap, Positions]:
    """Return the ATIF step with the given number, and the positions of its events."""
    rendered, positions = _render_message(step, number)
    if exact and step.label:
        for event in step.messages[:1]:
            rendered = apply(rendered, _imported_data(event.data))
    positions.extend((event, {}) for event in step.extra_events)
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
    """Return the step without calls and results, and the positions of its messages and thinking blocks."""
    first = (step.content or [answer.event for answer in step.answers])[0]
    rendered: JsonMap = {"step_id": number, "timestamp": format_timestamp(first.timestamp), "source": step.source}
    message, positions = _joined(step.messages, MESSAGE)
    images = [part for event in step.messages for part in image_parts(getattr(event.data, "structured", None))]
    if step.source == "agent":
        model = next((event.labels[MODEL_LABEL] for event in step.content if event.labels.get(MODEL_LABEL)), "")
        model = model or (step.request.model if step.request is not None else "")
        if model:
            rendered["model_name"] = model
    rendered["message"] = _with_images(message, images) if images else message
    if step.thinking:
        reasoning, reasoning_positions = _joined(step.thinking, REASONING)
        positions += reasoning_positions
        if reasoning:
            rendered[REASONING] = reasoning
    metrics = metrics_of(usage_in(step.content)) if step.source == "agent" else {}
    if step.parent is not None:
        rendered["llm_call_count"] = 0
    elif metrics:
        rendered["metrics"] = metrics
    return rendered, positions


def metrics_of(usage: Usage) -> JsonMap:
    """Return ATIF's metrics. Values that were not reported are absent."""
    counts = {metric: getattr(usage, field) for metric, field in METRICS.items()}
    return {metric: count for metric, count in counts.items() if count is not None}


def _render_call(data: ToolCall, *, exact: bool) -> JsonMap:
    """Return a call in ATIF's form. If its arguments are not a JSON object, they are only in the step's ``extra``."""
    rendered: JsonMap = {
        "tool_call_id": data.tool_call_id,
        "function_name": data.tool_name,
        "arguments": _arguments(data.payload_json),
    }
    return apply(rendered, _imported_data(data)) if exact else rendered


def _render_result(answer: Answer, *, exact: bool) -> JsonMap:
    """Return a result in ATIF's form. It has a ``source_call_id`` if it answers a call of its step."""
    data = cast("ToolResult", answer.event.data)
    rendered: JsonMap = {"source_call_id": data.tool_call_id} if answer.call is not None else {}
    text = data.error_message if is_absent_text(data.result_json) else data.result_json
    images = image_parts(data.structured)
    if images:
        rendered["content"] = _with_images(text, images)
    elif text:
        rendered["content"] = text
    return apply(rendered, _imported_data(data)) if exact else rendered


def _with_images(text: str, images: list[JsonValue]) -> list[JsonValue]:
    return [*([{"type": "text", "text": text}] if text else []), *images]


def _joined(events: Sequence[Event], at: str) -> tuple[str, Positions]:
    """Return the joined texts of ``events``, and the position of each text."""
    texts = [event.data.text if isinstance(event.data, _WITH_TEXT) else _message_of(event) for event in events]
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


def _imported_data(data: EventData) -> Mapping[str, JsonValue]:
    return residual_of_provider(ATIF, getattr(data, "structured", None))


def _arguments(text: str) -> JsonMap:
    try:
        arguments = own_json(cast("object", decode_json(text)))
        return arguments if is_map(arguments) else {}
    except (msgspec.DecodeError, NotJson, UnicodeError, RecursionError):
        return {}
