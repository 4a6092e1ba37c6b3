"""Chat Completions messages to events."""

from __future__ import annotations

from typing import cast

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.events.payloads import (
    AssistantMessage,
    SystemMessage,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)
from agent_memory_log.transcript.kinds import is_list, is_map
from agent_memory_log.transcript.names import decode_name
from agent_memory_log.transcript.openai_chat.rendering import (
    MESSAGE_TYPE,
    PROVIDER,
    RULES,
    TEXT,
    function,
    text_message,
    tool_call,
    tool_message,
)
from agent_memory_log.transcript.parsing import JsonMap, Parser
from agent_memory_log.transcript.residual import difference, kept


class ChatParser(Parser):
    """See ``agent_memory_log.transcript.parse``."""

    provider = PROVIDER
    rules = RULES

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._after_assistant = False

    def read(self, message: JsonMap) -> None:
        """Emit the message's own event, then one for each call in it."""
        role = message.get("role")
        if role == "assistant":
            self._read_assistant(message)
            self._after_assistant = True
            return
        self._after_assistant = False
        if role == "user":
            text, residual = _read_text(message, "user")
            self.emit(UserMessage(text, kept(PROVIDER, residual)))
        elif role in ("system", "developer"):
            text, residual = _read_text(message, "system")
            self.emit(SystemMessage(text, kept(PROVIDER, residual)))
        elif role in ("tool", "function"):
            self.emit(self._result(message))
        else:
            self.emit(UnknownPayload(type=MESSAGE_TYPE, data=message))

    def _read_assistant(self, message: JsonMap) -> None:
        rest = dict(message)
        calls: list[tuple[JsonMap, bool]] = []
        tool_calls = rest.get("tool_calls")
        if is_list(tool_calls) and tool_calls and all(is_map(call) for call in tool_calls):
            del rest["tool_calls"]
            calls += [(call, False) for call in tool_calls]
        function_call = rest.get("function_call")
        if is_map(function_call):
            del rest["function_call"]
            calls.append((function_call, True))

        head: JsonMap | None = None
        if calls and not _says_something(rest):
            residual = difference(text_message("assistant", None), rest)
            if residual or self._after_assistant:
                head = residual
        else:
            text, residual = _read_text(rest, "assistant")
            self.emit(AssistantMessage(text, kept(PROVIDER, residual)))
        for call, is_legacy in calls:
            self.emit(self._call(call, is_legacy, head))
            head = None

    def _call(self, call: JsonMap, is_legacy: bool, head: JsonMap | None) -> ToolCall:
        body = call
        if not is_legacy:
            found = [call[kind] for kind in ("function", "custom") if is_map(call.get(kind))]
            body = cast("JsonMap", found[0]) if found else {}
        arguments = body.get("arguments", body.get("input"))
        call_id = "" if is_legacy else _text(call.get("id"))
        payload = ToolCall(
            tool_call_id=call_id,
            tool_name=decode_name(_text(body.get("name"))),
            payload_json=_json_text_of(arguments),
        )
        wire_id = self.calls.call(payload) or ""
        residual = (
            difference(function(payload), call)
            if is_legacy
            else difference(tool_call(payload, wire_id), call, "function")
        )
        if is_legacy:
            residual["function_call"] = True
        if head is not None:
            residual["message"] = head
        return ToolCall(
            tool_call_id=payload.tool_call_id,
            tool_name=payload.tool_name,
            payload_json=payload.payload_json,
            structured=kept(PROVIDER, residual),
        )

    def _result(self, message: JsonMap) -> ToolResult:
        call_id = _text(message.get("tool_call_id"))
        asked = self.calls.asked_name(call_id)
        name = decode_name(_text(message.get("name"))) if asked is None else asked
        content = message.get("content")
        text = TEXT.text_in(content) if is_list(content) else _json_text_of(content)
        if is_absent_text(text):
            text = ""
        payload = ToolResult(tool_call_id=call_id, tool_name=name, result_json=text)
        wire_id = self.calls.result(payload) or ""
        residual = _difference(tool_message(payload, wire_id), message)
        return ToolResult(tool_call_id=call_id, tool_name=name, result_json=text, structured=kept(PROVIDER, residual))


def _read_text(message: JsonMap, role: str) -> tuple[str, JsonMap]:
    """The text of a message's content, for search, and the message's residual."""
    content = message.get("content")
    text = TEXT.text_in(content) if is_list(content) else _text(content)
    return text, _difference(text_message(role, text), message)


def _difference(default: JsonMap, message: JsonMap) -> JsonMap:
    content = message.get("content")
    if not is_list(content):
        return difference(default, message)
    spans = TEXT.split(content)[1]
    if TEXT.join(cast("str", default["content"]), spans) is None:
        return difference(default, message)
    residual = difference({**default, "content": content}, message)
    residual["parts"] = spans
    return residual


def _says_something(message: JsonMap) -> bool:
    return any(value not in (None, "", []) for key, value in message.items() if key != "role")


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _json_text_of(value: JsonValue) -> str:
    """The text that was sent, as it is; JSON of anything else; ``""`` for what counts as absent."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else encode_json(value).decode()
    return "" if is_absent_text(text) else text
