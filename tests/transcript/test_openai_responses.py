"""Tests Responses: parsing, building, the rules of ``validate`` and the changes of ``repair``."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent_memory_log import (
    AssistantMessage,
    EventData,
    Redacted,
    RetryHint,
    Snapshot,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
    new_event,
    open_sync_store,
)
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.recording import SyncRunRecorder
from agent_memory_log.transcript import build, parse, read_chat_lines
from agent_memory_log.transcript.providers import repair, request, validate, window
from agent_memory_log.transcript.requests import model_request
from tests.transcript.responses_judge import judge_input
from tests.transcript.test_openai_chat import TAU
from tests.transcript.transcript_runs import ODD_VALUES, assert_repaired, built_from, changes_of, nearly, rules_of
from tests.transcript.transcripts import Message, assert_exact, json_values, maps, numbered, run_of

RESPONSES = "openai-responses"

USER: Message = {"role": "user", "content": "Hi"}


TOOL: Message = {"type": "function", "name": "f", "parameters": {}, "strict": True, "defer_loading": True}
SEARCH: Message = {
    "type": "tool_search_call",
    "execution": "client",
    "call_id": "s",
    "arguments": {"queries": ["a"]},
    "status": "completed",
}
APPROVAL: Message = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "name": "drop",
    "arguments": "{}",
    "server_label": "db",
}


def call(call_id: str = "c1", name: str = "orders_get", arguments: str = '{"id": 7}', **fields: object) -> Message:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **fields}


def output(value: object = "ok", call_id: str = "c1", **fields: object) -> Message:
    return {"type": "function_call_output", "call_id": call_id, "output": value, **fields}


def reasoning(
    item_id: str = "rs_1", encrypted: str | None = "gAAAA", text: str = "Let me see.", **fields: object
) -> Message:
    item: Message = {"type": "reasoning", "id": item_id, "summary": [{"type": "summary_text", "text": text}]}
    return {**item, **({} if encrypted is None else {"encrypted_content": encrypted}), **fields}


def assistant_message(*parts: object, item_id: str = "msg_1", **fields: object) -> Message:
    return {
        "type": "message",
        "id": item_id,
        "status": "completed",
        "role": "assistant",
        "content": list(parts),
        **fields,
    }


def text(value: str = "Hello", **fields: object) -> Message:
    return {"type": "output_text", "text": value, "annotations": [], **fields}


CITED = {"type": "url_citation", "start_index": 0, "end_index": 2, "title": "T", "url": "https://example.com"}
LOGPROB = {"token": "He", "bytes": [72, 101], "logprob": -0.25, "top_logprobs": []}
CLICK = {"type": "click", "button": "left", "x": 1, "y": 2}
SHELL_OUTPUT = {"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}

DOCUMENTED: dict[str, list[Message]] = {
    "easy messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "system", "content": "Be kind."},
        USER,
        {"role": "assistant", "content": "Hello", "phase": "final_answer"},
    ],
    "full messages": [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is"},
                {"type": "input_image", "image_url": "data:image/png;base64,YQ==", "detail": "auto"},
                {"type": "input_file", "file_id": "file_1", "filename": "a.pdf"},
                {"type": "input_text", "text": "this?"},
            ],
        },
        assistant_message(text("Hello", annotations=[CITED], logprobs=[LOGPROB]), text(" you"), phase="commentary"),
        assistant_message({"type": "refusal", "refusal": "I cannot."}, item_id="msg_2"),
    ],
    "reasoning": [
        USER,
        reasoning(content=[{"type": "reasoning_text", "text": "deep"}], status="completed"),
        reasoning("rs_2", None, ""),
        {"type": "reasoning", "id": "rs_3", "summary": [], "content": [{"type": "reasoning_text", "text": "aloud"}]},
        call(id="fc_1", status="completed"),
        output([{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u", "detail": "low"}]),
    ],
    "parallel calls": [
        USER,
        call("a"),
        call("b", "search", ""),
        output("1", "b"),
        output('{"x": 1.0}', "a", id="fco_1"),
    ],
    "custom tools": [
        USER,
        {"type": "custom_tool_call", "call_id": "k", "name": "sql", "input": "SELECT 1", "id": "ctc_1"},
        {"type": "custom_tool_call_output", "call_id": "k", "output": "1"},
    ],
    "a search for tools": [
        USER,
        {"type": "tool_search_call", "execution": "client", "call_id": "s", "arguments": {"queries": ["a"]}},
        {"type": "tool_search_output", "execution": "client", "call_id": "s", "status": "completed", "tools": [TOOL]},
        {"type": "tool_search_call", "execution": "client", "call_id": "t", "arguments": {}, "status": "completed"},
        output("[]", "t"),
        {"type": "tool_search_call", "execution": "server", "call_id": None, "arguments": {}, "id": "tsc_1"},
        {"type": "tool_search_output", "execution": "server", "call_id": None, "tools": [TOOL], "id": "tso_1"},
    ],
    "an approval": [
        USER,
        {"type": "mcp_approval_request", "id": "mcpr_1", "name": "drop", "arguments": "{}", "server_label": "db"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False, "reason": "no"},
    ],
    "a computer": [
        {
            "type": "computer_call",
            "id": "cu_1",
            "call_id": "u",
            "action": CLICK,
            "pending_safety_checks": [],
            "status": "completed",
        },
        {
            "type": "computer_call_output",
            "call_id": "u",
            "output": {"type": "computer_screenshot", "image_url": "data:"},
        },
        {
            "type": "computer_call",
            "id": "cu_2",
            "call_id": "v",
            "actions": [CLICK],
            "pending_safety_checks": [],
            "status": "completed",
        },
        {"type": "computer_call_output", "call_id": "v", "output": {"type": "computer_screenshot", "file_id": "f"}},
    ],
    "shells": [
        {
            "type": "local_shell_call",
            "id": "lsh_1",
            "call_id": "l",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
            "status": "completed",
        },
        {"type": "local_shell_call_output", "id": "l", "output": "a.txt"},
        {"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"], "timeout_ms": 5}},
        {"type": "shell_call_output", "call_id": "s", "output": [SHELL_OUTPUT]},
        {
            "type": "apply_patch_call",
            "call_id": "p",
            "status": "completed",
            "operation": {"type": "delete_file", "path": "a.txt"},
        },
        {"type": "apply_patch_call_output", "call_id": "p", "status": "completed", "output": "done"},
    ],
    "server tools": [
        USER,
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["x"], "results": None},
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "status": "completed",
            "code": "1",
            "container_id": "cntr_1",
            "outputs": [{"type": "logs", "logs": "1"}],
        },
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "YQ=="},
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": [{"name": "t", "input_schema": {}}]},
        {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "t", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "t", "arguments": "{}", "output": "1"},
    ],
    "references and compaction": [
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA"},
        {"type": "item_reference", "id": "fc_9"},
        output("1", "c9"),
    ],
}


@pytest.mark.parametrize("items", DOCUMENTED.values(), ids=DOCUMENTED.keys())
def test_documented_items_survive_and_are_valid(items: list[Message]) -> None:
    assert_exact(items, RESPONSES)
    judge_input(items)
    assert validate(items, RESPONSES) == []
    assert rules_of(built_from(items, RESPONSES), RESPONSES) == []
    assert repair(items, RESPONSES).changes == ()


ODD: dict[str, list[Message]] = {
    "no items": [],
    "an empty item": [{}],
    "no type and no role": [{"content": "x"}],
    "types": [{"type": value, "role": "user", "content": "x"} for value in ODD_VALUES],
    "roles": [{"role": value, "content": "x"} for value in [*ODD_VALUES, "critic"]],
    "contents": [
        {"role": role, "content": value} for role in ("user", "assistant", "developer") for value in ODD_VALUES
    ],
    "no content": [{"role": "user"}, {"role": "assistant", "type": "message"}, {"type": "message"}],
    "parts": [{"role": "user", "content": [value, {"type": "input_text", "text": value}]} for value in ODD_VALUES],
    "summaries": [{"type": "reasoning", "summary": value} for value in ODD_VALUES],
    "reasoning contents": [reasoning(content=value, encrypted_content=value) for value in ODD_VALUES],
    "reasoning with mixed content": [
        {
            "type": "reasoning",
            "content": [{"type": "reasoning_text", "text": "a"}, 3, {"type": "reasoning_text", "text": "b"}],
        }
    ],
    "calls": [{"type": "function_call", "call_id": v, "name": v, "arguments": v} for v in ODD_VALUES],
    "custom calls": [{"type": "custom_tool_call", "call_id": v, "name": v, "input": v} for v in ODD_VALUES],
    "actions": [
        {"type": kind, "call_id": "c", "action": v, "actions": v, "operation": v}
        for kind in ("computer_call", "shell_call", "local_shell_call", "apply_patch_call")
        for v in ODD_VALUES
    ],
    "outputs": [
        {"type": f"{kind}_output", "call_id": "c", "output": v, "status": v}
        for kind in (
            "function_call",
            "custom_tool_call",
            "computer_call",
            "shell_call",
            "local_shell_call",
            "apply_patch_call",
        )
        for v in ODD_VALUES
    ],
    "an output of another type than its call": [
        call(),
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "1"},
    ],
    "repeated ids": [call(), call(name="g"), output("1"), output("2"), output("3")],
    "names": [call(name=name) for name in ("a.b", "a--b", "-_2e-", "toolset.tool", "ü", "")],
    "keys that residuals use": [{**USER, "fields": {}, "without": ["role"], "parts": [1], RESPONSES: {}}],
    "unknown types": [{"type": "telepathy", "id": "t_1", "waves": [1, 2.0]}],
}


@pytest.mark.parametrize("items", ODD.values(), ids=ODD.keys())
def test_odd_items_survive_and_can_be_repaired(items: list[Message]) -> None:
    assert_exact(items, RESPONSES)
    for item in items:
        assert_exact([item], RESPONSES)
        assert_repaired([USER, item, call(), output()], RESPONSES)


texts = st.sampled_from(["", " ", "Hi", '{"a": 1}', "null", "[]", "a\nb"])
ids = st.sampled_from(["c1", "c2", "", "x" * 70])
in_parts = st.lists(
    nearly({"type": st.just("input_text"), "text": texts})
    | nearly({"type": st.just("input_image"), "image_url": texts, "detail": st.just("auto")}),
    max_size=3,
)
out_parts = st.lists(
    nearly({"type": st.just("output_text"), "text": texts, "annotations": st.just([])})
    | nearly({"type": st.just("refusal"), "refusal": texts}),
    max_size=3,
)
statuses = st.sampled_from(["completed", "incomplete"])


def ids_like(prefix: str) -> st.SearchStrategy[str]:
    return st.builds(f"{prefix}_{{}}".format, st.integers(1, 3))


items_of_kinds = st.one_of(
    nearly({"role": st.sampled_from(["user", "assistant", "system", "developer"]), "content": texts | in_parts}),
    nearly(
        {
            "type": st.just("message"),
            "role": st.just("assistant"),
            "id": ids_like("msg"),
            "status": statuses,
            "content": out_parts,
        }
    ),
    nearly(
        {
            "type": st.just("reasoning"),
            "id": ids_like("rs"),
            "summary": st.lists(nearly({"type": st.just("summary_text"), "text": texts}), max_size=2),
            "encrypted_content": st.sampled_from(["gA", "gB", "gC"]),
        }
    ),
    nearly(
        {
            "type": st.just("function_call"),
            "call_id": ids,
            "name": st.sampled_from(["f", "a.b"]),
            "arguments": texts,
            "id": ids_like("fc"),
            "status": statuses,
        }
    ),
    nearly({"type": st.just("function_call_output"), "call_id": ids, "output": texts | in_parts}),
    nearly({"type": st.just("custom_tool_call"), "call_id": ids, "name": st.just("f"), "input": texts}),
    nearly({"type": st.just("custom_tool_call_output"), "call_id": ids, "output": texts}),
    nearly({"type": st.just("shell_call"), "call_id": ids, "action": st.just({"commands": ["ls"]})}),
    nearly({"type": st.just("shell_call_output"), "call_id": ids, "output": st.just([SHELL_OUTPUT])}),
    st.fixed_dictionaries({"type": st.just("item_reference"), "id": st.just("x")}),
)
good_items = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system"]), "content": texts}),
    st.builds(reasoning, ids_like("rs"), st.sampled_from(["gA", "gB", "gC"])),
    st.builds(call, ids, st.sampled_from(["f", "g"]), texts),
    st.builds(call, st.just("c3"), st.just("f"), id=ids_like("fc")),
    st.builds(output, texts, ids),
    st.builds(assistant_message, st.builds(text), item_id=ids_like("msg")),
)


@given(st.lists(items_of_kinds, max_size=8))
def test_any_items_survive_parse_and_build(items: list[Message]) -> None:
    assert_exact(items, RESPONSES)


@given(st.lists(items_of_kinds, max_size=8), st.booleans(), st.booleans())
def test_any_items_can_be_repaired(items: list[Message], stored: bool, recorded: bool) -> None:
    transcript = built_from(items, RESPONSES) if recorded else items
    assert_repaired(transcript, RESPONSES, request={"store": stored})


@given(st.lists(good_items, max_size=12))
def test_openai_types_accept_repaired_items(items: list[Message]) -> None:
    repaired = assert_repaired(items, RESPONSES, judge_input)
    without_ids = [item for item in repaired.transcript if item.get("type") == "reasoning" and "id" not in item]
    assert without_ids == []


def test_judge_checks_lazily_validated_lists() -> None:
    with pytest.raises(ValidationError):
        judge_input([reasoning(summary=[{"type": "summary_text", "text": 3}])])
    with pytest.raises(ValidationError):
        judge_input([assistant_message(text(annotations=[{"type": "url_citation"}]))])


BROKEN: dict[str, tuple[list[Message], str, int, dict[str, Any]]] = {
    "no map in content": ([USER, {"role": "user", "content": [3]}], "item_shape", 2, {}),
    "no arguments": ([USER, {"type": "function_call", "call_id": "c", "name": "f"}], "item_shape", 2, {}),
    "an annotation without its url": (
        [assistant_message(text(annotations=[{"type": "url_citation"}]))],
        "item_shape",
        1,
        {},
    ),
    "a call without output": ([USER, call(), USER], "unanswered_call", 2, {}),
    "a custom call answered as a function": (
        [{"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": ""}, output()],
        "unanswered_call",
        1,
        {},
    ),
    "an output before its call": ([output(), call(), output()], "orphan_result", 1, {}),
    "an output without a call": ([USER, output()], "orphan_result", 2, {}),
    "two outputs of one call": ([call(), output(), output("2")], "duplicate_result", 3, {}),
    "the id of an open call used again": ([call(), call(name="g"), output(), output()], "duplicate_call", 2, {}),
    "an empty id": ([call(""), output("1", "")], "call_id", 1, {}),
    "a long id": ([call("x" * 65), output("1", "x" * 65)], "call_id", 1, {}),
    "a name with a dot": ([call(name="orders.get!"), output()], "tool_name", 1, {}),
    "a long name": ([call(name="x" * 65), output()], "tool_name", 1, {}),
    "an item id with the prefix of another type": ([call(id="call_1"), output()], "item_id", 1, {}),
    "a long item id": ([call(id="fc_" + "x" * 62), output()], "item_id", 1, {}),
    "an item id used twice": (
        [call(id="fc_1"), output(), call("c2", id="fc_1"), output("1", "c2")],
        "duplicate_id",
        3,
        {},
    ),
    "reasoning at the end": ([USER, reasoning()], "reasoning_alone", 2, {}),
    "reasoning before an item without its id": (
        [reasoning(), {"role": "assistant", "content": "Hello."}],
        "reasoning_alone",
        1,
        {},
    ),
    "reasoning before a call without its id": ([reasoning(), call(), output()], "reasoning_alone", 1, {}),
    "an approval that is missing": ([USER, APPROVAL], "unanswered_call", 2, {}),
    "a search without its tools": ([USER, SEARCH], "unanswered_call", 2, {}),
    "reasoning before the user": ([reasoning(), USER], "reasoning_alone", 1, {}),
    "reasoning before an output": ([call(), reasoning(), output()], "reasoning_alone", 2, {}),
    "unencrypted reasoning that is not stored": (
        [reasoning(encrypted=None), call(id="fc_1"), output()],
        "reasoning_unencrypted",
        1,
        {"store": False},
    ),
    "reasoning twice": (
        [reasoning(), call(id="fc_1"), output(), reasoning("rs_2"), call(), output()],
        "thinking_order",
        4,
        {},
    ),
}


def test_repair_removes_only_the_nulls_that_sdks_write() -> None:
    items: list[Message] = [
        USER,
        {**reasoning(), "status": None, "content": None},
        {**call(id="fc_1"), "status": None, "namespace": None},
        output(),
        reasoning("rs_2", "gB"),
        {**call("c2", id="fc_2"), "status": None},
        output("2", "c2"),
    ]
    transcript = built_from(items, RESPONSES)
    assert "item_shape" in [rule for rule, _ in rules_of(transcript, RESPONSES)]
    for unrepaired in (items, transcript):
        repaired = assert_repaired(unrepaired, RESPONSES, judge_input)
        assert repaired.transcript == [
            {key: value for key, value in item.items() if value is not None} for item in items
        ]
        assert [change.change for change in repaired.changes] == ["mended_message"] * 3


@pytest.mark.parametrize(("items", "rule", "seq", "arguments"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_rule_is_reported_with_its_seq_and_repaired(
    items: list[Message], rule: str, seq: int, arguments: dict[str, Any]
) -> None:
    transcript = built_from(items, RESPONSES)
    assert (rule, seq) in rules_of(transcript, RESPONSES, arguments)
    assert rule in [broken_rule for broken_rule, _ in rules_of(items, RESPONSES, arguments)]
    assert_repaired(items, RESPONSES, judge_input, arguments)
    repaired = assert_repaired(transcript, RESPONSES, judge_input, arguments)
    assert seq in [change.seq for change in repaired.changes]


def test_calls_that_wait_for_the_client_are_answered_in_their_own_shape() -> None:
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "a", "r") as recorder:
        recorder.user("Find me a tool, then drop the table.")
        answer = {"object": "response", "id": "resp_1", "status": "completed", "output": [SEARCH, APPROVAL]}
        search, approval = recorder.record_response(answer).tool_calls
        with recorder.tool_call(search) as call_of_search:
            call_of_search.result([TOOL])
        with recorder.tool_call(approval) as call_of_approval:
            call_of_approval.result(True)
        built = build(store.load_run("a", "r"), RESPONSES)
    calls = [event.data for event in (search, approval)]
    assert [call.tool_name for call in calls if isinstance(call, ToolCall)] == ["tool_search", "drop"]
    assert built[3:] == [
        {"type": "tool_search_output", "call_id": "s", "execution": "client", "status": "completed", "tools": [TOOL]},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
    ]
    assert validate(built, RESPONSES) == []
    judge_input(built)


def test_a_call_that_failed_is_not_approved() -> None:
    events = numbered([*parse([APPROVAL], RESPONSES), new_event(ToolResult("mcpr_1", "drop", error_message="no"))])
    built = build(Snapshot("a", "r", events, version=len(events)), RESPONSES)
    assert built[1] == {
        "type": "mcp_approval_response",
        "approval_request_id": "mcpr_1",
        "approve": False,
        "reason": "no",
    }


def test_stored_reasoning_is_valid_without_encryption() -> None:
    items = [reasoning(encrypted=None), call(id="fc_1"), output()]
    assert validate(items, RESPONSES) == []
    assert validate(items, RESPONSES, request={"store": True}) == []


def test_outputs_of_calls_stored_by_the_provider_are_valid() -> None:
    assert [rule for rule, _ in rules_of([output()], RESPONSES)] == ["orphan_result"]
    assert rules_of([output()], RESPONSES, {"previous_response_id": "resp_1"}) == []
    assert rules_of([output()], RESPONSES, {"conversation": "conv_1"}) == []
    assert rules_of([output(), output()], RESPONSES, {"conversation": "conv_1"}) == [("duplicate_result", None)]


def test_repair_removes_item_ids_tied_to_erased_reasoning() -> None:
    events = numbered(
        parse([USER, reasoning(), call(id="fc_1"), call("c2", id="fc_2"), output(), output("2", "c2")], RESPONSES)
    )
    events[1] = numbered([*events[:1], new_event(Redacted("thinking"))])[1]
    transcript = build(Snapshot("a", "r", events, version=len(events)), RESPONSES)
    assert rules_of(transcript, RESPONSES) == [("reasoning_missing", 3), ("reasoning_missing", 4)]
    repaired = assert_repaired(transcript, RESPONSES, judge_input)
    assert changes_of(repaired) == ["removed_id", "removed_id"]
    assert list(repaired.transcript) == [USER, call(), call("c2"), output(), output("2", "c2")]


def test_validate_reports_an_item_without_its_removed_reasoning() -> None:
    transcript = built_from([USER, reasoning(), assistant_message(text(annotations=[CITED]))], RESPONSES)
    del transcript[1]
    assert [rule for rule, _ in rules_of(transcript, RESPONSES)] == ["reasoning_missing"]
    assert list(assert_repaired(transcript, RESPONSES, judge_input).transcript) == [
        USER,
        {"role": "assistant", "content": "Hello"},
    ]


def test_repair_removes_item_ids_tied_to_dropped_reasoning() -> None:
    items = [
        USER,
        reasoning(encrypted=None),
        call(id="fc_1"),
        output(),
        reasoning("rs_2"),
        call("c2", id="fc_2"),
        output("2", "c2"),
    ]
    repaired = assert_repaired(items, RESPONSES, judge_input, {"store": False})
    assert list(repaired.transcript) == [USER, call(), output(), *items[4:]]
    assert changes_of(repaired) == ["dropped_thinking", "removed_id"]


def test_repair_drops_edited_reasoning() -> None:
    items = [USER, reasoning(), call(id="fc_1"), output()]
    edited = built_from(items, RESPONSES)
    edited[1]["summary"][0]["text"] = "I did not think that."
    assert rules_of(edited, RESPONSES) == [("thinking_edited", 2)]
    assert list(assert_repaired(edited, RESPONSES).transcript) == [USER, call(), output()]
    forged = built_from(items, RESPONSES)
    forged[1]["encrypted_content"] = "another"
    assert rules_of(forged, RESPONSES) == [("thinking_edited", 2)]


def test_validate_reports_reordered_reasoning() -> None:
    items = [
        USER,
        reasoning(),
        call(id="fc_1"),
        output(),
        reasoning("rs_2", "gB"),
        call("c2", id="fc_2"),
        output("2", "c2"),
    ]
    transcript = built_from(items, RESPONSES)
    transcript[1], transcript[4] = transcript[4], transcript[1]
    assert ("thinking_order", 5) in rules_of(transcript, RESPONSES)
    assert_repaired(transcript, RESPONSES)


def test_reasoning_after_an_erased_event_is_stale() -> None:
    items = [
        USER,
        reasoning(),
        call(id="fc_1"),
        output(),
        reasoning("rs_2", "gB"),
        call("c2", id="fc_2"),
        output("2", "c2"),
    ]
    events = numbered(parse(items, RESPONSES))
    events[3] = numbered([*events[:3], new_event(Redacted("tool_result"))])[3]
    transcript = build(Snapshot("a", "r", events, version=len(events)), RESPONSES)
    assert rules_of(transcript, RESPONSES) == [("unanswered_call", 3), ("thinking_prefix", 5)]
    repaired = assert_repaired(transcript, RESPONSES, judge_input)
    assert [item.get("encrypted_content") for item in repaired.transcript if item.get("type") == "reasoning"] == [
        "gAAAA"
    ]


def test_repair_drops_reasoning_after_an_edit() -> None:
    items = [
        USER,
        reasoning(),
        call(id="fc_1"),
        output(),
        reasoning("rs_2", "gB"),
        call("c2", id="fc_2"),
        output("2", "c2"),
    ]
    transcript = built_from(items, RESPONSES)
    transcript[3]["output"] = "another"
    repaired = repair(transcript, RESPONSES)
    assert [change.seq for change in repaired.changes] == [5, 6]
    assert list(repaired.transcript) == [*items[:3], output("another"), call("c2"), items[6]]


def test_reasoning_made_with_other_instructions_is_stale() -> None:
    items = [USER, reasoning(), call(id="fc_1"), output()]
    empty = Snapshot("a", "r", [], version=0)
    recorded = model_request(empty, RESPONSES, model="m", system="Be kind.", tools=[{"type": "web_search"}])
    events = numbered([new_event(recorded), *parse(items, RESPONSES)])
    transcript = build(Snapshot("a", "r", events, version=len(events)), RESPONSES)
    same_request: dict[str, Any] = {"instructions": "Be kind.", "tools": [{"type": "web_search"}]}
    assert rules_of(transcript, RESPONSES) == []
    assert rules_of(transcript, RESPONSES, same_request) == []
    for other_request in ({**same_request, "instructions": "Be rude."}, {"instructions": "Be kind."}):
        assert rules_of(transcript, RESPONSES, other_request) == [("thinking_prefix", 3)]
        assert list(assert_repaired(transcript, RESPONSES, judge_input, other_request).transcript) == [
            USER,
            call(),
            output(),
        ]


def test_validate_reports_a_result_with_an_error_and_a_value() -> None:
    transcript = build(
        run_of(UserMessage("U"), ToolCall("c1", "f"), ToolResult("c1", "f", result_json="1", error_message="no")),
        RESPONSES,
    )
    assert rules_of(transcript, RESPONSES) == [("error_and_value", 3)]
    assert list(assert_repaired(transcript, RESPONSES, judge_input).transcript) == list(transcript)


def test_repair_answers_an_open_call_after_the_whole_turn() -> None:
    items = [USER, reasoning(), call("a", id="fc_1"), call("b", id="fc_2"), output("1", "a")]
    repaired = assert_repaired(items, RESPONSES, judge_input)
    assert changes_of(repaired) == ["answered_call"]
    assert list(repaired.transcript)[:5] == items
    assert repaired.transcript[5]["call_id"] == "b"
    assert "interrupted" in repaired.transcript[5]["output"]


def test_repair_answers_each_call_type_with_its_output_type() -> None:
    call_items = [
        item
        for items in DOCUMENTED.values()
        for item in items
        if str(item.get("type")).endswith("_call") and item.get("call_id")
    ]
    assert len({item["type"] for item in call_items}) == 7
    for item in call_items:
        repaired = assert_repaired([USER, item], RESPONSES, judge_input)
        assert [repaired_item["type"] for repaired_item in repaired.transcript[1:]] == [
            item["type"],
            {"tool_search_call": "tool_search_output"}.get(item["type"], f"{item['type']}_output"),
        ]


def test_repair_merges_equal_calls_and_renames_different_ones() -> None:
    same = assert_repaired([call(id="fc_1"), call(id="fc_1"), output(), output()], RESPONSES, judge_input)
    assert list(same.transcript) == [call(id="fc_1"), output()]
    other = assert_repaired([call(), call(name="g"), output("1"), output("2")], RESPONSES, judge_input)
    assert [item["call_id"] for item in other.transcript] == ["c1", "c1-2", "c1-2", "c1"]


def test_build_converts_a_handmade_run() -> None:
    transcript = build(
        run_of(
            SystemMessage("S"),
            UserMessage("U"),
            Thinking(text="hm", signature="sig"),
            AssistantMessage("A"),
            ToolCall("c1", "orders.find", payload_json='{"id": 7}'),
            ToolCall("c2", "inner", parent_tool_call_id="c1"),
            ToolResult("c2", "inner", parent_tool_call_id="c1", result_json="1"),
            ToolResult("c1", "orders.find", result_json="[1]", server_data='"secret"'),
            ToolCall("c3", "f"),
            ToolResult("c3", "f", error_message="boom"),
        ),
        RESPONSES,
    )
    assert list(transcript) == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "A"},
        call(name="orders--find"),
        output("[1]"),
        call("c3", "f", "{}"),
        output("boom", "c3"),
    ]
    assert [(loss.reason, loss.seq) for loss in transcript.losses] == [("reasoning", 3)]
    assert rules_of(transcript, RESPONSES) == []
    judge_input(transcript)


def test_build_gives_results_the_output_type_of_their_call() -> None:
    items = [
        DOCUMENTED["custom tools"][1],
        *[DOCUMENTED["shells"][index] for index in (0, 2, 4)],
        DOCUMENTED["a computer"][0],
    ]
    events = [event.data for event in parse(items, RESPONSES)]
    results = [ToolResult(call_id, "", result_json="ok") for call_id in "klsp"]
    screenshot = ToolResult("u", "", result_json='{"type":"computer_screenshot"}')
    transcript = build(run_of(*events, *results, screenshot), RESPONSES)
    assert [item["type"] for item in transcript[5:]] == [f"{item['type']}_output" for item in items]
    judge_input(transcript)
    assert rules_of(transcript, RESPONSES) == []


def test_a_failed_command_has_its_error_beside_its_output() -> None:
    hint = RetryHint(message="quote the path")
    call_event = ToolCall("s", "shell", structured={RESPONSES: {"kind": "shell_call"}})
    for value, outputs in (
        ("a.txt", [("a.txt", "no\nquote the path", 1)]),
        ("", [("", "no\nquote the path", 1)]),
        (json.dumps([SHELL_OUTPUT]), [("a.txt", "", 0), ("", "no\nquote the path", 1)]),
        ("x" * 70_000, [(None, "no\nquote the path", 1)]),
    ):
        result = ToolResult("s", "shell", result_json=value, retry_hint=hint, error_message="no")
        item = build(run_of(call_event, result), RESPONSES)[1]
        written = [(part["stdout"], part["stderr"], part["outcome"]["exit_code"]) for part in item["output"]]
        assert [(None if '"omitted"' in text else text, *rest) for text, *rest in written] == outputs


def test_the_image_of_a_computer_is_sent_whole_and_has_no_place_for_an_error() -> None:
    image = {"type": "computer_screenshot", "image_url": "data:" + "x" * 70_000}
    call_event = parse([DOCUMENTED["a computer"][0]], RESPONSES)[0].data
    result = ToolResult("u", "", result_json=json.dumps(image), error_message="no")
    built = build(run_of(call_event, result), RESPONSES)
    assert built[1]["output"] == image
    assert [loss.reason for loss in built.losses] == ["failure"]


def test_parse_makes_plain_typed_events() -> None:
    items = [USER, {"role": "assistant", "content": "A"}, call(name="a--b"), output()]
    assert [event.data for event in parse(items, RESPONSES)] == [
        UserMessage("Hi"),
        AssistantMessage("A"),
        ToolCall("c1", "a.b", payload_json='{"id": 7}'),
        ToolResult("c1", "a.b", result_json="ok"),
    ]
    (thought,) = parse([reasoning()], RESPONSES)
    assert isinstance(thought.data, Thinking)
    assert (thought.data.text, thought.data.signature) == ("Let me see.", "gAAAA")
    searched = DOCUMENTED["server tools"][1]
    assert parse([searched], RESPONSES)[0].data == UnknownPayload("openai-responses.message", searched)


def test_parse_stores_each_text_once() -> None:
    for items in DOCUMENTED.values():
        for event in parse(items, RESPONSES):
            stored = encode_canonical(event.to_map()).decode()
            for word in ("Let me see.", "deep", "aloud", "Hello", "What is", "SELECT 1", "a.txt"):
                assert stored.count(word) <= 1, stored


def test_other_providers_drop_and_report_the_reasoning() -> None:
    events = parse([USER, reasoning(), call(id="fc_1"), output()], RESPONSES)
    run = Snapshot("a", "r", numbered(events), version=4)
    for provider in ("anthropic", "openai-chat", "bedrock"):
        transcript = build(run, provider)
        assert b"gAAAA" not in encode_canonical(list(transcript))
        assert b"Let me see" not in encode_canonical(list(transcript))
        assert ("reasoning", 2) in [(loss.reason, loss.seq) for loss in transcript.losses]
        assert validate(transcript, provider) == []


json_maps = st.dictionaries(texts, json_values, max_size=3)
residuals = maps(
    {
        "fields": json_maps,
        "without": st.lists(st.sampled_from(["role", "type", "output", "content"])),
        "parts": st.lists(st.integers(-1, 5) | st.just({"part": 1})),
        "of": st.just("content"),
        "kind": st.sampled_from(["shell_call", "custom_tool_call", "computer_call"]),
    }
)
structured = json_values | st.fixed_dictionaries({RESPONSES: residuals})
anything: st.SearchStrategy[EventData] = st.one_of(
    *(st.builds(kind, texts, structured=structured) for kind in (UserMessage, AssistantMessage, SystemMessage)),
    st.builds(Thinking, texts, texts, structured=structured),
    st.builds(ToolCall, ids, texts, ids, texts, structured=structured),
    st.builds(ToolResult, ids, texts, ids, texts, server_data=st.just('"secret"'), structured=structured),
    st.builds(UnknownPayload, st.just("openai-responses.message"), json_maps),
    st.builds(UnknownPayload, st.just("bedrock.block"), json_maps),
    st.builds(Redacted, st.sampled_from(["user_message", "tool_call", "thinking", "assistant_message"])),
)


@given(st.lists(anything, max_size=8), st.sampled_from([None, 1, 40]))
def test_any_run_can_be_built_and_repaired(payloads: list[EventData], limit: int | None) -> None:
    transcript = build(run_of(*payloads), RESPONSES, max_result_bytes=limit)
    assert b"secret" not in encode_canonical(list(transcript))
    assert_repaired(transcript, RESPONSES)


def test_build_omits_large_results_of_each_output_type() -> None:
    items = [*DOCUMENTED["a computer"][:2], *DOCUMENTED["shells"], call(), output("x" * 100)]
    events = parse(items, RESPONSES)
    transcript = build(Snapshot("a", "r", numbered(events), version=len(events)), RESPONSES, max_result_bytes=1)
    judge_input(transcript)
    assert validate(transcript, RESPONSES) == []
    assert '"size_limit"' in transcript[-1]["output"]
    assert '"size_limit"' in transcript[5]["output"][0]["stdout"]
    assert [loss.reason for loss in transcript.losses] == ["size_limit"] * 5


def test_request_has_the_recorded_arguments() -> None:
    empty = Snapshot("a", "r", [], version=0)
    tools: list[Any] = [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}]
    recorded = model_request(empty, RESPONSES, model="m", system="Be kind.", tools=tools, parameters={"store": False})
    arguments = request(run_of(recorded, UserMessage("U")), RESPONSES)
    assert arguments == {
        "model": "m",
        "instructions": "Be kind.",
        "tools": tools,
        "store": False,
        "input": [{"role": "user", "content": "U"}],
    }
    converted = request(run_of(recorded, UserMessage("U")), "bedrock")
    assert converted["system"] == [{"text": "Be kind."}]
    assert converted["toolConfig"] == {
        "tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]
    }
    assert "store" not in converted


def test_window_is_valid() -> None:
    turns = [
        item
        for turn in range(1, 5)
        for item in (
            USER,
            reasoning(f"rs_{turn}", f"g{turn}"),
            call(f"c{turn}", id=f"fc_{turn}"),
            output("1", f"c{turn}"),
            assistant_message(text(), item_id=f"msg_{turn}"),
        )
    ]
    items = [{"role": "system", "content": "S"}, *turns]
    transcript = built_from(items, RESPONSES)
    for size in range(1, len(items) + 1):
        cut = window(transcript, RESPONSES, max_events=size)
        assert validate(cut.transcript, RESPONSES) == []
        judge_input(cut.transcript)
        assert cut.transcript[0] == items[0]
        assert not cut.fits or len(cut.transcript) <= size
    assert list(window(transcript, RESPONSES, since_turn=-1).transcript) == [
        items[0],
        USER,
        call("c4"),
        output("1", "c4"),
        {"role": "assistant", "content": "Hello"},
    ]


@pytest.mark.skipif(not TAU.exists(), reason="the tau-bench runs are not part of the project")
def test_tau_bench_runs_are_valid_responses() -> None:
    with TAU.open("rb") as file:
        runs = [list(line.messages) for line in read_chat_lines(file)]
    for messages in runs:
        chat = built_from(messages, "openai-chat")
        transcript = build(chat.snapshot or run_of(), RESPONSES)
        assert [finding.rule for finding in validate(transcript, RESPONSES) if finding.rule != "unanswered_call"] == []
        judge_input(transcript)
        assert_exact(list(transcript), RESPONSES)


def _run_of_two_answers(recorder: SyncRunRecorder, parameters: dict[str, Any]) -> None:
    recorder.user("Hi")
    recorder.request(RESPONSES, "gpt-5.6", parameters={})
    recorder.record_response(_answer("resp_1", "Hello."))
    recorder.user("And now?")
    recorder.request(RESPONSES, "gpt-5.6", parameters=parameters)
    recorder.record_response(_answer("resp_2", "Now too."))
    recorder.user("Still?")


def _answer(response_id: str, message: str) -> dict[str, Any]:
    output = [assistant_message(text(message), item_id=f"msg_{response_id}")]
    return {"object": "response", "id": response_id, "model": "gpt-5.6", "status": "completed", "output": output}


@pytest.mark.parametrize(
    ("parameters", "sent"),
    [
        ({}, ["Hi", "Hello.", "And now?", "Now too.", "Still?"]),
        ({"previous_response_id": "resp_1"}, ["And now?", "Now too.", "Still?"]),
        ({"previous_response_id": "resp_of_another_run"}, ["Hi", "Hello.", "And now?", "Now too.", "Still?"]),
        ({"conversation": "conv_1"}, ["Still?"]),
        ({"conversation": {"id": "conv_1"}}, ["Still?"]),
    ],
    ids=str,
)
def test_request_sends_each_message_once(parameters: dict[str, Any], sent: list[str]) -> None:
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "a", "r") as recorder:
        _run_of_two_answers(recorder, parameters)
        snapshot = store.load_run("a", "r")
        arguments, store_end = request(snapshot, RESPONSES), snapshot.last_seq
    contents = [item["content"] for item in arguments["input"]]
    assert [content if isinstance(content, str) else content[0]["text"] for content in contents] == sent
    assert {key: arguments.get(key) for key in parameters} == parameters
    assert validate(arguments["input"], RESPONSES) == []
    assert arguments["input"].seq_at((len(sent) - 1,)) == store_end
