"""Groups the events of a run into steps: inputs, model turns with the results of their calls, and nested calls.

Both interchange formats have steps and no events. Each event of a run is in exactly one step, or before the first step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from agent_memory_log.events.context_payloads import InjectedContext
from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import (
    Annotation,
    AssistantMessage,
    ModelRequest,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)
from agent_memory_log.pairing import Pairing

STEP_LABEL = "atif_step"
"""The label with the number of the imported trajectory's step. Events with the same number stay in one step."""

_RESPONSE_LABEL = "response_id"
_PROVIDER_LABEL = "provider"

Source = Literal["user", "system", "agent"]


class Answer(NamedTuple):
    """A tool result and the call that it answers, or None if no open call has the result's id."""

    event: Event
    call: Event | None


class Step(msgspec.Struct):
    """One step of a run.

    Attributes:
        source: The author of the step.
        label: The ``STEP_LABEL`` of its events.
        parent: The call that made the step's calls, or None for a step of the model or a person.
        request: The latest model request before the step, or None if none was recorded.
        before: The event before the step, or None.
        response: The ``response_id`` of its events.
        closed: Whether a later model request ended the step.
        thinking: The thinking blocks, in append order.
        messages: The messages, in append order.
        calls: The tool calls, in append order.
        answers: The results of the calls, in append order. They may come much later than the calls.
        extra_events: The events that have no field in a step, such as a planner's notes, and the ``blocks``.
        blocks: The parts of a recorded answer that no other field can hold, such as calls of the provider's own tools.
    """

    source: Source
    label: str = ""
    parent: Event | None = None
    request: ModelRequest | None = None
    before: Event | None = None
    response: str = ""
    closed: bool = False
    thinking: list[Event] = []
    messages: list[Event] = []
    calls: list[Event] = []
    answers: list[Answer] = []
    extra_events: list[Event] = []
    blocks: list[Event] = []

    @property
    def content(self) -> list[Event]:
        """The thinking blocks, messages, tool calls and other blocks together, in append order."""
        return sorted([*self.thinking, *self.messages, *self.calls, *self.blocks], key=_seq)

    def add(self, event: Event) -> None:
        """Add a thinking block, a tool call, a message or another block of an answer."""
        data = event.data
        if isinstance(data, Thinking):
            self.thinking.append(event)
        elif isinstance(data, ToolCall):
            self.calls.append(event)
        elif isinstance(data, (Annotation, UnknownPayload)):
            self.blocks.append(event)
            self.extra_events.append(event)
        else:
            self.messages.append(event)
        self.response = self.response or event.labels.get(_RESPONSE_LABEL, "")

    def accepts(self, event: Event, source: Source) -> bool:
        """Return whether ``event`` belongs to this step. If not, it begins a new step."""
        label = event.labels.get(STEP_LABEL, "")
        if label != self.label or source != self.source or self.closed or self.answers:
            return False
        is_message = isinstance(event.data, (UserMessage, SystemMessage, AssistantMessage, InjectedContext))
        if label:
            return not (is_message and self.messages)
        if source != "agent":
            return False
        response = event.labels.get(_RESPONSE_LABEL, "")
        if response or self.response:
            return response == self.response
        return isinstance(event.data, ToolCall) or not (self.messages or self.calls)


class Steps:
    """The steps of a run in the order of their first events; ``before`` holds the events before the first step."""

    def __init__(self, log: Iterable[Event]) -> None:
        """Group the events of ``log``, which must be in append order."""
        self.steps: list[Step] = []
        self.before: list[Event] = []
        self._current: Step | None = None
        self._pairing: Pairing[tuple[Step, Event]] = Pairing()
        self._request: ModelRequest | None = None
        self._previous: Event | None = None
        for event in log:
            self._take(event)
            self._previous = event

    def _take(self, event: Event) -> None:
        data = event.data
        if isinstance(data, UserMessage):
            self._step_for(event, "user").add(event)
        elif isinstance(data, (SystemMessage, InjectedContext)):
            self._step_for(event, "system").add(event)
        elif isinstance(data, (Thinking, AssistantMessage)):
            self._step_for(event, "agent").add(event)
        elif isinstance(data, ToolCall):
            self._call(event, data)
        elif isinstance(data, ToolResult):
            self._result(event, data)
        elif isinstance(data, (Annotation, UnknownPayload)) and _PROVIDER_LABEL in event.labels:
            self._step_for(event, "agent").add(event)
        else:
            if isinstance(data, ModelRequest):
                self._request = data
                if self._current is not None:
                    self._current.closed = True
            (self.before if self._current is None else self._current.extra_events).append(event)

    def _call(self, event: Event, data: ToolCall) -> None:
        # In a sub-agent's log, a parent call can be in another run. The sub-agent's model made such a call.
        parent = self._pairing.parent_of(data)
        step = self._step_for(event, "agent") if parent is None else self._begin(Step("agent", parent=parent[1]))
        step.add(event)
        self._pairing.add_call(data, (step, event))

    def _result(self, event: Event, data: ToolResult) -> None:
        label = event.labels.get(STEP_LABEL, "")
        current = self._current
        is_of_current = current is not None and label != "" and current.label == label
        answered = self._pairing.next_answered(data.tool_call_id)
        if answered is not None and (answered[0] is current or not is_of_current):
            self._pairing.add_result(data)
            step, call = answered
            step.answers.append(Answer(event, call))
            return
        if current is None:
            current = self._current = self._begin(Step("system", label))
        current.answers.append(Answer(event, None))

    def _step_for(self, event: Event, source: Source) -> Step:
        if self._current is None or not self._current.accepts(event, source):
            self._current = self._begin(Step(source, event.labels.get(STEP_LABEL, ""), request=self._request))
        return self._current

    def _begin(self, step: Step) -> Step:
        step.before = self._previous
        self.steps.append(step)
        return step


def _seq(event: Event) -> int:
    return event.seq
