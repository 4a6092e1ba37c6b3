"""What Converse requires of ``messages``, as far as the list itself and the log can tell.

- ``message_shape``: a message is a map with the role ``user``, ``assistant`` or ``system`` and a list as content.
  ``block_shape``: a block has exactly one key and what that requires, in a message of the role it belongs to; blocks
  not known may hold anything. ``empty_message``, ``empty_text``: neither content nor text is blank.
- ``first_message``: the user speaks first. ``role_order``: user and assistant alternate.
- ``unanswered_call``: every ``toolUse`` has its ``toolResult`` in the next message. ``orphan_result``: no result is
  there for another id. ``duplicate_call``, ``duplicate_result``: one call an id, one result a call. Tools the provider
  runs itself are not answered by us.
- ``call_id``, ``tool_name``: the characters and length allowed.
- ``thinking_edited``, ``thinking_order``: signed reasoning is as it was recorded, once each and in that order.
  ``thinking_prefix``: what stands before it is what it was signed with, system prompt and tools included.
- ``error_and_value``: a recorded result has an error or a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.bedrock.rendering import RULES
from agent_memory_log.transcript.bedrock.shapes import flaw_of, flaw_of_message
from agent_memory_log.transcript.kinds import MAPS
from agent_memory_log.transcript.model import Facts, Finding, Message, Path
from agent_memory_log.transcript.shapes import Flaw

_ASSISTANTS = frozenset({"toolUse", "reasoningContent", "citationsContent"})
_CALL_KEYS = frozenset({"toolUseId", "name", "input"})
_RESULT_KEYS = frozenset({"toolUseId", "content"})
_REASONING_KEYS = frozenset({"text", "signature"})


def validate(messages: Sequence[object], facts: Facts) -> list[Finding]:
    """See ``agent_memory_log.transcript.validate``."""
    scan = _Scan(facts, len(messages))
    for place, message in enumerate(cast("Sequence[Message]", messages)):  # what they should be; take looks
        scan.take(place, message)
    scan.end()
    scan.findings.sort(key=_by_place)
    return scan.findings


def kind_of(block: object) -> str:
    """The key of a block, which says what it is; ``""`` where there is not exactly one."""
    if not isinstance(block, MAPS):
        return ""
    known = cast("Mapping[str, object]", block)
    return next(iter(known)) if len(known) == 1 else ""


def signed_of(block: object) -> tuple[str, str] | None:
    """The signature of a reasoning block and its text, or what is encrypted of it; None for any other block."""
    if not isinstance(block, MAPS) or len(cast("Mapping[str, Any]", block)) != 1:
        return None
    body = cast("Mapping[str, Any]", block).get("reasoningContent")
    if not isinstance(body, MAPS):
        return None
    known = cast("Mapping[str, Any]", body)
    redacted = known.get("redactedContent")
    if isinstance(redacted, str):
        return redacted, ""
    inner = known.get("reasoningText")
    if not isinstance(inner, MAPS):
        return None
    text = cast("Mapping[str, Any]", inner)
    signature = text.get("signature")
    return (signature, cast("str", text.get("text"))) if isinstance(signature, str) and signature else None


def flaw_in(block: object, role: str) -> Flaw | None:
    """The first thing that is wrong with a block in a message of ``role``."""
    flaw = flaw_of(block)
    if flaw is not None:
        return flaw
    known = cast("Mapping[str, Any]", block)
    kind = kind_of(block)
    if kind in _ASSISTANTS and role != "assistant":
        return Flaw((), f"a {kind} belongs in a message of the assistant's")
    if kind == "toolResult" and role != "user" and not (role == "assistant" and "type" in known["toolResult"]):
        return Flaw((), "a toolResult belongs in a message of the user's")
    return None


def _plain_kind(block: dict[str, Any]) -> str:
    """The kind of a block that is what nearly all of a long history are, with nothing wrong; ``""``: look closer."""
    if type(block) is not dict or len(block) != 1:
        return ""
    kind, body = next(iter(block.items()))
    if kind == "text":
        return kind if type(body) is str and body and not body.isspace() else ""
    is_plain = _PLAIN.get(kind)
    return kind if is_plain is not None and is_plain(body) else ""


def _is_plain_call(call: dict[str, Any]) -> bool:
    if type(call) is not dict or call.keys() != _CALL_KEYS:
        return False
    return type(call["toolUseId"]) is str and type(call["name"]) is str and type(call["input"]) is dict


def _is_plain_result(result: dict[str, Any]) -> bool:
    if type(result) is not dict or result.keys() != _RESULT_KEYS:
        return False
    content: list[Any] = result["content"]
    if type(result["toolUseId"]) is not str or type(content) is not list or len(content) != 1:
        return False
    part: dict[str, Any] = content[0]
    return type(part) is dict and len(part) == 1 and type(part.get("text")) is str


def _is_plain_reasoning(body: dict[str, Any]) -> bool:
    if type(body) is not dict or len(body) != 1:
        return False
    inner: dict[str, Any] | None = body.get("reasoningText")
    if type(inner) is not dict or inner.keys() != _REASONING_KEYS:
        return False
    return type(inner["text"]) is str and type(inner["signature"]) is str


_PLAIN: dict[str, Callable[[dict[str, Any]], bool]] = {
    "toolUse": _is_plain_call,
    "toolResult": _is_plain_result,
    "reasoningContent": _is_plain_reasoning,
}


class _Scan:
    def __init__(self, facts: Facts, length: int) -> None:
        self.findings: list[Finding] = []
        self._recorded = facts.recorded
        self._edited_from = facts.edited_from
        self._stale = facts.stale_places(length)
        self._role = ""
        self._ids: set[str] = set()
        self._names: set[str] = set()
        self._asked: dict[str, Path] = {}
        self._signed: set[str] = set()
        self._newest = -1

    def take(self, place: int, message: Message) -> None:
        is_plain = type(message) is dict and len(message) == 2 and type(message.get("content")) is list  # noqa: PLR2004  # both
        known = message.get("role") if is_plain else ""
        flaw = None if known == "user" or known == "assistant" else flaw_of_message(message)  # noqa: PLR1714  # unhashable ones
        if flaw is not None:
            self._find("message_shape", f"a message is not what Converse takes: {flaw.told()}", (place, *flaw.where))
            return
        role: str = message["role"]
        content: list[Any] = message["content"]
        if not content:
            self._find("empty_message", "content must not be empty", (place, "content"))
        if role != "system":
            self._take_turn(place, role)
        if role == "user":
            self._take_user(place, content)
        else:
            self._take_blocks(place, role, content)

    def end(self) -> None:
        self._end_calls(set())
        if self._recorded is not None:
            for where in self._recorded.conflicts:
                self._find("error_and_value", "the result has both an error and a value", where)

    def _find(self, rule: str, message: str, where: Path) -> None:
        self.findings.append(Finding(rule, message, where))

    def _take_turn(self, place: int, role: str) -> None:
        if not self._role and role != "user":
            self._find("first_message", "the first message must be the user's", (place,))
        elif role == self._role:
            found = f"user and assistant must alternate, and the message before is the {role}'s too: join the two"
            self._find("role_order", found, (place,))
        self._role = role
        if role == "assistant" and self._asked:
            self._end_calls(set())

    def _end_calls(self, answered: set[str]) -> None:
        for call_id, where in self._asked.items():
            if call_id not in answered:
                self._find("unanswered_call", f"the next message has no toolResult for the call {call_id!r}", where)
        self._asked = {}

    def _take_user(self, place: int, content: list[Any]) -> None:
        answered: set[str] = set()
        asked = self._asked
        for number, block in enumerate(content):
            kind = _plain_kind(block)
            if kind == "text":
                continue
            if kind != "toolResult":
                if not self._check_block(place, number, block, "user"):
                    answered.update(_claimed(block))  # what is wrong with it is said, and perhaps mended
                    continue
                if "toolResult" not in block:
                    continue
            call_id: str = block["toolResult"]["toolUseId"]
            where = (place, "content", number)
            if call_id in answered:
                self._find("duplicate_result", f"the call {call_id!r} is already answered", where)
            elif call_id not in asked:
                self._find("orphan_result", f"the message before has no call {call_id!r}", where)
            answered.add(call_id)
        if asked:
            self._end_calls(answered)

    def _take_blocks(self, place: int, role: str, content: list[Any]) -> None:
        for number, block in enumerate(content):
            kind = _plain_kind(block)
            if kind == "text":
                continue
            is_plain = role == "assistant" and kind in _ASSISTANTS
            if not is_plain and not self._check_block(place, number, block, role):
                continue
            if "toolUse" in block:
                self._take_call(block["toolUse"], (place, "content", number))
            elif "reasoningContent" in block:
                signed = signed_of(block)
                if signed is not None:
                    self._take_signed(signed[0], signed[1], place, number)

    def _check_block(self, place: int, number: int, block: object, role: str) -> bool:
        flaw = flaw_in(block, role)
        if flaw is not None:
            where = (place, "content", number, *flaw.where)
            self._find("block_shape", f"a block is not what Converse takes: {flaw.told()}", where)
            return False
        text = cast("Mapping[str, Any]", block).get("text", "-")
        if not text or text.isspace():
            self._find("empty_text", "text must be more than white space", (place, "content", number))
        return True

    def _take_call(self, call: Mapping[str, Any], where: Path) -> None:
        call_id: str = call["toolUseId"]
        if call_id in self._ids or not RULES.allows_id(call_id):
            self._check_id(call_id, where)
        name: str = call["name"]
        if name not in self._names:
            self._check_name(name, where)
        self._ids.add(call_id)
        if "type" not in call:
            self._asked.setdefault(call_id, where)

    def _check_id(self, call_id: str, where: Path) -> None:
        if not RULES.allows_id(call_id):
            found = f"an id must have 1 to {RULES.longest_id} letters, digits, '_' or '-', found {describe(call_id)}"
            self._find("call_id", found, (*where, "toolUse", "toolUseId"))
        if call_id in self._ids:
            self._find("duplicate_call", f"the id {call_id!r} was used before", (*where, "toolUse", "toolUseId"))

    def _check_name(self, name: str, where: Path) -> None:
        if RULES.allows_name(name):
            self._names.add(name)
            return
        longest = RULES.longest_name
        found = f"a name must have 1 to {longest} letters, digits, '_' or '-', found {describe(name)}"
        self._find("tool_name", found, (*where, "toolUse", "name"))

    def _take_signed(self, signature: str, text: str, place: int, number: int) -> None:
        where = (place, "content", number)
        if signature in self._signed:
            self._find("thinking_order", "the same block stands before it", where)
            return
        self._signed.add(signature)
        if self._recorded is not None:
            known = self._recorded.signed.get(signature)
            if known is None or known[1] != text:
                self._find("thinking_edited", "the log holds no such block", where)
                return
            if known[0] <= self._newest:
                self._find("thinking_order", "it was recorded before the block that precedes it", where)
            self._newest = max(self._newest, known[0])
        if self._edited_from is not None and (place, number) >= self._edited_from:
            self._find("thinking_prefix", "what stands before it is not what it was signed with", where)
        elif self._stale is not None and self._stale(place):
            self._find("thinking_prefix", "it was signed with another system prompt or other tools", where)


def _claimed(block: object) -> list[str]:
    """The id that a result answers, whatever else is wrong with it."""
    body = cast("Mapping[str, object]", block).get("toolResult") if isinstance(block, Mapping) else None
    call_id = cast("Mapping[str, object]", body).get("toolUseId") if isinstance(body, Mapping) else None
    return [call_id] if isinstance(call_id, str) else []


def _by_place(finding: Finding) -> tuple[int, int]:
    where = finding.where
    place = where[0] if where and isinstance(where[0], int) else 0
    number = where[2] if len(where) > 2 else -1  # noqa: PLR2004  # message, key, block
    return place, number if isinstance(number, int) else -1
