"""Tests of the recall benchmark: the properties of its corpus, and the lead of the recall index over FTS5."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from benchmarks.recall import rankers
from benchmarks.recall.corpus import HALVES, Conversation, conversations, recall
from tests.processes import ROOT

_KINDS = {
    "single-hop",
    "multi-hop",
    "temporal",
    "negated",
    "other-speaker",
    "preference-changed",
    "unanswerable",
}


def _recall(corpus: Sequence[Conversation], make: Callable[[Conversation], rankers.Ranker]) -> float:
    scores: list[float] = []
    for conversation in corpus:
        ranker = make(conversation)
        scores += [recall(ranker(question.question), question.evidence) for question in conversation.answerable()]
    return sum(scores) / len(scores)


def test_corpus_has_the_documented_size_kinds_and_languages() -> None:
    corpus = [conversation for half in HALVES for conversation in conversations(half)]
    assert len(corpus) >= 20
    assert min(len(conversation.turns) for conversation in corpus) >= 100
    assert sum(len(conversation.questions) for conversation in corpus) >= 300
    assert {question.kind for conversation in corpus for question in conversation.questions} == _KINDS
    assert len({conversation.language for conversation in corpus}) >= 3


@pytest.mark.parametrize("half", HALVES)
def test_evidence_of_every_question_exists(half: str) -> None:
    for conversation in conversations(half):
        assert all(turn.time.tzinfo for turn in conversation.turns)
        assert {turn.speaker for turn in conversation.turns} == set(conversation.speakers)
        for question in conversation.questions:
            assert bool(question.evidence) == (question.kind != "unanswerable")
            assert all(0 <= number < len(conversation.turns) for number in question.evidence)


def test_recall_index_leads_fts5_in_languages_with_spaces() -> None:
    corpus = [conversation for conversation in conversations("dev") if conversation.language != "zh"]
    assert _recall(corpus, rankers.recall_index) >= _recall(corpus, rankers.fts5) + 0.2


def test_example_of_the_recall_page_finds_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "recall.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(program, {})  # the program is part of the documentation
    assert capsys.readouterr().out.startswith("2 {'neighbours':")
