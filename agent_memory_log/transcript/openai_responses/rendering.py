"""Renders payloads as Responses items where no residual applies. The parser and the builder share this code.

Each event is one item. Residuals of this provider may have these parts:

- ``parts``: the spans of content that is a list (``text_parts.py``). Reasoning always has it, so that other providers
  can recognize it.
- ``of``: the list that holds the text of a reasoning item, if it is not ``summary``.
- ``answer``: True if the rendering without a residual is an answer as the API returns it, not a plain message.
- ``kind``: the call type, for calls other than ``function_call`` and for results that do not match their call.

A call that the runtime answers is stored as a tool call; ``CALLS`` has the kinds. Items of tools that OpenAI runs are
stored as unknown payloads, because their calls would look unanswered.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agent_memory_log.events.fields import is_absent_text
from agent_memory_log.events.jsonvalue import JsonValue, json_or_text
from agent_memory_log.events.payloads import Thinking, ToolCall, ToolResult
from agent_memory_log.transcript.conversion.rendering import failure_text, result_text
from agent_memory_log.transcript.conversion.text_parts import TextParts
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.names import WireRules, encode_name

PROVIDER = "openai-responses"

RULES = WireRules(longest_name=64, longest_id=64, id_pattern=None, id_key="call_id")

VENDOR_RULES = WireRules(longest_name=64, id_pattern=None, id_key="call_id")
"""The limits of other vendors that speak this shape. Their items may have ids of any form."""

MESSAGE_TYPE = f"{PROVIDER}.message"
"""The event type of an item that fits no payload. The event's data is the item."""

INPUT_TEXT = TextParts({"type": "input_text"}, "\n")
OUTPUT_TEXT = TextParts({"type": "output_text"}, "\n")

REASONING_TEXT = {
    "summary": TextParts({"type": "summary_text"}, "\n"),
    "content": TextParts({"type": "reasoning_text"}, "\n"),
}
"""The lists of a reasoning item that may hold its text."""

EXTRA = frozenset({"parts", "of", "kind", "answer"})


class CallKind(msgspec.Struct, frozen=True):
    """A kind of call that the runtime answers.

    Attributes:
        call: The type of the call item.
        result: The type of the result item.
        arguments: The key of the call's arguments.
        tool: The fixed name of the tool. Its arguments are JSON. If it is ``""``, the item has the name, and the
            arguments are text.
        id_key: The key of the call's id in the result.
        call_key: The key of the call's id in the call.
        output: The key of the result's value.
    """

    call: str
    result: str
    arguments: str
    tool: str = ""
    id_key: str = "call_id"
    call_key: str = "call_id"
    output: str = "output"


FUNCTION = CallKind("function_call", "function_call_output", "arguments")
CUSTOM = CallKind("custom_tool_call", "custom_tool_call_output", "input")
COMPUTER = CallKind("computer_call", "computer_call_output", "action", "computer")
LOCAL_SHELL = CallKind("local_shell_call", "local_shell_call_output", "action", "local_shell", "id")
SHELL = CallKind("shell_call", "shell_call_output", "action", "shell")
APPLY_PATCH = CallKind("apply_patch_call", "apply_patch_call_output", "operation", "apply_patch")
TOOL_SEARCH = CallKind("tool_search_call", "tool_search_output", "arguments", "tool_search", output="tools")
MCP_APPROVAL = CallKind(
    "mcp_approval_request",
    "mcp_approval_response",
    "arguments",
    id_key="approval_request_id",
    call_key="id",
    output="approve",
)

CALLS = {
    kind.call: kind for kind in (FUNCTION, CUSTOM, COMPUTER, LOCAL_SHELL, SHELL, APPLY_PATCH, TOOL_SEARCH, MCP_APPROVAL)
}
"""The kinds of calls by the type of the call item."""

RESULTS = {kind.result: kind for kind in CALLS.values()}
"""The kinds of calls by the type of the result item."""


class CallKinds:
    """The kind of each call by wire id. The parser and the builder track it in the same way."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: dict[str, CallKind] = {}

    def call(self, wire_id: str, kind: CallKind) -> None:
        """Add a call."""
        if kind is not FUNCTION or wire_id in self._kinds:
            self._kinds[wire_id] = kind

    def result(self, wire_id: str) -> CallKind:
        """Return the kind of the latest call with this id."""
        return self._kinds.get(wire_id, FUNCTION)


def text_parts(role: str) -> TextParts:
    """Return the text format of a role."""
    return OUTPUT_TEXT if role == "assistant" else INPUT_TEXT


def answer_message(text: str) -> WireMessage:
    """Return a message of the model as the API returns it, without its id."""
    part: WireMessage = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "role": "assistant", "status": "completed", "content": [part]}


def reasoning(data: Thinking, residual: Mapping[str, JsonValue]) -> WireMessage:
    """Return a reasoning item without its residual."""
    item: WireMessage = {"type": "reasoning", "summary": []}
    key = "content" if residual.get("of") == "content" else "summary"
    parts = REASONING_TEXT[key].join(data.text, residual.get("parts"))
    if parts is None:
        parts = [REASONING_TEXT[key].plain(data.text)] if data.text else []
    item[key] = parts
    if data.signature:
        item["encrypted_content"] = data.signature
    return item


def call_item(kind: CallKind, data: ToolCall, wire_id: str) -> WireMessage:
    """Return a call item without its residual."""
    arguments = "{}" if is_absent_text(data.payload_json) and kind is not CUSTOM else data.payload_json
    item: WireMessage = {"type": kind.call, kind.call_key: wire_id}
    if not kind.tool:
        item["name"] = encode_name(data.tool_name)
        item[kind.arguments] = arguments
        return item
    value = json_or_text(arguments)
    item["actions" if kind is COMPUTER and isinstance(value, list) else kind.arguments] = value
    return item


def result_item(kind: CallKind, data: ToolResult, wire_id: str) -> WireMessage:
    """Return a result item without its residual."""
    item: WireMessage = {"type": kind.result, kind.id_key: wire_id, kind.output: _output(kind, data)}
    if kind is APPLY_PATCH:
        item["status"] = "failed" if data.error_message else "completed"
    elif kind is TOOL_SEARCH:
        item |= {"execution": "client", "status": "completed"}
    elif kind is MCP_APPROVAL and failure_text(data):
        item["reason"] = failure_text(data)
    return item


def screenshot(image: Mapping[str, JsonValue]) -> WireMessage:
    """Return the output of a computer call that shows an ``input_image``."""
    return {"type": "computer_screenshot", **{key: image[key] for key in ("image_url", "file_id") if key in image}}


def _output(kind: CallKind, data: ToolResult) -> JsonValue:
    value = "" if is_absent_text(data.result_json) else data.result_json
    if kind is COMPUTER:
        return json_or_text(value or result_text(data))  # an image cannot hold text
    if kind is TOOL_SEARCH:
        tools = json_or_text(value)
        return tools if isinstance(tools, list) else []
    if kind is MCP_APPROVAL:
        return json_or_text(value) is True
    if kind is not SHELL:
        return result_text(data)
    outputs = json_or_text(value)
    if not isinstance(outputs, list):
        return shell_output(data, value)
    return [*outputs, *shell_output(data, "")] if failure_text(data) else outputs


def cut_output(kind: CallKind, data: ToolResult, omitted: str) -> JsonValue:
    """Return the output that has ``omitted`` in place of a value that is too large."""
    if kind is COMPUTER:
        return {"type": "computer_screenshot"}
    if kind is TOOL_SEARCH:
        return []
    if kind is MCP_APPROVAL:
        return False
    return shell_output(data, omitted) if kind is SHELL else result_text(data, omitted)


def shell_output(data: ToolResult, value: str) -> list[JsonValue]:
    """Return the output of a shell command: the value, and the failure as the text of its error stream."""
    outcome = {"type": "exit", "exit_code": 1 if data.error_message else 0}
    return [{"stdout": value, "stderr": failure_text(data), "outcome": outcome}]
