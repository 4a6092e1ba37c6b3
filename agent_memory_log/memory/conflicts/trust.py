"""Computes the trust in a record from the state, when it is read. It is not stored.

The trust rises when an independent source states the record again, and when the source's other records are confirmed.
It falls when a record contradicts it, when the source's other records are contradicted, and with age. It rises again
when a conflict is resolved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from math import prod
from weakref import WeakKeyDictionary

import msgspec

from agent_memory_log.memory.records.reports.conflicts import CONTRADICTS, Trust
from agent_memory_log.memory.stream.state import Live, State

HALF_LIFE_DAYS = 1_000
"""The days in which the trust halves, if the record is not stated again. Chosen by us: most facts hold for years."""

_PRIOR = 2
"""The weight of ``Source.reliability``, in records: that of a Beta distribution with no observations."""

_DIGITS = 3

_SourceId = tuple[str, str]


class Reputation(msgspec.Struct, frozen=True):
    """The counts of all sources, and the open conflicts of all records.

    Attributes:
        confirmed: How many records of each source another source states too.
        contradicted: How many open conflicts the records of each source have with those of other sources.
        opponents: The ids of the records in open conflict with each record.
    """

    confirmed: Mapping[_SourceId, int]
    contradicted: Mapping[_SourceId, int]
    opponents: Mapping[str, tuple[str, ...]]


_of_state: WeakKeyDictionary[State, tuple[int, Reputation]] = WeakKeyDictionary()


def reputation_of(state: State) -> Reputation:
    """Return the reputation of the sources of a state. It is computed once for each version of the state."""
    cached = _of_state.get(state)
    if cached is None or cached[0] != state.version:
        cached = _of_state[state] = (state.version, _reputation(state.records))
    return cached[1]


def _reputation(records: Mapping[str, Live]) -> Reputation:
    confirmed, contradicted = Counter[_SourceId](), Counter[_SourceId]()
    opponents: dict[str, dict[str, None]] = {}
    for live in records.values():
        sources = _sources_of(live)
        if len(sources) > 1:
            confirmed.update(sources.keys())
        for link in live.memory.links:
            other = records.get(link.target) if link.type == CONTRADICTS else None
            if other is not None:
                opponents.setdefault(live.id, {})[other.id] = None
                opponents.setdefault(other.id, {})[live.id] = None
                other_sources = _sources_of(other)
                if sources.keys().isdisjoint(other_sources):  # a person who changes their mind is no less reliable
                    contradicted.update([*sources, *other_sources])
    return Reputation(confirmed, contradicted, {record: tuple(of_record) for record, of_record in opponents.items()})


def _sources_of(live: Live) -> dict[_SourceId, float]:
    """Return the independent sources of a record with their reliability: each run of its evidence is one.

    A record that a caller stated has its ``source`` too.
    """
    source = live.memory.source
    runs = dict.fromkeys(("run", f"{item.agent}/{item.run}") for item in live.memory.evidence)
    sources = dict.fromkeys(runs, source.reliability)
    if live.stated or not sources:
        sources[source.kind, source.id] = source.reliability
    return sources


def trust_in(state: State, live: Live, now: datetime) -> Trust:
    """Return the trust in an active record at ``now``, with the numbers that it is computed from."""
    reputation = reputation_of(state)
    sources = _sources_of(live)
    corroborated = _corroborated(reputation, sources)
    opponents = [state.records[other] for other in reputation.opponents.get(live.id, ())]
    against = sum(_corroborated(reputation, _sources_of(other)) for other in opponents)
    doubt = corroborated / (corroborated + against) if against else 1.0
    age_days = max(0.0, (now - live.updated) / timedelta(days=1))
    freshness = 0.5 ** (age_days / HALF_LIFE_DAYS)
    first = next(iter(sources))
    return Trust(
        round(corroborated * doubt * freshness, _DIGITS),
        round(_reliability(reputation, first, sources[first]), _DIGITS),
        reputation.confirmed.get(first, 0),
        reputation.contradicted.get(first, 0),
        len(sources),
        round(corroborated, _DIGITS),
        len(opponents),
        round(doubt, _DIGITS),
        round(age_days, _DIGITS),
        round(freshness, _DIGITS),
    )


def _corroborated(reputation: Reputation, sources: Mapping[_SourceId, float]) -> float:
    return 1 - prod(1 - _reliability(reputation, source, prior) for source, prior in sources.items())


def _reliability(reputation: Reputation, source: _SourceId, prior: float) -> float:
    """Return the mean of the Beta distribution of a source, whose prior mean is its stated reliability."""
    confirmed, contradicted = reputation.confirmed.get(source, 0), reputation.contradicted.get(source, 0)
    return (confirmed + _PRIOR * prior) / (confirmed + contradicted + _PRIOR)
