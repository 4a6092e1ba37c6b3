"""Responses items to events."""

from __future__ import annotations

from typing import cast

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.events.payloads import (
    AssistantMessage,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)
from agent_memory_log.transcript.names import decode_name
from agent_memory_log.transcript.openai_responses.rendering import (
    CALLS,
    COMPUTER,
    FUNCTION,
    INPUT_TEXT,
    MESSAGE_TYPE,
    PROVIDER,
    REASONING_TEXT,
    RESULTS,
    ROLES,
    RULES,
    CallKind,
    CallKinds,
    call_item,
    reasoning,
    result_item,
    text_message,
    text_parts,
)
from agent_memory_log.transcript.parsing import JsonMap, Parser
from agent_memory_log.transcript.parts import TextParts
from agent_memory_log.transcript.residual import difference, kept


class ResponsesParser(Parser):
    """See ``agent_memory_log.transcript.parse``. Every item is one event."""

    provider = PROVIDER
    rules = RULES
    what = "input"

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._kinds = CallKinds()

    def read(self, message: JsonMap) -> None:
        """Emit the item's event."""
        kind = message.get("type", "message")
        role = message.get("role")
        if not isinstance(kind, str):
            self.emit(UnknownPayload(type=MESSAGE_TYPE, data=message))
        elif kind == "message" and isinstance(role, str) and role in ROLES:
            self._read_message(role, message)
        elif kind == "reasoning":
            self.emit(_thinking(message))
        elif kind in CALLS:
            self.emit(self._call(CALLS[kind], message))
        elif kind in RESULTS:
            self.emit(self._result(RESULTS[kind], message))
        else:
            self.emit(UnknownPayload(type=MESSAGE_TYPE, data=message))

    def _read_message(self, role: str, message: JsonMap) -> None:
        content = message.get("content")
        text = text_parts(role).split(content)[0] if isinstance(content, list) else _text(content)
        payload_role = "system" if role == "developer" else role
        residual = _difference(text_message(payload_role, text), message, "content", text_parts(role))
        structured = kept(PROVIDER, residual)
        if role == "user":
            self.emit(UserMessage(text, structured))
        elif role == "assistant":
            self.emit(AssistantMessage(text, structured))
        else:
            self.emit(SystemMessage(text, structured))

    def _call(self, kind: CallKind, item: JsonMap) -> ToolCall:
        arguments = item.get(kind.arguments)
        if arguments is None and kind is COMPUTER:
            arguments = item.get("actions")
        call_id = _text(item.get("call_id"))
        name = kind.tool or decode_name(_text(item.get("name")))
        text = encode_json(arguments).decode() if kind.tool and arguments is not None else _json_text_of(arguments)
        payload = ToolCall(tool_call_id=call_id, tool_name=name, payload_json=text)
        wire_id = self.calls.call(payload) or ""
        self._kinds.call(wire_id, kind)
        residual = difference(call_item(kind, payload, wire_id), item)
        if kind is not FUNCTION:
            residual["kind"] = kind.call
        return ToolCall(tool_call_id=call_id, tool_name=name, payload_json=text, structured=kept(PROVIDER, residual))

    def _result(self, kind: CallKind, item: JsonMap) -> ToolResult:
        call_id = _text(item.get("call_id", item.get(kind.id_key)))
        asked = self.calls.asked_name(call_id)
        name = asked if asked is not None else kind.tool or decode_name(_text(item.get("name")))
        output = item.get("output")
        is_parts = isinstance(output, list) and not kind.tool
        text = INPUT_TEXT.split(cast("list[JsonValue]", output))[0] if is_parts else _json_text_of(output)
        if is_absent_text(text):
            text = ""
        payload = ToolResult(tool_call_id=call_id, tool_name=name, result_json=text)
        wire_id = self.calls.result(payload) or ""
        default = result_item(kind, payload, wire_id)
        residual = _difference(default, item, "output", INPUT_TEXT) if is_parts else difference(default, item)
        if kind is not self._kinds.result(wire_id):
            residual["kind"] = kind.call
        return ToolResult(tool_call_id=call_id, tool_name=name, result_json=text, structured=kept(PROVIDER, residual))


def _thinking(item: JsonMap) -> Thinking:
    key, text, spans = "summary", "", cast("list[JsonValue]", [])
    for list_key, how in REASONING_TEXT.items():
        parts = item.get(list_key)
        if isinstance(parts, list):
            found, found_spans = how.split(parts)
            if found or list_key == "summary":
                key, text, spans = list_key, found, found_spans
            if found:
                break
    payload = Thinking(text=text, signature=_text(item.get("encrypted_content")), final=True)
    forced: JsonMap = {"parts": spans, "of": "content"} if key == "content" else {"parts": spans}
    residual = {**difference(reasoning(payload, forced), item), **forced}
    return Thinking(text=payload.text, signature=payload.signature, final=True, structured=kept(PROVIDER, residual))


def _difference(default: JsonMap, item: JsonMap, key: str, how: TextParts) -> JsonMap:
    """The residual of an item whose ``key`` may be a list of parts."""
    parts = item.get(key)
    if not isinstance(parts, list):
        return difference(default, item)
    spans = how.split(parts)[1]
    if how.join(cast("str", default[key]), spans) is None:
        return difference(default, item)
    residual = difference({**default, key: parts}, item)
    residual["parts"] = spans
    return residual


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _json_text_of(value: JsonValue) -> str:
    """The text that was sent, as it is; JSON of anything else; ``""`` for what counts as absent."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else encode_json(value).decode()
    return "" if is_absent_text(text) else text
