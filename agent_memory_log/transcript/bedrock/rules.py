"""Checks the rules of Converse for ``messages``, as far as the messages and the log show.

- ``message_shape``: a message is a map. Its role is ``user``, ``assistant`` or ``system``, and its content is a list.
- ``block_shape``: a block has exactly one key with a valid value, and the role allows it. Unknown blocks are allowed.
- ``empty_message``, ``empty_text``: content and text are not empty, and a message with text has some that is not blank.
- ``role_order``: user and assistant alternate.
- ``unanswered_call``: every ``toolUse`` has its ``toolResult`` in the next message, unless the provider runs the tool.
- ``orphan_result``: every result has its call in the previous message.
- ``duplicate_call``, ``duplicate_result``: an id belongs to one call, and a call has one result.
- ``call_id``, ``tool_name``: ids and names have the allowed characters and length.
- ``thinking_…``: see the module ``signed_reasoning``.
- ``error_and_value``: a recorded result does not have both an error and a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from agent_memory_log.transcript.bedrock.rendering import RULES, is_for_client
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
    """Return the findings; see ``agent_memory_log.transcript.validate``."""
    checker = _Checker()
    for position, message in enumerate(cast("Sequence[WireMessage]", messages)):  # take() checks the type
        checker.take(position, message)
    checker.end_calls()
    check_signed(checker.signed, facts, len(messages), in_content, checker.find)
    return checker.findings


def kind_of(block: object) -> str:
    """Return the key of a block, which names its kind; ``""`` if it does not have exactly one key."""
    if not isinstance(block, MAPS):
        return ""
    keys = cast("Mapping[str, object]", block)
    return next(iter(keys)) if len(keys) == 1 else ""


def signed_of(block: object) -> tuple[str, str] | None:
    """Return the signature and the text of a reasoning block. Encrypted content is a signature without text.

    Returns None for any other block.
    """
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
    """Return the first flaw of a block in a message of ``role``, or None."""
    flaw = flaw_of(block)
    if flaw is not None:
        return flaw
    fields = cast("Mapping[str, Any]", block)
    kind = kind_of(block)
    if kind in _ASSISTANTS and role != "assistant":
        return Flaw((), f"a {kind} belongs in an assistant message")
    if kind == "toolResult" and role != "user" and not (role == "assistant" and "type" in fields["toolResult"]):
        return Flaw((), "a toolResult belongs in a user message")
    return None


def _plain_kind(block: dict[str, Any]) -> str:
    """Return the kind of a common, valid block; ``""`` if the block needs a full check."""
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
        # The position of the latest message that was searched for text, and whether all its text is blank.
        self._blank = (-1, False)

    def take(self, position: int, message: WireMessage) -> None:
        is_plain = type(message) is dict and len(message) == 2 and type(message.get("content")) is list  # noqa: PLR2004
        role_or_none = message.get("role") if is_plain else ""
        flaw = None if role_or_none == "user" or role_or_none == "assistant" else flaw_of_message(message)  # noqa: PLR1714  # a role may be unhashable
        if flaw is not None:
            self.find(
                "message_shape", f"Converse does not accept this message: {flaw.described()}", (position, *flaw.path)
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
        if role == self._role:
            message = f"user and assistant must alternate, but the message before is also from the {role}: join the two"
            self.find("role_order", message, (position,))
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
                if not self._check_block(position, number, content, "user"):
                    answered.update(_claimed(block))  # it has a finding already, and may be repaired
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
            if not is_plain and not self._check_block(position, number, content, role):
                continue
            if "toolUse" in block:
                self._take_call(block["toolUse"], (position, "content", number))
            elif "reasoningContent" in block:
                signed = signed_of(block)
                if signed is not None:
                    self.signed.append((position, number, *signed))

    def _check_block(self, position: int, number: int, content: Sequence[object], role: str) -> bool:
        block = content[number]
        flaw = flaw_in(block, role)
        if flaw is not None:
            path = (position, "content", number, *flaw.path)
            self.find("block_shape", f"Converse does not accept this block: {flaw.described()}", path)
            return False
        text = cast("Mapping[str, Any]", block).get("text", "-")
        if not text:
            self.find("empty_text", "text must not be empty", (position, "content", number))
        elif text.isspace() and self._has_only_blank_text(position, content):
            self.find("empty_text", "text must be more than white space", (position, "content", number))
        return True

    def _has_only_blank_text(self, position: int, content: Sequence[object]) -> bool:
        if self._blank[0] != position:
            texts = [text for block in content if isinstance(text := map_in(block).get("text"), str)]
            self._blank = (position, not any(text and not text.isspace() for text in texts))
        return self._blank[1]

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
        if is_for_client(call):
            self.open_calls.setdefault(call_id, path)


def _claimed(block: object) -> list[str]:
    """Return the id of the call that a result answers, even if the result is invalid."""
    call_id = map_in(map_in(block).get("toolResult")).get("toolUseId")
    return [call_id] if isinstance(call_id, str) else []
