"""Checks the rules of the Responses API for ``input``, as far as the messages and the log show.

- ``item_shape``: an item is a map with the fields of its type; items of unknown types may hold anything.
- ``unanswered_call``: every call that the runtime runs has a later result of the right type.
- ``orphan_result``: every result has its call before it, or in a response that the provider stored.
- ``duplicate_call``, ``duplicate_result``: an id belongs to one open call, and a call has one result.
- ``call_id``, ``tool_name``, ``item_id``: ids and names have the allowed characters and length; item ids have a prefix.
- ``duplicate_id``: no two items have the same id.
- ``reasoning_alone``: an item made with a reasoning item follows it, with its id if OpenAI gave the reasoning an id.
- ``reasoning_missing``: an item that was recorded with reasoning follows that reasoning.
- ``reasoning_unencrypted``: with ``store: false``, reasoning has ``encrypted_content``.
- ``thinking_…``: see the module ``signed_reasoning``.
- ``error_and_value``: a recorded result does not have both an error and a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.findings import Finding, WireMessage
from agent_memory_log.transcript.json_types import MAPS, list_in
from agent_memory_log.transcript.log_facts import Facts
from agent_memory_log.transcript.openai_responses.items import is_from_model, kind_of, pair_of
from agent_memory_log.transcript.openai_responses.rendering import CALLS, FUNCTION, REASONING_TEXT, RESULTS, RULES
from agent_memory_log.transcript.openai_responses.shapes import flaw_of
from agent_memory_log.transcript.validity.rules import RuleChecker
from agent_memory_log.transcript.validity.signed_reasoning import check_signed

_Item = Mapping[str, object]
_Pair = tuple[str, str]

_LONGEST_ID = 64
_FUNCTION_RESULT = FUNCTION.result
# The number of keys in a plain call, a plain result and a plain message, which hold only text.
_PLAIN_CALL = 4
_PLAIN_RESULT = 3
_PLAIN_MESSAGE = 2
_PREFIXES = {"reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc", "message": "msg"}
_ID_PREFIX = re.compile(r"[a-z]{1,32}_")
"""The prefix that every id of OpenAI has. Other vendors with this API send UUIDs, which only they accept."""

_NAMED = frozenset({"function_call", "custom_tool_call"})
"""The types of calls whose tool the runtime names."""

_NOT_OWN_ID = frozenset({"item_reference", "local_shell_call_output"})
"""The types of items whose ``id`` belongs to another item."""


def validate(messages: Sequence[object], facts: Facts) -> list[Finding]:
    """Return every finding in ``messages``, in message order."""
    checker = _Checker(facts)
    for position, item in enumerate(cast("Sequence[WireMessage]", messages)):  # take() checks the type
        if type(item) is not dict or not checker.take_plain(position, item):
            checker.take(position, item)
    checker.end()
    check_signed(checker.signed, facts, len(messages), lambda block: block[:1], checker.find)
    return sorted(checker.findings, key=lambda finding: finding.path[:1])


class _Checker(RuleChecker):
    def __init__(self, facts: Facts) -> None:
        super().__init__(facts.rules or RULES)
        self._is_vendor = facts.rules is not None
        self._reasoning_of = facts.recorded.reasoning_of if facts.recorded is not None else {}
        request = facts.request
        self._unstored = request.get("store") is False
        # The provider's stored response may contain the calls.
        self._continues = not (request.get("previous_response_id") is None and request.get("conversation") is None)
        self._open: dict[_Pair, int] = {}
        self._answered: set[_Pair] = set()
        self._excused: set[_Pair] = set()
        self._ids: set[str] = set()
        self._alone: dict[int, bool] = {}  # the position of each reasoning item, and whether OpenAI gave it an id
        self._run: set[str] = set()

    def take_plain(self, position: int, item: WireMessage) -> bool:
        """Take a common item that holds only text and is valid. Return False if the item needs a full check."""
        kind = item.get("type")
        if kind == "function_call":
            return self._take_plain_call(position, item)
        if kind == _FUNCTION_RESULT:
            is_plain = self._take_plain_result(item)
        else:
            is_plain = kind is None and len(item) == _PLAIN_MESSAGE and type(item.get("content")) is str
            if is_plain and item.get("role") == "assistant":
                return not self._alone
            is_plain = is_plain and item.get("role") in (
                "user",
                "system",
                "developer",
            )  # a tuple, because a role may be unhashable
        if is_plain and (self._alone or self._run):
            self._end_run()
            self._run.clear()
        return is_plain

    def _take_plain_result(self, item: WireMessage) -> bool:
        call_id = item.get("call_id")
        if len(item) != _PLAIN_RESULT or type(item.get("output")) is not str or type(call_id) is not str:
            return False
        pair = (_FUNCTION_RESULT, call_id)
        if self._open.pop(pair, None) is None:
            return False
        self._answered.add(pair)
        return True

    def _take_plain_call(self, position: int, item: WireMessage) -> bool:
        name, call_id = item.get("name"), item.get("call_id")
        if (
            len(item) != _PLAIN_CALL
            or type(call_id) is not str
            or not 0 < len(call_id) <= _LONGEST_ID
            or type(name) is not str
            or name not in self.names
            or type(item.get("arguments")) is not str
            or (_FUNCTION_RESULT, call_id) in self._open
            or self._alone
        ):
            return False
        pair = (_FUNCTION_RESULT, call_id)
        self._open[pair] = position
        self._answered.discard(pair)
        return True

    def take(self, position: int, value: object) -> None:
        if not isinstance(value, MAPS):
            self.find("item_shape", f"an item must be a map, got {describe(value)}", (position,))
            return
        item = cast("_Item", value)
        kind = kind_of(item)
        flaw = flaw_of(item, kind)
        if flaw is not None:
            item_name = f"an item of type {kind!r}" if kind else "an item"
            self.find(
                "item_shape", f"{item_name} is not accepted by the API: {flaw.described()}", (position, *flaw.path)
            )
            self._excuse(item, kind)
            return
        self._follow(position, item, kind)
        item_id = item.get("id")
        if isinstance(item_id, str):
            self._take_id(position, item, kind, item_id)
        if kind in CALLS:
            self._take_call(position, item, kind)
        elif kind in RESULTS:
            self._take_result(position, item)
        elif kind == "reasoning":
            self._take_reasoning(position, item)
        elif kind == "item_reference":
            self._continues = True

    def end(self) -> None:
        self._end_run()
        for (result, call_id), position in self._open.items():
            message = f"the call {call_id!r} has no {result}: add a result, or remove the call"
            self.find("unanswered_call", message, (position,))

    def _follow(self, position: int, item: _Item, kind: str) -> None:
        """Track the reasoning before an item in the same model output, and check ``reasoning_missing``."""
        item_id = item.get("id")
        if kind == "reasoning":
            self._alone[position] = isinstance(item_id, str) and item_id.startswith(_PREFIXES[kind])
        elif is_from_model(item):
            if not isinstance(item_id, str) and not self._unstored:
                self._alone = {reasoning: True for reasoning, has_id in self._alone.items() if has_id}
                self._end_run()
            self._alone.clear()
        else:
            self._end_run()
            self._run.clear()
            return
        if not isinstance(item_id, str):
            return
        if kind in ("reasoning", "item_reference"):
            self._run.add(item_id)
            return
        needed = self._reasoning_of.get(item_id)
        if needed is not None and needed not in self._run:
            name = f"reasoning {needed!r}" if needed else "reasoning that was erased"
            self.find(
                "reasoning_missing",
                f"{item_id!r} was made with {name}, which is not before it: restore it, or remove the id",
                (position,),
            )

    def _end_run(self) -> None:
        for position in self._alone:
            message = "a reasoning item must be followed by an item made with it, with the id that the provider sent"
            self.find("reasoning_alone", message, (position,))
        self._alone.clear()

    def _take_id(self, position: int, item: _Item, kind: str, item_id: str) -> None:
        if kind in _NOT_OWN_ID:
            return
        prefix = "" if kind == "message" and item.get("role") != "assistant" else _PREFIXES.get(kind, "")
        has_other_prefix = _ID_PREFIX.match(item_id) is not None and not item_id.startswith(prefix)
        is_refused = (len(item_id) > _LONGEST_ID or has_other_prefix) and not self._is_vendor
        if not item_id or is_refused:
            begin = f" and begin with {prefix!r}" if prefix else ""
            message = f"an item's id must have 1 to {_LONGEST_ID} characters{begin}, got {describe(item_id)}"
            self.find("item_id", message, (position, "id"))
        if item_id in self._ids:
            self.find("duplicate_id", f"another item has the id {item_id!r} too", (position, "id"))
        self._ids.add(item_id)

    def _take_call(self, position: int, item: _Item, kind: str) -> None:
        name = cast("str", item.get("name"))
        if kind in _NAMED and name not in self.names:
            self.check_name(name, (position, "name"))
        pair = cast("_Pair", pair_of(item))
        self.check_id(pair[1], (position, "call_id"))
        if pair in self._open:
            self.find("duplicate_call", f"another call with the id {pair[1]!r} is still open", (position, "call_id"))
            return
        self._open[pair] = position
        self._answered.discard(pair)

    def _take_result(self, position: int, item: _Item) -> None:
        pair = cast("_Pair", pair_of(item))
        if self._open.pop(pair, None) is not None:
            self._answered.add(pair)
        elif pair in self._excused:
            self._excused.discard(pair)
        elif pair in self._answered:
            self.find("duplicate_result", f"the call {pair[1]!r} is already answered", (position,))
        elif not self._continues:
            message = f"no earlier call with the id {pair[1]!r} has a {pair[0]} as its result"
            self.find("orphan_result", message, (position,))
        else:
            self.check_id(pair[1], (position, "call_id"))
            self._answered.add(pair)

    def _excuse(self, item: _Item, kind: str) -> None:
        """Exempt the other half of an invalid call or result from the rules, because repair may fix that half."""
        pair = pair_of(item)
        if pair is not None and kind in CALLS:
            self._excused.add(pair)
        elif pair is not None and self._open.pop(pair, None) is None:
            self._excused.discard(pair)

    def _take_reasoning(self, position: int, item: _Item) -> None:
        encrypted = item.get("encrypted_content")
        if not isinstance(encrypted, str) or not encrypted:
            if self._unstored:
                message = "with store: false a reasoning item must have encrypted_content; ask for it with include"
                self.find("reasoning_unencrypted", message, (position,))
            return
        self.signed.append((position, 0, encrypted, text_of_reasoning(item)))


def text_of_reasoning(item: Mapping[str, object]) -> str:
    """Return the text of a reasoning item that the log stores: its summary, or its content if there is no summary."""
    for key, how in REASONING_TEXT.items():
        reasoning_text = how.text_in(list_in(item.get(key)))
        if reasoning_text:
            return reasoning_text
    return ""
