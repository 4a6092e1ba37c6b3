"""What a block of each type must have, and in which messages it may stand."""

from __future__ import annotations

from typing import Any

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.kinds import is_list, is_map

_Kinds = type[object] | tuple[type[object], ...]

REQUIRED: dict[str, tuple[tuple[str, _Kinds], ...]] = {
    "text": (("text", str),),
    "image": (("source", dict),),
    "document": (("source", dict),),
    "search_result": (("content", list), ("source", str), ("title", str)),
    "thinking": (("thinking", str), ("signature", str)),
    "redacted_thinking": (("data", str),),
    "tool_use": (("id", str), ("name", str), ("input", dict)),
    "tool_result": (("tool_use_id", str),),
    "server_tool_use": (("id", str), ("name", str), ("input", dict)),
    "mcp_tool_use": (("id", str), ("name", str), ("server_name", str), ("input", dict)),
    "mcp_tool_result": (("tool_use_id", str),),
    "web_search_tool_result": (("tool_use_id", str), ("content", (list, dict))),
    "web_fetch_tool_result": (("tool_use_id", str), ("content", dict)),
    "code_execution_tool_result": (("tool_use_id", str), ("content", dict)),
    "bash_code_execution_tool_result": (("tool_use_id", str), ("content", dict)),
    "text_editor_code_execution_tool_result": (("tool_use_id", str), ("content", dict)),
    "tool_search_tool_result": (("tool_use_id", str), ("content", dict)),
    "advisor_tool_result": (("tool_use_id", str), ("content", dict)),
    "container_upload": (("file_id", str),),
    "tool_reference": (("tool_name", str),),
    "browser_state": (("tabs", list),),
    "mcp_tool_listing": (("mcp_server_name", str), ("tools", list)),
    "fallback": (("from", dict), ("to", dict)),
    "tool_addition": (("tool", dict),),
    "tool_removal": (("tool", dict),),
}
"""What a block of each type must have, and of which kind; of a type that is not here nothing is known."""

THINKING = frozenset({"thinking", "redacted_thinking"})
"""Reasoning, which the provider signs or encrypts."""

SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
"""Calls of what the provider runs itself."""

SERVER_RESULTS = frozenset(kind for kind in REQUIRED if kind.endswith("_tool_result"))
"""Answers to them."""

IN_RESULT = "a tool_result"
"""Where blocks in a result's content stand, for ``shape_of``."""

_ALLOWED: dict[str, frozenset[str]] = {
    "user": frozenset(REQUIRED) - THINKING - SERVER_CALLS - {"tool_use"},
    "assistant": frozenset(REQUIRED) - {"tool_result"},
    "system": frozenset({"text", "tool_addition", "tool_removal"}),
    IN_RESULT: frozenset({"text", "image", "document", "search_result", "tool_reference", "browser_state"}),
}


def shape_of(block: object, role: str) -> str | None:
    """What is wrong with a block in ``role``, or in a result (``IN_RESULT``); None if it alone tells of nothing."""
    if not is_map(block):
        return f"a block must be a map, found {describe(block)}"
    kind = block.get("type")
    if not isinstance(kind, str) or not kind:
        return f"a block needs a type, found {describe(kind)}"
    for key, wanted in REQUIRED.get(kind, ()):
        if not isinstance(block.get(key), wanted):
            return f"{kind}.{key} must be {_named(wanted)}, found {describe(block.get(key))}"
    if kind in REQUIRED and kind not in _ALLOWED[role]:
        return f"a {kind} does not belong in {role}"
    return _result_shape(block) if kind == "tool_result" else None


def _result_shape(block: dict[str, Any]) -> str | None:
    content = block.get("content", "")
    if not isinstance(block.get("is_error", False), bool):
        return f"tool_result.is_error must be true or false, found {describe(block['is_error'])}"
    if isinstance(content, str):
        return None
    if not is_list(content):
        return f"tool_result.content must be text or a list, found {describe(content)}"
    for part in content:
        wrong = shape_of(part, IN_RESULT)
        if wrong is not None:
            return f"in tool_result.content: {wrong}"
    return None


def _named(wanted: _Kinds) -> str:
    kinds = wanted if isinstance(wanted, tuple) else (wanted,)
    return " or ".join(name for kind, name in ((str, "text"), (dict, "a map"), (list, "a list")) if kind in kinds)
