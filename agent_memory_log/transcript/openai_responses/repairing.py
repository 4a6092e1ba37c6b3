"""Making an ``input`` valid: each rule that it breaks has its mending, applied until it breaks none."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from agent_memory_log.jsonvalue import JsonValue
from agent_memory_log.transcript.model import Facts, Finding, Message
from agent_memory_log.transcript.openai_responses.rendering import (
    APPLY_PATCH,
    CALLS,
    COMPUTER,
    LOCAL_SHELL,
    OUTPUT_TEXT,
    RESULTS,
    RULES,
    SHELL,
    CallKind,
    shell_output,
)
from agent_memory_log.transcript.openai_responses.rules import find
from agent_memory_log.transcript.openai_responses.shapes import flaw_of, is_sound
from agent_memory_log.transcript.openai_responses.turns import ResponsesRecorded, is_from_model, kind_of, pair_of
from agent_memory_log.transcript.repairing import FROM_REPAIR, INTERRUPTED, Draft, Entry
from agent_memory_log.transcript.shapes import list_in, map_in


def repair(draft: Draft, facts: Facts) -> dict[str, JsonValue]:
    """Change ``draft`` until it breaks no rule; the other arguments as they were."""
    _Repair(draft, facts).run()
    return dict(facts.request)


def unbound(item: Message) -> Message:
    """An item without the id by which the provider knows its reasoning; of an answer, the text."""
    if kind_of(item) != "message":
        return {key: value for key, value in item.items() if key != "id"}
    message: Message = {"role": item.get("role"), "content": _said(item.get("content"))}
    if item.get("phase") is not None:
        message["phase"] = item["phase"]
    return message


class _Repair:
    def __init__(self, draft: Draft, facts: Facts) -> None:
        self._draft = draft
        self._facts = facts
        known = facts.recorded
        self._reasoning_of = known.reasoning_of if isinstance(known, ResponsesRecorded) else {}
        self._conflicts = [] if known is None else known.conflicts
        # Reasoning is not among it: what went of that changes nothing of what other reasoning was made with.
        self._seen = [_as_seen(item) for item in draft.seen if kind_of(item) != "reasoning"]

    def run(self) -> None:
        for where in self._conflicts:
            self._draft.note("kept_value", "of a result with both an error and a value, the value is sent", where[:1])
        while findings := self._find():
            # From the end, so that places before stay what they are; one mending a place, as the next may have gone.
            first = {finding.where[0]: finding for finding in reversed(_first_of(findings))}
            for place in sorted((place for place in first if isinstance(place, int)), reverse=True):
                self._mend(place, first[place])

    def _find(self) -> list[Finding]:
        entries = self._draft.entries
        recorded = self._draft.recorded(self._facts.recorded)
        facts = replace(self._facts, recorded=recorded, edited_from=self._edited_from())
        return find([entry.message for entry in entries], facts, self._reasoning_of)

    def _edited_from(self) -> tuple[int, int] | None:
        """The first place of the draft that is not what the model saw: by the log, or by what was changed here."""
        number = 0
        known = self._facts.edited_from
        for place, entry in enumerate(self._draft.entries):
            if known is not None and entry.index >= known[0]:
                return place, known[1] if entry.index == known[0] else -1
            if kind_of(entry.message) == "reasoning":
                continue
            if number >= len(self._seen):
                return None  # what was added at the end is not edited
            if _as_seen(entry.message) != self._seen[number]:
                return place, 0
            number += 1
        return None

    def _mend(self, place: int, finding: Finding) -> None:
        rule = finding.rule
        if rule == "item_shape":
            self._mend_shape(place, finding.message)
        elif rule == "unanswered_call":
            self._answer(place)
        elif rule in ("orphan_result", "duplicate_result"):
            self._drop(place, "dropped_result", finding.message)
        elif rule == "duplicate_call":
            self._mend_duplicate_call(place)
        elif rule == "call_id":
            self._rename_call(place)
        elif rule == "tool_name":
            item = self._draft.entries[place].message
            name = item["name"]
            item["name"] = RULES.short_name(name)
            self._note(place, "renamed_tool", f"the tool {name!r} is called {item['name']!r}")
        elif rule in ("item_id", "duplicate_id", "reasoning_missing"):
            self._take_id_away(place, finding.message)
        else:
            self._drop_reasoning(place, finding.message)

    def _note(self, place: int, change: str, message: str) -> None:
        entry = self._draft.entries[place]
        self._draft.note(change, message, (entry.index,), entry.own or None)

    def _drop(self, place: int, change: str, message: str) -> None:
        self._note(place, change, message)
        del self._draft.entries[place]

    def _mend_shape(self, place: int, message: str) -> None:
        entry = self._draft.entries[place]
        entry.message = _without_nulls(entry.message)
        completed = entry.message if is_sound(entry.message) else _completed(entry.message)
        if is_sound(completed):
            entry.message = completed
            self._note(place, "mended_message", message)
        elif kind_of(entry.message) == "reasoning":
            self._drop_reasoning(place, message)
        else:
            self._drop(place, "dropped_message", message)

    def _answer(self, place: int) -> None:
        """Give a call a result, after all that the model made with it and the results of that."""
        entries = self._draft.entries
        call = entries[place]
        kind = CALLS[kind_of(call.message)]
        end = place + 1
        while end < len(entries) and is_from_model(entries[end].message):
            end += 1
        while end < len(entries) and kind_of(entries[end].message) in RESULTS:
            end += 1
        self._note(place, "answered_call", f"the call {call.message['call_id']!r} was never answered: {INTERRUPTED!r}")
        entries.insert(end, Entry(FROM_REPAIR, _interrupted(kind, call.message["call_id"]), call.own))

    def _mend_duplicate_call(self, place: int) -> None:
        entries = self._draft.entries
        item = entries[place].message
        pair = pair_of(item)
        earlier = [
            entry.message for entry in entries[:place] if _is_call(entry.message) and pair_of(entry.message) == pair
        ]
        if any(_same_call(item, other) for other in earlier):
            self._drop(place, "dropped_call", f"the call {item['call_id']!r} stands there twice")
            return
        results = [number for number in range(place + 1, len(entries)) if _is_result_of(entries[number].message, pair)]
        # The result that comes first answers the later call, as in the log; a single one is left to the first call.
        self._give_call_id(place, results[:1] if len(results) > 1 else [])

    def _rename_call(self, place: int) -> None:
        entries = self._draft.entries
        item = entries[place].message
        if not _is_call(item):
            self._drop(place, "dropped_result", "the id of a result's call is not one the provider takes")
            return
        pair = pair_of(item)
        following = range(place + 1, len(entries))
        self._give_call_id(place, [number for number in following if _is_result_of(entries[number].message, pair)][:1])

    def _give_call_id(self, place: int, results: list[int]) -> None:
        entries = self._draft.entries
        old: str = entries[place].message["call_id"]
        used = {pair[1] for entry in entries if (pair := pair_of(entry.message)) is not None}
        new = RULES.wire_id(old) or "call"
        number = 1
        while new in used:
            number += 1
            new = RULES.wire_id(f"{old or 'call'}-{number}")
        entries[place].message["call_id"] = new
        self._note(place, "renamed_call", f"the call {old!r} has the id {new!r}")
        for result in results:
            message = entries[result].message
            message["call_id" if "call_id" in message else RESULTS[kind_of(message)].id_key] = new
            self._note(result, "renamed_call", f"the result of the call {old!r} has the id {new!r}")

    def _take_id_away(self, place: int, message: str) -> None:
        """Make an item one that was not made with reasoning, for all that the provider can tell."""
        entry = self._draft.entries[place]
        kind = kind_of(entry.message)
        if kind == "reasoning":
            self._drop_reasoning(place, message)
            return
        entry.message = unbound(entry.message)
        if is_sound(entry.message):
            self._note(place, "removed_id", message)
        elif kind in CALLS:
            self._drop(place, "dropped_call", message)
        else:
            self._drop(place, "dropped_message", message)

    def _drop_reasoning(self, place: int, message: str) -> None:
        """Drop reasoning, and the ids of what was made with it, by which the provider would ask for it."""
        entries = self._draft.entries
        self._drop(place, "dropped_thinking", message)
        end = place
        while end < len(entries):
            item = entries[end].message
            if kind_of(item) in ("reasoning", "item_reference") or not is_from_model(item):
                break
            end += 1
        for bound in reversed(range(place, end)):
            if "id" in entries[bound].message:
                self._take_id_away(bound, "the reasoning it was made with is dropped")


def _first_of(findings: list[Finding]) -> list[Finding]:
    """Those to be mended before the others: shapes, so that the rest can be looked into, then the ids of calls.

    Calls are answered last: once the others are mended, no call goes any more.
    """
    for rules in (("item_shape",), ("duplicate_call", "call_id")):
        found = [finding for finding in findings if finding.rule in rules]
        if found:
            return found
    return [finding for finding in findings if finding.rule != "unanswered_call"] or findings


def _as_seen(item: Message) -> Message:
    """An item as reasoning is bound to it: without what only the provider's storage knows it by, and without nulls."""
    return {key: value for key, value in item.items() if value is not None and key not in ("id", "status")}


def _is_call(item: Mapping[str, object]) -> bool:
    return kind_of(item) in CALLS


def _is_result_of(item: Mapping[str, object], pair: tuple[str, str] | None) -> bool:
    return kind_of(item) in RESULTS and pair_of(item) == pair


def _same_call(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    return {**one, "id": None, "status": None} == {**other, "id": None, "status": None}


def _said(content: object) -> object:
    """The content of an answer in the form that needs no id: its text."""
    parts = list_in(content)
    if not parts:
        return content
    refusals = [part["refusal"] for part in map(map_in, parts) if isinstance(part.get("refusal"), str)]
    return "\n".join(piece for piece in (OUTPUT_TEXT.text_in(parts), *refusals) if piece) or parts


def _without_nulls(item: Message) -> Message:
    """The item without the nulls that SDKs write where there is nothing, and the API does not take."""
    left = dict(item)
    while (flaw := flaw_of(left, kind_of(left))) is not None:
        if len(flaw.where) != 1 or flaw.where[0] not in left or left[str(flaw.where[0])] is not None:
            break
        del left[str(flaw.where[0])]
    return left


def _completed(item: Message) -> Message:
    """The item with what may be left out elsewhere, and text in place of an answer's parts that cannot be mended."""
    kind = kind_of(item)
    completed = dict(item)
    content = list_in(item.get("content"))
    if kind == "message" and item.get("role") == "assistant" and content:
        if isinstance(item.get("id"), str):
            completed = {"type": "message", "status": "completed", **item}
            completed["content"] = [
                {"annotations": [], **part} if map_in(part).get("type") == "output_text" else part for part in content
            ]
            if is_sound(completed):
                return completed
        return unbound(item)
    if kind == "reasoning":
        completed.setdefault("summary", [])
    elif kind in RESULTS and item.get("output") is None and RESULTS[kind] is not APPLY_PATCH:
        completed["output"] = _interrupted(RESULTS[kind], "")["output"]
    if kind in CALLS or kind == "reasoning":
        completed.setdefault("status", "completed")
    return completed


def _interrupted(kind: CallKind, call_id: str) -> Message:
    item: Message = {"type": kind.result, kind.id_key: call_id, "output": INTERRUPTED}
    if kind is COMPUTER:
        item["output"] = {"type": "computer_screenshot"}  # an image has no place for words
    elif kind is SHELL:
        item["output"] = shell_output(INTERRUPTED, is_failure=True)
    elif kind is APPLY_PATCH:
        item["status"] = "failed"
    elif kind is LOCAL_SHELL:
        item["status"] = "incomplete"
    return item
