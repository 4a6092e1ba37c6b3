"""A recorder's operations, each written once, as steps: what is appended under which id, and what is there already."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from agent_memory_log.errors import EventConflict, InvalidArgument, VersionConflict
from agent_memory_log.events.event import Event, decode_event, new_event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, decode_json, encode_canonical
from agent_memory_log.events.payloads import (
    Annotation,
    AssistantMessage,
    EventData,
    ModelRequest,
    Redacted,
    ToolCall,
    ToolResult,
)
from agent_memory_log.reader import Reader
from agent_memory_log.recording.calls import RecordedCall
from agent_memory_log.recording.context import RunContext
from agent_memory_log.recording.ids import new_call_id, result_id, step_id
from agent_memory_log.recording.responses import Answer, answer_of
from agent_memory_log.steps import Steps, append
from agent_memory_log.store import AppendResult
from agent_memory_log.transcript.names import encode_name
from agent_memory_log.transcript.requests import model_request

_RESPONSE = "response"
_EMPTY_ANSWER = "the model answered with nothing"
_ERASED = "the recorded result was erased"
_ATTEMPTS = 10
"""How often an answer is placed again behind what another writer has just appended."""


class RecordedResponse(msgspec.Struct, frozen=True):
    """A model's answer as it was recorded.

    - ``events``: its events in the store, in order; one ``Annotation`` where the model answered with nothing.
    - ``was_recorded``: whether it was there already, as the step was done before.
    """

    events: tuple[Event, ...]
    was_recorded: bool = False

    @property
    def text(self) -> str:
        """What the assistant said; ``""`` where it only called tools."""
        return "".join(event.data.message for event in self.events if isinstance(event.data, AssistantMessage))

    @property
    def tool_calls(self) -> tuple[Event, ...]:
        """The calls to be answered: give each to ``tool_call``."""
        return tuple(event for event in self.events if isinstance(event.data, ToolCall))


class CallToMake(NamedTuple):
    """A call that ``tool_call`` was asked for: recorded already, or with what it is to be recorded with."""

    recorded: Event | None
    data: ToolCall
    key: str | None
    labels: Mapping[str, str] | None


class Operations:
    """The operations on one run. They may not be carried out at the same time: the recorder lines them up."""

    def __init__(
        self,
        agent: str,
        run: str,
        meta: Mapping[str, JsonValue] | None,
        before_append: Callable[[Event], Event] | None,
    ) -> None:
        self._agent = agent
        self._run = run
        self._meta = meta
        self._before_append = before_append
        self._context = RunContext(agent, run)
        self._latest = datetime.min.replace(tzinfo=UTC)
        # Calls by their id, and then by the id of their event, as many may have one id.
        self._asked: dict[str, dict[str, Event]] = {}
        self._left_open: dict[str, dict[str, Event]] | None = None
        # Those, and some made since, in append order, by each way to make them again.
        self._left_open_as: dict[_Asked, deque[Event]] = {}
        self._fresh: set[str] = set()

    def record(self, payload: EventData, key: str | None, labels: Mapping[str, str] | None) -> Steps[Event]:
        """Append one event."""
        event_id = None if key is None else step_id(self._agent, self._run, key, payload.event_type)
        result = yield from self._append([self._event(payload, labels, event_id)])
        return result.events[0]

    def request(
        self,
        provider: str,
        model: str,
        system: JsonValue,
        tools: JsonValue,
        parameters: Mapping[str, JsonValue] | None,
    ) -> Steps[Event | None]:
        """Append a model request where it differs from the latest."""
        snapshot = yield from self._context.refresh()
        payload = model_request(
            snapshot, provider, model=model, system=system, tools=tools, parameters=parameters or None
        )
        event = self._event(payload, None, None)
        latest = self._context.latest_request()
        if latest is not None and _asks_the_same(decode_event(event, ModelRequest), latest):
            return None
        result = yield from self._append([event])
        return result.events[0]

    def response(
        self, response: object, provider: str | None, key: str | None, labels: Mapping[str, str] | None
    ) -> Steps[RecordedResponse]:
        """Append a provider's answer behind the conversation as it is."""
        answer: Answer | None = None
        for attempt in range(_ATTEMPTS):
            snapshot = yield from self._context.refresh()
            recorded = None if key is None else self._find_response(key)
            if recorded is not None:
                return recorded
            if answer is None:
                answer = answer_of(response, provider)
            events = self._answer_events(answer, key, labels)
            try:
                # Whether it joins the message before it was decided by that message.
                result = yield from self._append(events, snapshot.version)
            except VersionConflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            self._context.confirm()
            recorded = RecordedResponse(result.events)
            self._ask(recorded.tool_calls, fresh=True)
            return recorded
        raise AssertionError("the last attempt returns or raises")

    def recorded_response(self, key: str) -> Steps[RecordedResponse | None]:
        """The answer that is there already."""
        yield from self._context.refresh()
        return self._find_response(key)

    def begin_call(self, call: CallToMake) -> Steps[RecordedCall]:
        """Append the call, unless it is there; with its result, where that is there too."""
        event = call.recorded
        if event is None and call.data.tool_call_id:
            event = yield from self._asked_before(call.data)
        is_fresh = False
        data = call.data
        if event is None:
            event_id = None if call.key is None else step_id(self._agent, self._run, call.key, "tool_call")
            if not data.tool_call_id:
                data = msgspec.structs.replace(data, tool_call_id=new_call_id(event_id))
            result = yield from self._append([self._event(data, call.labels, event_id)])
            event = result.events[0]
            is_fresh = result.inserted == 1
        elif event.event_id in self._fresh:
            is_fresh = True
        self._forget(event, data.tool_call_id)
        if isinstance(event.data, ToolCall):  # it may have been erased since
            data = event.data
        recorded = None if is_fresh else (yield from self._result_of(event, data))
        return RecordedCall(event, data, recorded)

    def end_call(self, call: RecordedCall, error: BaseException | None) -> Steps[Event]:
        """Append the result of a call whose block has ended now."""
        return self._end_call(call, *call.outcome(error))

    def _end_call(self, call: RecordedCall, result: ToolResult, labels: Mapping[str, str]) -> Steps[Event]:
        event = self._event(result, labels, result_id(call.event.event_id))
        try:
            appended = yield from self._append([event])
        except EventConflict:
            # Whoever made the same call meanwhile was faster: what is recorded stays.
            yield from self._context.refresh()
            recorded = self._context.find(event.event_id)
            if recorded is None:
                raise
            return recorded
        return appended.events[0]

    def _append(self, events: list[Event], expected_version: int | None = None) -> Steps[AppendResult]:
        result = yield from append(self._agent, self._run, events, expected_version=expected_version, meta=self._meta)
        self._meta = None  # the run is there
        return result

    def _event(self, payload: EventData, labels: Mapping[str, str] | None, event_id: str | None) -> Event:
        """An event whose time is not before that of the one before it, though the clock be set back."""
        event = self._hooked(new_event(payload, labels=labels, event_id=event_id))
        if event.timestamp < self._latest:
            return msgspec.structs.replace(event, timestamp=self._latest)
        self._latest = event.timestamp
        return event

    def _hooked(self, event: Event) -> Event:
        """What ``before_append`` makes of an event; its id, by which a step is found again, is not the hook's."""
        if self._before_append is None:
            return event
        hooked = self._before_append(event)
        if not isinstance(hooked, Event) or hooked.event_id != event.event_id:
            raise InvalidArgument(
                f"before_append must return an Event with the id of the one it was given, found {describe(hooked)}"
            )
        return hooked

    def _answer_events(self, answer: Answer, key: str | None, labels: Mapping[str, str] | None) -> list[Event]:
        parsed = self._context.parse(answer.messages, answer.provider) or [new_event(Annotation(_EMPTY_ANSWER))]
        events: list[Event] = []
        for number, event in enumerate(parsed):
            event_id = None if key is None else step_id(self._agent, self._run, key, _RESPONSE, number)
            # Once, so that what was used can be summed up.
            used = {"usage": answer.usage} if answer.usage and number == 0 else {}
            own = {**event.labels, **answer.labels, **used, **(labels or {})}
            events.append(self._event(event.data, own, event_id))
        return events

    def _find_response(self, key: str) -> RecordedResponse | None:
        events: list[Event] = []
        while (event := self._context.find(step_id(self._agent, self._run, key, _RESPONSE, len(events)))) is not None:
            events.append(event)
        if not events:
            return None
        recorded = RecordedResponse(tuple(events), was_recorded=True)
        self._ask(recorded.tool_calls, fresh=False)
        return recorded

    def _ask(self, calls: Iterable[Event], *, fresh: bool) -> None:
        for event in calls:
            waiting = self._asked.setdefault(decode_event(event, ToolCall).tool_call_id, {})
            waiting.setdefault(event.event_id, event)
            if fresh:
                self._fresh.add(event.event_id)

    def _asked_before(self, data: ToolCall) -> Steps[Event | None]:
        """The call that this one is to answer: asked for in an answer recorded here, or left open in the run before."""
        waiting = self._asked.get(data.tool_call_id)
        if waiting:
            return next(reversed(waiting.values()))
        if self._left_open is None:
            snapshot = yield from self._context.refresh()
            self._left_open = {}
            for event in Reader(snapshot).open_tool_calls():
                call = decode_event(event, ToolCall)
                self._left_open.setdefault(call.tool_call_id, {})[event.event_id] = event
                for asked in _ways_to_ask(call):
                    self._left_open_as.setdefault(asked, deque()).append(event)
        open_calls = self._left_open.get(data.tool_call_id)
        if not open_calls:
            return None
        data = decode_event(self._hooked(new_event(data)), ToolCall)  # as it would have been recorded
        candidates = self._left_open_as.get(_Asked(data.tool_call_id, data.tool_name, _arguments(data)), deque())
        while candidates and candidates[0].event_id not in open_calls:
            candidates.popleft()
        return candidates[0] if candidates else None

    def _forget(self, event: Event, call_id: str) -> None:
        """The call is being made: another one with its id is another call."""
        self._fresh.discard(event.event_id)
        for calls in (self._asked, self._left_open or {}):
            calls.get(call_id, {}).pop(event.event_id, None)

    def _result_of(self, call: Event, data: ToolCall) -> Steps[ToolResult | None]:
        snapshot = yield from self._context.refresh()
        event = self._context.find(result_id(call.event_id))
        if event is None and isinstance(call.data, ToolCall):
            event = Reader(snapshot).result_for(call)  # recorded by other means
        if event is None:
            return None
        if isinstance(event.data, Redacted):
            return ToolResult(data.tool_call_id, data.tool_name, error_message=_ERASED)
        return decode_event(event, ToolResult)


def _asks_the_same(request: ModelRequest, latest: ModelRequest) -> bool:
    return (request.provider, request.model, request.system_hash, request.tools_hash) == (
        latest.provider,
        latest.model,
        latest.system_hash,
        latest.tools_hash,
    ) and encode_canonical(request.parameters) == encode_canonical(latest.parameters)


class _Asked(NamedTuple):
    """What is the same when an open call is made again: ids alone are used more than once."""

    call_id: str
    tool_name: str
    arguments: bytes | str | None


def _ways_to_ask(data: ToolCall) -> set[_Asked]:
    """By our name of the tool or the provider's, and with the arguments or without any."""
    return {
        _Asked(data.tool_call_id, name, arguments)
        for name in (data.tool_name, encode_name(data.tool_name))
        for arguments in (_arguments(data), None)
    }


def _arguments(data: ToolCall) -> bytes | str | None:
    """A call's arguments in a form that equal ones share; None where there are none."""
    if not data.payload_json:
        return None
    try:
        # Decoded by input(), a number would be written as text is: 1.5 like "1.5".
        return encode_canonical(decode_json(data.payload_json))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return data.payload_json


def recorded_call(event: Event) -> ToolCall:
    """The payload of a recorded call. Raises ``InvalidArgument`` for any other event."""
    if not isinstance(event.data, ToolCall) or not event.event_id:
        raise InvalidArgument(f"event {event.seq} is a {event.type}, not a tool_call that was recorded")
    return event.data
