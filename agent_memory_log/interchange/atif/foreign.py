"""A step of another tool: the events it comes to, from which it can be written as it was.

What a part of the step has no field for stays with the event of that part, in its ``structured``: an event that is
erased takes its own with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import cast

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.events.payloads import EventData, Thinking, ToolCall, ToolResult
from agent_memory_log.interchange.atif.documents import AtifStep, Call, JsonMap, Result, text_of
from agent_memory_log.interchange.atif.drafts import MESSAGES, draft_call, draft_result
from agent_memory_log.interchange.atif.images import ATIF
from agent_memory_log.interchange.atif.rendering import metrics_of, render_call, render_frame, render_result
from agent_memory_log.interchange.steps import STEP_LABEL, Step
from agent_memory_log.interchange.usage import MODEL_LABEL, USAGE_LABEL, Usage
from agent_memory_log.transcript.residual import difference, kept


def foreign_events(raw: JsonMap, step: AtifStep, at: datetime) -> list[Event]:
    """The events of a step, which is ``raw`` as it was written; they have no ids yet.

    A message without a word is an event only where something is to be kept with it, or nothing else says whose turn it
    was. The first event says what the model's answer used.
    """
    is_agent = step.source == "agent"
    calls = (step.tool_calls or []) if is_agent else []
    results = [] if step.observation is None else step.observation.results
    thoughts = [Thinking(text=step.reasoning_content, final=True)] if is_agent and step.reasoning_content else []
    labels = {STEP_LABEL: str(step.step_id)}
    first_labels = {**labels, **_answer_labels(step)} if is_agent else labels

    def numbered(payloads: list[EventData]) -> list[Event]:
        return [
            Event(data.event_type, at, data, labels if index else first_labels, seq=index)
            for index, data in enumerate(payloads)
        ]

    message = MESSAGES[step.source](message=text_of(step.message))
    group = Step(step.source, labels[STEP_LABEL])
    for event in numbered([*thoughts, message]):
        group.add(event)
    residual = difference(render_frame(group, step.step_id)[0], _frame(raw, calls, results))
    messages: list[EventData] = []
    if message.message or residual or not (thoughts or calls):
        messages.append(msgspec.structs.replace(message, structured=kept(ATIF, residual)))
    found = numbered(
        [*thoughts, *messages, *_calls(raw, calls), *_results(raw, results, step.tool_names if is_agent else {}, calls)]
    )
    return [msgspec.structs.replace(event, seq=0, labels=dict(event.labels)) for event in found]


def _calls(raw: JsonMap, calls: list[Call]) -> list[ToolCall]:
    found: list[ToolCall] = []
    for index, call in enumerate(calls):
        data = draft_call(call)
        original = cast("list[JsonMap]", raw["tool_calls"])[index]
        residual = difference(render_call(data, exact=False), original)
        found.append(msgspec.structs.replace(data, structured=kept(ATIF, residual)))
    return found


def _results(raw: JsonMap, results: list[Result], tool_names: Mapping[str, str], calls: list[Call]) -> list[ToolResult]:
    found: list[ToolResult] = []
    open_ids = Counter(call.tool_call_id for call in calls)
    for index, result in enumerate(results):
        data = draft_result(result, tool_names)
        answers = open_ids[data.tool_call_id] > 0
        open_ids[data.tool_call_id] -= answers  # each call is answered once, as steps pair them
        original = cast("list[JsonMap]", cast("JsonMap", raw["observation"])["results"])[index]
        residual = difference(render_result(data, answers=answers, exact=False), original)
        found.append(msgspec.structs.replace(data, structured=kept(ATIF, residual)))
    return found


def _frame(raw: JsonMap, calls: list[Call], results: list[Result]) -> JsonMap:
    """The step without the calls and results that become events of their own."""
    frame: dict[str, JsonValue] = dict(raw)
    if calls:
        del frame["tool_calls"]
    if results:
        rest = {key: value for key, value in cast("JsonMap", frame.pop("observation")).items() if key != "results"}
        if rest:
            frame["observation"] = rest
    return frame


def _answer_labels(step: AtifStep) -> dict[str, str]:
    """The labels by which a recorder says what answered, and what that used."""
    labels = {MODEL_LABEL: step.model_name} if step.model_name else {}
    metrics = step.metrics or {}
    counts = [metrics.get(key) for key in ("prompt_tokens", "completion_tokens", "cached_tokens")]
    prompt, completion, cached = (one if isinstance(one, int) and not isinstance(one, bool) else None for one in counts)
    cost = metrics.get("cost_usd")
    cost = cost if isinstance(cost, (int, float)) and not isinstance(cost, bool) else None
    used = metrics_of(Usage(input_tokens=prompt, output_tokens=completion, cache_read=cached, cost_usd=cost))
    return {**labels, USAGE_LABEL: encode_json(used).decode()} if used else labels
