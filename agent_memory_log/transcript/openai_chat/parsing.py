"""Converts Chat Completions messages to events."""

from __future__ import annotations

from agent_memory_log.events.payloads import ToolCall, ToolResult, UnknownPayload
from agent_memory_log.transcript.conversion.parsing import PAYLOADS_OF_ROLES, JsonMap, Parser
from agent_memory_log.transcript.conversion.rendering import json_text_of, text_message, text_or_empty
from agent_memory_log.transcript.differences import difference
from agent_memory_log.transcript.json_types import is_list, is_map
from agent_memory_log.transcript.names import decode_name
from agent_memory_log.transcript.openai_chat import rendering
from agent_memory_log.transcript.openai_chat.reasoning import take_reasoning
from agent_memory_log.transcript.openai_chat.rendering import TEXT


class ChatParser(Parser):
    """Parses Chat Completions messages; see ``agent_memory_log.transcript.parse``."""

    provider = rendering.PROVIDER
    rules = rendering.RULES

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._after_assistant = False
        # The log's ids of the open calls that came with an empty id. Their results come in the same order.
        self._unnamed: list[str] = []

    def read(self, message: JsonMap) -> None:
        """Emit an event for the message, then one for each call in it."""
        role = message.get("role")
        if role == "assistant":
            self._read_assistant(message)
        elif isinstance(role, str) and role in PAYLOADS_OF_ROLES:
            self._read_text(message, role)
        elif role in ("tool", "function"):
            self._read_result(message)
        else:
            self.emit(UnknownPayload(type=f"{self.provider}.message", data=message))
        self._after_assistant = role == "assistant"

    def _read_text(self, message: JsonMap, role: str) -> None:
        content = message.get("content")
        text = TEXT.text_in(content) if is_list(content) else text_or_empty(content)
        default = text_message("system" if role == "developer" else role, text)
        self.emit(PAYLOADS_OF_ROLES[role](text), TEXT.difference(default, message, "content"))

    def _read_assistant(self, message: JsonMap) -> None:
        rest = dict(message)
        calls: list[tuple[JsonMap, bool]] = []
        tool_calls = rest.get("tool_calls")
        if is_list(tool_calls) and tool_calls and all(is_map(call) for call in tool_calls):
            del rest["tool_calls"]
            calls += [(call, False) for call in tool_calls]
        function_call = rest.get("function_call")
        if is_map(function_call) and not rendering.is_no_call(function_call):
            del rest["function_call"]
            calls.append((function_call, True))

        reasoning = take_reasoning(rest)
        if reasoning is not None:
            self.emit(*reasoning)
        head: JsonMap | None = None
        if calls and not _says_something(rest):
            residual = difference(text_message("assistant", None), rest)
            if residual or self._after_assistant:
                head = residual
        else:
            self._read_text(rest, "assistant")
        self._unnamed.clear()
        for number, (call, is_legacy) in enumerate(calls):
            self._read_call(call, number, is_legacy, head)
            head = None

    def _read_call(self, call: JsonMap, number: int, is_legacy: bool, head: JsonMap | None) -> None:
        bodies = [call] if is_legacy else [call[kind] for kind in ("function", "custom") if is_map(call.get(kind))]
        body: JsonMap = bodies[0] if bodies and is_map(bodies[0]) else {}
        sent_id = "" if is_legacy else text_or_empty(call.get("id"))
        call_id = sent_id
        if not is_legacy and call.get("id") == "":
            call_id = f"call-{self._index + 1}-{number + 1}"
            self._unnamed.append(call_id)
        payload = ToolCall(
            tool_call_id=call_id,
            tool_name=decode_name(text_or_empty(body.get("name"))),
            payload_json=json_text_of(body.get("arguments", body.get("input"))),
        )
        wire_id = self.calls.call(payload, sent_id) or ""
        if is_legacy:
            residual = {**difference(rendering.function(payload), call), "function_call": True}
        else:
            residual = difference(rendering.tool_call(payload, wire_id), call, "function")
        self.emit(payload, residual if head is None else {**residual, "message": head})

    def _read_result(self, message: JsonMap) -> None:
        call_id = text_or_empty(message.get("tool_call_id"))
        if not call_id and message.get("role") == "tool" and self._unnamed:
            call_id = self._unnamed.pop(0)
        name = self.calls.open_call_name(call_id)
        if name is None:
            name = decode_name(text_or_empty(message.get("name")))
        content = message.get("content")
        text = json_text_of(TEXT.text_in(content) if is_list(content) else content)
        payload = ToolResult(call_id, name, result_json=text)
        default = rendering.tool_message(payload, self.calls.result(payload) or "")
        self.emit(payload, TEXT.difference(default, message, "content"))


def _says_something(message: JsonMap) -> bool:
    return any(value not in (None, "", []) for key, value in message.items() if key != "role")
