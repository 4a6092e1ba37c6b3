"""Finds records that one new record can replace: near-duplicates, old episodes about one topic, and keys of a profile.

All functions are pure. Each record is compared with few others, so the work is linear in the number of records.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime
from math import ceil
from typing import Literal

import msgspec

from agent_memory_log.memory.conflicts.claims import read_claim
from agent_memory_log.memory.conflicts.comparing import compare
from agent_memory_log.memory.governance.ageing import strength_of
from agent_memory_log.memory.records.kinds import Episode, Fact, Preference, fold_key, fold_text, kind_named
from agent_memory_log.memory.records.record import RESTORES
from agent_memory_log.memory.records.reports.conflicts import CONTRADICTS
from agent_memory_log.memory.stream.state import Live
from agent_memory_log.memory.upkeep.mentions import words_in

SAME_WORDS = 0.8
"""The least share of the words of two near-duplicates that both have. One of them also has all words of the other."""

MOST_COMPARED = 16
"""The most records that a record is compared with for each of its rarest words: the latest ones."""

MOST_WORDS = 100
"""The most different words of a record that may be a near-duplicate."""

LEAST_EPISODES = 3
MOST_PARTS = 20
"""The least episodes and the most records of one group."""

GroupKind = Literal["duplicates", "episodes", "profile"]


class Group(msgspec.Struct, frozen=True):
    """Records that one new record can replace.

    Attributes:
        kind: ``duplicates``, ``episodes`` or ``profile``.
        records: The ids of the records, the oldest first.
        topic: The topic that they share, or the common part of their keys. ``""`` for near-duplicates.
    """

    kind: GroupKind
    records: tuple[str, ...]
    topic: str = ""


def may_join(live: Live, now: datetime) -> bool:
    """Return whether a record may be consolidated: it ages, has no open conflict, and no caller restored it."""
    kind = kind_named(live.memory.kind)
    is_alone = any(link.type in {RESTORES, CONTRADICTS} for link in live.memory.links)
    return not (live.is_expired(now) or is_alone or (kind is not None and not kind.ages))


def near_duplicates(lives: Sequence[Live], now: datetime) -> list[Group]:
    """Return groups of records without keys that have the same data and nearly the same words.

    One record of each pair has all words of the other, they share at least 80 % of their words, and neither contradicts
    the other. With the words of all records sorted by rarity, two such records share one of their first words
    (prefix filter, Chaudhuri et al. 2006). So only records that share a rare word are compared.
    """
    words = {
        live.id: own
        for live in lives
        if not live.memory.key
        and may_join(live, now)
        and 0 < len(own := frozenset(words_in(_text(live)))) <= MOST_WORDS
    }
    counts = Counter(word for own in words.values() for word in own)
    by_word: defaultdict[tuple[Hashable, str], list[Live]] = defaultdict(list)
    group_of: dict[str, list[str]] = {}
    for live in lives:
        if live.id not in words:
            continue
        own, data = words[live.id], _data_of(live)
        rarest_first = sorted(own, key=lambda word: (counts[word], word))
        places = [by_word[data, word] for word in rarest_first[: len(own) - ceil(SAME_WORDS * len(own)) + 1]]
        rivals = {other.id: other for place in places for other in place[-MOST_COMPARED:]}
        for place in places:
            place.append(live)
        match = next((other for other in rivals.values() if _is_same(live, other, words)), None)
        if match is not None:
            group = group_of.setdefault(match.id, [match.id])
            if len(group) < MOST_PARTS:
                group.append(live.id)
                group_of[live.id] = group
    return [Group("duplicates", tuple(group)) for record, group in group_of.items() if record == group[0]]


def old_episodes(lives: Sequence[Live], now: datetime, idle_days: float) -> list[Group]:
    """Return groups of three or more episodes of one category, month and topic that are unused for some days.

    The topic is the entity that most of the episodes share. An episode without entities has the run of its first
    evidence as its topic.
    """
    by_month: defaultdict[tuple[str, str, str], list[Live]] = defaultdict(list)
    for live in lives:
        data = live.data if live.memory.kind == Episode.kind and live.memory.valid_until is None else None
        if not isinstance(data, Episode) or not may_join(live, now) or strength_of(live, now).idle_days < idle_days:
            continue
        month = time_of(live).strftime("%Y-%m")
        by_month[fold_text(data.category), month, live.memory.memory_type].append(live)
    groups: list[Group] = []
    for (category, month, _), episodes in by_month.items():
        counts = Counter(topic for live in episodes for topic in _topics(live))
        by_topic: defaultdict[str, list[str]] = defaultdict(list)
        for live in episodes:
            topics = sorted(_topics(live), key=lambda topic: (-counts[topic], topic))
            if topics:
                by_topic[topics[0]].append(live.id)
        groups.extend(
            Group("episodes", part, f"{category}, {month}, {topic}")
            for topic, records in by_topic.items()
            for begin in range(0, len(records), MOST_PARTS)
            if len(part := tuple(records[begin : begin + MOST_PARTS])) >= LEAST_EPISODES
        )
    return groups


def keys_of_topic(lives: Sequence[Live], now: datetime, sizes: Sequence[int], budget: int) -> list[Group]:
    """Return groups of preferences or facts whose keys begin alike, the weakest first, until the profile fits.

    ``travel.seat`` and ``travel_meal`` begin alike. A record in the layer ``working`` stays alone.

    Args:
        lives: The records of the profile.
        now: The current time.
        sizes: The tokens of each record.
        budget: The tokens that the profile may have. Records in groups no longer count.
    """
    by_topic: defaultdict[tuple[str, str], list[tuple[float, int, Live]]] = defaultdict(list)
    for live, size in zip(lives, sizes, strict=True):
        strength = strength_of(live, now)
        topic = topic_of(live.memory.key)
        is_plain = isinstance(live.data, (Preference, Fact)) and live.memory.valid_until is None
        if is_plain and topic and strength.layer != "working" and may_join(live, now):
            value = strength.retrievability * (1 + live.memory.importance)
            by_topic[live.memory.kind, topic].append((value, size, live))
    keys = {(live.memory.kind, fold_key(live.memory.key)) for live in lives}
    excess = sum(sizes) - budget
    groups: list[Group] = []
    for (kind, topic), members in sorted(by_topic.items(), key=lambda item: max(part[0] for part in item[1])):
        if excess <= 0:
            break
        if len(members) > 1 and (kind, topic) not in keys:
            groups.append(Group("profile", tuple(live.id for _, _, live in members[:MOST_PARTS]), topic))
            excess -= sum(size for _, size, _ in members[:MOST_PARTS])
    return groups


def topic_of(key: str) -> str:
    """Return the first part of a folded key with several parts, otherwise ``""``."""
    folded = fold_key(key)
    ends = [end for mark in "._:/- " if (end := folded.find(mark)) > 0]
    return folded[: min(ends)] if ends else ""


def time_of(live: Live) -> datetime:
    """Return the time of the event or statement of a record."""
    data = live.data
    occurred = data.occurred_at if isinstance(data, Episode) else None
    return occurred or live.memory.valid_from or live.created


def _text(live: Live) -> str:
    return live.memory.text or live.data.describe()


def _data_of(live: Live) -> Hashable:
    """Return what near-duplicates have in common besides their words."""
    memory = live.memory
    return (memory.kind, memory.memory_type, repr(sorted(memory.data.items())), memory.valid_until)


def _is_same(live: Live, other: Live, words: dict[str, frozenset[str]]) -> bool:
    shorter, longer = sorted((words[live.id], words[other.id]), key=len)
    if not shorter <= longer or len(shorter) < SAME_WORDS * len(longer):
        return False
    return compare(read_claim(_text(other)), read_claim(_text(live))) is None


def _topics(live: Live) -> Iterable[str]:
    entities = {fold_text(entity) for entity in live.memory.entities}
    if entities:
        return entities
    return {f"{item.agent}/{item.run}" for item in live.memory.evidence[:1]}
