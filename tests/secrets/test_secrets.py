"""Tests that secrets are found in labelled texts and masked in events, and that this takes linear time."""

from __future__ import annotations

import codecs
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import (
    AssistantMessage,
    Event,
    PlannerNote,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.recording import RunRecorder, SyncRunRecorder
from agent_memory_log.secrets import Finding, find_secrets, redact_text, redacted_event
from agent_memory_log.secrets.jsontext import redact_json
from agent_memory_log.secrets.parts import words
from agent_memory_log.secrets.rules import names, phrase_rules, token_rules

DATA = Path(__file__).parent / "data"
AGENT, RUN = "support-agent", "run-42"
KEY = "ghp_" + "a1B2c3D4" * 5


class LabelledText(NamedTuple):
    text: str
    secrets: list[list[int]]


def read_labelled(name: str) -> list[LabelledText]:
    lines = [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]
    return [LabelledText(codecs.decode(line["text"], "rot13"), line["secrets"]) for line in lines]


def masked_positions_of(findings: tuple[Finding, ...]) -> set[int]:
    return {position for finding in findings for position in range(finding.start, finding.end)}


def score(texts: list[LabelledText]) -> tuple[float, float]:
    """Return the share of secrets that are masked completely and the share of findings that overlap a secret."""
    masked_secrets = secrets = true_findings = all_findings = 0
    for text in texts:
        findings = find_secrets(text.text)
        masked_positions = masked_positions_of(findings)
        secret_positions = {position for start, end in text.secrets for position in range(start, end)}
        secrets += len(text.secrets)
        masked_secrets += sum(masked_positions.issuperset(range(start, end)) for start, end in text.secrets)
        all_findings += len(findings)
        true_findings += sum(not secret_positions.isdisjoint(range(finding.start, finding.end)) for finding in findings)
    return masked_secrets / secrets, true_findings / all_findings


@pytest.mark.parametrize(("name", "minimum"), [("dev", 0.99), ("held", 0.90)])
def test_find_secrets_has_the_promised_recall_and_precision(name: str, minimum: float) -> None:
    texts = read_labelled(name)
    assert len(texts) >= 250
    assert sum(not text.secrets for text in texts) >= 0.35 * len(texts)
    recall, precision = score(texts)
    assert recall >= minimum, recall
    assert precision >= minimum, precision


def test_redaction_masks_little_outside_the_secrets() -> None:
    masked = masked_outside = 0
    for text in read_labelled("dev") + read_labelled("held"):
        positions = masked_positions_of(find_secrets(text.text))
        masked += len(positions)
        masked_outside += len(positions - {position for start, end in text.secrets for position in range(start, end)})
    assert masked_outside < 0.1 * masked


def test_redact_text_leaves_masked_text_alone() -> None:
    for text in read_labelled("dev"):
        once = redact_text(text.text)
        assert redact_text(once) == once


def test_text_and_event_without_secrets_are_returned_unchanged() -> None:
    text = "the password is wrong"
    assert redact_text(text) is text
    event = new_event(UserMessage(text), labels={"lang": "en"})
    assert redacted_event(event) is event


@pytest.mark.parametrize("word", sorted(words()["sentence_or_seed"]))
def test_seed_phrase_is_found_although_a_word_is_common_in_sentences(word: str) -> None:
    rare = ["abandon", "ability", "able", "about", "above", "absent", "absorb", "abstract", "absurd", "abuse", "acid"]
    for position in (0, 5, 11):
        phrase = " ".join([*rare[:position], word, *rare[position:]])
        text = f"my seed phrase is: {phrase}"
        (finding,) = find_secrets(text)
        assert text[finding.start : finding.end] == phrase


@pytest.mark.parametrize(
    "after", ["please never have this when you will then", "what that because can into they where word"]
)
def test_seed_phrase_is_found_although_common_words_follow(after: str) -> None:
    phrase = "abandon ability able about above absent absorb abstract absurd abuse access acid"
    text = f"seed phrase: {phrase} {after}"
    (finding,) = find_secrets(text)
    assert phrase in text[finding.start : finding.end]


def test_sentence_about_a_seed_phrase_is_not_a_seed_phrase() -> None:
    text = (
        "Never tell anybody a seed phrase because then they can always take what you have, this will never change when "
        "you move it"
    )
    assert find_secrets(text) == ()


def test_findings_are_in_text_order_with_exact_positions() -> None:
    split = f"caf\u00e9 \ufe0f {KEY[:9]}\u200b{KEY[9:]}\u00ad, then \uff50ass\u200dword: hun\u2060ter2"
    findings = find_secrets(split)
    assert [finding.kind for finding in findings] == ["github_token", "password"]
    assert [split[finding.start : finding.end] for finding in findings] == [
        f"{KEY[:9]}\u200b{KEY[9:]}",
        "hun\u2060ter2",
    ]
    assert redact_text("4111 1111 1111 1111 or \u0130 4111111111111111") == (
        "[secret: card_number] or \u0130 [secret: card_number]"
    )


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("0.4539148803436467 and 4.539148803436467", None),  # digits of a fraction
        ('{"pin": 4821, "size": 4821}', '{"pin": "[secret: pin]", "size": 4821}'),
        ('{"page_token": "a1b2c3d4e5f6"}', None),
        ('{"password": "open sesame now"}', '{"password": "[secret: password]"}'),
        ('{"password": "is too short"}', None),
        ('[{"name": "DB_PASS", "value": "blue1"}]', '[{"name": "DB_PASS", "value": "[secret: password]"}]'),
        ('{"id": "call_4111111111111111", "n": 1.50}', None),
        (
            r'{"a": "{\"apiKey\": \"a1b2c3d4\"}", "n": 1e400}',
            r'{"a": "{\"apiKey\": \"[secret: api_key]\"}", "n": 1e400}',
        ),
        (r'{"a": "pass\u0077ord: hunter2"}', '{"a": "password: [secret: password]"}'),
    ],
)
def test_redact_json_keeps_every_byte_outside_the_secrets(text: str, masked: str | None) -> None:
    assert redact_json(text) == (text if masked is None else masked)


def test_redact_json_keeps_masked_keys_different() -> None:
    other = KEY.replace("a", "z")
    assert json.loads(redact_json(json.dumps({KEY: 1, other: 2}))) == {
        "[secret: github_token]": 1,
        "[secret: github_token] 2": 2,
    }


TEXTS = st.sampled_from(
    ["my password is hunter2", KEY, '{"pin": 4821}', "4111 1111 1111 1111", 'a"b\\', "plain"]
) | st.text(max_size=8)
VALUES = st.recursive(
    TEXTS | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@given(VALUES)
def test_masked_json_has_the_same_shape_and_no_secrets(value: Any) -> None:
    masked = redact_json(json.dumps(value))
    assert "hunter2" not in masked
    assert KEY not in masked
    assert shape(json.loads(masked)) == shape(value)
    assert redact_json(masked) == masked


def shape(value: Any) -> object:
    if isinstance(value, dict):
        return [shape(item) for item in cast("dict[str, Any]", value).values()]
    return [shape(item) for item in cast("list[object]", value)] if isinstance(value, list) else None


def test_redacted_event_masks_every_field_except_ids() -> None:
    call = new_event(
        ToolCall(
            f"call_{KEY}", "login", f"call_{KEY}", payload_json='{"user": "kim",  "password": "hunter2", "n": 1.0}'
        ),
        labels={"note": "PGPASSWORD=hunter2", "response_id": KEY},
        event_id=f"id {KEY}",
    )
    masked = redacted_event(call)
    assert masked.data == ToolCall(
        f"call_{KEY}",
        "login",
        f"call_{KEY}",
        payload_json='{"user": "kim",  "password": "[secret: password]", "n": 1.0}',
    )
    assert masked.labels == {"note": "PGPASSWORD=[secret: password]", "response_id": KEY}
    assert (masked.event_id, masked.timestamp, masked.seq) == (call.event_id, call.timestamp, call.seq)
    assert redacted_event(masked) is masked

    result = ToolResult("c", "t", result_json="no JSON: my pin is 4821", server_data='["hunter2"]', error_message=KEY)
    assert redacted_event(new_event(result)).data == ToolResult(
        "c",
        "t",
        result_json="no JSON: my pin is [secret: pin]",
        server_data='["hunter2"]',
        error_message="[secret: github_token]",
    )
    unknown = UnknownPayload.of("badge", {"api_key": "a1b2c3d4", "deep": [{"card": 4111111111111111}]})
    assert redacted_event(new_event(unknown)).data == UnknownPayload.of(
        "badge", {"api_key": "[secret: api_key]", "deep": [{"card": "[secret: card_number]"}]}
    )
    marker = new_event(Redaction((1,), reason=KEY))
    assert redacted_event(marker) is marker


def test_masked_thinking_loses_its_signature() -> None:
    signed = new_event(Thinking("the password is wrong", signature="sig"))
    assert redacted_event(signed) is signed
    masked = redacted_event(new_event(Thinking("the password is hunter2", signature="sig"))).data
    assert masked == Thinking("the password is [secret: password]")


async def test_recorder_masks_every_appended_event() -> None:
    async with open_store("memory:") as store:
        for _ in range(2):  # the second round finds every step already recorded
            async with RunRecorder(store, AGENT, RUN, before_append=redacted_event) as recorder:
                await recorder.user(f"use {KEY}", key="ask")
                await recorder.request(
                    "anthropic", "claude", system=f"the token is {KEY}", parameters={"x": f"token={KEY}"}
                )
                await recorder.record_response(
                    {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "text", "text": KEY}]},
                    key="answer",
                )
                async with recorder.tool_call("login", {"token": KEY}, key="login") as call:
                    if call.recorded is None:
                        call.result({"session": KEY})
        log = (await store.load_run(AGENT, RUN)).log
        assert [event.type for event in log] == [
            "user_message",
            "model_request",
            "assistant_message",
            "tool_call",
            "tool_result",
        ]
        assert not any(KEY in str(event.to_map()) for event in log)
        assert (
            next(event.data for event in log if isinstance(event.data, AssistantMessage)).message
            == "[secret: github_token]"
        )


def test_sync_recorder_masks_every_appended_event() -> None:
    with open_sync_store("memory:") as store:
        with SyncRunRecorder(store, AGENT, RUN, before_append=redacted_event) as recorder:
            recorder.note(f"use {KEY}", labels={"why": f"token={KEY}"})
            with recorder.tool_call("login", {"token": KEY}, tool_call_id="call_1"):
                pass
        log = store.load_run(AGENT, RUN).log
        assert len(log) == 3
        assert not any(KEY in str(event.to_map()) for event in log)


def test_recorder_finds_its_open_call_with_masked_arguments() -> None:
    with open_sync_store("memory:") as store:
        open_call = ToolCall("call_1", "login", payload_json=json.dumps({"token": KEY}))
        store.append_events(AGENT, RUN, redacted_event(new_event(open_call)))
        recorder = SyncRunRecorder(store, AGENT, RUN, before_append=redacted_event)
        with recorder.tool_call("login", {"token": KEY}, tool_call_id="call_1") as call:
            call.result("ok")
        assert [event.type for event in store.load_run(AGENT, RUN).log] == ["tool_call", "tool_result"]


def test_recorder_refuses_a_hook_that_changes_an_event_id() -> None:
    def replace_event(event: Event) -> Event:
        return new_event(event.data)

    with open_sync_store("memory:") as store:
        recorder = SyncRunRecorder(store, AGENT, RUN, before_append=replace_event)
        with pytest.raises(InvalidArgument, match="before_append"):
            recorder.record(PlannerNote("hello"))
        assert not store.load_run(AGENT, RUN).log


def near_misses() -> Iterator[str]:
    """Yield texts that resemble secrets, to be repeated: the hint of each rule and pieces of its pattern."""
    hints = {rule.hint for rule in (*token_rules(), *phrase_rules())} | set(names())
    yield from sorted(hints - {""})
    yield from (
        "4",
        "41-",
        "4111 ",
        "AB12 ",
        "DE12 3456 ",
        "12 34.",
        "seed abcd ",
        "password for a ",
        "password is a",
        "M",
        "MN_",
    )
    yield from (
        "://a:",
        "://a",
        "-----BEGIN PRIVATE KEY-----",
        "cookie: sid=a;",
        "eyJa",
        "eyJaaaaaaaa.eyJ",
        "\u200b",
        "a as my ",
    )
    yield from (
        "recovery codes a1b ",
        "curl -u ",
        "mysql -p",
        "login a/",
        "123456 is your ",
        "code for a ",
        'password"',
        "kind: Secret\ndata:\n  a: b2c3d4\n",
        "AKIAABCDEFGHIJKLMNOP ",
        "door code: 4821 ",
        "password: hunter2 ",
        "use hunter2 for ",
        "$2a$10$",
        "a1@b:",
    )


def cost(text: str) -> float:
    started = time.process_time()
    find_secrets(text)
    return time.process_time() - started


def test_find_secrets_takes_linear_time() -> None:
    find_secrets("")
    for unit in near_misses():
        for attempt in range(5):
            short, long = (cost((unit * size)[:size]) for size in (2_000, 8_000))
            if long <= 8 * short + 0.001:  # the text is four times as long; quadratic time would be 16 times as long
                break
            assert attempt < 4, (unit, short, long)


def test_redact_json_takes_linear_time() -> None:
    def document(count: int) -> str:
        return json.dumps(
            [{"id": index, "token_count": 5, "note": "no password here", "x": {}} for index in range(count)]
        )

    for attempt in range(4):
        times: list[float] = []
        for count in (100, 400):
            text = document(count)
            started = time.process_time()
            assert redact_json(text) is text
            times.append(time.process_time() - started)
        if times[1] <= 8 * times[0] + 0.001:
            break
        assert attempt < 3, times
