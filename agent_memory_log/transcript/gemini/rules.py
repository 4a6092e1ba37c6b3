"""Checks the rules of Gemini for ``contents``, as far as the contents and the request show.

- ``message_shape``: a content is a map with ``parts``. Its role is ``user``, ``model``, ``function`` or ``tool``, or
  absent.
- ``block_shape``: a part holds exactly one kind of data with a valid value, and the role allows it.
- ``empty_message``: a content has a part.
- ``call_order``: a content with calls follows a content of the user.
- ``unanswered_call``: every call has its result in the next content.
- ``orphan_result``: every result has its call in the content before it, by id, or by name and order.
- ``duplicate_call``, ``duplicate_result``: an id belongs to one call of a turn, and a call has one result.
- ``tool_name``: a name has the allowed characters and length.
- ``missing_signature``: since Gemini 3, the first call of each step in the current turn has a ``thoughtSignature``. The
  current turn begins with the last text of the user. The request must name the model.
- ``error_and_value``: a recorded result does not have both an error and a value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from agent_memory_log.transcript.findings import Finding, Path, WireMessage
from agent_memory_log.transcript.gemini.open_calls import OpenCalls
from agent_memory_log.transcript.gemini.rendering import (
    CALL,
    MODEL,
    RESULT,
    RULES,
    SIGNATURE,
    call_in,
    key_in,
    result_in,
)
from agent_memory_log.transcript.gemini.shapes import base64_text, flaw_of, flaw_of_message
from agent_memory_log.transcript.json_types import list_in
from agent_memory_log.transcript.log_facts import Facts
from agent_memory_log.transcript.validity.rules import RuleChecker
from agent_memory_log.transcript.validity.shapes import Flaw

_VERSION = re.compile(r"(?:^|/)gemini-(\d+)")
_FIRST_WITH_SIGNATURES = 3


def validate(messages: Sequence[object], facts: Facts) -> list[Finding]:
    """Return the findings; see ``agent_memory_log.transcript.validate``."""
    checker = _Checker()
    contents = cast("Sequence[WireMessage]", messages)  # take() checks the type
    for position, message in enumerate(contents):
        checker.take(position, message)
    checker.end_calls()
    if needs_signatures(facts):
        problem = "Gemini 3 refuses a step whose first call has no thoughtSignature: send back the recorded one"
        for position, number in unsigned_calls(contents):
            checker.find("missing_signature", problem, (position, "parts", number))
    return checker.findings


def is_model(message: WireMessage) -> bool:
    """Return whether a content is the model's."""
    return message.get("role") == MODEL


def needs_signatures(facts: Facts) -> bool:
    """Return whether the model of the request requires signatures."""
    model = facts.request.get("model")
    version = _VERSION.search(model) if isinstance(model, str) else None
    return version is not None and int(version.group(1)) >= _FIRST_WITH_SIGNATURES


def unsigned_calls(contents: Sequence[object]) -> list[tuple[int, int]]:
    """Return the indexes of each content and part that must have a signature and has none."""
    unsigned: list[tuple[int, int]] = []
    for position, message in enumerate(contents):
        if flaw_of_message(message) is not None:
            continue
        content = cast("WireMessage", message)
        parts = list_in(content["parts"])
        if not is_model(content):
            if any(result_in(part) is None for part in parts):
                unsigned = []
            continue
        number = next((number for number, part in enumerate(parts) if call_in(part) is not None), None)
        if number is not None and not key_in(parts[number], SIGNATURE):
            unsigned.append((position, number))
    return unsigned


def flaw_in(part: object, *, of_model: bool) -> Flaw | None:
    """Return the first flaw of a part in a content of the model or of the user, or None."""
    flaw = flaw_of(part)
    if flaw is not None:
        return flaw
    if not of_model and call_in(part) is not None:
        return Flaw((), f"a {CALL} belongs in a content of the model")
    if of_model and result_in(part) is not None:
        return Flaw((), f"a {RESULT} belongs in a content of the user")
    return None


def _plain_kind(part: dict[str, Any]) -> str:
    """Return the kind of a common, valid part; ``""`` if the part needs a full check."""
    if type(part) is not dict or not part:
        return ""
    if len(part) == 1:
        kind, body = next(iter(part.items()))
        if kind == "text":
            return kind if type(body) is str else ""
        return kind if kind in _VALUE_KEYS and _is_plain_body(body, _VALUE_KEYS[kind]) else ""
    is_thought = part.keys() <= _THOUGHT_KEYS and type(part.get("text")) is str
    is_thought = is_thought and type(part.get("thought", True)) is bool
    return "text" if is_thought and base64_text(part.get(SIGNATURE, "")) is None else ""


def _is_plain_body(body: dict[str, Any], value_key: str) -> bool:
    """Return whether the body of a call or a result has a name, a map at ``value_key``, and perhaps an id."""
    if type(body) is not dict or type(body.get(value_key)) is not dict or type(body.get("name")) is not str:
        return False
    return bool(body["name"]) and (len(body) == 2 or (len(body) == 3 and type(body.get("id")) is str))  # noqa: PLR2004


_THOUGHT_KEYS = frozenset({"text", "thought", SIGNATURE})
_VALUE_KEYS = {CALL: "args", RESULT: "response"}


class _Checker(RuleChecker):
    def __init__(self) -> None:
        super().__init__(RULES)
        self._is_after_user = False
        self._ids: set[str] = set()
        self._calls: OpenCalls[Path] = OpenCalls()
        self._unanswered: dict[Path, str] = {}

    def take(self, position: int, message: WireMessage) -> None:
        is_plain = type(message) is dict and len(message) == 2 and type(message.get("parts")) is list  # noqa: PLR2004
        role = message.get("role") if is_plain else ""
        flaw = None if role == "user" or role == MODEL else flaw_of_message(message)  # noqa: PLR1714  # a role may be unhashable
        if flaw is not None:
            self.find("message_shape", f"Gemini does not accept this content: {flaw.described()}", (position,))
            return
        parts: list[Any] | None = message["parts"]
        if not parts:
            self.find("empty_message", "parts must not be empty", (position, "parts"))
            return
        of_model = is_model(message)
        if of_model:
            self.end_calls()
        for number, part in enumerate(parts):
            kind = _plain_kind(part)
            if kind != "text":
                self._take_part(part, kind, (position, "parts", number), of_model=of_model)
        if not of_model:
            self.end_calls()
            self._ids = set()
        self._is_after_user = not of_model

    def _take_part(self, part: dict[str, Any], kind: str, path: Path, *, of_model: bool) -> None:
        if kind == (CALL if of_model else RESULT):
            body: WireMessage | None = part[kind]
        else:
            flaw = flaw_in(part, of_model=of_model)
            if flaw is not None:
                self.find("block_shape", f"Gemini does not accept this part: {flaw.described()}", (*path, *flaw.path))
                return
            body = call_in(part) if of_model else result_in(part)
        if body is not None and of_model:
            self._take_call(body, path)
        elif body is not None:
            self._take_result(body, path)

    def end_calls(self, answered: object = None) -> None:
        """Check the rule ``unanswered_call`` for the open calls, and close all calls."""
        del answered
        for path, name in self._unanswered.items():
            self.find("unanswered_call", f"the call of {name!r} has no result directly after it", path)
        self._unanswered = {}
        self._calls = OpenCalls()

    def _take_call(self, call: WireMessage, path: Path) -> None:
        name: str = call["name"]
        call_id: str = call.get("id") or ""
        if not self._is_after_user and not self._unanswered:
            message = "a content with calls must follow a content of the user or a result"
            self.find("call_order", message, path)
        if call_id and call_id in self._ids:
            self.find("duplicate_call", f"the id {call_id!r} was used before", path)
        if name not in self.names:
            self.check_name(name, path)
        self._ids.add(call_id)
        self._calls.add(call_id, name, path)
        self._unanswered[path] = name

    def _take_result(self, result: WireMessage, path: Path) -> None:
        call_id: str = result.get("id") or ""
        call = self._calls.answer(call_id, result["name"])
        if call is not None:
            del self._unanswered[call]
        elif call_id and call_id in self._ids:
            self.find("duplicate_result", f"the call {call_id!r} is already answered", path)
        else:
            name = call_id or result["name"]
            self.find("orphan_result", f"the content before has no open call {name!r}", path)
