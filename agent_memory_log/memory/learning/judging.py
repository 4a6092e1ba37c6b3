"""What redaction, policy and execution say of candidates, in that order."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agent_memory_log.memory.policy.reasons import SCOPE_DENIED
from agent_memory_log.memory.records.candidates import Candidate, checked
from agent_memory_log.memory.records.kinds import Fact, Preference, RecordData, UnknownKind, kind_named
from agent_memory_log.memory.records.protocols import Origin, Refusal, Violation
from agent_memory_log.memory.records.record import Source
from agent_memory_log.memory.stream.context import Context

REFUSED = "refused"
"""The reason where a redactor gives none."""

_SOURCES = frozenset({"run", "user", "operator", "import"})


class Judged(msgspec.Struct, frozen=True):
    """A candidate after redaction, policy and execution; ``reason`` says why it is blocked (``""``: it is not)."""

    candidate: Candidate
    reason: str


def judge(context: Context, candidates: Sequence[Candidate], origin: Origin) -> list[Judged] | Violation:
    """What redaction, policy and execution say, in that order. Raises ``InvalidArgument``."""
    hooks = context.hooks
    home = context.principal.home
    judged: list[Judged] = []
    for given in candidates:
        candidate = checked(given, may_be_copy=origin == "import")
        if not candidate.scope:
            candidate = msgspec.structs.replace(candidate, scope=home)
        seen = hooks.redactor(candidate)
        if isinstance(seen, Refusal):
            judged.append(Judged(_blanked(context, candidate), seen.reason or REFUSED))
        else:
            judged.append(Judged(candidate if seen is candidate else checked(seen, may_be_copy=origin == "import"), ""))
    violation = hooks.policy.violation([one.candidate for one in judged if not one.reason], origin=origin)
    if violation is not None:
        return violation
    return [one if one.reason else Judged(one.candidate, _denial(context, one.candidate)) for one in judged]


def _blanked(context: Context, candidate: Candidate) -> Candidate:
    """What may be told of a candidate that was refused: where it came from, and its key if that alone is no secret.

    The key is how a user finds, and erases, what was blocked; all other text could hold what was refused.
    """
    known = kind_named(candidate.data.kind) is not None
    alone: RecordData = UnknownKind(candidate.data.kind if known else "", {"key": candidate.key})
    if isinstance(candidate.data, (Preference, Fact)):
        alone = msgspec.structs.replace(candidate.data, value="")
    seen = context.hooks.redactor(Candidate(alone)) if candidate.key else Refusal("")
    return Candidate(
        UnknownKind(alone.kind, {} if isinstance(seen, Refusal) else {"key": seen.key}),
        scope=candidate.scope if candidate.scope in context.principal.scopes else "",
        source=Source(candidate.source.kind if candidate.source.kind in _SOURCES else ""),
        evidence=tuple(msgspec.structs.replace(one, item="", event_id="") for one in candidate.evidence),
    )


def _denial(context: Context, candidate: Candidate) -> str:
    if candidate.scope not in context.principal.scopes:
        return SCOPE_DENIED
    return context.hooks.execution.denial(candidate) or ""
