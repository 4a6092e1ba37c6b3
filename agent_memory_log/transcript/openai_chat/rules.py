"""What Chat Completions requires of ``messages``, as far as the list and the log behind it can tell.

- ``message_shape``: a message is a map with a known role and the content that role has. ``call_shape``: a call is a map
  with an id, a type, a name and arguments as text.
- ``empty_message``: an assistant's message says something or calls a tool; ``tool_calls`` is not empty.
- ``unanswered_call``: every call has its tool message directly after the assistant's message, in any order.
  ``orphan_result``: no tool message is there for another id. ``duplicate_call``, ``duplicate_result``: one call an id
  in a message, one result a call; a later message may use an id again.
- ``call_id``, ``tool_name``: the characters and the length that are allowed.
- ``error_and_value``: a recorded result has an error or a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.kinds import is_list, is_map
from agent_memory_log.transcript.model import Facts, Finding, Path
from agent_memory_log.transcript.openai_chat.rendering import RULES

LEGACY_ID = "\0function_call"
"""What stands for the id of a legacy call, which has none."""

SPEAKERS = frozenset({"system", "developer", "user"})


def content_shape(role: str, content: object, *, optional: bool = False) -> str | None:
    """What is wrong with the content of a message, None if nothing is."""
    if isinstance(content, str) or (optional and content is None):
        return None
    if not is_list(content) or not content:
        return f"the content of a {role} message must be text or a list that is not empty, found {describe(content)}"
    return next((wrong for part in content if (wrong := _part_shape(role, part)) is not None), None)


def _part_shape(role: str, part: object) -> str | None:
    if not is_map(part):
        return f"a part must be a map, found {describe(part)}"
    kind = part.get("type")
    if not isinstance(kind, str) or not kind:
        return f"a part needs a type, found {describe(kind)}"
    if kind == "text" and not isinstance(part.get("text"), str):
        return f"a text part needs text, found {describe(part.get('text'))}"
    allowed = _PARTS.get(role, _SPEAKERS_PARTS)
    return None if kind in allowed else f"a part of the type {kind!r} does not belong in a {role} message"


_SPEAKERS_PARTS = frozenset({"text"})
_PARTS: dict[str, frozenset[str]] = {
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
}


def call_shape(call: object) -> str | None:
    """What is wrong with an item of ``tool_calls``, None if nothing is."""
    if not is_map(call):
        return f"a call must be a map, found {describe(call)}"
    kind = call.get("type")
    if kind not in ("function", "custom"):
        return f"a call's type must be function or custom, found {describe(kind)}"
    body = call.get(kind)
    text = "arguments" if kind == "function" else "input"
    if not is_map(body) or not isinstance(body.get("name"), str) or not isinstance(body.get(text), str):
        return f"{kind} must be a map with name and {text}, both text, found {describe(body)}"
    return None if isinstance(call.get("id"), str) else f"a call needs an id, found {describe(call.get('id'))}"


def legacy_shape(call: object) -> str | None:
    """What is wrong with a ``function_call``, None if nothing is."""
    if not is_map(call):
        return f"function_call must be a map, found {describe(call)}"
    if isinstance(call.get("name"), str) and isinstance(call.get("arguments"), str):
        return None
    return f"function_call needs name and arguments, both text, found {describe(call)}"


def name_of(call: Mapping[str, Any]) -> str:
    """The tool's name in a call of a sound shape."""
    return cast("str", call[call["type"]]["name"])


def validate(messages: Sequence[object], facts: Facts) -> list[Finding]:
    """See ``agent_memory_log.transcript.validate``."""
    checker = _Checker()
    checker.check(messages)
    for where in facts.recorded.conflicts if facts.recorded is not None else ():
        checker.find("error_and_value", "the result has both an error and a value", *where)
    checker.findings.sort(key=lambda finding: cast("int", finding.where[0]))
    return checker.findings


class _Checker:
    def __init__(self) -> None:
        self.findings: list[Finding] = []
        # The calls of the latest assistant message, with their places; those of them that have no answer yet.
        self._asked: dict[str, Path] = {}
        self._waiting: dict[str, Path] = {}

    def find(self, rule: str, message: str, *where: int | str) -> None:
        self.findings.append(Finding(rule, message, where))

    def check(self, messages: Sequence[object]) -> None:
        for index, message in enumerate(messages):
            role = message.get("role") if is_map(message) else None
            if is_map(message) and (role == "tool" or role == "function"):  # noqa: PLR1714  # a role may be unhashable
                self._result(index, message, role)
                continue
            if self._waiting:
                self._unanswered()
            self._asked = {}
            if not is_map(message):
                self.find("message_shape", f"a message must be a map, found {describe(message)}", index)
            elif role == "assistant":
                self._assistant(index, message)
            elif isinstance(role, str) and role in SPEAKERS:
                content = message.get("content")
                wrong = None if isinstance(content, str) else content_shape(role, content)
                if wrong is not None:
                    self.find("message_shape", wrong, index, "content")
            else:
                self.find("message_shape", f"unknown role {describe(role)}", index)
        self._unanswered()

    def _unanswered(self) -> None:
        for call_id, where in self._waiting.items():
            named = "the function_call" if call_id == LEGACY_ID else f"the call {call_id!r}"
            self.find("unanswered_call", f"no message directly after it answers {named}", *where)
        self._waiting = {}

    def _result(self, index: int, message: dict[str, Any], role: str) -> None:
        call_id = LEGACY_ID if role == "function" else message.get("tool_call_id")
        content = message.get("content")
        if not isinstance(content, str):
            wrong = content_shape(role, content, optional=role == "function")
            if wrong is not None:
                self.find("message_shape", wrong, index, "content")
        if not isinstance(call_id, str):
            self.find("message_shape", f"tool_call_id must be text, found {describe(call_id)}", index)
        elif role == "function" and not isinstance(message.get("name"), str):
            self.find("message_shape", f"a function message needs a name, found {describe(message.get('name'))}", index)
        elif self._waiting.pop(call_id, None) is None:
            if call_id in self._asked:
                self.find("duplicate_result", "the call has a result", index)
            else:
                self.find("orphan_result", f"the assistant message before has no call {call_id!r}", index)

    def _assistant(self, index: int, message: dict[str, Any]) -> None:
        content = message.get("content")
        calls = message.get("tool_calls")
        legacy = message.get("function_call")
        if content is not None and not isinstance(content, str):
            wrong = content_shape("assistant", content)
            if wrong is not None:
                self.find("message_shape", wrong, index, "content")
        if "tool_calls" in message:
            if is_list(calls) and calls:
                for place, call in enumerate(calls):
                    self._call(call, index, place)
            else:
                rule = "empty_message" if calls == [] else "message_shape"
                found = f"tool_calls must hold calls or be absent, found {describe(calls)}"
                self.find(rule, found, index, "tool_calls")
        if legacy is not None:
            self._legacy(index, legacy)
        elif content is None and not calls and message.get("refusal") is None and message.get("audio") is None:
            self.find("empty_message", "an assistant's message must say something or call a tool", index)

    def _legacy(self, index: int, call: object) -> None:
        wrong = legacy_shape(call)
        where: Path = (index, "function_call")
        if wrong is not None:
            self.find("call_shape", wrong, *where)
            return
        self._asked[LEGACY_ID] = self._waiting[LEGACY_ID] = where
        self._name(cast("dict[str, Any]", call)["name"], *where)

    def _call(self, unsure: object, index: int, place: int) -> None:
        wrong = call_shape(unsure)
        where: Path = (index, "tool_calls", place)
        if wrong is not None:
            self.find("call_shape", wrong, *where)
            return
        call = cast("dict[str, Any]", unsure)
        call_id = call["id"]
        if call_id in self._asked:
            self.find("duplicate_call", f"the message has another call {call_id!r}", *where)
        elif not RULES.allows_id(call_id):
            found = f"an id must have 1 to {RULES.longest_id} characters, found {describe(call_id)}"
            self.find("call_id", found, *where)
        self._asked[call_id] = self._waiting[call_id] = where
        self._name(name_of(call), *where)

    def _name(self, name: str, *where: int | str) -> None:
        if not RULES.allows_name(name):
            found = f"a tool's name must match [a-zA-Z0-9_-]{{1,{RULES.longest_name}}}, found {describe(name)}"
            self.find("tool_name", found, *where)
