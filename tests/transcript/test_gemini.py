"""Tests Gemini: parsing, building, the rules of ``validate`` and the changes of ``repair``."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import (
    AssistantMessage,
    EventData,
    JsonValue,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.transcript import build, model_request, parse
from agent_memory_log.transcript.gemini.open_calls import OpenCalls
from agent_memory_log.transcript.gemini.repairing import OPENING, PLACEHOLDER
from agent_memory_log.transcript.providers import repair, request, validate
from tests.transcript.gemini_judge import judge_config, judge_messages
from tests.transcript.transcript_runs import ODD_VALUES, assert_repaired, built_from, nearly, rules_of
from tests.transcript.transcripts import Message, assert_exact, json_values, maps, run_of, shaped

GEMINI = "gemini"
THREE = {"model": "gemini-3-pro-preview"}
SIGNATURE = base64.b64encode(b"signed \xff\xfe").decode()


def text(value: str = "Hi", **fields: object) -> Message:
    return {"text": value, **fields}


def call(name: str = "orders_get", call_id: str | None = None, **fields: object) -> Message:
    own_id = {} if call_id is None else {"id": call_id}
    return {"functionCall": {**own_id, "name": name, "args": {"id": 7}}, **fields}


def result(name: str = "orders_get", call_id: str | None = None, value: object = "ok", **fields: object) -> Message:
    own_id = {} if call_id is None else {"id": call_id}
    return {"functionResponse": {**own_id, "name": name, "response": {"output": value}, **fields}}


def thought(value: str = "Let me see.", **fields: object) -> Message:
    return {"text": value, "thought": True, **fields}


def user(*parts: object) -> Message:
    return {"role": "user", "parts": list(parts or [text()])}


def model(*parts: object) -> Message:
    return {"role": "model", "parts": list(parts or [text("Hello")])}


IMAGE = {"inlineData": {"mimeType": "image/png", "data": "YQ=="}}
FILE = {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://bucket/a.mp4"}, "videoMetadata": {"fps": 1.5}}
CODE = {"executableCode": {"language": "PYTHON", "code": "print(1)"}}
RAN = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}}
SEARCH = {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"q": "x"}, "id": "s1"}, "thoughtSignature": SIGNATURE}
SEARCHED = {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "response": {"html": "x"}, "id": "s1"}}
SNAKE_CALL = {"function_call": {"name": "f", "args": {"snake_case": 1}}, "thought_signature": SIGNATURE}
SNAKE_RESULT = {"function_response": {"name": "f", "response": {"output": 1}}}

DOCUMENTED: dict[str, list[Message]] = {
    "text": [user(), model(), user(text("a"), text("b")), model(text("a"), text("b"))],
    "no role": [{"parts": [text()]}],
    "several contents of one side": [user(), user(), model(), model(text("more")), user()],
    "media": [user(text("What is"), IMAGE, FILE, text("this?")), model(text("See:"), IMAGE)],
    "media alone": [user(IMAGE), model(IMAGE)],
    "empty text": [user(text("")), model(text("")), user()],
    "code": [user(), model(text("Let me compute."), CODE, RAN, text("1"))],
    "server tools": [user(), model(SEARCH, SEARCHED, text("found", thoughtSignature=SIGNATURE))],
    "parallel calls": [
        user(),
        model(text("Let me look."), call(thoughtSignature=SIGNATURE), call("search"), call()),
        user(result(value=1), result("search"), result(value=2), text("And?")),
        model(),
    ],
    "parallel results in another order": [
        user(),
        model(call("a"), call("b"), call("a")),
        user(result("b"), result("a", value=1), result("a", value=2)),
    ],
    "ids": [user(), model(call(call_id="x"), call(call_id="y")), user(result(call_id="y"), result(call_id="x"))],
    "ids of one side": [user(), model(call(call_id="x"), call()), user(result(), result(call_id="new"))],
    "an id used in each turn": [user(), *([model(call(call_id="x")), user(result(call_id="x"))] * 2)],
    "names with dots and colons": [user(), model(call("a.b:c")), user(result("a.b:c"))],
    "arguments": [
        user(),
        model({"functionCall": {"name": "f"}}, {"functionCall": {"name": "f", "args": None}}),
        user(result("f"), result("f")),
    ],
    "responses": [
        user(),
        *(
            content
            for response in (
                {},
                {"output": None},
                {"output": "5"},
                {"output": {"a": 1.0}},
                {"output": {"error": "x"}},
                {"result": [1, {"b": None}]},
                {"error": "boom"},
                {"error": {"code": 5}},
                {"error": ""},
                {"error": "late", "output": 1},
                {"a": 1, "output": 2},
                {"return_value": "Mexico"},
            )
            for content in (
                model(call("f")),
                user({"functionResponse": {"name": "f", "response": response}}),
            )
        ),
    ],
    "media in a result": [user(), model(call()), user(result(parts=[IMAGE], willContinue=False, scheduling="SILENT"))],
    "roles of results": [
        user(),
        model(call()),
        {"role": "function", "parts": [result()]},
        model(call()),
        {"role": "tool", "parts": [result()]},
    ],
    "thoughts": [
        user(),
        model(thought(), thought("signed", thoughtSignature=SIGNATURE), call(thoughtSignature=SIGNATURE)),
        user(result()),
        model(thought(""), text("A"), text("", thoughtSignature=SIGNATURE)),
    ],
    "snake case": [
        user({"inline_data": {"mime_type": "image/png", "data": "YQ=="}}, text()),
        model({"text": "x", "thought": True, "thought_signature": SIGNATURE}, SNAKE_CALL),
        user(SNAKE_RESULT),
    ],
    "nulls, as the SDK dumps them": [
        user({"text": "Hi", "function_call": None, "thought": None}),
        model({"text": None, "function_call": {"id": None, "name": "f", "args": {}}, "thought_signature": None}),
        user({"text": None, "function_response": {"id": None, "name": "f", "response": {"result": 1}}}),
    ],
}


@pytest.mark.parametrize("messages", DOCUMENTED.values(), ids=DOCUMENTED.keys())
def test_documented_messages_survive_and_are_valid(messages: list[Message]) -> None:
    assert_exact(messages, GEMINI)
    judge_messages(messages)
    for transcript in (messages, built_from(messages, GEMINI)):
        assert {rule for rule, _ in rules_of(transcript, GEMINI)} <= {"error_and_value"}
        assert not {change.change for change in repair(transcript, GEMINI).changes} - {"kept_value"}
        assert encode_canonical(repair(transcript, GEMINI).transcript) == encode_canonical(messages)


ODD: dict[str, list[Message]] = {
    "no messages": [],
    "an empty message": [{}],
    "roles": [{"role": value, "parts": [text()]} for value in [*ODD_VALUES, "critic", "assistant", "system"]],
    "contents": [{"role": role, "parts": value} for role in ("user", "model") for value in ODD_VALUES],
    "no parts": [{"role": "user"}, {"role": "model"}],
    "parts": [{"role": role, "parts": [value]} for role in ("user", "model") for value in ODD_VALUES],
    "texts": [{"role": role, "parts": [{"text": value}, IMAGE]} for role in ("user", "model") for value in ODD_VALUES],
    "parts with two kinds of data": [user({**text(), **IMAGE}), model({**call(), "text": "x"}, {}, {"thought": True})],
    "extra fields": [{**user(), "id": "m1"}, {**model(), "id": "m2"}],
    "parts of the other role": [user(call(), text()), model(result(), text())],
    "calls": [model({"functionCall": value}) for value in ODD_VALUES],
    "ids, names and arguments": [
        model({"functionCall": {"id": v, "name": v, "args": v}}, call("a--b"), call("a.b")) for v in ODD_VALUES
    ],
    "results": [user({"functionResponse": value}) for value in ODD_VALUES],
    "responses": [user({"functionResponse": {"name": "f", "response": v, "id": v}}) for v in ODD_VALUES],
    "values of responses": [
        user({"functionResponse": {"name": "f", "response": {"output": v, "error": v}}}) for v in ODD_VALUES
    ],
    "signatures": [model(thought(thoughtSignature=v), call(thoughtSignature=v)) for v in ODD_VALUES],
    "thoughts": [model({"text": v, "thought": v}, thought(v, partMetadata={})) for v in ODD_VALUES],
    "an unfinished call": [model({"functionCall": {"name": "f", "willContinue": True}}, {"functionCall": {}})],
    "more calls than results": [model(call(), call()), user(result()), user(result()), model(call())],
    "ids of another kind": [model(call(call_id=""), call(call_id="gemini_call_1")), user(result(), result(call_id=""))],
    "keys that residuals use": [{**user(), "fields": {}, "message": {}}, model(call(part={}, key=1, wrapped="x"))],
    "unknown parts": [user({"hologram": {"x": 1}}), model({"hologram": {}}, text(new={"x": 1}))],
}


@pytest.mark.parametrize("messages", ODD.values(), ids=ODD.keys())
def test_odd_messages_survive_and_can_be_repaired(messages: list[Message]) -> None:
    assert_exact(messages, GEMINI)
    for message in messages:
        assert_exact([message], GEMINI)
        assert_exact([model(), message, model(call())], GEMINI)
        assert_repaired([user(), message, model(call())], GEMINI)


texts = st.sampled_from(["", " ", "Hi", '{"a": 1}', "null", "[]", "a\nb"])
ids = st.sampled_from([None, None, "", "c1", "c2", "a b"])
names = st.sampled_from(["f", "f", "a--b", "a.b", "x" * 129])
values = st.sampled_from([None, "", "5", "ok", 1.5, {"a": 1}, {"output": 2}, [None]])
signed = st.sampled_from([{}, {"thoughtSignature": SIGNATURE}, {"thought_signature": SIGNATURE}])
parts = st.one_of(
    st.builds(text, texts),
    st.builds(call, names, ids),
    st.builds(call, names, ids, thoughtSignature=st.just(SIGNATURE)),
    st.builds(result, names, ids, values),
    st.builds(thought, texts, thoughtSignature=st.just(SIGNATURE)),
    st.sampled_from([IMAGE, FILE, CODE, RAN, SEARCH, SEARCHED, SNAKE_CALL, SNAKE_RESULT, thought()]),
)
odd_calls = maps({"id": ids, "name": texts, "args": json_values})
odd_results = maps({"id": ids, "name": texts, "response": json_values, "parts": st.lists(json_values, max_size=1)})
odd_parts = st.one_of(
    parts,
    json_values,
    shaped({"functionCall": odd_calls}, thought=json_values),
    st.fixed_dictionaries({"functionResponse": odd_results}),
    maps({"text": texts, "thought": st.booleans(), "thoughtSignature": texts, "function_call": odd_calls}),
)
roles = st.sampled_from(["user", "model"])
good_messages = st.fixed_dictionaries({"role": roles, "parts": st.lists(parts, max_size=4)})
odd_messages = good_messages | nearly({"role": roles | st.just("tool"), "parts": st.lists(odd_parts, max_size=4)})


@given(st.lists(odd_messages, max_size=6))
def test_any_messages_survive_parse_and_build(messages: list[Message]) -> None:
    assert_exact(messages, GEMINI)


@given(st.lists(odd_messages, max_size=6), st.booleans(), st.sampled_from([None, {}, THREE]))
def test_any_messages_can_be_repaired(messages: list[Message], recorded: bool, arguments: Any) -> None:
    assert_repaired(built_from(messages, GEMINI) if recorded else messages, GEMINI, request=arguments)


@given(st.lists(good_messages, max_size=8))
def test_sdk_accepts_repaired_messages(messages: list[Message]) -> None:
    assert_repaired(messages, GEMINI, judge_messages)


def test_judge_refuses_invalid_messages() -> None:
    for message in (user({"text": 3}), user({"hologram": {}}), model({"functionCall": {"name": "f", "args": "x"}})):
        with pytest.raises(ValueError, match="validation error"):
            judge_messages([message])


BROKEN: dict[str, tuple[list[Message], str, int]] = {
    "an unknown role": ([user(), {"role": "assistant", "parts": [text()]}], "message_shape", 2),
    "an empty message": ([user(), {"role": "model", "parts": []}], "empty_message", 2),
    "no parts": ([user(), {"role": "model"}], "message_shape", 2),
    "a part without data": ([user(), model(text(), {"thoughtSignature": SIGNATURE})], "block_shape", 2),
    "a part with two kinds of data": ([user({**text(), **IMAGE}, text())], "block_shape", 1),
    "a call in a user message": ([user(call(), text())], "block_shape", 1),
    "a result in a message of the model": ([user(), model(result(), text())], "block_shape", 2),
    "an invalid signature": ([user(), model(call(thoughtSignature="?")), user(result())], "block_shape", 2),
    "a response that is no map": ([user(), model(call()), user(result(response="x"))], "block_shape", 3),
    "a call first": ([model(call()), user(result())], "call_order", 1),
    "a call after a text of the model": ([user(), model(), model(call()), user(result())], "call_order", 3),
    "a call at the end": ([user(), model(text(), call())], "unanswered_call", 3),
    "one of two calls without a result": (
        [user(), model(call("a"), call("b")), user(result("b"))],
        "unanswered_call",
        2,
    ),
    "two calls of one name, one result": ([user(), model(call(), call()), user(result())], "unanswered_call", 3),
    "results in two contents": (
        [user(), model(call("a"), call("b")), user(result("a")), user(result("b"))],
        "orphan_result",
        5,
    ),
    "a result too late": ([user(), model(call()), user(), model(), user(result())], "orphan_result", 5),
    "a result without a call": ([user(text(), result())], "orphan_result", 2),
    "a result of another name": ([user(), model(call("a")), user(result("b"))], "orphan_result", 3),
    "a result twice": (
        [user(), model(call(call_id="x")), user(result(call_id="x"), result(call_id="x", value=2))],
        "duplicate_result",
        4,
    ),
    "an id used twice in one message": (
        [user(), model(call(call_id="x"), call("g", "x")), user(result(call_id="x"), result("g", "x"))],
        "duplicate_call",
        3,
    ),
    "a name with a space": ([user(), model(call("a b")), user(result("a b"))], "tool_name", 2),
    "a long name": ([user(), model(call("x" * 129)), user(result("x" * 129))], "tool_name", 2),
}


@pytest.mark.parametrize(("messages", "rule", "seq"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_rule_is_reported_with_its_seq_and_repaired(messages: list[Message], rule: str, seq: int) -> None:
    transcript = built_from(messages, GEMINI)
    assert (rule, seq) in rules_of(transcript, GEMINI)
    assert rule in [broken_rule for broken_rule, _ in rules_of(messages, GEMINI)]
    assert_repaired(messages, GEMINI, judge_messages)
    repaired = assert_repaired(transcript, GEMINI, judge_messages)
    assert seq in [change.seq for change in repaired.changes]


def test_repair_keeps_a_result_that_came_too_late() -> None:
    messages = [user(), model(call("a"), call("b")), user(text("Well?")), user(result("b", value=2))]
    repaired = assert_repaired(messages, GEMINI, judge_messages)
    interrupted = {
        "functionResponse": {"name": "a", "response": {"error": "interrupted: no result of this call was recorded"}}
    }
    assert list(repaired.transcript) == [*messages[:2], user(interrupted, result("b", value=2), text("Well?"))]


def test_repair_adds_an_opening_before_a_first_call() -> None:
    repaired = assert_repaired([model(call()), user(result())], GEMINI, judge_messages)
    assert list(repaired.transcript) == [user(text(OPENING)), model(call()), user(result())]


# Signatures.


@pytest.mark.parametrize(
    ("name", "required"),
    [
        ("gemini-3-pro-preview", True),
        ("models/gemini-3.5-flash", True),
        ("publishers/google/models/gemini-12-pro", True),
        ("gemini-2.5-pro", False),
        ("gemini-flash-latest", False),
    ],
)
def test_gemini_3_requires_a_signature_on_the_first_call_of_each_step(name: str, required: bool) -> None:
    old_turn = [user(), model(call()), user(result()), model()]
    signed_step = [model(call(thoughtSignature=SIGNATURE), call()), user(result(), result())]
    messages = [*old_turn, user(), *signed_step, model(call()), user(result())]
    unsigned = [("missing_signature", None)] if required else []
    assert rules_of(messages, GEMINI, {"model": name}) == unsigned
    assert rules_of(messages, GEMINI) == []
    repaired = assert_repaired(messages, GEMINI, judge_messages, {"model": name})
    expected = model(call(thoughtSignature=PLACEHOLDER)) if required else model(call())
    assert list(repaired.transcript) == [*messages[:7], expected, messages[8]]
    assert validate(messages[:7], GEMINI, request={"model": name}) == []


def test_calls_of_another_provider_are_marked_for_gemini_3() -> None:
    recorded = model_request(run_of(), GEMINI, model="gemini-3-pro")
    run: list[EventData] = [UserMessage("U"), ToolCall("c1", "f"), ToolResult("c1", "f", result_json="1"), recorded]
    transcript = build(run_of(*run), GEMINI)
    assert rules_of(transcript, GEMINI) == [("missing_signature", 2)]
    assert repair(transcript, GEMINI).transcript[1]["parts"][0]["thoughtSignature"] == PLACEHOLDER


@given(
    st.binary(min_size=1, max_size=60), st.sampled_from(["standard", "urlsafe"]), st.sampled_from([text, thought, call])
)
def test_signatures_survive_byte_for_byte(signature: bytes, alphabet: str, part: Any) -> None:
    encoded = getattr(base64, f"{alphabet}_b64encode")(signature).decode()
    messages = [user(), model(part(thoughtSignature=encoded))]
    assert_exact(messages, GEMINI)
    judge_messages(messages)
    repaired = repair(messages, GEMINI).transcript
    assert repaired[1]["parts"][0]["thoughtSignature"] == encoded


@given(st.text("AQgw+/-_=", max_size=9))
def test_sdk_accepts_every_signature_that_validate_accepts(signature: str) -> None:
    messages = [user(), model(text(thoughtSignature=signature))]
    if not validate(messages, GEMINI):
        judge_messages(messages)


def test_thoughts_of_others_are_not_sent_to_gemini() -> None:
    run: list[EventData] = [UserMessage("U"), Thinking("T", "sig"), Thinking(redacted=b"x"), AssistantMessage("A")]
    transcript = build(run_of(*run), GEMINI)
    assert list(transcript) == [user(text("U")), model(text("A"))]
    assert [loss.reason for loss in transcript.losses] == ["reasoning", "reasoning"]
    own = run_of(*(event.data for event in parse([model(thought(thoughtSignature=SIGNATURE), text())], GEMINI)))
    for provider in ("anthropic", "bedrock"):
        assert "Let me see" not in str(build(own, provider))


# Payloads.


def test_parts_become_payloads() -> None:
    (call_without_id, call_with_id) = (
        event.data for event in parse([model(call(thoughtSignature=SIGNATURE), call("a--b", "x"))], GEMINI)
    )
    assert call_without_id == ToolCall(
        "gemini_call_1",
        "orders_get",
        payload_json='{"id":7}',
        structured={"gemini": {"without": ["id"], "part": {"fields": {"thoughtSignature": SIGNATURE}}}},
    )
    assert call_with_id == ToolCall("x", "a.b", payload_json='{"id":7}')
    events = parse(
        [
            user(text("a"), text("b")),
            model(thought(thoughtSignature=SIGNATURE), CODE, call(), call()),
            user(result(value=[1]), {"functionResponse": {"name": "orders_get", "response": {"error": "boom"}}}),
        ],
        GEMINI,
    )
    assert [event.labels["role"] for event in events] == ["user", *["assistant"] * 4, "user", "user"]
    question, own_thought, code, _, _, listed, failed = (event.data for event in events)
    assert question == UserMessage("a\nb", {"gemini": {"parts": [1, 1]}})
    assert own_thought == Thinking("Let me see.", SIGNATURE, final=True, structured={"gemini": {"thought": True}})
    assert code == UnknownPayload("gemini.block", {"role": "assistant", "block": CODE})
    assert listed == ToolResult("gemini_call_1", "orders_get", result_json="[1]")
    assert failed == ToolResult("gemini_call_2", "orders_get", error_message="boom")


def test_results_of_one_tool_are_in_the_order_of_their_calls() -> None:
    first_events = parse([user(), model(call("f"), call("g"), call("f"), call("f"))], GEMINI)
    first, other, second, third = [event.data for event in first_events if isinstance(event.data, ToolCall)]
    answers = [
        ToolResult(data.tool_call_id, data.tool_name, result_json=number)
        for data, number in ((third, "3"), (other, "0"), (second, "2"), (first, "1"))
    ]
    built = build(run_of(*(event.data for event in first_events), *answers), GEMINI)
    assert built[2] == user(result("f", value=1), result("g", value=0), result("f", value=2), result("f", value=3))
    assert [built.seq_at((2, "parts", number)) for number in range(4)] == [9, 7, 8, 6]
    assert_exact(list(built), GEMINI)


def test_result_of_a_live_call_has_the_name_on_the_wire() -> None:
    first_events = parse([user(), model(call("a.b"))], GEMINI)
    (data,) = [event.data for event in first_events if isinstance(event.data, ToolCall)]
    built = build(
        run_of(*(event.data for event in first_events), ToolResult(data.tool_call_id, "a.b", result_json="1")), GEMINI
    )
    assert built[2] == user(result("a.b", value=1))
    assert validate(built, GEMINI) == []


@pytest.mark.parametrize(
    ("payload", "response"),
    [
        (ToolResult("c", "f", result_json='{"a": 1}'), {"a": 1}),
        (ToolResult("c", "f", result_json='{"error": 1}'), {"output": {"error": 1}}),
        (ToolResult("c", "f", result_json="[1]"), {"output": [1]}),
        (ToolResult("c", "f", result_json="plain"), {"output": "plain"}),
        (ToolResult("c", "f"), {"output": ""}),
        (ToolResult("c", "f", error_message="boom"), {"error": "boom"}),
        (ToolResult("c", "f", result_json="1", error_message="late"), {"output": 1, "error": "late"}),
    ],
)
def test_result_becomes_a_response(payload: ToolResult, response: object) -> None:
    built = build(run_of(UserMessage("U"), ToolCall("c", "f"), payload), GEMINI)
    assert built[2] == user({"functionResponse": {"id": "c", "name": "f", "response": response}})
    assert_exact(list(built), GEMINI)


# The order in which calls are answered.


@given(st.lists(st.tuples(st.sampled_from(["", "x", "y"]), st.sampled_from(["f", "g"])), max_size=8))
def test_results_like_their_calls_answer_all_of_them(calls: list[tuple[str, str]]) -> None:
    open_calls: OpenCalls[int] = OpenCalls()
    for number, (call_id, name) in enumerate(calls):
        open_calls.add(call_id, name, number)
    answered = [open_calls.answer(call_id, name) for call_id, name in calls if not call_id]
    assert None not in answered
    assert None not in [open_calls.answer("", name) or answered for call_id, name in calls if call_id]
    assert [open_calls.answer(call_id, name) for call_id, name in calls] == [None] * len(calls)


def test_many_open_calls_take_no_time() -> None:
    count = 20_000
    messages = [user(), model(*[call()] * count), *[user(result("other"))] * 50, user(*[result()] * count)]
    assert len(parse(messages, GEMINI)) > count


# Requests.


def test_request_is_what_the_sdk_takes() -> None:
    declaration: JsonValue = {
        "name": "f",
        "description": "D",
        "parameters": {"type": "OBJECT", "properties": {"id": {"type": "STRING"}}},
    }
    tools: JsonValue = [{"googleSearch": {}}, {"functionDeclarations": [declaration, {"name": "g"}]}]
    system = {"parts": [text("Be kind.")]}
    parameters: dict[str, JsonValue] = {"temperature": 0.5, "thinkingConfig": {"includeThoughts": True}}
    recorded = model_request(run_of(), GEMINI, model="gemini-3-pro", system=system, tools=tools, parameters=parameters)
    arguments = request(run_of(recorded, UserMessage("U")), GEMINI)
    assert arguments == {
        "contents": [user(text("U"))],
        "model": "gemini-3-pro",
        "systemInstruction": system,
        "tools": tools,
        **parameters,
    }
    judge_config({key: value for key, value in arguments.items() if key not in ("contents", "model")})
    for_anthropic = request(run_of(recorded, UserMessage("U")), "anthropic")
    assert for_anthropic["system"] == "Be kind."
    assert for_anthropic["tools"] == [
        {"name": "f", "description": "D", "input_schema": {"type": "object", "properties": {"id": {"type": "string"}}}}
    ]
    spoken = request(run_of(SystemMessage("A"), SystemMessage("B"), UserMessage("U")), GEMINI)
    assert spoken == {"contents": [user(text("U"))], "systemInstruction": {"parts": [text("A\n\nB")]}}
