"""What a replay of a run expects: the model's turns and the tool calls, what came of each, and in which order.

A turn is what the model answered at once. The recorder labels an answer's events with its ``response_id``; where that
is missing, a turn is what stands together in one message of the provider (with ``openai-responses``: the items between
two that the model was given).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import cast

import msgspec

from agent_memory_log.errors import InvalidArgument
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
from agent_memory_log.pairing import Pairing
from agent_memory_log.replay.differences import arguments_in, shown, shown_name
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript.conversion.calls import CallLedger
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.names import PROVIDERS, encode_name
from agent_memory_log.transcript.openai_responses.items import is_from_model
from agent_memory_log.transcript.openai_responses.rendering import PROVIDER as RESPONSES
from agent_memory_log.transcript.providers import find_provider


class ModelTurn(msgspec.Struct, frozen=True):
    """What the model answered.

    - ``number``: which turn of the model's it is, from 1.
    - ``messages``: the answer as the provider has it in its transcripts, plain maps of the caller's own; one, or none
      where the model answered with nothing. With ``openai-responses``, the items.
    - ``events``: its events in the recorded run, in order; their labels say what the recorder knew, as ``stop_reason``.
    """

    number: int
    messages: tuple[WireMessage, ...]
    events: tuple[Event, ...]

    @property
    def message(self) -> WireMessage:
        """The answer where it is one message. Raises ``InvalidArgument`` where it is not."""
        if len(self.messages) != 1:
            raise InvalidArgument(f"turn {self.number} of the model is {len(self.messages)} messages: use messages")
        return self.messages[0]

    @property
    def text(self) -> str:
        """What the assistant said; ``""`` where it only called tools."""
        return "".join(event.data.message for event in self.events if isinstance(event.data, AssistantMessage))

    @property
    def tool_calls(self) -> tuple[Event, ...]:
        """The calls the model asked for: give each to ``tool_result``."""
        return tuple(event for event in self.events if isinstance(event.data, ToolCall))


class ExpectedTurn(msgspec.Struct, frozen=True):
    """A turn that a replay expects.

    - ``place``: of its first event in the log; ``prefix``: how many messages of the transcript stand before it.
    - ``joined``: how many parts stand before it in the message it goes on with, where the provider makes one message of
      both; None where it goes on with none.
    - ``certain``: whether it came from the model. Calls alone that nobody labelled may also be those the runtime made
      by itself.
    """

    turn: ModelTurn
    place: int
    prefix: int
    joined: int | None
    certain: bool


class ExpectedCall(msgspec.Struct, frozen=True):
    """A call that a replay expects.

    - ``event``, ``data``: the call; ``begin``: its place in the log.
    - ``parent``: the index of the call inside which it was made, None at the top.
    - ``ids``: what it may be called by: our call id, and the one on the provider's wire.
    - ``result``, ``end``: what came of it and the place of that in the log; None where the recording has nothing.
    - ``turns``: how many turns that are certain begin before it, its own included.
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
        """By which names the tool may be called: ours, and the one on the provider's wire."""
        return {self.data.tool_name, encode_name(self.data.tool_name)}

    def __str__(self) -> str:
        seq = f" (event {self.event.seq})" if self.event.seq else ""
        return f"{shown_name(self.data.tool_name)} {shown(arguments_in(self.data.payload_json))}{seq}"


class ExpectedRun(msgspec.Struct, frozen=True):
    """What a replay expects: turns and calls, each in the order of the log, and the whole transcript.

    ``part_key``: where a message of the provider has its parts.
    """

    turns: tuple[ExpectedTurn, ...]
    calls: tuple[ExpectedCall, ...]
    transcript: tuple[WireMessage, ...]
    part_key: str

    def joined(self, expected: ExpectedTurn) -> WireMessage | None:
        """What stands before a turn in the message it goes on with; None where it begins one."""
        if expected.joined is None:
            return None
        message = self.transcript[expected.prefix]
        return {**message, self.part_key: message[self.part_key][: expected.joined]}


def provider_of(snapshot: Snapshot) -> str | None:
    """The provider that the run was recorded with, as its first event that tells says."""
    for event in snapshot.log:
        data = event.data
        named = data.provider if isinstance(data, ModelRequest) else event.labels.get("provider")
        if named in PROVIDERS:
            return named
    return None


def read_expectations(snapshot: Snapshot, provider: str) -> ExpectedRun:
    """What a replay of a whole run expects. Raises ``InvalidArgument`` for an unknown provider."""
    reading = _Reading(provider)
    for place, event in enumerate(snapshot.log):
        reading.take(place, event)
    return reading.finish()


class _OpenTurn:
    """A turn whose events are still being read.

    ``start``: which message it begins in; ``joined``: how many parts of that belong to others, None where none do.
    """

    def __init__(self, place: int, start: int, joined: int | None) -> None:
        self.place = place
        self.start = start
        self.joined = joined
        self.events: list[Event] = []


class _Reading:
    def __init__(self, provider: str) -> None:
        self._joins_messages = provider != RESPONSES
        self._messages: list[WireMessage] = []
        self._builder = find_provider(provider).builder(self._messages, None)
        self._wire_ids = CallLedger(self._builder.rules)
        self._turn: _OpenTurn | None = None
        self._turns: list[ExpectedTurn] = []
        self._calls: list[ExpectedCall] = []
        self._results: dict[int, tuple[ToolResult, int]] = {}
        self._pairing: Pairing[int] = Pairing()

    def finish(self) -> ExpectedRun:
        self._close(len(self._messages))
        begins = [expected.place for expected in self._turns if expected.certain]
        calls: list[ExpectedCall] = []
        for index, call in enumerate(self._calls):
            result, end = self._results.get(index, (None, None))
            turns = bisect_right(begins, call.begin)
            calls.append(msgspec.structs.replace(call, result=result, end=end, turns=turns))
        return ExpectedRun(tuple(self._turns), tuple(calls), tuple(self._messages), self._builder.part_key)

    def take(self, place: int, event: Event) -> None:
        data = event.data
        if isinstance(data, ToolCall):
            is_from_model, is_given = self._add_call(place, event, data) is None, False
        elif isinstance(data, ToolResult):
            is_from_model, is_given = False, self._add_result(place, data) is None
        else:
            is_from_model = _is_from_model(event)
            is_given = not is_from_model and _is_given(event)
        if is_from_model:
            self._add_to_turn(place, event)
            return
        if is_given:
            self._close(len(self._messages))
        self._builder.take([event])

    def _add_to_turn(self, place: int, event: Event) -> None:
        response_id = event.labels.get("response_id")
        if self._turn is not None and self._turn.events[0].labels.get("response_id") != response_id:
            self._close(len(self._messages))
        known = len(self._messages)
        parts = len(self._builder.origins.parts[-1]) if known else 0
        self._builder.take([event])
        begun = len(self._messages) > known
        if self._turn is not None and begun and known > self._turn.start and self._joins_messages:
            self._close(known)
        if self._turn is None:
            joins = not begun and known > 0 and len(self._builder.origins.parts[-1]) > parts
            self._turn = _OpenTurn(place, known - 1, parts) if joins else _OpenTurn(place, known, None)
        self._turn.events.append(event)

    def _close(self, end: int) -> None:
        """End the turn that is being read, if there is one, before the message ``end``."""
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
        # An own copy, by way of JSON: arguments may nest deeper than Python copies.
        messages = cast("list[WireMessage]", decode_json(encode_json(answer)))
        found = ModelTurn(len(self._turns) + 1, tuple(messages), tuple(turn.events))
        certain = any(not isinstance(event.data, ToolCall) or _is_labelled(event) for event in turn.events)
        self._turns.append(ExpectedTurn(found, turn.place, turn.start, joined, certain))

    def _add_call(self, place: int, event: Event, data: ToolCall) -> int | None:
        """Add a call. Returns the index of the call inside which it was made, None for the model's own."""
        parent = self._pairing.parent_of(data)
        self._pairing.add_call(data, len(self._calls))
        ids = frozenset({data.tool_call_id, self._wire_ids.call(data) or data.tool_call_id})
        self._calls.append(ExpectedCall(event, data, place, parent, ids))
        return parent

    def _add_result(self, place: int, data: ToolResult) -> int | None:
        """Add a result. Returns the index of the call inside which its call was made, None where the model got it."""
        index = self._pairing.add_result(data)
        if index is None:
            return self._pairing.parent_of(data)
        self._results[index] = data, place
        return self._calls[index].parent


def _is_from_model(event: Event) -> bool:
    """Whether the model said it; calls are looked at elsewhere."""
    data = event.data
    if isinstance(data, (AssistantMessage, Thinking)):
        return True
    if isinstance(data, Annotation):  # what a recorder writes for an answer without content
        return "provider" in event.labels and not event.labels.keys().isdisjoint({"response_id", "stop_reason"})
    if not isinstance(data, UnknownPayload) or not _is_kept(data):
        return False
    if data.type.startswith(RESPONSES):
        return is_from_model(dict(data.data))
    message = data.data.get("message", data.data)
    role = data.data.get("role", message.get("role") if isinstance(message, Mapping) else None)
    return role == "assistant"


def _is_given(event: Event) -> bool:
    """Whether the model was given it, so that what it says next is another turn; results are looked at elsewhere."""
    data = event.data
    if isinstance(data, (UserMessage, SystemMessage, ModelRequest)):
        return True
    return isinstance(data, UnknownPayload) and _is_kept(data)


def _is_kept(data: UnknownPayload) -> bool:
    """Whether a parser kept it whole of a provider's messages."""
    provider, _, what = data.type.rpartition(".")
    return provider in PROVIDERS and what in ("message", "block")


def _is_labelled(event: Event) -> bool:
    """Whether a recorder or a parser says that it is of a model's answer."""
    return not event.labels.keys().isdisjoint({"provider", "response_id"}) or event.labels.get("role") == "assistant"
