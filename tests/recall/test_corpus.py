"""The recall benchmark's own ground: its conversations are what the docs say, and the search leads on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from benchmarks.recall import rankers
from benchmarks.recall.corpus import HALVES, Conversation, conversations, recall

_KINDS = {
    "single-hop",
    "multi-hop",
    "temporal",
    "negated",
    "other-speaker",
    "preference-changed",
    "unanswerable",
}


def _recall(found: Sequence[Conversation], make: Callable[[Conversation], rankers.Ranker]) -> float:
    scores: list[float] = []
    for conversation in found:
        ranker = make(conversation)
        scores += [recall(ranker(asked.question), asked.evidence) for asked in conversation.answerable()]
    return sum(scores) / len(scores)


def test_the_corpus_has_the_size_the_kinds_and_the_languages_it_says() -> None:
    every = [conversation for half in HALVES for conversation in conversations(half)]
    assert len(every) >= 20
    assert min(len(one.turns) for one in every) >= 100
    assert sum(len(one.questions) for one in every) >= 300
    assert {question.kind for one in every for question in one.questions} == _KINDS
    assert len({one.language for one in every}) >= 3


@pytest.mark.parametrize("half", HALVES)
def test_every_question_points_at_turns_that_are_there(half: str) -> None:
    for conversation in conversations(half):
        assert all(turn.time.tzinfo for turn in conversation.turns)
        assert {turn.speaker for turn in conversation.turns} == set(conversation.speakers)
        for question in conversation.questions:
            assert bool(question.evidence) == (question.kind != "unanswerable")
            assert all(0 <= number < len(conversation.turns) for number in question.evidence)


def test_the_search_leads_by_what_was_promised_where_the_words_have_spaces() -> None:
    found = [one for one in conversations("dev") if one.language != "zh"]
    assert _recall(found, rankers.recall_index) >= _recall(found, rankers.fts5) + 0.2
