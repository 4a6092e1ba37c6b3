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
from agent_memory_log.interchange.steps import Step
from agent_memory_log.interchange.usage import MODEL_LABEL, Usage, usage_in
from agent_memory_log.transcript.kinds import is_map
from agent_memory_log.transcript.residual import apply, kept_for

_BETWEEN = "\n\n"
"""What stands between the texts of several events in one field."""


class Place(msgspec.Struct, frozen=True):
    """Where in a step an event is.

    - ``at``: the field, as ``message`` or ``tool_calls[0]``; ``""`` where ATIF has none.
    - ``span``: from which to which character of the field's text, where it holds that of several events.
    - ``is_error``: whether a result's content is its error message.
    """

    event: Event
    at: str
    span: tuple[int, int] | None = None
    is_error: bool = False


class Rendered(msgspec.Struct, frozen=True):
    """A step as a map, and the place of each of its events."""

    step: JsonMap
    places: tuple[Place, ...]


def render_step(step: Step, number: int, *, exact: bool) -> Rendered:
    """The step as the ``number``-th of a document."""
    frame, places = render_frame(step, number)
    if exact and step.label:
        for event in step.messages[:1]:
            frame = apply(frame, _kept(event.data))
    places += [Place(event, "") for event in step.others]
    if step.calls:
        frame["tool_calls"] = [render_call(_call_of(event), exact=exact) for event in step.calls]
        places += [Place(event, f"tool_calls[{index}]") for index, event in enumerate(step.calls)]
    if step.answers:
        observation = frame.get("observation")
        results: list[JsonValue] = []
        for index, answer in enumerate(step.answers):
            data = cast("ToolResult", answer.event.data)
            results.append(render_result(data, answers=answer.call is not None, exact=exact))
            is_error = bool(data.error_message) and is_absent_text(data.result_json)
            places.append(Place(answer.event, f"observation.results[{index}]", is_error=is_error))
        frame["observation"] = {**(observation if isinstance(observation, Mapping) else {}), "results": results}
    return Rendered(frame, tuple(places))


def render_frame(step: Step, number: int) -> tuple[JsonMap, list[Place]]:
    """The step without its calls and results, and the places of what is in it."""
    first = _first(step)
    frame: JsonMap = {"step_id": number, "timestamp": format_timestamp(first.timestamp), "source": step.source}
    message, places = _joined(step.messages, "message")
    images = [part for event in step.messages for part in image_parts(_structured(event.data))]
    text: list[JsonValue] = [{"type": "text", "text": message}] if message else []
    if step.source == "agent":
        model = next((event.labels[MODEL_LABEL] for event in step.made if event.labels.get(MODEL_LABEL)), "")
        model = model or (step.request.model if step.request is not None else "")
        if model:
            frame["model_name"] = model
    frame["message"] = [*text, *images] if images else message
    if step.thinking:
        reasoning, found = _joined(step.thinking, "reasoning_content")
        places += found
        if reasoning:
            frame["reasoning_content"] = reasoning
    metrics = metrics_of(usage_in(step.made)) if step.source == "agent" else {}
    if step.parent is not None:
        frame["llm_call_count"] = 0
    elif metrics:
        frame["metrics"] = metrics
    return frame, places


def metrics_of(usage: Usage) -> JsonMap:
    """ATIF's metrics; empty where nothing was reported."""
    known = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": usage.cache_read,
        "cost_usd": usage.cost_usd,
    }
    return {key: value for key, value in known.items() if value is not None}


def render_call(data: ToolCall, *, exact: bool) -> JsonMap:
    """A call as ATIF has it; arguments that are no JSON object are left to ``extra``."""
    rendered: JsonMap = {
        "tool_call_id": data.tool_call_id,
        "function_name": data.tool_name,
        "arguments": _arguments(data.payload_json),
    }
    return apply(rendered, _kept(data)) if exact else rendered


def render_result(data: ToolResult, *, answers: bool, exact: bool) -> JsonMap:
    """A result as ATIF has it; it names its call where it ``answers`` one of its step."""
    rendered: JsonMap = {"source_call_id": data.tool_call_id} if answers else {}
    text = data.error_message if is_absent_text(data.result_json) else data.result_json
    images = image_parts(data.structured)
    if images:
        rendered["content"] = [*([{"type": "text", "text": text}] if text else []), *images]
    elif text:
        rendered["content"] = text
    return apply(rendered, _kept(data)) if exact else rendered


def _first(step: Step) -> Event:
    return (step.made or [answer.event for answer in step.answers])[0]


def _joined(events: Sequence[Event], at: str) -> tuple[str, list[Place]]:
    """The texts of ``events`` as one, and where each is in it."""
    if len(events) == 1:
        return _text_of(events[0].data), [Place(events[0], at)]
    texts: list[str] = []
    places: list[Place] = []
    end = 0
    for event in events:
        text = _text_of(event.data)
        start = end + len(_BETWEEN) if text and texts else end
        end = start + len(text)
        if text:
            texts.append(text)
        places.append(Place(event, at, (start, end)))
    return _BETWEEN.join(texts), places


def _text_of(data: EventData) -> str:
    if isinstance(data, (UserMessage, AssistantMessage, SystemMessage)):
        return data.message
    return data.text if isinstance(data, Thinking) else ""


def _structured(data: EventData) -> JsonValue:
    return data.structured if isinstance(data, (UserMessage, AssistantMessage, SystemMessage)) else None


def _call_of(event: Event) -> ToolCall:
    return cast("ToolCall", event.data)  # a step's calls are such


def _kept(data: EventData) -> Mapping[str, JsonValue]:
    return kept_for(ATIF, getattr(data, "structured", None))


def _arguments(text: str) -> JsonMap:
    try:
        found = own_json(cast("object", decode_json(text)))
        return found if is_map(found) else {}
    except (msgspec.DecodeError, NotJson, UnicodeError, RecursionError):
        return {}
