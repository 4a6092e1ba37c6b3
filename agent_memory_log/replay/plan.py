"""What a run holds for a replay: the model's turns and the tool calls, what came of each, and what came before what.

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
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript.calls import CallLedger
from agent_memory_log.transcript.model import Message
from agent_memory_log.transcript.names import PROVIDERS
from agent_memory_log.transcript.openai_responses import PROVIDER as RESPONSES
from agent_memory_log.transcript.openai_responses.turns import is_from_model
from agent_memory_log.transcript.providers import find


class ModelTurn(msgspec.Struct, frozen=True):
    """What the model answered.

    - ``number``: which turn of the model's it is, from 1.
    - ``messages``: the answer as the provider has it in its transcripts, plain maps of the caller's own; one, or none
      where the model answered with nothing. With ``openai-responses``, the items.
    - ``events``: its events in the recorded run, in order; their labels say what the recorder knew, as ``stop_reason``.
    """

    number: int
    messages: tuple[Message, ...]
    events: tuple[Event, ...]

    @property
    def message(self) -> Message:
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


class PlannedTurn(msgspec.Struct, frozen=True):
    """A turn in the plan.

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


class PlannedCall(msgspec.Struct, frozen=True):
    """A call in the plan.

    - ``event``, ``data``: the call; ``result``: what came of it, None where the recording has nothing.
    - ``begin``, ``end``: the places in the log of the call and of its result (None: it has none).
    - ``parent``: the index of the call inside which it was made, None at the top.
    - ``turns``: how many turns that are certain begin before it, its own included.
    - ``ids``: what it may be called by: our call id, and the one on the provider's wire.
    """

    event: Event
    data: ToolCall
    result: ToolResult | None
    begin: int
    end: int | None
    parent: int | None
    turns: int
    ids: frozenset[str]


class Plan(msgspec.Struct, frozen=True):
    """A run for a replay: its turns and calls, each in the order of the log, and its whole transcript.

    ``part_key``: where a message of the provider has its parts.
    """

    turns: tuple[PlannedTurn, ...]
    calls: tuple[PlannedCall, ...]
    transcript: tuple[Message, ...]
    part_key: str

    def joined(self, planned: PlannedTurn) -> Message | None:
        """What stands before a turn in the message it goes on with; None where it begins one."""
        if planned.joined is None:
            return None
        message = self.transcript[planned.prefix]
        return {**message, self.part_key: message[self.part_key][: planned.joined]}


def provider_of(snapshot: Snapshot) -> str | None:
    """The provider that the run was recorded with, as its first event that tells says."""
    for event in snapshot.log:
        data = event.data
        named = data.provider if isinstance(data, ModelRequest) else event.labels.get("provider")
        if named in PROVIDERS:
            return named
    return None


def read_plan(snapshot: Snapshot, provider: str) -> Plan:
    """The plan of a whole run. Raises ``InvalidArgument`` for an unknown provider."""
    reading = _Reading(snapshot, provider)
    for place, event in enumerate(snapshot.log):
        reading.take(place, event)
    return reading.finish()


class _OpenTurn:
    """A turn whose events are still being read."""

    def __init__(self, place: int, start: int, joined: int | None) -> None:
        self.place = place
        self.start = start
        self.joined = joined
        """How many parts of the message at ``start`` belong to others; None where that message is its own."""
        self.events: list[Event] = []

    @property
    def response_id(self) -> str | None:
        return self.events[0].labels.get("response_id")


class _Reading:
    def __init__(self, snapshot: Snapshot, provider: str) -> None:
        package = find(provider)
        self._snapshot = snapshot
        self._provider = provider
        self._messages: list[Message] = []
        self._builder = package.builder(self._messages, None)
        self._ledger = CallLedger(self._builder.rules)
        self._turn: _OpenTurn | None = None
        self._turns: list[PlannedTurn] = []
        self._calls: list[PlannedCall] = []
        self._pairing: Pairing[int] = Pairing()

    def finish(self) -> Plan:
        self._close(len(self._messages))
        begins = [planned.place for planned in self._turns if planned.certain]
        calls = tuple(msgspec.structs.replace(call, turns=bisect_right(begins, call.begin)) for call in self._calls)
        return Plan(tuple(self._turns), calls, tuple(self._messages), self._builder.part_key)

    def take(self, place: int, event: Event) -> None:
        data = event.data
        if isinstance(data, ToolCall):
            said = self._add_call(place, event, data)
        elif isinstance(data, ToolResult):
            said = False
            if self._add_result(place, data):
                self._close(len(self._messages))
        else:
            said = self._is_said(event)
            if not said and self._is_given(event):
                self._close(len(self._messages))
        if not said:
            self._builder.take([event])
            return
        if self._turn is not None and self._turn.response_id != event.labels.get("response_id"):
            self._close(len(self._messages))
        self._say(place, event)

    def _say(self, place: int, event: Event) -> None:
        """Take in an event of a turn."""
        known = len(self._messages)
        parts = len(self._builder.origins.parts[-1]) if known else 0
        self._builder.take([event])
        begun = len(self._messages) > known
        if self._turn is not None and begun and known > self._turn.start and self._provider != RESPONSES:
            self._close(known)
        if self._turn is None:
            joins = not begun and known > 0 and len(self._builder.origins.parts[-1]) > parts
            self._turn = _OpenTurn(place, known - 1, parts) if joins else _OpenTurn(place, known, None)
        self._turn.events.append(event)

    def _close(self, end: int) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        said = self._messages[turn.start : end]
        part_key = self._builder.part_key
        joined: int | None = None
        if turn.joined is not None and isinstance(said[0].get(part_key), list):
            joined = turn.joined
            said[0] = {**said[0], part_key: said[0][part_key][joined:]}
        # An own copy, by way of JSON: arguments may nest deeper than Python copies.
        messages = cast("list[Message]", decode_json(encode_json(said)))
        found = ModelTurn(len(self._turns) + 1, tuple(messages), tuple(turn.events))
        self._turns.append(PlannedTurn(found, turn.place, turn.start, joined, _is_certain(turn.events)))

    def _add_call(self, place: int, event: Event, data: ToolCall) -> bool:
        """Take in a call; whether it is the model's own, and not made inside another one."""
        wire_id = self._ledger.call(data)
        parent = self._pairing.parent_of(data)
        self._pairing.add_call(data, len(self._calls))
        self._calls.append(
            PlannedCall(
                event=event,
                data=data,
                result=None,
                begin=place,
                end=None,
                parent=parent,
                turns=0,
                ids=frozenset({data.tool_call_id, wire_id or data.tool_call_id}),
            )
        )
        return wire_id is not None

    def _add_result(self, place: int, data: ToolResult) -> bool:
        """Take in a result; whether the model was given it."""
        given = self._ledger.result(data) is not None
        index = self._pairing.add_result(data)
        if index is not None:
            self._calls[index] = msgspec.structs.replace(self._calls[index], result=data, end=place)
        return given

    @staticmethod
    def _is_said(event: Event) -> bool:
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

    @staticmethod
    def _is_given(event: Event) -> bool:
        """Whether the model was given it, so that what it says next is another turn."""
        data = event.data
        if isinstance(data, (UserMessage, SystemMessage, ModelRequest)):
            return True
        return isinstance(data, UnknownPayload) and _is_kept(data)


def _is_kept(data: UnknownPayload) -> bool:
    """Whether a parser kept it whole of a provider's messages."""
    provider, _, what = data.type.rpartition(".")
    return provider in PROVIDERS and what in ("message", "block")


def _is_certain(events: list[Event]) -> bool:
    return any(not isinstance(event.data, ToolCall) or _is_labelled(event) for event in events)


def _is_labelled(event: Event) -> bool:
    """Whether a recorder or a parser says that it is of a model's answer."""
    return not event.labels.keys().isdisjoint({"provider", "response_id"}) or event.labels.get("role") == "assistant"
