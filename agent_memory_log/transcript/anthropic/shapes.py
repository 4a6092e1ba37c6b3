"""Defines the required fields of each block type, and the roles that may have it."""

from __future__ import annotations

from collections.abc import Mapping

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.json_types import is_map
from agent_memory_log.transcript.validity.shapes import (
    Check,
    Flaw,
    any_list,
    any_map,
    boolean,
    either,
    list_of,
    optional,
    record,
    text,
)

IN_RESULT = "a tool_result"
"""The ``role`` argument of ``shape_of`` for blocks inside a result."""


def _in_result(block: object) -> Flaw | None:
    wrong = shape_of(block, IN_RESULT)
    return None if wrong is None else Flaw((), f"has an invalid block: {wrong}")


_CALL = record(id=text, name=text, input=any_map)
_SERVER_RESULT = record(tool_use_id=text, content=any_map)

_BLOCKS: Mapping[str, Check] = {
    "text": record(text=text),
    "image": record(source=any_map),
    "document": record(source=any_map),
    "search_result": record(content=any_list, source=text, title=text),
    "thinking": record(thinking=text, signature=text),
    "redacted_thinking": record(data=text),
    "tool_use": _CALL,
    "tool_result": record(
        tool_use_id=text, is_error=optional(boolean), content=optional(either(text, list_of(_in_result)))
    ),
    "server_tool_use": _CALL,
    "mcp_tool_use": record(id=text, name=text, server_name=text, input=any_map),
    "mcp_tool_result": record(tool_use_id=text),
    "web_search_tool_result": record(tool_use_id=text, content=either(any_list, any_map)),
    "web_fetch_tool_result": _SERVER_RESULT,
    "code_execution_tool_result": _SERVER_RESULT,
    "bash_code_execution_tool_result": _SERVER_RESULT,
    "text_editor_code_execution_tool_result": _SERVER_RESULT,
    "tool_search_tool_result": _SERVER_RESULT,
    "advisor_tool_result": _SERVER_RESULT,
    "container_upload": record(file_id=text),
    "tool_reference": record(tool_name=text),
    "browser_state": record(tabs=any_list),
    "mcp_tool_listing": record(mcp_server_name=text, tools=any_list),
    "fallback": record(**{"from": any_map, "to": any_map}),
    "tool_addition": record(tool=any_map),
    "tool_removal": record(tool=any_map),
}
"""The checks of each known block type. Blocks of other types are not checked."""

THINKING = frozenset({"thinking", "redacted_thinking"})
"""The types of reasoning blocks, which the provider signs or encrypts."""

SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
"""The types of calls that the provider runs itself."""

SERVER_RESULTS = frozenset(kind for kind in _BLOCKS if kind.endswith("_tool_result"))
"""The types of results of ``SERVER_CALLS``."""

_ALLOWED: dict[str, frozenset[str]] = {
    "user": frozenset(_BLOCKS) - THINKING - SERVER_CALLS - {"tool_use"},
    "assistant": frozenset(_BLOCKS) - {"tool_result"},
    "system": frozenset({"text", "tool_addition", "tool_removal"}),
    IN_RESULT: frozenset({"text", "image", "document", "search_result", "tool_reference", "browser_state"}),
}


def type_of(block: object) -> str:
    """Return the type of a block; ``""`` if it has no type."""
    kind = block.get("type") if is_map(block) else None
    return kind if isinstance(kind, str) else ""


def shape_of(block: object, role: str) -> str | None:
    """Return the problem of a block in a message of ``role`` (``IN_RESULT`` for a result); None if it is valid."""
    kind = type_of(block)
    if not kind:
        return f"a block must be a map with a type, got {describe(block)}"
    check = _BLOCKS.get(kind)
    if check is None:
        return None
    flaw = check(block)
    if flaw is not None:
        return f"the API does not accept this {kind} block: {flaw.described()}"
    return None if kind in _ALLOWED[role] else f"a {kind} does not belong in {role}"
