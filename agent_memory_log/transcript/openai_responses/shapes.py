"""What each type of item must hold; of types not known, anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from agent_memory_log.transcript.kinds import is_list, is_map
from agent_memory_log.transcript.openai_responses.turns import kind_of
from agent_memory_log.transcript.shapes import (
    Check,
    Flaw,
    any_map,
    anything,
    boolean,
    either,
    integer,
    list_of,
    map_of,
    number,
    one_of,
    or_null,
    record,
    tagged,
    text,
)

_PROGRESS = one_of("in_progress", "completed", "incomplete")
_PHASE = or_null(one_of("commentary", "final_answer"))
_BREAKPOINT = record({"mode": one_of("explicit")}, {"ttl": one_of("30m", "12h")})
_FILE = {
    "detail": or_null(text),
    "file_data": or_null(text),
    "file_id": or_null(text),
    "file_url": or_null(text),
    "filename": or_null(text),
    "prompt_cache_breakpoint": or_null(_BREAKPOINT),
}

_SENT_PART = tagged(
    {
        "input_text": record({"text": text}, {"prompt_cache_breakpoint": _BREAKPOINT}),
        # The typed params ask for an image's detail, the API has a default for it.
        "input_image": record(
            {},
            {
                "detail": one_of("low", "high", "auto", "original"),
                "file_id": or_null(text),
                "image_url": or_null(text),
                "prompt_cache_breakpoint": _BREAKPOINT,
            },
        ),
        "input_file": record(
            {},
            {
                "detail": one_of("auto", "low", "high"),
                "file_data": text,
                "file_id": or_null(text),
                "file_url": text,
                "filename": text,
                "prompt_cache_breakpoint": _BREAKPOINT,
            },
        ),
    }
)
_RETURNED_PART = tagged(
    {
        "input_text": record({"text": text}, {"prompt_cache_breakpoint": or_null(_BREAKPOINT)}),
        "input_image": record(
            {},
            {
                "detail": or_null(one_of("low", "high", "auto", "original")),
                "file_id": or_null(text),
                "image_url": or_null(text),
                "prompt_cache_breakpoint": or_null(_BREAKPOINT),
            },
        ),
        "input_file": record({}, {**_FILE, "detail": one_of("auto", "low", "high")}),
    }
)

_ANNOTATION = tagged(
    {
        "file_citation": record({"file_id": text, "filename": text, "index": integer}),
        "url_citation": record({"end_index": integer, "start_index": integer, "title": text, "url": text}),
        "container_file_citation": record(
            {"container_id": text, "end_index": integer, "file_id": text, "filename": text, "start_index": integer}
        ),
        "file_path": record({"file_id": text, "index": integer}),
    }
)
_TOKEN = {"token": text, "bytes": list_of(integer), "logprob": number}
_ANSWERED_PART = tagged(
    {
        "output_text": record(
            {"text": text, "annotations": list_of(_ANNOTATION)},
            {"logprobs": list_of(record({**_TOKEN, "top_logprobs": list_of(record(_TOKEN))}))},
        ),
        "refusal": record({"refusal": text}),
    }
)

_EASY = record(
    {"content": either(text, list_of(_SENT_PART)), "role": one_of("user", "assistant", "system", "developer")},
    {"phase": _PHASE},
)
_ANSWER = record(
    {"id": text, "content": list_of(_ANSWERED_PART), "role": one_of("assistant"), "status": _PROGRESS},
    {"phase": _PHASE},
)

_CALLER = or_null(tagged({"direct": record({}), "program": record({"caller_id": text})}))
_OPTIONAL = {"id": or_null(text), "status": or_null(_PROGRESS), "caller": _CALLER}
_SEARCHING = one_of("in_progress", "searching", "completed", "incomplete", "failed")
_POINT = {"x": integer, "y": integer}
_KEYS = or_null(list_of(text))
_ACTION = tagged(
    {
        "click": record({"button": one_of("left", "right", "wheel", "back", "forward"), **_POINT}, {"keys": _KEYS}),
        "double_click": record({"keys": _KEYS, **_POINT}),
        "drag": record({"path": list_of(record(_POINT))}, {"keys": _KEYS}),
        "keypress": record({"keys": list_of(text)}),
        "move": record(_POINT, {"keys": _KEYS}),
        "screenshot": record({}),
        "scroll": record({"scroll_x": integer, "scroll_y": integer, **_POINT}, {"keys": _KEYS}),
        "type": record({"text": text}),
        "wait": record({}),
    }
)
_SAFETY_CHECKS = list_of(record({"id": text}, {"code": or_null(text), "message": or_null(text)}))
_OUTCOME = tagged({"timeout": record({}), "exit": record({"exit_code": integer})})
_OUTPUT = either(text, list_of(_RETURNED_PART))

_ITEMS: Mapping[str, Check] = {
    "message": either(_ANSWER, _EASY),
    "reasoning": record(
        {"summary": list_of(tagged({"summary_text": record({"text": text})}))},
        {
            "id": text,  # the typed params ask for it; the API does not where the content is encrypted
            "content": list_of(tagged({"reasoning_text": record({"text": text})})),
            "encrypted_content": or_null(text),
            "status": _PROGRESS,
        },
    ),
    "function_call": record(
        {"arguments": text, "call_id": text, "name": text},
        {"id": text, "status": _PROGRESS, "namespace": text, "caller": _CALLER},
    ),
    "function_call_output": record(
        {"call_id": text, "output": _OUTPUT}, {**_OPTIONAL, "name": or_null(text), "namespace": or_null(text)}
    ),
    "custom_tool_call": record(
        {"call_id": text, "input": text, "name": text}, {"id": text, "namespace": text, "caller": _CALLER}
    ),
    "custom_tool_call_output": record(
        {"call_id": text, "output": either(text, list_of(_SENT_PART))}, {"id": text, "caller": _CALLER}
    ),
    "computer_call": record(
        {"id": text, "call_id": text, "pending_safety_checks": _SAFETY_CHECKS, "status": _PROGRESS},
        {"action": _ACTION, "actions": list_of(_ACTION)},
    ),
    "computer_call_output": record(
        {
            "call_id": text,
            "output": tagged({"computer_screenshot": record({}, {"file_id": text, "image_url": text})}),
        },
        {
            "id": or_null(text),
            "status": or_null(_PROGRESS),
            "acknowledged_safety_checks": or_null(_SAFETY_CHECKS),
        },
    ),
    "local_shell_call": record(
        {
            "id": text,
            "call_id": text,
            "status": _PROGRESS,
            "action": record(
                {"command": list_of(text), "env": map_of(text), "type": one_of("exec")},
                {"timeout_ms": or_null(integer), "user": or_null(text), "working_directory": or_null(text)},
            ),
        }
    ),
    "local_shell_call_output": record({"id": text, "output": text}, {"status": or_null(_PROGRESS)}),
    "shell_call": record(
        {
            "call_id": text,
            "action": record(
                {"commands": list_of(text)}, {"max_output_length": or_null(integer), "timeout_ms": or_null(integer)}
            ),
        },
        {**_OPTIONAL, "environment": or_null(any_map)},
    ),
    "shell_call_output": record(
        {"call_id": text, "output": list_of(record({"stdout": text, "stderr": text, "outcome": _OUTCOME}))},
        {**_OPTIONAL, "max_output_length": or_null(integer)},
    ),
    "apply_patch_call": record(
        {
            "call_id": text,
            "status": one_of("in_progress", "completed"),
            "operation": tagged(
                {
                    "create_file": record({"diff": text, "path": text}),
                    "delete_file": record({"path": text}),
                    "update_file": record({"diff": text, "path": text}),
                }
            ),
        },
        {"id": or_null(text), "caller": _CALLER},
    ),
    "apply_patch_call_output": record(
        {"call_id": text, "status": one_of("completed", "failed")},
        {"id": or_null(text), "caller": _CALLER, "output": or_null(text)},
    ),
    "web_search_call": record({"id": text, "status": _SEARCHING}, {"action": any_map}),
    "file_search_call": record(
        {"id": text, "queries": list_of(text), "status": _SEARCHING}, {"results": or_null(list_of(any_map))}
    ),
    "code_interpreter_call": record(
        {
            "id": text,
            "code": or_null(text),
            "container_id": text,
            "outputs": or_null(list_of(any_map)),
            "status": one_of("in_progress", "completed", "incomplete", "interpreting", "failed"),
        }
    ),
    "image_generation_call": record(
        {
            "id": text,
            "result": or_null(text),
            "status": one_of("in_progress", "completed", "generating", "failed"),
        }
    ),
    "mcp_list_tools": record(
        {
            "id": text,
            "server_label": text,
            "tools": list_of(record({"input_schema": anything, "name": text}, {"description": or_null(text)})),
        },
        {"error": or_null(text)},
    ),
    "mcp_call": record(
        {"id": text, "arguments": text, "name": text, "server_label": text},
        {"output": or_null(text), "approval_request_id": or_null(text)},
    ),
    "mcp_approval_request": record({"id": text, "arguments": text, "name": text, "server_label": text}),
    "mcp_approval_response": record(
        {"approval_request_id": text, "approve": boolean}, {"id": or_null(text), "reason": or_null(text)}
    ),
    "item_reference": record({"id": text}),
    "compaction": record({"encrypted_content": text}, {"id": or_null(text)}),
}

_PLAIN_MESSAGE = frozenset({"role", "content", "type"})
_PLAIN_CALL = frozenset({"type", "call_id", "name", "arguments"})
_PLAIN_RESULT = frozenset({"type", "call_id", "output"})
_PLAIN_REASONING = frozenset({"type", "id", "summary", "encrypted_content"})
_PLAIN = {"message": _PLAIN_MESSAGE, "function_call": _PLAIN_CALL, "function_call_output": _PLAIN_RESULT}
_ROLES = frozenset({"user", "assistant", "system", "developer"})


def flaw_of(item: Mapping[str, object], kind: str) -> Flaw | None:
    """The first thing that is wrong with an item of a type."""
    plain = _PLAIN.get(kind)
    # Nearly every item of a long history is of these, and nothing but text.
    if (
        plain is not None
        and item.keys() <= plain
        and all(type(value) is str for value in item.values())
        and (len(item) == len(plain) or kind == "message")
        and ("role" not in plain or ("content" in item and item.get("role") in _ROLES))
    ):
        return None
    if kind == "reasoning" and _is_plain_reasoning(item):
        return None
    check = _ITEMS.get(kind)
    if check is not None:
        return check(item)
    return None if kind else Flaw(("type",), "must be text")


def _is_plain_reasoning(item: Mapping[str, object]) -> bool:
    summary = item.get("summary")
    if len(item) != len(_PLAIN_REASONING) or not is_list(summary) or len(summary) != 1:
        return False
    part = summary[0]
    return (
        item.keys() >= _PLAIN_REASONING
        and type(item["id"]) is str
        and type(item["encrypted_content"]) is str
        and is_map(part)
        and part.get("type") == "summary_text"
        and type(part.get("text")) is str
    )


def is_sound(item: object) -> bool:
    """Whether an item is a map that holds what its type requires."""
    if not isinstance(item, Mapping):
        return False
    known = cast("Mapping[str, object]", item)
    return flaw_of(known, kind_of(known)) is None
