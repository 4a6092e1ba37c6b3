"""Checks candidates with the client's redactor, policy and execution, in this order."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agent_memory_log.memory.entities import entities_of
from agent_memory_log.memory.policy.consent import ONLY_BY_CONSENT_CALLS
from agent_memory_log.memory.policy.reasons import SCOPE_DENIED
from agent_memory_log.memory.records.candidates import Candidate, checked
from agent_memory_log.memory.records.kinds import Consent, Fact, Preference, RecordData, UnknownKind, kind_named
from agent_memory_log.memory.records.protocols import Origin, Refusal, Violation
from agent_memory_log.memory.records.record import Source
from agent_memory_log.memory.stream.context import Context

REFUSED = "refused"
"""The reason of a refusal if the redactor gives no reason."""

_SOURCES = frozenset({"run", "user", "operator", "import"})


class Judged(msgspec.Struct, frozen=True):
    """A candidate after redaction, policy and execution. ``reason`` says why it is blocked, or is ``""``."""

    candidate: Candidate
    reason: str


def judge(context: Context, candidates: Sequence[Candidate], origin: Origin) -> list[Judged] | Violation:
    """Check candidates with the redactor, the policy and the execution.

    Returns a ``Violation`` if the policy stops the whole call. It never stops ``derive``, or a run could not be learnt
    from because of one statement in it. Raises ``InvalidArgument`` for a candidate that cannot be stored.
    """
    hooks = context.hooks
    judged: list[Judged] = []
    for proposal in candidates:
        candidate = _with_defaults(context, checked(proposal, may_be_copy=origin == "import"), origin)
        redacted = hooks.redactor(candidate)
        if isinstance(redacted, Refusal):
            judged.append(Judged(_blanked(context, candidate), redacted.reason or REFUSED))
        else:
            if redacted is not candidate:
                redacted = checked(redacted, may_be_copy=origin == "import")
            judged.append(Judged(_with_entities(redacted), ""))
    if origin != "derive":
        violation = hooks.policy.violation([item.candidate for item in judged if not item.reason], origin=origin)
        if violation is not None:
            return violation
    return [
        item if item.reason else Judged(item.candidate, _denial(context, item.candidate, origin)) for item in judged
    ]


def judge_one(context: Context, candidate: Candidate, origin: Origin) -> Judged:
    """Check one candidate as ``judge`` does. It is also blocked if the policy stops the call."""
    judged = judge(context, [candidate], origin)
    return Judged(candidate, judged.reason) if isinstance(judged, Violation) else judged[0]


def _with_defaults(context: Context, candidate: Candidate, origin: Origin) -> Candidate:
    """Return the candidate with a scope, and with the policy's lifetime if it is a new preference without an end.

    An imported consent rests on itself and has no end, so that it does not fall and nothing is stored against it.
    """
    days = context.hooks.policy.preference_ttl_days
    if not candidate.scope:
        candidate = msgspec.structs.replace(candidate, scope=context.principal.home)
    if isinstance(candidate.data, Consent):
        return msgspec.structs.replace(candidate, ttl_days=None, valid_until=None, evidence=())
    if days is None or origin == "import" or not isinstance(candidate.data, Preference):
        return candidate
    if candidate.ttl_days is not None or candidate.valid_until is not None:
        return candidate
    return msgspec.structs.replace(candidate, ttl_days=days)


def _with_entities(candidate: Candidate) -> Candidate:
    """Return a candidate without entities with the names in its text, which no longer has what the redactor masks."""
    names = candidate.entities or entities_of(candidate.words)
    return candidate if names == candidate.entities else msgspec.structs.replace(candidate, entities=names)


def _blanked(context: Context, candidate: Candidate) -> Candidate:
    """Return a refused candidate without its content: its origin, and its key if the redactor accepts the key alone.

    With the key, a user can find and erase a blocked memory. All other text could contain the refused content.
    """
    is_registered = kind_named(candidate.data.kind) is not None
    key_only: RecordData = UnknownKind(candidate.data.kind if is_registered else "", {"key": candidate.key})
    if isinstance(candidate.data, (Preference, Fact)):
        key_only = msgspec.structs.replace(candidate.data, value="")
    redacted = context.hooks.redactor(Candidate(key_only)) if candidate.key else Refusal("")
    return Candidate(
        UnknownKind(key_only.kind, {} if isinstance(redacted, Refusal) else {"key": redacted.key}),
        scope=candidate.scope if candidate.scope in context.principal.scopes else "",
        source=Source(candidate.source.kind if candidate.source.kind in _SOURCES else ""),
        evidence=tuple(msgspec.structs.replace(item, item="", event_id="") for item in candidate.evidence),
    )


def _denial(context: Context, candidate: Candidate, origin: Origin) -> str:
    if candidate.data.kind == Consent.kind and origin != "import":
        return ONLY_BY_CONSENT_CALLS
    if origin == "derive":
        violation = context.hooks.policy.violation([candidate], origin=origin)
        if violation is not None:
            return violation.reason
    if candidate.scope not in context.principal.scopes:
        return SCOPE_DENIED
    return context.hooks.execution.denial(candidate) or ""
