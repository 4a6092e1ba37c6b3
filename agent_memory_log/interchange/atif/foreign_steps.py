"""Converts a step of another tool to events, from which the same step can be written again.

Data without a field in an event is stored in ``structured`` of the event of that part. If the event is erased, this
data is erased too.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import cast

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.events.payloads import EventData
from agent_memory_log.interchange.atif.documents import AtifStep, JsonMap, text_of
from agent_memory_log.interchange.atif.images import ATIF
from agent_memory_log.interchange.atif.payloads import CALLS, MESSAGE, REASONING, RESULTS, payloads_of
from agent_memory_log.interchange.atif.rendering import METRICS, metrics_of, render_step
from agent_memory_log.interchange.steps import STEP_LABEL, Steps
from agent_memory_log.interchange.usage import MODEL_LABEL, USAGE_LABEL, read_usage
from agent_memory_log.transcript.differences import difference, structured_of


def events_of(raw: JsonMap, step: AtifStep, timestamp: datetime) -> list[Event]:
    """Return the events of a step, without ids. ``raw`` is the step as a map.

    An empty message becomes an event only if it has other data, or if the step would have no event of the agent. The
    label ``usage`` of the first event holds the usage of the answer.
    """
    is_agent = step.source == "agent"
    payloads = payloads_of(step)
    if not (is_agent and step.reasoning_content):
        del payloads[REASONING]
    if not is_agent:
        payloads = {at: payload for at, payload in payloads.items() if not at.startswith(CALLS)}
    labels = {STEP_LABEL: str(step.step_id)}
    first_labels = {**labels, **_answer_labels(step)} if is_agent else labels
    events = [
        Event(payload.event_type, timestamp, payload, labels if seq else first_labels, seq=seq)
        for seq, payload in enumerate(payloads.values())
    ]
    (alone,) = Steps(events).steps
    rendered, _ = render_step(alone, step.step_id, exact=False)
    default_parts, parts = _parts(rendered, payloads), _parts(raw, payloads)
    residuals = {at: difference(default_parts[at], part) for at, part in parts.items()}
    needs_message = not any(at == REASONING or at.startswith(CALLS) for at in payloads)
    written = [
        msgspec.structs.replace(payload, structured=structured_of(ATIF, residuals.get(at, {})))
        for at, payload in payloads.items()
        if at != MESSAGE or needs_message or text_of(step.message) or residuals[MESSAGE]
    ]
    return [
        Event(payload.event_type, timestamp, payload, dict(labels if index else first_labels))
        for index, payload in enumerate(written)
    ]


def _parts(step: JsonMap, payloads: Mapping[str, EventData]) -> dict[str, JsonMap]:
    """Return the part of a step for each of its events: the calls, the results, and the rest for the message."""
    rest = dict(step)
    parts = {MESSAGE: rest}
    if f"{CALLS}[0]" in payloads:
        calls = cast("list[JsonMap]", rest.pop("tool_calls"))
        parts.update((f"{CALLS}[{index}]", call) for index, call in enumerate(calls))
    if f"{RESULTS}[0]" in payloads:
        observation = dict(cast("JsonMap", rest.pop("observation")))
        results = cast("list[JsonMap]", observation.pop("results"))
        parts.update((f"{RESULTS}[{index}]", result) for index, result in enumerate(results))
        if observation:
            rest["observation"] = observation
    return parts


def _answer_labels(step: AtifStep) -> dict[str, str]:
    """Return the labels ``model`` and ``usage``, in the form that a recorder writes."""
    labels = {MODEL_LABEL: step.model_name} if step.model_name else {}
    reported = {key: value for key, value in (step.metrics or {}).items() if key in METRICS}
    used = metrics_of(read_usage(reported)) if reported else {}
    return {**labels, USAGE_LABEL: encode_json(used).decode()} if used else labels
