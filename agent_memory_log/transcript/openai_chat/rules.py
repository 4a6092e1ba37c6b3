"""Checks the rules of Chat Completions for ``messages``, as far as the messages and the log show.

- ``message_shape``: a message is a map with a known role and content that the role allows.
- ``call_shape``: a call is a map with an id, a type, a name and arguments as text.
- ``empty_message``: an assistant message has content or calls. ``tool_calls`` may be null. Vendors also return and
  accept an empty list; OpenAI's own models refuse it (``empty_calls``).
- ``unanswered_call``: the tool messages of all calls follow the assistant message directly, in any order.
- ``orphan_result``: every tool message has its call.
- ``duplicate_call``, ``duplicate_result``: in a message, an id belongs to one call, and a call has one result. Later
  messages may use an id again.
- ``call_id``, ``tool_name``: ids and names have the allowed characters and length. Some servers send empty ids; the
  results of such calls are in the order of the calls.
- ``error_and_value``: a recorded result does not have both an error and a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.findings import Finding, Path
from agent_memory_log.transcript.json_types import is_list, is_map
from agent_memory_log.transcript.log_facts import Facts
from agent_memory_log.transcript.openai_chat.rendering import RULES, is_no_call
from agent_memory_log.transcript.validity.rules import RuleChecker
from agent_memory_log.transcript.validity.shapes import Check, anything, list_of, record, tagged, text

SPEAKERS = frozenset({"system", "developer", "user"})


_TEXT = record(text=text)
_PARTS: dict[str, Check] = {
    # Vendors that speak this shape also accept documents and videos, and thinking of the assistant.
    "user": tagged(
        text=_TEXT, image_url=anything, input_audio=anything, file=anything, document_url=anything, video_url=anything
    ),
    "assistant": tagged(text=_TEXT, refusal=anything, thinking=record(thinking=list_of(anything))),
}
_TEXT_PART = tagged(text=_TEXT)


def content_shape(role: str, content: object, *, optional: bool = False) -> str | None:
    """Return the problem of a message's content, or None."""
    if isinstance(content, str) or (optional and content is None):
        return None
    if not is_list(content) or not content:
        return f"the content of a {role} message must be text or a list that is not empty, got {describe(content)}"
    flaw = list_of(_PARTS.get(role, _TEXT_PART))(content)
    return None if flaw is None else f"the content of a {role} message is not accepted by the API: {flaw.described()}"


def call_shape(call: object) -> str | None:
    """Return the problem of an item of ``tool_calls``, or None."""
    if not is_map(call):
        return f"a call must be a map, got {describe(call)}"
    kind = kind_of(call)
    if kind not in ("function", "custom"):
        return f"a call's type must be function or custom, got {describe(kind)}"
    body = call.get(kind)
    key = "arguments" if kind == "function" else "input"
    if not is_map(body) or not isinstance(body.get("name"), str) or not isinstance(body.get(key), str):
        return f"{kind} must be a map with name and {key}, both text, got {describe(body)}"
    return None if isinstance(call.get("id"), str) else f"a call needs an id, got {describe(call.get('id'))}"


def kind_of(call: Mapping[str, Any]) -> object:
    """Return the type of an item of ``tool_calls``. Mistral leaves the type ``function`` out."""
    return call.get("type", "function" if "function" in call else None)


def legacy_shape(call: object) -> str | None:
    """Return the problem of a ``function_call``, or None."""
    if not is_map(call):
        return f"function_call must be a map, got {describe(call)}"
    if isinstance(call.get("name"), str) and isinstance(call.get("arguments"), str):
        return None
    return f"function_call needs name and arguments, both text, got {describe(call)}"


def validate(messages: Sequence[object], facts: Facts) -> list[Finding]:
    """Return the findings; see ``agent_memory_log.transcript.validate``."""
    checker = _Checker(facts)
    checker.check(messages)
    return checker.findings


class _Checker(RuleChecker):
    def __init__(self, facts: Facts) -> None:
        super().__init__(facts.rules or RULES)
        self._is_own_model = facts.is_own_model
        # The calls of the latest assistant message by id. A legacy call has the id None.
        self._calls: dict[str | None, Path] = {}
        # The open calls with an empty id after the first one, which is in ``open_calls``. The last one is first.
        self._unnamed: list[Path] = []

    def check(self, messages: Sequence[object]) -> None:
        for index, message in enumerate(messages):
            role = message.get("role") if is_map(message) else None
            if is_map(message) and (role == "tool" or role == "function"):  # noqa: PLR1714  # a role may be unhashable
                self._result(index, message, role)
                continue
            if self.open_calls:
                self.end_calls()
            self._calls = {}
            if not is_map(message):
                self.find("message_shape", f"a message must be a map, got {describe(message)}", (index,))
            elif role == "assistant":
                self._assistant(index, message)
            elif isinstance(role, str) and role in SPEAKERS:
                content = message.get("content")
                wrong = None if isinstance(content, str) else content_shape(role, content)
                if wrong is not None:
                    self.find("message_shape", wrong, (index, "content"))
            else:
                self.find("message_shape", f"unknown role {describe(role)}", (index,))
        self.end_calls()

    def _result(self, index: int, message: dict[str, Any], role: str) -> None:
        call_id: Any = None if role == "function" else message.get("tool_call_id")
        content = message.get("content")
        if not isinstance(content, str):
            wrong = content_shape(role, content, optional=role == "function")
            if wrong is not None:
                self.find("message_shape", wrong, (index, "content"))
        if role == "tool" and not isinstance(call_id, str):
            self.find("message_shape", f"tool_call_id must be text, got {describe(call_id)}", (index,))
        elif role == "function" and not isinstance(message.get("name"), str):
            self.find(
                "message_shape", f"a function message needs a name, got {describe(message.get('name'))}", (index,)
            )
        elif self.open_calls.pop(call_id, None) is None:
            if call_id in self._calls:
                self.find("duplicate_result", "the call already has a result", (index,))
            else:
                self.find("orphan_result", f"the assistant message before has no call {call_id!r}", (index,))
        elif self._unnamed and call_id == "":
            self.open_calls[""] = self._unnamed.pop()

    def _assistant(self, index: int, message: dict[str, Any]) -> None:
        content = message.get("content")
        calls = message.get("tool_calls")
        legacy = message.get("function_call")
        has_calls = is_list(calls) and bool(calls)
        # Mistral sends and accepts an empty list of parts beside calls.
        if content is not None and not isinstance(content, str) and not (content == [] and has_calls):
            wrong = content_shape("assistant", content)
            if wrong is not None:
                self.find("message_shape", wrong, (index, "content"))
        if is_list(calls):
            for position, call in enumerate(calls):
                self._call(call, index, position)
            if not calls and self._is_own_model:
                self.find("empty_calls", "OpenAI refuses an empty list of calls: leave it out", (index, "tool_calls"))
        elif calls is not None:
            self.find("message_shape", f"tool_calls must be a list, got {describe(calls)}", (index, "tool_calls"))
        if legacy is not None and not is_no_call(legacy):
            self._legacy(index, legacy)
        elif content is None and not calls and message.get("refusal") is None and message.get("audio") is None:
            self.find("empty_message", "an assistant message must have content or call a tool", (index,))

    def _legacy(self, index: int, call: object) -> None:
        wrong = legacy_shape(call)
        path: Path = (index, "function_call")
        if wrong is not None:
            self.find("call_shape", wrong, path)
            return
        self._calls[None] = self.open_calls[None] = path
        self.check_name(cast("dict[str, Any]", call)["name"], path)

    def _call(self, unsure: object, index: int, position: int) -> None:
        wrong = call_shape(unsure)
        path: Path = (index, "tool_calls", position)
        if wrong is not None:
            self.find("call_shape", wrong, path)
            return
        call = cast("dict[str, Any]", unsure)
        call_id = call["id"]
        self.check_name(call[call.get("type", "function")]["name"], path)
        if not call_id and self._wire_rules.allows_id(""):
            if self.open_calls.setdefault("", path) is not path:
                self._unnamed.insert(0, path)
            return
        if call_id in self._calls:
            self.find("duplicate_call", f"the message has another call {call_id!r}", path)
        else:
            self.check_id(call_id, path)
        self._calls[call_id] = self.open_calls[call_id] = path

    def end_calls(self, answered: AbstractSet[str] = frozenset()) -> None:
        """Check the rule ``unanswered_call`` for the open calls, and close all calls."""
        super().end_calls(answered)
        for path in reversed(self._unnamed):
            self.find("unanswered_call", "the call '' has no result directly after it", path)
        self._unnamed = []
