"""Finds the records that may have the topic of a record: those that share its rarest words.

The index of a state is made when it is first needed. Later calls add only what changed since.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import takewhile
from weakref import WeakKeyDictionary

import msgspec

from agent_memory_log.memory.conflicts.claims import Claim, read_claim, terms_of
from agent_memory_log.memory.records.kinds import Episode
from agent_memory_log.memory.stream.state import Live, State

MOST_WITH_TERM = 24
"""The most records that are looked at for one term: the latest ones. This bounds the work for each record."""

COMMON, COMMON_SHARE = 16, 20
"""A term of more than 16 records, and of more than a twentieth of all records, says too little about a topic."""

MOST_CANDIDATES = 16
"""The most records that a record is compared with."""

_OWN_EPISODES = frozenset({"error", "task_result"})
"""The categories of episodes about the work of the agent. They happened, so they contradict nothing."""


class _Entry(msgspec.Struct, gc=False):
    """The words of a record since the event with the seq ``worded_at``."""

    record: str
    worded_at: int


class Claims:
    """The statements of a subject's records, by their terms, in the order in which they got their words.

    Attributes:
        compared: How many pairs of records were compared.
    """

    def __init__(self) -> None:
        self.compared = 0
        self._entries: list[_Entry] = []
        self._places: dict[str, int] = {}
        self._postings: dict[str, array[int]] = {}
        self._claims: dict[str, tuple[int, Claim]] = {}
        self._read = 0

    def __len__(self) -> int:
        """Return the number of entries, with those of records that are no longer active."""
        return len(self._entries)

    def update(self, state: State) -> None:
        """Add the records that are new or changed since the last call."""
        changed: Iterable[Live] = state.records.values()
        if self._read:
            # The holders are in the order of their seqs since the state was loaded.
            seqs = takewhile(lambda seq: seq > self._read, reversed(state.holders))
            changed = [state.records[record] for record in {state.holders[seq] for seq in seqs}]
        for live in sorted(changed, key=worded_at):
            self.add(live)
        self._read = state.version

    def add(self, live: Live) -> None:
        """Add a record, or replace it if its words changed."""
        place = self._places.get(live.id)
        if (place is not None and self._entries[place].worded_at == worded_at(live)) or not _is_statement(live):
            return
        terms = terms_of(sentence_of(live))
        place = len(self._entries)
        self._places[live.id] = place
        self._entries.append(_Entry(live.id, worded_at(live)))
        for term in terms:
            self._postings.setdefault(term, array("q")).append(place)

    def claim(self, live: Live) -> Claim:
        """Return the parts of a record's statement."""
        if live.id not in self._places:
            return read_claim(sentence_of(live))
        cached = self._claims.get(live.id)
        if cached is None or cached[0] != worded_at(live):
            cached = (worded_at(live), read_claim(sentence_of(live)))
            if len(self._claims) >= _MOST_CLAIMS:
                self._claims.clear()
            self._claims[live.id] = cached
        return cached[1]

    def candidates(self, live: Live) -> Iterator[str]:
        """Yield the ids of the older records that share most with a record, at most ``MOST_CANDIDATES``.

        A record that the index does not hold is newer than all others.
        """
        if not _is_statement(live):
            return
        own = self._places.get(live.id, len(self._entries))
        common = max(COMMON, len(self._entries) // COMMON_SHARE)
        shared: Counter[int] = Counter()
        for term in terms_of(sentence_of(live)):
            posting = self._postings.get(term)
            if posting and len(posting) <= common:
                end = bisect_left(posting, own)
                for place in posting[max(0, end - MOST_WITH_TERM) : end]:
                    shared[place] += 1 + _RARE // len(posting)
        best = sorted(shared, key=lambda place: (-shared[place], -place))[:MOST_CANDIDATES]
        for place in best:
            entry = self._entries[place]
            if entry.record != live.id and self._places[entry.record] == place:
                yield entry.record

    def after(self, seq: int) -> Iterator[str]:
        """Yield the ids of the records that got their words after a seq, in that order."""
        for place in range(bisect_right(self._entries, seq, key=lambda entry: entry.worded_at), len(self._entries)):
            entry = self._entries[place]
            if self._places[entry.record] == place:
                yield entry.record


_RARE = 64
"""The weight of a term that only one record has, against a common one."""

_MOST_CLAIMS = 4_096

_MOST_DEAD = 2
"""The index is replaced if it has more than this many entries for each active record."""

_of_state: WeakKeyDictionary[State, Claims] = WeakKeyDictionary()


def claims_of(state: State) -> Claims:
    """Return the up-to-date index of a state."""
    claims = _of_state.get(state)
    if claims is None or len(claims) > _MOST_DEAD * len(state.records) + COMMON:
        claims = _of_state[state] = Claims()
    claims.update(state)
    return claims


def worded_at(live: Live) -> int:
    """Return the seq of the event that gave a record its words."""
    return max(live.seq, live.worded)


def sentence_of(live: Live) -> str:
    """Return a record as a sentence: its text, or else its value, after its key if this is not made of its words."""
    memory = live.memory
    if memory.text or not memory.key:
        return memory.text or live.data.describe()
    value = live.data.record_value
    return value if is_clause(live) else f"{memory.key.replace('_', ' ')}: {value}"


def is_clause(live: Live) -> bool:
    """Return whether a record has no key, or a key that is made of the words of its value, as for a whole clause."""
    parts = live.memory.key.casefold().split("_")
    if len(parts) == 1:
        return not live.memory.key
    words = set(_WORD.findall(live.data.record_value.casefold()))
    return sum(part in words for part in parts) > len(parts) / 2


_WORD = re.compile(r"[^\W_]+")


def _is_statement(live: Live) -> bool:
    data = live.data if live.memory.kind == Episode.kind else None
    return not (isinstance(data, Episode) and data.category in _OWN_EPISODES)


def lives_of(state: State, records: Iterable[str]) -> Iterator[Live]:
    """Yield the active records with these ids."""
    for record in records:
        live = state.records.get(record)
        if live is not None:
            yield live
