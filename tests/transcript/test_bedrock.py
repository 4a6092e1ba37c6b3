"""Tests Converse: parsing, building, the rules of ``validate`` and the changes of ``repair``."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import (
    AssistantMessage,
    EventData,
    Redacted,
    Snapshot,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
    new_event,
)
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.transcript import build, parse, read_chat_lines
from agent_memory_log.transcript.providers import repair, request, validate, window
from agent_memory_log.transcript.requests import model_request
from tests.transcript.converse_judge import judge_messages, judge_request
from tests.transcript.test_openai_chat import TAU
from tests.transcript.transcript_runs import ODD_VALUES, assert_repaired, built_from, changes_of, nearly, rules_of
from tests.transcript.transcripts import Message, assert_exact, json_values, maps, numbered, run_of

BEDROCK = "bedrock"


def text(value: str = "Hi") -> Message:
    return {"text": value}


def use(call_id: str = "c1", name: str = "orders_get", arguments: object = None, **fields: object) -> Message:
    return {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments or {"id": 7}, **fields}}


def result(call_id: str = "c1", *content: object, **fields: object) -> Message:
    return {"toolResult": {"toolUseId": call_id, "content": list(content or [text("ok")]), **fields}}


def thought(value: str = "Let me see.", signature: str = "sigA") -> Message:
    return {"reasoningContent": {"reasoningText": {"text": value, "signature": signature}}}


def user(*blocks: object) -> Message:
    return {"role": "user", "content": list(blocks or [text()])}


def assistant(*blocks: object) -> Message:
    return {"role": "assistant", "content": list(blocks or [text("Hello")])}


REDACTED = {"reasoningContent": {"redactedContent": "c2VjcmV0"}}
IMAGE = {"image": {"format": "png", "source": {"bytes": "YQ=="}}}
DOCUMENT = {"document": {"format": "txt", "name": "a", "source": {"text": "x"}, "citations": {"enabled": True}}}
VIDEO = {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://bucket/a.mp4"}}}}
AUDIO = {"audio": {"format": "mp3", "source": {"bytes": "YQ=="}}}
FOUND = {"searchResult": {"source": "s", "title": "t", "content": [text("x")], "citations": {"enabled": True}}}
CACHE = {"cachePoint": {"type": "default"}}
GUARD = {"guardContent": {"text": {"text": "x", "qualifiers": ["query"]}}}
CITED = {
    "citationsContent": {
        "content": [text("Paris")],
        "citations": [{"title": "t", "location": {"documentPage": {"documentIndex": 0, "start": 1, "end": 2}}}],
    }
}
SERVER_USE = use("s1", "nova_grounding", {"q": 1}, type="server_tool_use")
SERVER_RESULT = result("s1", text("found"), type="nova_grounding_result")

DOCUMENTED: dict[str, list[Message]] = {
    "text": [user(), assistant(), user(text("a"), text("b")), assistant(text("a"), text("b"))],
    "media": [user(text("What is"), IMAGE, DOCUMENT, text("this?"), VIDEO, AUDIO, FOUND, GUARD, CACHE)],
    "media alone": [user(IMAGE), assistant(), user(DOCUMENT, CACHE)],
    "calls": [
        user(),
        assistant(text("Let me look."), use("a"), use("b", "search", {})),
        user(result("b", {"json": {"x": 1.5}}, status="success"), result("a", status="error"), text("And?"), CACHE),
        assistant(use("c")),
        user(result("c", text("one"), IMAGE, {"json": {}}, DOCUMENT, VIDEO, FOUND)),
    ],
    "no content": [
        user(),
        assistant(use()),
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": []}}]},
    ],
    "reasoning": [
        user(),
        assistant(thought(), text("A"), REDACTED, thought("", "sigB"), use(), use("c2")),
        user(result("c2"), result()),
        assistant({"reasoningContent": {"reasoningText": {"text": "unsigned"}}}, text("B")),
    ],
    "citations": [user(DOCUMENT, text("Where?")), assistant(text("In "), CITED, text(".")), user(), assistant(CITED)],
    "server tools": [user(), assistant(text("Look: "), SERVER_USE, SERVER_RESULT, text("found"))],
    "instructions among the messages": [user(), {"role": "system", "content": [text("Be brief."), CACHE]}, assistant()],
}


@pytest.mark.parametrize("messages", DOCUMENTED.values(), ids=DOCUMENTED.keys())
def test_documented_messages_survive_and_are_valid(messages: list[Message]) -> None:
    assert_exact(messages, BEDROCK)
    judge_messages(messages)
    assert validate(messages, BEDROCK) == []
    assert rules_of(built_from(messages, BEDROCK), BEDROCK) == []
    assert repair(messages, BEDROCK).changes == ()


ODD: dict[str, list[Message]] = {
    "no messages": [],
    "an empty message": [{}],
    "roles": [{"role": value, "content": [text()]} for value in [*ODD_VALUES, "critic"]],
    "contents": [{"role": role, "content": value} for role in ("user", "assistant", "system") for value in ODD_VALUES],
    "no content": [{"role": "user"}, {"role": "assistant"}],
    "blocks": [{"role": role, "content": [value]} for role in ("user", "assistant") for value in ODD_VALUES],
    "texts": [
        {"role": role, "content": [{"text": value}, CACHE]} for role in ("user", "assistant") for value in ODD_VALUES
    ],
    "blocks of more than one key": [user({**text(), **CACHE}), assistant({**use(), "text": "x"}, {})],
    "extra fields": [
        {**user(), "id": "m1"},
        {**assistant(), "id": "m2"},
        {**user(result("x")), "content": [result(), text()]},
    ],
    "repeated roles": [
        user(),
        user(),
        assistant(),
        assistant(use()),
        assistant(thought()),
        user(result()),
        user(result()),
    ],
    "blocks of the other role": [user(use(), thought(), text()), assistant(result(), text())],
    "tool uses": [assistant({"toolUse": value}) for value in ODD_VALUES],
    "ids, names and inputs": [
        assistant({"toolUse": {"toolUseId": v, "name": v, "input": v}}, use("a", "a--b"), use("a")) for v in ODD_VALUES
    ],
    "results": [user({"toolResult": value}) for value in ODD_VALUES],
    "contents of results": [user({"toolResult": {"toolUseId": "c", "content": v, "status": v}}) for v in ODD_VALUES],
    "parts of results": [user(result("c", {"json": v}, {"text": v}), result("c", {"json": v})) for v in ODD_VALUES],
    "errors": [user(result("c", text(value), status="error")) for value in ("", " ", "boom", "{}")],
    "blank results": [user(result("c", text(value))) for value in ("", " ", "\u00a0", "null")],
    "reasoning": [assistant({"reasoningContent": v}, {"reasoningContent": {"reasoningText": v}}) for v in ODD_VALUES],
    "reasoning texts": [
        assistant({"reasoningContent": {"reasoningText": {"text": v, "signature": v}}}) for v in ODD_VALUES
    ],
    "encrypted reasoning": [
        assistant({"reasoningContent": {"redactedContent": v}}) for v in [*ODD_VALUES, "YQ", "Y_=="]
    ],
    "repeated ids": [assistant(use()), user(result()), assistant(use()), user(result()), assistant(use("c1-2"))],
    "keys that residuals use": [
        {**user(), "fields": {}, "message": {}},
        assistant(use(parts=[1], message={}, json=True)),
    ],
    "unknown blocks": [
        user({"hologram": {"x": 1}}),
        assistant({"hologram": {}}, text(), {"SDK_UNKNOWN_MEMBER": {"name": "x"}}),
    ],
}


@pytest.mark.parametrize("messages", ODD.values(), ids=ODD.keys())
def test_odd_messages_survive_and_can_be_repaired(messages: list[Message]) -> None:
    assert_exact(messages, BEDROCK)
    for message in messages:
        assert_exact([message], BEDROCK)
        assert_exact([assistant(), message, assistant(use())], BEDROCK)
        assert_repaired([user(), message, assistant(use())], BEDROCK)


texts = st.sampled_from(["", " ", "Hi", '{"a": 1}', "null", "[]", "a\nb"])
ids = st.sampled_from(["c1", "c2", "", "a b", "x" * 70])
parts = st.one_of(
    st.builds(text, texts),
    st.fixed_dictionaries({"json": st.dictionaries(texts, st.integers(), max_size=2)}),
    st.just(IMAGE),
)
blocks = st.one_of(
    st.builds(text, texts),
    st.builds(use, ids, st.sampled_from(["f", "a--b", "a.b", ""])),
    st.builds(result, ids, parts, parts),
    st.builds(result, ids, parts, status=st.sampled_from(["success", "error"])),
    st.builds(thought, texts, st.sampled_from(["sigA", "sigB", ""])),
    st.sampled_from([IMAGE, CACHE, CITED, REDACTED, SERVER_USE, SERVER_RESULT]),
)
odd_calls = maps({"toolUseId": ids, "name": texts, "input": json_values})
odd_results = maps({"toolUseId": ids, "content": st.lists(parts | json_values, max_size=2), "status": texts})
odd_thoughts = st.fixed_dictionaries({"reasoningText": maps({"text": texts, "signature": texts})})
odd_blocks = st.one_of(
    blocks,
    json_values,
    st.fixed_dictionaries({"toolUse": odd_calls}),
    st.fixed_dictionaries({"toolResult": odd_results}),
    st.fixed_dictionaries({"reasoningContent": odd_thoughts}),
)
roles = st.sampled_from(["user", "assistant"])
good_messages = st.fixed_dictionaries({"role": roles, "content": st.lists(blocks, max_size=4)})
odd_messages = good_messages | nearly({"role": roles | st.just("system"), "content": st.lists(odd_blocks, max_size=4)})


@given(st.lists(odd_messages, max_size=6))
def test_any_messages_survive_parse_and_build(messages: list[Message]) -> None:
    assert_exact(messages, BEDROCK)


@given(st.lists(odd_messages, max_size=6), st.booleans())
def test_any_messages_can_be_repaired(messages: list[Message], recorded: bool) -> None:
    assert_repaired(built_from(messages, BEDROCK) if recorded else messages, BEDROCK)


@given(st.lists(good_messages, max_size=8))
def test_botocore_accepts_repaired_messages(messages: list[Message]) -> None:
    assert_repaired(messages, BEDROCK, judge_messages)


def test_judge_refuses_invalid_messages() -> None:
    for message in (user({"text": 3}), user({"hologram": {}}), assistant(use(name=3)), {"role": "user"}):  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(AssertionError):
            judge_messages([message])


BROKEN: dict[str, tuple[list[Message], str, int]] = {
    "an unknown role": ([user(), {"role": "critic", "content": [text()]}], "message_shape", 2),
    "a message with an unknown field": ([{**user(), "id": "m1"}], "message_shape", 1),
    "an empty message": ([user(), {"role": "assistant", "content": []}], "empty_message", 2),
    "blank text": ([user(text("A")), assistant(text(" "))], "empty_text", 2),
    "an image without its format": ([user(text()), assistant(), user({"image": {}})], "block_shape", 3),
    "a block with two keys": ([user({**text(), **CACHE})], "block_shape", 1),
    "a call in a user message": ([user(use(), text())], "block_shape", 1),
    "a result in an assistant message": ([user(), assistant(result(), text())], "block_shape", 2),
    "a call that is no map": (
        [user(), assistant({"toolUse": {"toolUseId": "c", "name": "f", "input": "x"}})],
        "block_shape",
        2,
    ),
    "two user messages": ([user(), {**user(text("B"))}], "role_order", 2),
    "two assistant messages": ([user(), assistant(), assistant(text("B"))], "role_order", 3),
    "a call at the end": ([user(), assistant(text(), use())], "unanswered_call", 3),
    "one of two calls without a result": (
        [user(), assistant(use(), use("c2")), user(result("c2"))],
        "unanswered_call",
        2,
    ),
    "a result too late": ([user(), assistant(use()), user(), assistant(), user(result())], "orphan_result", 5),
    "a result without a call": ([user(text(), result("x"))], "orphan_result", 2),
    "a result twice": ([user(), assistant(use()), user(result(), result("c1", text("2")))], "duplicate_result", 4),
    "an id used again": (
        [user(), assistant(use()), user(result()), assistant(use()), user(result())],
        "duplicate_call",
        4,
    ),
    "an id used twice in one message": (
        [user(), assistant(use(), use(name="g")), user(result(), result())],
        "duplicate_call",
        3,
    ),
    "an empty id": ([user(), assistant(use("")), user(result(""))], "call_id", 2),
    "an id with a space": ([user(), assistant(use("a b")), user(result("a b"))], "call_id", 2),
    "a long id": ([user(), assistant(use("x" * 65)), user(result("x" * 65))], "call_id", 2),
    "a name with a dot": ([user(), assistant(use(name="a.b")), user(result())], "tool_name", 2),
    "a long name": ([user(), assistant(use(name="x" * 65)), user(result())], "tool_name", 2),
    "reasoning twice": (
        [user(), assistant(thought(), text()), user(), assistant(thought(), text())],
        "thinking_order",
        5,
    ),
}


ACCEPTED = {
    "an assistant message first": [assistant(), user()],
    "blank text beside other text": [user(text("a"), text("\n")), assistant()],
    "ids of other servers": [user(), assistant(use("functions.f:0")), user(result("functions.f:0"))],
    "a call with its type": [
        user(),
        assistant({"toolUse": {"toolUseId": "c1", "name": "f", "input": {}, "type": "tool_use"}}),
        user(result()),
    ],
}


@pytest.mark.parametrize("messages", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted_transcript_is_exact_valid_and_not_repaired(messages: list[Message]) -> None:
    judge_messages(messages)
    assert_exact(messages, BEDROCK)
    for transcript in (messages, built_from(messages, BEDROCK)):
        assert not validate(transcript, BEDROCK)
        assert not repair(transcript, BEDROCK).changes


def test_call_with_its_type_waits_for_a_result() -> None:
    messages = ACCEPTED["a call with its type"]
    assert [finding.rule for finding in validate(messages[:2], BEDROCK)] == ["unanswered_call"]
    assert [event.type for event in parse(messages, BEDROCK)] == ["user_message", "tool_call", "tool_result"]


@pytest.mark.parametrize(("messages", "rule", "seq"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_rule_is_reported_with_its_seq_and_repaired(messages: list[Message], rule: str, seq: int) -> None:
    transcript = built_from(messages, BEDROCK)
    assert (rule, seq) in rules_of(transcript, BEDROCK)
    assert rule in [broken_rule for broken_rule, _ in rules_of(messages, BEDROCK)]
    assert_repaired(messages, BEDROCK, judge_messages)
    repaired = assert_repaired(transcript, BEDROCK, judge_messages)
    assert seq in [change.seq for change in repaired.changes]


def test_ids_and_names_of_the_longest_length_are_valid() -> None:
    longest = "x" * 64
    assert validate([user(), assistant(use(longest, longest)), user(result(longest))], BEDROCK) == []


TWO_TURNS = [
    user(),
    assistant(thought(), use()),
    user(result()),
    assistant(thought("And?", "sigB"), text("A"), use("c2")),
    user(result("c2")),
]


def test_repair_drops_edited_reasoning() -> None:
    edited = built_from(TWO_TURNS, BEDROCK)
    edited[1]["content"][0]["reasoningContent"]["reasoningText"]["text"] = "I did not think that."
    assert rules_of(edited, BEDROCK) == [("thinking_edited", 2)]
    assert list(assert_repaired(edited, BEDROCK).transcript)[:2] == [user(), assistant(use())]
    forged = built_from(TWO_TURNS, BEDROCK)
    forged[1]["content"][0]["reasoningContent"]["reasoningText"]["signature"] = "another"
    assert rules_of(forged, BEDROCK) == [("thinking_edited", 2)]
    encrypted = built_from([user(), assistant(REDACTED, text())], BEDROCK)
    assert rules_of(encrypted, BEDROCK) == []
    encrypted[1]["content"][0] = {"reasoningContent": {"redactedContent": "YQ=="}}
    assert rules_of(encrypted, BEDROCK) == [("thinking_edited", 2)]


def test_validate_reports_reordered_reasoning() -> None:
    transcript = built_from([user(), assistant(thought(), thought("", "sigB"), text())], BEDROCK)
    transcript[1]["content"][:2] = reversed(transcript[1]["content"][:2])
    assert rules_of(transcript, BEDROCK) == [("thinking_order", 3)]
    assert_repaired(transcript, BEDROCK)


def test_reasoning_after_an_erased_event_is_stale() -> None:
    events = numbered(parse(TWO_TURNS, BEDROCK))
    events[3] = numbered([*events[:3], new_event(Redacted("tool_result"))])[3]
    transcript = build(Snapshot("a", "r", events, version=len(events)), BEDROCK)
    assert [rule_and_seq for rule_and_seq in rules_of(transcript, BEDROCK) if rule_and_seq[0].startswith("think")] == [
        ("thinking_prefix", 5)
    ]
    repaired = assert_repaired(transcript, BEDROCK, judge_messages)
    assert b"sigA" in encode_canonical(list(repaired.transcript))
    assert b"sigB" not in encode_canonical(list(repaired.transcript))


def test_build_does_not_join_messages_around_an_erased_message() -> None:
    transcript = build(
        run_of(UserMessage("U"), AssistantMessage("A"), Redacted("user_message"), AssistantMessage("B")), BEDROCK
    )
    assert list(transcript) == [user(text("U")), assistant(text("A")), assistant(text("B"))]
    assert rules_of(transcript, BEDROCK) == [("role_order", 4)]
    inside = build(
        run_of(UserMessage("U"), AssistantMessage("A"), Redacted("thinking"), AssistantMessage("B")), BEDROCK
    )
    assert list(inside) == [user(text("U")), assistant(text("A"), text("B"))]


def test_repair_drops_reasoning_after_an_edit() -> None:
    transcript = built_from(TWO_TURNS, BEDROCK)
    transcript[2]["content"][0]["toolResult"]["content"][0]["text"] = "another"
    repaired = repair(transcript, BEDROCK)
    assert [(change.change, change.seq) for change in repaired.changes] == [("dropped_thinking", 5)]
    assert repaired.transcript[1] == TWO_TURNS[1]
    assert repaired.transcript[3] == assistant(text("A"), use("c2"))


def test_removed_reasoning_does_not_make_other_reasoning_stale() -> None:
    transcript = built_from(TWO_TURNS, BEDROCK)
    del transcript[1]["content"][0]
    assert repair(transcript, BEDROCK).changes == ()


def test_reasoning_signed_with_another_system_prompt_is_stale() -> None:
    empty = Snapshot("a", "r", [], version=0)
    recorded = model_request(empty, BEDROCK, model="m", system=[text("Be kind.")])
    events = numbered([new_event(recorded), *parse(TWO_TURNS, BEDROCK)])
    transcript = build(Snapshot("a", "r", events, version=len(events)), BEDROCK)
    assert rules_of(transcript, BEDROCK) == []
    assert rules_of(transcript, BEDROCK, {"system": [text("Be kind.")]}) == []
    other_request = {"system": [text("Be rude.")]}
    assert rules_of(transcript, BEDROCK, other_request) == [("thinking_prefix", 3), ("thinking_prefix", 6)]
    repaired = assert_repaired(transcript, BEDROCK, judge_messages, other_request)
    assert b"signature" not in encode_canonical(list(repaired.transcript))


def test_validate_reports_a_result_with_an_error_and_a_value() -> None:
    transcript = build(
        run_of(UserMessage("U"), ToolCall("c1", "f"), ToolResult("c1", "f", result_json="1", error_message="no")),
        BEDROCK,
    )
    assert rules_of(transcript, BEDROCK) == [("error_and_value", 3)]
    assert list(assert_repaired(transcript, BEDROCK, judge_messages).transcript) == list(transcript)


def test_repair_answers_open_calls_in_order_before_user_text() -> None:
    messages = [user(), assistant(use("a"), use("b"), use("c")), user(result("b"), text("Well?"))]
    repaired = assert_repaired(messages, BEDROCK, judge_messages)
    assert changes_of(repaired) == ["answered_call", "answered_call"]
    answers = repaired.transcript[2]["content"]
    assert [block["toolResult"]["toolUseId"] for block in answers[:3]] == ["a", "b", "c"]
    assert [block["toolResult"].get("status") for block in answers[:3]] == ["error", None, "error"]
    assert answers[3] == text("Well?")
    at_the_end = assert_repaired(messages[:2], BEDROCK, judge_messages)
    assert [block["toolResult"]["toolUseId"] for block in at_the_end.transcript[2]["content"]] == ["a", "b", "c"]


def test_repair_merges_equal_calls_and_renames_different_ones() -> None:
    same = assert_repaired([user(), assistant(use(), use()), user(result(), result())], BEDROCK, judge_messages)
    assert list(same.transcript) == [user(), assistant(use()), user(result())]
    other = assert_repaired(
        [user(), assistant(use(), use(name="g")), user(result("c1", text("1")), result("c1", text("2")))], BEDROCK
    )
    assert [block["toolUse"]["toolUseId"] for block in other.transcript[1]["content"]] == ["c1", "c1-2"]
    assert [block["toolResult"]["toolUseId"] for block in other.transcript[2]["content"]] == ["c1-2", "c1"]


def test_repair_joins_messages_of_the_same_role() -> None:
    repaired = assert_repaired([user(), assistant(), assistant(use()), user(result()), user(text("B"))], BEDROCK)
    assert list(repaired.transcript) == [user(), assistant(text("Hello"), use()), user(result(), text("B"))]
    assert changes_of(repaired) == ["joined_message", "joined_message"]


def test_build_converts_a_handmade_run() -> None:
    transcript = build(
        run_of(
            SystemMessage("S"),
            UserMessage("U"),
            Thinking(text="", signature="sig"),
            Thinking(text="unsigned"),
            Thinking(redacted=b"secret"),
            AssistantMessage("A"),
            ToolCall("toolu:1", "orders.find", payload_json='{"id": 7}'),
            ToolCall("c2", "inner", parent_tool_call_id="toolu:1"),
            ToolCall("c3", "f"),
            ToolCall("c4", "sql", payload_json="SELECT 1"),
            ToolResult("c2", "inner", parent_tool_call_id="toolu:1", result_json="1"),
            ToolResult("toolu:1", "orders.find", result_json="[1]", server_data='"hidden"'),
            ToolResult("c3", "f", error_message="boom"),
            ToolResult("c4", "sql", result_json="2"),
            UserMessage("V"),
        ),
        BEDROCK,
    )
    wire = transcript[1]["content"][3]["toolUse"]["toolUseId"]
    assert list(transcript) == [
        user(text("U")),
        assistant(
            thought("", "sig"),
            REDACTED,
            text("A"),
            use(wire, "orders--find"),
            {"toolUse": {"toolUseId": "c3", "name": "f", "input": {}}},
            use("c4", "sql", {"arguments": "SELECT 1"}),
        ),
        user(result(wire, text("[1]")), result("c3", text("boom"), status="error"), result("c4", text("2")), text("V")),
    ]
    assert [(loss.reason, loss.seq) for loss in transcript.losses] == [("reasoning", 4), ("arguments", 10)]
    assert rules_of(transcript, BEDROCK) == []
    judge_messages(transcript)
    assert [data.message for data in transcript.leading] == ["S"]


def test_parse_makes_plain_typed_events() -> None:
    messages = [user(), assistant(thought(), REDACTED, text("A"), use(name="a--b")), user(result(), text("B"))]
    assert [event.data for event in parse(messages, BEDROCK)] == [
        UserMessage("Hi"),
        Thinking(text="Let me see.", signature="sigA", final=True),
        Thinking(redacted=b"secret", content_index=1, final=True),
        AssistantMessage("A"),
        ToolCall("c1", "a.b", payload_json='{"id":7}'),
        ToolResult("c1", "a.b", result_json="ok"),
        UserMessage("B"),
    ]
    failed, valued = parse(
        [user(result("c1", text("boom"), status="error"), result("c2", {"json": {"x": 1}}))], BEDROCK
    )
    assert failed.data == ToolResult("c1", "", error_message="boom")
    assert isinstance(valued.data, ToolResult)
    assert valued.data.result() == {"x": 1}
    assert [event.data for event in parse([assistant(SERVER_USE)], BEDROCK)] == [
        UnknownPayload("bedrock.block", {"role": "assistant", "block": SERVER_USE})
    ]


def test_parse_stores_each_text_once() -> None:
    for messages in DOCUMENTED.values():
        for event in parse(messages, BEDROCK):
            stored = encode_canonical(event.to_map()).decode()
            for word in ("Let me see.", "unsigned text", "What is", "this?", "Let me look.", "Be brief."):
                assert stored.count(word) <= 1, stored


def test_signed_reasoning_is_kept_for_anthropic_only() -> None:
    signed = parse([user(), assistant(thought(), REDACTED, text("A"))], BEDROCK)
    unsigned = parse(
        [user(), assistant({"reasoningContent": {"reasoningText": {"text": "Let me see."}}}, text("A"))], BEDROCK
    )
    for events, providers_with_reasoning in ((signed, {"anthropic"}), (unsigned, set[str]())):
        run = Snapshot("a", "r", numbered(events), version=len(events))
        for provider in ("anthropic", "openai-chat", "openai-responses"):
            transcript = build(run, provider)
            assert (b"Let me see" in encode_canonical(list(transcript))) == (provider in providers_with_reasoning)
            assert ("reasoning" in [loss.reason for loss in transcript.losses]) == (
                provider not in providers_with_reasoning
            )
            assert validate(transcript, provider) == []


json_maps = st.dictionaries(texts, json_values, max_size=3)
residuals = maps(
    {
        "fields": json_maps,
        "without": st.lists(st.sampled_from(["role", "text", "content", "toolUseId"])),
        "parts": st.lists(st.integers(-1, 5) | st.just({"part": 1})),
        "message": maps({"fields": json_maps, "without": st.lists(st.sampled_from(["role", "content"]))}),
        "json": st.just(True),
        "inline": st.just(True),
        "unsigned": st.just(True),
    }
)
structured = json_values | st.fixed_dictionaries({BEDROCK: residuals})
anything: st.SearchStrategy[EventData] = st.one_of(
    *(st.builds(kind, texts, structured=structured) for kind in (UserMessage, AssistantMessage, SystemMessage)),
    st.builds(Thinking, texts, texts, st.binary(max_size=2), structured=structured),
    st.builds(ToolCall, ids, texts, ids, texts, structured=structured),
    st.builds(ToolResult, ids, texts, ids, texts, server_data=st.just('"hidden"'), structured=structured),
    st.builds(UnknownPayload, st.sampled_from(["bedrock.message", "bedrock.block"]), json_maps),
    st.builds(
        UnknownPayload,
        st.just("bedrock.block"),
        maps({"role": roles, "block": blocks, "message": residuals}),
    ),
    st.builds(Redacted, st.sampled_from(["user_message", "tool_call", "thinking", "assistant_message"])),
)


@given(st.lists(anything, max_size=8), st.sampled_from([None, 1, 40]))
def test_any_run_can_be_built_and_repaired(payloads: list[EventData], limit: int | None) -> None:
    transcript = build(run_of(*payloads), BEDROCK, max_result_bytes=limit)
    assert b"hidden" not in encode_canonical(list(transcript))
    assert_repaired(transcript, BEDROCK)


def test_build_omits_results_above_max_result_bytes() -> None:
    events = parse([user(), assistant(use()), user(result("c1", text("x" * 100), IMAGE))], BEDROCK)
    run = Snapshot("a", "r", numbered(events), version=len(events))
    transcript = build(run, BEDROCK, max_result_bytes=50)
    judge_messages(transcript)
    (part,) = transcript[2]["content"][0]["toolResult"]["content"]
    assert '"size_limit"' in part["text"]
    assert [(loss.reason, loss.seq) for loss in transcript.losses] == [("size_limit", 3)]


def test_request_has_the_recorded_arguments() -> None:
    empty = Snapshot("a", "r", [], version=0)
    tools: dict[str, Any] = {
        "tools": [{"toolSpec": {"name": "f", "description": "d", "inputSchema": {"json": {"type": "object"}}}}]
    }
    parameters = {"inferenceConfig": {"maxTokens": 5}}
    recorded = model_request(empty, BEDROCK, model="m", system=[text("S")], tools=tools, parameters=parameters)
    arguments = request(run_of(recorded, UserMessage("U")), BEDROCK)
    assert arguments == {
        "modelId": "m",
        "system": [text("S")],
        "toolConfig": tools,
        **parameters,
        "messages": [user(text("U"))],
    }
    judge_request({**arguments, "messages": list(arguments["messages"])})
    without_recorded = request(run_of(SystemMessage("A"), SystemMessage("B"), UserMessage("U")), BEDROCK)
    assert without_recorded == {"system": [text("A\n\nB")], "messages": [user(text("U"))]}
    converted = request(run_of(recorded, UserMessage("U")), "openai-responses")
    assert (converted["instructions"], converted["tools"][0]["name"]) == ("S", "f")


def test_window_is_valid() -> None:
    messages = [
        message
        for turn in range(1, 5)
        for message in (
            user(text(f"Q{turn}")),
            assistant(thought("", f"sig{turn}"), use(f"c{turn}")),
            user(result(f"c{turn}")),
            assistant(text("A")),
        )
    ]
    transcript = built_from(messages, BEDROCK)
    for size in range(1, len(messages) + 6):
        cut = window(transcript, BEDROCK, max_events=size)
        assert validate(cut.transcript, BEDROCK) == []
        judge_messages(cut.transcript)
    assert list(window(transcript, BEDROCK, since_turn=-1).transcript) == [
        user(text("Q4")),
        assistant(use("c4")),
        user(result("c4")),
        assistant(text("A")),
    ]


@pytest.mark.skipif(not TAU.exists(), reason="the tau-bench runs are not part of the project")
def test_repaired_tau_bench_runs_are_valid_converse() -> None:
    with TAU.open("rb") as file:
        runs = [list(line.messages) for line in read_chat_lines(file)]
    for messages in runs:
        chat = built_from(messages, "openai-chat")
        transcript = build(chat.snapshot or run_of(), BEDROCK)
        repaired = repair(transcript, BEDROCK).transcript
        assert validate(repaired, BEDROCK) == []
        judge_messages(repaired)
        assert_exact(list(transcript), BEDROCK)


def test_repair_keeps_the_message_after_an_empty_one() -> None:
    user_messages: list[dict[str, Any]] = [{"role": "user", "content": [{"text": text}]} for text in ("one", "two")]
    repaired = repair([user_messages[0], {"role": "user", "content": []}, user_messages[1]], "bedrock")
    assert list(repaired.transcript) == [{"role": "user", "content": [{"text": "one"}, {"text": "two"}]}]


def test_window_accepts_reasoning_with_a_signature_and_no_text() -> None:
    block: Any = {"reasoningContent": {"reasoningText": {"signature": "signed"}}}
    messages: list[Any] = [{"role": "assistant", "content": []}, {"role": "user", "content": [block]}]
    assert len(window(messages, "bedrock", max_events=1).transcript) <= len(messages)
