"""Repairs a copy of Converse messages, and records every change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent_memory_log.transcript.bedrock.rendering import RULES, is_for_client
from agent_memory_log.transcript.bedrock.rules import flaw_in, kind_of, signed_of
from agent_memory_log.transcript.bedrock.shapes import flaw_of_message, flaw_of_part
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.json_types import list_in, map_in
from agent_memory_log.transcript.log_facts import Facts
from agent_memory_log.transcript.validity.repairing import INTERRUPTED, Draft
from agent_memory_log.transcript.validity.repairing_blocks import BlockRepairer, Part, Turn

_NOT_SEEN = frozenset({"reasoningContent", "cachePoint"})
"""The blocks that signatures do not cover."""


def repair(draft: Draft, facts: Facts) -> None:
    """Repair a draft; see ``agent_memory_log.transcript.repair``."""
    _Repairer(draft, facts).run()


class _Repairer(BlockRepairer):
    rules = RULES
    call_id_key = result_id_key = "toolUseId"
    results_first = False

    def read(self) -> Iterator[Turn]:
        """Yield the messages with a valid role and content. Invalid keys are removed."""
        for entry in self.draft.entries:
            flaw = flaw_of_message(entry.message)
            if flaw is not None:
                plain = {key: value for key, value in entry.message.items() if key in ("role", "content")}
                is_repaired = flaw_of_message(plain) is None
                wrong = f"Converse does not accept this message: {flaw.described()}"
                self.draft.note("mended_message" if is_repaired else "dropped_message", wrong, (entry.index,))
                if not is_repaired:
                    continue
                entry.message = plain
            turn = Turn(entry, entry.message["role"], self.parts_of(entry, entry.message["content"]))
            self._repair_parts(turn)
            yield turn

    def _repair_parts(self, turn: Turn) -> None:
        def wrong(part: Part) -> str | None:
            flaw = flaw_in(part.block, turn.role)
            if flaw is None:
                return None
            message = f"Converse does not accept this block: {flaw.described()}"
            repaired = _repaired_result(part.block)
            if flaw_in(repaired, turn.role) is not None:
                return message
            self.note("mended_part", message, part)
            part.block = repaired
            return None

        self.drop(turn, "dropped_part", wrong)

    def repair_turns(self) -> None:
        """Drop blank text, pair calls with results, and make roles alternate."""
        self.drop_blank_text(self.turns)
        self.drop_empty()
        self._join()
        self.pair_calls()
        self.drop_empty()
        self._join()

    def _join(self) -> None:
        """Join each message with the message before it if both have the same role."""
        joined: list[Turn] = []
        latest: Turn | None = None
        for turn in self.turns:
            if latest is not None and turn.role == latest.role:
                message = f"user and assistant must alternate, but the message before is also from the {turn.role}"
                self.draft.note("joined_message", message, (turn.entry.index,), turn.entry.own)
                latest.parts += turn.parts
                continue
            joined.append(turn)
            if turn.role != "system":
                latest = turn
        self.turns = joined

    def text_in(self, block: WireMessage) -> str | None:
        """Return the text of a text block."""
        return block.get("text") if len(block) == 1 else None

    def call_in(self, block: WireMessage) -> WireMessage | None:
        """Return the body of a call."""
        return block.get("toolUse") if len(block) == 1 else None

    def waits_for_result(self, call_body: WireMessage) -> bool:
        """Return whether the client runs the tool."""
        return is_for_client(call_body)

    def result_in(self, block: WireMessage) -> WireMessage | None:
        """Return the body of a result."""
        return block.get("toolResult") if len(block) == 1 else None

    def interrupted(self, call_body: WireMessage) -> WireMessage:
        """Return the result for a call that has no recorded result."""
        return {
            "toolResult": {"toolUseId": call_body["toolUseId"], "content": [{"text": INTERRUPTED}], "status": "error"}
        }

    def signed_in(self, block: WireMessage) -> tuple[str, str] | None:
        """Return the signature and the text of a reasoning block."""
        return signed_of(block)

    def as_seen(self, message: WireMessage) -> tuple[object, list[Any]]:
        """Return a message without reasoning and cache marks."""
        blocks = list_in(message.get("content"))
        return {**message, "content": None}, [block for block in blocks if kind_of(block) not in _NOT_SEEN]


def _repaired_result(block: object) -> WireMessage:
    """Return a result without its invalid parts. For a block that is not a result, return an invalid block."""
    body = map_in(map_in(block).get("toolResult"))
    repaired: WireMessage = {
        "toolUseId": body.get("toolUseId"),
        "content": [part for part in list_in(body.get("content")) if flaw_of_part(part) is None],
    }
    if body.get("status") in ("success", "error"):
        repaired["status"] = body["status"]
    return {"toolResult": repaired}
