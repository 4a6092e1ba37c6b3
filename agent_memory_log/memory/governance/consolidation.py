"""Replaces groups of records by one record each, and undoes this. The replaced records are archived, not erased."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

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
from agent_memory_log.memory.records.record import RESTORES
from agent_memory_log.memory.records.reports.conflicts import CONTRADICTS
from agent_memory_log.memory.records.reports.outcomes import Outcome, WriteReport
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.history import CONSOLIDATED, Closed, Ledger
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


def bring_back(decisions: Decisions, ledger: Ledger) -> list[tuple[Live, str]]:
    """Write archived parts again whose consolidated record is gone or has an old value. Return them, each with why.

    A consolidated record falls with the evidence of one part. The other parts then become active again. It has an old
    value if the key of a part has a newer record. Then the newer record stays, and the other parts become active again.
    """
    state = decisions.state
    consolidated = [closed for closed in ledger.closed.values() if closed.reason == CONSOLIDATED]
    repeats = {link.target for live, _ in ledger.lives() for link in live.memory.links if link.type == RESTORES}
    stale = dict.fromkeys(closed.by for closed in consolidated if closed.by in state.records and _newer(state, closed))
    if stale:
        decisions.close([state.records[record] for record in stale], "archived", reason=SEPARATED)
    returned: list[tuple[Live, str]] = []
    for closed in consolidated:
        is_gone = closed.by not in state.records and closed.by not in ledger.closed
        is_due = (is_gone or closed.by in stale) and closed.live.id not in repeats
        if not is_due or _newer(state, closed) or closed.live.is_expired(decisions.now):
            continue
        candidate = repeated(closed.live.record_as(decisions.scope, "archived"))
        outcome = None if decisions.refusal(candidate) else decisions.write(candidate)  # the next round tries again
        if outcome is not None and outcome.action == "written":
            why = "the consolidated record lost a part" if is_gone else "another part has a newer value"
            returned.append((closed.live, why))
    return returned


def _newer(state: State, closed: Closed) -> Live | None:
    """Return the active record with the key of a closed one, or None."""
    return state.find(closed.live.memory.kind, closed.live.memory.key)


def consolidate(plans: Sequence[Plan], decisions: Decisions) -> list[tuple[Live, Plan]]:
    """Carry out plans. Return the new records, each with its plan.

    A plan whose records changed meanwhile, or whose record is blocked, is left out.
    """
    consolidated: list[tuple[Live, Plan]] = []
    for plan in plans:
        if plan.holds(decisions.state):
            live = decisions.consolidate(plan.candidate, [decisions.state.records[part.id] for part in plan.parts])
            if live is not None:
                consolidated.append((live, plan))
    return consolidated


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
        outcomes = yield from decided(context, scope, partial(_separate, call.id, judged), "separate")
        return WriteReport("ok", "", tuple(outcomes))
    raise InvalidArgument(f"{in_quotes(call.id)} is no active record that was consolidated from other records")


def _separate(record: str, parts: Sequence[Judged], decisions: Decisions) -> list[Outcome]:
    live = decisions.state.active(record, decisions.now)
    if live is not None:
        decisions.close([live], "archived", reason=SEPARATED)
        for part in parts:
            if part.reason:
                decisions.block(part.candidate, part.reason)
            else:
                decisions.write(part.candidate)
    return decisions.outcomes
