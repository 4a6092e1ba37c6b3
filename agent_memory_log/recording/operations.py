"""A recorder's operations as steps, which both recorders run. An operation chooses the event to append and its id."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from agent_memory_log.errors import EventConflict, InvalidArgument, VersionConflict
from agent_memory_log.events.context_payloads import Compaction, InjectedContext
from agent_memory_log.events.event import Event, decode_event, new_event
from agent_memory_log.events.fields import describe, in_quotes
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
from agent_memory_log.events.python_values import EncHook
from agent_memory_log.pairing import unanswered_calls
from agent_memory_log.reader import Reader
from agent_memory_log.recording.calls import RecordedCall
from agent_memory_log.recording.context import RunContext
from agent_memory_log.recording.ids import new_call_id, result_id, step_id
from agent_memory_log.recording.responses import Answer, answer_of
from agent_memory_log.recording.sdk_objects import Received
from agent_memory_log.steps import Steps, append
from agent_memory_log.store import AppendResult
from agent_memory_log.transcript.conversion.partial import partial_answer
from agent_memory_log.transcript.names import encode_name
from agent_memory_log.transcript.providers import parse
from agent_memory_log.transcript.requests import model_request

_RESPONSE = "response"
_EMPTY_ANSWER = "the model answered with nothing"
_ERASED = "the recorded result was erased"
_ATTEMPTS = 10
"""The number of attempts to append an answer while other writers append to the run."""


class RecordedResponse(msgspec.Struct, frozen=True):
    """A recorded model answer.

    Attributes:
        events: The stored events of the answer, in order. An empty answer is stored as one ``Annotation``, a partial
            answer as one ``AssistantMessage``, and a compacted conversation as one ``Compaction``.
        was_recorded: Whether the store already had the answer for this key.
    """

    events: tuple[Event, ...]
    was_recorded: bool = False

    @property
    def text(self) -> str:
        """The text of the assistant's messages, or ``""`` if the answer has only tool calls."""
        return "".join(event.data.message for event in self.events if isinstance(event.data, AssistantMessage))

    @property
    def tool_calls(self) -> tuple[Event, ...]:
        """The events of the requested tool calls; pass each of them to ``tool_call``. A partial answer has none.

        A call that the provider ran itself is not among them: its result is in the same answer.
        """
        return unanswered_calls(self.events)

    @property
    def partial(self) -> str:
        """``cut_off`` if the stream ended too early, ``error`` if the provider sent an error, ``""`` if complete."""
        return self.events[0].labels.get("partial", "")


class CallToMake(NamedTuple):
    """The arguments of ``tool_call``; ``recorded`` is the call's event if it is already stored."""

    recorded: Event | None
    data: ToolCall
    key: str | None
    labels: Mapping[str, str] | None


class Operations:
    """The operations on one run. The recorder must run them one after the other."""

    def __init__(
        self,
        agent: str,
        run: str,
        meta: Mapping[str, JsonValue] | None,
        before_append: Callable[[Event], Event] | None,
        enc_hook: EncHook | None,
    ) -> None:
        self._agent = agent
        self._run = run
        self._meta = meta
        self._before_append = before_append
        self._enc_hook = enc_hook
        self._context = RunContext(agent, run)
        self._latest = datetime.min.replace(tzinfo=UTC)
        # Calls by call id, then by event id: several calls may have the same call id.
        self._requested: dict[str, dict[str, Event]] = {}
        self._left_open: dict[str, dict[str, Event]] | None = None
        # Open calls in append order, by each signature that matches them. Some may have been made since.
        self._left_open_by_signature: dict[_CallSignature, deque[Event]] = {}
        self._fresh: set[str] = set()

    def record(self, payload: EventData, key: str | None, labels: Mapping[str, str] | None) -> Steps[Event]:
        """Append one event."""
        return (yield from self._append_step(payload, key, labels)).events[0]

    def inject(
        self, payload: InjectedContext, key: str | None, labels: Mapping[str, str] | None
    ) -> Steps[Event | None]:
        """Append an injected context, unless its text is empty."""
        return (yield from self.record(payload, key, labels)) if payload.text else None

    def request(
        self,
        provider: str,
        model: str,
        system: JsonValue,
        tools: JsonValue,
        parameters: Mapping[str, JsonValue] | None,
    ) -> Steps[Event | None]:
        """Append a model request if it differs from the latest one."""
        snapshot = yield from self._context.refresh()
        payload = model_request(
            snapshot, provider, model=model, system=system, tools=tools, parameters=parameters or None
        )
        event = self._event(payload, None, None)
        latest = self._context.latest_request()
        if latest is not None and _is_same_request(decode_event(event, ModelRequest), latest):
            return None
        result = yield from self._append([event])
        return result.events[0]

    def response(
        self, received: Received, provider: str | None, key: str | None, labels: Mapping[str, str] | None
    ) -> Steps[RecordedResponse]:
        """Append a provider's answer to the current end of the conversation."""
        answer: Answer | None = None
        for attempt in range(_ATTEMPTS):
            snapshot = yield from self._context.refresh()
            recorded = None if key is None else self._find_response(key)
            if recorded is not None:
                return recorded
            if answer is None:
                latest = self._context.latest_request()
                answer = answer_of(received, provider, None if latest is None else latest.provider)
            if answer.is_partial:
                return (yield from self._partial(answer, labels))
            if answer.is_compaction:
                events = [self._compaction_event(answer, snapshot.version, key, labels)]
            else:
                events = self._answer_events(answer, key, labels)
            try:
                # The events depend on the message before them, so the run must not have changed.
                result = yield from self._append(events, snapshot.version)
            except VersionConflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            self._context.confirm()
            recorded = RecordedResponse(result.events)
            self._add_requested(recorded.tool_calls, fresh=True)
            return recorded
        raise AssertionError("the last attempt returns or raises")

    def _partial(self, answer: Answer, labels: Mapping[str, str] | None) -> Steps[RecordedResponse]:
        """Append a partial answer. It has no key, because the step is not done: a complete answer may follow."""
        parsed = parse(answer.messages, answer.provider)
        text = "".join(event.data.message for event in parsed if isinstance(event.data, AssistantMessage))
        payload = partial_answer(text or answer.transcript, answer.provider, answer.messages)
        event = self._event(payload, _labels_of(answer, labels, with_usage=True), None)
        result = yield from self._append([event])
        return RecordedResponse(result.events)

    def recorded_response(self, key: str) -> Steps[RecordedResponse | None]:
        """Return the stored answer for a key, or None."""
        yield from self._context.refresh()
        return self._find_response(key)

    def begin_call(self, call: CallToMake) -> Steps[RecordedCall]:
        """Append the call unless it is stored, and return it with its stored result, if any."""
        event = call.recorded
        if event is None and call.data.tool_call_id:
            event = yield from self._find_requested(call.data)
        is_fresh = False
        data = call.data
        if event is None:
            event_id = None if call.key is None else step_id(self._agent, self._run, call.key, "tool_call")
            if not data.tool_call_id:
                data = msgspec.structs.replace(data, tool_call_id=new_call_id(event_id))
            result = yield from self._append_step(data, call.key, call.labels)
            event = result.events[0]
            is_fresh = result.inserted == 1
        elif event.event_id in self._fresh:
            is_fresh = True
        self._forget(event, data.tool_call_id)
        if isinstance(event.data, ToolCall):  # an erased call has a redaction marker here
            data = event.data
        recorded = None if is_fresh else (yield from self._result_of(event, data))
        return RecordedCall(event, data, recorded, self._enc_hook)

    def end_call(self, call: RecordedCall, error: BaseException | None) -> Steps[Event]:
        """Append the result of a call at the end of its block."""
        return self._end_call(call, *call.outcome(error))

    def _end_call(self, call: RecordedCall, result: ToolResult, labels: Mapping[str, str]) -> Steps[Event]:
        event = self._event(result, labels, result_id(call.event.event_id))
        try:
            appended = yield from self._append([event])
        except EventConflict:
            # Another writer recorded a result of the same call first. That result stays.
            yield from self._context.refresh()
            recorded = self._context.find(event.event_id)
            if recorded is None:
                raise
            return recorded
        return appended.events[0]

    def _append_step(
        self, payload: EventData, key: str | None, labels: Mapping[str, str] | None
    ) -> Steps[AppendResult]:
        """Append one event. Raises ``EventConflict`` if the step is recorded with other content."""
        event_id = None if key is None else step_id(self._agent, self._run, key, payload.event_type)
        try:
            return (yield from self._append([self._event(payload, labels, event_id)]))
        except EventConflict as error:
            raise EventConflict(
                f"the step {in_quotes(key)} is recorded at seq {error.seq} with other content: give a new step another "
                "key",
                event_id=error.event_id,
                seq=error.seq,
            ) from error

    def _append(self, events: list[Event], expected_version: int | None = None) -> Steps[AppendResult]:
        result = yield from append(self._agent, self._run, events, expected_version=expected_version, meta=self._meta)
        self._meta = None  # the run exists now
        return result

    def _event(self, payload: EventData, labels: Mapping[str, str] | None, event_id: str | None) -> Event:
        """Return a new event. Its time is never before the previous event's time, even if the clock is set back."""
        event = self._hooked(new_event(payload, labels=labels, event_id=event_id))
        if event.timestamp < self._latest:
            return msgspec.structs.replace(event, timestamp=self._latest)
        self._latest = event.timestamp
        return event

    def _hooked(self, event: Event) -> Event:
        """Return the event after ``before_append``. The hook must keep the event id, which identifies the step."""
        if self._before_append is None:
            return event
        hooked = self._before_append(event)
        if not isinstance(hooked, Event) or hooked.event_id != event.event_id:
            raise InvalidArgument(
                f"before_append must return an Event with the same event_id as its argument, got {describe(hooked)}"
            )
        return hooked

    def _answer_events(self, answer: Answer, key: str | None, labels: Mapping[str, str] | None) -> list[Event]:
        parsed = self._context.parse(answer.messages, answer.provider) or [new_event(Annotation(_EMPTY_ANSWER))]
        events: list[Event] = []
        for number, event in enumerate(parsed):
            event_id = None if key is None else step_id(self._agent, self._run, key, _RESPONSE, number)
            own = _labels_of(answer, labels, with_usage=number == 0)
            data = event.data
            if answer.transcript and isinstance(data, AssistantMessage) and not data.message:
                data = msgspec.structs.replace(data, message=answer.transcript)
            events.append(self._event(data, {**event.labels, **own}, event_id))
        return events

    def _compaction_event(self, answer: Answer, up_to: int, key: str | None, labels: Mapping[str, str] | None) -> Event:
        data = Compaction(up_to=up_to, structured={answer.provider: {"items": answer.messages}})
        event_id = None if key is None else step_id(self._agent, self._run, key, _RESPONSE, 0)
        return self._event(data, _labels_of(answer, labels, with_usage=True), event_id)

    def _find_response(self, key: str) -> RecordedResponse | None:
        events: list[Event] = []
        while (event := self._context.find(step_id(self._agent, self._run, key, _RESPONSE, len(events)))) is not None:
            events.append(event)
        if not events:
            return None
        recorded = RecordedResponse(tuple(events), was_recorded=True)
        self._add_requested(recorded.tool_calls, fresh=False)
        return recorded

    def _add_requested(self, calls: Iterable[Event], *, fresh: bool) -> None:
        for event in calls:
            waiting = self._requested.setdefault(decode_event(event, ToolCall).tool_call_id, {})
            waiting.setdefault(event.event_id, event)
            if fresh:
                self._fresh.add(event.event_id)

    def _find_requested(self, data: ToolCall) -> Steps[Event | None]:
        """Return the stored open call that ``data`` names by id, or None.

        The call comes from an answer that this recorder recorded, or it was open when the recorder was created.
        """
        waiting = self._requested.get(data.tool_call_id)
        if waiting:
            return next(reversed(waiting.values()))
        if self._left_open is None:
            snapshot = yield from self._context.refresh()
            self._left_open = {}
            for event in Reader(snapshot).open_tool_calls():
                call = decode_event(event, ToolCall)
                self._left_open.setdefault(call.tool_call_id, {})[event.event_id] = event
                for signature in _signatures(call):
                    self._left_open_by_signature.setdefault(signature, deque()).append(event)
        open_calls = self._left_open.get(data.tool_call_id)
        if not open_calls:
            return None
        data = decode_event(self._hooked(new_event(data)), ToolCall)  # the hook changed the stored call too
        signature = _CallSignature(data.tool_call_id, data.tool_name, _arguments(data))
        candidates = self._left_open_by_signature.get(signature, deque())
        while candidates and candidates[0].event_id not in open_calls:
            candidates.popleft()
        return candidates[0] if candidates else None

    def _forget(self, event: Event, call_id: str) -> None:
        """Remove a call that is being made, so that the next call with its id is a new call."""
        self._fresh.discard(event.event_id)
        for calls in (self._requested, self._left_open or {}):
            calls.get(call_id, {}).pop(event.event_id, None)

    def _result_of(self, call: Event, data: ToolCall) -> Steps[ToolResult | None]:
        snapshot = yield from self._context.refresh()
        event = self._context.find(result_id(call.event_id))
        if event is None and isinstance(call.data, ToolCall):
            event = Reader(snapshot).result_for(call)  # a result that no recorder appended
        if event is None:
            return None
        if isinstance(event.data, Redacted):
            return ToolResult(data.tool_call_id, data.tool_name, error_message=_ERASED)
        return decode_event(event, ToolResult)


def _labels_of(answer: Answer, labels: Mapping[str, str] | None, *, with_usage: bool) -> dict[str, str]:
    """Return the labels of an event of ``answer``.

    Only one event of an answer has the usage, so that a sum over all events is correct.
    """
    used = {"usage": answer.usage} if answer.usage and with_usage else {}
    return {**answer.labels, **used, **(labels or {})}


def _is_same_request(request: ModelRequest, latest: ModelRequest) -> bool:
    return (request.provider, request.model, request.system_hash, request.tools_hash) == (
        latest.provider,
        latest.model,
        latest.system_hash,
        latest.tools_hash,
    ) and encode_canonical(request.parameters) == encode_canonical(latest.parameters)


class _CallSignature(NamedTuple):
    """The properties that identify an open call when it is made again. A call id alone is not unique."""

    call_id: str
    tool_name: str
    arguments: bytes | str | None


def _signatures(data: ToolCall) -> set[_CallSignature]:
    """Return each signature that matches a call: either name of the tool, with the arguments or without them."""
    return {
        _CallSignature(data.tool_call_id, name, arguments)
        for name in (data.tool_name, encode_name(data.tool_name))
        for arguments in (_arguments(data), None)
    }


def _arguments(data: ToolCall) -> bytes | str | None:
    """Return a call's arguments in canonical form, so that equal arguments compare equal. None means no arguments."""
    if not data.payload_json:
        return None
    try:
        # Do not use input() here: it decodes numbers as text, so 1.5 and "1.5" would be equal.
        return encode_canonical(decode_json(data.payload_json))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return data.payload_json


def recorded_call(event: Event) -> ToolCall:
    """Return the payload of a recorded call. Raises ``InvalidArgument`` for any other event."""
    if not isinstance(event.data, ToolCall) or not event.event_id:
        raise InvalidArgument(f"event {event.seq} is not a recorded tool_call; its type is {event.type}")
    return event.data
