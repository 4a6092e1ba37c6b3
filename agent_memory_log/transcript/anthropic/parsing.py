"""Converts Messages API messages to events."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import msgspec

from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.events.payloads import AssistantMessage, SystemMessage, Thinking, ToolCall, UserMessage
from agent_memory_log.transcript.anthropic import rendering
from agent_memory_log.transcript.anthropic.rendering import ASSISTANT_TEXT, USER_TEXT
from agent_memory_log.transcript.conversion.blocks import BlockParser
from agent_memory_log.transcript.conversion.parsing import JsonMap
from agent_memory_log.transcript.conversion.rendering import bytes_of_base64
from agent_memory_log.transcript.differences import difference, same_json
from agent_memory_log.transcript.json_types import is_list, is_map
from agent_memory_log.transcript.names import decode_name


class AnthropicParser(BlockParser):
    """Parses Messages API messages; see ``agent_memory_log.transcript.parse``."""

    provider = rendering.PROVIDER
    rules = rendering.RULES

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._is_first = True

    def read(self, message: JsonMap) -> None:
        """Emit one event for consecutive text blocks together, and one event for every other block."""
        role = message.get("role")
        content = message.get("content")
        rest = {key: value for key, value in message.items() if key != "content"}
        self.head = difference({"role": role}, rest)
        if role == "system" and isinstance(content, (str, list)):
            self._read_system(content)
        elif role == "user" and isinstance(content, str):
            self.emit_block("user", UserMessage(content), {}, is_user_text=True)
        elif role == "user" and is_list(content) and content:
            self.read_blocks("user", content)
        elif role == "assistant" and isinstance(content, str):
            self.emit_block("assistant", AssistantMessage(content), {"text": True})
        elif role == "assistant" and is_list(content) and content and all(is_map(block) for block in content):
            self.read_blocks("assistant", content)
        else:
            self.emit_own_message(message)
        self._is_first = False

    def _read_system(self, content: str | list[JsonValue]) -> None:
        residual: JsonMap = {"inline": True} if self._is_first else {}
        text = content
        if is_list(content):
            text, residual["parts"] = USER_TEXT.split(content)
        if self.head:
            residual["message"] = self.head
        self.open_message.begin("")
        self.emit(SystemMessage(cast("str", text)), residual)

    def reader_of(self, role: str, block: JsonValue) -> Callable[[int, JsonMap], None] | None:
        """Return the reader of a user's result, or of an assistant's block that is not text."""
        if role == "user":
            return self._result if _is_result(block) else None
        return self._block if ASSISTANT_TEXT.text_of(block) is None else None

    def read_run(self, role: str, run: list[JsonValue]) -> None:
        """Emit the text of ``run`` as one event, with its spans unless the builder renders ``run`` without them."""
        if role == "user":
            text, spans = USER_TEXT.split(run)
            is_default = self.head is None and spans == [len(text)]
            self.emit_block("user", UserMessage(text), {} if is_default else {"parts": spans}, is_user_text=True)
            return
        text, spans = ASSISTANT_TEXT.split(run)
        is_default = bool(text) and same_json(run, [rendering.text_block(text)])
        self.emit_block("assistant", AssistantMessage(text), {} if is_default else {"parts": spans})

    def _result(self, index: int, block: JsonMap) -> None:
        del index
        call_id = cast("str", block["tool_use_id"])
        content = block.get("content")
        spans: list[JsonValue] | None = None
        text = content if isinstance(content, str) else ""
        if is_list(content):
            text, spans = USER_TEXT.split(content)
        payload = self.result_payload(call_id, text, failed=block.get("is_error") is True)
        text = payload.error_message or payload.result_json
        default = rendering.tool_result(payload, self.calls.result(payload) or "")
        residual: JsonMap = {}
        if spans is not None and same_json(USER_TEXT.join(text, spans), content):
            residual["parts"] = spans
            default["content"] = content
        self.emit_block("user", payload, {**residual, **difference(default, block)})

    def _block(self, index: int, block: JsonMap) -> None:
        kind = block.get("type")
        if kind == "tool_use" and _has_texts(block, "id", "name") and is_map(block.get("input")):
            self._call(block)
        elif kind == "thinking" and _has_texts(block, "thinking", "signature"):
            text, signature = cast("str", block["thinking"]), cast("str", block["signature"])
            self._thinking(Thinking(text=text, signature=signature, content_index=index, final=True), block)
        elif kind == "redacted_thinking" and _has_texts(block, "data"):
            data = cast("str", block["data"])
            redacted = bytes_of_base64(data) or data.encode()
            self._thinking(Thinking(redacted=redacted, content_index=index, final=True), block)
        else:
            self.emit_own_block("assistant", {"block": block})

    def _thinking(self, payload: Thinking, block: JsonMap) -> None:
        residual = difference(rendering.thinking_block(payload), block)
        if not payload.signature and not payload.redacted:  # marks it as sent by this provider, so build keeps it
            payload = msgspec.structs.replace(payload, structured={self.provider: {}})
        self.emit_block("assistant", payload, residual)

    def _call(self, block: JsonMap) -> None:
        arguments = cast("JsonMap", block["input"])
        payload = ToolCall(
            tool_call_id=cast("str", block["id"]),
            tool_name=decode_name(cast("str", block["name"])),
            payload_json=encode_json(arguments).decode(),
        )
        default = rendering.tool_use(payload, self.calls.call(payload, payload.tool_call_id) or "", arguments)
        self.emit_block("assistant", payload, difference(default, block))


def _is_result(block: JsonValue) -> bool:
    return (
        is_map(block)
        and block.get("type") == "tool_result"
        and isinstance(block.get("tool_use_id"), str)
        and isinstance(block.get("content", ""), (str, list))
        and isinstance(block.get("is_error", False), bool)
    )


def _has_texts(block: JsonMap, *keys: str) -> bool:
    return all(isinstance(block.get(key), str) for key in keys)
