"""Replaces groups of records by one record each, and undoes this. The replaced records are archived, not erased."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.events.fields import in_quotes
from agent_memory_log.memory.governance.grouping import Group, keys_of_topic, near_duplicates, old_episodes
from agent_memory_log.memory.learning.deciding import Decisions
from agent_memory_log.memory.learning.judging import Judged, judge
from agent_memory_log.memory.learning.writing import decided
from agent_memory_log.memory.operations import Maintain, Separate
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.protocols import Violation
from agent_memory_log.memory.records.quotas import Quotas
from agent_memory_log.memory.records.record import RESTORES, Record
from agent_memory_log.memory.records.reports.conflicts import CONTRADICTS
from agent_memory_log.memory.records.reports.outcomes import WriteReport
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.history import CONSOLIDATED, Ledger
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.memory.upkeep.archiving import repeated
from agent_memory_log.models.tokens import CountTokens, default_counter
from agent_memory_log.steps import Steps, work

SEPARATED = "separated"
"""The reason of a consolidated record that is archived because its parts are separate records again."""


class Plan(msgspec.Struct, frozen=True):
    """A group with the records as they were when the group was found, and the candidate that replaces them."""

    group: Group
    parts: tuple[Live, ...]
    candidate: Candidate

    def holds(self, state: State) -> bool:
        """Return whether all records are still as they were."""
        return all(
            (live := state.records.get(part.id)) is not None and live.memory == part.memory for part in self.parts
        )


def groups_of(context: Context, lives: Sequence[Live], now: datetime, call: Maintain) -> Steps[list[Group]]:
    """Return the groups to consolidate. A record is in one group at most."""
    denied = {link.target for live in lives for link in live.memory.links if link.type == CONTRADICTS}
    free = [live for live in lives if live.id not in denied]
    groups = yield from work(lambda: near_duplicates(free, now))
    grouped = {record for group in groups for record in group.records}
    episodes = [live for live in free if live.id not in grouped]
    groups += yield from work(lambda: old_episodes(episodes, now, call.episode_days))
    profile = [live for live in free if live.memory.key and not live.is_expired(now)]
    count = context.hooks.count_tokens or (yield from work(default_counter)).count
    sizes = yield from work(lambda: [_tokens(live, count) for live in profile])
    return groups + keys_of_topic(profile, now, sizes, call.profile_tokens)


def _tokens(live: Live, count: CountTokens) -> int:
    return count(f"{live.memory.key}: {live.data.record_value}")


class Returning(Decisions):
    """The decision to write archived parts again whose consolidated record is gone or has an old value.

    A consolidated record falls with the evidence of one part. The other parts then become active again. It has an old
    value if the key of a part has a newer record. Then the newer record stays, and the other parts become active again.
    """

    def __init__(self, state: State, scope: str, now: datetime, ledger: Ledger) -> None:
        super().__init__(state, scope, now, None)
        self.returned: list[tuple[Record, str]] = []
        repeats = {link.target for live, _ in ledger.lives() for link in live.memory.links if link.type == RESTORES}
        stale: dict[str, None] = {}
        for closed in ledger.closed.values():
            memory = closed.live.memory
            if closed.reason == CONSOLIDATED and closed.by in state.records and state.find(memory.kind, memory.key):
                stale[closed.by] = None
        if stale:
            self.close([state.records[record] for record in stale], "archived", reason=SEPARATED)
        for closed in ledger.closed.values():
            is_gone = closed.by not in state.records and closed.by not in ledger.closed
            if closed.reason != CONSOLIDATED or closed.live.id in repeats or not (is_gone or closed.by in stale):
                continue
            record = closed.live.record_as(scope, "archived")
            candidate = repeated(record)
            if not (record.key and state.find(record.kind, record.key)) and not self._is_over(candidate, now):
                self.write(candidate, phase="maintain")
                why = "the consolidated record lost a part" if is_gone else "another part has a newer value"
                self.returned.append((record, why))

    @staticmethod
    def _is_over(candidate: Candidate, now: datetime) -> bool:
        end = candidate.end(now)
        return end is not None and end <= now


class Consolidating(Decisions):
    """The decision to carry out plans. A plan whose records changed meanwhile, or whose record is blocked, is left out.

    Args:
        plans: The plans.
        quotas: The limits of the subject.
    """

    def __init__(self, state: State, scope: str, now: datetime, plans: Sequence[Plan], quotas: Quotas) -> None:
        super().__init__(state, scope, now, None, quotas=quotas)
        self.consolidated: list[tuple[Record, Plan]] = []
        for plan in plans:
            if plan.holds(state):
                parts = [state.records[part.id] for part in plan.parts]
                record = self.consolidate(plan.candidate, parts)
                if record is not None:
                    self.consolidated.append((record, plan))


class _Separating(Decisions):
    def __init__(self, state: State, scope: str, now: datetime, record: str, parts: Sequence[Judged]) -> None:
        super().__init__(state, scope, now, None)
        live = state.active(record, now)
        if live is None:
            return
        self.close([live], "archived", reason=SEPARATED)
        for part in parts:
            if part.reason:
                self.block(part.candidate, part.reason, phase="separate")
            else:
                self.write(part.candidate, phase="separate")


def separate(context: Context, call: Separate) -> Steps[WriteReport]:
    """Archive a consolidated record, and write its parts again. Raises ``InvalidArgument`` if it has no parts."""
    for scope in context.readable(None):
        ledger = yield from context.subject(scope).ledger()
        live = ledger.state.records.get(call.id)
        parts = [] if live is None else ledger.archived_parts(live)
        if not parts:
            continue
        candidates = [repeated(part.live.record_as(scope, "archived")) for part in parts]
        judged = judge(context, candidates, "import")
        if isinstance(judged, Violation):
            raise MemoryStopped(f"the policy does not allow these memories: {judged.reason}", reason=judged.reason)
        decisions = yield from decided(
            context,
            scope,
            lambda state, now: _Separating(state, scope, now, call.id, judged),  # noqa: B023  # called at once
        )
        return WriteReport("ok", "", tuple(decisions.outcomes))
    raise InvalidArgument(f"{in_quotes(call.id)} is no active record that was consolidated from other records")
