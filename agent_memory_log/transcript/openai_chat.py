"""OpenAI Chat Completions: the ``messages`` list, to events and back.

Every part of a message that has a payload becomes an event; what differs from how that payload is rendered by default
is its residual (see ``residual.py``). A message no payload fits is kept whole in an ``UnknownPayload``.

The residual of a tool call may have two parts more: ``function_call: true``, the call came in the message's legacy
``function_call`` field; ``message: {…}``, the call begins an assistant message that has no event of its own, with this
residual. An assistant message that says nothing beside its calls gets no event, or planners would find empty messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import cast

from agent_memory_log.errors import DecodeError
from agent_memory_log.events import Event, new_event
from agent_memory_log.fields import describe, is_absent_text
from agent_memory_log.importing import derived_event_id
from agent_memory_log.jsonvalue import JsonValue, NotJson, encode_json, own_json
from agent_memory_log.payloads import (
    AssistantMessage,
    EventData,
    EventType,
    Redacted,
    SystemMessage,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript.residual import apply, difference, is_residual, kept_for

PROVIDER = "openai-chat"

MESSAGE_TYPE = "openai-chat.message"
"""The event type of a message that no payload fits; its data is the message."""

_Map = dict[str, JsonValue]

_CALL_PARTS = frozenset({"message", "function_call"})

_MESSAGE_TYPES = frozenset(
    {
        EventType.SYSTEM_MESSAGE.value,
        EventType.USER_MESSAGE.value,
        EventType.ASSISTANT_MESSAGE.value,
        EventType.TOOL_RESULT.value,
        MESSAGE_TYPE,
    }
)
"""The types of events that end the assistant message before them."""


def parse(messages: Iterable[Mapping[str, JsonValue]], *, source: str) -> list[Event]:
    """See ``agent_memory_log.transcript.parse``."""
    parser = _Parser(source)
    for index, message in enumerate(messages):
        parser.add(index, message)
    return parser.events


def build(snapshot: Snapshot) -> list[_Map]:
    """See ``agent_memory_log.transcript.build``."""
    builder = _Builder()
    for event in snapshot.log:
        builder.add(event.data)
    return builder.messages


class _Parser:
    def __init__(self, source: str) -> None:
        self.events: list[Event] = []
        self._source = source
        self._index = -1
        self._part = 0
        self._now = datetime.now(UTC)
        self._open_calls: dict[str, list[str]] = {}
        self._after_assistant = False

    def add(self, index: int, message: object) -> None:
        if not isinstance(message, Mapping):
            raise DecodeError(f"messages[{index}] must be a map, found {describe(message)}")
        try:
            own = cast("_Map", own_json(cast("object", message)))
        except NotJson as error:
            raise DecodeError(f"messages[{index}]{error.path} {error}") from error
        role = own.get("role")
        if role == "assistant":
            self._add_assistant(index, own)
            self._after_assistant = True
            return
        self._after_assistant = False
        if role == "user":
            text = _text_of(own.get("content"))
            self._emit(index, UserMessage(text, _kept(difference(_text_message("user", text), own))), own)
        elif role in ("system", "developer"):
            text = _text_of(own.get("content"))
            self._emit(index, SystemMessage(text, _kept(difference(_text_message("system", text), own))), own)
        elif role in ("tool", "function"):
            self._emit(index, self._result(own), own)
        else:
            self._emit(index, UnknownPayload(type=MESSAGE_TYPE, data=own), own)

    def _add_assistant(self, index: int, message: _Map) -> None:
        rest = dict(message)
        calls: list[tuple[_Map, bool]] = []
        tool_calls = rest.get("tool_calls")
        if isinstance(tool_calls, list) and tool_calls and all(isinstance(call, dict) for call in tool_calls):
            del rest["tool_calls"]
            calls += [(call, False) for call in cast("list[_Map]", tool_calls)]
        function_call = rest.get("function_call")
        if isinstance(function_call, dict):
            del rest["function_call"]
            calls.append((function_call, True))

        head: _Map | None = None
        if calls and not _says_something(rest):
            residual = difference(_text_message("assistant", None), rest)
            if residual or self._after_assistant:
                head = residual
        else:
            text = _text_of(rest.get("content"))
            residual = difference(_text_message("assistant", text), rest)
            self._emit(index, AssistantMessage(text, _kept(residual)), message)
        for call, is_legacy in calls:
            self._emit(index, self._call(call, is_legacy, head), message)
            head = None

    def _call(self, call: _Map, is_legacy: bool, head: _Map | None) -> ToolCall:
        body = call
        if not is_legacy:
            found = [call[kind] for kind in ("function", "custom") if isinstance(call.get(kind), dict)]
            body = cast("_Map", found[0]) if found else {}
        arguments = body.get("arguments", body.get("input"))
        call_id = "" if is_legacy else _text(call.get("id"))
        payload = ToolCall(
            tool_call_id=call_id, tool_name=_text(body.get("name")), payload_json=_json_text_of(arguments)
        )
        residual = difference(_function(payload) if is_legacy else _tool_call(payload), call)
        if is_legacy:
            residual["function_call"] = True
        if head is not None:
            residual["message"] = head
        self._open_calls.setdefault(call_id, []).append(payload.tool_name)
        return ToolCall(
            tool_call_id=payload.tool_call_id,
            tool_name=payload.tool_name,
            payload_json=payload.payload_json,
            structured=_kept(residual),
        )

    def _result(self, message: _Map) -> ToolResult:
        call_id = _text(message.get("tool_call_id"))
        asked = self._open_calls.get(call_id)
        name = asked.pop() if asked else _text(message.get("name"))
        content = message.get("content")
        text = _text_of(content) if isinstance(content, list) else _json_text_of(content)
        if is_absent_text(text):
            text = ""
        payload = ToolResult(tool_call_id=call_id, tool_name=name, result_json=text)
        residual = difference(_tool_message(payload), message)
        return ToolResult(tool_call_id=call_id, tool_name=name, result_json=text, structured=_kept(residual))

    def _emit(self, index: int, payload: EventData, message: _Map) -> None:
        role = message.get("role")
        if index != self._index:
            self._index, self._part = index, 0
        self.events.append(
            new_event(
                payload,
                timestamp=self._now + timedelta(microseconds=len(self.events)),
                labels={"role": role} if isinstance(role, str) else None,
                event_id=derived_event_id(PROVIDER, self._source, index, self._part),
            )
        )
        self._part += 1


class _Builder:
    def __init__(self) -> None:
        self.messages: list[_Map] = []
        self._assistant: _Map | None = None
        self._calls: list[JsonValue] | None = None
        self._has_function_call = False
        self._open_calls: dict[str, list[bool]] = {}

    def add(self, data: EventData) -> None:
        if isinstance(data, ToolCall):
            if not self._is_nested_call(data):
                self._add_call(data)
        elif isinstance(data, ToolResult):
            if not self._is_nested_result(data):
                self._add_message(_tool_message(data), data.structured)
        elif isinstance(data, UserMessage):
            self._add_message(_text_message("user", data.message), data.structured)
        elif isinstance(data, SystemMessage):
            self._add_message(_text_message("system", data.message), data.structured)
        elif isinstance(data, AssistantMessage):
            self._begin_assistant(_text_message("assistant", data.message), kept_for(PROVIDER, data.structured))
        elif isinstance(data, UnknownPayload) and data.type == MESSAGE_TYPE:
            self._assistant = None
            self.messages.append(data.to_map())
        elif isinstance(data, Redacted) and data.original_type in _MESSAGE_TYPES:
            self._assistant = None

    def _add_message(self, default: _Map, structured: object) -> None:
        self._assistant = None
        self.messages.append(apply(default, kept_for(PROVIDER, structured)))

    def _begin_assistant(self, default: _Map, residual: Mapping[str, JsonValue]) -> _Map:
        self._assistant = apply(default, residual)
        self._calls = None
        self._has_function_call = False
        self.messages.append(self._assistant)
        return self._assistant

    def _add_call(self, data: ToolCall) -> None:
        residual = kept_for(PROVIDER, data.structured, _CALL_PARTS)
        is_legacy = residual.get("function_call") is True
        head = residual.get("message")
        begins = isinstance(head, Mapping) and is_residual(head)
        message = self._assistant
        if message is None or begins or (is_legacy and self._has_function_call):
            message = self._begin_assistant(
                _text_message("assistant", None), cast("Mapping[str, JsonValue]", head) if begins else {}
            )
        if is_legacy:
            message["function_call"] = apply(_function(data), residual)
            self._has_function_call = True
            return
        if self._calls is None:
            self._calls = []
            message["tool_calls"] = self._calls
        self._calls.append(apply(_tool_call(data), residual))

    def _is_nested_call(self, data: ToolCall) -> bool:
        """Whether a tool of this log made the call: the model did not, and knows nothing of it."""
        is_nested = self._is_inside(data.parent_tool_call_id)
        self._open_calls.setdefault(data.tool_call_id, []).append(is_nested)
        return is_nested

    def _is_nested_result(self, data: ToolResult) -> bool:
        asked = self._open_calls.get(data.tool_call_id)
        return asked.pop() if asked else self._is_inside(data.parent_tool_call_id)

    def _is_inside(self, parent: str) -> bool:
        return bool(parent) and parent in self._open_calls


def _text_message(role: str, content: str | None) -> _Map:
    return {"role": role, "content": content}


def _tool_message(data: ToolResult) -> _Map:
    content = data.error_message if is_absent_text(data.result_json) else data.result_json
    return {"role": "tool", "tool_call_id": data.tool_call_id, "content": content}


def _tool_call(data: ToolCall) -> _Map:
    return {"id": data.tool_call_id, "type": "function", "function": _function(data)}


def _function(data: ToolCall) -> _Map:
    arguments = "{}" if is_absent_text(data.payload_json) else data.payload_json
    return {"name": data.tool_name, "arguments": arguments}


def _says_something(message: _Map) -> bool:
    return any(value not in (None, "", []) for key, value in message.items() if key != "role")


def _kept(residual: _Map) -> JsonValue:
    return {PROVIDER: residual} if residual else None


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _text_of(content: JsonValue) -> str:
    """The text of a message's content, for search: of an array, that of its text parts, a line each."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "\n".join(part for part in parts if isinstance(part, str))
    return _text(content)


def _json_text_of(value: JsonValue) -> str:
    """The text that was sent, as it is; JSON of anything else; ``""`` for what counts as absent."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else encode_json(value).decode()
    return "" if is_absent_text(text) else text
