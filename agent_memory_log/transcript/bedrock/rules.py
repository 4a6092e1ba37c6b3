"""What Converse requires of ``messages``, as far as the list itself and the log can tell.

- ``message_shape``: a message is a map with the role ``user``, ``assistant`` or ``system`` and a list as content.
  ``block_shape``: a block has exactly one key and what that requires, in a message of the role it belongs to; blocks
  not known may hold anything. ``empty_message``, ``empty_text``: neither content nor text is blank.
- ``first_message``: the user speaks first. ``role_order``: user and assistant alternate.
- ``unanswered_call``: every ``toolUse`` has its ``toolResult`` in the next message. ``orphan_result``: no result is
  there for another id. ``duplicate_call``, ``duplicate_result``: one call an id, one result a call. Tools the provider
  runs itself are not answered by us.
- ``call_id``, ``tool_name``: the characters and length allowed.
- ``thinking_…``: see the module ``signed_reasoning``.
- ``error_and_value``: a recorded result has an error or a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from agent_memory_log.transcript.bedrock.rendering import RULES
from agent_memory_log.transcript.bedrock.shapes import flaw_of, flaw_of_message
from agent_memory_log.transcript.findings import Finding, Path, WireMessage
from agent_memory_log.transcript.json_types import MAPS, map_in
from agent_memory_log.transcript.log_facts import Facts
from agent_memory_log.transcript.validity.rules import RuleChecker
from agent_memory_log.transcript.validity.shapes import Flaw
from agent_memory_log.transcript.validity.signed_reasoning import check_signed, in_content

_ASSISTANTS = frozenset({"toolUse", "reasoningContent", "citationsContent"})
_CALL_KEYS = frozenset({"toolUseId", "name", "input"})
_RESULT_KEYS = frozenset({"toolUseId", "content"})
_REASONING_KEYS = frozenset({"text", "signature"})


def validate(messages: Sequence[object], facts: Facts) -> list[Finding]:
    """See ``agent_memory_log.transcript.validate``."""
    checker = _Checker()
    for position, message in enumerate(cast("Sequence[WireMessage]", messages)):  # what they should be; take looks
        checker.take(position, message)
    checker.end_calls()
    check_signed(checker.signed, facts, len(messages), in_content, checker.find)
    return checker.findings


def kind_of(block: object) -> str:
    """The key of a block, which says what it is; ``""`` where there is not exactly one."""
    if not isinstance(block, MAPS):
        return ""
    known = cast("Mapping[str, object]", block)
    return next(iter(known)) if len(known) == 1 else ""


def signed_of(block: object) -> tuple[str, str] | None:
    """The signature of a reasoning block and its text, or what is encrypted of it; None for any other block."""
    if kind_of(block) != "reasoningContent":
        return None
    body = map_in(map_in(block)["reasoningContent"])
    redacted = body.get("redactedContent")
    if isinstance(redacted, str):
        return redacted, ""
    text = map_in(body.get("reasoningText"))
    signature = text.get("signature")
    return (signature, str(text.get("text", ""))) if isinstance(signature, str) and signature else None


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


class _Checker(RuleChecker):
    def __init__(self) -> None:
        super().__init__(RULES)
        self._role = ""
        self._ids: set[str] = set()

    def take(self, position: int, message: WireMessage) -> None:
        is_plain = type(message) is dict and len(message) == 2 and type(message.get("content")) is list  # noqa: PLR2004  # both
        known = message.get("role") if is_plain else ""
        flaw = None if known == "user" or known == "assistant" else flaw_of_message(message)  # noqa: PLR1714  # unhashable ones
        if flaw is not None:
            self.find(
                "message_shape", f"a message is not what Converse takes: {flaw.described()}", (position, *flaw.path)
            )
            return
        role: str = message["role"]
        content: list[Any] = message["content"]
        if not content:
            self.find("empty_message", "content must not be empty", (position, "content"))
        if role != "system":
            self._take_turn(position, role)
        if role == "user":
            self._take_user(position, content)
        else:
            self._take_blocks(position, role, content)

    def _take_turn(self, position: int, role: str) -> None:
        if not self._role and role != "user":
            self.find("first_message", "the first message must be the user's", (position,))
        elif role == self._role:
            found = f"user and assistant must alternate, and the message before is the {role}'s too: join the two"
            self.find("role_order", found, (position,))
        self._role = role
        if role == "assistant" and self.open_calls:
            self.end_calls()

    def _take_user(self, position: int, content: list[Any]) -> None:
        answered: set[str] = set()
        open_calls = self.open_calls
        for number, block in enumerate(content):
            kind = _plain_kind(block)
            if kind == "text":
                continue
            if kind != "toolResult":
                if not self._check_block(position, number, block, "user"):
                    answered.update(_claimed(block))  # what is wrong with it is said, and perhaps mended
                    continue
                if "toolResult" not in block:
                    continue
            call_id: str = block["toolResult"]["toolUseId"]
            path = (position, "content", number)
            if call_id in answered:
                self.find("duplicate_result", f"the call {call_id!r} is already answered", path)
            elif call_id not in open_calls:
                self.find("orphan_result", f"the message before has no call {call_id!r}", path)
            answered.add(call_id)
        if open_calls:
            self.end_calls(answered)

    def _take_blocks(self, position: int, role: str, content: list[Any]) -> None:
        for number, block in enumerate(content):
            kind = _plain_kind(block)
            if kind == "text":
                continue
            is_plain = role == "assistant" and kind in _ASSISTANTS
            if not is_plain and not self._check_block(position, number, block, role):
                continue
            if "toolUse" in block:
                self._take_call(block["toolUse"], (position, "content", number))
            elif "reasoningContent" in block:
                signed = signed_of(block)
                if signed is not None:
                    self.signed.append((position, number, *signed))

    def _check_block(self, position: int, number: int, block: object, role: str) -> bool:
        flaw = flaw_in(block, role)
        if flaw is not None:
            path = (position, "content", number, *flaw.path)
            self.find("block_shape", f"a block is not what Converse takes: {flaw.described()}", path)
            return False
        text = cast("Mapping[str, Any]", block).get("text", "-")
        if not text or text.isspace():
            self.find("empty_text", "text must be more than white space", (position, "content", number))
        return True

    def _take_call(self, call: Mapping[str, Any], path: Path) -> None:
        call_id: str = call["toolUseId"]
        if call_id in self._ids:
            self.find("duplicate_call", f"the id {call_id!r} was used before", (*path, "toolUse", "toolUseId"))
        if not RULES.allows_id(call_id):
            self.check_id(call_id, (*path, "toolUse", "toolUseId"))
        name: str = call["name"]
        if name not in self.names:
            self.check_name(name, (*path, "toolUse", "name"))
        self._ids.add(call_id)
        if "type" not in call:
            self.open_calls.setdefault(call_id, path)


def _claimed(block: object) -> list[str]:
    """The id that a result answers, whatever else is wrong with it."""
    call_id = map_in(map_in(block).get("toolResult")).get("toolUseId")
    return [call_id] if isinstance(call_id, str) else []
