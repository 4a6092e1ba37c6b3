"""How far a replay has got: which step may come next, and what is wrong where another one comes.

No locks and no contexts here: the replayer asks one question at a time.
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
from agent_memory_log.replay.differences import arguments_in, describe_all, differences, shown, shown_name
from agent_memory_log.replay.expectations import ExpectedCall, ExpectedRun, ExpectedTurn
from agent_memory_log.replay.prompts import PromptCheck
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript.model import Message

Match = Literal["strict", "call_id", "arguments", "order"]
"""How a call that is made finds the one that was recorded; see ``Replayer``."""

MATCHES: tuple[Match, ...] = ("strict", "call_id", "arguments", "order")

_SHOWN_UNUSED = 5

_Key = tuple[str | bytes | int | None, ...]
"""What a recorded call and the call that is made of it have in common, by ``Match``."""


class MadeCall(NamedTuple):
    """A call as the agent makes it: by which lane (the task or thread), and inside which call (None: none)."""

    tool: str
    arguments: JsonValue
    call_id: str | None
    parent: int | None
    lane: object

    def __str__(self) -> str:
        return f"{shown_name(self.tool)} {shown(self.arguments)}"


class StepChecker:
    """How far one replay has got."""

    def __init__(self, snapshot: Snapshot, expected: ExpectedRun, match: Match) -> None:
        self._snapshot = snapshot
        self._expected = expected
        self._match = match
        self._turn = 0
        self._certain = 0
        self._left = set(range(len(expected.calls)))
        """The calls not made yet."""
        self._by_key: dict[_Key, deque[int]] = {}
        """Those, and some of the others, in the order of the log."""
        self._by_end = deque(
            sorted((at for at, call in enumerate(expected.calls) if call.end is not None), key=self._end_of)
        )
        """Those that have a result, and some of the others, in the order of their results."""
        self._prompts: PromptCheck | None = None
        self._newest: dict[object, int] = {}
        """Of the calls each lane has made, the one that was recorded last."""
        self._made_seqs: set[int] = set()
        self._arguments = [encode_canonical(arguments_in(call.data.payload_json)) for call in expected.calls]
        self._without_inside: set[int] = set()
        """The calls that no call is left inside of."""
        self._inside: dict[int, list[int]] = {}
        for index, call in enumerate(expected.calls):
            ways = product(call.names, (None, *call.ids))
            for key in {self._key(name, self._arguments[index], call_id, call.parent) for name, call_id in ways}:
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
        """The next turn, which is taken. Raises ``ReplayDivergence``."""
        expected = self._coming_turn()
        if expected is None:
            raise self._divergence(
                "unexpected_turn", f"the model is asked once more, but the recording ends after turn {self._turn}"
            )
        if self._is_strict:
            overdue = takewhile(lambda index: self._end_of(index) < expected.place, self._still(self._by_end))
            first = min(overdue, default=None)
            if first is not None:
                call = self._expected.calls[first]
                raise self._divergence(
                    "missing_call",
                    f"the model is asked for turn {expected.turn.number}, but before that the recording has the "
                    f"call {call}, which was not made",
                    call.event,
                )
        self._turn = expected.turn.number
        self._certain += expected.certain
        return expected

    def check_messages(self, messages: Iterable[object], leading: Sequence[Message], provider: str) -> None:
        """See ``Replayer.expect_messages``; ``leading``: what stands before the transcript as it is sent."""
        expected = self._coming_turn()
        transcript = self._expected.transcript
        if self._prompts is None:
            self._prompts = PromptCheck([*leading, *transcript], provider)
        if expected is None:
            prefix, joined, number, event = len(transcript), None, self._turn + 1, None
        else:
            prefix, joined = expected.prefix, self._expected.joined(expected)
            number, event = expected.turn.number, expected.turn.events[0]
        found = self._prompts.compare(messages, len(leading) + prefix, joined)
        if found is not None:
            index, where = found
            lines = describe_all(where, "recorded", "now")
            text = f"before turn {number} of the model, messages[{index}] is not what was recorded"
            raise self._divergence("other_messages", "\n  ".join([text, *lines]), event)

    def _coming_turn(self) -> ExpectedTurn | None:
        """The next turn that is to be asked for: calls that were made without one were the runtime's own."""
        for expected in islice(self._expected.turns, self._turn, None):
            if expected.certain or any(event.seq not in self._made_seqs for event in expected.turn.events):
                return expected
        return None

    # Calls.

    def take_call(self, made: MadeCall, *, with_inside: bool) -> int:
        """The index of the recorded call that is made; ``with_inside``: those inside it are taken with it.

        Raises ``ReplayDivergence``.
        """
        if self._match == "call_id" and made.call_id is None:
            raise InvalidArgument('match="call_id" finds a call by its id alone: give tool_call_id')
        arguments = encode_canonical(made.arguments)
        candidates = self._by_key.get(self._key(made.tool, arguments, made.call_id, made.parent), deque())
        index = next(self._still(candidates), None)
        if self._is_strict:
            if index is None or not self._may_come(index, made.parent):  # then no later one may
                raise self._explained(made, arguments)
            self._check_order(index, made)
        elif index is None:
            wanted = f"the id {made.call_id!r}" if self._match == "call_id" else str(made)
            raise self._divergence(
                "unexpected_call", f"the recording has no call left for {wanted} (matched by {self._match})"
            )
        self._newest[made.lane] = max(self._newest.get(made.lane, index), index)
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

    def _still(self, pool: deque[int]) -> Iterator[int]:
        """The calls of ``pool`` that were not made yet; it forgets those at its head that were."""
        while pool and pool[0] not in self._left:
            pool.popleft()
        return (index for index in pool if index in self._left)

    def _end_of(self, index: int) -> int:
        """The place of the call's result; for calls that have one."""
        return cast("int", self._expected.calls[index].end)

    def _may_come(self, index: int, parent: int | None) -> bool:
        call = self._expected.calls[index]
        return call.parent == parent and call.turns <= self._certain

    def _check_order(self, index: int, made: MadeCall) -> None:
        """A lane makes its calls in the recorded order; those of several lanes may come in any."""
        call = self._expected.calls[index]
        newest = self._newest.get(made.lane)
        if newest is not None and call.end is not None and call.end < self._expected.calls[newest].begin:
            raise self._divergence(
                "other_order",
                f"{call} is called after {self._expected.calls[newest]}; the recording has it before",
                call.event,
            )

    def _explained(self, made: MadeCall, arguments: bytes) -> ReplayDivergence:
        """What is wrong with a call that nothing recorded fits."""
        calls = self._expected.calls
        named = {index for index, call in enumerate(calls) if made.tool in call.names}
        equal = [index for index in sorted(named) if self._arguments[index] == arguments]
        fitting = [index for index in equal if _has_id(calls[index], made)]
        misplaced = [calls[index] for index in fitting if index in self._left]
        if misplaced:
            text = f"{made} is called {self._misplaced(misplaced[0], made)}"
            return self._divergence("other_order", text, misplaced[0].event)
        coming = [index for index in sorted(self._left) if self._may_come(index, made.parent)]
        expected = [index for index in coming if _has_id(calls[index], made)]
        same_tool = [calls[index] for index in expected if index in named]
        if same_tool:
            return self._other_arguments(same_tool[0], made)
        if fitting:
            text = f"{made} is called more often than the recording has it"
            return self._divergence("unexpected_call", text, calls[fitting[-1]].event)
        if expected:
            call = calls[expected[0]]
            text = f"another tool is called:\n  recorded: {call}\n  now: {made}"
            return self._divergence("other_tool", text, call.event)
        other_id = [calls[index] for index in coming if index in equal]
        if other_id:
            recorded_id = other_id[0].data.tool_call_id
            text = f"{made} is called with the id {made.call_id!r}; the recording has it with {recorded_id!r}"
            return self._divergence("unexpected_call", text, other_id[0].event)
        turn = self._coming_turn()
        instead = "it ends here" if turn is None else f"it has turn {turn.turn.number} of the model next"
        return self._divergence("unexpected_call", f"{made} is called, which the recording does not have: {instead}")

    def _misplaced(self, call: ExpectedCall, made: MadeCall) -> str:
        if call.parent != made.parent:
            return f"{self._place(made.parent)}; the recording has it {self._place(call.parent)}"
        certain = [expected.turn.number for expected in self._expected.turns if expected.certain]
        return f"before turn {certain[call.turns - 1]} of the model, with which the recording has it"

    def _place(self, parent: int | None) -> str:
        return "at the top" if parent is None else f"inside {self._expected.calls[parent]}"

    def _other_arguments(self, call: ExpectedCall, made: MadeCall) -> ReplayDivergence:
        recorded = arguments_in(call.data.payload_json)
        lines = [f"{shown_name(made.tool)} is called with other arguments:", f"recorded: {shown(recorded)}"]
        lines.append(f"now: {shown(made.arguments)}")
        lines += describe_all(differences(recorded, made.arguments), "recorded", "now")
        return self._divergence("other_arguments", "\n  ".join(lines), call.event)

    # Ends.

    def check_result(self, index: int) -> ToolResult:
        """The result of a call. Raises ``ReplayDivergence`` where the recording has none."""
        call = self._expected.calls[index]
        if call.result is None:
            raise self._divergence(
                "no_result",
                f"the recording has no result of the call {call}: its process ended before there was one, or it "
                "was erased; a run that was resumed can be replayed to its end",
                call.event,
            )
        return call.result

    def check_inside(self, index: int) -> None:
        """Raise ``ReplayDivergence`` where calls recorded inside this one were not made."""
        if self._is_strict:
            self._check_made(self._inside.get(index, []), f" inside {self._expected.calls[index]}")

    def check_end(self) -> None:
        """Raise ``ReplayDivergence`` where something recorded was not used."""
        if not self._is_strict:
            return
        self._check_made(sorted(self._left), "")
        coming = self._coming_turn()
        if coming is not None:
            raise self._divergence(
                "missing_turn",
                f"the agent has ended, but the recording goes on with turn {coming.turn.number} of "
                f"{len(self._expected.turns)} of the model: {shown(coming.turn.text)}",
                coming.turn.events[0],
            )

    def _check_made(self, indexes: Iterable[int], where: str) -> None:
        unused = [self._expected.calls[index] for index in indexes if index in self._left]
        if not unused:
            return
        more = f"\n  and {len(unused) - _SHOWN_UNUSED} more" if len(unused) > _SHOWN_UNUSED else ""
        listed = "\n  ".join(str(call) for call in unused[:_SHOWN_UNUSED])
        raise self._divergence(
            "missing_call", f"recorded calls were not made{where}:\n  {listed}{more}", unused[0].event
        )

    def _divergence(self, reason: str, text: str, event: Event | None = None) -> ReplayDivergence:
        erased = [event.seq for event in self._snapshot.log if isinstance(event.data, Redacted)]
        if erased:
            listed = ", ".join(map(str, erased[:_SHOWN_UNUSED])) + (", …" if len(erased) > _SHOWN_UNUSED else "")
            text += f"\n  (erased from the recording, and so not to be replayed: events {listed})"
        return ReplayDivergence(
            f"{self._snapshot.agent}/{self._snapshot.run} is not replayed as it was recorded: {text}",
            reason=reason,
            seq=None if event is None else event.seq,
        )


def _has_id(call: ExpectedCall, made: MadeCall) -> bool:
    return made.call_id is None or made.call_id in call.ids
