"""What the Responses API requires of ``input``, as far as the list itself and the log can tell.

- ``item_shape``: an item is a map that holds what its type requires; items of types not known may hold anything.
- ``unanswered_call``: every call the runtime runs has its result later, of the type its call asks for.
  ``orphan_result``: no result is there for another id. ``duplicate_call``, ``duplicate_result``: an id stands for one
  open call, and a call has one result. Where the input goes on from a stored response, or holds references, calls may
  stand there.
- ``call_id``, ``tool_name``, ``item_id``: the characters and length allowed, and the prefix of an item's id.
  ``duplicate_id``: no two items have one id.
- ``reasoning_alone``: a reasoning item is followed by what was made with it. ``reasoning_missing``: an item that was
  recorded with reasoning follows it. ``reasoning_unencrypted``: with ``store: false`` it has ``encrypted_content``.
- ``thinking_edited``, ``thinking_order``: encrypted reasoning is as it was recorded, once each and in that order.
  ``thinking_prefix``: what stands before it is what it was made with, instructions and tools included.
- ``error_and_value``: a recorded result has an error or a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.kinds import MAPS
from agent_memory_log.transcript.model import Facts, Finding, Message, Path
from agent_memory_log.transcript.openai_responses.rendering import CALLS, FUNCTION, REASONING_TEXT, RESULTS, RULES
from agent_memory_log.transcript.openai_responses.shapes import flaw_of
from agent_memory_log.transcript.openai_responses.turns import ResponsesRecorded, is_from_model, kind_of, pair_of
from agent_memory_log.transcript.shapes import list_in

_Item = Mapping[str, object]
_Pair = tuple[str, str]

_LONGEST_ID = 64
_FUNCTION_RESULT = FUNCTION.result
# How many keys items have that hold nothing but text: a call, a result, a message.
_PLAIN_CALL = 4
_PLAIN_RESULT = 3
_PLAIN_MESSAGE = 2
_PREFIXES = {"reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc", "message": "msg"}
_NOT_OWN_ID = frozenset({"item_reference", "local_shell_call_output"})
"""The types of items whose ``id`` is another item's."""


def validate(messages: Sequence[object], facts: Facts) -> list[Finding]:
    """Every rule that ``messages`` break, in their order."""
    known = facts.recorded
    return find(messages, facts, known.reasoning_of if isinstance(known, ResponsesRecorded) else {})


def find(messages: Sequence[object], facts: Facts, reasoning_of: Mapping[str, str]) -> list[Finding]:
    """See ``validate``; ``reasoning_of`` as in ``ResponsesRecorded``."""
    scan = _Scan(facts, reasoning_of, len(messages))
    for place, item in enumerate(cast("Sequence[Message]", messages)):  # what they should be; take looks
        if type(item) is not dict or not scan.take_plain(place, item):
            scan.take(place, item)
    scan.end()
    return sorted(scan.findings, key=lambda finding: finding.where[:1])


class _Scan:
    def __init__(self, facts: Facts, reasoning_of: Mapping[str, str], length: int) -> None:
        self.findings: list[Finding] = []
        self._recorded = facts.recorded
        self._edited_from = facts.edited_from
        self._stale = facts.stale_places(length)
        self._reasoning_of = reasoning_of
        self._unstored = facts.request.get("store") is False
        # Calls may stand in what the provider has stored.
        self._continues = any(facts.request.get(key) is not None for key in ("previous_response_id", "conversation"))
        self._open: dict[_Pair, int] = {}
        self._answered: set[_Pair] = set()
        self._excused: set[_Pair] = set()
        self._ids: set[str] = set()
        self._names: set[str] = set()
        self._alone: list[int] = []
        self._signed: set[str] = set()
        self._newest = -1
        self._run: set[str] = set()

    def take_plain(self, place: int, item: Message) -> bool:
        """Take what nearly every item of a long history is, text and no more; False: it is something else, or wrong."""
        kind = item.get("type")
        if kind == "function_call":
            return self._take_plain_call(place, item)
        if kind == _FUNCTION_RESULT:
            is_plain = self._take_plain_result(item)
        else:
            is_plain = kind is None and len(item) == _PLAIN_MESSAGE and type(item.get("content")) is str
            if is_plain and item.get("role") == "assistant":
                self._alone.clear()
                return True
            is_plain = is_plain and item.get("role") == "user"
        if is_plain and (self._alone or self._run):
            self._end_run()
            self._run.clear()
        return is_plain

    def _take_plain_result(self, item: Message) -> bool:
        call_id = item.get("call_id")
        if len(item) != _PLAIN_RESULT or type(item.get("output")) is not str or type(call_id) is not str:
            return False
        pair = (_FUNCTION_RESULT, call_id)
        if self._open.pop(pair, None) is None:
            return False
        self._answered.add(pair)
        return True

    def _take_plain_call(self, place: int, item: Message) -> bool:
        name, call_id = item.get("name"), item.get("call_id")
        if (
            len(item) != _PLAIN_CALL
            or type(call_id) is not str
            or not 0 < len(call_id) <= _LONGEST_ID
            or type(name) is not str
            or name not in self._names
            or type(item.get("arguments")) is not str
            or (_FUNCTION_RESULT, call_id) in self._open
        ):
            return False
        self._alone.clear()
        pair = (_FUNCTION_RESULT, call_id)
        self._open[pair] = place
        self._answered.discard(pair)
        return True

    def take(self, place: int, value: object) -> None:
        if not isinstance(value, MAPS):
            self._add("item_shape", f"an item must be a map, found {describe(value)}", (place,))
            return
        item = cast("_Item", value)
        kind = kind_of(item)
        flaw = flaw_of(item, kind)
        if flaw is not None:
            what = f"an item of type {kind!r}" if kind else "an item"
            self._add("item_shape", f"{what} is not what the API takes: {flaw.told()}", (place, *flaw.where))
            self._excuse(item, kind)
            return
        self._follow(place, item, kind)
        item_id = item.get("id")
        if isinstance(item_id, str):
            self._take_id(place, item, kind, item_id)
        if kind in CALLS:
            self._take_call(place, item, kind)
        elif kind in RESULTS:
            self._take_result(place, item)
        elif kind == "reasoning":
            self._take_reasoning(place, item)
        elif kind == "item_reference":
            self._continues = True

    def end(self) -> None:
        self._end_run()
        for (result, call_id), place in self._open.items():
            message = f"the call {call_id!r} has no {result}: add one, or leave the call out"
            self._add("unanswered_call", message, (place,))
        if self._recorded is not None:
            for where in self._recorded.conflicts:
                self._add("error_and_value", "a result was recorded with both an error and a value", where[:1])

    def _add(self, rule: str, message: str, where: Path) -> None:
        self.findings.append(Finding(rule, message, where))

    def _follow(self, place: int, item: _Item, kind: str) -> None:
        """Which reasoning stands before an item, in the same run of what the model made."""
        if kind == "reasoning":
            self._alone.append(place)
        elif is_from_model(item):
            self._alone.clear()
        else:
            self._end_run()
            self._run.clear()
            return
        item_id = item.get("id")
        if not isinstance(item_id, str):
            return
        if kind in ("reasoning", "item_reference"):
            self._run.add(item_id)
            return
        needed = self._reasoning_of.get(item_id)
        if needed is not None and needed not in self._run:
            name = f"reasoning {needed!r}" if needed else "reasoning that was erased"
            self._add(
                "reasoning_missing",
                f"{item_id!r} was made with {name}, which does not stand before it: put that back, or take the id away",
                (place,),
            )

    def _end_run(self) -> None:
        for place in self._alone:
            self._add("reasoning_alone", "a reasoning item is not followed by what was made with it", (place,))
        self._alone.clear()

    def _take_id(self, place: int, item: _Item, kind: str, item_id: str) -> None:
        if kind in _NOT_OWN_ID:
            return
        prefix = "" if kind == "message" and item.get("role") != "assistant" else _PREFIXES.get(kind, "")
        if not item_id or len(item_id) > _LONGEST_ID or not item_id.startswith(prefix):
            begin = f" and begin with {prefix!r}" if prefix else ""
            message = f"an item's id must have 1 to {_LONGEST_ID} characters{begin}, found {describe(item_id)}"
            self._add("item_id", message, (place, "id"))
        if item_id in self._ids:
            self._add("duplicate_id", f"another item has the id {item_id!r} too", (place, "id"))
        self._ids.add(item_id)

    def _take_call(self, place: int, item: _Item, kind: str) -> None:
        name = cast("str", item.get("name"))
        if not CALLS[kind].tool and name not in self._names:
            self._check_name(place, name)
        pair = cast("_Pair", pair_of(item))
        self._check_call_id(place, pair[1])
        if pair in self._open:
            self._add("duplicate_call", f"another call with the id {pair[1]!r} is still open", (place, "call_id"))
            return
        self._open[pair] = place
        self._answered.discard(pair)

    def _check_name(self, place: int, name: str) -> None:
        if RULES.allows_name(name):
            self._names.add(name)
            return
        longest = RULES.longest_name
        message = f"a tool's name must have 1 to {longest} letters, digits, '_' or '-', found {describe(name)}"
        self._add("tool_name", message, (place, "name"))

    def _take_result(self, place: int, item: _Item) -> None:
        pair = cast("_Pair", pair_of(item))
        if self._open.pop(pair, None) is not None:
            self._answered.add(pair)
        elif pair in self._excused:
            self._excused.discard(pair)
        elif pair in self._answered:
            self._add("duplicate_result", f"the call {pair[1]!r} is already answered", (place,))
        elif not self._continues:
            message = f"no call with the id {pair[1]!r} that asks for a {pair[0]} stands before its result"
            self._add("orphan_result", message, (place,))
        else:
            self._check_call_id(place, pair[1])
            self._answered.add(pair)

    def _excuse(self, item: _Item, kind: str) -> None:
        """Say nothing of the other half of a call that is no call, or of a result that is none: it may be mended."""
        pair = pair_of(item)
        if pair is not None and kind in CALLS:
            self._excused.add(pair)
        elif pair is not None and self._open.pop(pair, None) is None:
            self._excused.discard(pair)

    def _check_call_id(self, place: int, call_id: str) -> None:
        if not RULES.allows_id(call_id):
            message = f"a call's id must have 1 to {RULES.longest_id} characters, found {describe(call_id)}"
            self._add("call_id", message, (place, "call_id"))

    def _take_reasoning(self, place: int, item: _Item) -> None:
        encrypted = item.get("encrypted_content")
        if not isinstance(encrypted, str) or not encrypted:
            if self._unstored:
                message = "with store: false a reasoning item must have encrypted_content; ask for it with include"
                self._add("reasoning_unencrypted", message, (place,))
            return
        if encrypted in self._signed:
            self._add("thinking_order", "the same reasoning stands before it", (place,))
            return
        self._signed.add(encrypted)
        if self._recorded is not None:
            known = self._recorded.signed.get(encrypted)
            if known is None or known[1] != text_of_reasoning(item):
                self._add("thinking_edited", "the log holds no such reasoning", (place,))
                return
            if known[0] <= self._newest:
                self._add("thinking_order", "it was recorded before the reasoning that precedes it", (place,))
            self._newest = max(self._newest, known[0])
        if self._edited_from is not None and (place, 0) >= self._edited_from:
            self._add(
                "thinking_prefix", "what stands before encrypted reasoning is not what it was made with", (place,)
            )
        elif self._stale is not None and self._stale(place):
            message = "encrypted reasoning was made with other instructions or tools than it would be sent with"
            self._add("thinking_prefix", message, (place,))


def text_of_reasoning(item: Mapping[str, object]) -> str:
    """The text the log keeps of a reasoning item: of its summary, or else of its content."""
    for key, how in REASONING_TEXT.items():
        found = how.text_in(list_in(item.get(key)))
        if found:
            return found
    return ""
