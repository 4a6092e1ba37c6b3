"""What every provider's parser and builder use: tool names and ids on the wire, content in parts, pairing of calls."""

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
from tests.transcript.transcripts import Message, json_values, maps, unhurried

ANY_LENGTH = WireRules(longest_name=10**6)

tricky = st.text(st.sampled_from("aZ9_.-25fé \0🧾"), max_size=12)


@unhurried
@given(tricky | texts())
def test_any_name_is_written_in_the_alphabet_and_read_back(name: str) -> None:
    written = encode_name(name)
    assert decode_name(written) == name
    assert not written or ANY_LENGTH.allows_name(written)


@unhurried
@given(st.lists(tricky | texts(), unique=True, min_size=2))
def test_no_two_names_meet(names: list[str]) -> None:
    assert len({encode_name(name) for name in names}) == len(names)


@unhurried
@given(tricky | texts())
def test_any_name_on_the_wire_is_read(name: str) -> None:
    decode_name(name).encode()


@pytest.mark.parametrize(
    ("ours", "wire"),
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
def test_names_stay_readable(ours: str, wire: str) -> None:
    assert encode_name(ours) == wire
    assert decode_name(wire) == ours


@pytest.mark.parametrize("wire", ["-_110000-", "-_d800-", "-_-", "-_zz-", "-_1", "-_0000000-"])
def test_what_is_no_escape_stands_for_itself(wire: str) -> None:
    assert decode_name(wire) == wire


@unhurried
@given(tricky | texts(), st.integers(20, 70))
def test_a_short_name_is_allowed(name: str, longest: int) -> None:
    rules = WireRules(longest_name=longest, longest_id=longest)
    assert rules.allows_name(rules.short_name(name))
    assert rules.short_name(name) == rules.short_name(name)
    assert not name or rules.allows_id(rules.wire_id(name))
    if name and rules.allows_name(name):
        assert rules.short_name(name) == rules.wire_id(name) == name


def test_long_names_that_begin_alike_stay_apart() -> None:
    rules = WireRules(longest_name=64, longest_id=64)
    names = ["a" * 200 + str(number) for number in range(100)]
    assert len({rules.short_name(name) for name in names}) == len({rules.wire_id(name) for name in names}) == 100


# Pairing.


def call(call_id: str, name: str = "f", parent: str = "") -> ToolCall:
    return ToolCall(call_id, name, parent)


def result(call_id: str, parent: str = "") -> ToolResult:
    return ToolResult(call_id, "f", parent)


def test_ids_that_may_stand_for_one_call_only_are_told_apart() -> None:
    ledger = CallLedger(WireRules(longest_name=64, longest_id=6, unique_ids=True))
    assert [ledger.call(call(one)) for one in ("a", "a", "b", "a-2", "a")] == ["a", "a-2", "b", "a-2-2", "a-3"]
    assert [ledger.result(result(one)) for one in ("a", "b", "a-2", "a", "a", "a")] == [
        "a-3", "b", "a-2-2", "a-2", "a", "a",
    ]  # fmt: skip


def test_ids_may_be_used_again_elsewhere() -> None:
    ledger = CallLedger(WireRules(longest_name=64))
    assert [ledger.call(call("a.b")) for _ in range(3)] == ["a--b"] * 3


def test_an_id_used_a_thousand_times_costs_no_more_than_others() -> None:
    ledger = CallLedger(WireRules(longest_name=64, unique_ids=True))
    assert len({ledger.call(call("a")) for _ in range(1000)}) == 1000


def test_calls_inside_calls_have_no_place_on_the_wire() -> None:
    ledger = CallLedger(WireRules(longest_name=64))
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
@unhurried
@given(parts=some_parts)
def test_parts_are_split_and_joined_exactly(kind: TextParts, parts: list[Any]) -> None:
    text, spans = kind.split(parts)
    assert encode_canonical(kind.join(text, spans)) == encode_canonical(parts)


@kinds
@unhurried
@given(text=texts(), spans=json_values | st.lists(st.integers(-2, 9) | maps({"characters": st.integers(0, 9)})))
def test_spans_of_another_hand_never_fail(kind: TextParts, text: str, spans: Any) -> None:
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
def test_spans_that_do_not_fit_are_none(text: str, spans: Any) -> None:
    assert LINES.join(text, spans) is None


def test_no_text_is_kept_twice() -> None:
    text, spans = LINES.split(
        [{"type": "text", "text": "long"}, {"type": "text", "text": "er", "x": 1}, {"type": "image"}]
    )
    assert text == "long\ner"
    assert spans == [4, {"characters": 2, "fields": {"x": 1}}, {"part": {"type": "image"}}]


# Residuals.


@unhurried
@given(
    maps({"type": texts(), "text": texts(), "x": maps({"a": texts(), "b": texts()})}),
    maps({"type": texts(), "text": texts(), "x": maps({"a": texts(), "b": texts()}), "y": json_values}),
)
def test_a_residual_makes_the_one_of_the_other(default: Message, original: Message) -> None:
    for inside in ((), ("x",)):
        residual = difference(default, original, *inside)
        assert is_residual(residual)
        assert encode_canonical(apply(copy.deepcopy(default), residual)) == encode_canonical(original)
