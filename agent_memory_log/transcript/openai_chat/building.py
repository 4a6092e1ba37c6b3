"""Events to Chat Completions messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import (
    AssistantMessage,
    EventType,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)
from agent_memory_log.transcript.building import Builder
from agent_memory_log.transcript.model import Message
from agent_memory_log.transcript.openai_chat.rendering import (
    CALL_EXTRA,
    MESSAGE_EXTRA,
    MESSAGE_TYPE,
    PROVIDER,
    RULES,
    function,
    text_message,
    tool_call,
    tool_message,
    with_residual,
)
from agent_memory_log.transcript.residual import apply, is_residual, kept_for

_NONE: Mapping[str, JsonValue] = {}
_JOINED_TYPES = frozenset({EventType.TOOL_CALL.value, EventType.THINKING.value})


class ChatBuilder(Builder):
    """See ``agent_memory_log.transcript.build``. Calls are joined to the assistant message before them."""

    provider = PROVIDER
    rules = RULES
    part_key = "tool_calls"

    def __init__(self, messages: list[Message], max_result_bytes: int | None) -> None:
        super().__init__(messages, max_result_bytes)
        self._message: Message | None = None
        self._tool_calls: list[Any] | None = None

    def user(self, seq: int, data: UserMessage) -> None:
        """A message of its own."""
        self._add_text("user", data, seq)

    def system(self, seq: int, data: SystemMessage) -> None:
        """A message of its own, wherever it stands."""
        self._add_text("system", data, seq)

    def assistant(self, seq: int, data: AssistantMessage) -> None:
        """A message that the calls after it are joined to."""
        self._add_text("assistant", data, seq)
        self._message = self.messages[-1]
        self._tool_calls = None

    def thinking(self, seq: int, data: Thinking) -> None:
        """Chat Completions takes no reasoning."""
        self.lose("reasoning", "Chat Completions takes no reasoning", seq, data.event_type)

    def call(self, seq: int, data: ToolCall, wire_id: str) -> None:
        """An item of ``tool_calls`` in the open assistant message, or in a new one."""
        residual = _NONE if data.structured is None else kept_for(PROVIDER, data.structured, CALL_EXTRA)
        is_legacy = residual.get("function_call") is True
        head = residual.get("message")
        begins = head is not None and isinstance(head, Mapping) and is_residual(head)
        message = self._message
        if message is None or begins or (is_legacy and "function_call" in message):
            message = text_message("assistant", None)
            if begins:
                apply(message, cast("Mapping[str, JsonValue]", head))
            self.begin(message, seq, [])
            self._message = message
            self._tool_calls = None
        if is_legacy:
            message["function_call"] = apply(function(data), residual)
            return
        if self._tool_calls is None:
            message["tool_calls"] = self._tool_calls = []
        self._tool_calls.append(apply(tool_call(data, wire_id), residual))
        self.origins.parts[-1].append(seq)

    def result(self, seq: int, data: ToolResult, wire_id: str, omitted: str | None) -> None:
        """A message of its own."""
        self._message = None
        message = tool_message(data, wire_id)
        if data.structured is not None:
            with_residual(message, kept_for(PROVIDER, data.structured, MESSAGE_EXTRA))
        if omitted is not None:
            message["content"] = omitted
        self.begin(message, seq, [])

    def own(self, seq: int, data: UnknownPayload) -> bool:
        """A message no payload fits."""
        if data.type != MESSAGE_TYPE:
            return False
        self._message = None
        self.begin(data.to_map(), seq, [])
        return True

    def erased(self, original_type: str) -> None:
        """A call without its message must not be joined to the message before that."""
        if original_type not in _JOINED_TYPES:
            self._message = None

    def _add_text(self, role: str, data: UserMessage | AssistantMessage | SystemMessage, seq: int) -> None:
        self._message = None
        message = text_message(role, data.message)
        if data.structured is not None:
            with_residual(message, kept_for(PROVIDER, data.structured, MESSAGE_EXTRA))
        self.begin(message, seq, [])
