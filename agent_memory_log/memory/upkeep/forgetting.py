"""Forgetting: what is meant by a key, an id, or everything; ``erasing`` carries it out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import astuple

from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, RunExpired
from agent_memory_log.memory.learning.merging import MERGES
from agent_memory_log.memory.operations import Forget, ForgetAll
from agent_memory_log.memory.records.kinds import fold_key, fold_text
from agent_memory_log.memory.records.reports import ForgetReport
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.history import Ledger
from agent_memory_log.memory.stream.payloads import MemoryBlocked
from agent_memory_log.memory.stream.state import Live
from agent_memory_log.memory.stream.subjects import Subject
from agent_memory_log.memory.upkeep.erasing import Reach, Target, erase
from agent_memory_log.steps import Steps, load


def forget(context: Context, call: Forget) -> Steps[ForgetReport]:
    """Forget what a key has ever held, or a record and whatever else of its key says the same."""
    key, kind, scope = call.key, call.kind, call.scope
    if (call.id is None) == (key is None):
        raise InvalidArgument("say what to forget: either id or key")
    reach = Reach(call.evidence, call.sweep, call.sweep_limit, call.dry_run)
    if key is not None:
        wanted = fold_key(key)

        def has_key(live: Live) -> bool:
            return bool(wanted) and fold_key(live.memory.key) == wanted and kind in (None, live.memory.kind)

        def is_about(blocked: MemoryBlocked) -> bool:
            return bool(wanted) and fold_key(blocked.key) == wanted and kind in (None, "", blocked.kind)

        return (yield from erase(context, context.readable_scope(scope), Target(lambda _: has_key, is_about), reach))
    total = ForgetReport()
    target = Target(lambda ledger: _same_as(ledger, call.id or ""), lambda _: False)
    for name in context.readable(None if scope is None else [scope]):
        total = _sum(total, (yield from erase(context, name, target, reach)))
    return total


def forget_all(context: Context, call: ForgetAll) -> Steps[ForgetReport]:
    """Forget everything of each scope, and what was said so far in every run that is known or named."""
    total = ForgetReport()
    named: dict[tuple[str, str], int] = {}
    for agent, run in call.runs:
        there = yield from load(agent, run, limit=1)
        named[agent, run] = there.version
    for scope in context.readable(call.scopes):
        named |= yield from _linked(context.subject(scope))
        reach = Reach(evidence=call.evidence, runs=dict(named))
        target = Target(lambda _: _every, lambda _: True, everything=True)
        total = _sum(total, (yield from erase(context, scope, target, reach)))
    return total


def _linked(subject: Subject) -> Steps[dict[tuple[str, str], int]]:
    """The versions of the linked runs: what was said there so far is not to be found again."""
    yield from subject.refresh()
    found: dict[tuple[str, str], int] = {}
    for place in subject.ask(lambda state: tuple(state.linked)):
        with suppress(CursorOutOfRange, RunExpired):  # the run is gone
            found[place] = (yield from load(*place, limit=1)).version
    return found


def _every(_: Live) -> bool:
    return True


def _same_as(ledger: Ledger, record: str) -> Callable[[Live], bool]:
    """Whether a record is the one with this id, or of its kind and key and says the same; or was merged from such."""
    named = next((live for live, _ in ledger.lives() if live.id == record), None)
    if named is None:
        return lambda _: False
    data, text = named.data, fold_text(named.memory.text)

    def says_the_same(live: Live) -> bool:
        memory = live.memory
        return live.id == record or (
            memory.kind == named.memory.kind
            and (bool(memory.key) or fold_text(memory.text) == text)
            and live.data.same_as(data)
        )

    # What was merged comes after what it was merged from, and says it too.
    found: set[str] = set()
    for live, _ in ledger.lives():
        parts = {link.target for link in live.memory.links if link.type == MERGES}
        if says_the_same(live) or not found.isdisjoint(parts):
            found.add(live.id)
    return lambda live: live.id in found


def _sum(one: ForgetReport, other: ForgetReport) -> ForgetReport:
    return ForgetReport(*(first + second for first, second in zip(astuple(one), astuple(other), strict=True)))
