"""Chooses the memories to forget by key, by id, or all of them. ``erasing`` erases them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import astuple

from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, RunExpired
from agent_memory_log.memory.operations import Forget, ForgetAll
from agent_memory_log.memory.records.kinds import Consent, fold_key, fold_text
from agent_memory_log.memory.records.record import RESTORES
from agent_memory_log.memory.records.reports.outcomes import ForgetReport
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.evidence import parts_of
from agent_memory_log.memory.stream.history import Ledger
from agent_memory_log.memory.stream.payloads import MemoryBlocked
from agent_memory_log.memory.stream.state import Live
from agent_memory_log.memory.stream.subjects import Subject
from agent_memory_log.memory.upkeep.erasing import Reach, Target, erase
from agent_memory_log.steps import Steps, load


def forget(context: Context, call: Forget) -> Steps[ForgetReport]:
    """Forget every value that a key has had, or one record and the other records that say the same."""
    if (call.id is None) == (call.key is None):
        raise InvalidArgument("expected either id or key, got both or neither")
    reach = Reach(call.evidence, call.sweep, call.sweep_limit, call.dry_run)
    if call.key is not None:
        return (yield from erase(context, context.readable_scope(call.scope), _with_key(call.key, call.kind), reach))
    total = ForgetReport()
    target = Target(lambda ledger: _same_as(ledger, call.id or ""), lambda _: False)
    for scope in context.readable(None if call.scope is None else [call.scope]):
        total = _sum(total, (yield from erase(context, scope, target, reach)))
    return total


def _with_key(key: str, kind: str | None) -> Target:
    folded_key = fold_key(key)

    def has_key(live: Live) -> bool:
        is_same = bool(folded_key) and fold_key(live.memory.key) == folded_key
        return is_same and kind in (None, live.memory.kind) and _is_no_consent(live)

    def is_about(blocked: MemoryBlocked) -> bool:
        return bool(folded_key) and fold_key(blocked.key) == folded_key and kind in (None, "", blocked.kind)

    return Target(lambda ledger: with_merged(ledger, has_key), is_about)


def forget_all(context: Context, call: ForgetAll) -> Steps[ForgetReport]:
    """Forget all memory of each scope except its consents, and the messages so far of every linked or named run."""
    total = ForgetReport()
    versions: dict[tuple[str, str], int] = {}
    for agent, run in call.runs:
        snapshot = yield from load(agent, run, limit=1)
        versions[agent, run] = snapshot.version
    for scope in context.readable(call.scopes):
        versions |= yield from _linked(context.subject(scope))
        reach = Reach(evidence=call.evidence, runs=dict(versions))
        target = Target(lambda _: _is_no_consent, lambda _: True, everything=True)
        total = _sum(total, (yield from erase(context, scope, target, reach)))
    return total


def _linked(subject: Subject) -> Steps[dict[tuple[str, str], int]]:
    """Return the versions of the linked runs. After an erasure, no search finds messages up to these versions."""
    yield from subject.refresh()
    versions: dict[tuple[str, str], int] = {}
    for run_id in subject.ask(lambda state: tuple(state.linked)):
        with suppress(CursorOutOfRange, RunExpired):  # the run is gone
            versions[run_id] = (yield from load(*run_id, limit=1)).version
    return versions


def _is_no_consent(live: Live) -> bool:
    return live.memory.kind != Consent.kind


def _same_as(ledger: Ledger, record: str) -> Callable[[Live], bool]:
    """Return a function that chooses the record, its equals, all records that were merged from them, and their parts.

    An equal record has the same kind and data. If the kind has no keys, it also has the same text.
    """
    original = next((live for live, _ in ledger.lives() if live.id == record), None)
    if original is None or not _is_no_consent(original):
        return lambda _: False
    data, text = original.data, fold_text(original.memory.text)

    def says_the_same(live: Live) -> bool:
        memory = live.memory
        return live.id == record or (
            memory.kind == original.memory.kind
            and (bool(memory.key) or fold_text(memory.text) == text)
            and live.data.same_as(data)
        )

    return with_merged(ledger, says_the_same)


def with_merged(ledger: Ledger, is_target: Callable[[Live], bool]) -> Callable[[Live], bool]:
    """Return a function that chooses the targets, their archived parts, and all records that repeat one of these.

    A consolidated record repeats its parts, and a restored record repeats the archived one.
    """
    lives = [live for live, _ in ledger.lives()]
    targets = {live.id for live in lives if is_target(live)}
    for live in reversed(lives):  # a merged record comes after its parts
        if live.id in targets:
            targets |= {part.live.id for part in ledger.archived_parts(live)}
    chosen = set(targets)
    for live in lives:
        restored = (link.target for link in live.memory.links if link.type == RESTORES)
        if not chosen.isdisjoint((*parts_of(live), *restored)):
            chosen.add(live.id)
    return lambda live: live.id in chosen


def _sum(left: ForgetReport, right: ForgetReport) -> ForgetReport:
    return ForgetReport(*(first + second for first, second in zip(astuple(left), astuple(right), strict=True)))
