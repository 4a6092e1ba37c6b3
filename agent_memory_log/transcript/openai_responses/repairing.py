"""Repairs a copy of ``input``. It repairs findings until no rule is broken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from agent_memory_log.events.payloads import ToolResult
from agent_memory_log.transcript.differences import same_json
from agent_memory_log.transcript.findings import Finding, WireMessage
from agent_memory_log.transcript.json_types import list_in, map_in
from agent_memory_log.transcript.log_facts import Facts
from agent_memory_log.transcript.names import UnusedIds
from agent_memory_log.transcript.openai_responses.items import is_from_model, kind_of, pair_of
from agent_memory_log.transcript.openai_responses.rendering import (
    APPLY_PATCH,
    CALLS,
    COMPUTER,
    LOCAL_SHELL,
    OUTPUT_TEXT,
    RESULTS,
    RULES,
    CallKind,
    cut_output,
    result_item,
)
from agent_memory_log.transcript.openai_responses.rules import validate
from agent_memory_log.transcript.openai_responses.shapes import flaw_of, is_sound
from agent_memory_log.transcript.validity.repairing import FROM_REPAIR, INTERRUPTED, Draft, Entry


def repair(draft: Draft, facts: Facts) -> None:
    """Change ``draft`` until it breaks no rule."""
    _Repairer(draft, facts).run()


def unbound(item: WireMessage) -> WireMessage:
    """Return an item without the id that binds it to reasoning. An assistant message keeps only its text."""
    if kind_of(item) != "message":
        return {key: value for key, value in item.items() if key != "id"}
    message: WireMessage = {"role": item.get("role"), "content": _plain_content(item.get("content"))}
    if item.get("phase") is not None:
        message["phase"] = item["phase"]
    return message


_IDS = ("duplicate_call", "call_id")


class _Repairer:
    def __init__(self, draft: Draft, facts: Facts) -> None:
        self._draft = draft
        self._facts = facts
        self._rules = facts.rules or RULES
        # Positions to remove after the current findings are repaired, and those of them that are reasoning.
        self._gone: set[int] = set()
        self._reasoning_gone: set[int] = set()
        # Without reasoning, because the signature of a reasoning item does not cover other reasoning.
        self._seen = [_as_seen(item) for item in draft.seen if kind_of(item) != "reasoning"]

    def run(self) -> None:
        while findings := self._find():
            # Only one repair for each position, because it may also resolve the position's other findings.
            first = {finding.path[0]: finding for finding in reversed(_first_of(findings))}
            chosen = {
                position: first[position]
                for position in sorted(position for position in first if isinstance(position, int))
            }
            rule = next(iter(chosen.values())).rule
            if rule == "unanswered_call":
                self._answer(chosen)
                continue
            if rule in _IDS:
                self._repair_ids()
            else:
                for position, finding in chosen.items():
                    self._repair_finding(position, finding)
                self._unbind()
            self._draft.entries = [
                entry for position, entry in enumerate(self._draft.entries) if position not in self._gone
            ]
            self._gone.clear()
            self._reasoning_gone.clear()

    def _find(self) -> list[Finding]:
        entries = self._draft.entries
        recorded = self._draft.recorded(self._facts.recorded)
        facts = replace(self._facts, recorded=recorded, edited_from=self._edited_from())
        return validate([entry.message for entry in entries], facts)

    def _edited_from(self) -> tuple[int, int] | None:
        """Return the first position that differs from what the model received, because of the log or of this repair."""
        number = 0
        log_position = self._facts.edited_from
        for position, entry in enumerate(self._draft.entries):
            if log_position is not None and entry.index >= log_position[0]:
                return position, log_position[1] if entry.index == log_position[0] else -1
            if kind_of(entry.message) == "reasoning":
                continue
            if number >= len(self._seen):
                return None  # items added at the end are not edits
            if _as_seen(entry.message) != self._seen[number]:
                return position, 0
            number += 1
        return None

    def _repair_finding(self, position: int, finding: Finding) -> None:
        rule = finding.rule
        if rule == "item_shape":
            self._repair_shape(position, finding.message)
        elif rule in ("orphan_result", "duplicate_result"):
            self._drop(position, "dropped_result", finding.message)
        elif rule == "tool_name":
            entry = self._draft.entries[position]
            self._draft.shorten_name(entry.message, self._rules, (entry.index,), entry.own or None)
        elif rule in ("item_id", "duplicate_id", "reasoning_missing"):
            self._take_id_away(position, finding.message)
        else:
            self._drop_reasoning(position, finding.message)

    def _note(self, position: int, change: str, message: str) -> None:
        entry = self._draft.entries[position]
        self._draft.note(change, message, (entry.index,), entry.own or None)

    def _drop(self, position: int, change: str, message: str) -> None:
        self._note(position, change, message)
        self._gone.add(position)

    def _repair_shape(self, position: int, message: str) -> None:
        entry = self._draft.entries[position]
        entry.message = _without_nulls(entry.message)
        completed = entry.message if is_sound(entry.message) else _completed(entry.message)
        if is_sound(completed):
            entry.message = completed
            self._note(position, "mended_message", message)
        elif kind_of(entry.message) == "reasoning":
            self._drop_reasoning(position, message)
        else:
            self._drop(position, "dropped_message", message)

    def _answer(self, positions: Iterable[int]) -> None:
        """Add a result for each call, after the other items of the same model output and their results."""
        entries = self._draft.entries
        ends = _ends_of_rounds([entry.message for entry in entries])
        answers: defaultdict[int, list[Entry]] = defaultdict(list)
        for position in sorted(positions, reverse=True):
            call = entries[position]
            call_id = call.message[CALLS[kind_of(call.message)].call_key]
            self._note(position, "answered_call", f"the call {call_id!r} has no recorded result; added {INTERRUPTED!r}")
            result = _interrupted(CALLS[kind_of(call.message)], call_id)
            answers[ends[position]].append(Entry(FROM_REPAIR, result, call.own))
        self._draft.entries = [
            entry
            for position in range(len(entries) + 1)
            for entry in (*answers.get(position, ()), *entries[position : position + 1])
        ]

    def _repair_ids(self) -> None:
        """Drop duplicate calls, and give other calls and their results a unique id.

        A result answers the latest open call with its id.
        """
        pairs = [pair_of(entry.message) for entry in self._draft.entries]
        ids = UnusedIds(self._rules, (pair[1] for pair in pairs if pair is not None))
        open_calls: defaultdict[tuple[str, str], list[WireMessage]] = defaultdict(list)
        for position, (entry, pair) in enumerate(zip(self._draft.entries, pairs, strict=True)):
            if pair is None:
                continue
            item, waiting, call_id = entry.message, open_calls[pair], pair[1]
            if kind_of(item) in RESULTS:
                if waiting:
                    call = waiting.pop()
                    self._set_call_id(position, call[CALLS[kind_of(call)].call_key])
                elif not self._rules.allows_id(call_id):
                    self._drop(position, "dropped_result", "the provider does not accept the call id of the result")
            elif waiting and _same_call(waiting[-1], item):
                self._drop(position, "dropped_call", f"the call {call_id!r} appears twice")
            else:
                if waiting or not self._rules.allows_id(call_id):
                    self._set_call_id(position, ids.unused(self._rules.wire_id(call_id) or "call"))
                waiting.append(item)

    def _set_call_id(self, position: int, call_id: str) -> None:
        item = self._draft.entries[position].message
        kind = kind_of(item)
        key = CALLS[kind].call_key if kind in CALLS else "call_id" if "call_id" in item else RESULTS[kind].id_key
        if item[key] != call_id:
            self._note(position, "renamed_call", f"the call id {item[key]!r} became {call_id!r}")
            item[key] = call_id

    def _take_id_away(self, position: int, message: str) -> None:
        """Remove the id of an item, so that the provider does not require its reasoning."""
        entry = self._draft.entries[position]
        kind = kind_of(entry.message)
        if kind == "reasoning":
            self._drop_reasoning(position, message)
            return
        entry.message = unbound(entry.message)
        if is_sound(entry.message):
            self._note(position, "removed_id", message)
        elif kind in CALLS:
            self._drop(position, "dropped_call", message)
        else:
            self._drop(position, "dropped_message", message)

    def _drop_reasoning(self, position: int, message: str) -> None:
        """Drop reasoning; ``_unbind`` then removes the ids of the items that belong to it."""
        self._drop(position, "dropped_thinking", message)
        self._reasoning_gone.add(position)

    def _unbind(self) -> None:
        """Remove the ids of items whose reasoning is dropped, because the provider would require that reasoning."""
        is_bound = False
        for position, entry in enumerate(self._draft.entries):
            if position in self._reasoning_gone:
                is_bound = True
            elif is_bound and position not in self._gone:
                item = entry.message
                is_bound = is_from_model(item) and kind_of(item) not in ("reasoning", "item_reference")
                if is_bound and "id" in item:
                    self._take_id_away(position, "the reasoning it was made with is dropped")


def _ends_of_rounds(items: Sequence[WireMessage]) -> list[int]:
    """Return for each item an index: the end of its model output and of the results of that output."""
    ends: list[int] = []
    end_of_results = end = len(items)
    for position in reversed(range(len(items))):
        ends.append(end)
        if kind_of(items[position]) not in RESULTS:
            end_of_results = position
        if not is_from_model(items[position]):
            end = end_of_results
    ends.reverse()
    return ends


def _first_of(findings: list[Finding]) -> list[Finding]:
    """Return the findings to repair first: shapes, then call ids, then others, then unanswered calls.

    Other rules need valid shapes. Calls are answered last, because earlier repairs may drop calls.
    """
    for rules in (("item_shape",), _IDS):
        matches = [finding for finding in findings if finding.rule in rules]
        if matches:
            return matches
    return [finding for finding in findings if finding.rule != "unanswered_call"] or findings


def _as_seen(item: WireMessage) -> WireMessage:
    """Return the fields of an item that signatures cover: all but the id, the status and nulls."""
    return {key: value for key, value in item.items() if value is not None and key not in ("id", "status")}


def _same_call(call: WireMessage, other: WireMessage) -> bool:
    own = {"id": None, "status": None, CALLS[kind_of(call)].call_key: None}
    return same_json({**call, **own}, {**other, **own})


def _plain_content(content: object) -> object:
    """Return the text of an assistant message, which needs no item id."""
    parts = list_in(content)
    if not parts:
        return content
    refusals = [part["refusal"] for part in map(map_in, parts) if isinstance(part.get("refusal"), str)]
    return "\n".join(piece for piece in (OUTPUT_TEXT.text_in(parts), *refusals) if piece) or parts


def _without_nulls(item: WireMessage) -> WireMessage:
    """Return the item without the nulls that SDKs write and the API refuses."""
    left = dict(item)
    while (flaw := flaw_of(left, kind_of(left))) is not None:
        if len(flaw.path) != 1 or flaw.path[0] not in left or left[str(flaw.path[0])] is not None:
            break
        del left[str(flaw.path[0])]
    return left


def _completed(item: WireMessage) -> WireMessage:
    """Return the item with missing fields added. An answer with parts that cannot be repaired becomes text."""
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
    elif kind in RESULTS and RESULTS[kind] is not APPLY_PATCH and item.get(RESULTS[kind].output) is None:
        completed[RESULTS[kind].output] = _interrupted(RESULTS[kind], "")[RESULTS[kind].output]
    if kind in CALLS or kind == "reasoning":
        completed.setdefault("status", "completed")
    return completed


def _interrupted(kind: CallKind, call_id: str) -> WireMessage:
    data = ToolResult(call_id, "", error_message=INTERRUPTED)
    item = result_item(kind, data, call_id)
    if kind is COMPUTER:
        item["output"] = cut_output(kind, data, "")
    elif kind is LOCAL_SHELL:
        item["status"] = "incomplete"
    return item
