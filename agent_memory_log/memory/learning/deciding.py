"""Decides about candidates, given the stored records: which events to append, and which outcome to report.

The rules:

- A candidate whose evidence includes a forgotten statement is left out.
- A candidate that equals an active record adds its evidence to the record and renews its end.
- An older statement never replaces a newer one.
- A candidate supersedes the active records that it links to as superseded.
- A relation may have ended before it is written. A relation that held twice has a record for each time.
- Any other candidate becomes a new record. It supersedes the active record with its key. If the client has a merger,
  the new record holds the merged value of both.
- A new record that contradicts other active records gets a link ``contradicts`` to each. They stay active.
- If the subject has more than its limits allow, ``policy.quotas`` chooses the records that are archived.
- A memory whose consent was asked or withdrawn is blocked. See ``policy.consent``. A consent is never archived.

Nothing is written here. The events are valid only for the state they were decided on, so they are appended at the
version of that state, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

import msgspec

from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.payloads import EventData
from agent_memory_log.memory.conflicts.finding import MOST_CONFLICTS, conflicts_among
from agent_memory_log.memory.conflicts.index import Claims, claims_of
from agent_memory_log.memory.learning.merging import MERGED, Merging, can_merge, combined
from agent_memory_log.memory.policy.consent import consent_refusal
from agent_memory_log.memory.policy.quotas import Room
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Consent, Relation, fold_key, fold_text
from agent_memory_log.memory.records.quotas import NO_QUOTAS, Quotas
from agent_memory_log.memory.records.record import MERGES, Evidence, Link, Record, envelope_of, links_without
from agent_memory_log.memory.records.reports.conflicts import CONTRADICTS
from agent_memory_log.memory.records.reports.outcomes import Action, Outcome
from agent_memory_log.memory.stream.history import CONSOLIDATED
from agent_memory_log.memory.stream.payloads import (
    MemoryBlocked,
    MemoryChanged,
    MemoryClosed,
    MemoryRefreshed,
    MemoryRemembered,
)
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.steps import Steps

SUPERSEDES = "supersedes"
"""The type of the link from a record to the one that it replaces."""


class Decisions:
    """The decisions on a state, candidate by candidate. Each decision takes the earlier ones into account."""

    def __init__(
        self,
        state: State,
        scope: str,
        now: datetime,
        max_keyed: int | None,
        agent: str = "",
        merging: Merging | None = None,
        quotas: Quotas = NO_QUOTAS,
    ) -> None:
        """Start without decisions. ``state`` must not change until all decisions are made.

        If ``question`` is not None at the end, the decisions are incomplete. Run the question, which asks the merger,
        and decide again.

        Args:
            state: The subject's state.
            scope: The scope of the subject.
            now: The current time.
            max_keyed: The most keyed records that a subject holds. None: no limit.
            agent: The agent of the subject's stream.
            merging: The merger's answers. None: there is no merger.
            quotas: The other limits of a subject.
        """
        self.question: Callable[[], Steps[None]] | None = None
        self._merging = merging
        self.events: list[Event] = []
        self.outcomes: list[Outcome] = []
        self._state = state
        self._scope = scope
        self._now = now
        self._room = Room(state, max_keyed, quotas)
        self._phase = ""
        self._agent = agent
        # The differences from the state so far: records by id (None: closed), and ids by key.
        self._lives: dict[str, Live | None] = {}
        self._keys: dict[tuple[str, str], str | None] = {}
        self._claims = Claims()
        self._new: list[Live] = []

    def add(self, payload: EventData) -> str:
        """Add an event, and return its id."""
        event = new_event(payload, timestamp=self._now)
        self.events.append(event)
        return event.event_id

    def block(self, candidate: Candidate, reason: str, *, phase: str) -> None:
        """Block a candidate for a reason."""
        self._note_blocked(candidate, reason, candidate.scope, phase)
        self._report("blocked", candidate, reason=reason)

    def write(self, candidate: Candidate, *, phase: str) -> None:
        """Decide about a candidate that passed all checks."""
        if self.question is not None:
            return
        self._phase = phase
        if any(map(self._state.is_forgotten, candidate.evidence)):
            self._report("forgotten", candidate)
            return
        if self._blocks(candidate, consent_refusal(candidate, self.keyed, self._now)):
            return
        self._decide(candidate, phase)

    def _refusal(self, candidate: Candidate) -> str:
        return consent_refusal(candidate, self.keyed, self._now) or self._room.refusal(candidate)

    def _blocks(self, candidate: Candidate, refusal: str) -> bool:
        """Block a candidate if there is a reason to refuse it. Returns whether there is one."""
        if refusal:
            self.block(candidate, refusal, phase=self._phase)
        return bool(refusal)

    def _decide(self, candidate: Candidate, phase: str) -> None:
        existing = self._existing(candidate)
        end = candidate.end(self._now)
        if end is not None and end <= self._now and not isinstance(candidate.data, Relation):
            self._leave_out(candidate, existing, "expired", phase)
        elif existing is not None and self._has_equal_data(existing, candidate) and not self._replaced_by(candidate):
            if not existing.is_expired(self._now):
                self._refresh(existing, candidate)
            elif candidate.evidence and existing.memory.evidence and not self._fresh_evidence(existing, candidate):
                self._report("outdated", candidate, record=self._record(existing), reason="expired")
            else:
                self._remember(candidate, existing)
        elif existing is not None and self._is_older(candidate, existing):
            self._leave_out(candidate, existing, "outdated", phase)
        elif existing is not None and self._is_part_of(candidate, existing):
            self._report("unchanged", candidate, record=self._record(existing))
        elif existing is not None and self._merging is not None and self._can_merge(existing, candidate):
            self._merge(candidate, existing, self._merging)
        else:
            self._remember(candidate, existing)

    @staticmethod
    def _is_part_of(candidate: Candidate, live: Live) -> bool:
        """Return whether a merged record already contains the candidate. Such a candidate was derived again."""
        evidence = set(candidate.evidence)
        is_merged = any(link.type == MERGES for link in live.memory.links)
        return is_merged and bool(evidence) and evidence <= set(live.memory.evidence)

    def _can_merge(self, live: Live, candidate: Candidate) -> bool:
        return not live.is_expired(self._now) and can_merge(live.data, candidate.data)

    def _merge(self, candidate: Candidate, existing: Live, merging: Merging) -> None:
        """Remember the merged value of both. If the merger was not asked yet, set ``question``."""
        record = self._record(existing)
        merged = merging.of(record, candidate)
        if merged is None:
            self.question = partial(merging.ask, record, candidate)
        elif merged.reason != MERGED:
            self._remember(merged.candidate, existing, reason=merged.reason)
        elif self._has_equal_data(existing, merged.candidate):
            self._refresh(existing, merged.candidate)
        else:
            self._remember(combined(record, merged.candidate), existing, reason=MERGED)

    def _leave_out(self, candidate: Candidate, existing: Live | None, reason: str, phase: str) -> None:
        """Report a candidate as outdated. Its evidence is noted, so that an erasure can reach the statement."""
        self._note_blocked(candidate, reason, self._scope, phase)
        self._report("outdated", candidate, record=None if existing is None else self._record(existing), reason=reason)

    def _note_blocked(self, candidate: Candidate, reason: str, scope: str, phase: str) -> None:
        self.add(
            MemoryBlocked(
                reason=reason,
                key=candidate.key,
                kind=candidate.data.kind,
                scope=scope,
                phase=phase,
                source=candidate.source,
                evidence=candidate.evidence,
            )
        )

    def change(self, live: Live, candidate: Candidate, names: Iterable[str]) -> None:
        """Change the named fields of a record in place. If the data differs, even in case, supersede the record."""
        self._phase = "update"
        if self._blocks(candidate, self._refusal(candidate)):
            return
        if live.data != candidate.data:
            self._remember(candidate, live)
            return
        fields = envelope_of(candidate, valid_until=candidate.end(self._now))
        changes = {name: fields[name] for name in names if fields[name] != getattr(live.memory, name)}
        if not changes:
            self._report("unchanged", candidate, record=self._record(live))
            return
        self.add(MemoryChanged(record=live.id, changed=tuple(changes), **changes))
        self._report("changed", candidate, record=self._record(self._replace(live, changes)))
        self._make_room(live.id)

    def close(self, lives: Sequence[Live], status: str, *, by: str = "", reason: str = "") -> None:
        """End active records. ``by`` is the id of the record that replaces them. A consent is not archived."""
        if status == "archived":
            lives = [live for live in lives if live.memory.kind != Consent.kind]
            if not lives:
                return
        self.add(MemoryClosed(records=tuple(live.id for live in lives), status=status, by=by, reason=reason))
        for live in lives:
            self._lives[live.id] = None
            if self._find(live.memory.kind, live.memory.key) == live.id:
                self._keys[live.memory.kind, fold_key(live.memory.key)] = None

    def _existing(self, candidate: Candidate) -> Live | None:
        """Return the active record with the candidate's key. Without a key, return one with equal data."""
        if candidate.key:
            return self.keyed(candidate.data.kind, candidate.key)
        text = candidate.words
        decided = [
            live
            for live in self._lives.values()
            if live is not None and not live.memory.key and fold_text(live.memory.text) == fold_text(text)
        ]
        stored = [live for live in self._state.twins(candidate.data.kind, text) if self._live(live.id) is not None]
        equal = (live for live in (*decided, *stored) if self._has_equal_data(live, candidate))
        return next((live for live in equal if not self._ends_before(candidate, live)), None)

    @staticmethod
    def _ends_before(candidate: Candidate, live: Live) -> bool:
        """Return whether a statement is about a time before that of an equal record. Then both are true."""
        begin = live.memory.valid_from or live.created
        return candidate.valid_until is not None and candidate.valid_until <= begin

    def _replaced_by(self, candidate: Candidate) -> list[Live]:
        """Return the active records that a candidate names as superseded."""
        targets = dict.fromkeys(link.target for link in candidate.links if link.type == SUPERSEDES)
        lives = [self._live(target) for target in targets]
        return [live for live in lives if live is not None and not live.is_expired(self._now)]

    def _find(self, kind: str, key: str) -> str | None:
        folded = (kind, fold_key(key))
        return self._keys[folded] if folded in self._keys else self._state.keys.get(folded)

    def keyed(self, kind: str, key: str) -> Live | None:
        """Return the active record of a kind with a key, or None. Earlier decisions count."""
        record = self._find(kind, key)
        return None if record is None else self._live(record)

    def _live(self, record: str) -> Live | None:
        return self._lives[record] if record in self._lives else self._state.records.get(record)

    @staticmethod
    def _has_equal_data(live: Live, candidate: Candidate) -> bool:
        return live.memory.kind == candidate.data.kind and live.data.same_as(candidate.data)

    @staticmethod
    def _is_older(candidate: Candidate, live: Live) -> bool:
        return candidate.valid_from is not None and candidate.valid_from < (live.memory.valid_from or live.created)

    @staticmethod
    def _fresh_evidence(live: Live, candidate: Candidate) -> list[Evidence]:
        stored = set(live.memory.evidence)
        return [evidence for evidence in dict.fromkeys(candidate.evidence) if evidence not in stored]

    def _refresh(self, live: Live, candidate: Candidate) -> None:
        # An exported record without evidence cites its own event. A record must not be evidence for itself.
        fresh = tuple(evidence for evidence in self._fresh_evidence(live, candidate) if evidence.agent != self._agent)
        if candidate.source.kind == "import":  # a copy of a statement, not a new statement
            end = _later(live.memory.valid_until, candidate.valid_until and candidate.end(self._now))
            is_renewed = end != live.memory.valid_until
        else:
            end = candidate.end(self._now)
            is_renewed = not candidate.evidence
        confidence = max(candidate.confidence, live.memory.confidence)
        if not (fresh or is_renewed):
            self._report("unchanged", candidate, record=self._record(live))
            return
        self.add(MemoryRefreshed(live.id, confidence, fresh, end, stated=not candidate.evidence))
        after = self._replace(
            live, {"confidence": confidence, "evidence": (*live.memory.evidence, *fresh), "valid_until": end}
        )
        self._report("refreshed", candidate, record=self._record(after))

    def _remember(self, candidate: Candidate, replaced: Live | None, *, reason: str = "") -> None:
        if self._blocks(candidate, self._room.refusal(candidate)):
            return
        links = links_without(candidate.links, {SUPERSEDES} if replaced is None else {SUPERSEDES, CONTRADICTS})
        also_replaced = [live for live in self._replaced_by(candidate) if replaced is None or live.id != replaced.id]
        links = (*links, *(Link(SUPERSEDES, live.id) for live in (*also_replaced, replaced) if live is not None))
        record = self._add_record(candidate, links)
        if replaced is not None:
            status = "expired" if replaced.is_expired(self._now) else "superseded"
            self.close([replaced], status, by=record, reason=status)
        if also_replaced:
            self.close(also_replaced, "superseded", by=record, reason="superseded")
        live = self._hold(record)
        superseded = next((old.id for old in (replaced, *also_replaced) if old is not None), "")
        self._report("written", candidate, record=self._record(live), superseded=superseded, reason=reason)
        self._make_room(record)

    def consolidate(self, candidate: Candidate, parts: Sequence[Live], reason: str = CONSOLIDATED) -> Record | None:
        """Archive records, and return a new one that says the same. Returns None if it is blocked: nothing changes."""
        self._phase = reason
        if self._blocks(candidate, self._refusal(candidate)):
            return None
        links = (*links_without(candidate.links, {SUPERSEDES, MERGES}), *(Link(MERGES, live.id) for live in parts))
        record = self._add_record(candidate, links, is_new=reason != CONSOLIDATED)
        self.close(parts, "archived", by=record, reason=reason)
        return self._record(self._hold(record))

    def _add_record(self, candidate: Candidate, links: tuple[Link, ...], *, is_new: bool = True) -> str:
        """Add a record, with links to the records that it contradicts if it says something new. Return its id."""
        memory = MemoryRemembered(
            candidate.data.kind,
            candidate.data.to_map(),
            candidate.key,
            **envelope_of(
                candidate,
                text=candidate.text if candidate.key else candidate.words,
                memory_type=candidate.own_memory_type,
                evidence=tuple(dict.fromkeys(candidate.evidence)),
                links=links,
                valid_until=candidate.end(self._now),
            ),
        )
        contradicted = self._contradicted(memory) if is_new else ()
        if contradicted:
            memory = msgspec.structs.replace(memory, links=tuple(dict.fromkeys((*links, *contradicted))))
        record = self.add(memory)
        self._lives[record] = Live(record, 0, self._now, self._now, memory)
        return record

    def _contradicted(self, memory: MemoryRemembered) -> list[Link]:
        """Return a link to each active record that a new record contradicts, except those that it replaces."""
        for earlier in self._new:
            self._claims.add(earlier)
        self._new.clear()
        live = Live("", 0, self._now, self._now, memory)
        replaced = {link.target for link in memory.links if link.type in {SUPERSEDES, MERGES}}
        links: list[Link] = []
        for claims in filter(len, (claims_of(self._state), self._claims)):
            older = [other for record in claims.candidates(live) if (other := self._live(record)) is not None]
            conflicts = conflicts_among(claims, live, older, self._now)
            links += [Link(CONTRADICTS, conflict.other) for conflict in conflicts if conflict.other not in replaced]
        return links[:MOST_CONFLICTS]

    def _hold(self, record: str) -> Live:
        """Return a new record, and hold it under its key, after the record that it replaces was closed."""
        live = self._lives[record]
        if live is None:
            raise AssertionError("a new record is not closed")
        self._new.append(live)
        if live.memory.key:
            self._keys[live.memory.kind, fold_key(live.memory.key)] = record
        return live

    def _make_room(self, new_record: str) -> None:
        """Archive the records that give way to a new or changed one."""
        for live in self._room.giving_way(self._lives, new_record, self._now):
            expired = live.is_expired(self._now)
            self.close([live], "expired" if expired else "archived", reason="" if expired else "subject_full")
            if not expired:
                archived = live.record_as(self._scope, "archived")
                self.outcomes.append(
                    Outcome("archived", self._scope, archived.kind, archived.key, archived, reason="subject_full")
                )

    def _replace(self, live: Live, changes: Mapping[str, object]) -> Live:
        memory = msgspec.structs.replace(live.memory, **changes)
        self._lives[live.id] = after = msgspec.structs.replace(live, updated=self._now, memory=memory)
        return after

    def _record(self, live: Live) -> Record:
        return live.record(self._scope, self._now)

    def _report(
        self,
        action: Action,
        candidate: Candidate,
        *,
        record: Record | None = None,
        superseded: str = "",
        reason: str = "",
    ) -> None:
        scope = candidate.scope or self._scope
        kind, key, evidence = candidate.data.kind, candidate.key, candidate.evidence
        self.outcomes.append(Outcome(action, scope, kind, key, record, superseded, reason, evidence))


def _later(stored: datetime | None, proposed: datetime | None) -> datetime | None:
    """Return the later of two ends. Returns ``stored`` if it is None, which means no end, or if none is proposed."""
    return stored if stored is None or proposed is None else max(stored, proposed)
