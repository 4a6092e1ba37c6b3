"""Defines the base class of repairs for transcripts of blocks.

A repair adds missing results, moves misplaced results, and drops content that cannot be sent. It never edits reasoning:
a signed block stays unchanged or is dropped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, ClassVar, cast

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.differences import same_json
from agent_memory_log.transcript.findings import Path, WireMessage
from agent_memory_log.transcript.log_facts import Facts
from agent_memory_log.transcript.names import UnusedIds, WireRules
from agent_memory_log.transcript.validity.repairing import FROM_REPAIR, Draft, Entry
from agent_memory_log.transcript.validity.signed_reasoning import SignedBlock, check_signed, in_content


class Part:
    """A block, the event it comes from, and its path in the original transcript."""

    __slots__ = ("block", "path", "seq")

    def __init__(self, block: object, seq: int, path: Path) -> None:
        self.block: Any = block  # read() drops blocks with a wrong shape
        self.seq = seq
        self.path = path


class Turn:
    """A message and its blocks. ``text`` is the block that represents the content if the content is a text."""

    __slots__ = ("entry", "parts", "role", "text")

    def __init__(self, entry: Entry, role: str, parts: list[Part], text: Part | None = None) -> None:
        self.entry = entry
        self.role = role
        self.parts = parts
        self.text = text

    def write(self, part_key: str) -> Entry:
        """Write the current blocks into the entry, under ``part_key``, and return the entry."""
        entry = self.entry
        if len(self.parts) == 1 and self.parts[0] is self.text:
            entry.message[part_key] = self.parts[0].block["text"]
        else:
            entry.message[part_key] = [part.block for part in self.parts]
        entry.parts = [part.seq for part in self.parts]
        return entry


class _Call:
    """A call by the model, the turn that holds it, and the result that answers it."""

    __slots__ = ("body", "in_place", "part", "result", "turn")

    def __init__(self, body: WireMessage, part: Part, turn: Turn) -> None:
        self.body = body
        self.part = part
        self.turn = turn
        self.result: Part | None = None
        self.in_place = False


class _Pairs:
    """The calls of a transcript by id, and for each turn the next turn, which answers its calls."""

    def __init__(self, followers: dict[int, Turn], ids: UnusedIds) -> None:
        self.followers = followers
        self.ids = ids
        self.open: dict[str, list[_Call]] = {}
        self.latest: dict[str, _Call] = {}
        self.calls_of: dict[int, list[_Call]] = {}


class BlockRepairer(ABC):
    """Repairs a draft in steps. Each step keeps the guarantees of the earlier steps.

    Attributes:
        rules: The provider's limits for names and ids.
        part_key: The key in a message of the list of its blocks.
        call_id_key: The key of the id in the body of a call.
        result_id_key: The key of the id in the body of a result.
        results_first: Whether results must be before all other blocks in their message.
        ids_repeat: Whether calls before different user messages may have the same id.
    """

    rules: ClassVar[WireRules]
    part_key: ClassVar[str] = "content"
    call_id_key: ClassVar[str]
    result_id_key: ClassVar[str]
    results_first: ClassVar[bool]
    ids_repeat: ClassVar[bool] = False

    def __init__(self, draft: Draft, facts: Facts) -> None:
        self.draft = draft
        self.facts = facts
        self.turns: list[Turn] = []

    def run(self) -> None:
        """Repair the draft."""
        self.turns = list(self.read())
        self._drop_wrong_reasoning()
        while True:
            self.repair_turns()
            self.draft.entries = [turn.write(self.part_key) for turn in self.turns]
            if not self._drop_stale_reasoning():
                return

    @abstractmethod
    def read(self) -> Iterator[Turn]:
        """Yield the turns of the draft. Blocks that the provider would refuse are dropped."""

    @abstractmethod
    def repair_turns(self) -> None:
        """Make ``turns`` valid. This may change content that signatures cover."""

    @abstractmethod
    def text_in(self, block: WireMessage) -> str | None:
        """Return the text of a text block; None for any other block."""

    @abstractmethod
    def call_in(self, block: WireMessage) -> WireMessage | None:
        """Return the body of a call; None for any other block."""

    def waits_for_result(self, call_body: WireMessage) -> bool:
        """Return whether the user must answer a call; False if the provider runs the tool."""
        del call_body
        return True

    @abstractmethod
    def result_in(self, block: WireMessage) -> WireMessage | None:
        """Return the body of a result; None for any other block."""

    @abstractmethod
    def interrupted(self, call_body: WireMessage) -> WireMessage:
        """Return the result for a call that has no recorded result."""

    @abstractmethod
    def signed_in(self, block: WireMessage) -> tuple[str, str] | None:
        """Return the signature or encrypted content of a reasoning block, and its text; None for any other block."""

    @abstractmethod
    def as_seen(self, message: WireMessage) -> tuple[object, list[Any]]:
        """Return the content that signatures cover: the message's fields without the blocks, and the covered blocks."""

    def parts_of(self, entry: Entry, content: Sequence[object]) -> list[Part]:
        """Return the blocks of a message's content."""
        seqs = chain(entry.parts, repeat(entry.own))
        return [
            Part(block, seq, (entry.index, self.part_key, position))
            for position, (block, seq) in enumerate(zip(content, seqs, strict=False))
        ]

    def note(self, change: str, message: str, part: Part) -> None:
        """Record a change to a block."""
        self.draft.note(change, message, part.path, part.seq)

    def drop(self, turn: Turn, change: str, wrong: Callable[[Part], str | None]) -> bool:
        """Drop and record each block for which ``wrong`` returns a message. Return whether any block was dropped."""
        remaining: list[Part] = []
        for part in turn.parts:
            message = wrong(part)
            if message is None:
                remaining.append(part)
            else:
                self.note(change, message, part)
        dropped = len(remaining) < len(turn.parts)
        turn.parts = remaining
        return dropped

    def drop_turn(self, turn: Turn, message: str = "all its content was dropped") -> None:
        """Record that a message is dropped."""
        self.draft.note("dropped_message", message, (turn.entry.index,), turn.entry.own)

    def drop_empty(self) -> None:
        """Drop the messages without any blocks left."""
        for turn in self.turns:
            if not turn.parts:
                self.drop_turn(turn)
        self.turns = [turn for turn in self.turns if turn.parts]

    def drop_blank_text(self, turns: Sequence[Turn]) -> None:
        """Drop empty text, and white space in a message that has no other text."""
        for turn in turns:
            texts = [text for part in turn.parts if (text := self.text_in(part.block)) is not None]
            only_blank = all(not text or text.isspace() for text in texts)
            if not texts or ("" not in texts and not only_blank):
                continue

            def wrong(part: Part, *, only_blank: bool = only_blank) -> str | None:
                text = self.text_in(part.block)
                is_blank = text is not None and (only_blank or not text)
                return "text must not be empty" if is_blank else None

            self.drop(turn, "dropped_part", wrong)

    # Reasoning.

    def _drop_wrong_reasoning(self) -> None:
        """Drop reasoning that breaks a rule at its original position, before anything moves."""
        signed: list[SignedBlock] = []
        for part in (part for turn in self.turns for part in turn.parts):
            signed_block = self.signed_in(part.block)
            if signed_block is not None:
                signed.append((cast("int", part.path[0]), cast("int", part.path[-1]), *signed_block))
        wrong: dict[Path, str] = {}

        def collect(rule: str, message: str, path: Path) -> None:
            del rule
            wrong[path] = message

        check_signed(signed, self.facts, len(self.draft.entries), in_content, collect)
        for turn in self.turns:
            self.drop(turn, "dropped_thinking", lambda part: wrong.get(part.path))

    def _drop_stale_reasoning(self) -> bool:
        """Drop reasoning after the first change to content that the model received. Return whether any was dropped."""
        edited = self.draft.edited_from(self.as_seen)
        if edited is None:
            return False
        position, number = edited
        unchanged: set[int] = set()
        before = 0
        for part in self.turns[position].parts:
            if before <= number:
                unchanged.add(id(part))
            before += len(self.as_seen({self.part_key: [part.block]})[1])

        def wrong(part: Part) -> str | None:
            is_stale = self.signed_in(part.block) is not None and id(part) not in unchanged
            return "the content before it was changed" if is_stale else None

        dropped = [self.drop(turn, "dropped_thinking", wrong) for turn in self.turns[position:]]
        return any(dropped)

    # Calls and results.

    def pair_calls(self) -> set[str]:
        """Move every result into the message after its call, and answer open calls. Return the ids of all calls.

        A result answers the latest open call with its id.
        """
        pairs = _Pairs(self._followers(), UnusedIds(self.rules))
        used: set[str] = set()
        for turn in self.turns:
            if self.ids_repeat and turn.role == "user":
                used |= pairs.ids.used
                pairs.ids = UnusedIds(self.rules)
            remaining: list[Part] = []
            has_other = False
            for part in turn.parts:
                call_body = self.call_in(part.block)
                result_body = self.result_in(part.block) if turn.role == "user" else None
                if call_body is not None:
                    stays = self._take_call(_Call(call_body, part, turn), pairs)
                elif result_body is not None:
                    stays = self._take_result(result_body, part, turn, pairs, is_late=has_other and self.results_first)
                else:
                    stays = has_other = True
                if stays:
                    remaining.append(part)
            turn.parts = remaining
        turns: list[Turn] = []
        for turn in self.turns:
            turns.append(turn)
            calls = pairs.calls_of.get(id(turn))
            if calls:
                follower = pairs.followers.get(id(turn))
                if follower is None:
                    follower = Turn(Entry(FROM_REPAIR, {"role": "user"}), "user", [])
                    turns.append(follower)
                self._place_results(calls, follower)
        self.turns = turns
        return used | pairs.ids.used

    def _followers(self) -> dict[int, Turn]:
        """Return, for each turn of the assistant, the user's next turn, which answers its calls."""
        followers: dict[int, Turn] = {}
        following: Turn | None = None
        for turn in reversed(self.turns):
            if turn.role == "user":
                following = turn
            elif following is not None:
                followers[id(turn)] = following
        return followers

    def _take_call(self, call: _Call, pairs: _Pairs) -> bool:
        """Add a call. Return False if it equals an earlier call and is dropped."""
        call_id: str = call.body[self.call_id_key]
        earlier = pairs.latest.get(call_id)
        if earlier is not None and (earlier.result is None or earlier.turn is call.turn):
            no_id = {self.call_id_key: ""}
            if same_json({**earlier.body, **no_id}, {**call.body, **no_id}):
                self.note("dropped_duplicate", f"an earlier call is the same: {describe(call_id)}", call.part)
                return False
        pairs.latest[call_id] = call
        self._rename(call, pairs.ids)
        if not self.waits_for_result(call.body):
            return True
        pairs.open.setdefault(call_id, []).append(call)
        pairs.calls_of.setdefault(id(call.turn), []).append(call)
        return True

    def _take_result(self, body: WireMessage, part: Part, turn: Turn, pairs: _Pairs, *, is_late: bool) -> bool:
        """Add a result. Return False if it answers no call, or must move."""
        call_id: str = body[self.result_id_key]
        waiting = pairs.open.get(call_id)
        if not waiting:
            if call_id in pairs.latest:
                self.note("dropped_duplicate", f"the call {describe(call_id)} already has a result", part)
            else:
                self.note("dropped_result", f"no call before it has the id {describe(call_id)}", part)
            return False
        call = waiting.pop()
        call.result = part
        call.in_place = pairs.followers.get(id(call.turn)) is turn and not is_late
        body[self.result_id_key] = call.body[self.call_id_key]
        return call.in_place

    def _rename(self, call: _Call, ids: UnusedIds) -> None:
        """Give a call a unique id, and a name that the provider accepts."""
        body, call_id = call.body, call.body[self.call_id_key]
        unused = ids.unused(self.rules.wire_id(call_id) or "call")
        if unused != call_id:
            self.note("renamed_call", f"the call id {describe(call_id)} became {unused!r}", call.part)
            body[self.call_id_key] = unused
        self.draft.shorten_name(body, self.rules, call.part.path, call.part.seq)

    def _place_results(self, calls: Sequence[_Call], follower: Turn) -> None:
        """Insert the misplaced and missing results of ``calls``, in the order of the calls."""
        positions = {id(part): position for position, part in enumerate(follower.parts, 1)}
        ends = [positions[id(call.result)] for call in calls if call.in_place]
        end = max(ends, default=0) if self.results_first else 0
        moved: dict[int, list[Part]] = {}
        for call in calls:
            if call.in_place:
                end = max(end, positions[id(call.result)])
                continue
            call_id = call.body[self.call_id_key]
            if call.result is None:
                self.note("answered_call", f"no result of the call {call_id!r} was recorded", call.part)
                call.result = Part(self.interrupted(call.body), 0, ())
            else:
                self.note("moved_result", f"it must be in the message after the call {call_id!r}", call.result)
            moved.setdefault(end, []).append(call.result)
        parts = follower.parts
        follower.parts = [
            part
            for position in range(len(parts) + 1)
            for part in (*moved.get(position, ()), *parts[position : position + 1])
        ]
        if not follower.entry.own:
            follower.entry.own = next((part.seq for part in follower.parts if part.seq), 0)
