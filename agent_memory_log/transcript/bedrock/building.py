"""Events to Converse messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_memory_log.events.jsonvalue import JsonValue, own_json
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
from agent_memory_log.transcript.bedrock.rendering import (
    BLOCK_TYPE,
    EXTRA,
    PROVIDER,
    ROLES,
    RULES,
    arguments_of,
    head_of,
    reasoning,
    text_parts,
    tool_result,
    tool_use,
)
from agent_memory_log.transcript.building import Builder
from agent_memory_log.transcript.model import Message
from agent_memory_log.transcript.residual import apply, kept_for

_Residual = Mapping[str, JsonValue]

_NONE: _Residual = {}
_SIDES = {
    EventType.USER_MESSAGE.value: "user",
    EventType.TOOL_RESULT.value: "user",
    EventType.ASSISTANT_MESSAGE.value: "assistant",
    EventType.THINKING.value: "assistant",
    EventType.TOOL_CALL.value: "assistant",
}


class BedrockBuilder(Builder):
    """See ``agent_memory_log.transcript.build``."""

    provider = PROVIDER
    rules = RULES

    def __init__(self, messages: list[Message], max_result_bytes: int | None) -> None:
        super().__init__(messages, max_result_bytes)
        self._side: str | None = None
        self._content: list[Any] = []

    def user(self, seq: int, data: UserMessage) -> None:
        """Text blocks; nothing where there is no text."""
        self._add_text("user", data, seq)

    def assistant(self, seq: int, data: AssistantMessage) -> None:
        """Text blocks; nothing where there is no text."""
        self._add_text("assistant", data, seq)

    def system(self, seq: int, data: SystemMessage) -> None:
        """Outside the messages, unless it came among them."""
        structured = data.structured
        if structured is not None and kept_for(PROVIDER, structured, EXTRA).get("inline") is True:
            self._add_text("system", data, seq)
        else:
            self.leading.append(data)

    def thinking(self, seq: int, data: Thinking) -> None:
        """A block as it was; without a signature nothing, unless this provider had sent it so."""
        residual = _NONE if data.structured is None else kept_for(PROVIDER, data.structured, EXTRA)
        signed = data.signature
        if not signed and not data.redacted and residual.get("unsigned") is not True:
            self.lose("reasoning", "thinking without a signature", seq, data.event_type)
            return
        body = reasoning(data)
        inner = body.get("reasoningText")
        if inner is None:
            signed = body["redactedContent"]
        else:
            apply(inner, residual)
        self._add({"reasoningContent": body}, "assistant", residual, seq)
        if signed:
            self.recorded.signed.setdefault(signed, (len(self.recorded.signed), data.text))

    def call(self, seq: int, data: ToolCall, wire_id: str) -> None:
        """A block of the assistant's message."""
        residual = _NONE if data.structured is None else kept_for(PROVIDER, data.structured, EXTRA)
        arguments, is_exact = arguments_of(data.payload_json)
        if not is_exact:
            self.lose("arguments", f"the arguments of {data.tool_name!r} are not a JSON object", seq, data.event_type)
        self._add({"toolUse": apply(tool_use(data, wire_id, arguments), residual)}, "assistant", residual, seq)

    def result(self, seq: int, data: ToolResult, wire_id: str, omitted: str | None) -> None:
        """A block of the user's message."""
        residual = _NONE if data.structured is None else kept_for(PROVIDER, data.structured, EXTRA)
        body = apply(tool_result(data, wire_id, residual), residual)
        if omitted is not None:
            body["content"] = [{"text": omitted}]
        self._add({"toolResult": body}, "user", residual, seq)

    def own(self, seq: int, data: UnknownPayload) -> bool:
        """A block or a message no payload fits."""
        if data.type != BLOCK_TYPE:
            self._side = None
            self.begin(data.to_map(), seq, [])
            return True
        role = data.data.get("role")
        if "block" not in data.data or not isinstance(role, str) or role not in ROLES:
            return False
        self._add(own_json(data.data["block"]), role, data.data, seq)
        return True

    def erased(self, original_type: str) -> None:
        """What stood between two messages of one side must not join them."""
        if original_type != BLOCK_TYPE and _SIDES.get(original_type) != self._side:
            self._side = None

    def _add_text(self, side: str, data: UserMessage | AssistantMessage | SystemMessage, seq: int) -> None:
        residual = _NONE if data.structured is None else kept_for(PROVIDER, data.structured, EXTRA)
        spans = residual.get("parts")
        blocks = None if spans is None else text_parts(side).join(data.message, spans)
        if blocks is None:
            if not data.message:
                return
            blocks = [{"text": data.message}]
        for number, block in enumerate(blocks):
            self._add(block, side, _NONE if number else residual, seq)

    def _add(self, block: JsonValue, side: str, residual: _Residual, seq: int) -> None:
        """Add a block to the open message, if that is of ``side``, or to a new one."""
        head = head_of(residual) if residual else None
        if self._side != side or isinstance(head, Mapping):
            self._content = []
            message: Message = {"role": side, "content": self._content}
            if isinstance(head, Mapping):
                apply(message, head)
            self._side = side
            self.begin(message, seq, [])
        self._content.append(block)
        self.origins.parts[-1].append(seq)
