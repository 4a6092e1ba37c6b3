"""Repairs a copy of Gemini contents, and records every change."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.gemini.open_calls import OpenCalls
from agent_memory_log.transcript.gemini.rendering import (
    ERROR,
    MODEL,
    RESULT,
    RULES,
    SIGNATURE,
    call_in,
    result_in,
    snake_case,
)
from agent_memory_log.transcript.gemini.rules import flaw_in, is_model, needs_signatures, unsigned_calls
from agent_memory_log.transcript.gemini.shapes import flaw_of_message
from agent_memory_log.transcript.log_facts import Facts
from agent_memory_log.transcript.validity.repairing import FROM_REPAIR, INTERRUPTED, Draft, Entry
from agent_memory_log.transcript.validity.repairing_blocks import BlockRepairer, Part, Turn

PLACEHOLDER = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
"""The signature that Google's documentation names for calls that Gemini did not make, in base64."""

OPENING = "(The beginning of the conversation is missing.)"
"""The text of the user before a call that begins the conversation."""

_NO_ID = object()


def repair(draft: Draft, facts: Facts) -> None:
    """Repair a draft; see ``agent_memory_log.transcript.repair``."""
    _Repairer(draft, facts).run()


class _Repairer(BlockRepairer):
    """While it runs, each call has an id, and each result has the id of its call."""

    rules = RULES
    part_key = "parts"
    call_id_key = result_id_key = "id"
    results_first = False
    ids_repeat = True

    def __init__(self, draft: Draft, facts: Facts) -> None:
        super().__init__(draft, facts)
        # The bodies of calls and results that got an id, and the id before.
        self._given: list[tuple[WireMessage, object]] = []

    def run(self) -> None:
        """Repair the draft."""
        super().run()
        self._take_ids_back()
        if needs_signatures(self.facts):
            self._sign()

    def read(self) -> Iterator[Turn]:
        """Yield the contents with a valid role and parts."""
        open_calls: OpenCalls[WireMessage] = OpenCalls()
        for entry in self.draft.entries:
            flaw = flaw_of_message(entry.message)
            if flaw is not None:
                wrong = f"Gemini does not accept this content: {flaw.described()}"
                self.draft.note("dropped_message", wrong, (entry.index,))
                continue
            of_model = is_model(entry.message)
            turn = Turn(entry, MODEL if of_model else "user", self.parts_of(entry, entry.message["parts"] or []))
            self._drop_wrong_parts(turn, of_model=of_model)
            if of_model:
                open_calls.begin_turn()
            for part in turn.parts:
                self._give_id(part, open_calls)
            yield turn

    def _drop_wrong_parts(self, turn: Turn, *, of_model: bool) -> None:
        def wrong(part: Part) -> str | None:
            flaw = flaw_in(part.block, of_model=of_model)
            return None if flaw is None else f"Gemini does not accept this part: {flaw.described()}"

        self.drop(turn, "dropped_part", wrong)

    def _give_id(self, part: Part, open_calls: OpenCalls[WireMessage]) -> None:
        call, result = call_in(part.block), result_in(part.block)
        if call is not None:
            call_id = call.get("id") or ""
            if not call_id:
                self._give(call, f"\0{len(self._given)}")  # no provider sends such an id
            open_calls.add(call_id, call["name"], call)
        elif result is not None:
            call_id = result.get("id") or ""
            answered = open_calls.answer(call_id, result["name"])
            if answered is not None and answered["id"] != call_id:
                self._give(result, answered["id"])
            elif not call_id:
                self._give(result, f"\0{len(self._given)}")

    def _give(self, body: WireMessage, call_id: str) -> None:
        self._given.append((body, body.get("id", _NO_ID)))
        body["id"] = call_id

    def _take_ids_back(self) -> None:
        """Give each call and result its own id again. A result without an id gets the name of its call."""
        names: dict[str, str] = {}
        with_new_id = {id(body) for body, _ in self._given}
        for entry in self.draft.entries:
            for part in entry.message["parts"]:
                call, result = call_in(part), result_in(part)
                if call is not None:
                    names[call["id"]] = call["name"]
                elif result is not None:
                    answered = result["id"]
                    if id(result) in with_new_id or answered.startswith("\0"):
                        result["name"] = names[answered]
                    if answered.startswith("\0"):
                        self._given.append((result, _NO_ID))
        for body, own_id in reversed(self._given):
            if own_id is _NO_ID:
                body.pop("id", None)
            else:
                body["id"] = own_id

    def _sign(self) -> None:
        """Mark the calls that must have a signature and have none."""
        contents = [entry.message for entry in self.draft.entries]
        for position, number in unsigned_calls(contents):
            entry = self.draft.entries[position]
            message = "the first call of a step must have a thoughtSignature"
            self.draft.note("marked_call", message, (max(entry.index, 0), "parts", number), entry.parts[number])
            part = contents[position]["parts"][number]
            part.pop(snake_case(SIGNATURE), None)  # it may be null
            part[SIGNATURE] = PLACEHOLDER

    def repair_turns(self) -> None:
        """Pair calls with results, and put each call after a content of the user."""
        self.drop_empty()
        self._join()
        self.pair_calls()
        self.drop_empty()
        self._join()
        if self.turns and self._has_call(self.turns[0]):
            first = self.turns[0]
            message = "a content with calls must follow a content of the user or a result"
            self.draft.note("added_opening", message, (first.entry.index,), first.entry.own)
            opening = Part({"text": OPENING}, 0, ())
            self.turns.insert(0, Turn(Entry(FROM_REPAIR, {"role": "user"}, 0), "user", [opening]))

    def _join(self) -> None:
        """Join contents of the model that follow each other, if one of them has calls."""
        joined: list[Turn] = []
        for role, group in groupby(self.turns, key=lambda turn: turn.role):
            first, *later = group
            joined.append(first)
            if role != MODEL or not any(map(self._has_call, (first, *later))):
                joined += later
                continue
            for turn in later:
                message = "a content with calls must follow a content of the user or a result"
                self.draft.note("joined_message", message, (turn.entry.index,), turn.entry.own)
                first.parts += turn.parts
        self.turns = joined

    @staticmethod
    def _has_call(turn: Turn) -> bool:
        return turn.role == MODEL and any(call_in(part.block) is not None for part in turn.parts)

    def text_in(self, block: WireMessage) -> str | None:
        """Return the text of a text part."""
        text = block.get("text")
        return text if isinstance(text, str) else None

    def call_in(self, block: WireMessage) -> WireMessage | None:
        """Return the body of a call."""
        return call_in(block)

    def result_in(self, block: WireMessage) -> WireMessage | None:
        """Return the body of a result."""
        return result_in(block)

    def interrupted(self, call_body: WireMessage) -> WireMessage:
        """Return the result for a call that has no recorded result."""
        return {RESULT: {"id": call_body["id"], "name": call_body["name"], "response": {ERROR: INTERRUPTED}}}

    def signed_in(self, block: WireMessage) -> tuple[str, str] | None:
        """Return None: a signature of Gemini covers no content before it."""
        del block
        return None

    def as_seen(self, message: WireMessage) -> tuple[object, list[Any]]:
        """Return nothing, because signatures cover no content."""
        del message
        return None, []
