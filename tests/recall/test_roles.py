"""Tests of search in conversations of a user and an assistant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from agent_memory_log.recall import Document, RecallIndex
from agent_memory_log.recall.questions import role_asked_about

NOW = datetime(2026, 11, 24, tzinfo=UTC)


def index_of(*turns: tuple[str, str]) -> RecallIndex:
    index = RecallIndex()
    for number, (speaker, text) in enumerate(turns):
        time = NOW + timedelta(minutes=number)
        index.add(Document(id=str(number), text=text, session="s", position=number, speaker=speaker, time=time))
    return index


@pytest.mark.parametrize(
    ("question", "role"),
    [
        ("what is my rent?", "user"),
        ("which port did I mention to you?", "user"),
        ("can you tell me what my rent is?", "user"),
        ("what did you suggest for my index?", "assistant"),
        ("do you remember our budget?", "user"),
        ("which index did you recommend?", "assistant"),
        ("was hast du mir empfohlen?", "assistant"),
        ("kannst du mir sagen, wie hoch meine Miete ist?", "user"),
        ("how high is the rent?", ""),
    ],
)
def test_a_question_asks_about_the_person_of_its_first_pronoun(question: str, role: str) -> None:
    assert role_asked_about(question.rstrip("?").replace(",", "").casefold().split()) == role


TALK = (
    ("user", "Our p95 latency went from 180 to 640 ms after the move. Can you look at this query?"),
    ("assistant", "A p95 latency of 640 ms after the move is high. I suggest an index on created_at. " * 4),
    ("user", "Thanks, and the weather?"),
    ("assistant", "It is sunny."),
)


def test_a_request_with_a_fact_comes_before_the_answer_that_repeats_it() -> None:
    hits = index_of(*TALK).search("what was our p95 latency after the move?", now=NOW, top_k=2)
    assert [hit.id for hit in hits] == ["0", "1"]


def test_a_question_about_the_assistant_finds_its_suggestion() -> None:
    hits = index_of(*TALK).search("which index did you suggest for the latency after the move?", now=NOW, top_k=1)
    assert [hit.id for hit in hits] == ["1"]
    assert "role" in hits[0].matched_by


def test_talks_between_people_are_ranked_as_before() -> None:
    talk = [({"user": "Ann", "assistant": "Ben"}[speaker], text) for speaker, text in TALK]
    hits = index_of(*talk).search("what was our p95 latency after the move?", now=NOW, top_k=2)
    assert "role" not in hits[0].matched_by
    assert [hit.id for hit in hits] == ["1", "0"]
