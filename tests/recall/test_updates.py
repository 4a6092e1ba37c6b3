"""Tests of questions about what holds now, about the latest and the first, and about one of many conversations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log.recall import Document, Embeddings, RecallIndex
from agent_memory_log.recall.changes import asks_for_now
from agent_memory_log.recall.questions import CAUSE, EVERY, FIRST, LATEST, wants

DAY = datetime(2026, 3, 2, 19, tzinfo=UTC)
CHATTER = (
    ("assistant", "Shall I make a checklist?"),
    ("user", "Not yet. What goes into a good soup?"),
    ("assistant", "Onions, stock and patience."),
)


def talks(*texts: str, speaker: str = "user") -> RecallIndex:
    """Return an index with a talk for each text, a week apart. The text comes first, and has the place as its id."""
    index = RecallIndex()
    for week, text in enumerate(texts):
        for position, (name, line) in enumerate([(speaker, text), *CHATTER]):
            index.add(
                Document(
                    id=str(week) if not position else f"{week}.{position}",
                    text=line,
                    session=f"week {week}",
                    position=position,
                    speaker=name,
                    time=DAY + timedelta(weeks=week, minutes=position),
                )
            )
    return index


def ids_of(index: RecallIndex, query: str, top_k: int = 10) -> list[str]:
    return [hit.id for hit in index.search(query, now=DAY + timedelta(weeks=20), top_k=top_k)]


@pytest.mark.parametrize(
    ("old", "new", "question"),
    [
        ("the launch is on 16 April", "we moved the launch to 23 May", "When is the launch?"),
        ("I booked pitch 18 at the farm for us", "so the farm put us on pitch 31 now", "Which pitch are we on?"),
        ("my physio is called Bronwyn", "Bronwyn left, so I see Idris now", "Who is my physio?"),
        ("pottery is on Tuesdays", "the teacher comes on Thursdays", "On which day is pottery?"),
        ("Chor ist mittwochs", "Greta kann nur freitags", "An welchem Tag ist Chor?"),
        ("the ferry leaves at 9", "the harbour says noon", "What time does the ferry leave?"),
        ("the table is for 8 people", "Bo says nine people come", "How many people is the table for?"),
        ("the parcel arrives on Monday", "the depot says the 22nd", "When does the parcel arrive?"),
        ("we are five on the night shift", "Carlos quit, so make it four", "How many are on the night shift?"),
        ("die Miete ist 680 Euro kalt", "die Miete ist jetzt doch 710 kalt", "Wie hoch ist die Miete?"),
        ("la boda es el 3 de junio", "al final la boda pasa a ser el 10 de julio", "¿Cuándo es la boda?"),
        ("la fête est le 3 juin", "finalement la fête est déplacée au 10 juillet", "C'est quand la fête ?"),
    ],
)
def test_a_later_value_comes_before_the_older_one(old: str, new: str, question: str) -> None:
    places = ids_of(talks(old, "a week of rain, nothing else", new), question)
    assert places.index("2") < places.index("0")


def test_only_a_question_about_what_holds_now_puts_a_change_first() -> None:
    index = talks("the launch is on 16 April", "we moved the launch to 23 May")
    assert not any("update" in hit.matched_by for hit in index.search("When was the launch originally?", now=DAY))
    assert "update" in index.search("When is the launch?", now=DAY, top_k=1)[0].matched_by


@given(st.permutations(range(4)))
def test_the_latest_of_several_changes_comes_first(days: list[int]) -> None:
    index = RecallIndex()
    for day in days:
        text = f"the launch is now on {day + 10} May"
        index.add(Document(id=str(day), text=text, session=str(day), speaker="user", time=DAY + timedelta(days=day)))
    assert ids_of(index, "When is the launch?", 1) == ["3"]


def test_an_assistant_and_people_of_another_circle_change_nothing() -> None:
    index = talks("the launch is on 16 April", speaker="Ines")
    for number, speaker in enumerate(("assistant", "Bo")):
        time = DAY + timedelta(weeks=2)
        text = "we moved the launch to 23 May now"
        index.add(Document(id=speaker, text=text, session=f"other {number}", speaker=speaker, time=time))
    hits = index.search("When is the launch?", now=DAY + timedelta(weeks=20))
    assert not any("update" in hit.matched_by for hit in hits)


@pytest.mark.parametrize(
    ("question", "wishes"),
    [
        ("what is the latest city that i visited", {LATEST}),
        ("when did i last see the dentist", {LATEST}),
        ("what did i eat last night", set[str]()),
        ("what happened on my last day", set[str]()),
        ("wann war ich zuletzt beim zahnarzt", {LATEST}),
        ("¿cuál fue la última ciudad?", {LATEST}),
        ("quelle est la dernière ville", {LATEST}),
        ("what was the first book that we read", {FIRST}),
        ("how many times did we eat sushi", {EVERY}),
        ("list all restaurants", {EVERY}),
        ("how many days did it take", set[str]()),
        ("wie viele bücher habe ich gelesen", {EVERY}),
        ("why did the pump break", {CAUSE}),
        ("pourquoi la pompe est cassée", {CAUSE}),
        ("what colour is the pump", set[str]()),
    ],
)
def test_a_question_wants_the_latest_the_first_every_instance_or_a_cause(question: str, wishes: set[str]) -> None:
    assert wants(question) == wishes


@pytest.mark.parametrize(
    ("question", "now"),
    [
        ("when is the launch", True),
        ("when was the launch", False),
        ("who is my former boss", False),
        ("wo wohne ich", True),
    ],
)
def test_a_question_about_the_past_does_not_ask_for_what_holds_now(question: str, now: bool) -> None:
    assert asks_for_now(question.split()) is now


def test_the_latest_and_the_first_are_the_latest_and_the_first() -> None:
    index = talks("we visited the city of Rome", "we visited the city of Oslo", "we visited the city of Bern")
    assert ids_of(index, "What is the latest city that we visited?", 1) == ["2"]
    assert ids_of(index, "What was the first city that we visited?", 1) == ["0"]


def test_a_name_in_the_question_finds_the_conversations_of_its_circle() -> None:
    index = RecallIndex()
    texts = (("Ines", "the old bath leaks again"), ("Tom", "I mended the bath, the leak is gone"))
    for session, names in (("a", ("Ines", "Tom")), ("b", ("Bo", "Mia"))):
        for position, (name, (_, text)) in enumerate(zip(names, texts, strict=True)):
            index.add(Document(id=f"{session}{position}", text=text, session=session, position=position, speaker=name))
    hits = index.search("What did Mia say about the leak in the bath?", now=DAY)
    assert hits[0].id == "b1"
    away = {hit.id for hit in hits if hit.matched_by.get("elsewhere", 0) < 0}
    assert away == {"a0", "a1"}


def test_circles_change_nothing_in_a_single_conversation() -> None:
    index = talks("Tom mended the bath", "Ines painted the bath", speaker="Ines")
    hits = index.search("What did Ines do with the bath?", now=DAY)
    assert not any("elsewhere" in hit.matched_by for hit in hits)


def test_tokens_of_rare_words_weigh_more_and_function_words_nothing() -> None:
    index = RecallIndex()
    index.use_model("letters", 3)
    axes = np.eye(3, dtype=np.float32)
    for number, (text, axis) in enumerate((("the pump", 0), ("the cellar", 1), ("a cellar", 1), ("the roof", 2))):
        index.add(Document(id=text, text=text, position=number))
        index.put_vectors([text], Embeddings(axes[axis : axis + 1], (axes[axis : axis + 1],)))
    tokens = axes[[2, 2, 0]]  # two function words that resemble the roof, and the pump
    weighed = Embeddings(axes[:1], (tokens,), (("where", "is", "pump"),))
    (best, *rest) = index.search("where is pump", now=DAY, embedded=weighed)
    assert best.id == "the pump"
    assert not any("vectors" in hit.matched_by for hit in rest)


@pytest.mark.parametrize(("speaker", "name"), [("Elizabeth", "Liz"), ("Liz", "Elizabeth"), ("José", "Pepe")])
def test_a_short_form_of_a_name_names_the_speaker(speaker: str, name: str) -> None:
    index = talks("the pump broke", speaker=speaker)
    index.add(Document(id="Bo", text="the pump broke", session="week 0", position=9, speaker="Bo", time=DAY))
    hits = index.search(f"What did {name} say about the pump?", now=DAY)
    assert hits[0].id == "0"
    assert "speaker" in hits[0].matched_by


def test_the_speaker_who_is_named_first_gains_more_than_the_second() -> None:
    index = RecallIndex()
    for position, speaker in enumerate(("Tom", "Ines")):
        index.add(
            Document(id=speaker, text="the pump broke", session="s", position=position, speaker=speaker, time=DAY)
        )
    assert ids_of(index, "What did Ines tell Tom about the pump?") == ["Ines", "Tom"]
    assert ids_of(index, "What did Tom tell Ines about the pump?") == ["Tom", "Ines"]
