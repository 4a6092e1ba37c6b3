"""Reads a recorded run and derives the model turns, tool calls and results that its replay expects.

A turn is one answer of the model. The recorder labels the events of an answer with its ``response_id``. Without this
label, a turn is the events that form one message of the provider. With ``openai-responses``, a turn is the items
between two inputs of the model.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.context_payloads import Compaction, InjectedContext
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import decode_json, encode_json
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
from agent_memory_log.pairing import Pairing, unanswered_calls
from agent_memory_log.replay.differences import arguments_in, readable_name, short_json
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript.conversion.calls import CallLedger
from agent_memory_log.transcript.conversion.compacting import compacted, is_readable, items_of
from agent_memory_log.transcript.conversion.partial import is_partial
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.names import PROVIDERS, encode_name
from agent_memory_log.transcript.openai_responses.items import is_from_model
from agent_memory_log.transcript.openai_responses.rendering import PROVIDER as RESPONSES
from agent_memory_log.transcript.providers import find_provider


class ModelTurn(msgspec.Struct, frozen=True):
    """A recorded answer of the model.

    Attributes:
        number: The number of the turn, from 1.
        messages: The answer in the form of the provider's transcripts, as new plain maps. It is one message, or an
            empty tuple for an empty answer. With ``openai-responses``, it is the items.
        events: The events of the answer in the recorded run, in order. Their labels hold details such as
            ``stop_reason``.
    """

    number: int
    messages: tuple[WireMessage, ...]
    events: tuple[Event, ...]

    @property
    def message(self) -> WireMessage:
        """The only message of the answer. Raises ``InvalidArgument`` if the answer has no or several messages."""
        if len(self.messages) != 1:
            raise InvalidArgument(f"model turn {self.number} has {len(self.messages)} messages; use turn.messages")
        return self.messages[0]

    @property
    def text(self) -> str:
        """The text of the assistant's messages, or ``""`` if the answer has only tool calls."""
        return "".join(event.data.message for event in self.events if isinstance(event.data, AssistantMessage))

    @property
    def answer_id(self) -> str:
        """The recorded id of the answer, or an id with the number of the turn."""
        return self.events[0].labels.get("response_id", f"replayed-turn-{self.number}")

    @property
    def tool_calls(self) -> tuple[Event, ...]:
        """The events of the requested tool calls; pass each of them to ``tool_result``.

        A call that the provider ran itself is not among them: its result is in the same answer.
        """
        return unanswered_calls(self.events)

    @property
    def partial(self) -> str:
        """``cut_off`` or ``error`` if the answer is partial, as in ``RecordedResponse``; else ``""``."""
        return self.events[0].labels.get("partial", "")


class ExpectedTurn(msgspec.Struct, frozen=True):
    """A turn that a replay expects.

    Attributes:
        turn: The turn.
        position: The position of its first event in the log.
        segment: The index of the turn's segment.
        prefix: The number of messages before the turn in the segment's transcript.
        joined: The number of parts before the turn in its message, or None if the turn begins a new message.
        certain: Whether the turn certainly came from the model. A turn of calls without labels is not certain, because
            the agent's own code may have made the calls.
    """

    turn: ModelTurn
    position: int
    segment: int
    prefix: int
    joined: int | None
    certain: bool


class ExpectedCall(msgspec.Struct, frozen=True):
    """A call that a replay expects.

    Attributes:
        event: The event of the call.
        data: The payload of the call.
        begin: The position of the call in the log.
        parent: The index of the parent call, or None.
        ids: The ids of the call: the recorded id, and the id on the provider's wire.
        result: The recorded result, or None.
        end: The position of the result in the log, or None.
        turns: The number of certain turns that begin before the call. It includes the call's own turn.
    """

    event: Event
    data: ToolCall
    begin: int
    parent: int | None
    ids: frozenset[str]
    result: ToolResult | None = None
    end: int | None = None
    turns: int = 0

    @property
    def names(self) -> set[str]:
        """The names of the tool: the recorded name, and the name on the provider's wire."""
        return {self.data.tool_name, encode_name(self.data.tool_name)}

    def __str__(self) -> str:
        seq = f" (event {self.event.seq})" if self.event.seq else ""
        return f"{readable_name(self.data.tool_name)} {short_json(arguments_in(self.data.payload_json))}{seq}"


class Segment(msgspec.Struct, frozen=True):
    """The part of a run up to a compaction, or from one to the next, or to the end.

    Attributes:
        transcript: The messages of the segment.
        unlimited: The messages with every result whole, for agents that do not send what ``build`` returns. It is None
            if no result is too large.
    """

    transcript: tuple[WireMessage, ...]
    unlimited: tuple[WireMessage, ...] | None


class ExpectedRun(msgspec.Struct, frozen=True):
    """The turns and calls that a replay expects, both in log order, and the segments of the run.

    ``part_key`` is the key of the parts in a message of the provider.
    """

    turns: tuple[ExpectedTurn, ...]
    calls: tuple[ExpectedCall, ...]
    segments: tuple[Segment, ...]
    part_key: str

    def joined(self, expected: ExpectedTurn) -> WireMessage | None:
        """Return the turn's message with only the parts before the turn, or None if the turn begins the message."""
        if expected.joined is None:
            return None
        message = self.segments[expected.segment].transcript[expected.prefix]
        return {**message, self.part_key: message[self.part_key][: expected.joined]}


def provider_of(snapshot: Snapshot) -> str | None:
    """Return the provider of the first event that names a known provider, or None."""
    for event in snapshot.log:
        data = event.data
        provider = data.provider if isinstance(data, ModelRequest) else event.labels.get("provider")
        if provider in PROVIDERS:
            return provider
    return None


def read_expectations(snapshot: Snapshot, provider: str) -> ExpectedRun:
    """Return the turns and calls that a replay of a whole run expects.

    Raises ``InvalidArgument`` for an unknown provider.
    """
    reading = _Reading(provider, snapshot.log)
    for position, event in enumerate(snapshot.log):
        reading.take(position, event)
    return reading.finish()


class _OpenTurn:
    """A turn whose events are still being read.

    ``start`` is the index of its first message. ``joined`` is the number of earlier parts in that message, or None.
    """

    def __init__(self, position: int, start: int, joined: int | None) -> None:
        self.position = position
        self.start = start
        self.joined = joined
        self.events: list[Event] = []


class _Reading:
    def __init__(self, provider: str, log: Sequence[Event]) -> None:
        self._joins_messages = provider != RESPONSES
        self._log = log
        self._segments: list[Segment] = []
        self._begin_segment(provider, 0, [])
        self._wire_ids = CallLedger(self._builder.rules, provider)
        self._turn: _OpenTurn | None = None
        self._turns: list[ExpectedTurn] = []
        self._calls: list[ExpectedCall] = []
        self._results: dict[int, tuple[ToolResult, int]] = {}
        self._pairing: Pairing[int] = Pairing()

    def _begin_segment(self, provider: str, position: int, events: Sequence[Event]) -> None:
        """Begin a segment with these events of the log. Later events begin at ``position``."""
        self._first = position
        self._head = events
        self._messages: list[WireMessage] = []
        self._builder = find_provider(provider).builder(self._messages, None)
        self._builder.take(events)

    def _end_segment(self, end: int) -> None:
        """End the segment before the event at ``end``."""
        self._close(len(self._messages))
        builder, unlimited = self._builder, None
        if any(loss.reason == "size_limit" for loss in builder.losses):
            messages: list[WireMessage] = []
            find_provider(builder.provider).builder(messages, sys.maxsize).take(
                [*self._head, *self._log[self._first : end]]
            )
            unlimited = tuple(messages)
        self._segments.append(Segment(tuple(self._messages), unlimited))

    def finish(self) -> ExpectedRun:
        self._end_segment(len(self._log))
        begins = [expected.position for expected in self._turns if expected.certain]
        calls: list[ExpectedCall] = []
        for index, call in enumerate(self._calls):
            result, end = self._results.get(index, (None, None))
            turns = bisect_right(begins, call.begin)
            calls.append(msgspec.structs.replace(call, result=result, end=end, turns=turns))
        return ExpectedRun(tuple(self._turns), tuple(calls), tuple(self._segments), self._builder.part_key)

    def take(self, position: int, event: Event) -> None:
        data = event.data
        if is_partial(data):
            self._close(len(self._messages))
            self._add_partial(position, event)
            return
        if isinstance(data, Compaction) and is_readable(data, self._builder.provider):
            self._compact(position, event, data)
            return
        if isinstance(data, ToolCall):
            is_from_model, is_given = self._add_call(position, event, data) is None, False
        elif isinstance(data, ToolResult) and _is_in_answer(event):
            self._pairing.add_result(data)  # the provider ran the tool, so the agent makes no such call
            is_from_model, is_given = True, False
        elif isinstance(data, ToolResult):
            is_from_model, is_given = False, self._add_result(position, data) is None
        else:
            is_from_model = _is_in_answer(event) or _is_from_model(event)
            is_given = not is_from_model and _is_given(event)
        if is_from_model:
            self._add_to_turn(position, event)
            return
        if is_given:
            self._close(len(self._messages))
        self._builder.take([event])

    def _add_to_turn(self, position: int, event: Event) -> None:
        response_id = event.labels.get("response_id")
        if self._turn is not None and self._turn.events[0].labels.get("response_id") != response_id:
            self._close(len(self._messages))
        count = len(self._messages)
        parts = len(self._builder.origins.parts[-1]) if count else 0
        self._builder.take([event])
        is_new_message = len(self._messages) > count
        if self._turn is not None and is_new_message and count > self._turn.start and self._joins_messages:
            self._close(count)
        if self._turn is None:
            joins = not is_new_message and count > 0 and len(self._builder.origins.parts[-1]) > parts
            self._turn = _OpenTurn(position, count - 1, parts) if joins else _OpenTurn(position, count, None)
        self._turn.events.append(event)

    def _add_partial(self, position: int, event: Event) -> None:
        """Add a turn for a partial answer. It is not part of the conversation, which ``build`` returns without it."""
        text = cast("AssistantMessage", event.data).message
        text_only = Event(event.type, event.timestamp, AssistantMessage(text), seq=event.seq)
        messages: list[WireMessage] = []
        find_provider(self._builder.provider).builder(messages, None).take([text_only] if text else [])
        turn = ModelTurn(len(self._turns) + 1, tuple(messages), (event,))
        segment = len(self._segments)
        self._turns.append(ExpectedTurn(turn, position, segment, len(self._messages), None, certain=True))
        self._builder.take([event])

    def _compact(self, position: int, event: Event, data: Compaction) -> None:
        """Begin a segment with a compaction. If the provider made the compaction, it is a turn of the model too."""
        self._end_segment(position)
        provider = self._builder.provider
        items = items_of(data, provider)
        if items is not None and _is_labelled(event):
            turn = ModelTurn(len(self._turns) + 1, tuple(_copied(items)), (event,))
            last = len(self._segments) - 1
            self._turns.append(ExpectedTurn(turn, position, last, len(self._messages), None, certain=True))
        self._begin_segment(provider, position + 1, compacted(self._log[: position + 1], data, provider))

    def _close(self, end: int) -> None:
        """End the open turn, if any, before the message with index ``end``."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        answer = self._messages[turn.start : end]
        part_key = self._builder.part_key
        joined = turn.joined
        if joined is not None and isinstance(answer[0].get(part_key), list):
            answer[0] = {**answer[0], part_key: answer[0][part_key][joined:]}
        else:
            joined = None
        model_turn = ModelTurn(len(self._turns) + 1, tuple(_copied(answer)), tuple(turn.events))
        certain = any(not isinstance(event.data, ToolCall) or _is_labelled(event) for event in turn.events)
        segment = len(self._segments)
        self._turns.append(ExpectedTurn(model_turn, turn.position, segment, turn.start, joined, certain))

    def _add_call(self, position: int, event: Event, data: ToolCall) -> int | None:
        """Add a call and return the index of its parent call, or None if it has no parent."""
        parent = self._pairing.parent_of(data)
        self._pairing.add_call(data, len(self._calls))
        ids = frozenset({data.tool_call_id, self._wire_ids.call(data) or data.tool_call_id})
        self._calls.append(ExpectedCall(event, data, position, parent, ids))
        return parent

    def _add_result(self, position: int, data: ToolResult) -> int | None:
        """Add a result and return the index of its call's parent, or None if the model received the result."""
        index = self._pairing.add_result(data)
        if index is None:
            return self._pairing.parent_of(data)
        self._results[index] = data, position
        return self._calls[index].parent


def _copied(messages: Sequence[Mapping[str, object]]) -> list[WireMessage]:
    # JSON makes the copy: arguments may nest deeper than ``copy.deepcopy`` can recurse.
    return cast("list[WireMessage]", decode_json(encode_json(messages)))


def _is_in_answer(event: Event) -> bool:
    """Return whether the recorder read the event from a model's answer. Answers may hold items of any type."""
    return "response_id" in event.labels


def _is_from_model(event: Event) -> bool:
    """Return whether the event is part of a model's answer. Other code handles tool calls."""
    data = event.data
    if isinstance(data, (AssistantMessage, Thinking)):
        return True
    if isinstance(data, Annotation):  # a recorder stores an empty answer as an annotation
        return "provider" in event.labels and not event.labels.keys().isdisjoint({"response_id", "stop_reason"})
    if not isinstance(data, UnknownPayload) or not _is_kept(data):
        return False
    if data.type.startswith(RESPONSES):
        return is_from_model(dict(data.data))
    message = data.data.get("message", data.data)
    inner = message.get("role") if isinstance(message, Mapping) else None
    default = "assistant" if data.type.endswith(".block") else None  # a block without a role, as the builders have it
    return (data.data.get("role") or inner or default) in ("assistant", "model")


def _is_given(event: Event) -> bool:
    """Return whether the event is an input of the model, which ends a turn. Other code handles tool results."""
    data = event.data
    if isinstance(data, (UserMessage, SystemMessage, InjectedContext, ModelRequest)):
        return True
    return isinstance(data, UnknownPayload) and _is_kept(data)


def _is_kept(data: UnknownPayload) -> bool:
    """Return whether the payload is a provider's message or block that a parser stored unchanged."""
    provider, _, kind = data.type.rpartition(".")
    return provider in PROVIDERS and kind in ("message", "block")


def _is_labelled(event: Event) -> bool:
    """Return whether the labels mark the event as part of a model's answer."""
    return not event.labels.keys().isdisjoint({"provider", "response_id"}) or event.labels.get("role") == "assistant"
