"""Making Converse messages valid: each rule that they break has its mending, applied until they break none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from msgspec.structs import replace

from agent_memory_log.jsonvalue import JsonValue
from agent_memory_log.transcript.bedrock.rendering import RULES
from agent_memory_log.transcript.bedrock.rules import flaw_in, kind_of, validate
from agent_memory_log.transcript.bedrock.shapes import flaw_of_message, flaw_of_part
from agent_memory_log.transcript.model import Facts, Finding, Message, Path
from agent_memory_log.transcript.repairing import FROM_REPAIR, INTERRUPTED, Draft, Entry
from agent_memory_log.transcript.shapes import list_in, map_in

_NOT_SEEN = frozenset({"reasoningContent", "cachePoint"})
"""The blocks that no signature is bound to."""


def repair(draft: Draft, facts: Facts) -> dict[str, JsonValue]:
    """Change ``draft`` until it breaks no rule; the other arguments as they were."""
    _Repair(draft, facts).run()
    return dict(facts.request)


class _Turn:
    """An entry, and where each of its blocks stood in the transcript that was given."""

    __slots__ = ("entry", "where")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        count = len(self.content)
        entry.parts = (entry.parts + [entry.own] * count)[:count]
        self.where: list[Path] = [(entry.index, "content", number) for number in range(count)]

    @property
    def role(self) -> object:
        return self.entry.message.get("role")

    @property
    def content(self) -> list[Any]:
        return list_in(self.entry.message.get("content"))

    def insert(self, number: int, block: Message, seq: int, where: Path) -> None:
        self.content.insert(number, block)
        self.entry.parts.insert(number, seq)
        self.where.insert(number, where)

    def delete(self, number: int) -> None:
        del self.content[number], self.entry.parts[number], self.where[number]

    def absorb(self, other: _Turn) -> None:
        self.content.extend(other.content)
        self.entry.parts.extend(other.entry.parts)
        self.where.extend(other.where)


class _Repair:
    def __init__(self, draft: Draft, facts: Facts) -> None:
        self._draft = draft
        self._facts = facts
        self._turns = [_Turn(entry) for entry in draft.entries]

    def run(self) -> None:
        if self._facts.recorded is not None:
            for where in self._facts.recorded.conflicts:
                self._draft.note("kept_value", "of a result with both an error and a value, the value is sent", where)
        while findings := self._find():
            for finding in _from_the_end(_first_of(findings)):
                self._mend(finding)
            self._draft.entries = [turn.entry for turn in self._turns]

    def _find(self) -> list[Finding]:
        facts = replace(
            self._facts, recorded=self._draft.recorded(self._facts.recorded), edited_from=self._edited_from()
        )
        return validate([turn.entry.message for turn in self._turns], facts)

    def _edited_from(self) -> tuple[int, int] | None:
        """The first place of the draft that is not what the model saw: by the log, or by what was changed here."""
        edits: list[tuple[int, int]] = []
        changed = self._draft.edited_from(_as_seen)
        if changed is not None:
            edits.append((changed[0], self._number_after(self._turns[changed[0]], changed[1])))
        known = self._facts.edited_from
        if known is not None:
            for place, turn in enumerate(self._turns):
                if turn.entry.index >= known[0]:
                    first = [number for number, where in enumerate(turn.where) if _at_least(where, known)]
                    edits.append((place, first[0] if first else len(turn.where)))
                    break
        return min(edits, default=None)

    def _number_after(self, turn: _Turn, seen: int) -> int:
        """Which block follows the one that is number ``seen`` of those signatures are bound to."""
        if seen < 0:
            return 0
        for number, block in enumerate(turn.content):
            if kind_of(block) not in _NOT_SEEN:
                seen -= 1
                if seen < 0:
                    return number + 1
        return len(turn.content)

    def _mend(self, finding: Finding) -> None:
        rule = finding.rule
        place, number = cast("int", finding.where[0]), _number_of(finding)
        if number < 0:
            self._mend_message(rule, place, finding.message)
        elif rule == "block_shape":
            self._mend_shape(place, number, finding.message)
        elif rule == "unanswered_call":
            self._answer(place, number)
        elif rule == "duplicate_call":
            self._mend_duplicate_call(place, number)
        elif rule == "call_id":
            self._rename_call(place, number)
        elif rule == "tool_name":
            call: Message = self._turns[place].content[number]["toolUse"]
            name: str = call["name"]
            call["name"] = RULES.short_name(name)
            self._note(place, number, "renamed_tool", f"the tool {name!r} is called {call['name']!r}")
        elif rule in ("orphan_result", "duplicate_result"):
            self._drop(place, number, "dropped_result", finding.message)
        elif rule.startswith("thinking_"):
            self._drop(place, number, "dropped_thinking", finding.message)
        else:
            self._drop(place, number, "dropped_part", finding.message)

    def _note(self, place: int, number: int, change: str, message: str) -> None:
        turn = self._turns[place]
        if number < 0:
            self._draft.note(change, message, (turn.entry.index,), turn.entry.own or None)
        else:
            self._draft.note(change, message, turn.where[number], turn.entry.parts[number] or None)

    def _drop(self, place: int, number: int, change: str, message: str) -> None:
        self._note(place, number, change, message)
        self._turns[place].delete(number)

    def _mend_message(self, rule: str, place: int, message: str) -> None:
        turn = self._turns[place]
        if rule == "message_shape":
            plain = {key: value for key, value in turn.entry.message.items() if key in ("role", "content")}
            if flaw_of_message(plain) is None:
                self._note(place, -1, "mended_message", message)
                turn.entry.message = plain
                return
        elif rule == "role_order":
            earlier = next(other for other in reversed(self._turns[:place]) if other.role == turn.role)
            self._note(place, -1, "joined_message", message)
            earlier.absorb(turn)
            del self._turns[place]
            return
        self._note(place, -1, "dropped_message", message)
        del self._turns[place]

    def _mend_shape(self, place: int, number: int, message: str) -> None:
        turn = self._turns[place]
        block = turn.content[number]
        body = map_in(map_in(block).get("toolResult")) if turn.role == "user" else {}
        mended: Message = {
            "toolUseId": body.get("toolUseId"),
            "content": [part for part in list_in(body.get("content")) if flaw_of_part(part) is None],
        }
        if body.get("status") in ("success", "error"):
            mended["status"] = body["status"]
        if flaw_in({"toolResult": mended}, "user") is None:
            self._note(place, number, "mended_part", message)
            turn.content[number] = {"toolResult": mended}
            return
        self._drop(place, number, "dropped_part", message)

    def _results_turn(self, place: int) -> _Turn | None:
        """The message in which the calls of the one at ``place`` are answered."""
        following = next((turn for turn in self._turns[place + 1 :] if turn.role != "system"), None)
        return following if following is not None and following.role == "user" else None

    def _results(self, place: int, call_id: str) -> Iterator[Message]:
        turn = self._results_turn(place)
        for block in [] if turn is None else turn.content:
            if kind_of(block) == "toolResult" and block["toolResult"]["toolUseId"] == call_id:
                yield block["toolResult"]

    def _answer(self, place: int, number: int) -> None:
        turn = self._turns[place]
        call_id: str = turn.content[number]["toolUse"]["toolUseId"]
        self._note(place, number, "answered_call", f"the call {call_id!r} was never answered: {INTERRUPTED!r}")
        seq, where = turn.entry.parts[number], turn.where[number]
        result: Message = {"toolResult": {"toolUseId": call_id, "content": [{"text": INTERRUPTED}], "status": "error"}}
        answers = self._results_turn(place)
        if answers is None:
            message: Message = {"role": "user", "content": []}
            answers = _Turn(Entry(FROM_REPAIR, message, turn.entry.own))
            self._turns.insert(place + 1, answers)
        # Before what the user says, and in the order of the calls: they come here from the last to the first.
        calls = [block["toolUse"]["toolUseId"] for block in turn.content[:number] if kind_of(block) == "toolUse"]
        end = 0
        for position, block in enumerate(answers.content):
            if kind_of(block) == "toolResult" and block["toolResult"]["toolUseId"] in calls:
                end = position + 1
        answers.insert(end, result, seq, where)

    def _mend_duplicate_call(self, place: int, number: int) -> None:
        turn = self._turns[place]
        call: Message = turn.content[number]["toolUse"]
        call_id: str = call["toolUseId"]
        same = [
            block["toolUse"]
            for block in turn.content[:number]
            if kind_of(block) == "toolUse" and block["toolUse"]["toolUseId"] == call_id
        ]
        if call in same:
            self._drop(place, number, "dropped_call", f"the call {call_id!r} stands there twice")
            return
        results = list(self._results(place, call_id))
        # The result that comes first answers the later call, as in the log; a single one is left to the first call.
        self._give_call_id(place, number, results[:1] if len(results) > len(same) else [])

    def _rename_call(self, place: int, number: int) -> None:
        call_id: str = self._turns[place].content[number]["toolUse"]["toolUseId"]
        self._give_call_id(place, number, list(self._results(place, call_id))[:1])

    def _give_call_id(self, place: int, number: int, results: list[Message]) -> None:
        call: Message = self._turns[place].content[number]["toolUse"]
        old: str = call["toolUseId"]
        used = self._used_ids()
        new = RULES.wire_id(old) or "call"
        count = 1
        while new in used:
            count += 1
            new = RULES.wire_id(f"{old or 'call'}-{count}")
        call["toolUseId"] = new
        for result in results:
            result["toolUseId"] = new
        self._note(place, number, "renamed_call", f"the call {old!r} has the id {new!r}")

    def _used_ids(self) -> set[str]:
        blocks = (block for turn in self._turns for block in turn.content)
        return {block[kind]["toolUseId"] for block in blocks if (kind := kind_of(block)) in ("toolUse", "toolResult")}


def _first_of(findings: list[Finding]) -> list[Finding]:
    """Those to be mended before the others: shapes, so that the rest can be looked into, then roles and ids.

    Calls are answered last: once the others are mended, no call goes any more.
    """
    for rules in (
        ("message_shape", "block_shape"),
        ("empty_message", "first_message", "role_order"),
        ("duplicate_call", "call_id"),
    ):
        found = [finding for finding in findings if finding.rule in rules]
        if found:
            return found
    return [finding for finding in findings if finding.rule != "unanswered_call"] or findings


def _from_the_end(findings: list[Finding]) -> list[Finding]:
    """One finding a block, or one of the message, from the last to the first: places before stay what they are."""
    chosen: dict[tuple[int, int], Finding] = {}
    whole = {finding.where[0] for finding in findings if _number_of(finding) < 0}
    for finding in findings:
        number = _number_of(finding)
        place = cast("int", finding.where[0])
        if number < 0 or place not in whole:
            chosen.setdefault((place, max(number, -1)), finding)
    return [chosen[key] for key in sorted(chosen, reverse=True)]


def _number_of(finding: Finding) -> int:
    where = finding.where
    number = where[2] if len(where) > 2 and where[1] == "content" else -1  # noqa: PLR2004  # message, key, block
    return number if isinstance(number, int) else -1


def _at_least(where: Path, known: tuple[int, int]) -> bool:
    return (cast("int", where[0]), cast("int", where[2])) >= known


def _as_seen(message: Message) -> tuple[object, list[Any]]:
    """A message as signatures are bound to it: without reasoning and cache marks."""
    blocks = list_in(message.get("content"))
    return {**message, "content": None}, [block for block in blocks if kind_of(block) not in _NOT_SEEN]
