"""Compares a candidate with a stored record. The rules are those of ``deciding``."""

from __future__ import annotations

from datetime import datetime

from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.record import MERGES, Evidence
from agent_memory_log.memory.stream.state import Live


def has_equal_data(candidate: Candidate, live: Live) -> bool:
    """Return whether both have the same kind and the same content. Case and white space are ignored."""
    return live.memory.kind == candidate.data.kind and live.data.same_as(candidate.data)


def is_older(candidate: Candidate, live: Live) -> bool:
    """Return whether the candidate was true, or stated, before the record."""
    return candidate.valid_from is not None and candidate.valid_from < _begin_of(live)


def ends_before(candidate: Candidate, live: Live) -> bool:
    """Return whether the candidate is about a time before that of an equal record. Then both are true."""
    return candidate.valid_until is not None and candidate.valid_until <= _begin_of(live)


class CitedEvidence:
    """The evidence of the records that candidates repeat. Many may repeat one record, so its evidence is read once."""

    def __init__(self) -> None:
        self._by_record: dict[str, set[Evidence]] = {}

    def new(self, candidate: Candidate, live: Live) -> list[Evidence]:
        """Return the evidence of the candidate that the record does not have, each event once."""
        cited = self._by_record.setdefault(live.id, set())
        cited.update(live.memory.evidence[len(cited) :])  # evidence is only added at the end
        return [evidence for evidence in dict.fromkeys(candidate.evidence) if evidence not in cited]


def is_part_of(candidate: Candidate, live: Live, cited: CitedEvidence) -> bool:
    """Return whether a merged record already contains the candidate. Such a candidate was derived again."""
    is_merged = any(link.type == MERGES for link in live.memory.links)
    return is_merged and bool(candidate.evidence) and not cited.new(candidate, live)


def later_end(stored: datetime | None, proposed: datetime | None) -> datetime | None:
    """Return the later of two ends. Returns ``stored`` if it is None, which means no end, or if none is proposed."""
    return stored if stored is None or proposed is None else max(stored, proposed)


def _begin_of(live: Live) -> datetime:
    return live.memory.valid_from or live.created
