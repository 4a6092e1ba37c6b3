"""Converse messages to events."""

from __future__ import annotations

from typing import cast

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.events.payloads import (
    AssistantMessage,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)
from agent_memory_log.transcript.bedrock.rendering import (
    BLOCK_TYPE,
    MESSAGE_TYPE,
    PROVIDER,
    ROLES,
    RULES,
    SAID,
    arguments_of,
    encrypted_bytes,
    reasoning,
    text_parts,
    tool_result,
    tool_use,
)
from agent_memory_log.transcript.names import decode_name
from agent_memory_log.transcript.parsing import JsonMap, Parser
from agent_memory_log.transcript.residual import difference, kept


class BedrockParser(Parser):
    """See ``agent_memory_log.transcript.parse``. Text blocks, with what stands between them, are one event."""

    provider = PROVIDER
    rules = RULES

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._side: str | None = None
        # The residual of the message that is being read, until its first event has taken it; None from then on.
        self._head: JsonMap | None = None

    def read(self, message: JsonMap) -> None:
        """Emit an event for each run of text and each other block."""
        role = message.get("role")
        content = message.get("content")
        if not isinstance(role, str) or role not in ROLES or not isinstance(content, list) or not content:
            self._side = None
            self.emit(UnknownPayload(type=MESSAGE_TYPE, data=message))
            return
        self._head = difference({"role": role}, {key: value for key, value in message.items() if key != "content"})
        run: list[JsonValue] = []
        for index, block in enumerate(content):
            body = _body_of(role, block)
            if body is None:
                run.append(block)
                continue
            self._read_run(role, run)
            run = []
            if role == "user":
                self._result(body)
            elif "toolUseId" in body:
                self._call(body)
            else:
                self._thinking(index, body)
        self._read_run(role, run)

    def _read_run(self, role: str, run: list[JsonValue]) -> None:
        """What was said; blocks without any text are each an event that planners do not take for a message."""
        how = text_parts(role)
        if not any(how.text_of(block) is not None for block in run):
            for block in run:
                data: JsonMap = {"role": role, "block": block}
                head = self._taken_head(role)
                if head is not None:
                    data["message"] = head
                self.emit(UnknownPayload(type=BLOCK_TYPE, data=data))
            return
        text, spans = how.split(run)
        residual: JsonMap = {} if text and spans == [len(text)] else {"parts": spans}
        if role == "user":
            self.emit(UserMessage(text, self._residual(role, residual)))
        elif role == "assistant":
            self.emit(AssistantMessage(text, self._residual(role, residual)))
        else:
            self.emit(SystemMessage(text, self._residual(role, {**residual, "inline": True})))

    def _thinking(self, index: int, body: JsonMap) -> None:
        inner = body.get("reasoningText")
        if isinstance(inner, dict):
            known = inner
            signature = cast("str", known.get("signature", ""))
            payload = Thinking(text=cast("str", known["text"]), signature=signature, content_index=index, final=True)
            residual = difference(cast("JsonMap", reasoning(payload)["reasoningText"]), known)
            if not signature:
                residual["unsigned"] = True
        else:
            redacted = encrypted_bytes(cast("str", body["redactedContent"]))
            payload = Thinking(redacted=redacted, content_index=index, final=True)
            residual = {}
        self.emit(
            Thinking(
                text=payload.text,
                signature=payload.signature,
                redacted=payload.redacted,
                content_index=index,
                final=True,
                structured=self._residual("assistant", residual),
            )
        )

    def _call(self, body: JsonMap) -> None:
        payload = ToolCall(
            tool_call_id=cast("str", body["toolUseId"]),
            tool_name=decode_name(cast("str", body["name"])),
            payload_json=encode_json(body["input"]).decode(),
        )
        arguments = arguments_of(payload.payload_json)[0]
        residual = difference(tool_use(payload, self.calls.call(payload) or "", arguments), body)
        self.emit(
            ToolCall(
                tool_call_id=payload.tool_call_id,
                tool_name=payload.tool_name,
                payload_json=payload.payload_json,
                structured=self._residual("assistant", residual),
            )
        )

    def _result(self, body: JsonMap) -> None:
        call_id = cast("str", body["toolUseId"])
        content = cast("list[JsonValue]", body["content"])
        residual: JsonMap = {}
        first = content[0] if len(content) == 1 else None
        if isinstance(first, dict) and first.keys() == {"json"}:
            text = encode_json(first["json"]).decode()
            residual["json"] = True
        else:
            text, spans = SAID.split(content)
            if is_absent_text(text):
                text = ""
            if spans and spans != [len(text)]:
                residual["parts"] = spans
        failed = body.get("status") == "error"
        payload = ToolResult(
            tool_call_id=call_id,
            tool_name=self.calls.asked_name(call_id) or "",
            result_json="" if failed else text,
            error_message=text if failed else "",
        )
        default = tool_result(payload, self.calls.result(payload) or "", residual)
        residual.update(difference(default, body))
        self.emit(
            ToolResult(
                tool_call_id=call_id,
                tool_name=payload.tool_name,
                result_json=payload.result_json,
                error_message=payload.error_message,
                structured=self._residual("user", residual),
            )
        )

    def _residual(self, role: str, residual: JsonMap) -> JsonValue:
        head = self._taken_head(role)
        if head is not None:
            residual["message"] = head
        return kept(PROVIDER, residual)

    def _taken_head(self, role: str) -> JsonMap | None:
        """What the message's next event has to say of it, None where the default is right."""
        head, self._head = self._head, None
        if head is None:
            return None
        joins, self._side = self._side == role, role
        return head if joins or head else None


def _body_of(role: str, block: JsonValue) -> JsonMap | None:
    """What a block holds that has a payload of its own in messages of ``role``; None for any other."""
    if not isinstance(block, dict) or len(block) != 1:
        return None
    key, body = next(iter(block.items()))
    if not isinstance(body, dict):
        return None
    known = body
    if role == "user":
        is_result = key == "toolResult" and isinstance(known.get("toolUseId"), str)
        return known if is_result and isinstance(known.get("content"), list) else None
    if role != "assistant":
        return None
    if key == "toolUse" and "type" not in known:  # a type says that the provider runs the tool itself
        texts = isinstance(known.get("toolUseId"), str) and isinstance(known.get("name"), str)
        return known if texts and isinstance(known.get("input"), dict) else None
    return known if key == "reasoningContent" and _is_reasoning(known) else None


def _is_reasoning(body: JsonMap) -> bool:
    if body.keys() == {"redactedContent"}:
        redacted = body["redactedContent"]
        return isinstance(redacted, str) and bool(encrypted_bytes(redacted))
    inner = body.get("reasoningText")
    if len(body) != 1 or not isinstance(inner, dict):
        return False
    known = inner
    return isinstance(known.get("text"), str) and isinstance(known.get("signature", ""), str)
