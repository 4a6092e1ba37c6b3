"""Compares two statements of one person: whether the later one contradicts the earlier one, or gives a new value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from agent_memory_log.memory.conflicts.claims import HELPED, OTHER, Claim, Clause
from agent_memory_log.memory.conflicts.vocabulary import PREFIXES
from agent_memory_log.memory.records.reports.conflicts import ConflictKind

_STUB = 4
"""The number of characters from which a word is the beginning of a compound: ``Chor`` and ``Chorprobe``."""

_FEW = 4
"""Two statements have one topic if they share one in four words of the shorter statement."""

_SURE = 2
"""The number of shared words that need no other sign that both statements have one topic."""

_CLOSE = 2
"""The largest ratio of two numbers that may be two values of one thing if the statements share only one word."""


_PREFIXED = 3
"""The least characters of a stem that a prefix denies."""


class Difference(msgspec.Struct, frozen=True, gc=False):
    """Why two statements cannot both be true. See ``Conflict``."""

    kind: ConflictKind
    reason: str


def compare(earlier: Claim, later: Claim) -> Difference | None:
    """Return the difference of two statements, or None if both can be true."""
    if earlier.unreal or later.unreal or _are_two_things(earlier, later):
        return None
    return next((difference for rule in _RULES if (difference := rule(earlier, later)) is not None), None)


def _are_two_things(earlier: Claim, later: Claim) -> bool:
    """Return whether the statements begin with different subjects, which the other statement does not mention."""
    subject, other_subject = earlier.subject, later.subject
    if not (subject and other_subject) or subject == other_subject:
        return False
    return not (_shared({subject}, later.words) or _shared({other_subject}, earlier.words))


def _pairs(earlier: Claim, later: Claim) -> Iterator[tuple[Clause, Clause]]:
    for first in earlier.clauses:
        for second in later.clauses:
            if _may_be_one_person(first.person, second.person):
                yield first, second


def _may_be_one_person(first: str, second: str) -> bool:
    if first == second:
        return True
    if not (first and second):
        return not (first or second).startswith(HELPED)
    return OTHER in {first, second} and "me" not in {first, second}


def _shared(first: AbstractSet[str], second: AbstractSet[str]) -> int:
    """Return how many words of the first are in the second, also as a part of a compound."""
    return sum(word in second or any(_same_family(word, other) for other in second) for word in first)


def _differ(sides: Mapping[str, int], other_sides: Mapping[str, int]) -> bool:
    """Return whether the words are on two sides of one row."""
    return bool(sides and other_sides) and any(sides.get(row, side) != side for row, side in other_sides.items())


def _negates(words: AbstractSet[str], other_words: AbstractSet[str]) -> bool:
    """Return whether one has a word that the other has with a prefix: "safe" and "unsafe"."""
    return any(
        f"{prefix}{word}" in longer
        for shorter, longer in ((words, other_words), (other_words, words))
        for word in shorter
        if len(word) >= _PREFIXED
        for prefix in PREFIXES
    )


def _are_other_days(values: AbstractSet[str], other_values: AbstractSet[str]) -> bool:
    """Return whether both name days or months, and no common one."""
    if not (values and other_values):
        return False
    days, other_days = ({value for value in each if value[0].isalpha()} for each in (values, other_values))
    return bool(days and other_days) and not (days & other_days or "weekend" in days | other_days)


def _same_family(word: str, other: str) -> bool:
    return (word.startswith(other) or other.startswith(word)) and min(len(word), len(other)) >= _STUB


def _denied(earlier: Claim, later: Claim) -> Difference | None:
    """One statement denies or dislikes what the other asserts or likes."""
    if _differ(earlier.scopes, later.scopes) or _are_other_days(earlier.values, later.values):
        return None
    shared = _shared(earlier.words, later.words)
    same_topic = shared and shared * _FEW >= min(len(earlier.words), len(later.words))
    for first, second in _pairs(earlier, later):
        if (
            first.stance == second.stance
            or _differ(first.opposites, second.opposites)
            or _differ(first.states, second.states)
        ):
            continue
        denying, asserting, other = (first, second, later) if first.stance < 0 else (second, first, earlier)
        if denying.limits and not _shared(denying.limits, asserting.words):
            continue
        if denying.attitude and not any(clause.attitude and clause.stance > 0 for clause in other.clauses):
            continue
        if same_topic or denying.group_names & asserting.groups:
            return Difference("contradiction", "denied")
    return None


def _opposite(earlier: Claim, later: Claim) -> Difference | None:
    """The statements name two states that exclude each other, or one denies what the other has or does."""
    pairs = tuple(_pairs(earlier, later))
    opposed = _shared(earlier.words, later.words) and any(
        first.stance == second.stance > 0
        and (_differ(first.opposites, second.opposites) or _negates(first.words, second.words))
        for first, second in pairs
    )
    if opposed or any(
        first.stance == second.stance > 0 and _differ(first.states, second.states) for first, second in pairs
    ):
        return Difference("contradiction", "opposite")
    for denying, asserting in ((earlier, later), (later, earlier)):
        owned = frozenset[str]().union(*(clause.owned for clause in asserting.clauses))
        for clause in denying.clauses:
            if (
                clause.person in _USER
                and (clause.denied | (clause.group_names if clause.stance < 0 else frozenset())) & owned
            ):
                return Difference("contradiction", "opposite")
    if any(
        denying.denied & asserting.groups and asserting.stance > 0
        for pair in pairs
        for denying, asserting in (pair, pair[::-1])
    ):
        return Difference("contradiction", "opposite")
    return None


_USER = frozenset(("", "me"))


def _valued(earlier: Claim, later: Claim) -> Difference | None:
    """The statements say the same with different numbers or dates."""
    first, second = earlier.values, later.values
    if first <= second or second <= first or (earlier.units and later.units and not earlier.units & later.units):
        return None
    if _differ(earlier.scopes, later.scopes) or not _is_alike(earlier, later):
        return None
    same_words = _shared(earlier.words, later.words)
    has_other_words = not later.began and same_words < min(len(earlier.words), len(later.words))
    if ((earlier.units and later.units) or has_other_words) and _are_other_days(first, second):  # two events
        return None
    shared = same_words + len(first & second)
    about = shared or earlier.topics & later.topics or earlier.units & later.units
    signs = (same_words > 0, later.began, _are_close(first - second, second - first))
    if shared >= _SURE or (about and sum(signs) > 1):
        return Difference("changed", "number")
    return None


def _is_alike(earlier: Claim, later: Claim) -> bool:
    """Return whether two clauses about one person both assert something, or both deny something."""
    return any(first.stance == second.stance for first, second in _pairs(earlier, later))


def _are_close(first: AbstractSet[str], second: AbstractSet[str]) -> bool:
    """Return whether two values are of one size, such as 38 and 45, or of one kind, such as two days."""
    sizes, other_sizes = ([_size(value) for value in values] for values in (first, second))
    return any(
        size == other or (min(size, other) > 0 and max(size, other) <= _CLOSE * min(size, other))
        for size in sizes
        for other in other_sizes
    )


def _size(value: str) -> float:
    """Return a number as it is, and -1 for a day or month, -2 for a clock time."""
    if not value[0].isdigit():
        return -1
    if ":" in value:
        return -2
    try:
        return float(value.replace(",", "."))
    except ValueError:  # more than one separator, as in a date
        return -1


def _replaced(earlier: Claim, later: Claim) -> Difference | None:
    """The later statement gives another value to the same attribute, or says that something changed."""
    shared = _shared(earlier.words, later.words)
    if shared in {len(earlier.words), len(later.words)} or not _is_alike(earlier, later):
        return None
    renamed = earlier.names and later.names and earlier.names.isdisjoint(later.names)
    alike = shared * 2 >= max(len(earlier.words), len(later.words))
    favorite = all(any(clause.attitude for clause in claim.clauses) for claim in (earlier, later))
    if earlier.attribute and earlier.attribute == later.attribute and (renamed or alike or favorite):
        return Difference("changed", "attribute")
    shared = _shared(earlier.words - later.names, later.words)  # a name in both is one value, and not another one
    about = shared + len(earlier.topics & later.topics)
    same_topic = shared and shared * _FEW >= min(len(earlier.words), len(later.words))
    if later.began and (same_topic or (about and earlier.attribute)):
        return Difference("changed", "replaced")
    return None


_RULES: tuple[Callable[[Claim, Claim], Difference | None], ...] = (_valued, _denied, _opposite, _replaced)
