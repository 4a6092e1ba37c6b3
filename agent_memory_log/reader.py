"""The ``Reader``, which answers questions about a snapshot, such as "Which tool calls have no result yet?".

An index answers questions about tool calls, turns and latest events. The snapshots of one run share it, and it grows
with ``Snapshot.extend``, so a question after an extension takes time only for the new events.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import EventType, Redacted, ToolCall, ToolResult
from agent_memory_log.pairing import Pairing
from agent_memory_log.snapshot import EventList, Snapshot, require_snapshot

_Answer = TypeVar("_Answer")


class Turn(msgspec.Struct, frozen=True):
    """A user message and all events up to the next one, in append order.

    Events before the first user message belong to the first turn.

    Attributes:
        user_message: The user message, its ``Redacted`` event if it was redacted, or None in a run without user
            messages.
        events: The events of the turn, including the user message.
    """

    user_message: Event | None
    events: tuple[Event, ...]


class Reader:
    """Answers questions about a snapshot. ``decode_event`` returns the typed payload of an event.

    A tool result answers the latest open call before it, in append order, that has its ``tool_call_id`` (see
    ``Pairing``).
    """

    def __init__(self, snapshot: Snapshot) -> None:
        require_snapshot(snapshot)
        self.snapshot = snapshot

    def events(self) -> EventList:
        """Return all events by time, then by seq."""
        return self.snapshot.events

    def filter_by_type(self, event_type: str) -> tuple[Event, ...]:
        """Return the events of a type, by time, then by seq. ``event_type`` is an ``EventType`` or any text."""
        return tuple(event for event in self.snapshot.events if event.type == event_type)

    def filter_by_labels(self, labels: Mapping[str, str]) -> tuple[Event, ...]:
        """Return the events that have every one of ``labels`` with the same value, by time, then by seq."""
        expected = labels.items()
        return tuple(event for event in self.snapshot.events if expected <= event.labels.items())

    def latest(self, event_type: str) -> Event | None:
        """Return the newest event of a type, by time, then by seq, or None."""
        return self._ask(lambda index: index.latest.get(event_type))

    def tool_calls(self) -> tuple[Event, ...]:
        """Return all tool calls, in append order."""
        return self._at(self._ask(lambda index: list(index.answers)))

    def open_tool_calls(self) -> tuple[Event, ...]:
        """Return the tool calls that have no result yet, in append order."""
        return self._at(self._ask(lambda index: index.pairing.open_calls()))

    def result_for(self, call: str | Event) -> Event | None:
        """Return the result of a call, or None if the call is open or unknown.

        Args:
            call: A ``tool_call_id``, which selects the latest call with that id, or the event of any call.

        Raises:
            InvalidArgument: The event is not a tool call.
        """
        log = self.snapshot.log
        call_id = call if isinstance(call, str) else _tool_call(call).tool_call_id

        def answer_in(index: _Index) -> int | None:
            positions = index.calls.get(call_id, [])
            count = len(positions) if isinstance(call, str) else _count_up_to(positions, call.seq, log)
            if not count or not (isinstance(call, str) or log[positions[count - 1]].seq == call.seq):
                return None
            return index.answers[positions[count - 1]]

        answer = self._ask(answer_in)
        return None if answer is None else log[answer]

    def call_for(self, result: Event) -> Event | None:
        """Return the call that a tool result answers, or None. Raises ``InvalidArgument`` if the event is not a tool
        result.
        """
        if not isinstance(result.data, ToolResult):
            raise InvalidArgument(f"event {result.seq} is a {result.type}, not a tool_result")
        position = self._ask(lambda index: index.questions.get(result.seq))
        return None if position is None else self.snapshot.log[position]

    def children_of(self, call: str | Event) -> tuple[Event, ...]:
        """Return the tool calls that were made inside a call, in append order.

        Args:
            call: A ``tool_call_id``, which selects the children of every call with that id, or a call's event, which
                selects the children up to the next call with the same id.

        Raises:
            InvalidArgument: The event is not a tool call.
        """
        call_id = call if isinstance(call, str) else _tool_call(call).tool_call_id
        if isinstance(call, str):
            return self._at(self._ask(lambda index: list(index.children.get(call_id, ()))))
        log = self.snapshot.log

        def children_in(index: _Index) -> list[int]:
            children, same_id = index.children.get(call_id, []), index.calls.get(call_id, [])
            after = _count_up_to(same_id, call.seq, log)
            end = bisect_left(children, same_id[after]) if after < len(same_id) else len(children)
            return children[_count_up_to(children, call.seq, log) : end]

        return self._at(self._ask(children_in))

    def turns(self) -> tuple[Turn, ...]:
        """Return the turns of the run in append order. An empty snapshot has no turns."""
        log = self.snapshot.log
        starts = self._ask(lambda index: list(index.user_messages))
        if not starts:
            return (Turn(None, tuple(log)),) if len(log) else ()
        begins = [0, *starts[1:]]
        ends = [*starts[1:], len(log)]
        return tuple(Turn(log[start], log[begin:end]) for start, begin, end in zip(starts, begins, ends, strict=True))

    def _ask(self, question: Callable[[_Index], _Answer]) -> _Answer:
        return self.snapshot.derive(_Index, question)

    def _at(self, positions: Iterable[int]) -> tuple[Event, ...]:
        log = self.snapshot.log
        return tuple(log[position] for position in positions)


def _tool_call(event: Event) -> ToolCall:
    if not isinstance(event.data, ToolCall):
        raise InvalidArgument(f"event {event.seq} is a {event.type}, not a tool_call")
    return event.data


def _count_up_to(positions: Sequence[int], seq: int, log: EventList) -> int:
    """Return how many of the ascending ``positions`` in the log hold an event with a seq of at most ``seq``."""
    return bisect_right(positions, seq, key=lambda position: log[position].seq)


class _Index:
    """An index of a log. It stores positions in the log, and grows event by event."""

    def __init__(self) -> None:
        self.latest: dict[str, Event] = {}
        self.pairing: Pairing[int] = Pairing()
        self.calls: dict[str, list[int]] = {}
        self.children: dict[str, list[int]] = {}
        # The position of each call, with the position of its result or None.
        self.answers: dict[int, int | None] = {}
        # The seq of each result, with the position of its call.
        self.questions: dict[int, int] = {}
        self.user_messages: list[int] = []

    def add(self, position: int, event: Event) -> None:
        newest = self.latest.get(event.type)
        if newest is None or event.timestamp >= newest.timestamp:
            self.latest[event.type] = event
        data = event.data
        if isinstance(data, ToolCall):
            self.pairing.add_call(data, position)
            self.calls.setdefault(data.tool_call_id, []).append(position)
            if data.parent_tool_call_id:
                self.children.setdefault(data.parent_tool_call_id, []).append(position)
            self.answers[position] = None
        elif isinstance(data, ToolResult):
            call = self.pairing.add_result(data)
            if call is not None:
                self.answers[call] = position
                self.questions[event.seq] = call
        elif event.type == EventType.USER_MESSAGE or (
            isinstance(data, Redacted) and data.original_type == EventType.USER_MESSAGE
        ):
            self.user_messages.append(position)
