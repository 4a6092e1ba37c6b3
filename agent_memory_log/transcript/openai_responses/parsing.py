"""Converts Responses items to events."""

from __future__ import annotations

from typing import cast

from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.events.payloads import Thinking, ToolCall, ToolResult, UnknownPayload
from agent_memory_log.transcript.conversion.parsing import PAYLOADS_OF_ROLES, JsonMap, Parser
from agent_memory_log.transcript.conversion.rendering import json_text_of, text_message, text_or_empty
from agent_memory_log.transcript.differences import difference
from agent_memory_log.transcript.json_types import map_in
from agent_memory_log.transcript.names import decode_name
from agent_memory_log.transcript.openai_responses import rendering
from agent_memory_log.transcript.openai_responses.items import kind_of
from agent_memory_log.transcript.openai_responses.rendering import (
    CALLS,
    COMPUTER,
    FUNCTION,
    INPUT_TEXT,
    RESULTS,
    CallKind,
    CallKinds,
)


class ResponsesParser(Parser):
    """Parses Responses items, one event for each; see ``agent_memory_log.transcript.parse``."""

    provider = rendering.PROVIDER
    rules = rendering.RULES
    list_name = "input"

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._kinds = CallKinds()

    def read(self, message: JsonMap) -> None:
        """Emit the item's event."""
        kind = kind_of(message)
        role = message.get("role")
        if kind == "message" and isinstance(role, str) and role in PAYLOADS_OF_ROLES:
            self._read_message(role, message)
        elif kind == "reasoning":
            self._read_reasoning(message)
        elif kind in CALLS:
            self._read_call(CALLS[kind], message)
        elif kind in RESULTS:
            self._read_result(RESULTS[kind], message)
        else:
            self.emit(UnknownPayload(type=rendering.MESSAGE_TYPE, data=message))

    def _read_message(self, role: str, message: JsonMap) -> None:
        content = message.get("content")
        parts = rendering.text_parts(role)
        text = parts.text_in(content) if isinstance(content, list) else text_or_empty(content)
        default = text_message("system" if role == "developer" else role, text)
        residual = parts.difference(default, message, "content")
        if "parts" in residual and role == "assistant":
            answer = difference(rendering.answer_message(text), message)
            if "without" not in answer and "content" not in map_in(answer.get("fields")):
                residual = {"answer": True, **answer}
        self.emit(PAYLOADS_OF_ROLES[role](text), residual)

    def _read_call(self, kind: CallKind, item: JsonMap) -> None:
        arguments = item.get(kind.arguments)
        if arguments is None and kind is COMPUTER:
            arguments = item.get("actions")
        is_value = bool(kind.tool) and arguments is not None
        payload = ToolCall(
            tool_call_id=text_or_empty(item.get(kind.call_key)),
            tool_name=kind.tool or decode_name(text_or_empty(item.get("name"))),
            payload_json=encode_json(arguments).decode() if is_value else json_text_of(arguments),
        )
        wire_id = self.calls.call(payload, payload.tool_call_id) or ""
        self._kinds.call(wire_id, kind)
        residual = difference(rendering.call_item(kind, payload, wire_id), item)
        if kind is not FUNCTION:
            residual["kind"] = kind.call
        self.emit(payload, residual)

    def _read_result(self, kind: CallKind, item: JsonMap) -> None:
        call_id = text_or_empty(item.get("call_id", item.get(kind.id_key)))
        name = self.calls.open_call_name(call_id)
        if name is None:
            name = kind.tool or decode_name(text_or_empty(item.get("name")))
        output = item.get(kind.output)
        is_parts = isinstance(output, list) and not kind.tool
        text = json_text_of(INPUT_TEXT.text_in(output) if isinstance(output, list) and is_parts else output)
        payload = ToolResult(tool_call_id=call_id, tool_name=name, result_json=text)
        wire_id = self.calls.result(payload) or ""
        default = rendering.result_item(kind, payload, wire_id)
        residual = INPUT_TEXT.difference(default, item, "output") if is_parts else difference(default, item)
        if kind is not self._kinds.result(wire_id):
            residual["kind"] = kind.call
        self.emit(payload, residual)

    def _read_reasoning(self, item: JsonMap) -> None:
        key, text, spans = "summary", "", cast("list[JsonValue]", [])
        for list_key, how in rendering.REASONING_TEXT.items():
            parts = item.get(list_key)
            if isinstance(parts, list):
                list_text, list_spans = how.split(parts)
                if list_text or list_key == "summary":
                    key, text, spans = list_key, list_text, list_spans
                if list_text:
                    break
        payload = Thinking(text=text, signature=text_or_empty(item.get("encrypted_content")), final=True)
        forced: JsonMap = {"parts": spans, "of": "content"} if key == "content" else {"parts": spans}
        self.emit(payload, {**difference(rendering.reasoning(payload, forced), item), **forced})
