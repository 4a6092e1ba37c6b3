"""Tests the parts that all parsers and builders share: wire names and ids, content parts, pairing of calls."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import ToolCall, ToolResult
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.transcript import decode_name, encode_name
from agent_memory_log.transcript.conversion.calls import CallLedger
from agent_memory_log.transcript.conversion.text_parts import TextParts
from agent_memory_log.transcript.differences import apply, difference, is_residual
from agent_memory_log.transcript.names import WireRules
from tests.strategies import texts
from tests.transcript.transcripts import Message, json_values, maps

ANY_LENGTH = WireRules(longest_name=10**6)

tricky = st.text(st.sampled_from("aZ9_.-25fé \0🧾"), max_size=12)


@given(tricky | texts())
def test_encoded_name_uses_allowed_characters_and_decodes_to_the_name(name: str) -> None:
    written = encode_name(name)
    assert decode_name(written) == name
    assert not written or ANY_LENGTH.allows_name(written)


@given(st.lists(tricky | texts(), unique=True, min_size=2))
def test_different_names_have_different_encodings(names: list[str]) -> None:
    assert len({encode_name(name) for name in names}) == len(names)


@given(tricky | texts())
def test_decode_name_accepts_any_text(name: str) -> None:
    decode_name(name).encode()


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("orders.find", "orders--find"),
        ("find", "find"),
        ("get_order", "get_order"),
        ("mcp__server__tool", "mcp__server__tool"),
        ("get-weather", "get-weather"),
        ("_x_-", "_x_-"),
        ("a--b", "a-_2d--b"),
        ("a-.b", "a-_2d---b"),
        ("a-_b", "a-_2d-_b"),
        ("a b", "a-_20-b"),
        ("Grüße", "Gr-_fc--_df-e"),
        ("🧾", "-_1f9fe-"),
        ("", ""),
    ],
)
def test_encoded_names_stay_readable(name: str, wire: str) -> None:
    assert encode_name(name) == wire
    assert decode_name(wire) == name


@pytest.mark.parametrize("wire", ["-_110000-", "-_d800-", "-_-", "-_zz-", "-_1", "-_0000000-"])
def test_decode_name_keeps_invalid_escapes(wire: str) -> None:
    assert decode_name(wire) == wire


@given(tricky | texts(), st.integers(20, 70))
def test_short_names_and_wire_ids_are_allowed_by_the_rules(name: str, longest: int) -> None:
    rules = WireRules(longest_name=longest, longest_id=longest)
    assert rules.allows_name(rules.short_name(name))
    assert rules.short_name(name) == rules.short_name(name)
    assert not name or rules.allows_id(rules.wire_id(name))
    if name and rules.allows_name(name):
        assert rules.short_name(name) == rules.wire_id(name) == name


def test_long_names_with_a_common_prefix_stay_different() -> None:
    rules = WireRules(longest_name=64, longest_id=64)
    names = ["a" * 200 + str(number) for number in range(100)]
    assert len({rules.short_name(name) for name in names}) == len({rules.wire_id(name) for name in names}) == 100


# Pairing.


def call(call_id: str, name: str = "f", parent: str = "") -> ToolCall:
    return ToolCall(call_id, name, parent)


def result(call_id: str, parent: str = "") -> ToolResult:
    return ToolResult(call_id, "f", parent)


def test_ledger_makes_repeated_call_ids_unique() -> None:
    ledger = CallLedger(WireRules(longest_name=64, longest_id=6, unique_ids=True), "p")
    assert [ledger.call(call(call_id)) for call_id in ("a", "a", "b", "a-2", "a")] == ["a", "a-2", "b", "a-2-2", "a-3"]
    assert [ledger.result(result(call_id)) for call_id in ("a", "b", "a-2", "a", "a", "a")] == [
        "a-3", "b", "a-2-2", "a-2", "a", "a",
    ]  # fmt: skip


def test_ledger_keeps_repeated_ids_if_the_provider_allows_them() -> None:
    ledger = CallLedger(WireRules(longest_name=64), "p")
    assert [ledger.call(call("a.b")) for _ in range(3)] == ["a--b"] * 3


def test_ledger_gives_a_thousand_equal_ids_unique_ids() -> None:
    ledger = CallLedger(WireRules(longest_name=64, unique_ids=True), "p")
    assert len({ledger.call(call("a")) for _ in range(1000)}) == 1000


def test_ledger_leaves_out_nested_calls() -> None:
    ledger = CallLedger(WireRules(longest_name=64), "p")
    assert ledger.call(call("outer")) == "outer"
    assert ledger.call(call("inner", parent="outer")) is None
    assert ledger.call(call("other", parent="elsewhere")) == "other"
    assert ledger.result(result("inner")) is None
    assert ledger.result(result("late", parent="outer")) is None
    assert ledger.result(result("outer")) == "outer"
    assert ledger.open_call_name("other") == "f"
    assert ledger.open_call_name("outer") is None


# Content in parts.

LINES = TextParts({"type": "text"}, "\n")
JOINED = TextParts({"type": "text"}, "")
kinds = pytest.mark.parametrize("kind", [LINES, JOINED, TextParts({}, "\n")], ids=["lines", "joined", "bare"])

some_parts = st.lists(
    json_values
    | maps({"type": st.just("text"), "text": texts()})
    | st.fixed_dictionaries({"type": st.just("text"), "text": texts()}, optional={"x": json_values}),
    max_size=5,
)


@kinds
@given(parts=some_parts)
def test_parts_are_split_and_joined_exactly(kind: TextParts, parts: list[Any]) -> None:
    text, spans = kind.split(parts)
    assert encode_canonical(kind.join(text, spans)) == encode_canonical(parts)


@kinds
@given(text=texts(), spans=json_values | st.lists(st.integers(-2, 9) | maps({"characters": st.integers(0, 9)})))
def test_join_accepts_any_spans(kind: TextParts, text: str, spans: Any) -> None:
    parts = kind.join(text, spans)
    assert parts is None or isinstance(parts, list)


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("ab", [1]),
        ("ab", [3]),
        ("ab", [1, 1]),
        ("a\nb", [1, 2]),
        ("a", [True]),
        ("a", [1.0]),
        ("a", ["a"]),
        ("a", [{"characters": 1, "other": 1}]),
        ("a", [{"characters": None}]),
        ("a", [1, {"part": 1, "x": 2}]),
        ("a", {"a": 1}),
        ("a", None),
    ],
)
def test_join_returns_none_for_spans_that_do_not_fit(text: str, spans: Any) -> None:
    assert LINES.join(text, spans) is None


def test_split_stores_each_text_once() -> None:
    text, spans = LINES.split(
        [{"type": "text", "text": "long"}, {"type": "text", "text": "er", "x": 1}, {"type": "image"}]
    )
    assert text == "long\ner"
    assert spans == [4, {"characters": 2, "fields": {"x": 1}}, {"part": {"type": "image"}}]


# Residuals.


@given(
    maps({"type": texts(), "text": texts(), "x": maps({"a": texts(), "b": texts()})}),
    maps({"type": texts(), "text": texts(), "x": maps({"a": texts(), "b": texts()}), "y": json_values}),
)
def test_applied_difference_restores_the_original(default: Message, original: Message) -> None:
    for inside in ((), ("x",)):
        residual = difference(default, original, *inside)
        assert is_residual(residual)
        assert encode_canonical(apply(copy.deepcopy(default), residual)) == encode_canonical(original)


def test_ledger_answers_with_the_id_that_the_provider_sent() -> None:
    rules = WireRules(longest_name=64, longest_id=6)
    parsing, building = CallLedger(rules, "p"), CallLedger(rules, "p")
    sent = "functions.f:0"
    assert parsing.call(call(sent), sent) == (wire := rules.wire_id(sent)) != sent
    stored = ToolCall(sent, "f", structured={"p": {"fields": {"id": sent}}})
    assert building.call(stored) == wire
    assert [ledger.result(result(sent)) for ledger in (parsing, building)] == [sent, sent]
    other = CallLedger(rules, "other")
    assert [other.call(stored), other.result(result(sent))] == [wire, wire]
