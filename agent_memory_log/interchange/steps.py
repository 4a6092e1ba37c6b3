"""A run as steps: what was said to the model, its turns with what their calls came to, and calls made inside calls.

Both interchange formats know steps and not events. Every event of a run is in exactly one step, or before the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import (
    AssistantMessage,
    ModelRequest,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agent_memory_log.pairing import Pairing

STEP_LABEL = "atif_step"
"""Which step of an imported trajectory an event comes from: those of one are not torn apart."""

_RESPONSE_LABEL = "response_id"

Source = Literal["user", "system", "agent"]


class Answer(NamedTuple):
    """A tool result, and the call that it answers (None: there was none open with its id)."""

    event: Event
    call: Event | None


class Step(msgspec.Struct):
    """One step, as far as it is known.

    - ``source``: who made it; ``label``: the ``STEP_LABEL`` of its events.
    - ``parent``: the call inside which it was made (None: the model or a person made it).
    - ``request``: what the model had been asked with; None where that was not recorded.
    - ``before``: the event that was appended before it.
    - ``response``: the ``response_id`` of its events; ``closed``: whether the model was asked again since.
    - ``thinking``, ``messages``, ``calls``, ``answers``: its parts, in append order; the answers may come much later.
    - ``others``: what a step has no place for, as a planner's notes.
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
    others: list[Event] = []

    @property
    def made(self) -> list[Event]:
        """What was said and asked for in it, in append order."""
        return sorted([*self.thinking, *self.messages, *self.calls], key=_seq)

    def add(self, event: Event) -> None:
        """Take in what was said or asked for."""
        data = event.data
        if isinstance(data, Thinking):
            self.thinking.append(event)
        elif isinstance(data, ToolCall):
            self.calls.append(event)
        else:
            self.messages.append(event)
        self.response = self.response or event.labels.get(_RESPONSE_LABEL, "")

    def takes(self, event: Event, source: Source) -> bool:
        """Whether ``event`` goes on with this step rather than beginning another."""
        label = event.labels.get(STEP_LABEL, "")
        if label != self.label or source != self.source or self.closed or self.answers:
            return False
        is_message = isinstance(event.data, (UserMessage, SystemMessage, AssistantMessage))
        if label:
            return not (is_message and self.messages)
        if source != "agent":
            return False
        response = event.labels.get(_RESPONSE_LABEL, "")
        if response or self.response:
            return response == self.response
        return isinstance(event.data, ToolCall) or not (self.messages or self.calls)


class Steps:
    """The steps of a run, in the order in which they began; ``before``: the events ahead of the first."""

    def __init__(self, log: Iterable[Event]) -> None:
        """The steps of the events of ``log``, which are in append order."""
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
        elif isinstance(data, SystemMessage):
            self._step_for(event, "system").add(event)
        elif isinstance(data, (Thinking, AssistantMessage)):
            self._step_for(event, "agent").add(event)
        elif isinstance(data, ToolCall):
            self._call(event, data)
        elif isinstance(data, ToolResult):
            self._result(event, data)
        else:
            if isinstance(data, ModelRequest):
                self._request = data
                if self._current is not None:
                    self._current.closed = True
            (self.before if self._current is None else self._current.others).append(event)

    def _call(self, event: Event, data: ToolCall) -> None:
        # In the log of an inner agent the parent is a call of another run, and the model made this one.
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
        if self._current is None or not self._current.takes(event, source):
            self._current = self._begin(Step(source, event.labels.get(STEP_LABEL, ""), request=self._request))
        return self._current

    def _begin(self, step: Step) -> Step:
        step.before = self._previous
        self.steps.append(step)
        return step


def _seq(event: Event) -> int:
    return event.seq
