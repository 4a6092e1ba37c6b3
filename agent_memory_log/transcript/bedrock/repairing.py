"""Making Converse messages valid: each rule that they break has its mending, applied until they break none."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, count, groupby
from typing import Any, cast

from msgspec.structs import replace

from agent_memory_log.events.jsonvalue import JsonValue, encode_canonical
from agent_memory_log.transcript.bedrock.rendering import RULES
from agent_memory_log.transcript.bedrock.rules import flaw_in, kind_of, validate
from agent_memory_log.transcript.bedrock.shapes import flaw_of_message, flaw_of_part
from agent_memory_log.transcript.model import Facts, Finding, Message, Path
from agent_memory_log.transcript.names import UnusedIds
from agent_memory_log.transcript.repairing import FROM_REPAIR, INTERRUPTED, Draft, Entry
from agent_memory_log.transcript.shapes import list_in, map_in

_NOT_SEEN = frozenset({"reasoningContent", "cachePoint"})
"""The blocks that no signature is bound to."""

_ROLES = ("first_message", "role_order")
_IDS = ("duplicate_call", "call_id")


def repair(draft: Draft, facts: Facts) -> dict[str, JsonValue]:
    """Change ``draft`` until it breaks no rule; the other arguments as they were."""
    _Repair(draft, facts).run()
    return dict(facts.request)


class _Turn:
    """An entry, and where each of its blocks stood in the transcript that was given."""

    __slots__ = ("entry", "gone", "where")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.gone: set[int] = set()
        count = len(self.content)
        entry.parts = (entry.parts + [entry.own] * count)[:count]
        self.where: list[Path] = [(entry.index, "content", number) for number in range(count)]

    @property
    def role(self) -> object:
        return self.entry.message.get("role")

    @property
    def content(self) -> list[Any]:
        return list_in(self.entry.message.get("content"))

    def gap(self, number: int) -> None:
        """Leave out a block once the others are mended: until then all stand where they stood."""
        self.gone.add(number)

    def close_gaps(self) -> None:
        """Leave out the blocks that are to go."""
        if self.gone:
            kept = [number not in self.gone for number in range(len(self.where))]
            self.content[:] = compress(self.content, kept)
            self.entry.parts[:] = compress(self.entry.parts, kept)
            self.where[:] = compress(self.where, kept)
            self.gone.clear()

    def insert(self, answers: Mapping[int, Sequence[tuple[Message, int, Path]]]) -> None:
        """Put blocks before those that have these numbers."""
        held = list(zip(self.content, self.entry.parts, self.where, strict=True))
        grown = [
            item for number in range(len(held) + 1) for item in (*answers.get(number, ()), *held[number : number + 1])
        ]
        self.content[:] = [block for block, _, _ in grown]
        self.entry.parts[:] = [seq for _, seq, _ in grown]
        self.where[:] = [where for _, _, where in grown]

    def absorb(self, other: _Turn) -> None:
        self.content.extend(other.content)
        self.entry.parts.extend(other.entry.parts)
        self.where.extend(other.where)


class _Repair:
    def __init__(self, draft: Draft, facts: Facts) -> None:
        self._draft = draft
        self._facts = facts
        self._turns = [_Turn(entry) for entry in draft.entries]
        self._gone: set[_Turn] = set()

    def run(self) -> None:
        if self._facts.recorded is not None:
            for where in self._facts.recorded.conflicts:
                self._draft.note("kept_value", "of a result with both an error and a value, the value is sent", where)
        while findings := self._find():
            chosen = _from_the_end(_first_of(findings))
            rule = chosen[0].rule
            if rule == "unanswered_call":
                self._answer(chosen)
            elif rule in _IDS:
                self._mend_ids(chosen)
            elif rule in _ROLES:
                self._mend_roles(chosen)
            else:
                for finding in chosen:
                    self._mend(finding)
            for turn in self._turns:
                turn.close_gaps()
            self._turns = [turn for turn in self._turns if turn not in self._gone]
            self._gone.clear()
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
        place, number = _place_of(finding), _number_of(finding)
        if number < 0:
            self._mend_message(rule, place, finding.message)
        elif rule == "block_shape":
            self._mend_shape(place, number, finding.message)
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
        self._turns[place].gap(number)

    def _mend_message(self, rule: str, place: int, message: str) -> None:
        turn = self._turns[place]
        plain = {key: value for key, value in turn.entry.message.items() if key in ("role", "content")}
        if rule == "message_shape" and flaw_of_message(plain) is None:
            self._note(place, -1, "mended_message", message)
            turn.entry.message = plain
        else:
            self._drop_turn(place, message)

    def _drop_turn(self, place: int, message: str) -> None:
        self._note(place, -1, "dropped_message", message)
        self._gone.add(self._turns[place])

    def _mend_roles(self, findings: Sequence[Finding]) -> None:
        """Drop what is not the user's at the beginning, and join what follows a message of the same role to that."""
        chosen = {_place_of(finding): finding for finding in findings}
        latest: dict[object, _Turn] = {}
        for place, turn in enumerate(self._turns):
            finding = chosen.get(place)
            if finding is not None and finding.rule == "role_order":
                self._note(place, -1, "joined_message", finding.message)
                latest[turn.role].absorb(turn)
                self._gone.add(turn)
                continue
            if finding is not None:
                self._drop_turn(place, finding.message)
            latest[turn.role] = turn

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

    def _followers(self) -> list[_Turn | None]:
        """For each message the one in which its calls are answered: the next, if that is the user's."""
        followers: list[_Turn | None] = []
        following: _Turn | None = None
        for turn in reversed(self._turns):
            followers.append(following if following is not None and following.role == "user" else None)
            if turn.role != "system":
                following = turn
        followers.reverse()
        return followers

    def _answer(self, findings: Sequence[Finding]) -> None:
        """Answer the calls that nothing answered, in messages of their own where nothing follows."""
        followers = self._followers()
        open_calls: dict[int, set[int]] = {}
        for finding in findings:
            open_calls.setdefault(_place_of(finding), set()).add(_number_of(finding))
        turns: list[_Turn] = []
        for place, turn in enumerate(self._turns):
            turns.append(turn)
            if place in open_calls:
                follower = followers[place]
                if follower is None:
                    follower = _Turn(Entry(FROM_REPAIR, {"role": "user", "content": []}, turn.entry.own))
                    turns.append(follower)
                follower.insert(self._answers(place, open_calls[place], follower))
        self._turns = turns

    def _answers(self, place: int, numbers: set[int], follower: _Turn) -> dict[int, list[tuple[Message, int, Path]]]:
        """Results for the calls at ``numbers``, by where they go: after those of the calls before them."""
        turn = self._turns[place]
        ends = {
            block["toolResult"]["toolUseId"]: end
            for end, block in enumerate(follower.content, 1)
            if kind_of(block) == "toolResult"
        }
        answers: dict[int, list[tuple[Message, int, Path]]] = {}
        end = 0
        for number, block in enumerate(turn.content):
            if kind_of(block) != "toolUse":
                continue
            call_id: str = block["toolUse"]["toolUseId"]
            if number not in numbers:
                end = max(end, ends.get(call_id, 0))
                continue
            found = f"the call {call_id!r} was never answered: {INTERRUPTED!r}"
            self._note(place, number, "answered_call", found)
            body: Message = {"toolUseId": call_id, "content": [{"text": INTERRUPTED}], "status": "error"}
            answers.setdefault(end, []).append(({"toolResult": body}, turn.entry.parts[number], turn.where[number]))
        return answers

    def _mend_ids(self, findings: Sequence[Finding]) -> None:
        """Drop calls that stand there twice, and give others an id of their own.

        From the last to the first: the result that comes first answers the later call, as in the log; a single one is
        left to the first call.
        """
        followers = self._followers()
        blocks = (block for turn in self._turns for block in turn.content)
        ids = UnusedIds(
            RULES,
            (block[kind]["toolUseId"] for block in blocks if (kind := kind_of(block)) in ("toolUse", "toolResult")),
        )
        for place, chosen in groupby(findings, key=_place_of):
            self._mend_ids_of(place, chosen, followers[place], ids)

    def _mend_ids_of(self, place: int, findings: Iterable[Finding], follower: _Turn | None, ids: UnusedIds) -> None:
        content = self._turns[place].content
        results: defaultdict[str, deque[Message]] = defaultdict(deque)
        for block in [] if follower is None else follower.content:
            if kind_of(block) == "toolResult":
                results[block["toolResult"]["toolUseId"]].append(block["toolResult"])
        before, repeated = _known_before(content)
        for finding in findings:
            number = _number_of(finding)
            call: Message = content[number]["toolUse"]
            old: str = call["toolUseId"]
            is_duplicate = finding.rule == "duplicate_call"
            if is_duplicate and number in repeated:
                self._drop(place, number, "dropped_call", f"the call {old!r} stands there twice")
                continue
            call["toolUseId"] = new = ids.unused(RULES.wire_id(old) or "call")
            if len(results[old]) > (before[number] if is_duplicate else 0):
                results[old].popleft()["toolUseId"] = new
            self._note(place, number, "renamed_call", f"the call {old!r} has the id {new!r}")


def _known_before(content: Sequence[Message]) -> tuple[dict[int, int], set[int]]:
    """How many calls with its id stand before each call of a message, and which calls are equal to one of those."""
    calls: defaultdict[str, list[int]] = defaultdict(list)
    for number, block in enumerate(content):
        if kind_of(block) == "toolUse":
            calls[block["toolUse"]["toolUseId"]].append(number)
    before: dict[int, int] = {}
    repeated: set[int] = set()
    for numbers in calls.values():
        before.update(zip(numbers, count(), strict=False))
        first: dict[bytes, int] = {}
        for number in numbers if len(numbers) > 1 else ():
            if first.setdefault(encode_canonical(content[number]), number) != number:
                repeated.add(number)
    return before, repeated


def _first_of(findings: list[Finding]) -> list[Finding]:
    """Those to be mended before the others: shapes, so that the rest can be looked into, then roles and ids.

    Calls are answered last: once the others are mended, no call goes any more.
    """
    for rules in (
        ("message_shape", "block_shape"),
        # Before messages are joined: what one that goes would have taken in, would go with it.
        ("empty_message",),
        _ROLES,
        _IDS,
    ):
        found = [finding for finding in findings if finding.rule in rules]
        if found:
            return found
    return [finding for finding in findings if finding.rule != "unanswered_call"] or findings


def _place_of(finding: Finding) -> int:
    return cast("int", finding.where[0])


def _from_the_end(findings: list[Finding]) -> list[Finding]:
    """One finding a block, or one of the message, from the last to the first: places before stay what they are."""
    chosen: dict[tuple[int, int], Finding] = {}
    whole = {finding.where[0] for finding in findings if _number_of(finding) < 0}
    for finding in findings:
        number = _number_of(finding)
        place = _place_of(finding)
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
