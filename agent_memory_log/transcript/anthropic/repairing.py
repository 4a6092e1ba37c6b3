"""Making a Messages API transcript valid: on a copy, with every change noted, and without inventing anything.

What is missing is answered for (an open call was interrupted), what is out of place moves, what cannot be sent goes.
Reasoning is never altered: a signed block stays as it was or goes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.transcript.anthropic.rendering import RULES, text_block
from agent_memory_log.transcript.anthropic.rules import MOST_CACHE_MARKS, role_of
from agent_memory_log.transcript.anthropic.shapes import (
    IN_RESULT,
    SERVER_CALLS,
    SERVER_RESULTS,
    THINKING,
    shape_of,
)
from agent_memory_log.transcript.anthropic.signed import calls_without_thinking, sendable
from agent_memory_log.transcript.kinds import is_list, is_map
from agent_memory_log.transcript.model import Facts, Message, Path
from agent_memory_log.transcript.names import UnusedIds
from agent_memory_log.transcript.repairing import FROM_REPAIR, INTERRUPTED, NO_MESSAGE, Draft, Entry
from agent_memory_log.transcript.residual import same_json


def repair(draft: Draft, facts: Facts) -> dict[str, JsonValue]:
    """See ``agent_memory_log.transcript.repair``; the other arguments to send it with."""
    for where in facts.recorded.conflicts if facts.recorded is not None else ():
        draft.note("kept_value", "the result has both an error and a value: the value is sent, as an error", where)
    _Repairer(draft, facts).run()
    return _request_for(draft, facts)


class _Part:
    """A block, the event it comes from, and where it stood in the transcript that was given."""

    __slots__ = ("block", "seq", "where")

    def __init__(self, block: object, seq: int, where: Path) -> None:
        self.block: Any = block  # of a sound shape once it was read
        self.seq = seq
        self.where = where

    @property
    def kind(self) -> str:
        return cast("str", self.block["type"])

    def is_text(self) -> bool:
        return self.kind == "text"


class _Turn:
    """A message and its blocks; ``text`` is the block its content stands for where that is text itself."""

    __slots__ = ("entry", "parts", "role", "text")

    def __init__(self, entry: Entry, role: str, parts: list[_Part], text: _Part | None = None) -> None:
        self.entry = entry
        self.role = role
        self.parts = parts
        self.text = text

    def write(self) -> Entry:
        entry = self.entry
        if len(self.parts) == 1 and self.parts[0] is self.text:
            entry.message["content"] = self.parts[0].block["text"]
        else:
            entry.message["content"] = [part.block for part in self.parts]
        entry.parts = [part.seq for part in self.parts]
        return entry

    def ends_in_server_tool(self) -> bool:
        return bool(self.parts) and (self.parts[-1].kind in SERVER_CALLS | SERVER_RESULTS)


class _Call:
    """A call of the model's, the result that answers it, and the turn that held it."""

    __slots__ = ("home", "is_late", "part", "result", "turn")

    def __init__(self, part: _Part, turn: _Turn) -> None:
        self.part = part
        self.turn = turn
        self.result: _Part | None = None
        self.home: _Turn | None = None
        self.is_late = False


class _Calls:
    """The calls of a transcript, paired with results in order: a result answers the latest open call with its id."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._open: dict[str, list[_Call]] = {}
        self._latest: dict[str, _Call] = {}
        self._ids = UnusedIds(RULES)
        self.of_turn: dict[int, list[_Call]] = {}

    @property
    def used(self) -> set[str]:
        """The ids that the calls have now."""
        return self._ids.used

    def call(self, part: _Part, turn: _Turn) -> bool:
        """Take in a call; False if it is the same as one before it, and goes."""
        block = part.block
        call_id = block["id"]
        earlier = self._latest.get(call_id)
        if (
            earlier is not None
            and (earlier.result is None or earlier.turn is turn)
            and same_json({**earlier.part.block, "id": ""}, {**block, "id": ""})
        ):
            self._draft.note("dropped_duplicate", f"the same call stands before it: {describe(call_id)}", part.where)
            return False
        call = _Call(part, turn)
        self._latest[call_id] = call
        self._open.setdefault(call_id, []).append(call)
        self.of_turn.setdefault(id(turn), []).append(call)
        unused = self._ids.unused(RULES.wire_id(call_id) or "call")
        if unused != call_id:
            self._draft.note("renamed_call", f"its id was {describe(call_id)}, now {unused!r}", part.where)
            block["id"] = unused
        if not RULES.allows_name(block["name"]):
            name = RULES.short_name(block["name"])
            self._draft.note("renamed_tool", f"its name was {describe(block['name'])}, now {name!r}", part.where)
            block["name"] = name
        return True

    def result(self, part: _Part, turn: _Turn, *, is_late: bool) -> None:
        """Take in a result; one that answers nothing goes."""
        call_id = part.block["tool_use_id"]
        waiting = self._open.get(call_id)
        if not waiting:
            if call_id in self._latest:
                self._draft.note("dropped_duplicate", f"the call {describe(call_id)} has a result", part.where)
            else:
                self._draft.note("dropped_result", f"no call before it has the id {describe(call_id)}", part.where)
            return
        call = waiting.pop()
        call.result, call.home, call.is_late = part, turn, is_late
        part.block["tool_use_id"] = call.part.block["id"]


class _ServerCalls:
    """The calls of what the provider runs itself, and those of them that are open."""

    def __init__(self, client_ids: set[str]) -> None:
        self._used = set(client_ids)
        self._open: dict[str, tuple[_Part, _Turn]] = {}

    def wrong(self, part: _Part, turn: _Turn) -> str | None:
        """Take in a block of the assistant's: what is wrong with it, None if nothing is."""
        if part.kind in SERVER_RESULTS:
            call_id = part.block["tool_use_id"]
            known = self._open.pop(call_id, None)
            return None if known else f"no call before it is open with the id {describe(call_id)}"
        if part.kind not in SERVER_CALLS:
            return None
        call_id = part.block["id"]
        if call_id in self._used:
            return f"the id {describe(call_id)} was used before"
        if not RULES.allows_id(call_id):
            return f"an id must match [a-zA-Z0-9_-]+, found {describe(call_id)}"
        self._used.add(call_id)
        self._open[call_id] = (part, turn)
        return None

    def left_open(self) -> list[tuple[_Part, _Turn]]:
        """The calls that nothing has answered, with their turns; they are forgotten."""
        left = list(self._open.values())
        self._open = {}
        return left


class _Repairer:
    def __init__(self, draft: Draft, facts: Facts) -> None:
        self._draft = draft
        self._facts = facts
        self._turns: list[_Turn] = []
        self._before: list[_Turn] = []

    def run(self) -> None:
        self._turns = list(self._read(self._draft.entries))
        self._drop_thinking_known_stale()
        while True:
            # Each step leaves what those before it made sound.
            system = self._take_system_out()
            self._drop_blank_text(self._turns)
            self._drop_unsound_thinking()
            client_ids = self._pair_calls()
            self._pair_server_calls(client_ids)
            self._drop_thinking_at_ends(self._turns)
            self._drop_empty()
            self._trim_end()
            self._put_system_in(system)
            self._unmark()
            self._draft.entries = [turn.write() for turn in self._turns]
            if not self._drop_stale_thinking():
                return

    # Reading: what is left has a shape the API knows.

    def _read(self, entries: Iterable[Entry]) -> Iterator[_Turn]:
        for entry in entries:
            role, content = entry.message.get("role"), entry.message.get("content")
            if role not in ("user", "assistant", "system"):
                found = f"role must be user, assistant or system, found {describe(role)}"
                self._draft.note("dropped_message", found, (entry.index,))
            elif isinstance(content, str):
                seq = entry.parts[0] if entry.parts else entry.own
                part = _Part(text_block(content), seq, (entry.index, "content"))
                yield _Turn(entry, role, [part], part)
            elif is_list(content):
                yield _Turn(entry, role, self._sound_parts(entry, role, content))
            else:
                found = f"content must be text or a list, found {describe(content)}"
                self._draft.note("dropped_message", found, (entry.index,))

    def _sound_parts(self, entry: Entry, role: str, content: list[Any]) -> list[_Part]:
        parts: list[_Part] = []
        for place, block in enumerate(content):
            seq = entry.parts[place] if place < len(entry.parts) else entry.own
            part = _Part(block, seq, (entry.index, "content", place))
            if role == "user" and is_map(block) and block.get("type") == "tool_result":
                self._mend_result(part)
            wrong = shape_of(block, role)
            if wrong is None:
                parts.append(part)
            else:
                self._note("dropped_part", wrong, part)
        return parts

    def _mend_result(self, part: _Part) -> None:
        block = part.block
        if "is_error" in block and not isinstance(block["is_error"], bool):
            self._note("dropped_part", f"is_error must be true or false, found {describe(block['is_error'])}", part)
            del block["is_error"]
        content = block.get("content")
        if is_list(content):
            sound: list[Any] = []
            for inner in content:
                wrong = shape_of(inner, IN_RESULT) or ("text must not be empty" if inner.get("text") == "" else None)
                if wrong is None:
                    sound.append(inner)
                else:
                    self._note("dropped_part", f"in a result: {wrong}", part)
            block["content"] = sound
        elif "content" in block and not isinstance(content, str):
            self._note("dropped_part", f"a result must be text or a list, found {describe(content)}", part)
            del block["content"]
        if block.get("is_error") and not block.get("content"):
            self._note("filled_result", "a result that is an error must say which", part)
            block["content"] = NO_MESSAGE

    # Thinking.

    def _drop_thinking_known_stale(self) -> None:
        """Before anything moves: what the log knows to have been signed with something else."""
        edited = self._facts.edited_from
        stale = self._facts.stale_places(len(self._draft.entries))

        def wrong(part: _Part) -> str | None:
            index, place = cast("int", part.where[0]), cast("int", part.where[-1])
            if edited is not None and (index, place) >= edited:
                return "what stands before it is not what it was signed with"
            if stale is not None and stale(index):
                return "it was signed with another system prompt or other tools"
            return None

        for turn in self._turns:
            self._drop_thinking(turn, wrong)

    def _drop_stale_thinking(self) -> bool:
        edited = self._draft.edited_from(_as_seen)
        if edited is None:
            return False
        place, number = edited
        dropped = False
        for turn in self._turns[place:]:
            early: set[int] = set()
            if turn is self._turns[place]:
                others = 0
                for part in turn.parts:
                    if part.kind not in THINKING:
                        others += 1
                    elif others <= number:
                        early.add(id(part))

            def wrong(part: _Part, early: set[int] = early) -> str | None:
                return None if id(part) in early else "what stands before it was changed"

            dropped |= self._drop_thinking(turn, wrong)
        return dropped

    def _drop_unsound_thinking(self) -> None:
        recorded = self._facts.recorded
        seen: set[str] = set()
        newest = -1

        def wrong(part: _Part) -> str | None:
            nonlocal newest
            signature: str = part.block["signature" if part.kind == "thinking" else "data"]
            if not signature and part.kind == "thinking":
                return "it has no signature"
            if signature in seen:
                return "the same block stands before it"
            seen.add(signature)
            if recorded is None:
                return None
            known = recorded.signed.get(signature)
            if known is None or known[1] != part.block.get("thinking", ""):
                return "the log holds no such block"
            if known[0] <= newest:
                return "it was recorded before the block that precedes it"
            newest = known[0]
            return None

        for turn in self._turns:
            self._drop_thinking(turn, wrong)

    def _drop_thinking_at_ends(self, turns: Iterable[_Turn]) -> None:
        for turn in turns:
            while turn.parts and turn.parts[-1].kind in THINKING:
                self._note("dropped_thinking", "thinking must not end a message", turn.parts.pop())

    def _drop_thinking(self, turn: _Turn, wrong: Callable[[_Part], str | None]) -> bool:
        """Drop the thinking of a message that ``wrong`` says something of; whether there was any."""
        kept: list[_Part] = []
        for part in turn.parts:
            found = wrong(part) if part.kind in THINKING else None
            if found is None:
                kept.append(part)
            else:
                self._note("dropped_thinking", found, part)
        dropped = len(kept) < len(turn.parts)
        turn.parts = kept
        return dropped

    # Calls and results.

    def _pair_calls(self) -> set[str]:
        """Put every result into the message after its call, first; the ids of the calls."""
        calls = _Calls(self._draft)
        for turn in self._turns:
            kept: list[_Part] = []
            for part in turn.parts:
                if part.kind == "tool_use":
                    if calls.call(part, turn):
                        kept.append(part)
                elif part.kind == "tool_result":
                    calls.result(part, turn, is_late=bool(kept))
                else:
                    kept.append(part)
            turn.parts = kept
        turns: list[_Turn] = []
        for place, turn in enumerate(self._turns):
            turns.append(turn)
            asked = calls.of_turn.get(id(turn))
            if asked:
                follower = self._turns[place + 1] if place + 1 < len(self._turns) else None
                if follower is None or follower.role != "user":
                    follower = _Turn(Entry(FROM_REPAIR, {"role": "user"}), "user", [])
                    turns.append(follower)
                follower.parts[:0] = self._results(asked, follower)
        self._turns = turns
        return calls.used

    def _results(self, asked: list[_Call], follower: _Turn) -> list[_Part]:
        results: list[_Part] = []
        for call in sorted(asked, key=lambda call: _place_of(call, follower)):
            result = call.result
            call_id = call.part.block["id"]
            if result is None:
                self._note("answered_call", f"no result of the call {call_id!r} was recorded", call.part)
                block: Message = {"type": "tool_result", "tool_use_id": call_id, "content": INTERRUPTED}
                result = _Part({**block, "is_error": True}, 0, ())
            elif call.home is not follower:
                self._note("moved_result", f"it must be in the message after the call {call_id!r}", result)
            elif call.is_late:
                self._note("moved_result", "results must come before anything else", result)
            results.append(result)
        if not follower.entry.own:
            follower.entry.own = next((result.seq for result in results if result.seq), 0)
        return results

    def _pair_server_calls(self, client_ids: set[str]) -> None:
        """Drop what the provider ran itself and did not answer, and answers without a call."""
        calls = _ServerCalls(client_ids)
        unanswered: set[_Part] = set()
        holders: set[_Turn] = set()
        for turn in self._turns:
            if turn.role == "assistant":
                kept: list[_Part] = []
                for part in turn.parts:
                    wrong = calls.wrong(part, turn)
                    if wrong is None:
                        kept.append(part)
                    else:
                        self._note("dropped_part", wrong, part)
                turn.parts = kept
            elif any(part.kind != "tool_result" for part in turn.parts):
                for part, holder in calls.left_open():
                    self._note("dropped_part", "the call is not answered when the user goes on", part)
                    unanswered.add(part)
                    holders.add(holder)
        for turn in holders:
            turn.parts = [part for part in turn.parts if part not in unanswered]

    # What is empty, and the end.

    def _drop_blank_text(self, turns: list[_Turn]) -> None:
        for turn in turns:
            texts = [part.block["text"] for part in turn.parts if part.is_text()]
            if not texts or ("" not in texts and not all(text.isspace() for text in texts)):
                continue
            only_blank = all(not text or text.isspace() for text in texts)
            kept: list[_Part] = []
            for part in turn.parts:
                if part.is_text() and (only_blank or not part.block["text"]):
                    self._note("dropped_part", "text must not be empty", part)
                else:
                    kept.append(part)
            turn.parts = kept

    def _drop_empty(self) -> None:
        kept: list[_Turn] = []
        for turn in self._turns:
            if turn.parts:
                kept.append(turn)
            else:
                self._drop_turn(turn)
        self._turns = kept

    def _drop_turn(self, turn: _Turn) -> None:
        self._draft.note("dropped_message", "nothing is left of it", (turn.entry.index,), turn.entry.own)

    def _trim_end(self) -> None:
        while self._turns and self._turns[-1].role == "assistant":
            turn = self._turns[-1]
            last = turn.parts[-1]
            if last.is_text():
                text = last.block["text"]
                trimmed = text.rstrip()
                if trimmed == text:
                    return
                self._note("trimmed_text", "the assistant's last message must not end in white space", last)
                if trimmed:
                    last.block["text"] = trimmed
                    return
                turn.parts.pop()
            elif last.kind not in THINKING:
                return
            self._drop_thinking_at_ends([turn])
            if not turn.parts:
                self._turns.pop()
                self._drop_turn(turn)

    # System messages.

    def _take_system_out(self) -> list[tuple[_Turn, _Turn | None]]:
        """The system messages, each with the message before it; what is left is a conversation."""
        system: list[tuple[_Turn, _Turn | None]] = []
        turns: list[_Turn] = []
        for turn in self._turns:
            if turn.role == "system":
                system.append((turn, turns[-1] if turns else None))
            else:
                turns.append(turn)
        self._turns = turns
        self._before = turns
        return system

    def _put_system_in(self, system: list[tuple[_Turn, _Turn | None]]) -> None:
        self._drop_blank_text([turn for turn, _ in system])
        places = {id(turn): place for place, turn in enumerate(self._turns)}
        slots = [place for place in range(len(self._turns)) if self._takes_system(place)]
        # Where each message of before stands now; that of the one before it where it is gone.
        now: dict[int, int] = {}
        latest = -1
        for turn in self._before:
            now[id(turn)] = latest = places.get(id(turn), latest)
        settled: dict[int, _Turn] = {}
        for turn, anchor in system:
            where: Path = (turn.entry.index,)
            if not turn.parts:
                self._draft.note("dropped_message", "nothing is left of it", where)
                continue
            wanted = -1 if anchor is None else now[id(anchor)]
            if not slots:
                self._draft.note("dropped_message", "there is no message of the user's it could follow", where)
                continue
            slot = slots[min(bisect_left(slots, wanted), len(slots) - 1)]
            if slot in settled:
                self._draft.note("moved_system", "joined to the system message before it", where)
                settled[slot].parts += turn.parts
                continue
            if anchor is None or places.get(id(anchor)) != slot:
                found = "it must follow a message of the user's and precede the assistant's"
                self._draft.note("moved_system", found, where)
            settled[slot] = turn
        turns: list[_Turn] = []
        for place, turn in enumerate(self._turns):
            turns.append(turn)
            if place in settled:
                turns.append(settled[place])
        self._turns = turns

    def _takes_system(self, place: int) -> bool:
        turn = self._turns[place]
        if turn.role != "user" and not turn.ends_in_server_tool():
            return False
        return place + 1 == len(self._turns) or self._turns[place + 1].role == "assistant"

    # Cache marks.

    def _unmark(self) -> None:
        marked: list[tuple[_Part, Message]] = []
        for turn in self._turns:
            for part in turn.parts:
                inner = part.block.get("content") if part.kind == "tool_result" else None
                for block in (*(inner if is_list(inner) else ()), part.block):
                    if block.get("cache_control") is None:
                        continue
                    if block["type"] in THINKING:
                        self._note("dropped_mark", "thinking cannot be marked for the cache", part)
                        del block["cache_control"]
                    else:
                        marked.append((part, block))
        for part, block in marked[:-MOST_CACHE_MARKS]:
            self._note("dropped_mark", f"at most {MOST_CACHE_MARKS} blocks can be marked for the cache", part)
            del block["cache_control"]

    def _note(self, change: str, message: str, part: _Part) -> None:
        self._draft.note(change, message, part.where, part.seq)


def _place_of(call: _Call, follower: _Turn) -> tuple[int, int]:
    """Results that are in the right message stay in their order; then those that move; then those that are missing."""
    if call.result is None:
        return 2, 0
    return (0, cast("int", call.result.where[-1])) if call.home is follower and call.result.where else (1, 0)


def _as_seen(message: Message) -> tuple[object, list[Any]]:
    """A message as signatures are bound to it: without cache marks and thinking, text as the block it stands for."""
    content = message.get("content")
    blocks = content if is_list(content) else [text_block(content)] if isinstance(content, str) else []
    kinds = [role_of(block, "type") for block in blocks]
    seen = [
        _unmarked(block)
        for block, kind in zip(blocks, kinds, strict=True)
        if not isinstance(kind, str) or kind not in THINKING
    ]
    return {**message, "content": None}, seen


def _unmarked(block: object) -> object:
    if not is_map(block):
        return block
    plain = {key: value for key, value in block.items() if key != "cache_control"}
    if is_list(plain.get("content")):
        plain["content"] = [_unmarked(inner) for inner in plain["content"]]
    return plain


def _request_for(draft: Draft, facts: Facts) -> dict[str, JsonValue]:
    """The other arguments, changed where need be."""
    messages = [entry.message for entry in draft.entries]
    request = sendable(messages, facts.request)
    place = calls_without_thinking(messages)
    if len(request) < len(facts.request) and place is not None:
        found = "the last call does not begin with thinking, as a thinking budget requires: send it without"
        draft.note("thinking_off", found, (draft.entries[place].index,))
    return request
