"""Tests how two statements are compared, and that the search for conflicts of a subject costs linear work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory_log.events.event import new_event
from agent_memory_log.events.payloads import EventData
from agent_memory_log.memory.conflicts.claims import read_claim
from agent_memory_log.memory.conflicts.comparing import compare
from agent_memory_log.memory.conflicts.finding import MOST_CONFLICTS, conflicts_in, conflicts_of
from agent_memory_log.memory.conflicts.index import MOST_CANDIDATES, Claims, claims_of
from agent_memory_log.memory.conflicts.vocabulary import fold, language_of
from agent_memory_log.memory.records.reports.conflicts import Conflict
from agent_memory_log.memory.stream.payloads import MemoryChanged, MemoryClosed, MemoryRemembered
from agent_memory_log.memory.stream.state import Live, State
from tests.effort import EXAMPLES

NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)

PAIRS = [
    ("My favourite colour is blue", "My favourite colour is green", "changed"),
    ("I work at Siemens", "I work at Bosch", "changed"),
    ("I work at Siemens as an engineer", "I started a new job at Bosch", "changed"),
    ("I run 5 km every morning", "I run 10 km every morning", "changed"),
    ("My rent is 900 euros", "My rent is 950 euros", "changed"),
    ("The meeting is on Monday", "The meeting is on Tuesday", "changed"),
    ("My flight is at 9 am", "My flight leaves at 11:30", "changed"),
    ("I drive a Honda", "I drive a Tesla now", "changed"),
    ("Meine Lieblingsfarbe ist blau", "Meine Lieblingsfarbe ist rot", "changed"),
    ("Ich wohne in Bern", "Ich bin nach Lyon gezogen", "changed"),
    ("Vivo en Madrid", "Me mudé a Sevilla", "changed"),
    ("J'habite à Paris", "J'ai déménagé à Lyon", "changed"),
    ("I drink coffee", "I no longer drink coffee", "contradiction"),
    ("I never eat breakfast", "I eat breakfast every day", "contradiction"),
    ("I am a vegetarian", "I had a great steak last night", "contradiction"),
    ("I don't have any siblings", "My brother lives in Rome", "contradiction"),
    ("I'm married", "I'm divorced", "contradiction"),
    ("I love spicy food", "I can't stand spicy food", "contradiction"),
    ("I am allergic to peanuts", "I ate peanuts yesterday", "contradiction"),
    ("I prefer dark mode", "I prefer light mode", "contradiction"),
    ("Ich spreche kein Französisch", "Ich spreche fließend Französisch", "contradiction"),
    ("No tengo mascotas", "Mis dos gatos duermen conmigo", "contradiction"),
    ("J'aime le camping", "Je déteste le camping", "contradiction"),
    ("The lift works", "The lift is broken", "contradiction"),
    ("The lake is safe to swim in", "The lake is unsafe", "contradiction"),
    ("I'm left-handed", "I'm right-handed", "contradiction"),
    ("My son plays the cello", "He stopped playing the cello", "contradiction"),
    ("I still run before breakfast", "I gave up running after the accident", "contradiction"),
    ("Das Café ist sonntags offen", "Sonntags ist das Café geschlossen", "contradiction"),
    ("The meeting is at 18 o'clock", "The meeting is at 18:45", "changed"),
    ("Estoy viviendo en Zaragoza", "Desde septiembre vivo en Huesca", "changed"),
    ("The wedding is in a barn", "We moved the wedding to the town hall", "changed"),
    ("My manager hates long meetings", "Their manager loves long meetings", None),
    ("I'm a vegetarian", "I cooked a chicken for my guests", None),
    ("I never work on Sundays", "I worked on Saturday", None),
    ("The lift works", "The lift is not broken", None),
    ("I'm vegan", "I'm not a vegetarian", None),
    ("I work nights", "Write to me by email, never call, I can't pick up at work", None),
    ("address: Lindenweg 12, 04103 Leipzig", "I moved to Leipzig last month", None),
    ("The heating in the kitchen is not warm", "The heating in the bathroom is warm", None),
    ("Mi abuelo vive en Soria", "Mi abuela vive en Burgos", None),
    ("I ran 10 km on Monday", "I ran 6 km on Thursday", None),
    ("I don't drink coffee after 4pm", "I drink coffee in the morning", None),
    ("I don't eat meat", "My husband eats meat", None),
    ("My name is Anna", "My sister's name is Eva", None),
    ("My dog is called Rex", "My cat is called Tom", None),
    ("My rent is 900 euros", "My commute is 40 minutes", None),
    ("I like tea", "I like coffee", None),
    ("I have a dog", "I have a cat", None),
    ("The red bike costs 300 euros", "The blue bike costs 450 euros", None),
    ("The jacket is waterproof", "The trousers aren't waterproof", None),
    ("The trip to Wales was in April", "The trip to Scotland is in August", None),
    ("The exam wasn't easy", "The exam wasn't hard", None),
    ("Dogs are allowed in the garden", "You can't bring dogs into the garden", "contradiction"),
    ("I love hiking", "I love hiking in the Alps", None),
    ("I speak German", "I speak French", None),
    ("I don't eat meat", "Should I eat meat?", None),
    ("Ich trinke keinen Kaffee", "Mein Mann trinkt gerne Kaffee", None),
]
"""Two statements, and the kind of their conflict."""


@pytest.mark.parametrize(("earlier", "later", "kind"), PAIRS)
def test_two_statements_conflict_if_both_cannot_be_true(earlier: str, later: str, kind: str | None) -> None:
    difference = compare(read_claim(earlier), read_claim(later))
    assert (difference and difference.kind) == kind


def test_statements_about_different_things_do_not_conflict() -> None:
    texts = [text for earlier, later, _ in PAIRS for text in (earlier, later)]
    claims = [read_claim(text) for text in texts]
    languages = [language_of(fold(text).split()) for text in texts]
    wrong = [
        (texts[first], texts[second])
        for first in range(0, len(texts), 2)
        for second in range(first + 2, len(texts))
        if languages[first] is languages[second] and compare(claims[first], claims[second]) is not None
    ]
    pairs = len(texts) * (len(texts) - 2) / 2
    assert len(wrong) / pairs < 0.02, wrong  # some of these statements do contradict each other


@settings(max_examples=EXAMPLES * 4, deadline=None)
@given(st.text(max_size=80) | st.sampled_from([text for pair in PAIRS for text in pair[:2]]), st.text(max_size=80))
def test_any_text_can_be_compared_and_no_text_contradicts_itself(first: str, second: str) -> None:
    claim = read_claim(first)
    compare(claim, read_claim(second))
    compare(read_claim(second), claim)
    assert compare(claim, read_claim(first)) is None or _denies_itself(first)


def _denies_itself(text: str) -> bool:
    stances = {clause.stance for clause in read_claim(text).clauses}
    return len(stances) > 1 or any(clause.denied for clause in read_claim(text).clauses)


def live_of(number: int, text: str, *, end: datetime | None = None, start: datetime | None = None) -> Live:
    memory = MemoryRemembered("note", {}, text=text, valid_until=end, valid_from=start)
    return Live(f"r{number}", number, NOW, NOW, memory)


def state_of(texts: Iterable[str]) -> State:
    lives = [live_of(number, text) for number, text in enumerate(texts, 1)]
    state = State(None, lives)
    state.version = len(lives)
    return state


def all_conflicts(state: State, limit: int) -> list[Conflict]:
    conflicts: list[Conflict] = []
    after, more = 0, True
    while more:
        part = conflicts_in(state, NOW, after, limit)
        conflicts += part.conflicts
        assert part.position > after or not part.more
        after, more = part.position, part.more
    return conflicts


TEXTS = st.lists(st.sampled_from([text for pair in PAIRS for text in pair[:2]]), max_size=30)


@settings(max_examples=EXAMPLES, deadline=None)
@given(TEXTS, st.integers(1, 40))
def test_slices_of_any_size_give_the_conflicts_of_each_record_once(texts: Sequence[str], limit: int) -> None:
    state = state_of(texts)
    each = [conflict for live in state.records.values() for conflict in conflicts_of(state, live, NOW)]
    assert all_conflicts(state, limit) == each
    assert len({(conflict.record, conflict.other) for conflict in each}) == len(each)
    assert all(int(conflict.record[1:]) > int(conflict.other[1:]) for conflict in each)


# With more records, the number of those that are gone decides which words are common.
FEW_TEXTS = st.lists(st.sampled_from([text for pair in PAIRS for text in pair[:2]]), max_size=MOST_CONFLICTS + 1)


@settings(max_examples=5 * EXAMPLES, deadline=None)
@given(FEW_TEXTS, st.integers(1, 9), st.data())
def test_an_index_that_follows_the_state_equals_a_new_one(
    texts: Sequence[str], limit: int, data: st.DataObject
) -> None:
    state = State()
    for number, text in enumerate(texts, 1):
        payload: EventData = MemoryRemembered("note", {}, text=text)
        is_new: bool = not state.records or data.draw(st.booleans())
        if not is_new:
            record = data.draw(st.sampled_from(sorted(state.records)))
            payload = data.draw(
                st.sampled_from([MemoryChanged(record, ("text",), text=text), MemoryClosed((record,), "archived")])
            )
        event = msgspec.structs.replace(new_event(payload, timestamp=NOW), seq=number)
        state.fold((event,), number)
        claims_of(state)
    fresh = Claims()
    fresh.update(state)
    for live in state.records.values():
        warm = [record for record in claims_of(state).candidates(live) if record in state.records]
        assert set(warm) == set(fresh.candidates(live))
    reopened = State(state.fields(), state.records.values())
    assert sorted(all_conflicts(state, limit), key=str) == sorted(all_conflicts(reopened, 9), key=str)


def test_records_that_were_never_true_together_do_not_conflict() -> None:
    state = State(None, [live_of(1, "I love jazz", end=NOW + timedelta(days=1)), live_of(2, "I hate jazz", start=NOW)])
    assert len(all_conflicts(state, 10)) == 1
    state = State(
        None,
        [
            live_of(1, "I love jazz", end=NOW + timedelta(days=1)),
            live_of(2, "I hate jazz", start=NOW + timedelta(days=2)),
        ],
    )
    assert all_conflicts(state, 10) == []


@pytest.mark.parametrize(
    "form",
    [
        "I {denial}drink coffee with sugar",  # all records share all words
        "I {denial}drink brand{few} coffee",
        "I {denial}use tool{pair}",
    ],
)
def test_the_work_for_all_records_is_linear(form: str) -> None:
    def text(number: int) -> str:
        return form.format(denial="never " * (number % 2), few=number % 97, pair=number // 2)

    work: list[int] = []
    for count in (1_000, 10_000):
        state = state_of(map(text, range(count)))
        conflicts = all_conflicts(state, 500)
        claims = claims_of(state)
        assert claims.compared <= MOST_CANDIDATES * count
        assert len(conflicts) <= MOST_CONFLICTS * count
        work.append(claims.compared)
    assert work[1] <= 10 * work[0] * 1.1 + 1


def test_words_that_most_records_share_lead_to_no_comparison() -> None:
    state = state_of(f"I {'never ' * (number % 2)}drink coffee with sugar" for number in range(100))
    assert all_conflicts(state, 500) == []
    assert claims_of(state).compared == 0
    rare = state_of(
        [*(f"I drink coffee with sugar {number}" for number in range(100)), "I own a boat", "I own no boat"]
    )
    assert [(conflict.record, conflict.other) for conflict in all_conflicts(rare, 500)] == [("r102", "r101")]


def test_a_long_text_costs_no_more_than_its_beginning() -> None:
    long = read_claim("I love jazz " * 100_000)
    assert len(long.words) < 10  # only the beginning is read
