"""How far a replay has got in its plan: which step may come next, and what is wrong where another one comes.

No locks and no contexts here: the replayer asks one question at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import product, takewhile
from typing import Literal, NamedTuple, cast

from agent_memory_log.errors import InvalidArgument, ReplayDivergence
from agent_memory_log.events.jsonvalue import JsonValue, encode_canonical
from agent_memory_log.events.payloads import Redacted, ToolCall
from agent_memory_log.replay.differences import differences, json_in, shown, shown_name, told_all
from agent_memory_log.replay.plan import Plan, PlannedCall, PlannedTurn
from agent_memory_log.replay.prompts import PromptCheck
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript.model import Message
from agent_memory_log.transcript.names import encode_name

Match = Literal["strict", "call_id", "arguments", "order"]
"""How a call that is made finds the one that was recorded; see ``Replayer``."""

MATCHES: tuple[Match, ...] = ("strict", "call_id", "arguments", "order")

_SHOWN_UNUSED = 5

_Key = tuple[str, bytes, str | None, int | None]
"""By what equal calls are found: tool and arguments, and in strict replays also the id (None: any) and the parent."""


class Asked(NamedTuple):
    """A call as the agent makes it: by which lane (the task or thread), and inside which call (None: none)."""

    tool: str
    arguments: JsonValue
    call_id: str | None
    parent: int | None
    lane: object


class Progress:
    """The state of one replay."""

    def __init__(self, snapshot: Snapshot, plan: Plan, match: Match) -> None:
        self._snapshot = snapshot
        self._plan = plan
        self._strict = match == "strict"
        self._match = match
        self._turn = 0
        self._certain = 0
        self._left = set(range(len(plan.calls)))
        """The calls not made yet."""
        self._in_order = deque(range(len(plan.calls)))
        """Those, and some of the others, in the order of the log."""
        self._by_end = deque(
            sorted((at for at, call in enumerate(plan.calls) if call.end is not None), key=self._end_of)
        )
        """Those that have a result, and some of the others, in the order of their results."""
        self._prompts: PromptCheck | None = None
        self._newest: dict[object, int] = {}
        """Of the calls each lane has made, the one that was recorded last."""
        self._made_seqs: set[int] = set()
        self._arguments = [encode_canonical(arguments_of(call.data)) for call in plan.calls]
        self._equal: dict[_Key, deque[int]] = {}
        self._without_inside: set[int] = set()
        """The calls that no call is left inside of."""
        self._with_id: dict[str, deque[int]] = {}
        self._inside: dict[int, list[int]] = {}
        for index, call in enumerate(plan.calls):
            ids, parent = ((None, *call.ids), call.parent) if self._strict else ((None,), None)
            for name, call_id in product(_names_of(call), ids):
                self._equal.setdefault((name, self._arguments[index], call_id, parent), deque()).append(index)
            for call_id in call.ids:
                self._with_id.setdefault(call_id, deque()).append(index)
            if call.parent is not None:
                self._inside.setdefault(call.parent, []).append(index)

    # Model turns.

    def next_turn(self) -> PlannedTurn:
        """The next turn, which is taken. Raises ``ReplayDivergence``."""
        planned = self._coming_turn()
        if planned is None:
            raise self._divergence(
                "unexpected_turn", f"the model is asked once more, but the recording ends after turn {self._turn}", None
            )
        if self._strict:
            overdue = takewhile(lambda index: self._end_of(index) < planned.place, self._still(self._by_end))
            first = min(overdue, default=None)
            if first is not None:
                call = self._plan.calls[first]
                raise self._divergence(
                    "missing_call",
                    f"the model is asked for turn {planned.turn.number}, but before that the recording has the "
                    f"call {_told(call)}, which was not made",
                    call.event.seq,
                )
        self._turn = planned.turn.number
        self._certain += planned.certain
        return planned

    def check_messages(self, given: Iterable[object], leading: Sequence[Message], provider: str) -> None:
        """See ``Replayer.expect_messages``; ``leading``: what stands before the transcript as it is sent."""
        planned = self._coming_turn()
        if self._prompts is None:
            self._prompts = PromptCheck([*leading, *self._plan.transcript], provider)
        prefix = len(self._plan.transcript) if planned is None else planned.prefix
        found = self._prompts.compare(
            given, len(leading) + prefix, None if planned is None else self._plan.joined(planned)
        )
        if found is None:
            return
        index, where = found
        lines = told_all(where, "recorded", "now")
        number = self._turn + 1 if planned is None else planned.turn.number
        raise self._divergence(
            "other_messages",
            "\n  ".join([f"before turn {number} of the model, messages[{index}] is not what was recorded", *lines]),
            None if planned is None else planned.turn.events[0].seq,
        )

    def _coming_turn(self) -> PlannedTurn | None:
        """The next turn that is to be asked for: calls that were made without one were the runtime's own."""
        for planned in (self._plan.turns[number] for number in range(self._turn, len(self._plan.turns))):
            if planned.certain or any(event.seq not in self._made_seqs for event in planned.turn.events):
                return planned
        return None

    # Calls.

    def take_call(self, asked: Asked, *, with_inside: bool) -> int:
        """The index of the recorded call that is made; ``with_inside``: those inside it are taken with it.

        Raises ``ReplayDivergence``.
        """
        wanted = encode_canonical(asked.arguments)
        index = self._find_strictly(asked, wanted) if self._strict else self._find_loosely(asked, wanted)
        newest = self._newest.setdefault(asked.lane, index)
        self._newest[asked.lane] = max(newest, index)
        self._made_seqs.add(self._plan.calls[index].event.seq)
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

    def _find_loosely(self, asked: Asked, wanted: bytes) -> int:
        if self._match == "call_id":
            if asked.call_id is None:
                raise InvalidArgument('match="call_id" finds a call by its id alone: give tool_call_id')
            pool = self._with_id.get(asked.call_id)
        elif self._match == "arguments":
            pool = self._equal.get((asked.tool, wanted, None, None))
        else:
            pool = self._in_order
        for index in self._still(pool or deque()):
            return index
        told = f"{shown_name(asked.tool)} {shown(asked.arguments)}"
        told = f"the id {asked.call_id!r}" if self._match == "call_id" else told
        raise self._divergence(
            "unexpected_call", f"the recording has no call left for {told} (matched by {self._match})", None
        )

    def _find_strictly(self, asked: Asked, wanted: bytes) -> int:
        equal = self._equal.get((asked.tool, wanted, asked.call_id, asked.parent), deque())
        index = next(self._still(equal), None)
        if index is None or not self._may_come(index, asked.parent):  # then no later one may
            raise self._explained(asked, wanted)
        self._check_order(index, asked)
        return index

    def _end_of(self, index: int) -> int:
        """The place of the call's result; for calls that have one."""
        return cast("int", self._plan.calls[index].end)

    def _may_come(self, index: int, parent: int | None) -> bool:
        call = self._plan.calls[index]
        return call.parent == parent and call.turns <= self._certain

    def _check_order(self, index: int, asked: Asked) -> None:
        """A lane makes its calls in the recorded order; those of several lanes may come in any."""
        call = self._plan.calls[index]
        newest = self._newest.get(asked.lane)
        if newest is not None and call.end is not None and call.end < self._plan.calls[newest].begin:
            raise self._divergence(
                "other_order",
                f"{_told(call)} is called after {_told(self._plan.calls[newest])}; the recording has it before",
                call.event.seq,
            )

    def _explained(self, asked: Asked, wanted: bytes) -> ReplayDivergence:
        """What is wrong with a call that nothing recorded fits."""
        calls = self._plan.calls
        told = f"{shown_name(asked.tool)} {shown(asked.arguments)}"
        equal = [
            index
            for index, call in enumerate(calls)
            if asked.tool in _names_of(call) and self._arguments[index] == wanted
        ]
        fitting = [index for index in equal if _has_id(calls[index], asked)]
        for index in fitting:
            if index in self._left:
                return self._divergence(
                    "other_order", f"{told} is called {self._misplaced(calls[index], asked)}", calls[index].event.seq
                )
        coming = [index for index in sorted(self._left) if self._may_come(index, asked.parent)]
        expected = [index for index in coming if _has_id(calls[index], asked)]
        for index in expected:
            if asked.tool in _names_of(calls[index]):
                return self._other_arguments(calls[index], asked)
        if fitting:
            return self._divergence(
                "unexpected_call",
                f"{told} is called more often than the recording has it",
                calls[fitting[-1]].event.seq,
            )
        if expected:
            call = calls[expected[0]]
            return self._divergence(
                "other_tool", f"another tool is called:\n  recorded: {_told(call)}\n  now: {told}", call.event.seq
            )
        for index in coming:
            if index in equal:
                call = calls[index]
                return self._divergence(
                    "unexpected_call",
                    f"{told} is called with the id {asked.call_id!r}; the recording has it with "
                    f"{call.data.tool_call_id!r}",
                    call.event.seq,
                )
        turn = self._coming_turn()
        instead = "it ends here" if turn is None else f"it has turn {turn.turn.number} of the model next"
        return self._divergence(
            "unexpected_call", f"{told} is called, which the recording does not have: {instead}", None
        )

    def _misplaced(self, call: PlannedCall, asked: Asked) -> str:
        if call.parent != asked.parent:
            return f"{self._place(asked.parent)}; the recording has it {self._place(call.parent)}"
        return f"before turn {self._number_of(call.turns)} of the model, with which the recording has it"

    def _other_arguments(self, call: PlannedCall, asked: Asked) -> ReplayDivergence:
        recorded = arguments_of(call.data)
        lines = [f"{shown_name(asked.tool)} is called with other arguments:", f"recorded: {shown(recorded)}"]
        lines.append(f"now: {shown(asked.arguments)}")
        lines += told_all(differences(recorded, asked.arguments), "recorded", "now")
        return self._divergence("other_arguments", "\n  ".join(lines), call.event.seq)

    def _number_of(self, certain: int) -> int:
        """The number of the ``certain``-th turn among those that are."""
        return [planned.turn.number for planned in self._plan.turns if planned.certain][certain - 1]

    def _place(self, parent: int | None) -> str:
        return "at the top" if parent is None else f"inside {_told(self._plan.calls[parent])}"

    # Ends.

    def check_result(self, index: int) -> None:
        """Raise ``ReplayDivergence`` for a call of which the recording has no result."""
        call = self._plan.calls[index]
        if call.result is None:
            raise self._divergence(
                "no_result",
                f"the recording has no result of the call {_told(call)}: its process ended before there was one, or it "
                "was erased; a run that was resumed can be replayed to its end",
                call.event.seq,
            )

    def check_inside(self, index: int) -> None:
        """Raise ``ReplayDivergence`` where calls recorded inside this one were not made."""
        if self._strict:
            self._check_made(self._inside.get(index, []), f" inside {_told(self._plan.calls[index])}")

    def check_end(self) -> None:
        """Raise ``ReplayDivergence`` where something recorded was not used."""
        if not self._strict:
            return
        self._check_made(sorted(self._left), "")
        coming = self._coming_turn()
        if coming is not None:
            total = len(self._plan.turns)
            raise self._divergence(
                "missing_turn",
                f"the agent has ended, but the recording goes on with turn {coming.turn.number} of {total} of the "
                f"model: {shown(coming.turn.text)}",
                coming.turn.events[0].seq,
            )

    def _check_made(self, indexes: Iterable[int], where: str) -> None:
        unused = [self._plan.calls[index] for index in indexes if index in self._left]
        if not unused:
            return
        more = f"\n  and {len(unused) - _SHOWN_UNUSED} more" if len(unused) > _SHOWN_UNUSED else ""
        listed = "\n  ".join(_told(call) for call in unused[:_SHOWN_UNUSED])
        raise self._divergence(
            "missing_call", f"recorded calls were not made{where}:\n  {listed}{more}", unused[0].event.seq
        )

    def _divergence(self, reason: str, text: str, seq: int | None) -> ReplayDivergence:
        erased = [event.seq for event in self._snapshot.log if isinstance(event.data, Redacted)]
        if erased:
            listed = ", ".join(map(str, erased[:_SHOWN_UNUSED])) + (", …" if len(erased) > _SHOWN_UNUSED else "")
            text += f"\n  (erased from the recording, and so not to be replayed: events {listed})"
        return ReplayDivergence(
            f"{self._snapshot.agent}/{self._snapshot.run} is not replayed as it was recorded: {text}",
            reason=reason,
            seq=seq,
        )


def arguments_of(data: ToolCall) -> JsonValue:
    """A call's arguments as a JSON value: none are an empty map, text that is no JSON is that text."""
    return no_null(json_in(data.payload_json), data.payload_json)


def no_null(value: JsonValue, text: str) -> JsonValue:
    """``value``, which was read from ``text``; an empty map where that is blank."""
    return {} if value is None and not text.strip() else value


def _has_id(call: PlannedCall, asked: Asked) -> bool:
    return asked.call_id is None or asked.call_id in call.ids


def _told(call: PlannedCall) -> str:
    seq = f" (event {call.event.seq})" if call.event.seq else ""
    return f"{shown_name(call.data.tool_name)} {shown(arguments_of(call.data))}{seq}"


def _names_of(call: PlannedCall) -> set[str]:
    return {call.data.tool_name, encode_name(call.data.tool_name)}
