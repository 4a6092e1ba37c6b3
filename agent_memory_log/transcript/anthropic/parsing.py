"""Messages API messages to events."""

from __future__ import annotations

from typing import cast

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.events.payloads import (
    AssistantMessage,
    EventData,
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
    MESSAGE_TYPE,
    PROVIDER,
    RULES,
    SAID,
    Grouping,
    encrypted_bytes,
    text_block,
    thinking_block,
    tool_result,
    tool_use,
)
from agent_memory_log.transcript.kinds import is_list, is_map
from agent_memory_log.transcript.names import decode_name
from agent_memory_log.transcript.parsing import JsonMap, Parser
from agent_memory_log.transcript.residual import difference, kept, same_json


class AnthropicParser(Parser):
    """See ``agent_memory_log.transcript.parse``."""

    provider = PROVIDER
    rules = RULES

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._grouping = Grouping()
        self._first = True
        # The residual of the message that is being read, until its first event has taken it; False from then on.
        self._head: JsonMap | bool = False

    def read(self, message: JsonMap) -> None:
        """Emit an event for each run of text and each other block."""
        role = message.get("role")
        content = message.get("content")
        rest = {key: value for key, value in message.items() if key != "content"}
        self._head = difference({"role": role}, rest)
        if role == "system" and isinstance(content, (str, list)):
            self._read_system(content)
        elif role == "user" and isinstance(content, str):
            self._said(content, None)
        elif role == "user" and is_list(content) and content:
            self._read_user(content)
        elif role == "assistant" and isinstance(content, str):
            structured = self._residual("assistant", {"text": True})
            self.emit(AssistantMessage(content, structured))
        elif role == "assistant" and _is_list_of_maps(content):
            self._read_assistant(cast("list[JsonMap]", content))
        else:
            self._grouping.opened("")
            self.emit(UnknownPayload(type=MESSAGE_TYPE, data=message))
        self._first = False

    def _read_system(self, content: str | list[JsonValue]) -> None:
        residual: JsonMap = {"inline": True} if self._first else {}
        text = content
        if is_list(content):
            text, residual["parts"] = SAID.split(content)
        if self._head:
            residual["message"] = self._head
        self._grouping.opened("")
        self.emit(SystemMessage(cast("str", text), kept(PROVIDER, residual)))

    def _read_user(self, content: list[JsonValue]) -> None:
        run: list[JsonValue] = []
        for block in content:
            if _is_result(block):
                self._said_in_parts(run)
                run = []
                self._result(cast("JsonMap", block))
            else:
                run.append(block)
        self._said_in_parts(run)

    def _said_in_parts(self, run: list[JsonValue]) -> None:
        if run:
            text, spans = SAID.split(run)
            self._said(text, spans)

    def _said(self, text: str, spans: list[JsonValue] | None) -> None:
        residual: JsonMap = {}
        # Where it begins a message the default is a string, where it is joined to one a text block.
        if spans is not None and not (self._head is False and spans == [len(text)]):
            residual["parts"] = spans
        self.emit(UserMessage(text, self._residual("user", residual, says=True)))

    def _result(self, block: JsonMap) -> None:
        call_id = cast("str", block["tool_use_id"])
        content = block.get("content")
        spans: list[JsonValue] | None = None
        text = ""
        if isinstance(content, str):
            text = content
        elif is_list(content):
            text, spans = SAID.split(content)
        if is_absent_text(text):
            text = ""
        failed = block.get("is_error") is True
        name = self.calls.asked_name(call_id)
        payload = ToolResult(
            tool_call_id=call_id,
            tool_name=name or "",
            result_json="" if failed else text,
            error_message=text if failed else "",
        )
        default = tool_result(payload, self.calls.result(payload) or "")
        residual: JsonMap = {}
        if spans is not None and same_json(SAID.join(text, spans), content):
            residual["parts"] = spans
            default["content"] = content
        residual.update(difference(default, block))
        self.emit(
            ToolResult(
                tool_call_id=call_id,
                tool_name=payload.tool_name,
                result_json=payload.result_json,
                error_message=payload.error_message,
                structured=self._residual("user", residual),
            )
        )

    def _read_assistant(self, content: list[JsonMap]) -> None:
        run: list[JsonValue] = []
        for index, block in enumerate(content):
            if ANSWERED.text_of(block) is not None:
                run.append(block)
                continue
            self._answered(run)
            run = []
            self.emit(self._block(index, block))
        self._answered(run)

    def _answered(self, run: list[JsonValue]) -> None:
        if not run:
            return
        text, spans = ANSWERED.split(run)
        residual: JsonMap = {} if text and same_json(run, [text_block(text)]) else {"parts": spans}
        self.emit(AssistantMessage(text, self._residual("assistant", residual)))

    def _block(self, index: int, block: JsonMap) -> EventData:
        kind = block.get("type")
        if kind == "tool_use" and _has_texts(block, "id", "name") and is_map(block.get("input")):
            return self._call(block)
        if kind == "thinking" and _has_texts(block, "thinking", "signature"):
            thinking = Thinking(
                text=cast("str", block["thinking"]),
                signature=cast("str", block["signature"]),
                content_index=index,
                final=True,
            )
            return self._thinking(thinking, block)
        if kind == "redacted_thinking" and _has_texts(block, "data"):
            redacted = encrypted_bytes(cast("str", block["data"]))
            return self._thinking(Thinking(redacted=redacted, content_index=index, final=True), block)
        data: JsonMap = {"block": block}
        head = self._taken_head("assistant")
        if head is not None:
            data["message"] = head
        return UnknownPayload(type=BLOCK_TYPE, data=data)

    def _thinking(self, payload: Thinking, block: JsonMap) -> Thinking:
        residual = difference(thinking_block(payload), block)
        structured = self._residual("assistant", residual)
        if structured is None and not payload.signature and not payload.redacted:
            nothing: JsonMap = {}
            structured = {PROVIDER: nothing}  # without a signature it is not sent, unless this provider sent it
        return Thinking(
            text=payload.text,
            signature=payload.signature,
            redacted=payload.redacted,
            content_index=payload.content_index,
            final=True,
            structured=structured,
        )

    def _call(self, block: JsonMap) -> ToolCall:
        payload = ToolCall(
            tool_call_id=cast("str", block["id"]),
            tool_name=decode_name(cast("str", block["name"])),
            payload_json=encode_json(block["input"]).decode(),
        )
        residual = difference(tool_use(payload, self.calls.call(payload) or ""), block)
        return ToolCall(
            tool_call_id=payload.tool_call_id,
            tool_name=payload.tool_name,
            payload_json=payload.payload_json,
            structured=self._residual("assistant", residual),
        )

    def _residual(self, side: str, residual: JsonMap, *, says: bool = False) -> JsonValue:
        head = self._taken_head(side, says=says)
        if head is not None:
            residual["message"] = head
        return kept(PROVIDER, residual)

    def _taken_head(self, side: str, *, says: bool = False) -> JsonMap | bool | None:
        """What the message's next event has to say of it, None where the default is right."""
        head, self._head = self._head, False
        joins = self._grouping.joins(side, says=says)
        if head is False:
            if says:
                self._grouping.said = True
            return None if joins else False
        self._grouping.opened(side, says=says)
        return head if joins or head else None


def _is_result(block: JsonValue) -> bool:
    if not is_map(block) or block.get("type") != "tool_result":
        return False
    known = cast("JsonMap", block)
    return (
        isinstance(known.get("tool_use_id"), str)
        and ("content" not in known or isinstance(known["content"], (str, list)))
        and ("is_error" not in known or isinstance(known["is_error"], bool))
    )


def _is_list_of_maps(content: JsonValue) -> bool:
    return is_list(content) and bool(content) and all(is_map(block) for block in content)


def _has_texts(block: JsonMap, *keys: str) -> bool:
    return all(isinstance(block.get(key), str) for key in keys)
