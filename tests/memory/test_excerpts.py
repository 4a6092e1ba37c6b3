"""Tests of excerpts: a long message is shortened to the sentences that match a query."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log.memory.search.excerpts import excerpt

FILLER = "This is a sentence about the weather and other things of the day. " * 20


@given(text=st.text(max_size=400), query=st.text(max_size=40), length=st.integers(20, 200))
def test_an_excerpt_is_never_longer_than_its_limit(text: str, query: str, length: int) -> None:
    shortened = excerpt(text, query, length)
    assert len(shortened) <= max(length, 20)
    if len(text) <= length:
        assert shortened == text
    assert shortened == excerpt(text, query, length)


def test_the_matching_sentence_is_shown_from_any_place() -> None:
    fact = "The p95 latency rose to 640 ms after the move to eu-central-1."
    for text in (fact + FILLER, FILLER + fact + FILLER, FILLER + fact):
        shortened = excerpt(text, "how slow did it get after we moved the region? latency", 300)
        assert fact in shortened
        assert "…" in shortened


def test_neighbours_of_the_matching_sentence_are_shown_if_there_is_room() -> None:
    text = f"{FILLER}Which port does it use? It is 8443. Good. {FILLER}"
    assert "Which port does it use? It is 8443." in excerpt(text, "the port", 200)


def test_a_long_line_is_cut_around_its_first_matching_word() -> None:
    text = "x" * 2_000 + " port 8443 " + "y" * 2_000
    shortened = excerpt(text, "port", 100)
    assert "port 8443" in shortened
    assert len(shortened) <= 100


def test_a_text_without_a_matching_word_is_cut_at_its_end() -> None:
    assert excerpt(FILLER, "zebra", 50) == FILLER[:49] + "…"


def test_an_excerpt_of_a_large_text_takes_little_time() -> None:
    for text in ("a. " * 300_000, "." * 1_000_000, "\n" * 1_000_000, "word " * 200_000):
        begin = time.process_time()
        excerpt(text, "word a", 500)
        assert time.process_time() - begin < 5
