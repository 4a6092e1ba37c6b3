"""Repairs a copy of a Messages API transcript, and records every change.

A repair adds missing results, moves misplaced results, and drops content that cannot be sent. It never edits reasoning:
a signed block stays unchanged or is dropped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any, cast

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.anthropic.rendering import RULES, text_block
from agent_memory_log.transcript.anthropic.rules import MOST_CACHE_MARKS
from agent_memory_log.transcript.anthropic.shapes import (
    IN_RESULT,
    SERVER_CALLS,
    SERVER_RESULTS,
    THINKING,
    shape_of,
    type_of,
)
from agent_memory_log.transcript.anthropic.thinking import call_without_thinking
from agent_memory_log.transcript.findings import Path, WireMessage
from agent_memory_log.transcript.json_types import is_list, is_map
from agent_memory_log.transcript.log_facts import Facts
from agent_memory_log.transcript.validity.repairing import INTERRUPTED, NO_MESSAGE, Draft, Entry
from agent_memory_log.transcript.validity.repairing_blocks import BlockRepairer, Part, Turn


def repair(draft: Draft, facts: Facts) -> None:
    """Repair a draft; see ``agent_memory_log.transcript.repair``."""
    _Repairer(draft, facts).run()
    position = call_without_thinking([entry.message for entry in draft.entries], facts.request)
    if position is not None:
        message = (
            "a thinking budget requires thinking before the last call, which has no thinking: send it without a budget"
        )
        draft.note("thinking_off", message, (draft.entries[position].index,))


class _ServerCalls:
    """The calls that the provider runs itself. A call is open until its result is added."""

    def __init__(self, client_ids: set[str]) -> None:
        self._used = set(client_ids)
        self._open: dict[str, tuple[Part, Turn]] = {}

    def wrong(self, part: Part, turn: Turn) -> str | None:
        """Add an assistant's block. Return a description of its problem, or None."""
        if _kind(part) in SERVER_RESULTS:
            call_id = part.block["tool_use_id"]
            call = self._open.pop(call_id, None)
            return None if call else f"no earlier call with the id {describe(call_id)} is open"
        if _kind(part) not in SERVER_CALLS:
            return None
        call_id = part.block["id"]
        if call_id in self._used:
            return f"the id {describe(call_id)} was used before"
        if not RULES.allows_id(call_id):
            return f"an id must match [a-zA-Z0-9_-]+, got {describe(call_id)}"
        self._used.add(call_id)
        self._open[call_id] = (part, turn)
        return None

    def left_open(self) -> list[tuple[Part, Turn]]:
        """Return the open calls with their turns, and remove them."""
        left = list(self._open.values())
        self._open = {}
        return left


class _Repairer(BlockRepairer):
    rules = RULES
    call_id_key = "id"
    result_id_key = "tool_use_id"
    results_first = True
    ids_repeat = True

    def repair_turns(self) -> None:
        """Make the turns valid. Each step keeps the guarantees of the earlier steps."""
        system, before = self._take_system_out()
        self.drop_blank_text(self.turns)
        for turn in self.turns:
            self.drop(turn, "dropped_thinking", _unsigned)
        client_ids = self.pair_calls()
        self._pair_server_calls(client_ids)
        self._drop_thinking_at_ends(self.turns)
        self.drop_empty()
        if self.facts.recorded is None:  # a run that ends in an answer of the model waits for the user
            self._trim_end()
        self._put_system_in(system, before)
        self._unmark()

    def text_in(self, block: WireMessage) -> str | None:
        """Return the text of a text block."""
        return block["text"] if block["type"] == "text" else None

    def call_in(self, block: WireMessage) -> WireMessage | None:
        """Return the call, which is its own body."""
        return block if block["type"] == "tool_use" else None

    def result_in(self, block: WireMessage) -> WireMessage | None:
        """Return the result, which is its own body."""
        return block if block["type"] == "tool_result" else None

    def interrupted(self, call_body: WireMessage) -> WireMessage:
        """Return the result for a call that has no recorded result."""
        return {"type": "tool_result", "tool_use_id": call_body["id"], "content": INTERRUPTED, "is_error": True}

    def signed_in(self, block: WireMessage) -> tuple[str, str] | None:
        """Return the signature or the data of a thinking block, and its text."""
        if block["type"] == "redacted_thinking":
            return block["data"], ""
        is_signed = block["type"] == "thinking" and block["signature"]
        return (block["signature"], block["thinking"]) if is_signed else None

    def as_seen(self, message: WireMessage) -> tuple[object, list[Any]]:
        """Return a message without cache marks and thinking. Content that is text becomes a text block."""
        content = message.get("content")
        blocks = content if is_list(content) else [text_block(content)] if isinstance(content, str) else []
        return {**message, "content": None}, [_unmarked(block) for block in blocks if type_of(block) not in THINKING]

    # Reading: blocks that the API does not accept are dropped.

    def read(self) -> Iterator[Turn]:
        """Yield the messages whose role and content the API accepts."""
        for entry in self.draft.entries:
            role, content = entry.message.get("role"), entry.message.get("content")
            if role not in ("user", "assistant", "system"):
                message = f"role must be user, assistant or system, got {describe(role)}"
                self.draft.note("dropped_message", message, (entry.index,))
            elif isinstance(content, str):
                seq = entry.parts[0] if entry.parts else entry.own
                part = Part(text_block(content), seq, (entry.index, "content"))
                yield Turn(entry, role, [part], part)
            elif is_list(content):
                yield self._sound_turn(entry, role, content)
            else:
                message = f"content must be text or a list, got {describe(content)}"
                self.draft.note("dropped_message", message, (entry.index,))

    def _sound_turn(self, entry: Entry, role: str, content: list[Any]) -> Turn:
        def wrong(part: Part) -> str | None:
            if role == "user" and type_of(part.block) == "tool_result":
                self._repair_result(part)
            return shape_of(part.block, role)

        turn = Turn(entry, role, self.parts_of(entry, content))
        self.drop(turn, "dropped_part", wrong)
        return turn

    def _repair_result(self, part: Part) -> None:
        block = part.block
        if "is_error" in block and not isinstance(block["is_error"], bool):
            self.note("dropped_part", f"is_error must be true or false, got {describe(block['is_error'])}", part)
            del block["is_error"]
        content = block.get("content")
        if is_list(content):
            sound: list[Any] = []
            for inner in content:
                wrong = shape_of(inner, IN_RESULT) or ("text must not be empty" if inner.get("text") == "" else None)
                if wrong is None:
                    sound.append(inner)
                else:
                    self.note("dropped_part", f"in a result: {wrong}", part)
            block["content"] = sound
        elif "content" in block and not isinstance(content, str):
            self.note("dropped_part", f"a result must be text or a list, got {describe(content)}", part)
            del block["content"]
        if block.get("is_error") and not block.get("content"):
            self.note("filled_result", "an error result must have a text", part)
            block["content"] = NO_MESSAGE

    def _drop_thinking_at_ends(self, turns: Iterable[Turn]) -> None:
        for turn in turns:
            while turn.parts and _kind(turn.parts[-1]) in THINKING:
                self.note("dropped_thinking", "thinking must not end a message", turn.parts.pop())

    # Tools that the provider runs itself.

    def _pair_server_calls(self, client_ids: set[str]) -> None:
        """Drop calls of the provider's tools that have no answer, and answers that have no call."""
        calls = _ServerCalls(client_ids)
        unanswered: set[Part] = set()
        holders: set[Turn] = set()
        for turn in self.turns:
            if turn.role == "assistant":

                def wrong(part: Part, turn: Turn = turn) -> str | None:
                    return calls.wrong(part, turn)

                self.drop(turn, "dropped_part", wrong)
            elif any(_kind(part) != "tool_result" for part in turn.parts):
                for part, holder in calls.left_open():
                    self.note("dropped_part", "the call has no answer before the user's next message", part)
                    unanswered.add(part)
                    holders.add(holder)
        for turn in holders:
            turn.parts = [part for part in turn.parts if part not in unanswered]

    # Empty content, and the end of the transcript.

    def _trim_end(self) -> None:
        while self.turns and self.turns[-1].role == "assistant":
            turn = self.turns[-1]
            last = turn.parts[-1]
            if _kind(last) == "text":
                text = last.block["text"]
                trimmed = text.rstrip()
                if trimmed == text:
                    return
                self.note("trimmed_text", "the assistant's last message must not end in white space", last)
                if trimmed:
                    last.block["text"] = trimmed
                    return
                turn.parts.pop()
            elif _kind(last) not in THINKING:
                return
            self._drop_thinking_at_ends([turn])
            if not turn.parts:
                self.turns.pop()
                self.drop_turn(turn)

    # System messages.

    def _take_system_out(self) -> tuple[list[tuple[Turn, Turn | None]], list[Turn]]:
        """Return the system messages, each with the message before it, and the rest of the conversation."""
        system: list[tuple[Turn, Turn | None]] = []
        turns: list[Turn] = []
        for turn in self.turns:
            if turn.role == "system":
                system.append((turn, turns[-1] if turns else None))
            else:
                turns.append(turn)
        self.turns = turns
        return system, turns

    def _put_system_in(self, system: list[tuple[Turn, Turn | None]], before: list[Turn]) -> None:
        self.drop_blank_text([turn for turn, _ in system])
        positions = {id(turn): position for position, turn in enumerate(self.turns)}
        slots = [position for position in range(len(self.turns)) if self._takes_system(position)]
        # The new position of each message in ``before``. A dropped message has the position of the one before it.
        now: dict[int, int] = {}
        latest = -1
        for turn in before:
            now[id(turn)] = latest = positions.get(id(turn), latest)
        settled: dict[int, list[Turn]] = {}
        for turn, anchor in system:
            path: Path = (turn.entry.index,)
            if not turn.parts:
                self.draft.note("dropped_message", "nothing is left of it", path)
                continue
            target = -1 if anchor is None else now[id(anchor)]
            if not slots:
                self.draft.note("dropped_message", "there is no message of the user's it could follow", path)
                continue
            slot = slots[min(bisect_left(slots, target), len(slots) - 1)]
            if anchor is None or positions.get(id(anchor)) != slot:
                message = "it must follow a message of the user's and precede the assistant's"
                self.draft.note("moved_system", message, path)
            settled.setdefault(slot, []).append(turn)
        turns: list[Turn] = []
        for position, turn in enumerate(self.turns):
            turns += [turn, *settled.get(position, ())]
        self.turns = turns

    def _takes_system(self, position: int) -> bool:
        turn = self.turns[position]
        if turn.role != "user" and not (turn.parts and _kind(turn.parts[-1]) in SERVER_CALLS | SERVER_RESULTS):
            return False
        return position + 1 == len(self.turns) or self.turns[position + 1].role == "assistant"

    # Cache marks.

    def _unmark(self) -> None:
        marked: list[tuple[Part, WireMessage]] = []
        for turn in self.turns:
            for part in turn.parts:
                inner = part.block.get("content") if _kind(part) == "tool_result" else None
                for block in (*(inner if is_list(inner) else ()), part.block):
                    if block.get("cache_control") is None:
                        continue
                    if block["type"] in THINKING:
                        self.note("dropped_mark", "thinking cannot be marked for the cache", part)
                        del block["cache_control"]
                    else:
                        marked.append((part, block))
        for part, block in marked[:-MOST_CACHE_MARKS]:
            self.note("dropped_mark", f"at most {MOST_CACHE_MARKS} blocks can be marked for the cache", part)
            del block["cache_control"]


def _kind(part: Part) -> str:
    return cast("str", part.block["type"])


def _unsigned(part: Part) -> str | None:
    return "it has no signature" if _kind(part) == "thinking" and not part.block["signature"] else None


def _unmarked(block: object) -> object:
    if not is_map(block):
        return block
    plain = {key: value for key, value in block.items() if key != "cache_control"}
    if is_list(plain.get("content")):
        plain["content"] = [_unmarked(inner) for inner in plain["content"]]
    return plain
