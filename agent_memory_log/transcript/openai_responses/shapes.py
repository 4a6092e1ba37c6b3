"""Defines the required fields of each item type. Items of unknown types may hold anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from agent_memory_log.transcript.openai_responses.items import kind_of
from agent_memory_log.transcript.validity.shapes import (
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
    optional,
    optional_or_null,
    or_null,
    record,
    tagged,
    text,
)

_PROGRESS = one_of("in_progress", "completed", "incomplete")
_STATUS_OR_NULL = optional_or_null(_PROGRESS)
_PHASE = optional_or_null(one_of("commentary", "final_answer"))
_BREAKPOINT = record(mode=one_of("explicit"), ttl=optional(one_of("30m", "12h")))
_IMAGE_DETAIL = one_of("low", "high", "auto", "original")
_FILE_DETAIL = one_of("auto", "low", "high")

_SENT_PART = tagged(
    input_text=record(text=text, prompt_cache_breakpoint=optional(_BREAKPOINT)),
    # The SDK's types require an image's detail, but the API has a default.
    input_image=record(
        detail=optional(_IMAGE_DETAIL),
        file_id=optional_or_null(text),
        image_url=optional_or_null(text),
        prompt_cache_breakpoint=optional(_BREAKPOINT),
    ),
    input_file=record(
        detail=optional(_FILE_DETAIL),
        file_data=optional(text),
        file_id=optional_or_null(text),
        file_url=optional(text),
        filename=optional(text),
        prompt_cache_breakpoint=optional(_BREAKPOINT),
    ),
)
_RETURNED_PART = tagged(
    input_text=record(text=text, prompt_cache_breakpoint=optional_or_null(_BREAKPOINT)),
    input_image=record(
        detail=optional_or_null(_IMAGE_DETAIL),
        file_id=optional_or_null(text),
        image_url=optional_or_null(text),
        prompt_cache_breakpoint=optional_or_null(_BREAKPOINT),
    ),
    input_file=record(
        detail=optional(_FILE_DETAIL),
        file_data=optional_or_null(text),
        file_id=optional_or_null(text),
        file_url=optional_or_null(text),
        filename=optional_or_null(text),
        prompt_cache_breakpoint=optional_or_null(_BREAKPOINT),
    ),
)

_RANGE = {"end_index": integer, "start_index": integer}
_ANNOTATION = tagged(
    file_citation=record(file_id=text, filename=text, index=integer),
    url_citation=record(**_RANGE, title=text, url=text),
    container_file_citation=record(**_RANGE, container_id=text, file_id=text, filename=text),
    file_path=record(file_id=text, index=integer),
)
_TOKEN = {"token": text, "bytes": list_of(integer), "logprob": number}
_LOGPROBS = list_of(record(**_TOKEN, top_logprobs=list_of(record(**_TOKEN))))
_ANSWERED_PART = tagged(
    output_text=record(text=text, annotations=list_of(_ANNOTATION), logprobs=optional(_LOGPROBS)),
    refusal=record(refusal=text),
)

_EASY = record(
    content=either(text, list_of(_SENT_PART)),
    role=one_of("user", "assistant", "system", "developer"),
    phase=_PHASE,
)
_ANSWER = record(id=text, content=list_of(_ANSWERED_PART), role=one_of("assistant"), status=_PROGRESS, phase=_PHASE)

_CALLER = optional_or_null(tagged(direct=record(), program=record(caller_id=text)))
_ID_OR_NULL = optional_or_null(text)
# The SDK's types require the status and the result of a tool that OpenAI runs, but not the API.
_SEARCHING = optional_or_null(one_of("in_progress", "searching", "completed", "incomplete", "failed"))
_POINT = {"x": integer, "y": integer}
_KEYS = or_null(list_of(text))
_ACTION = tagged(
    click=record(**_POINT, button=one_of("left", "right", "wheel", "back", "forward"), keys=optional(_KEYS)),
    double_click=record(**_POINT, keys=_KEYS),
    drag=record(path=list_of(record(**_POINT)), keys=optional(_KEYS)),
    keypress=record(keys=list_of(text)),
    move=record(**_POINT, keys=optional(_KEYS)),
    screenshot=record(),
    scroll=record(**_POINT, scroll_x=integer, scroll_y=integer, keys=optional(_KEYS)),
    type=record(text=text),
    wait=record(),
)
_SAFETY_CHECKS = list_of(record(id=text, code=optional_or_null(text), message=optional_or_null(text)))
_OUTCOME = tagged(timeout=record(), exit=record(exit_code=integer))
_LOCAL_ACTION = record(
    command=list_of(text),
    env=map_of(text),
    type=one_of("exec"),
    timeout_ms=optional_or_null(integer),
    user=optional_or_null(text),
    working_directory=optional_or_null(text),
)
_SHELL_ACTION = record(
    commands=list_of(text), max_output_length=optional_or_null(integer), timeout_ms=optional_or_null(integer)
)
_PATCH = tagged(
    create_file=record(diff=text, path=text), delete_file=record(path=text), update_file=record(diff=text, path=text)
)

_ITEMS: Mapping[str, Check] = {
    "message": either(_ANSWER, _EASY),
    "reasoning": record(
        summary=list_of(tagged(summary_text=record(text=text))),
        id=optional(text),  # the SDK's types require it, but not the API
        content=optional(list_of(tagged(reasoning_text=record(text=text)))),
        encrypted_content=optional_or_null(text),
        status=optional(_PROGRESS),
    ),
    "function_call": record(
        arguments=text,
        call_id=text,
        name=text,
        id=optional(text),
        status=optional(_PROGRESS),
        namespace=optional(text),
        caller=_CALLER,
    ),
    "function_call_output": record(
        call_id=text,
        output=either(text, list_of(_RETURNED_PART)),
        id=_ID_OR_NULL,
        status=_STATUS_OR_NULL,
        caller=_CALLER,
        name=optional_or_null(text),
        namespace=optional_or_null(text),
    ),
    "custom_tool_call": record(
        call_id=text, input=text, name=text, id=optional(text), namespace=optional(text), caller=_CALLER
    ),
    "custom_tool_call_output": record(
        call_id=text, output=either(text, list_of(_SENT_PART)), id=optional(text), caller=_CALLER
    ),
    "computer_call": record(
        id=text,
        call_id=text,
        pending_safety_checks=_SAFETY_CHECKS,
        status=_PROGRESS,
        action=optional(_ACTION),
        actions=optional(list_of(_ACTION)),
    ),
    "computer_call_output": record(
        call_id=text,
        output=tagged(computer_screenshot=record(file_id=optional(text), image_url=optional(text))),
        id=_ID_OR_NULL,
        status=_STATUS_OR_NULL,
        acknowledged_safety_checks=optional_or_null(_SAFETY_CHECKS),
    ),
    "local_shell_call": record(id=text, call_id=text, status=_PROGRESS, action=_LOCAL_ACTION),
    "local_shell_call_output": record(id=text, output=text, status=_STATUS_OR_NULL),
    "shell_call": record(
        call_id=text,
        action=_SHELL_ACTION,
        id=_ID_OR_NULL,
        status=_STATUS_OR_NULL,
        caller=_CALLER,
        environment=optional_or_null(any_map),
    ),
    "shell_call_output": record(
        call_id=text,
        output=list_of(record(stdout=text, stderr=text, outcome=_OUTCOME)),
        id=_ID_OR_NULL,
        status=_STATUS_OR_NULL,
        caller=_CALLER,
        max_output_length=optional_or_null(integer),
    ),
    "apply_patch_call": record(
        call_id=text, status=one_of("in_progress", "completed"), operation=_PATCH, id=_ID_OR_NULL, caller=_CALLER
    ),
    "apply_patch_call_output": record(
        call_id=text,
        status=one_of("completed", "failed"),
        id=_ID_OR_NULL,
        caller=_CALLER,
        output=optional_or_null(text),
    ),
    "web_search_call": record(id=text, status=_SEARCHING, action=optional(any_map)),
    "file_search_call": record(
        id=text, queries=list_of(text), status=_SEARCHING, results=optional_or_null(list_of(any_map))
    ),
    "code_interpreter_call": record(
        id=text,
        code=or_null(text),
        container_id=text,
        outputs=or_null(list_of(any_map)),
        status=optional_or_null(one_of("in_progress", "completed", "incomplete", "interpreting", "failed")),
    ),
    "image_generation_call": record(
        id=text,
        result=optional_or_null(text),
        status=optional_or_null(one_of("in_progress", "completed", "generating", "failed")),
    ),
    "mcp_list_tools": record(
        id=text,
        server_label=text,
        tools=list_of(record(input_schema=anything, name=text, description=optional_or_null(text))),
        error=optional_or_null(text),
    ),
    "mcp_call": record(
        id=text,
        arguments=text,
        name=text,
        server_label=text,
        output=optional_or_null(text),
        approval_request_id=optional_or_null(text),
    ),
    "tool_search_call": record(
        call_id=text, arguments=anything, execution=one_of("client"), id=_ID_OR_NULL, status=_STATUS_OR_NULL
    ),
    "tool_search_output": record(
        call_id=text, tools=list_of(any_map), execution=one_of("client"), id=_ID_OR_NULL, status=_STATUS_OR_NULL
    ),
    "mcp_approval_request": record(id=text, arguments=text, name=text, server_label=text),
    "mcp_approval_response": record(
        approval_request_id=text, approve=boolean, id=_ID_OR_NULL, reason=optional_or_null(text)
    ),
    "item_reference": record(id=text),
    "compaction": record(encrypted_content=text, id=_ID_OR_NULL),
}


def flaw_of(item: Mapping[str, object], kind: str) -> Flaw | None:
    """Return the first flaw of an item whose type is ``kind``, or None."""
    check = _ITEMS.get(kind)
    if check is not None:
        return check(item)
    return None if kind else Flaw(("type",), "must be text")


def is_sound(item: object) -> bool:
    """Return whether an item is a map with the fields that its type requires."""
    if not isinstance(item, Mapping):
        return False
    item_map = cast("Mapping[str, object]", item)
    return flaw_of(item_map, kind_of(item_map)) is None
