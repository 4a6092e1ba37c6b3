"""Repairs a copy of a Chat Completions transcript, and records every change."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, cast

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.differences import same_json
from agent_memory_log.transcript.findings import Path, WireMessage
from agent_memory_log.transcript.json_types import is_list
from agent_memory_log.transcript.log_facts import Facts
from agent_memory_log.transcript.names import UnusedIds
from agent_memory_log.transcript.openai_chat.rendering import RULES, is_no_call
from agent_memory_log.transcript.openai_chat.rules import (
    SPEAKERS,
    call_shape,
    content_shape,
    kind_of,
    legacy_shape,
)
from agent_memory_log.transcript.validity.repairing import FROM_REPAIR, INTERRUPTED, Draft, Entry


def repair(draft: Draft, facts: Facts) -> None:
    """Repair a draft; see ``agent_memory_log.transcript.repair``."""
    _Repairer(draft, facts).run()


class _Call:
    """A call by the model, and the message that answers it."""

    __slots__ = ("body", "entry", "id", "in_place", "is_legacy", "path", "result")

    def __init__(self, body: WireMessage, entry: Entry, path: Path, *, is_legacy: bool) -> None:
        self.body = body
        self.entry = entry
        self.path = path
        self.is_legacy = is_legacy
        self.id = "" if is_legacy else cast("str", body["id"])
        self.result: Entry | None = None
        self.in_place = False


class _Repairer:
    def __init__(self, draft: Draft, facts: Facts) -> None:
        self._draft = draft
        self._rules = facts.rules or RULES
        self._is_own_model = facts.is_own_model
        self._remaining: list[Entry] = []
        self._calls: dict[int, list[_Call]] = {}
        # The ids of each message's calls, and the calls by message and id.
        self._ids: dict[int, UnusedIds] = {}
        self._taken: dict[tuple[int, str], _Call] = {}
        # The open calls by their original id. Legacy calls have the id None.
        self._open: dict[str | None, list[_Call]] = {}
        self._known: set[str | None] = set()
        # The assistant message that results may follow now, and the results directly after each message.
        self._current: Entry | None = None
        self._in_place: defaultdict[int, list[Entry]] = defaultdict(list)

    def run(self) -> None:
        for entry in self._draft.entries:
            self._take(entry)
        entries: list[Entry] = []
        for entry in self._remaining:
            entries.append(entry)
            entries += self._in_place[id(entry)]
            misplaced = [call for call in self._calls.get(id(entry), []) if not call.in_place]
            entries += [self._answer(call) for call in sorted(misplaced, key=lambda call: call.result is None)]
        self._draft.entries = entries

    def _take(self, entry: Entry) -> None:
        role = entry.message.get("role")
        if role in ("tool", "function"):
            self._result(entry, cast("str", role))
            return
        self._current = None
        if role == "assistant":
            if self._assistant(entry):
                self._remaining.append(entry)
                self._current = entry
        elif not isinstance(role, str) or role not in SPEAKERS:
            self._drop(entry, f"unknown role {describe(role)}")
        elif self._repair_content(entry, role):
            self._remaining.append(entry)

    def _repair_content(self, entry: Entry, role: str) -> bool:
        """Drop invalid parts of the content. Return whether any content is left."""
        message = entry.message
        content = message.get("content")
        if isinstance(content, str):
            return True
        if not is_list(content):
            if content is not None or role != "assistant":
                problem = f"content must be text or a list, got {describe(content)}"
                self._draft.note("dropped_part", problem, (entry.index, "content"))
            return False
        sound: list[Any] = []
        for position, part in enumerate(content):
            wrong = content_shape(role, [part])
            if wrong is None:
                sound.append(part)
            else:
                self._draft.note("dropped_part", wrong, (entry.index, "content", position))
        message["content"] = sound
        if not sound and role not in ("assistant", "tool", "function"):
            self._drop(entry, "nothing is left of it")
        return bool(sound)

    def _assistant(self, entry: Entry) -> bool:
        """Drop invalid calls. Return whether the message has content or calls."""
        message = entry.message
        has_empty_parts = message.get("content") == []
        has_content = has_empty_parts or self._repair_content(entry, "assistant")
        if not has_content and message.get("content") is not None:
            message["content"] = None
        self._repair_calls(entry)
        if has_empty_parts and not message.get("tool_calls"):
            message["content"] = None
        legacy = message.get("function_call")
        if legacy is not None and not is_no_call(legacy):
            path: Path = (entry.index, "function_call")
            wrong = legacy_shape(legacy)
            if wrong is None:
                self._admit(_Call(cast("WireMessage", legacy), entry, path, is_legacy=True))
            else:
                self._draft.note("dropped_call", wrong, path)
                del message["function_call"]
        is_user_text = any(message.get(key) is not None for key in ("content", "refusal", "audio"))
        if not is_user_text and id(entry) not in self._calls:
            self._drop(entry, "it has no content and no calls")
            return False
        return True

    def _repair_calls(self, entry: Entry) -> None:
        message = entry.message
        if "tool_calls" not in message:
            return
        original_calls = message["tool_calls"]
        if original_calls is None or (original_calls == [] and not self._is_own_model):
            return
        if original_calls == []:
            self._draft.note("dropped_calls", "OpenAI refuses an empty list of calls", (entry.index, "tool_calls"))
        sound: list[Any] = []
        seqs: list[int] = []
        if not is_list(original_calls):
            problem = f"tool_calls must be a list of calls, got {describe(original_calls)}"
            self._draft.note("dropped_call", problem, (entry.index, "tool_calls"))
            original_calls = []
        for position, call in enumerate(original_calls):
            path: Path = (entry.index, "tool_calls", position)
            wrong = call_shape(call)
            if wrong is not None:
                self._draft.note("dropped_call", wrong, path)
            elif self._admit(_Call(call, entry, path, is_legacy=False)):
                sound.append(call)
                seqs.append(entry.parts[position] if position < len(entry.parts) else entry.own)
        entry.parts = seqs
        if sound:
            message["tool_calls"] = sound
        else:
            del message["tool_calls"]

    def _admit(self, call: _Call) -> bool:
        """Add a call. If the message already has the same call, drop the new call and return False."""
        siblings = self._calls.setdefault(id(call.entry), [])
        ids = self._ids.setdefault(id(call.entry), UnusedIds(self._rules))
        original_id = None if call.is_legacy else call.id
        if not call.is_legacy and (call.id or not self._rules.allows_id("")):
            twin = self._taken.get((id(call.entry), call.id))
            if twin is not None and same_json(twin.body, call.body):
                self._draft.note("dropped_duplicate", f"the message has the same call: {describe(call.id)}", call.path)
                return False
            self._rename(call, ids)
            self._taken[id(call.entry), call.id] = call
        self._draft.shorten_name(
            call.body if call.is_legacy else call.body[str(kind_of(call.body))], self._rules, call.path
        )
        siblings.append(call)
        self._known.add(original_id)
        self._open.setdefault(original_id, []).append(call)
        return True

    def _rename(self, call: _Call, ids: UnusedIds) -> None:
        unused = ids.unused(self._rules.wire_id(call.id or "call"))
        if unused != call.id:
            self._draft.note("renamed_call", f"the call id {describe(call.id)} became {unused!r}", call.path)
            call.body["id"] = call.id = unused

    def _result(self, entry: Entry, role: str) -> None:
        message = entry.message
        call_id: Any = None if role == "function" else message.get("tool_call_id")
        if role == "tool" and not isinstance(call_id, str):
            self._drop(entry, f"tool_call_id must be text, got {describe(call_id)}")
            return
        waiting = self._open.get(call_id)
        if not waiting:
            if call_id in self._known:
                self._draft.note(
                    "dropped_duplicate", f"the call {describe(call_id)} already has a result", (entry.index,)
                )
            else:
                self._draft.note("dropped_result", f"no earlier call has the id {describe(call_id)}", (entry.index,))
            return
        if not self._repair_content(entry, role) and not (role == "function" and message.get("content") is None):
            message["content"] = ""
        call = waiting.pop(0 if call_id == "" else -1)  # results of calls with empty ids come in the order of the calls
        call.result = entry
        call.in_place = call.entry is self._current
        if call.in_place:
            self._in_place[id(call.entry)].append(entry)
        if not call.is_legacy:
            message["tool_call_id"] = call.id
            return
        if not isinstance(message.get("name"), str):
            self._draft.note("named_result", "a function message needs the name of its call", (entry.index,))
        message["name"] = call.body["name"]

    def _answer(self, call: _Call) -> Entry:
        result = call.result
        if result is None:
            self._draft.note("answered_call", "no result of the call was recorded", call.path)
            message: WireMessage = (
                {"role": "function", "name": call.body["name"], "content": INTERRUPTED}
                if call.is_legacy
                else {"role": "tool", "tool_call_id": call.id, "content": INTERRUPTED}
            )
            return Entry(FROM_REPAIR, message)
        self._draft.note("moved_result", "it must follow its call directly", (result.index,))
        return result

    def _drop(self, entry: Entry, message: str) -> None:
        self._draft.note("dropped_message", message, (entry.index,))
