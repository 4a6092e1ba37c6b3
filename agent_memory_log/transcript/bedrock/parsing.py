"""Converts Converse messages to events."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.events.payloads import Thinking, ToolCall
from agent_memory_log.transcript.bedrock import rendering
from agent_memory_log.transcript.bedrock.rendering import USER_TEXT, is_for_client
from agent_memory_log.transcript.conversion.blocks import ROLES, BlockParser
from agent_memory_log.transcript.conversion.parsing import PAYLOADS_OF_ROLES, JsonMap
from agent_memory_log.transcript.conversion.rendering import bytes_of_base64
from agent_memory_log.transcript.differences import difference
from agent_memory_log.transcript.names import decode_name


class BedrockParser(BlockParser):
    """Parses Converse messages; see ``agent_memory_log.transcript.parse``.

    Text blocks and the other blocks between them, such as images, are one event.
    """

    provider = rendering.PROVIDER
    rules = rendering.RULES

    def read(self, message: JsonMap) -> None:
        """Emit one event for consecutive text blocks together, and one event for every other block."""
        role = message.get("role")
        content = message.get("content")
        if not isinstance(role, str) or role not in ROLES or not isinstance(content, list) or not content:
            self.emit_own_message(message)
            return
        self.head = difference({"role": role}, {key: value for key, value in message.items() if key != "content"})
        self.read_blocks(role, content)

    def reader_of(self, role: str, block: JsonValue) -> Callable[[int, JsonMap], None] | None:
        """Return the reader of a user's result, or of an assistant's call or reasoning."""
        body = _body_of(role, block)
        if body is None:
            return None
        if role == "user":
            return self._result
        return self._call if "toolUseId" in body else self._thinking

    def read_run(self, role: str, run: list[JsonValue]) -> None:
        """Emit ``run`` as one text event. Without any text, emit each block alone: planners see no empty message."""
        parts = rendering.text_parts(role)
        if not any(parts.text_of(block) is not None for block in run):
            for block in run:
                self.emit_own_block(role, {"role": role, "block": block})
            return
        text, spans = parts.split(run)
        residual: JsonMap = {} if text and spans == [len(text)] else {"parts": spans}
        if role == "system":
            residual["inline"] = True
        self.emit_block(role, PAYLOADS_OF_ROLES[role](text), residual)

    def _thinking(self, index: int, block: JsonMap) -> None:
        body = cast("JsonMap", block["reasoningContent"])
        text = body.get("reasoningText")
        residual: JsonMap = {}
        if isinstance(text, dict):
            signature = cast("str", text.get("signature", ""))
            payload = Thinking(text=cast("str", text["text"]), signature=signature, content_index=index, final=True)
            residual = difference(rendering.reasoning(payload)["reasoningText"], text)
            if not signature:
                residual["unsigned"] = True
        else:
            redacted = bytes_of_base64(cast("str", body["redactedContent"]))
            payload = Thinking(redacted=redacted, content_index=index, final=True)
        self.emit_block("assistant", payload, residual)

    def _call(self, index: int, block: JsonMap) -> None:
        del index
        body = cast("JsonMap", block["toolUse"])
        arguments = cast("JsonMap", body["input"])
        payload = ToolCall(
            tool_call_id=cast("str", body["toolUseId"]),
            tool_name=decode_name(cast("str", body["name"])),
            payload_json=encode_json(arguments).decode(),
        )
        default = rendering.tool_use(payload, self.calls.call(payload, payload.tool_call_id) or "", arguments)
        self.emit_block("assistant", payload, difference(default["toolUse"], body))

    def _result(self, index: int, block: JsonMap) -> None:
        del index
        body = cast("JsonMap", block["toolResult"])
        call_id = cast("str", body["toolUseId"])
        content = cast("list[JsonValue]", body["content"])
        residual: JsonMap = {}
        first = content[0] if len(content) == 1 else None
        if isinstance(first, dict) and first.keys() == {"json"}:
            text = encode_json(first["json"]).decode()
            residual["json"] = True
        else:
            text, spans = USER_TEXT.split(content)
            if is_absent_text(text):
                text = ""
            if spans and spans != [len(text)]:
                residual["parts"] = spans
        payload = self.result_payload(call_id, text, failed=body.get("status") == "error")
        default = rendering.tool_result(payload, self.calls.result(payload) or "", residual)
        self.emit_block("user", payload, {**residual, **difference(default, body)})


def _body_of(role: str, block: JsonValue) -> JsonMap | None:
    """Return the body of a result, call or reasoning that has its own payload in ``role``; None for other blocks."""
    if not isinstance(block, dict) or len(block) != 1:
        return None
    key, body = next(iter(block.items()))
    if not isinstance(body, dict):
        return None
    if role == "user":
        is_own = key == "toolResult" and isinstance(body.get("content"), list)
        return body if is_own and isinstance(body.get("toolUseId"), str) else None
    if role != "assistant":
        return None
    if key == "toolUse" and is_for_client(body):
        texts = isinstance(body.get("toolUseId"), str) and isinstance(body.get("name"), str)
        return body if texts and isinstance(body.get("input"), dict) else None
    return body if key == "reasoningContent" and _is_reasoning(body) else None


def _is_reasoning(body: JsonMap) -> bool:
    if body.keys() == {"redactedContent"}:
        redacted = body["redactedContent"]
        return isinstance(redacted, str) and bool(bytes_of_base64(redacted))
    text = body.get("reasoningText")
    return (
        len(body) == 1
        and isinstance(text, dict)
        and isinstance(text.get("text"), str)
        and isinstance(text.get("signature", ""), str)
    )
