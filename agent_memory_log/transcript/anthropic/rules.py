"""Checks the rules of the Messages API for ``messages``, as far as the messages and the log show.

- ``message_shape``: a message is a map. Its role is user, assistant or system, and its content is a text or a list.
- ``block_shape``: a block is a map with a ``type`` and the fields of that type, and the role allows the type.
- ``empty_message``: content is not empty.
- ``empty_text``: text is not empty. A message with text has some text that is not white space.
- ``empty_result``: an error result has a text.
- ``unanswered_call``: every ``tool_use`` has its ``tool_result`` in the next message.
- ``orphan_result``: every result has its call in the previous message.
- ``result_order``: results are before other blocks.
- ``duplicate_call``, ``duplicate_result``: the calls of a message have different ids, and a call has one result.
- ``unanswered_server_call``: a call that the provider runs has its answer before the next user text.
- ``orphan_server_result``: the answer to a call that the provider runs is after its call.
- ``call_id``, ``tool_name``: ids and names have the allowed characters and length.
- ``system_placement``: system messages follow a user message. Only an assistant message may follow them.
- ``cache_control``: at most four blocks are marked for the cache, and no thinking block is.
- ``prefill``: if the last message is the assistant's, it does not end in white space. A run that ends in an answer of
  the model waits for the user, so this rule does not apply to it.
- ``error_and_value``: a recorded result does not have both an error and a value.
- ``thinking_unsigned``: a thinking block has a signature; its text may be empty.
- ``thinking_last``: thinking does not end a message.
- ``thinking_first``: see the module ``thinking``.
- Other rules ``thinking_…``: see the module ``signed_reasoning``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.anthropic.rendering import RULES
from agent_memory_log.transcript.anthropic.shapes import SERVER_CALLS, SERVER_RESULTS, THINKING, shape_of, type_of
from agent_memory_log.transcript.anthropic.thinking import call_without_thinking
from agent_memory_log.transcript.findings import Finding, Path
from agent_memory_log.transcript.json_types import is_list, is_map
from agent_memory_log.transcript.log_facts import Facts
from agent_memory_log.transcript.names import is_in_alphabet
from agent_memory_log.transcript.validity.rules import RuleChecker
from agent_memory_log.transcript.validity.signed_reasoning import check_signed, in_content

MOST_CACHE_MARKS = 4

_BLANK = "text must be more than white space"
_EMPTY = "text must not be empty"

_PLAIN_RESULT = 3
"""The number of keys in a result that holds only text."""


def validate(messages: Sequence[object], facts: Facts) -> list[Finding]:
    """Return the findings; see ``agent_memory_log.transcript.validate``."""
    checker = _Checker(messages)
    checker.check()
    checker.check_end(is_run=facts.recorded is not None)
    check_signed(checker.signed, facts, len(messages), in_content, checker.find)
    position = call_without_thinking(messages, facts.request)
    if position is not None:
        wrong = "with a thinking budget, the last message that calls a tool, or its turn, must begin with thinking"
        checker.find("thinking_first", wrong, (position, "content", 0))
    return checker.findings


class _Checker(RuleChecker):
    """Checks messages. The common cases are inline, for speed; rare cases have methods of their own."""

    def __init__(self, messages: Sequence[object]) -> None:
        super().__init__(RULES)
        self._messages = messages
        self._ids: set[str] = set()
        self._server_open: dict[str, Path] = {}
        self._server_known: set[str] = set()
        self._marks: list[Path] = []
        self._role: Any = None
        self._ends_in_server_tool = False

    def check(self) -> None:
        for index, message in enumerate(self._messages):
            role: Any = None
            content: object = None
            if is_map(message):
                role = message.get("role")
                content = message.get("content")
            if role == "user":
                if (
                    self.open_calls
                    or self._server_open
                    or not isinstance(content, str)
                    or not content
                    or content.isspace()
                ):
                    self._user(index, content)
            elif role == "assistant":
                if self._role != "assistant":  # the API reads consecutive messages of the assistant as one
                    if self.open_calls:
                        self.end_calls()
                    if self._ids:
                        self._ids = set()
                self._blocks(index, content, None)
            else:
                self.end_calls()
                if role == "system":
                    self._check_placement(index)
                    self._blocks(index, content, None, role)
                else:
                    wrong = f"role must be user, assistant or system, got {describe(role)}"
                    self.find("message_shape", wrong, (index,))
            self._role = role
        self.end_calls()

    def _user(self, index: int, content: object) -> None:
        answered: set[str] = set()
        other_count = self._blocks(index, content, answered)
        if self.open_calls:
            self.end_calls(answered)
        if other_count and self._server_open:
            for call_id, path in self._server_open.items():
                wrong = f"the call {call_id!r} has no answer before the user's next message"
                self.find("unanswered_server_call", wrong, path)
            self._server_open = {}

    def _blocks(  # noqa: C901, PLR0912  # inline, because calls would take longer than the checks
        self, index: int, content: object, answered: set[str] | None, role: str = "assistant"
    ) -> int:
        """Check the blocks of a message. Return the number of blocks that are not results.

        ``answered`` collects the ids of the results in a user message; it is None for other messages.
        """
        self._ends_in_server_tool = False
        if not is_list(content) or not content:
            self._no_blocks(index, content)
            return 1 if content else 0
        ids, names, open_calls = self._ids, self.names, self.open_calls
        is_assistant = answered is None and role == "assistant"
        blank = -1
        has_text = False
        other_count = 0
        kind: Any = None
        position = 0
        for position, block in enumerate(content):
            kind = block.get("type") if is_map(block) else None
            if kind == "text" and isinstance(text := block.get("text"), str):
                other_count += 1
                if text and not text.isspace():
                    has_text = True
                elif text:
                    blank = position
                else:
                    self.find("empty_text", _EMPTY, (index, "content", position))
            elif (
                kind == "tool_use"
                and is_assistant
                and isinstance(call_id := block.get("id"), str)
                and isinstance(name := block.get("name"), str)
                and is_map(block.get("input"))
            ):
                if call_id in ids or not is_in_alphabet(call_id):
                    self._odd_id(call_id, (index, "content", position, "id"))
                ids.add(call_id)
                open_calls[call_id] = (index, "content", position)
                if name not in names:
                    self.check_name(name, (index, "content", position, "name"))
            elif (
                kind == "thinking"
                and is_assistant
                and isinstance(signature := block.get("signature"), str)
                and signature
                and isinstance(thought := block.get("thinking"), str)
            ):
                self.signed.append((index, position, signature, thought))
            elif (
                kind == "tool_result" and answered is not None and isinstance(call_id := block.get("tool_use_id"), str)
            ):
                if other_count or call_id in answered or call_id not in open_calls:
                    self._odd_result(call_id, answered, (index, "content", position))
                answered.add(call_id)
                if len(block) > _PLAIN_RESULT or not isinstance(block.get("content"), str):
                    self._result(block, (index, "content", position))
            else:
                other_count += 1
                self._other(block, role if answered is None else "user", index, position)
            if kind is not None and "cache_control" in block:
                self._mark(block, (index, "content", position))
        if blank >= 0 and not has_text:
            self.find("empty_text", _BLANK, (index, "content", blank))
        if is_assistant and kind != "text" and isinstance(kind, str):
            if kind in THINKING:
                self.find("thinking_last", "thinking must not end a message", (index, "content", position))
            self._ends_in_server_tool = kind in SERVER_CALLS or kind in SERVER_RESULTS
        return other_count

    def _odd_id(self, call_id: str, path: Path) -> None:
        if call_id in self._ids or call_id in self._server_known:
            self.find("duplicate_call", f"the id {call_id!r} was used before", path)
        else:
            self.check_id(call_id, path)

    def _odd_result(self, call_id: str, answered: set[str], path: Path) -> None:
        if call_id in answered:
            self.find("duplicate_result", f"the call {call_id!r} already has a result", path)
        elif call_id not in self.open_calls:
            self.find("orphan_result", f"the message before has no call {call_id!r}", path)
        else:
            self.find("result_order", "results must come before anything else", path)

    def _other(self, block: Any, role: str, index: int, position: int) -> None:  # noqa: ANN401  # a valid block is any map
        """Check a block that is not text, a result, a valid call or valid thinking."""
        path: Path = (index, "content", position)
        if not self._is_sound(block, role, path) or role != "assistant":
            return
        kind = block["type"]
        if kind == "thinking":
            self.find("thinking_unsigned", "a thinking block needs its signature", path)
        elif kind == "redacted_thinking":
            self.signed.append((index, position, block["data"], ""))
        elif kind in SERVER_CALLS:
            call_id = block["id"]
            if call_id in self._ids or call_id in self._server_known or not RULES.allows_id(call_id):
                self._odd_id(call_id, (*path, "id"))
            self._ids.add(call_id)
            self._server_open[call_id] = path
            self._server_known.add(call_id)
        elif kind in SERVER_RESULTS:
            call_id = block["tool_use_id"]
            if self._server_open.pop(call_id, None) is not None:
                return
            if call_id in self._server_known:
                self.find("duplicate_result", f"the call {call_id!r} already has a result", path)
            else:
                self.find("orphan_server_result", f"no earlier call has the id {call_id!r}", path)

    def _result(self, block: dict[str, Any], path: Path) -> None:
        """Check a result with more than text."""
        if not self._is_sound(block, "user", path):
            return
        content = block.get("content")
        if not content:
            if block.get("is_error"):
                self.find("empty_result", "an error result must have a text", path)
        elif is_list(content):
            for number, part in enumerate(content):
                if part["type"] == "text" and not part["text"]:
                    self.find("empty_text", _EMPTY, (*path, "content", number))
                if "cache_control" in part:
                    self._mark(part, (*path, "content", number))

    def _check_placement(self, index: int) -> None:
        """Check the position of a system message."""
        following = self._messages[index + 1] if index + 1 < len(self._messages) else {"role": "assistant"}
        wrong = ""
        if index == 0:
            wrong = "instructions for the whole conversation go into the argument system"
        elif self._role not in ("user", "system") and not (self._role == "assistant" and self._ends_in_server_tool):
            wrong = "a system message must follow a user message"
        elif not is_map(following) or following.get("role") not in ("assistant", "system"):
            wrong = "a system message must be the last or precede an assistant message"
        if wrong:
            self.find("system_placement", wrong, (index,))

    def _no_blocks(self, index: int, content: object) -> None:
        """Check content that is text, empty, or has a wrong type."""
        path: Path = (index, "content")
        if not isinstance(content, (str, list)):
            self.find("message_shape", f"content must be text or a list, got {describe(content)}", path)
        elif not content:
            self.find("empty_message", "content must not be empty", path)
        elif isinstance(content, str) and content.isspace():
            self.find("empty_text", _BLANK, path)

    def _is_sound(self, block: object, role: str, path: Path) -> bool:
        wrong = shape_of(block, role)
        if wrong is not None:
            self.find("block_shape", wrong, path)
        return wrong is None

    def _mark(self, block: dict[str, Any], path: Path) -> None:
        kind = block.get("type")
        if block["cache_control"] is None or not isinstance(kind, str):
            return
        if kind in THINKING:
            self.find("cache_control", f"a {kind} block cannot be marked", path)
        else:
            self._marks.append(path)

    def check_end(self, *, is_run: bool) -> None:
        for path in self._marks[:-MOST_CACHE_MARKS]:
            wrong = f"at most {MOST_CACHE_MARKS} blocks can be marked, got {len(self._marks)}"
            self.find("cache_control", wrong, path)
        if self._role != "assistant" or is_run:
            return
        last = len(self._messages) - 1
        content: object = cast("dict[str, object]", self._messages[last]).get("content")
        position: Path = (last, "content")
        if is_list(content) and content and type_of(content[-1]) == "text":
            position = (last, "content", len(content) - 1)
            content = content[-1].get("text")
        if isinstance(content, str) and content[-1:].isspace():
            self.find("prefill", "the assistant's last message must not end in white space", position)
