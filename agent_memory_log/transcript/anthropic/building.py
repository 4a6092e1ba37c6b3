"""Events to Messages API messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from agent_memory_log.transcript.anthropic.rendering import (
    ANSWERED,
    BLOCK_TYPE,
    EXTRA,
    PROVIDER,
    RULES,
    SAID,
    Grouping,
    arguments_of,
    head_of,
    text_block,
    thinking_block,
    tool_result,
)
from agent_memory_log.transcript.building import Builder
from agent_memory_log.transcript.model import Message
from agent_memory_log.transcript.names import encode_name
from agent_memory_log.transcript.residual import apply, kept_for

_Residual = Mapping[str, JsonValue]

_NONE: _Residual = {}
_USERS_TYPES = frozenset({EventType.USER_MESSAGE.value, EventType.TOOL_RESULT.value})
_ASSISTANTS_TYPES = frozenset(
    {EventType.ASSISTANT_MESSAGE.value, EventType.THINKING.value, EventType.TOOL_CALL.value, BLOCK_TYPE}
)


class AnthropicBuilder(Builder):
    """See ``agent_memory_log.transcript.build``."""

    provider = PROVIDER
    rules = RULES

    def __init__(self, messages: list[Message], max_result_bytes: int | None) -> None:
        super().__init__(messages, max_result_bytes)
        self._grouping = Grouping()
        self._content: list[Any] = []
        self._is_text = False
        self._signed = self.recorded.signed

    def user(self, seq: int, data: UserMessage) -> None:
        """Text, a message of its own or after results."""
        residual = _NONE if data.structured is None else kept_for(PROVIDER, data.structured, EXTRA)
        spans = residual.get("parts")
        blocks = None if spans is None else SAID.join(data.message, spans)
        head = head_of(residual)
        if head is not False and (head is not None or not self._grouping.joins("user", says=True)):
            self._begin("user", head, seq)
            self._grouping.opened("user", says=True)
            if blocks is None:
                self._begin_text(data.message, seq)
                return
        elif self._grouping.side != "user":
            self._begin("user", None, seq)
            self._grouping.opened("user", says=True)
        self._grouping.said = True
        self._add([text_block(data.message)] if blocks is None else blocks, seq)

    def assistant(self, seq: int, data: AssistantMessage) -> None:
        """Text blocks; nothing where there is no text."""
        if data.structured is None:
            if data.message:
                self._open("assistant", None, seq)
                self._content.append({"type": "text", "text": data.message})
                self.origins.parts[-1].append(seq)
            return
        residual = kept_for(PROVIDER, data.structured, EXTRA)
        spans = residual.get("parts")
        blocks = None if spans is None else ANSWERED.join(data.message, spans)
        if blocks is None:
            blocks = [text_block(data.message)] if data.message else []
        is_text = residual.get("text") is True
        if not blocks and not is_text:
            return
        begun = self._open("assistant", head_of(residual), seq)
        if begun and is_text:
            self._begin_text(data.message, seq)
        else:
            self._add(blocks, seq)

    def system(self, seq: int, data: SystemMessage) -> None:
        """Outside the messages at the beginning, a message later."""
        residual = _NONE if data.structured is None else kept_for(PROVIDER, data.structured, EXTRA)
        if not self.messages and residual.get("inline") is not True:
            self.leading.append(data)
            return
        spans = residual.get("parts")
        parts = None if spans is None else SAID.join(data.message, spans)
        message: Message = {"role": "system", "content": data.message if parts is None else parts}
        head = head_of(residual)
        if isinstance(head, Mapping):
            apply(message, head)
        self._grouping.opened("")
        self.begin(message, seq, [seq] if parts is None else [seq] * len(parts))

    def thinking(self, seq: int, data: Thinking) -> None:
        """A block as it was; without a signature nothing, unless this provider had sent it so."""
        structured = data.structured
        if structured is None:
            if not data.signature and not data.redacted:
                self.lose("reasoning", "thinking without a signature", seq, data.event_type)
                return
            self._open("assistant", None, seq)
            block = thinking_block(data)
        else:
            if not data.signature and not data.redacted and not _is_kept(structured):
                self.lose("reasoning", "thinking without a signature", seq, data.event_type)
                return
            residual = kept_for(PROVIDER, structured, EXTRA)
            self._open("assistant", head_of(residual), seq)
            block = apply(thinking_block(data), residual)
        self._content.append(block)
        self.origins.parts[-1].append(seq)
        signed = data.signature or block.get("data")
        if signed and isinstance(signed, str):
            self._signed.setdefault(signed, (len(self._signed), data.text))

    def call(self, seq: int, data: ToolCall, wire_id: str) -> None:
        """A block of the assistant's message."""
        arguments, is_exact = arguments_of(data.payload_json)
        block: Message = {
            "type": "tool_use",
            "id": wire_id,
            "name": encode_name(data.tool_name),
            "input": arguments,
        }
        if not is_exact:
            self.lose("arguments", f"the arguments of {data.tool_name!r} are not a JSON object", seq, data.event_type)
        if data.structured is None:
            self._open("assistant", None, seq)
        else:
            residual = kept_for(PROVIDER, data.structured, EXTRA)
            self._open("assistant", head_of(residual), seq)
            apply(block, residual)
        self._content.append(block)
        self.origins.parts[-1].append(seq)

    def result(self, seq: int, data: ToolResult, wire_id: str, omitted: str | None) -> None:
        """A block of the user's message."""
        block = tool_result(data, wire_id)
        if data.structured is None:
            self._open("user", None, seq)
        else:
            residual = kept_for(PROVIDER, data.structured, EXTRA)
            self._open("user", head_of(residual), seq)
            spans = residual.get("parts")
            if spans is not None and omitted is None:
                parts = SAID.join(block.get("content", ""), spans)
                if parts is not None:
                    block["content"] = parts
            apply(block, residual)
        if omitted is not None:
            block["content"] = omitted
        self._content.append(block)
        self.origins.parts[-1].append(seq)

    def own(self, seq: int, data: UnknownPayload) -> bool:
        """A block or a message no payload fits."""
        if data.type != BLOCK_TYPE:
            self._grouping.opened("")
            self.begin(data.to_map(), seq, [])
            return True
        block = data.data.get("block")
        if not isinstance(block, Mapping):
            return False
        self._open("assistant", head_of(data.data), seq)
        self._content.append(own_json(block))
        self.origins.parts[-1].append(seq)
        return True

    def erased(self, original_type: str) -> None:
        """What stood between two messages of one side must not join them."""
        side = self._grouping.side
        if not (original_type in _USERS_TYPES and side == "user") and not (
            original_type in _ASSISTANTS_TYPES and side == "assistant"
        ):
            self._grouping.opened("")

    def _open(self, side: str, head: _Residual | bool | None, seq: int) -> bool:
        """Make the open message one of ``side``; whether that began a new one."""
        if self._grouping.side == side and (head is None or head is False):
            if self._is_text:
                self._end_text()
            return False
        self._begin(side, head, seq)
        self._grouping.opened(side)
        return True

    def _begin(self, side: str, head: _Residual | bool | None, seq: int) -> None:
        content: list[Any] = []
        self._content = content
        self._is_text = False
        message: Message = {"role": side, "content": content}
        if head and isinstance(head, Mapping):
            apply(message, head)
        self.begin(message, seq, [])

    def _begin_text(self, text: str, seq: int) -> None:
        """Make the message just begun one whose content is ``text`` itself."""
        self.messages[-1]["content"] = text
        self.origins.parts[-1].append(seq)
        self._is_text = True

    def _end_text(self) -> None:
        message = self.messages[-1]
        self._content.append(text_block(message["content"]))
        message["content"] = self._content
        self._is_text = False

    def _add(self, blocks: Sequence[JsonValue], seq: int) -> None:
        if self._is_text:
            self._end_text()
        self._content.extend(blocks)
        self.origins.parts[-1].extend([seq] * len(blocks))


def _is_kept(structured: object) -> bool:
    return isinstance(structured, Mapping) and PROVIDER in structured
