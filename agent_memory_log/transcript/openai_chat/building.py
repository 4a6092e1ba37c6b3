"""Converts events to Chat Completions messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from agent_memory_log.events.payloads import (
    EventType,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
)
from agent_memory_log.transcript.conversion.building import NO_RESIDUAL, Builder, Residual
from agent_memory_log.transcript.conversion.rendering import TextPayload, result_text, text_message
from agent_memory_log.transcript.differences import apply, is_residual
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.openai_chat import rendering
from agent_memory_log.transcript.openai_chat.reasoning import plain_reasoning, put_reasoning, recorded_reasoning
from agent_memory_log.transcript.openai_chat.rendering import TEXT

_JOINED_TYPES = frozenset({EventType.TOOL_CALL.value, EventType.THINKING.value})


class ChatBuilder(Builder):
    """Builds Chat Completions messages; see ``agent_memory_log.transcript.build``.

    A call joins the assistant message before it. Thinking joins the assistant message after it.
    """

    provider = rendering.PROVIDER
    rules = rendering.RULES
    extra = rendering.EXTRA
    part_key = "tool_calls"
    reasoning: ClassVar[str] = ""
    """The field for reasoning without a residual; see ``Vendor``."""

    def __init__(self, messages: list[WireMessage], max_result_bytes: int | None) -> None:
        super().__init__(messages, max_result_bytes)
        # The assistant message that calls join, and the list of its calls.
        self._message: WireMessage | None = None
        self._tool_calls: list[Any] | None = None
        # The fields of reasoning that the next assistant message gets.
        self._reasoning: WireMessage | None = None

    def add_message(self, role: str, seq: int, data: TextPayload) -> None:
        """Add a message. Later calls join it if it is an assistant message."""
        residual = NO_RESIDUAL if data.structured is None else self.residual_of(seq, data)
        message = text_message(role, data.message)
        if residual:
            TEXT.apply(message, residual, "content")
        if self._reasoning is not None:
            self._complete(message)
        self.begin(message, seq, [])
        self._message = message if role == "assistant" else None
        self._tool_calls = None

    def thinking(self, seq: int, data: Thinking, residual: Residual) -> None:
        """Keep the reasoning for the next assistant message, if it came from this vendor or is plain text."""
        fields = recorded_reasoning(data, residual) if residual else None
        if fields is None and self.reasoning and data.text and not residual and not data.signature:
            fields = plain_reasoning(data.text, self.reasoning)
        if fields is None:
            self.lose("reasoning", f"{self.provider} accepts no such reasoning", seq, data.event_type)
        self._reasoning = fields

    def call(self, seq: int, data: ToolCall, wire_id: str, residual: Residual) -> None:
        """Add an item to ``tool_calls`` of the open assistant message, or of a new one."""
        is_legacy = residual.get("function_call") is True
        head = residual.get("message")
        begins = head is not None and isinstance(head, Mapping) and is_residual(head)
        message = self._message
        if message is None or begins or self._reasoning is not None or (is_legacy and "function_call" in message):
            message = text_message("assistant", None)
            if begins:
                apply(message, cast("Residual", head))
            if self._reasoning is not None:
                self._complete(message)
            self.begin(message, seq, [])
            self._message = message
            self._tool_calls = None
        if is_legacy:
            message["function_call"] = apply(rendering.function(data), residual)
            return
        if self._tool_calls is None:
            message["tool_calls"] = self._tool_calls = []
        self._tool_calls.append(apply(rendering.tool_call(data, wire_id), residual))
        self.origins.parts[-1].append(seq)

    def result(self, seq: int, data: ToolResult, wire_id: str, omitted: str | None, residual: Residual) -> None:
        """Add a tool message."""
        self._message = self._reasoning = None
        message = rendering.tool_message(data, wire_id)
        if residual:
            TEXT.apply(message, residual, "content")
        if omitted is not None:
            message["content"] = result_text(data, omitted)
        self.begin(message, seq, [])

    def own(self, seq: int, data: UnknownPayload) -> bool:
        """Add a message that fits no payload."""
        if data.type != f"{self.provider}.message":
            return False
        self._message = self._reasoning = None
        self.begin(data.to_map(), seq, [])
        return True

    def erased(self, original_type: str) -> None:
        """Close the open message, so that a call of an erased message does not join an earlier one."""
        if original_type not in _JOINED_TYPES:
            self._message = None
        if original_type != EventType.THINKING:
            self._reasoning = None

    def _complete(self, message: WireMessage) -> None:
        """Give a new message of the assistant the reasoning before it."""
        if self._reasoning is not None and message.get("role") == "assistant":
            put_reasoning(message, self._reasoning)
        self._reasoning = None
