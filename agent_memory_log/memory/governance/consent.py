"""Asks, gives and withdraws the consents of a user. ``policy.consent`` applies them to every write."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Literal

from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.memory.learning.deciding import Decisions
from agent_memory_log.memory.learning.writing import decided
from agent_memory_log.memory.operations import AskConsent, GiveConsent, ReadQuotas, WithdrawConsent
from agent_memory_log.memory.policy.quotas import Room
from agent_memory_log.memory.records.candidates import Candidate, checked
from agent_memory_log.memory.records.kinds import Consent, fold_key
from agent_memory_log.memory.records.messages import MESSAGE
from agent_memory_log.memory.records.protocols import Refusal
from agent_memory_log.memory.records.quotas import LimitUse
from agent_memory_log.memory.records.record import Source
from agent_memory_log.memory.records.reports.outcomes import ForgetReport, Outcome
from agent_memory_log.memory.stream.context import Context, Hooks
from agent_memory_log.memory.stream.payloads import MemoryBlocked
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.memory.upkeep.erasing import Reach, Target, erase
from agent_memory_log.memory.upkeep.forgetting import with_merged
from agent_memory_log.steps import Steps

_PHASE = "consent"
_LONGEST = 512


def ask_consent(context: Context, call: AskConsent) -> Steps[Outcome]:
    """Write the consent as asked, unless it was given."""
    return (yield from _write(context, call, "asked"))


def give_consent(context: Context, call: GiveConsent) -> Steps[Outcome]:
    """Write the consent as given."""
    return (yield from _write(context, call, "given"))


def _write(context: Context, call: AskConsent | GiveConsent, status: Literal["asked", "given"]) -> Steps[Outcome]:
    candidate = _candidate(context, call, status)
    scope, key = candidate.scope, candidate.key

    def decide(decisions: Decisions) -> Outcome:
        live = decisions.keyed(Consent.kind, key)
        is_given = live is not None and isinstance(live.data, Consent) and live.data.status == "given"
        if live is not None and is_given and not live.is_expired(decisions.now):
            return Outcome("unchanged", scope, Consent.kind, key, live.record(scope, decisions.now))
        decisions.write(candidate)
        return decisions.outcomes[0]

    return (yield from decided(context, scope, decide, _PHASE))


def withdraw_consent(context: Context, call: WithdrawConsent) -> Steps[ForgetReport]:
    """Write the consent as withdrawn, and forget its memories, in one append."""
    candidate = _candidate(context, call, "withdrawn")
    scope, folded_key = candidate.scope, fold_key(call.key)

    def is_about(kind: str, key: str) -> bool:
        return kind == call.kind and (not folded_key or fold_key(key) == folded_key)

    def is_record_about(live: Live) -> bool:
        return is_about(live.memory.kind, live.memory.key)

    def is_note_about(blocked: MemoryBlocked) -> bool:
        return is_about(blocked.kind, blocked.key)

    def consent(state: State, now: datetime) -> list[Event]:
        decisions = Decisions(context, scope, state, now, _PHASE)
        decisions.write(candidate)
        return decisions.events

    target = Target(lambda ledger: with_merged(ledger, is_record_about), is_note_about, also=consent)
    return (yield from erase(context, scope, target, Reach(call.evidence)))


def read_quotas(context: Context, call: ReadQuotas) -> Steps[tuple[LimitUse, ...]]:
    """Return the use of each limit in each scope."""
    uses: list[LimitUse] = []
    for scope in context.readable(call.scopes):
        subject = context.subject(scope)
        yield from subject.refresh()
        uses += subject.ask(partial(_uses, context.hooks, scope))
    return tuple(uses)


def _uses(hooks: Hooks, scope: str, state: State) -> tuple[LimitUse, ...]:
    return Room(state, hooks.max_keyed, hooks.quotas).use(scope)


def _candidate(
    context: Context,
    call: AskConsent | GiveConsent | WithdrawConsent,
    status: Literal["asked", "given", "withdrawn"],
) -> Candidate:
    """Return the consent of a call after all checks. Raises ``InvalidArgument`` and ``MemoryStopped``."""
    if not call.kind.strip() or call.kind in (Consent.kind, MESSAGE):
        raise InvalidArgument(f"kind must be a kind of records other than {Consent.kind}, got {describe(call.kind)}")
    for name, text in (("kind", call.kind), ("key", call.key)):
        if len(text) > _LONGEST:
            raise InvalidArgument(f"{name} must have at most {_LONGEST} characters, got {len(text):,}")
    scope = context.readable_scope(call.scope)
    candidate = checked(Candidate(Consent(call.kind, call.key.strip(), status), scope, source=Source("user")))
    redacted = context.hooks.redactor(candidate)
    if isinstance(redacted, Refusal) or redacted.data != candidate.data:
        raise MemoryStopped("the redactor does not allow the key of this consent", reason="consent_key_refused")
    denial = context.hooks.execution.denial(candidate)
    if denial:
        raise MemoryStopped(f"execution does not allow this consent: {denial}", reason=denial)
    return candidate
