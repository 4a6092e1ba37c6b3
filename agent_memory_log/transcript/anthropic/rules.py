"""What the Messages API requires of ``messages``, as far as the list and the log behind it can tell.

- ``message_shape``: a message is a map with the role user, assistant or system, and text or a list as content.
- ``block_shape``: a block is a map with a ``type`` and what that type requires, in a message of the role it belongs to.
- ``empty_message``: content is not empty. ``empty_text``: text is not empty, nor white space alone where the message
  has no other text. ``empty_result``: a result that is an error says which.
- ``unanswered_call``: every ``tool_use`` has its ``tool_result`` in the next message. ``orphan_result``: no result is
  there for another id. ``result_order``: results come first. ``duplicate_call``, ``duplicate_result``: one call an id,
  one result a call.
- ``unanswered_server_call``, ``orphan_server_result``: what the provider runs itself is answered before the user says
  something, and no answer stands without its call.
- ``call_id``, ``tool_name``: the characters and the length that are allowed.
- ``system_placement``: a system message follows what the user sent, and nothing or the assistant follows it.
- ``cache_control``: at most four blocks are marked, none of them thinking.
- ``prefill``: the last message, if it is the assistant's, does not end in white space.
- ``error_and_value``: a recorded result has an error or a value.
- ``thinking_…``: see ``signed.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.anthropic.rendering import RULES
from agent_memory_log.transcript.anthropic.shapes import SERVER_CALLS, SERVER_RESULTS, THINKING, shape_of
from agent_memory_log.transcript.anthropic.signed import Signed, check_signed
from agent_memory_log.transcript.kinds import is_list, is_map
from agent_memory_log.transcript.model import Facts, Finding, Path
from agent_memory_log.transcript.names import is_in_alphabet

MOST_CACHE_MARKS = 4

_BLANK = "text must be more than white space"
_EMPTY = "text must not be empty"

_PLAIN_RESULT = 3
"""How many keys a result has that is nothing but text."""


def validate(messages: Sequence[object], facts: Facts) -> list[Finding]:
    """See ``agent_memory_log.transcript.validate``."""
    checker = _Checker(messages)
    checker.check()
    checker.check_end()
    for where in facts.recorded.conflicts if facts.recorded is not None else ():
        checker.find("error_and_value", "the result has both an error and a value", *where)
    check_signed(messages, checker.signed, facts, checker.find)
    checker.findings.sort(key=_by_place)
    return checker.findings


class _Checker:
    """One look at every message and block: the usual is dealt with at once, what is odd in methods of its own."""

    def __init__(self, messages: Sequence[object]) -> None:
        self.findings: list[Finding] = []
        self.signed: list[Signed] = []
        self._messages = messages
        self._ids: set[str] = set()
        self._names: set[str] = set()
        # The calls of the message before, by id.
        self._asked: dict[str, Path] = {}
        self._server_open: dict[str, Path] = {}
        self._server_known: set[str] = set()
        self._marks: list[Path] = []
        self._role: Any = None
        self._ends_in_server_tool = False

    def find(self, rule: str, message: str, *where: int | str) -> None:
        self.findings.append(Finding(rule, message, where))

    def check(self) -> None:
        for index, message in enumerate(self._messages):
            if not is_map(message):
                self.find("message_shape", f"a message must be a map, found {describe(message)}", index)
                self._unanswered()
                self._role = None
                continue
            role = message.get("role")
            if role == "user":
                content = message.get("content")
                if self._asked or self._server_open or not isinstance(content, str) or not content:
                    self._user(index, content)
                elif content.isspace():
                    self._no_blocks(index, content)
            elif role == "assistant":
                if self._asked:
                    self._unanswered()
                self._assistant(index, message.get("content"))
            elif role == "system":
                self._unanswered()
                self._system(index, message.get("content"))
            else:
                self._unanswered()
                self.find("message_shape", f"role must be user, assistant or system, found {describe(role)}", index)
            self._role = role
        self._unanswered()

    def _unanswered(self, answered: set[str] | None = None) -> None:
        for call_id, where in self._asked.items():
            if answered is None or call_id not in answered:
                self.find("unanswered_call", f"the next message has no tool_result for the call {call_id!r}", *where)
        self._asked = {}

    # The assistant.

    def _assistant(self, index: int, content: object) -> None:  # noqa: C901, PLR0912  # calls would cost more than all of it
        self._ends_in_server_tool = False
        if not is_list(content) or not content:
            self._no_blocks(index, content)
            return
        ids, names, asked, signed = self._ids, self._names, self._asked, self.signed
        blank = -1
        has_text = False
        kind: Any = None
        place = 0
        for place, block in enumerate(content):
            kind = block.get("type") if is_map(block) else None
            if kind == "text" and isinstance(text := block.get("text"), str):
                if text and not text.isspace():
                    has_text = True
                elif text:
                    blank = place
                else:
                    self.find("empty_text", _EMPTY, index, "content", place)
            elif (
                kind == "tool_use"
                and isinstance(call_id := block.get("id"), str)
                and isinstance(name := block.get("name"), str)
                and is_map(block.get("input"))
            ):
                if call_id in ids or not is_in_alphabet(call_id):
                    self._odd_id(call_id, index, place)
                ids.add(call_id)
                asked[call_id] = (index, "content", place)
                if name not in names:
                    self._name(name, index, place)
            elif (
                kind == "thinking"
                and isinstance(signature := block.get("signature"), str)
                and signature
                and isinstance(thought := block.get("thinking"), str)
            ):
                signed.append((index, place, signature, thought))
            else:
                self._other(block, index, place)
            if kind is not None and "cache_control" in block:
                self._mark(block, index, "content", place)
        if blank >= 0 and not has_text:
            self.find("empty_text", _BLANK, index, "content", blank)
        if kind != "text" and isinstance(kind, str):
            if kind in THINKING:
                self.find("thinking_last", "thinking must not end a message", index, "content", place)
            self._ends_in_server_tool = kind in SERVER_CALLS or kind in SERVER_RESULTS

    def _odd_id(self, call_id: str, index: int, place: int) -> None:
        if call_id in self._ids:
            self.find("duplicate_call", f"the id {call_id!r} was used before", index, "content", place, "id")
        else:
            found = f"an id must match [a-zA-Z0-9_-]+, found {describe(call_id)}"
            self.find("call_id", found, index, "content", place, "id")

    def _name(self, name: str, index: int, place: int) -> None:
        if RULES.allows_name(name):
            self._names.add(name)
        else:
            found = f"a tool's name must match [a-zA-Z0-9_-]{{1,{RULES.longest_name}}}, found {describe(name)}"
            self.find("tool_name", found, index, "content", place, "name")

    def _other(self, block: Any, index: int, place: int) -> None:  # noqa: ANN401  # what is sound is any map
        """A block that is not text, a sound call or sound thinking."""
        if not self._is_sound(block, "assistant", index, place):
            return
        kind = block["type"]
        if kind == "thinking":
            self.find("thinking_unsigned", "a thinking block needs its signature", index, "content", place)
        elif kind == "redacted_thinking":
            self.signed.append((index, place, block["data"], ""))
        elif kind in SERVER_CALLS:
            call_id = block["id"]
            if call_id in self._ids or not RULES.allows_id(call_id):
                self._odd_id(call_id, index, place)
            self._ids.add(call_id)
            self._server_open[call_id] = (index, "content", place)
            self._server_known.add(call_id)
        elif kind in SERVER_RESULTS:
            call_id = block["tool_use_id"]
            if self._server_open.pop(call_id, None) is not None:
                return
            if call_id in self._server_known:
                self.find("duplicate_result", f"the call {call_id!r} has a result", index, "content", place)
            else:
                self.find("orphan_server_result", f"no call before it has the id {call_id!r}", index, "content", place)

    # The user.

    def _user(self, index: int, content: object) -> None:  # noqa: C901, PLR0912  # as above
        if not is_list(content) or not content:
            if self._asked:
                self._unanswered()
            if self._server_open and content:
                self._user_speaks()
            self._no_blocks(index, content)
            return
        asked = self._asked
        answered: set[str] = set()
        blank = -1
        has_text = False
        others = 0
        for place, block in enumerate(content):
            kind = block.get("type") if is_map(block) else None
            if kind == "tool_result" and isinstance(call_id := block.get("tool_use_id"), str):
                if others or call_id in answered or call_id not in asked:
                    self._odd_result(call_id, answered, index, place)
                answered.add(call_id)
                if len(block) > _PLAIN_RESULT or not isinstance(block.get("content"), str):
                    self._result(block, index, place)
            else:
                others += 1
                if kind == "text" and isinstance(text := block.get("text"), str):
                    if text and not text.isspace():
                        has_text = True
                    elif text:
                        blank = place
                    else:
                        self.find("empty_text", _EMPTY, index, "content", place)
                else:
                    self._is_sound(block, "user", index, place)
            if kind is not None and "cache_control" in block:
                self._mark(block, index, "content", place)
        if blank >= 0 and not has_text:
            self.find("empty_text", _BLANK, index, "content", blank)
        if asked:
            self._unanswered(answered)
        if others and self._server_open:
            self._user_speaks()

    def _odd_result(self, call_id: str, answered: set[str], index: int, place: int) -> None:
        if call_id in answered:
            self.find("duplicate_result", f"the call {call_id!r} has a result", index, "content", place)
        elif call_id not in self._asked:
            self.find("orphan_result", f"the message before has no call {call_id!r}", index, "content", place)
        else:
            self.find("result_order", "results must come before anything else", index, "content", place)

    def _result(self, block: dict[str, Any], index: int, place: int) -> None:
        """A result with more than text."""
        if not self._is_sound(block, "user", index, place):
            return
        content = block.get("content")
        if not content:
            if block.get("is_error"):
                self.find("empty_result", "a result that is an error must say which", index, "content", place)
        elif is_list(content):
            for number, part in enumerate(content):
                if part["type"] == "text" and not part["text"]:
                    self.find("empty_text", _EMPTY, index, "content", place, "content", number)
                if "cache_control" in part:
                    self._mark(part, index, "content", place, "content", number)

    def _user_speaks(self) -> None:
        for call_id, where in self._server_open.items():
            self.find("unanswered_server_call", f"the call {call_id!r} is not answered when the user goes on", *where)
        self._server_open = {}

    # Instructions.

    def _system(self, index: int, content: object) -> None:
        wrong = self._misplaced(index)
        if wrong is not None:
            self.find("system_placement", wrong, index)
        if not is_list(content) or not content:
            self._no_blocks(index, content)
            return
        texts: list[tuple[int, str]] = []
        for place, block in enumerate(content):
            if self._is_sound(block, "system", index, place):
                if block["type"] == "text":
                    texts.append((place, block["text"]))
                if "cache_control" in block:
                    self._mark(block, index, "content", place)
        for place, text in texts:
            if not text:
                self.find("empty_text", _EMPTY, index, "content", place)
        if texts and texts[-1][1] and all(not text or text.isspace() for _, text in texts):
            self.find("empty_text", _BLANK, index, "content", texts[-1][0])

    def _misplaced(self, index: int) -> str | None:
        if index == 0:
            return "instructions for the whole conversation go into the argument system"
        if self._role != "user" and not (self._role == "assistant" and self._ends_in_server_tool):
            return "a system message must follow one of the user's"
        if index + 1 < len(self._messages) and role_of(self._messages[index + 1]) != "assistant":
            return "a system message must be the last or precede the assistant's"
        return None

    # All of them.

    def _no_blocks(self, index: int, content: object) -> None:
        """Content that is text, empty, or wrong."""
        if isinstance(content, str):
            if not content:
                self.find("empty_message", "content must not be empty", index, "content")
            elif content.isspace():
                self.find("empty_text", _BLANK, index, "content")
        elif is_list(content):
            self.find("empty_message", "content must not be empty", index, "content")
        else:
            self.find("message_shape", f"content must be text or a list, found {describe(content)}", index, "content")

    def _is_sound(self, block: object, role: str, index: int, place: int) -> bool:
        wrong = shape_of(block, role)
        if wrong is not None:
            self.find("block_shape", wrong, index, "content", place)
        return wrong is None

    def _mark(self, block: dict[str, Any], *where: int | str) -> None:
        kind = block.get("type")
        if block["cache_control"] is None or not isinstance(kind, str):
            return
        if kind in THINKING:
            self.find("cache_control", f"a {kind} block cannot be marked", *where)
        else:
            self._marks.append(where)

    def check_end(self) -> None:
        for where in self._marks[:-MOST_CACHE_MARKS]:
            found = f"at most {MOST_CACHE_MARKS} blocks can be marked, found {len(self._marks)}"
            self.find("cache_control", found, *where)
        if self._role != "assistant":
            return
        last = len(self._messages) - 1
        content: object = cast("dict[str, object]", self._messages[last]).get("content")
        where = (last, "content")
        if is_list(content) and content and role_of(content[-1], "type") == "text":
            where = (last, "content", len(content) - 1)
            content = content[-1].get("text")
        if isinstance(content, str) and content[-1:].isspace():
            self.find("prefill", "the assistant's last message must not end in white space", *where)


def role_of(message: object, key: str = "role") -> object:
    """The role of a message, or the ``type`` of a block, if it is one."""
    return message.get(key) if is_map(message) else None


def _by_place(finding: Finding) -> list[tuple[bool, int, str]]:
    return [(isinstance(step, str), step if isinstance(step, int) else 0, str(step)) for step in finding.where]
