"""Audits a model's answer: it may declare only memories that were retrieved, and it must follow them.

    retrieved = [hit.record for hit in hits if hit.record]
    audit = audit_answer(text, ["language"], retrieved, verifiers={"language": is_english})
    if audit.stop_reason:
        await me.note_stop(audit.stop_reason, phase="answer")

``is_english`` is a function of the application. It returns whether the answer follows the remembered value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from agent_memory_log.memory.policy.reasons import invalid_answer
from agent_memory_log.memory.records.kinds import fold_key
from agent_memory_log.memory.records.record import Record

MAX_ANSWER = 700
"""The default limit of an answer, in characters."""

Verifier = Callable[[str, str], bool | None]
"""A function of a value and an answer. It returns whether the answer follows the value, or None if it cannot decide."""


class AnswerAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an audit of an answer.

    Attributes:
        stop_reason: The reason why the answer must not be used, ``invalid_answer:…``. ``""``: it may be used.
        used_keys: The declared keys that were retrieved, without duplicates, in the records' spelling.
        unknown_keys: The declared keys that were not retrieved, sorted.
        applied: The retrieved records that have one of the ``used_keys``.
        verified: Whether the answer follows a record, by key. It omits keys that no verifier can judge.
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

    Keys are compared without surrounding white space and without case. If verifiers can judge records with declared
    keys, the answer must follow at least one of these records. Other declared keys only have to be retrieved.

    The checks run in this order. Their stop reasons are ``invalid_answer:memory_keys_out_of_context``,
    ``invalid_answer:too_long`` and ``invalid_answer:memory_declared_but_not_applied``.

    Args:
        answer: The text of the answer.
        declared_keys: The keys that the answer declares.
        retrieved: The records that were retrieved for the answer.
        verifiers: The verifiers by key.
        max_chars: The limit of the answer, in characters.
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
    """Return by key whether the answer follows a record with that key. Several scopes may have such a record."""
    by_key = {fold_key(key): verifier for key, verifier in verifiers.items()}
    verified: dict[str, bool] = {}
    for record in records:
        verifier = by_key.get(fold_key(record.key))
        follows = None if verifier is None else verifier(record.value, answer)
        if follows is not None:
            verified[record.key] = verified.get(record.key, False) or follows
    return verified
