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
from agent_memory_log.memory.learning.matching import (
    CitedEvidence,
    ends_before,
    has_equal_data,
    is_older,
    is_part_of,
    later_end,
)
from agent_memory_log.memory.learning.merging import MERGED, Merging, can_merge, combined
from agent_memory_log.memory.policy.consent import consent_refusal
from agent_memory_log.memory.policy.quotas import Room
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Consent, Relation, fold_key, fold_text
from agent_memory_log.memory.records.principals import stream_of
from agent_memory_log.memory.records.record import MERGES, Link, Record, envelope_of, links_without
from agent_memory_log.memory.records.reports.conflicts import CONTRADICTS
from agent_memory_log.memory.records.reports.outcomes import Action, Outcome
from agent_memory_log.memory.stream.context import Context
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
        self, context: Context, scope: str, state: State, now: datetime, phase: str, merging: Merging | None = None
    ) -> None:
        """Start without decisions. ``state`` must not change until all decisions are made.

        If ``question`` is not None at the end, the decisions are incomplete. Run the question, which asks the merger,
        and decide again.

        Args:
            context: The client's context, whose limits hold.
            scope: The scope of the subject.
            state: The subject's state.
            now: The current time.
            phase: The phase that is stored with blocked candidates.
            merging: The merger's answers. None: there is no merger.
        """
        self.scope = scope
        self.state = state
        self.now = now
        self.question: Callable[[], Steps[None]] | None = None
        self.events: list[Event] = []
        self.outcomes: list[Outcome] = []
        self._phase = phase
        self._merging = merging
        self._room = Room(state, context.hooks.max_keyed, context.hooks.quotas)
        self._agent = stream_of(context.principal.subject(scope))
        # The differences from the state so far: records by id (None: closed), and ids by key.
        self._lives: dict[str, Live | None] = {}
        self._keys: dict[tuple[str, str], str | None] = {}
        self._cited = CitedEvidence()
        self._claims = Claims()
        self._new: list[Live] = []

    def add(self, payload: EventData) -> str:
        """Add an event, and return its id."""
        event = new_event(payload, timestamp=self.now)
        self.events.append(event)
        return event.event_id

    def block(self, candidate: Candidate, reason: str) -> None:
        """Block a candidate for a reason."""
        self._note_blocked(candidate, reason, candidate.scope)
        self._report("blocked", candidate, reason=reason)

    def write(self, candidate: Candidate) -> Outcome | None:
        """Decide about a candidate that passed all checks. Return its outcome, or None if ``question`` must run."""
        if self.question is not None:
            return None
        number = len(self.outcomes)
        if any(map(self.state.is_forgotten, candidate.evidence)):
            self._report("forgotten", candidate)
        elif not self._blocks(candidate, consent_refusal(candidate, self.keyed, self.now)):
            self._decide(candidate)
        return next(iter(self.outcomes[number:]), None)  # those of the records that give way follow

    def refusal(self, candidate: Candidate) -> str:
        """Return the reason why consent or the limits forbid a candidate, or ``""``."""
        return consent_refusal(candidate, self.keyed, self.now) or self._room.refusal(candidate)

    def _blocks(self, candidate: Candidate, refusal: str) -> bool:
        """Block a candidate if there is a reason to refuse it. Returns whether there is one."""
        if refusal:
            self.block(candidate, refusal)
        return bool(refusal)

    def _decide(self, candidate: Candidate) -> None:
        existing = self._existing(candidate)
        end = candidate.end(self.now)
        if end is not None and end <= self.now and not isinstance(candidate.data, Relation):
            self._leave_out(candidate, existing, "expired")
        elif existing is not None and has_equal_data(candidate, existing) and not self._replaced_by(candidate):
            if not existing.is_expired(self.now):
                self._refresh(existing, candidate)
            elif candidate.evidence and existing.memory.evidence and not self._cited.new(candidate, existing):
                self._report("outdated", candidate, record=self._record(existing), reason="expired")
            else:
                self._remember(candidate, existing)
        elif existing is not None and is_older(candidate, existing):
            self._leave_out(candidate, existing, "outdated")
        elif existing is not None and is_part_of(candidate, existing, self._cited):
            self._report("unchanged", candidate, record=self._record(existing))
        elif existing is not None and self._merging is not None and self._can_merge(existing, candidate):
            self._merge(candidate, existing, self._merging)
        else:
            self._remember(candidate, existing)

    def _can_merge(self, live: Live, candidate: Candidate) -> bool:
        return not live.is_expired(self.now) and can_merge(live.data, candidate.data)

    def _merge(self, candidate: Candidate, existing: Live, merging: Merging) -> None:
        """Remember the merged value of both. If the merger was not asked yet, set ``question``."""
        record = self._record(existing)
        merged = merging.of(record, candidate)
        if merged is None:
            self.question = partial(merging.ask, record, candidate)
        elif merged.reason != MERGED:
            self._remember(merged.candidate, existing, reason=merged.reason)
        elif has_equal_data(merged.candidate, existing):
            self._refresh(existing, merged.candidate)
        else:
            self._remember(combined(record, merged.candidate), existing, reason=MERGED)

    def _leave_out(self, candidate: Candidate, existing: Live | None, reason: str) -> None:
        """Report a candidate as outdated. Its evidence is noted, so that an erasure can reach the statement."""
        self._note_blocked(candidate, reason, self.scope)
        self._report("outdated", candidate, record=None if existing is None else self._record(existing), reason=reason)

    def _note_blocked(self, candidate: Candidate, reason: str, scope: str) -> None:
        self.add(
            MemoryBlocked(
                reason=reason,
                key=candidate.key,
                kind=candidate.data.kind,
                scope=scope,
                phase=self._phase,
                source=candidate.source,
                evidence=candidate.evidence,
            )
        )

    def change(self, live: Live, candidate: Candidate, names: Iterable[str]) -> None:
        """Change the named fields of a record in place. If the data differs, even in case, supersede the record."""
        if self._blocks(candidate, self.refusal(candidate)):
            return
        if live.data != candidate.data:
            self._remember(candidate, live)
            return
        fields = envelope_of(candidate, valid_until=candidate.end(self.now))
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
        stored = [live for live in self.state.twins(candidate.data.kind, text) if self._live(live.id) is not None]
        equal = (live for live in (*decided, *stored) if has_equal_data(candidate, live))
        return next((live for live in equal if not ends_before(candidate, live)), None)

    def _replaced_by(self, candidate: Candidate) -> list[Live]:
        """Return the active records that a candidate names as superseded."""
        targets = dict.fromkeys(link.target for link in candidate.links if link.type == SUPERSEDES)
        lives = [self._live(target) for target in targets]
        return [live for live in lives if live is not None and not live.is_expired(self.now)]

    def _find(self, kind: str, key: str) -> str | None:
        folded = (kind, fold_key(key))
        return self._keys[folded] if folded in self._keys else self.state.keys.get(folded)

    def keyed(self, kind: str, key: str) -> Live | None:
        """Return the active record of a kind with a key, or None. Earlier decisions count."""
        record = self._find(kind, key)
        return None if record is None else self._live(record)

    def _live(self, record: str) -> Live | None:
        return self._lives[record] if record in self._lives else self.state.records.get(record)

    def _refresh(self, live: Live, candidate: Candidate) -> None:
        # An exported record without evidence cites its own event. A record must not be evidence for itself.
        fresh = tuple(evidence for evidence in self._cited.new(candidate, live) if evidence.agent != self._agent)
        if candidate.source.kind == "import":  # a copy of a statement, not a new statement
            end = later_end(live.memory.valid_until, candidate.valid_until and candidate.end(self.now))
            is_renewed = end != live.memory.valid_until
        else:
            end = candidate.end(self.now)
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
            status = "expired" if replaced.is_expired(self.now) else "superseded"
            self.close([replaced], status, by=record, reason=status)
        if also_replaced:
            self.close(also_replaced, "superseded", by=record, reason="superseded")
        live = self._hold(record)
        superseded = next((old.id for old in (replaced, *also_replaced) if old is not None), "")
        self._report("written", candidate, record=self._record(live), superseded=superseded, reason=reason)
        if not isinstance(candidate.data, Consent):  # a consent counts for no limit
            self._make_room(record)

    def consolidate(self, candidate: Candidate, parts: Sequence[Live], reason: str = CONSOLIDATED) -> Live | None:
        """Archive records, and return a new one that says the same. Returns None if it is blocked: nothing changes."""
        if self._blocks(candidate, self.refusal(candidate)):
            return None
        links = (*links_without(candidate.links, {SUPERSEDES, MERGES}), *(Link(MERGES, live.id) for live in parts))
        record = self._add_record(candidate, links, is_new=reason != CONSOLIDATED)
        self.close(parts, "archived", by=record, reason=reason)
        return self._hold(record)

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
                valid_until=candidate.end(self.now),
            ),
        )
        contradicted = self._contradicted(memory) if is_new else ()
        if contradicted:
            memory = msgspec.structs.replace(memory, links=tuple(dict.fromkeys((*links, *contradicted))))
        record = self.add(memory)
        self._lives[record] = Live(record, 0, self.now, self.now, memory)
        return record

    def _contradicted(self, memory: MemoryRemembered) -> list[Link]:
        """Return a link to each active record that a new record contradicts, except those that it replaces."""
        for earlier in self._new:
            self._claims.add(earlier)
        self._new.clear()
        live = Live("", 0, self.now, self.now, memory)
        replaced = {link.target for link in memory.links if link.type in {SUPERSEDES, MERGES}}
        links: list[Link] = []
        for claims in filter(len, (claims_of(self.state), self._claims)):
            older = [other for record in claims.candidates(live) if (other := self._live(record)) is not None]
            conflicts = conflicts_among(claims, live, older, self.now)
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
        for live in self._room.giving_way(self._lives, new_record, self.now):
            expired = live.is_expired(self.now)
            self.close([live], "expired" if expired else "archived", reason="" if expired else "subject_full")
            if not expired:
                archived = live.record_as(self.scope, "archived")
                self.outcomes.append(
                    Outcome("archived", self.scope, archived.kind, archived.key, archived, reason="subject_full")
                )

    def _replace(self, live: Live, changes: Mapping[str, object]) -> Live:
        memory = msgspec.structs.replace(live.memory, **changes)
        self._lives[live.id] = after = msgspec.structs.replace(live, updated=self.now, memory=memory)
        return after

    def _record(self, live: Live) -> Record:
        return live.record(self.scope, self.now)

    def _report(
        self,
        action: Action,
        candidate: Candidate,
        *,
        record: Record | None = None,
        superseded: str = "",
        reason: str = "",
    ) -> None:
        scope = candidate.scope or self.scope
        kind, key, evidence = candidate.data.kind, candidate.key, candidate.evidence
        self.outcomes.append(Outcome(action, scope, kind, key, record, superseded, reason, evidence))
