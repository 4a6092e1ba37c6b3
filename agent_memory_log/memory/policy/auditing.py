"""Checks an answer against the memories that it declares to follow: each was retrieved, and the answer follows it.

audit = audit_answer(text, ["language"], [hit.record for hit in hits if hit.record], verifiers={"language": is_english})
if audit.stop_reason:
await me.note_stop(audit.stop_reason, phase="answer")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from agent_memory_log.memory.policy.reasons import invalid_answer
from agent_memory_log.memory.records.kinds import fold_key
from agent_memory_log.memory.records.record import Record

MAX_ANSWER = 700
"""How many characters an answer may have, where nothing else is said."""

Verifier = Callable[[str, str], bool | None]
"""Returns whether the answer (second) follows the value (first), or None where that cannot be told."""


class AnswerAudit(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit of an answer found.

    - ``stop_reason``: why the answer must not be used: ``invalid_answer:…``; ``""`` if it may be used.
    - ``used_keys``: the declared keys that were retrieved, each once, spelled as the records spell them.
    - ``unknown_keys``: the declared keys that were not retrieved, sorted.
    - ``applied``: the retrieved records under ``used_keys``.
    - ``verified``: by key, whether the answer follows a record; keys that no verifier can judge are left out.
    """

    stop_reason: str = ""
    used_keys: tuple[str, ...] = ()
    unknown_keys: tuple[str, ...] = ()
    applied: tuple[Record, ...] = ()
    verified: Mapping[str, bool] = {}


def audit_answer(
    answer: str,
    declared_keys: Iterable[str],
    retrieved: Iterable[Record],
    *,
    verifiers: Mapping[str, Verifier] | None = None,
    max_chars: int = MAX_ANSWER,
) -> AnswerAudit:
    """Check an answer against the keys of the memories that it declares to follow.

    ``retrieved`` are the records that the answer could know. Keys are compared trimmed and case-folded. ``verifiers``
    are functions by key; without any, a declared key must only have been retrieved. An answer with several declared
    keys must follow one of those that a verifier can judge. ``max_chars`` limits the answer, in characters.

    The stop reasons are ``invalid_answer:memory_keys_out_of_context``, ``invalid_answer:too_long`` and
    ``invalid_answer:memory_declared_but_not_applied``, looked for in this order.
    """
    records = [record for record in retrieved if record.key]
    spelling = {fold_key(record.key): record.key for record in records}
    declared = tuple(dict.fromkeys(declared_keys))
    unknown = tuple(sorted(key for key in declared if fold_key(key) not in spelling))
    if unknown:
        return AnswerAudit(stop_reason=invalid_answer("memory_keys_out_of_context"), unknown_keys=unknown)
    if len(answer) > max_chars:
        return AnswerAudit(stop_reason=invalid_answer("too_long"))
    used = tuple(dict.fromkeys(spelling[fold_key(key)] for key in declared))
    applied = tuple(record for record in records if spelling[fold_key(record.key)] in used)
    verified = _verify(applied, answer, verifiers or {})
    fails = bool(verified) and not any(verified.values())
    return AnswerAudit(
        stop_reason=invalid_answer("memory_declared_but_not_applied") if fails else "",
        used_keys=used,
        applied=applied,
        verified=verified,
    )


def _verify(records: Iterable[Record], answer: str, verifiers: Mapping[str, Verifier]) -> dict[str, bool]:
    """By key, whether the answer follows one of the records under it, which may stand in several scopes."""
    by_key = {fold_key(key): verifier for key, verifier in verifiers.items()}
    verified: dict[str, bool] = {}
    for record in records:
        verifier = by_key.get(fold_key(record.key))
        follows = None if verifier is None else verifier(record.value, answer)
        if follows is not None:
            verified[record.key] = verified.get(record.key, False) or follows
    return verified
