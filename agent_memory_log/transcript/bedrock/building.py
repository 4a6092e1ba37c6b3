"""Converts events to Converse messages."""

from __future__ import annotations

from typing import cast

from agent_memory_log.events.payloads import SystemMessage, Thinking, ToolResult
from agent_memory_log.transcript.bedrock import rendering
from agent_memory_log.transcript.conversion.blocks import BlockBuilder
from agent_memory_log.transcript.conversion.building import NO_RESIDUAL, Residual
from agent_memory_log.transcript.conversion.rendering import TextPayload, result_text
from agent_memory_log.transcript.differences import apply
from agent_memory_log.transcript.findings import WireMessage


class BedrockBuilder(BlockBuilder):
    """Builds Converse messages; see ``agent_memory_log.transcript.build``."""

    provider = rendering.PROVIDER
    rules = rendering.RULES
    extra = rendering.EXTRA
    text_block = staticmethod(rendering.text_block)
    call_block = staticmethod(rendering.tool_use)
    call_key = "toolUse"

    def add_message(self, role: str, seq: int, data: TextPayload) -> None:
        """Add text blocks; an empty text adds no block."""
        residual = NO_RESIDUAL if data.structured is None else self.residual_of(seq, data)
        text = data.message
        if role == "system" and residual.get("inline") is not True:
            self.recorded.leading.append(cast("SystemMessage", data))
            return
        spans = residual.get("parts")
        blocks = None if spans is None else rendering.text_parts(role).join(text, spans)
        if blocks:
            self.add_blocks(blocks, role, residual, seq)
        elif blocks is None and text:
            self.add_block(rendering.text_block(text), role, residual, seq)

    def thinking(self, seq: int, data: Thinking, residual: Residual) -> None:
        """Add a reasoning block. A block without a signature is lost, unless this provider sent it in that form."""
        if not data.signature and not data.redacted and residual.get("unsigned") is not True:
            self.lose("reasoning", "thinking without a signature", seq, data.event_type)
            return
        body = rendering.reasoning(data)
        if "reasoningText" in body:
            apply(body["reasoningText"], residual)
        self.add_block({"reasoningContent": body}, "assistant", residual, seq)
        self.note_signed(data.signature or body.get("redactedContent"), data.text)

    def result_block(self, data: ToolResult, wire_id: str, omitted: str | None, residual: Residual) -> WireMessage:
        """Return the block of a result."""
        body = apply(rendering.tool_result(data, wire_id, residual), residual)
        if omitted is not None:
            body["content"] = [{"text": result_text(data, omitted)}]
        return {"toolResult": body}
