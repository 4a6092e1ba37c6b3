"""Checks each step of a replay against the recording, and explains each divergence.

This module has no locks and no contexts: the replayer checks one step at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product, takewhile
from typing import Literal, NamedTuple, cast

from agent_memory_log.errors import InvalidArgument, ReplayDivergence
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue, encode_canonical
from agent_memory_log.events.payloads import Redacted, ToolResult
from agent_memory_log.replay.differences import arguments_in, describe_all, differences, readable_name, short_json
from agent_memory_log.replay.expectations import ExpectedCall, ExpectedRun, ExpectedTurn
from agent_memory_log.replay.prompts import PromptCheck, listed
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript.findings import WireMessage

Match = Literal["strict", "call_id", "arguments", "order"]
"""The rule that matches an agent's call with a recorded call; see ``Replayer``."""

MATCHES: tuple[Match, ...] = ("strict", "call_id", "arguments", "order")

_SHOWN_UNUSED = 5

_Key = tuple[str | bytes | int | None, ...]
"""The properties that a recorded call and the agent's call share under a ``Match`` rule."""


class MadeCall(NamedTuple):
    """A call that the agent makes in a replay.

    ``parent`` is the index of the enclosing recorded call, or None. ``lane`` is the task or thread that makes the call.
    """

    tool: str
    arguments: JsonValue
    call_id: str | None
    parent: int | None
    lane: object

    def __str__(self) -> str:
        return f"{readable_name(self.tool)} {short_json(self.arguments)}"


class StepChecker:
    """The recorded run of one replay, and the steps that the agent has made so far."""

    def __init__(self, snapshot: Snapshot, expected: ExpectedRun, match: Match) -> None:
        self._snapshot = snapshot
        self._expected = expected
        self._match = match
        self._turn = 0
        self._certain = 0
        self._left = set(range(len(expected.calls)))
        """The indexes of the recorded calls that the agent has not made yet."""
        self._by_key: dict[_Key, deque[int]] = {}
        """The calls by key in log order. Calls that were made are removed only when they reach the head."""
        self._by_end = deque(
            sorted((index for index, call in enumerate(expected.calls) if call.end is not None), key=self._end_of)
        )
        """The calls with a result, in the order of their results. Calls that were made are removed at the head."""
        self._prompts: list[PromptCheck] = []
        self._prompts_segment = -1
        """The index of the segment that the prompts are compared with."""
        self._newest: dict[object, int] = {}
        """For each lane, the recorded call with the highest index that the lane has made."""
        self._made_seqs: set[int] = set()
        self._sees_calls = True
        """False after the request of a client, which shows the results of the agent's calls and not the calls."""
        self._arguments = [encode_canonical(arguments_in(call.data.payload_json)) for call in expected.calls]
        self._without_inside: set[int] = set()
        """The calls whose inner calls were all marked as made together with them."""
        self._inside: dict[int, list[int]] = {}
        for index, call in enumerate(expected.calls):
            pairs = product(call.names, (None, *call.ids))
            for key in {self._key(name, self._arguments[index], call_id, call.parent) for name, call_id in pairs}:
                self._by_key.setdefault(key, deque()).append(index)
            if call.parent is not None:
                self._inside.setdefault(call.parent, []).append(index)

    def _key(self, tool: str, arguments: bytes, call_id: str | None, parent: int | None) -> _Key:
        if self._match == "strict":
            return tool, arguments, call_id, parent
        if self._match == "arguments":
            return tool, arguments
        return (call_id,) if self._match == "call_id" else ()

    @property
    def _is_strict(self) -> bool:
        return self._match == "strict"

    # Model turns.

    def next_turn(self) -> ExpectedTurn:
        """Take the next turn and return it.

        Raises ``ReplayDivergence`` if the recording has no more turns, or if the agent skipped a call before the turn.
        """
        expected = self._coming_turn()
        if expected is None:
            raise self._divergence(
                "unexpected_turn", f"the agent calls the model again, but the recording ends after turn {self._turn}"
            )
        if self._is_strict:
            overdue = takewhile(lambda index: self._end_of(index) < expected.position, self._pending(self._by_end))
            first = min(overdue, default=None)
            if first is not None:
                call = self._expected.calls[first]
                raise self._divergence(
                    "missing_call",
                    f"the agent requests model turn {expected.turn.number}, but it did not make the call {call}, which "
                    "the recording has before that turn",
                    call.event,
                )
        self._turn = expected.turn.number
        self._certain += expected.certain
        return expected

    def answer_request(
        self, messages: Sequence[object], leading: Sequence[WireMessage], provider: str, continued: str | None
    ) -> ExpectedTurn:
        """Take the turn that answers the request of a client, and return it.

        A strict replay checks the messages. They hold the results of the calls before the turn, so these calls count as
        made. ``continued`` is the id of the answer that the messages follow, if the provider keeps the messages before;
        "" is the latest answer.
        """
        self._sees_calls = False
        if continued is not None and self._is_strict:
            messages = [*leading, *self._messages_to_answer(continued), *messages]
        coming = self._coming_turn()
        while coming is not None and not coming.certain and len(messages) > len(leading) + coming.prefix:
            self._made_seqs.update(event.seq for event in coming.turn.events)  # the agent's own code made these calls
            coming = self._coming_turn()
        if self._is_strict:
            self.check_messages(messages, leading, provider)
        if coming is not None:
            overdue = takewhile(lambda index: self._end_of(index) < coming.position, list(self._pending(self._by_end)))
            for index in overdue:
                self._left.discard(index)
                self._take_inside(index)
        return self.next_turn()

    def _messages_to_answer(self, answer_id: str) -> tuple[WireMessage, ...]:
        """Return the messages up to the end of an answer that the agent has received."""
        for expected in reversed(self._expected.turns[: self._turn]):
            if answer_id in ("", expected.turn.answer_id):
                end = expected.prefix + len(expected.turn.messages)
                return self._expected.segments[expected.segment].transcript[:end]
        if answer_id:
            raise self._divergence(
                "other_messages", f"the agent continues the answer {answer_id!r}, which it has not received"
            )
        return ()

    def check_messages(self, messages: Iterable[object], leading: Sequence[WireMessage], provider: str) -> None:
        """Check the agent's messages; see ``Replayer.expect_messages``.

        ``leading`` are the messages that the provider's request has before the transcript.
        """
        expected = self._coming_turn()
        index = len(self._expected.segments) - 1 if expected is None else expected.segment
        segment = self._expected.segments[index]
        if self._prompts_segment != index:
            self._prompts_segment = index
            forms = (segment.transcript, segment.unlimited)
            self._prompts = [PromptCheck([*leading, *form], provider) for form in forms if form is not None]
        if expected is None:
            prefix, joined, number, event = len(segment.transcript), None, self._turn + 1, None
        else:
            prefix, joined = expected.prefix, self._expected.joined(expected)
            number, event = expected.turn.number, expected.turn.events[0]
        sent = listed(messages)
        mismatches = [check.compare(sent, len(leading) + prefix, joined) for check in self._prompts]
        mismatch = mismatches[0] if all(mismatches) else None
        if mismatch is not None:
            index, message_differences = mismatch
            lines = describe_all(message_differences, "recorded", "now")
            text = f"before model turn {number}, messages[{index}] differs from the recording"
            raise self._divergence("other_messages", "\n  ".join([text, *lines]), event)

    def _coming_turn(self) -> ExpectedTurn | None:
        """Return the next expected turn, or None. Skip turns whose calls the agent made without asking the model."""
        for expected in islice(self._expected.turns, self._turn, None):
            if expected.certain or any(event.seq not in self._made_seqs for event in expected.turn.events):
                return expected
        return None

    # Calls.

    def take_call(self, actual: MadeCall, *, with_inside: bool) -> int:
        """Find the recorded call that matches the agent's call, mark it as made, and return its index.

        With ``with_inside``, mark the calls inside it as made too. Raises ``ReplayDivergence`` if no call matches.
        """
        if self._match == "call_id" and actual.call_id is None:
            raise InvalidArgument('match="call_id" needs the id of each call; pass tool_call_id')
        arguments = encode_canonical(actual.arguments)
        candidates = self._by_key.get(self._key(actual.tool, arguments, actual.call_id, actual.parent), deque())
        index = next(self._pending(candidates), None)
        if self._is_strict:
            if index is None or not self._is_possible(index, actual.parent):  # then no later candidate is possible
                raise self._explain(actual, arguments)
            self._check_order(index, actual)
        elif index is None:
            searched = f"the id {actual.call_id!r}" if self._match == "call_id" else str(actual)
            raise self._divergence(
                "unexpected_call", f"the recording has no more calls for {searched} (matched by {self._match})"
            )
        self._newest[actual.lane] = max(self._newest.get(actual.lane, index), index)
        self._made_seqs.add(self._expected.calls[index].event.seq)
        self._left.remove(index)
        if with_inside:
            self._take_inside(index)
        return index

    def _take_inside(self, index: int) -> None:
        waiting = [index]
        while waiting:
            index = waiting.pop()
            if index not in self._without_inside:
                self._without_inside.add(index)
                inside = self._inside.get(index, ())
                waiting += inside
                self._left.difference_update(inside)

    def _pending(self, pool: deque[int]) -> Iterator[int]:
        """Yield the calls of ``pool`` that were not made yet. Remove the other calls from its head."""
        while pool and pool[0] not in self._left:
            pool.popleft()
        return (index for index in pool if index in self._left)

    def _end_of(self, index: int) -> int:
        """Return the position of the call's result in the log. The call must have a result."""
        return cast("int", self._expected.calls[index].end)

    def _is_possible(self, index: int, parent: int | None) -> bool:
        """Return whether the call has this parent and belongs to a turn that the agent has already requested."""
        call = self._expected.calls[index]
        return call.parent == parent and call.turns <= self._certain

    def _check_order(self, index: int, actual: MadeCall) -> None:
        """Check that a lane makes its calls in the recorded order. Calls of different lanes have no order."""
        call = self._expected.calls[index]
        newest = self._newest.get(actual.lane)
        if newest is not None and call.end is not None and call.end < self._expected.calls[newest].begin:
            raise self._divergence(
                "other_order",
                f"{call} is called after {self._expected.calls[newest]}, but the recording has it before",
                call.event,
            )

    def _explain(self, actual: MadeCall, arguments: bytes) -> ReplayDivergence:
        """Return the divergence that explains why no recorded call matches."""
        calls = self._expected.calls
        same_name = {index for index, call in enumerate(calls) if actual.tool in call.names}
        equal = [index for index in sorted(same_name) if self._arguments[index] == arguments]
        fitting = [index for index in equal if _has_id(calls[index], actual)]
        misplaced = [calls[index] for index in fitting if index in self._left]
        if misplaced:
            text = f"{actual} is called {self._misplaced(misplaced[0], actual)}"
            return self._divergence("other_order", text, misplaced[0].event)
        coming = [index for index in sorted(self._left) if self._is_possible(index, actual.parent)]
        expected = [index for index in coming if _has_id(calls[index], actual)]
        same_tool = [calls[index] for index in expected if index in same_name]
        if same_tool:
            return self._other_arguments(same_tool[0], actual)
        if fitting:
            text = f"{actual} is called more often than in the recording"
            return self._divergence("unexpected_call", text, calls[fitting[-1]].event)
        if expected:
            call = calls[expected[0]]
            text = f"a different tool is called:\n  recorded: {call}\n  now: {actual}"
            return self._divergence("other_tool", text, call.event)
        other_id = [calls[index] for index in coming if index in equal]
        if other_id:
            recorded_id = other_id[0].data.tool_call_id
            text = f"{actual} is called with the id {actual.call_id!r}, but the recorded id is {recorded_id!r}"
            return self._divergence("unexpected_call", text, other_id[0].event)
        turn = self._coming_turn()
        instead = "the recording ends here" if turn is None else f"model turn {turn.turn.number} is recorded next"
        return self._divergence("unexpected_call", f"{actual} is called, but the recording does not have it: {instead}")

    def _misplaced(self, call: ExpectedCall, actual: MadeCall) -> str:
        if call.parent != actual.parent:
            return f"{self._level(actual.parent)}, but the recording has it {self._level(call.parent)}"
        certain = [expected.turn.number for expected in self._expected.turns if expected.certain]
        return f"before model turn {certain[call.turns - 1]}, but the recording has it after that turn"

    def _level(self, parent: int | None) -> str:
        return "outside any call" if parent is None else f"inside {self._expected.calls[parent]}"

    def _other_arguments(self, call: ExpectedCall, actual: MadeCall) -> ReplayDivergence:
        recorded = arguments_in(call.data.payload_json)
        lines = [
            f"{readable_name(actual.tool)} is called with different arguments:",
            f"recorded: {short_json(recorded)}",
        ]
        lines.append(f"now: {short_json(actual.arguments)}")
        lines += describe_all(differences(recorded, actual.arguments), "recorded", "now")
        return self._divergence("other_arguments", "\n  ".join(lines), call.event)

    # Results, and the end of calls and of the replay.

    def check_result(self, index: int) -> ToolResult:
        """Return the recorded result of a call. Raises ``ReplayDivergence`` if there is no result."""
        call = self._expected.calls[index]
        if call.result is None:
            raise self._divergence(
                "no_result",
                f"the recording has no result of the call {call}: the process ended before the result, or the result "
                "was erased; resume the run before you replay it",
                call.event,
            )
        return call.result

    def check_inside(self, index: int) -> None:
        """Raise ``ReplayDivergence`` if the agent did not make all calls that were recorded inside this call."""
        if self._is_strict:
            self._check_made(self._inside.get(index, []), f" inside {self._expected.calls[index]}")

    def check_end(self) -> None:
        """Raise ``ReplayDivergence`` if the agent did not use all recorded turns and all calls that have results."""
        if not self._is_strict:
            return
        if self._sees_calls:
            self._check_made(sorted(self._left), "")
        coming = self._coming_turn()
        while coming is not None and not (coming.certain or self._sees_calls):
            self._turn = coming.turn.number  # calls after the last request, which the agent's own code made
            coming = self._coming_turn()
        if coming is not None:
            raise self._divergence(
                "missing_turn",
                f"the agent has ended, but the recording continues with model turn {coming.turn.number} of "
                f"{len(self._expected.turns)}: {short_json(coming.turn.text)}",
                coming.turn.events[0],
            )

    def _check_made(self, indexes: Iterable[int], level: str) -> None:
        left = [self._expected.calls[index] for index in indexes if index in self._left]
        unused = [call for call in left if call.result is not None]  # the recorded run left the others unanswered
        if not unused:
            return
        more = f"\n  and {len(unused) - _SHOWN_UNUSED} more" if len(unused) > _SHOWN_UNUSED else ""
        listed = "\n  ".join(str(call) for call in unused[:_SHOWN_UNUSED])
        raise self._divergence(
            "missing_call", f"recorded calls were not made{level}:\n  {listed}{more}", unused[0].event
        )

    def _divergence(self, reason: str, text: str, event: Event | None = None) -> ReplayDivergence:
        erased = [event.seq for event in self._snapshot.log if isinstance(event.data, Redacted)]
        if erased:
            listed = ", ".join(map(str, erased[:_SHOWN_UNUSED])) + (", …" if len(erased) > _SHOWN_UNUSED else "")
            text += f"\n  (these events were erased from the recording and cannot be replayed: {listed})"
        return ReplayDivergence(
            f"the replay of {self._snapshot.agent}/{self._snapshot.run} differs from its recording: {text}",
            reason=reason,
            seq=None if event is None else event.seq,
        )


def _has_id(call: ExpectedCall, actual: MadeCall) -> bool:
    return actual.call_id is None or actual.call_id in call.ids
