"""Tests the vendors that speak the shape of OpenAI Chat Completions, most of them with real traffic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given

from agent_memory_log import (
    AssistantMessage,
    Event,
    JsonValue,
    Redacted,
    Snapshot,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
    decode_event,
    new_event,
    open_sync_store,
)
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.recording import RecordedResponse, SyncRunRecorder
from agent_memory_log.transcript import build, parse, provider_names, repair, request, validate, vendor_names, window
from agent_memory_log.transcript.json_types import list_in, map_in
from agent_memory_log.transcript.vendors.profiles import VENDORS, is_openai_model, provider_name
from tests.transcript.traffic import Exchange, exchanges
from tests.transcript.transcripts import Message, assert_exact, run_of, snapshot_of
from tests.transcript.transcripts_openai_chat import ASSISTANT, CASE, CHAT, USER, call, calls, tool

AT_VENDORS = [
    exchange
    for exchange in exchanges()
    if exchange.provider == CHAT and not exchange.is_own_host and exchange.answer is not None
]
REASONED: dict[str, Message] = {
    "deepseek": {**ASSISTANT, "reasoning_content": "Hm."},
    "groq": {**ASSISTANT, "reasoning": "Hm."},
    "mistral": {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
            {"type": "text", "text": "Hello"},
        ],
    },
    "openrouter": {
        **ASSISTANT,
        "reasoning": "Hm.",
        "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "signature": "c2lnbmVk", "index": 0}],
    },
}
"""A message with the reasoning ``Hm.`` as each vendor returns it."""


def vendor_of(exchange: Exchange) -> str:
    return provider_name(f"https://{exchange.host}/v1")


def answered(exchange: Exchange) -> tuple[RecordedResponse, Snapshot]:
    """Return the recorded answer, and its run with a result for each call."""
    with open_sync_store("memory:") as store:
        store.append_events("agent", "run", *parse(exchange.messages, vendor_of(exchange), source="s"))
        with SyncRunRecorder(store, "agent", "run") as recorder:
            answer = recorder.record_response(exchange.answer, provider=vendor_of(exchange))
            for event in answer.tool_calls:
                with recorder.tool_call(event) as handle:
                    handle.result("ok")
        return answer, store.load_run("agent", "run")


def texts_of_reasoning(message: Message) -> Iterator[str]:
    """Yield the texts of the reasoning in a message of a vendor."""
    for key in ("reasoning", "reasoning_content"):
        if message.get(key):
            yield message[key]
    for part in list_in(message.get("content")):
        if map_in(part).get("type") == "thinking":
            yield from (text["text"] for text in part["thinking"])


def response(message: Message, model: str = "m") -> dict[str, Any]:
    return {"model": model, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def run_with(message: Message, provider: str) -> Snapshot:
    """Return a run with an answer of ``provider``."""
    return snapshot_of(parse([USER, message], provider))


def test_traffic_has_many_vendors() -> None:
    assert len(AT_VENDORS) > 100
    assert {vendor_of(exchange) for exchange in AT_VENDORS} >= {
        "azure",
        "cerebras",
        "deepseek",
        "groq",
        "huggingface",
        "mistral",
        "ollama",
        "openai-compatible",
        "openrouter",
        "snowflake",
        "zai",
    }


@pytest.mark.parametrize("exchange", AT_VENDORS, ids=lambda exchange: f"{exchange.host} {exchange.name}"[-60:])
def test_an_exchange_is_exact_and_valid_under_the_name_of_its_vendor(exchange: Exchange) -> None:
    vendor = vendor_of(exchange)
    assert_exact(exchange.messages, vendor)
    assert not validate(exchange.messages, vendor)
    assert not repair(exchange.messages, vendor).changes
    answer, run = answered(exchange)
    if answer.partial:
        return
    built = build(run, vendor)
    length = len(exchange.messages)
    assert encode_canonical(built[:length]) == encode_canonical(exchange.messages)
    assert not validate(built, vendor)
    assert not built.losses
    assert {event.labels["provider"] for event in answer.events} == {vendor}
    if isinstance(exchange.answer, dict):
        message = exchange.answer["choices"][0]["message"]
        assert encode_canonical(built[length]) == encode_canonical(message)
    for text in texts_of_reasoning(built[length]):
        thinking = [event.data.text for event in answer.events if isinstance(event.data, Thinking)]
        assert any(text in thought for thought in thinking)
    for other in (*provider_names(), "groq" if vendor != "groq" else "xai"):
        elsewhere = build(run, other)
        assert not validate(repair(elsewhere, other).transcript, other)
        for text in texts_of_reasoning(built[length]):
            assert text.encode() not in encode_canonical(elsewhere[-3:])


@pytest.mark.parametrize("vendor", REASONED)
def test_reasoning_is_stored_once_and_goes_back_to_its_vendor_alone(vendor: str) -> None:
    run = run_with(REASONED[vendor], vendor)
    thinking = [event.data for event in run.log if isinstance(event.data, Thinking)]
    assert [data.text for data in thinking] == ["Hm."]
    assert b"".join(encode_canonical(event.to_map()) for event in run.log).count(b"Hm.") == 1
    assert build(run, vendor)[1] == REASONED[vendor]
    for other in {*provider_names(), *vendor_names()} - {vendor}:
        elsewhere = build(run, other)
        assert b"Hm." not in encode_canonical(list(elsewhere))
        assert "reasoning" in {loss.reason for loss in elsewhere.losses}


@pytest.mark.parametrize("vendor", REASONED)
def test_erased_reasoning_leaves_nothing_behind(vendor: str) -> None:
    with open_sync_store("memory:") as store:
        store.append_events("agent", "run", *parse([USER, REASONED[vendor], USER, ASSISTANT], vendor))
        (seq,) = [event.seq for event in store.load_run("agent", "run").log if isinstance(event.data, Thinking)]
        store.redact_events("agent", "run", [seq], reason="asked")
        run = store.load_run("agent", "run")
    assert any(isinstance(event.data, Redacted) for event in run.log)
    built = build(run, vendor)
    assert [message["role"] for message in built] == ["user", "assistant", "user", "assistant"]
    assert b"Hm." not in encode_canonical(list(built))
    assert not validate(built, vendor)


@pytest.mark.parametrize("vendor", REASONED)
def test_the_reasoning_of_an_erased_message_joins_no_other_message(vendor: str) -> None:
    with open_sync_store("memory:") as store:
        store.append_events("agent", "run", *parse([USER, REASONED[vendor], ASSISTANT], vendor))
        erased = [event.seq for event in store.load_run("agent", "run").log if isinstance(event.data, AssistantMessage)]
        store.redact_events("agent", "run", erased[:1], reason="asked")
        built = build(store.load_run("agent", "run"), vendor)
    assert built == [USER, ASSISTANT]


@pytest.mark.parametrize(
    ("vendor", "expected"),
    [
        ("deepseek", {"role": "assistant", "content": None, "reasoning_content": "Hm."}),
        ("openrouter", {"role": "assistant", "content": None, "reasoning": "Hm."}),
        (
            "mistral",
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}],
            },
        ),
        ("azure", {"role": "assistant", "content": None}),
        (CHAT, {"role": "assistant", "content": None}),
    ],
)
def test_reasoning_that_the_log_has_as_text_goes_where_the_vendor_wants_it(vendor: str, expected: Message) -> None:
    run = run_of(UserMessage("Hi"), Thinking("Hm.", final=True), ToolCall("abcdefghi", "f"))
    message = build(run, vendor)[1]
    assert [tool_call["id"] for tool_call in message.pop("tool_calls")] == ["abcdefghi"]
    assert message == expected
    signed = run_of(UserMessage("Hi"), Thinking("Hm.", signature="x", final=True), AssistantMessage("Hello"))
    assert build(signed, vendor)[1] == ASSISTANT


OTHER_FORMS: list[JsonValue] = [
    {"reasoning": {"fields": {"role": "user"}, "texts": []}},
    {"reasoning": {"fields": {"reasoning": ""}, "texts": [["reasoning"]]}},
    {"reasoning": {"fields": {"reasoning": "x"}, "texts": [["reasoning", 0, 1]]}},
    {"reasoning": {"fields": {"reasoning": ""}, "texts": [["reasoning", "0", "1"]]}},
    {"reasoning": {"fields": {"reasoning": []}, "texts": [["reasoning", 3, 0, 1]]}},
    {"reasoning": {"fields": {"reasoning": ""}, "texts": [[{}, 0, 1], 7]}},
    {"reasoning": {"fields": []}},
    {"reasoning": 1},
]


@pytest.mark.parametrize("structured", OTHER_FORMS)
def test_reasoning_in_another_form_is_left_out(structured: JsonValue) -> None:
    run = run_of(UserMessage("Hi"), Thinking("Hm.", structured={"groq": structured}), AssistantMessage("Hello"))
    built = build(run, "groq")
    assert built == [USER, ASSISTANT]
    assert [loss.reason for loss in built.losses] == ["reasoning"]


def test_fields_that_a_vendor_refuses_in_requests_are_left_out() -> None:
    message = {**ASSISTANT, "executed_tools": [{"type": "search"}], "reasoning": "Hm."}
    assert build(run_with(message, "groq"), "groq")[1] == {**ASSISTANT, "reasoning": "Hm."}
    assert build(run_with(message, "openai-compatible"), "openai-compatible")[1] == message


def test_the_signature_of_gemini_goes_back_with_its_call() -> None:
    signature = {"google": {"thought_signature": "c2lnbmVk"}}
    messages = [USER, calls({**call("", "f"), "extra_content": signature}), tool("1", "")]
    built = build(snapshot_of(assert_exact(messages, "gemini-compatible")), "gemini-compatible")
    assert built[1]["tool_calls"][0]["extra_content"] == signature


def test_calls_with_empty_ids_pair_in_order() -> None:
    messages = [USER, calls(call("", "f"), call("", "g")), tool("1", ""), tool("2", "")]
    events = assert_exact(messages, "gemini-compatible")
    results = [event.data for event in events if isinstance(event.data, ToolResult)]
    assert [(data.tool_name, data.result_json) for data in results] == [("f", "1"), ("g", "2")]
    assert not validate(messages, "gemini-compatible")
    assert not repair(messages, "gemini-compatible").changes
    assert [finding.path for finding in validate(messages[:-1], "gemini-compatible")] == [(1, "tool_calls", 1)]
    assert [finding.rule for finding in validate([*messages, tool("3", "")], "gemini-compatible")] == ["orphan_result"]
    cut = repair(messages[:-1], "gemini-compatible")
    assert not validate(cut.transcript, "gemini-compatible")
    assert [change.change for change in cut.changes] == ["answered_call"]
    for other in (*provider_names(), "mistral"):
        assert not validate(build(snapshot_of(events), other), other)
    repaired = repair(messages, CHAT, request={"model": "gpt-4o"}).transcript
    ids = [tool_call["id"] for tool_call in repaired[1]["tool_calls"]]
    assert len({*ids}) == 2
    assert [(message["tool_call_id"], message["content"]) for message in repaired[2:]] == [(ids[0], "1"), (ids[1], "2")]


def test_results_of_calls_with_empty_ids_name_their_tool() -> None:
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
        recorder.user("Hi")
        answer = recorder.record_response(response(calls(call("", "f"), call("", "g"))), provider="gemini-compatible")
        for event in reversed(answer.tool_calls):
            with recorder.tool_call(event) as handle:
                handle.result(decode_event(event, ToolCall).tool_name)
        built = build(store.load_run("agent", "run"), "gemini-compatible")
    assert [(message["name"], message["content"]) for message in built[2:]] == [("g", "g"), ("f", "f")]


def test_ids_change_only_where_the_vendor_refuses_them() -> None:
    long_id = "tool_" + "x" * 60
    run = snapshot_of(
        parse([USER, calls(call(long_id), call("t-1")), tool("1", long_id), tool("2", "t-1")], "openrouter")
    )
    built = build(run, "openrouter")
    assert [tool_call["id"] for tool_call in built[1]["tool_calls"]] == [long_id, "t-1"]
    assert not validate(built, "openrouter")
    for vendor in (CHAT, "azure", "mistral"):
        mapped = build(run, vendor)
        ids = [tool_call["id"] for tool_call in mapped[1]["tool_calls"]]
        assert ids == [message["tool_call_id"] for message in mapped[2:]]
        assert ids[0] != long_id
        assert not validate(mapped, vendor)
    (finding,) = validate([USER, calls(call("abc")), tool("1", "abc")], "mistral")
    assert finding.rule == "call_id"
    repaired = repair([USER, calls(call("abc")), tool("1", "abc")], "mistral")
    assert [change.change for change in repaired.changes] == ["renamed_call"]
    assert not validate(repaired.transcript, "mistral")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://api.mistral.ai", "mistral"),
        ("https://API.DeepSeek.com:443/beta", "deepseek"),
        ("https://acme.openai.azure.com/openai/v1/", "azure"),
        ("http://localhost:11434/v1", "ollama"),
        ("http://localhost:8000/v1", "openai-compatible"),
        ("https://user:secret@api.x.ai/v1", "xai"),
        ("https://notopenrouter.ai/v1", "openai-compatible"),
        ("https://openrouter.ai.example.com/v1", "openai-compatible"),
        ("https://api.openai.com/v1", CHAT),
        ("groq", "groq"),
    ],
)
def test_a_base_url_chooses_the_vendor_of_its_host(url: str, expected: str) -> None:
    assert provider_name(url) == expected
    assert build(run_of(UserMessage("Hi")), url).provider == expected


@pytest.mark.parametrize("name", ["openrouter2", "ftp://openrouter.ai", "", "https"])
def test_an_unknown_name_is_refused_with_the_known_names(name: str) -> None:
    with pytest.raises(InvalidArgument, match=", ".join(vendor_names())):
        build(run_of(), name)


@pytest.mark.parametrize("vendor", vendor_names())
def test_a_repaired_run_is_valid_at_every_vendor(vendor: str) -> None:
    run = run_of(UserMessage("Hi"), ToolCall("t1", "orders.find"), ToolCall("t2", "f"), ToolResult("t1", "orders.find"))
    assert not validate(repair(build(run, vendor), vendor).transcript, vendor)
    assert set(vendor_names()) == VENDORS.keys()
    assert all(end == end.lower() for end in VENDORS[vendor].hosts)


def test_an_answer_belongs_to_the_vendor_of_the_request() -> None:
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
        recorder.user("Hi")
        recorder.request("https://api.mistral.ai/v1", "magistral-small-latest", tools=[])
        answer = recorder.record_response(response(REASONED["mistral"], "magistral-small-latest"))
        run = store.load_run("agent", "run")
    assert {event.labels["provider"] for event in answer.events} == {"mistral"}
    assert "vendor" not in answer.events[0].labels
    sent = request(run, "mistral")
    assert sent["messages"] == [USER, REASONED["mistral"]]
    assert sent["model"] == "magistral-small-latest"
    assert "model" not in request(run, "groq")


def test_an_answer_of_a_vendor_without_a_name_is_whole_and_says_so() -> None:
    message = {**REASONED["openrouter"], "a_field_of_tomorrow": [1]}
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
        recorder.user("Hi")
        answer = recorder.record_response(response(message, "acme/large"))
        own = recorder.record_response(response(ASSISTANT, "gpt-4o"))
        run = store.load_run("agent", "run")
    assert {event.labels["vendor"] for event in answer.events} == {"unknown"}
    assert not any("vendor" in event.labels for event in own.events)
    assert build(run, CHAT) == [USER, message, ASSISTANT]
    assert any(isinstance(event.data, Thinking) for event in answer.events)


@pytest.mark.parametrize(
    ("model", "is_own"),
    [
        ("gpt-4o", True),
        ("gpt-5.6-sol", True),
        ("o3-mini", True),
        ("ft:gpt-4o-mini:acme::x", True),
        ("gpt-oss-120b", False),
        ("openai/gpt-4o", False),
        ("openai.gpt-5.6-luna", False),
        ("deepseek-v4-flash", False),
        ("ollama3", False),
    ],
)
def test_the_model_tells_which_limits_apply(model: str, is_own: bool) -> None:
    assert is_openai_model(model) == is_own
    long_id = "c" * 41
    messages: Sequence[Message] = [USER, calls(call(long_id)), tool("1", long_id)]
    assert [finding.rule for finding in validate(messages, CHAT, request={"model": model})] == ["call_id"] * is_own
    assert [finding.rule for finding in validate(messages, CHAT)] == ["call_id"]
    items: list[Message] = [
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "id": "msg_1", "summary": []},
        {"type": "message", "role": "assistant", "id": "rs_1", "status": "completed", "content": []},
    ]
    rules = [finding.rule for finding in validate(items, "openai-responses", request={"model": model})]
    assert rules == ["item_id", "item_id"] * is_own
    assert bool(repair(items, "openai-responses", request={"model": model}).changes) == is_own


def test_the_recorded_model_tells_which_limits_apply() -> None:
    long_id = "c" * 41
    answer = new_event(ToolCall(long_id, "f", structured={CHAT: {"fields": {"id": long_id}}}), labels={"model": "m/x"})
    events: list[Event] = [new_event(UserMessage("Hi")), answer, new_event(ToolResult(long_id, "f", result_json="1"))]
    assert not validate(build(snapshot_of(events), CHAT), CHAT)
    own = new_event(answer.data, labels={"model": "gpt-4o"})
    assert len(validate(build(snapshot_of([events[0], own, events[2]]), CHAT), CHAT)) == 1


@pytest.mark.parametrize("vendor", ["mistral", "openai-compatible"])
@given(CASE.hostile)
def test_hostile_messages_survive_and_are_repaired_at_vendors(vendor: str, messages: list[Message]) -> None:
    events = assert_exact(messages, vendor)
    for transcript in (messages, build(snapshot_of(events), vendor)):
        repaired = repair(transcript, vendor)
        assert not validate(repaired.transcript, vendor)
        assert not repair(repaired.transcript, vendor).changes
        assert bool(repaired.changes) == bool(validate(transcript, vendor))


def test_a_cut_removes_signed_reasoning_of_later_messages() -> None:
    later = [{"role": "user", "content": "And now?"}, REASONED["openrouter"], USER, REASONED["deepseek"]]
    cut = window([USER, ASSISTANT, *later], "openrouter", since_turn=2)
    assert cut.transcript == [later[0], {**ASSISTANT, "reasoning": "Hm."}, *later[2:]]
