"""Converts events to Messages API messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from agent_memory_log.events.payloads import SystemMessage, Thinking, ToolResult
from agent_memory_log.transcript.anthropic import rendering
from agent_memory_log.transcript.anthropic.rendering import ASSISTANT_TEXT, USER_TEXT
from agent_memory_log.transcript.conversion.blocks import BlockBuilder
from agent_memory_log.transcript.conversion.building import NO_RESIDUAL, Residual
from agent_memory_log.transcript.conversion.rendering import TextPayload, result_text
from agent_memory_log.transcript.differences import apply, is_residual
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.json_types import is_list


class AnthropicBuilder(BlockBuilder):
    """Builds Messages API messages; see ``agent_memory_log.transcript.build``."""

    provider = rendering.PROVIDER
    rules = rendering.RULES
    extra = rendering.EXTRA
    text_block = staticmethod(rendering.text_block)
    call_block = staticmethod(rendering.tool_use)
    own_block_side = "assistant"

    def add_message(self, role: str, seq: int, data: TextPayload) -> None:
        """Add text blocks, or a text as the content of a user message."""
        residual = NO_RESIDUAL if data.structured is None else self.residual_of(seq, data)
        text = data.message
        spans = residual.get("parts")
        blocks = None if spans is None else (ASSISTANT_TEXT if role == "assistant" else USER_TEXT).join(text, spans)
        if role == "system":
            if self.messages or residual.get("inline") is True:
                self._add_system(text if blocks is None else blocks, residual, seq)
            else:
                self.recorded.leading.append(cast("SystemMessage", data))
        elif blocks is not None:
            if blocks:
                self.add_blocks(blocks, role, residual, seq, is_user_text=role == "user")
        elif role == "user" or residual.get("text") is True:
            self.add_text(text, role, residual, seq, is_user_text=role == "user")
        elif text:
            self.add_block(rendering.text_block(text), role, residual, seq)

    def thinking(self, seq: int, data: Thinking, residual: Residual) -> None:
        """Add a thinking block. A block without a signature is lost, unless this provider sent it in that form."""
        is_own = isinstance(data.structured, Mapping) and self.provider in data.structured
        if not data.signature and not data.redacted and not is_own:
            self.lose("reasoning", "thinking without a signature", seq, data.event_type)
            return
        block = rendering.thinking_block(data)
        if residual:
            apply(block, residual)
        self.add_block(block, "assistant", residual, seq)
        self.note_signed(data.signature or block.get("data"), data.text)

    def result_block(self, data: ToolResult, wire_id: str, omitted: str | None, residual: Residual) -> WireMessage:
        """Return the block of a result."""
        block = rendering.tool_result(data, wire_id)
        if residual:
            spans = residual.get("parts")
            parts = None if spans is None or omitted is not None else USER_TEXT.join(block.get("content", ""), spans)
            if parts is not None:
                block["content"] = parts
            apply(block, residual)
        if omitted is not None:
            block["content"] = result_text(data, omitted)
        return block

    def _add_system(self, content: object, residual: Residual, seq: int) -> None:
        message: WireMessage = {"role": "system", "content": content}
        head = residual.get("message")
        if isinstance(head, Mapping) and is_residual(head):
            apply(message, head)
        self.open_message.begin("")
        self.begin(message, seq, [seq] * len(content) if is_list(content) else [seq])
