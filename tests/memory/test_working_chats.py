"""Measures search and context on working chats with an assistant, whose author had not seen the rules."""

from __future__ import annotations

import pytest

from agent_memory_log import AssistantMessage, UserMessage, new_event, open_sync_store
from agent_memory_log.memory import Principal, SyncMemoryClient
from benchmarks.recall import rankers
from benchmarks.recall.corpus import Conversation, conversations, recall

CHATS = conversations("chats")
MESSAGES = {"user": UserMessage, "assistant": AssistantMessage}


def test_chats_have_the_documented_size() -> None:
    assert sum(len(turn.text.split()) for chat in CHATS for turn in chat.turns) >= 20_000
    assert sum(len(chat.questions) for chat in CHATS) >= 250


@pytest.mark.parametrize("chat", CHATS, ids=["first", "second"])
def test_first_ten_hits_hold_the_evidence(chat: Conversation) -> None:
    search, full_text = rankers.recall_index(chat), rankers.fts5(chat)
    questions = chat.answerable()
    index_share = sum(recall(search(question.question), question.evidence) for question in questions) / len(questions)
    fts5_share = sum(recall(full_text(question.question), question.evidence) for question in questions) / len(questions)
    assert index_share >= max(fts5_share, 0.97)


@pytest.mark.parametrize("chat", CHATS, ids=["first", "second"])
def test_context_of_2000_tokens_holds_the_answer(chat: Conversation) -> None:
    with open_sync_store("memory:") as store:
        user = SyncMemoryClient(store, count_tokens=lambda text: (len(text) + 3) // 4).of(Principal("t", {"user": "u"}))
        for session in sorted({turn.session for turn in chat.turns}):
            turns = [turn for turn in chat.turns if turn.session == session]
            events = [new_event(MESSAGES[turn.speaker](message=turn.text), timestamp=turn.time) for turn in turns]
            store.append_events("agent", str(session), *events)
            user.link_run("agent", str(session))
        questions = chat.answerable()
        answered = sum(
            question.answer in user.context(question.question, max_tokens=2000).text for question in questions
        )
    assert answered / len(questions) >= 0.95
