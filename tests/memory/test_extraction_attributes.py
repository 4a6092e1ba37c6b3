"""Tests of the attributes that the rules read: diet, work, family, pets, likes and others, in four languages."""

from __future__ import annotations

import pytest

from agent_memory_log.memory.extraction.statements import read_statements


def read(text: str) -> list[tuple[str, str]]:
    return [(statement.data.key, statement.data.value) for statement in read_statements(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Remember that I'm vegetarian.", ("diet", "vegetarian")),
        ("i'm allergic to shellfish", ("allergy_shellfish", "shellfish")),
        ("i work nights as a nurse", ("job", "nurse")),
        ("I'm a software engineer from Leeds.", ("job", "software engineer")),
        ("I work at Shell and I hate it.", ("employer", "Shell")),
        ("I moved to Leeds last month.", ("home", "Leeds")),
        ("i have two golden retrievers.", ("pets_two_golden_retrievers", "two golden retrievers")),
        ("By the way, my dog's name is Rex.", ("dog_name", "Rex")),
        ("My wife is called Anna.", ("wife_name", "Anna")),
        ("I have three kids and no time.", ("kids", "three kids")),
        ("my favourite band is radiohead", ("favorite_band", "radiohead")),
        ("i like to ski", ("likes_ski", "to ski")),
        ("I can't stand mustard.", ("dislikes_mustard", "mustard")),
        ("my dad was a truck driver", ("dad_job", "truck driver")),
        ("i grew up on a farm in idaho", ("grew_up", "on a farm in idaho")),
        ("Keep answers short.", ("answer_length", "short")),
        ("Please don't use emojis.", ("emoji_use", "don't use emojis")),
        ("I speak German, can you translate that?", ("languages", "German")),
        ("Ich bin Vegetarierin.", ("diet", "Vegetarierin")),
        ("Ich bin allergisch gegen Nüsse.", ("allergy_nüsse", "Nüsse")),
        ("Ich trinke lieber Tee als Kaffee.", ("preferred_kaffee_or_tee", "Tee als Kaffee")),
        ("Mein Hund heißt Bello.", ("hund_name", "Bello")),
        ("Ich habe drei Kinder.", ("children", "drei Kinder")),
        ("Bitte keine Emojis!", ("emoji_use", "keine Emojis")),
        ("Soy vegetariana.", ("diet", "vegetariana")),
        ("Trabajo en Telefónica.", ("employer", "Telefónica")),
        ("Mi perro se llama Toby.", ("perro_name", "Toby")),
        ("Me encanta el chocolate.", ("likes_chocolate", "el chocolate")),
        ("Je suis allergique aux arachides.", ("allergy_arachides", "arachides")),
        ("Mon chien s'appelle Rex.", ("chien_name", "Rex")),
        ("Je parle français et un peu espagnol.", ("languages", "français et un peu espagnol")),
        ("Je n'aime pas la coriandre.", ("dislikes_coriandre", "la coriandre")),
    ],
)
def test_attributes_of_the_user_are_read(text: str, expected: tuple[str, str]) -> None:
    assert expected in read(text)


@pytest.mark.parametrize(
    "text",
    [
        "I love it!",
        "I like your answer.",
        "I love how you did that.",
        "I like the second option.",
        "I have a question.",
        "I have an error in line 3.",
        "I'm tired.",
        "I am from the support team.",
        "If I were vegan, what would I eat?",
        "My friend is allergic to nuts.",
        "She says I'm allergic to nuts.",
        "I'm engaged in a discussion.",
        "I would love to help.",
        "Is my favourite band good?",
        'Translate: "I\'m allergic to nuts and I work at Shell."',
        "> I'm vegetarian",
        "Ich mag es nicht.",
        "Wenn ich Vegetarier wäre, was würde ich essen?",
        "No me gusta eso.",
        "J'aime bien cette idée.",
    ],
)
def test_other_sentences_give_no_attribute(text: str) -> None:
    assert read(text) == []
