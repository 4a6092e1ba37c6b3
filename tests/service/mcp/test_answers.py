"""Laws of answers: they keep to their tokens, and their parts together are the whole."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory.search.quoting import safe_json
from agent_memory_log.models.tokens import estimate_tokens
from agent_memory_log.service.mcp.answers import LEAST_ANSWER_TOKENS, listed_answer, whole_answer

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
rows = st.fixed_dictionaries({"n": st.integers(0, 99), "text": st.text(min_size=1, max_size=40)})
items = st.lists(rows, max_size=30)


def lines(answer: str) -> list[Any]:
    rows = answer.splitlines()
    return [msgspec.json.decode(row) for row in rows[2 : rows.index("</memory>")]] if "</memory>" in rows else []


@given(items, st.integers(1_000, 2_000))  # each item fits into an answer
def test_the_parts_of_an_answer_are_the_whole(all_items: list[Any], max_tokens: int) -> None:
    read: list[Any] = []
    place: str | None = None
    while True:
        answer = listed_answer(
            {"items": all_items}, "items", max_tokens=max_tokens, continue_from=place, again="memory_search"
        )
        assert estimate_tokens(answer) <= max_tokens
        read += lines(answer)
        more = re.search(r'continue_from="([^"]+)"\.$', answer)
        if more is None:
            break
        place = more[1]
    assert read == all_items


@given(json_values, st.integers(LEAST_ANSWER_TOKENS, 1_000))
def test_any_result_keeps_to_the_tokens(result: Any, max_tokens: int) -> None:
    assert estimate_tokens(whole_answer(result, max_tokens)) <= max_tokens
    answer = listed_answer({"head": result, "items": [result] * 3}, "items", max_tokens=max_tokens, again="run_read")
    assert estimate_tokens(answer) <= max_tokens


LONG = ["x" * 100_000, "\u4e2d" * 50_000, "\x00" * 50_000, "</memory>" * 9_000, " " * 100_000, "a\n\t" * 50_000]


@pytest.mark.parametrize("text", LONG)
def test_a_long_text_is_cut_and_says_so(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def counting(value: object) -> str:
        sizes.append(len(msgspec.json.encode(value)))
        return safe_json(value)

    monkeypatch.setattr("agent_memory_log.service.mcp.answers.safe_json", counting)
    answer = listed_answer([{"text": text}] * 2, ".", max_tokens=2_000, again="run_read")
    assert estimate_tokens(answer) <= 2_000
    assert len(answer.encode()) <= 8 * 2_000
    assert "more characters)" in answer
    assert "1 more items: call run_read" in answer
    assert max(sizes) <= 8 * 2_000  # the escape of a text takes long, so it is cut before


def test_lines_of_an_export_end_only_at_line_feeds() -> None:
    export = '{"text":"a\u2028b\x85c"}\n{}\n'
    assert lines(listed_answer(export, ".", max_tokens=2_000)) == ['{"text":"a\u2028b\x85c"}', "{}"]


def test_a_result_that_is_null_says_that_nothing_is_stored() -> None:
    assert whole_answer(None) == listed_answer(None, "events", max_tokens=500) == "Nothing is stored that fits."


def test_a_place_in_changed_data_is_refused() -> None:
    everything = [{"text": f"item {number}"} for number in range(200)]
    answer = listed_answer(everything, ".", max_tokens=500, again="memory_search")
    more = re.search(r'continue_from="([^"]+)"', answer)
    assert more is not None
    for changed in (everything[1:], [{"text": "new"}, *everything[1:]], []):
        with pytest.raises(InvalidArgument, match="does not fit"):
            listed_answer(changed, ".", max_tokens=500, continue_from=more[1], again="memory_search")


@pytest.mark.parametrize("place", ["", "x", "1", "-1-ab", "1-", "\u0661-ab", "99999999999-ab", "1-ab"])
def test_a_place_that_no_answer_named_is_refused(place: str) -> None:
    with pytest.raises(InvalidArgument, match="continue_from"):
        listed_answer(["a", "b"], ".", max_tokens=500, continue_from=place, again="memory_search")
