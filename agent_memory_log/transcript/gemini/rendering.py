"""Renders payloads as parts of Gemini contents where no residual applies. The parser and the builder share this code.

The keys of the API are camelCase. Google's SDK also accepts snake_case, so ``key_in`` accepts both. A
call may have no id. The log gives such a call an id of its own, which never appears in a content.

Besides ``message`` (``blocks.py``), residuals of this provider may have these parts:

- ``parts``: the spans of several parts (``text_parts.py``).
- ``part``: the residual of a whole part, beside the residual of its call or result.
- ``key``: the name of the key that holds a call or a result, if it is in snake_case.
- ``thought: true``: Gemini made this thinking. Without this mark, thinking is not sent to Gemini.
- ``json: true``: the error of a result is JSON, not text.
- ``wrapped``: the key in ``response`` that holds the value of a result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue, json_or_text
from agent_memory_log.events.payloads import Thinking, ToolCall, ToolResult
from agent_memory_log.transcript.conversion.building import Residual
from agent_memory_log.transcript.conversion.rendering import failure_text
from agent_memory_log.transcript.conversion.text_parts import TextParts
from agent_memory_log.transcript.differences import apply, is_residual
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.json_types import MAPS, is_map
from agent_memory_log.transcript.names import WireRules, encode_name

PROVIDER = "gemini"
MODEL = "model"
"""The role of the model. Contents of every other role, or of none, are the user's."""

RULES = WireRules(
    longest_name=128,
    name_pattern=re.compile(r"[a-zA-Z0-9_.:-]+", re.ASCII),
    id_pattern=None,
    optional_ids=True,
)
"""The limits are those of ``FunctionDeclaration`` in the reference of the API."""

USER_TEXT = TextParts({}, "\n")
"""The text of users. Each part is a paragraph."""

MODEL_TEXT = TextParts({}, "")
"""The text of the model. Its parts continue each other."""

CALL, RESULT = "functionCall", "functionResponse"
SIGNATURE = "thoughtSignature"
OUTPUT, ERROR = "output", "error"

_CAPITAL = re.compile(r"[A-Z]")

EXTRA = frozenset({"parts", "message", "part", "key", "thought", "json", "wrapped"})


@cache
def snake_case(key: str) -> str:
    """Return a camelCase key of the API in snake_case."""
    return _CAPITAL.sub(lambda match: f"_{match.group().lower()}", key)


def key_in(fields: object, key: str) -> str:
    """Return ``key`` or its form in snake_case if ``fields`` has a value there, and ``""`` otherwise."""
    if not isinstance(fields, MAPS):
        return ""
    values = cast("Mapping[str, object]", fields)
    if values.get(key) is not None:
        return key
    snake_key = snake_case(key)
    return snake_key if values.get(snake_key) is not None else ""


def value_in(fields: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401  # JSON of any shape
    """Return the value of ``key``, a camelCase key that may also be in snake_case; None if it is absent."""
    return fields.get(key_in(fields, key))


def call_in(part: object) -> WireMessage | None:
    """Return the body of a call, or None for any other part."""
    return _body(part, CALL)


def result_in(part: object) -> WireMessage | None:
    """Return the body of a result, or None for any other part."""
    return _body(part, RESULT)


def _body(part: object, key: str) -> WireMessage | None:
    body = value_in(part, key) if is_map(part) else None
    return body if is_map(body) else None


class Names:
    """The tool names of calls as they are on the wire. The results of these calls have the same names."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[str, str]] = {}

    def add(self, data: ToolCall, wire_name: object) -> None:
        """Add a call."""
        if isinstance(wire_name, str):
            self._names[data.tool_call_id] = data.tool_name, wire_name

    def of(self, data: ToolResult) -> str:
        """Return the name of a result on the wire."""
        tool_name, wire_name = self._names.get(data.tool_call_id, ("", ""))
        return wire_name if wire_name and data.tool_name in ("", tool_name) else encode_name(data.tool_name)


def text_parts(role: str) -> TextParts:
    """Return the text format of a role."""
    return MODEL_TEXT if role == "assistant" else USER_TEXT


def text_block(text: str) -> WireMessage:
    """Return a text part."""
    return {"text": text}


def thought(data: Thinking) -> WireMessage:
    """Return a part that holds a thought."""
    part: WireMessage = {"text": data.text, "thought": True}
    if data.signature:
        part["thoughtSignature"] = data.signature
    return part


def function_call(data: ToolCall, wire_id: str, arguments: WireMessage) -> WireMessage:
    """Return the body of a call without its residual."""
    body: WireMessage = {"name": encode_name(data.tool_name), "args": arguments}
    return {"id": wire_id, **body} if wire_id else body


def function_response(data: ToolResult, wire_id: str, name: str, residual: Residual) -> WireMessage:
    """Return the body of a result without its residual. ``name`` is the name of the tool on the wire."""
    body: WireMessage = {"name": name, "response": _response(data, residual)}
    return {"id": wire_id, **body} if wire_id else body


def _response(data: ToolResult, residual: Residual) -> WireMessage:
    """Return the response of a tool.

    The API reads the value under ``output`` and the error under ``error``. It reads a map without these keys as the
    value.
    """
    response: WireMessage = {}
    text, error = data.result_json, failure_text(data)
    if error:
        response[ERROR] = json_or_text(error) if residual.get("json") is True else error
    wrapped = residual.get("wrapped")
    if not is_absent_text(text) or not error:
        value = "" if is_absent_text(text) else json_or_text(text)
        if wrapped is None and not error and is_map(value) and value.keys().isdisjoint((OUTPUT, ERROR)):
            return value
        response[wrapped if isinstance(wrapped, str) else OUTPUT] = value
    return response


def whole_part(default: WireMessage, residual: Residual) -> WireMessage:
    """Return a part with the fields beside its call or result."""
    part: JsonValue = residual.get("part")
    return apply(default, part) if isinstance(part, Mapping) and is_residual(part) else default


def key_of(residual: Residual, default: str) -> str:
    """Return the key of a call or a result: the recorded one, or ``default``."""
    key = residual.get("key")
    return key if isinstance(key, str) else default
