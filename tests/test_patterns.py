"""Tests that every regular expression of the library takes at most linear time."""

from __future__ import annotations

import re
import sys
from functools import cache
from itertools import chain
from types import ModuleType

import pytest

from agent_memory_log.memory.extraction import orders, outcomes, statements
from agent_memory_log.memory.extraction.phrases import ALL, Phrases
from agent_memory_log.memory.extraction.sentences import readable
from agent_memory_log.memory.extraction.statements import read_statements
from agent_memory_log.secrets.rules import Rule, phrase_rules, token_rules
from agent_memory_log.secrets.rules import names as secret_names
from tests.patterns import Prepare, is_only_matched, is_slow, library_patterns, patterns_of, slow_text

_LONGEST_SENTENCE = 160

# Some callers prepare a text before they use a pattern.
_PREPARED: dict[str, Prepare] = {
    "agent_memory_log.memory.extraction.phrases.": lambda text: readable(
        text.replace("\n", " ")
    ),  # one sentence without line breaks
    "agent_memory_log.memory.extraction.statements.": readable,
    f"{outcomes.__name__}._FEEDBACK": lambda text: text[:_LONGEST_SENTENCE],
}


@cache
def _anchored_phrases() -> frozenset[re.Pattern[str]]:
    fields = [field for field in Phrases.__struct_fields__ if is_only_matched(field, orders, statements)]
    return frozenset(getattr(language.phrases, field) for language in ALL for field in fields)


def slow_patterns(step: int) -> list[tuple[str, str, str]]:
    """Return the slow patterns, each with its name, its beginning and a text.

    Each pattern is tried on one of ``step`` texts. Patterns that follow each other begin with different texts.
    """
    return [
        (name, pattern.pattern[:80], text)
        for number, (name, pattern) in enumerate(library_patterns())
        if (text := _slow_text(name, pattern, number % step, step)) is not None
    ]


def _slow_text(name: str, pattern: re.Pattern[str], first: int, step: int) -> str | None:
    module, _, variable = name.rpartition(".")
    anchored = pattern in _anchored_phrases() or is_only_matched(variable, sys.modules[module])
    return slow_text(pattern, _prepare_of(name), anchored=anchored, first=first, step=step)


def test_patterns_take_linear_time() -> None:
    assert slow_patterns(10) == []


@pytest.mark.parametrize("head", ["I have ", "Ich habe ", "Tengo ", "J'ai ", "Ma fille a "])
def test_statements_with_a_long_number_are_read_in_linear_time(head: str) -> None:
    read_statements(head)  # compiles the patterns of the language
    assert not is_slow(read_statements, head, "7")


def _prepare_of(name: str) -> Prepare:
    return next((prepare for prefix, prepare in _PREPARED.items() if name.startswith(prefix)), str)


def test_all_patterns_of_a_module_are_collected() -> None:
    names = {name for name, _ in library_patterns()}
    assert {
        "agent_memory_log.transcript.names._PLAIN",
        "agent_memory_log.memory.extraction.phrases.ALL",
        "agent_memory_log.recall.words._any_words",
    } <= names
    sources = {pattern.pattern for _, pattern in library_patterns()}
    rules: list[Rule] = [*token_rules(), *phrase_rules(), *chain.from_iterable(secret_names().values())]
    assert {rule.pattern.pattern for rule in rules} | {rule.lead.pattern for rule in rules if rule.lead} <= sources
    module = ModuleType("module")
    module.__dict__.update(
        table={"key": [(re.compile("a"),)]}, bound=re.compile("b").search, own=re.compile("c"), text="d"
    )
    assert sorted(pattern.pattern for _, pattern in patterns_of(module)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "source",
    [
        r"\s+$",
        r"\.+(?=\s|\Z)",
        r"(a+)+$",
        r"(?:thanks\s*)+(?:\s*and)+!",
        r"value\s*\s*=",
        r"[a-z]+:",
        r"\"[^\n]*\"!",
        r"[\w.]+@",
        r"\d+(?:st|nd)",
        r"(?:a|a )*b",
    ],
)
def test_slow_patterns_are_detected(source: str) -> None:
    assert slow_text(re.compile(source)) is not None


@pytest.mark.parametrize("source", [r"[a-z]{1,60}:", r"(?<!\.)\.++(?=\s|\Z)", r"\bthanks?\b", r"\w+"])
def test_fast_patterns_pass(source: str) -> None:
    assert slow_text(re.compile(source)) is None


def test_patterns_that_are_only_matched_differ_from_those_that_are_searched_for() -> None:
    assert is_only_matched("indirect", orders, statements)
    assert is_only_matched("_LIST_MARK", statements)
    assert not is_only_matched("joint", orders, statements)
    assert not is_only_matched("unknown", orders)
