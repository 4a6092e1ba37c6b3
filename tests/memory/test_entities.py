"""Tests of the names that are found in a text, and of the names that mean the same."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log.memory.entities import MOST_ENTITIES, alias_key, aliases, entities_of, unique_names
from agent_memory_log.memory.entities.languages import given_names, languages

FOUND: Sequence[tuple[str, tuple[str, ...]]] = [
    # people, places, organizations and products
    (
        "Yesterday I met Dr. Ana Ruiz in Paris. Ana works at Bank of America.",
        ("Dr. Ana Ruiz", "Paris", "Ana", "Bank of America"),
    ),
    ("Caroline went to a group with Melanie's kids.", ("Caroline", "Melanie")),
    ("Zorblax was late. We saw Zorblax again.", ("Zorblax",)),
    ("J. R. R. Tolkien wrote the Lord of the Rings.", ("J. R. R. Tolkien", "Lord of the Rings")),
    ("New York is loud, Great Britain is not.", ("New York", "Great Britain")),
    ("She uses Visual Studio Code at AT&T.", ("Visual Studio Code", "AT&T")),
    ("An iPhone 15 Pro and a BMW X5 run on macOS.", ("iPhone 15 Pro", "BMW X5", "macOS")),
    ("employer: Siemens", ("Siemens",)),
    ("Where does Ana work?", ("Ana",)),
    ("Rolls & Royce took HAT136 & HAT039 to the US.", ("Rolls & Royce", "HAT136", "HAT039", "US")),
    # addresses and ids
    (
        "Mail ana.ruiz@example.com, or see https://example.com/a?b=1.",
        ("ana.ruiz@example.com", "https://example.com/a?b=1"),
    ),
    ("INV-2024-001 pays order #4711 of Ticket ABC-123.", ("INV-2024-001", "#4711", "Ticket", "ABC-123")),
    ("it is 550e8400-e29b-41d4-a716-446655440000", ("550e8400-e29b-41d4-a716-446655440000",)),
    # German writes every noun with a capital letter
    ("Ich habe gestern meine Freundin Ana Ruiz in Bamberg getroffen.", ("Ana Ruiz", "Bamberg")),
    ("Frau Müller arbeitet bei Siemens und fährt nach Hause.", ("Frau Müller", "Siemens")),
    ("Der Hund heißt Bello. Die Wohnung ist groß.", ("Bello",)),
    ("Letzten Sommer fuhren wir mit dem Auto nach Italien.", ("Italien",)),
    # Spanish
    (
        "Ayer conocí a la Dra. Lucía Gómez de la Torre en Ciudad de México.",
        ("Dra. Lucía Gómez de la Torre", "Ciudad de México"),
    ),
    ("Me llamo José y vivo en Buenos Aires.", ("José", "Buenos Aires")),
    # French
    ("J'habite à Lyon avec Chloé et l'équipe d'Airbus.", ("Lyon", "Chloé", "Airbus")),
    ("Monsieur Dupont attend à la Gare de Lyon.", ("Monsieur Dupont", "Gare de Lyon")),
]

NOTHING = [
    "",
    "I think I've seen it, and I'm sure. Don't ask.",
    "On Monday we meet in March 2024.",
    "Travel Insurance: yes\nGift Card: no\nFlight 1 at 10:00 AM EST, ID unknown",
    "Running helps. Coffee is great. Deployment failed.",
    "run_linter: Always run the linter. Never commit early. rule: Run the tests first.",
    "Nie Emojis verwenden.",
    "Utilise un ton poli. Évite les listes. tono: Responde en una frase.",
    "THIS IS ALL SHOUTING AND SAYS NOTHING ABOUT BOB",
    "Die Katze schläft auf dem Sofa. Das Wetter ist schön, und die Arbeit macht Freude.",
    "Mañana voy al médico. Gracias.",
    "Demain je vais chez le médecin. Merci.",
    "用户喜欢北京",
    "a1b2 3.5 12:30 --- ... ???",
]


@pytest.mark.parametrize(("text", "names"), FOUND)
def test_names_are_found(text: str, names: tuple[str, ...]) -> None:
    assert entities_of(text) == names


@pytest.mark.parametrize("text", NOTHING)
def test_other_words_are_no_names(text: str) -> None:
    assert entities_of(text) == ()


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    names = entities_of(text)
    assert len(names) <= MOST_ENTITIES
    assert len({alias_key(name) for name in names}) == len(names)
    assert all(name.strip() for name in names)
    assert entities_of(text) == names


@given(st.lists(st.sampled_from(sorted(given_names())), min_size=1, max_size=20, unique_by=alias_key))
def test_every_known_name_inside_a_sentence_is_found(names: list[str]) -> None:
    titled = [name.title() for name in names]
    assert entities_of("yesterday we saw " + ", ".join(titled)) == tuple(titled)


ALIASES = [
    ("Dr. Ana Ruiz", "ana ruíz"),
    ("Prof. Dr. Ana Ruiz", "ANA  RUIZ"),
    ("Frau Ana Ruiz", "Ana Ruiz"),
    ("Straße", "STRASSE"),
    ("Dr Ruiz", "dr. ruiz"),
]
DIFFERENT = [
    ("Ana", "Ana Ruiz"),
    ("Ana Ruiz", "Ana Gómez"),
    ("Mr. Ruiz", "Mrs. Ruiz"),
    ("Dr. Ruiz", "Ruiz"),
    ("GPT-4", "GPT-4o"),
    ("M. Scott Peck", "Scott Peck"),
]


@pytest.mark.parametrize(("name", "alias"), ALIASES)
def test_aliases_have_the_same_key(name: str, alias: str) -> None:
    assert alias_key(name) == alias_key(alias)


@pytest.mark.parametrize(("name", "other"), DIFFERENT)
def test_names_that_may_mean_another_stay_apart(name: str, other: str) -> None:
    assert alias_key(name) != alias_key(other)


def test_the_longest_alias_takes_the_place_of_the_first() -> None:
    assert unique_names(["ana ruiz", "Bob", "Dr. Ana Ruíz", "BOB"]) == ("Dr. Ana Ruíz", "Bob")


@given(st.text())
def test_the_key_of_a_key_is_the_key(name: str) -> None:
    assert alias_key(alias_key(name)) == alias_key(name)


def test_a_long_name_is_not_kept_in_the_cache() -> None:
    name = "Dr. " + "x" * 1_000 + " Ana Ruiz"
    before = aliases._cached_key.cache_info()
    assert alias_key(name) == alias_key(name.removeprefix("Dr. "))
    assert aliases._cached_key.cache_info() == before


def test_words_are_in_lower_case_and_have_one_meaning() -> None:
    for language in languages().values():
        for words in (language.function_words, language.ordinary, language.openers, language.titles, language.joints):
            assert all(word == word.casefold() for word in words)
        assert not language.function_words & language.ordinary
        assert not language.function_words & language.openers
