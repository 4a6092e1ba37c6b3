"""Converts Gemini contents to events."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.events.payloads import Thinking, ToolCall, ToolResult
from agent_memory_log.transcript.conversion.blocks import BlockParser
from agent_memory_log.transcript.conversion.parsing import PAYLOADS_OF_ROLES, JsonMap
from agent_memory_log.transcript.differences import difference, same_json
from agent_memory_log.transcript.gemini import rendering
from agent_memory_log.transcript.gemini.open_calls import OpenCalls
from agent_memory_log.transcript.gemini.rendering import ERROR, MODEL, OUTPUT, SIGNATURE, key_in
from agent_memory_log.transcript.names import decode_name

_SIDES = {None: "user", "user": "user", "function": "user", "tool": "user", MODEL: "assistant"}


class GeminiParser(BlockParser):
    """Parses Gemini contents; see ``agent_memory_log.transcript.parse``.

    Text parts and the other parts between them, such as images and executed code, are one event.
    """

    provider = rendering.PROVIDER
    rules = rendering.RULES
    list_name = "contents"
    assistant_role = MODEL

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._open: OpenCalls[str] = OpenCalls()
        self._names = rendering.Names()
        self._calls_without_id = 0

    def read(self, message: JsonMap) -> None:
        """Emit one event for consecutive text parts together, and one event for every other part."""
        role = message.get("role")
        parts = message.get("parts")
        side = _SIDES.get(role) if role is None or isinstance(role, str) else None
        if side is None or not isinstance(parts, list) or not parts:
            self.emit_own_message(message)
            return
        default: JsonMap = {"role": MODEL if side == "assistant" else "user"}
        self.head = difference(default, {key: value for key, value in message.items() if key != "parts"})
        if side == "assistant":
            self._open.begin_turn()
        self.read_blocks(side, parts)

    def reader_of(self, role: str, block: JsonValue) -> Callable[[int, JsonMap], None] | None:
        """Return the reader of a user's result, or of the model's call or thought."""
        if not isinstance(block, dict):
            return None
        if role == "user":
            return self._result if _is_result(rendering.result_in(block)) else None
        if _is_call(rendering.call_in(block)):
            return self._call
        return self._thought if block.get("thought") is True and _is_thought(block) else None

    def read_run(self, role: str, run: list[JsonValue]) -> None:
        """Emit ``run`` as one text event. Without any text, emit each part alone: planners see no empty message."""
        parts = rendering.text_parts(role)
        text, spans = parts.split(run)
        if not text:
            for block in run:
                self.emit_own_block(role, {"role": role, "block": block})
            return
        self.emit_block(role, PAYLOADS_OF_ROLES[role](text), {} if spans == [len(text)] else {"parts": spans})

    def _thought(self, index: int, block: JsonMap) -> None:
        signature = block.get(key_in(block, SIGNATURE), "")
        payload = Thinking(
            text=cast("str", block["text"]), signature=cast("str", signature), content_index=index, final=True
        )
        self.emit_block("assistant", payload, {"thought": True, **difference(rendering.thought(payload), block)})

    def _call(self, index: int, block: JsonMap) -> None:
        del index
        key = key_in(block, rendering.CALL)
        body = cast("JsonMap", block[key])
        sent_id, name, args = body.get("id"), cast("str", body["name"]), body.get("args")
        call_id = cast("str", sent_id) if sent_id else self._new_id()
        payload = ToolCall(
            tool_call_id=call_id,
            tool_name=decode_name(name),
            payload_json=encode_json(args).decode() if isinstance(args, dict) else "",
        )
        self._open.add(cast("str", sent_id or ""), name, call_id)
        self._names.add(payload, name)
        wire_id = self.calls.call(payload, cast("str", sent_id or "")) or ""
        default = rendering.function_call(payload, wire_id, args if isinstance(args, dict) else {})
        self.emit_block("assistant", payload, _residual(block, key, rendering.CALL, difference(default, body)))

    def _new_id(self) -> str:
        self._calls_without_id += 1
        return f"gemini_call_{self._calls_without_id}"

    def _result(self, index: int, block: JsonMap) -> None:
        del index
        key = key_in(block, rendering.RESULT)
        body = cast("JsonMap", block[key])
        sent_id, name = cast("str", body.get("id") or ""), cast("str", body["name"])
        call_id = self._open.answer(sent_id, name) or sent_id
        result, error, residual = _result_of(body.get("response"))
        payload = ToolResult(call_id, decode_name(name), result_json=result, error_message=error)
        wire_id = self.calls.result(payload) or ""
        wire_name = self._names.of(payload)
        default = rendering.function_response(payload, wire_id, wire_name, residual)
        if isinstance(body.get("response"), dict) and not same_json(default["response"], body["response"]):
            residual["wrapped"] = OUTPUT
            default = rendering.function_response(payload, wire_id, wire_name, residual)
        residual |= difference(default, body)
        self.emit_block("user", payload, _residual(block, key, rendering.RESULT, residual))


def _residual(block: JsonMap, key: str, default_key: str, residual: JsonMap) -> JsonMap:
    """Return the residual of a part from the residual of the call or result in it."""
    part = difference({key: block[key]}, block)
    if part:
        residual["part"] = part
    if key != default_key:
        residual["key"] = key
    return residual


def _result_of(response: JsonValue) -> tuple[str, str, JsonMap]:
    """Return the result as JSON text, the error, and the residual of a response."""
    if not isinstance(response, dict):
        return "", "", {}
    if not response or not response.keys() <= {OUTPUT, ERROR}:
        if response.keys() == {"result"}:  # the key that Google's SDKs use
            return _text(response["result"]), "", {"wrapped": "result"}
        return _text(response), "", {}
    error = response.get(ERROR)
    result = _text(response[OUTPUT]) if OUTPUT in response else ""
    if error is None or isinstance(error, str):
        return result, error or "", {}
    return result, encode_json(error).decode(), {"json": True}


def _text(value: JsonValue) -> str:
    text = encode_json(value).decode()
    return "" if is_absent_text(text) else text


def _is_call(body: JsonMap | None) -> bool:
    return (
        body is not None
        and isinstance(body.get("name"), str)
        and isinstance(body.get("id"), (str, type(None)))
        and isinstance(body.get("args"), (dict, type(None)))
        and not key_in(body, "willContinue")
        and not key_in(body, "partialArgs")
    )


def _is_result(body: JsonMap | None) -> bool:
    return (
        body is not None
        and isinstance(body.get("name"), str)
        and isinstance(body.get("id"), (str, type(None)))
        and isinstance(body.get("response"), (dict, type(None)))
    )


def _is_thought(block: JsonMap) -> bool:
    """Return whether a part with ``thought`` holds text and nothing else that counts."""
    signature = block.get(key_in(block, SIGNATURE), "")
    return isinstance(block.get("text"), str) and isinstance(signature, str)
