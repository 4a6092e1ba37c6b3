"""Forgetting: a tombstone first, so that every client knows, and then the redaction of all that holds the value.

A process that dies between the two leaves a tombstone whose seqs are still there: whoever writes next finishes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, RunExpired, VersionConflict
from agent_memory_log.events import Event, new_event
from agent_memory_log.fields import describe
from agent_memory_log.jsonvalue import JsonValue
from agent_memory_log.memory.context import Context
from agent_memory_log.memory.deriving import RECALLED_TYPE
from agent_memory_log.memory.kinds import fold_key, fold_text, read_kind
from agent_memory_log.memory.ledger import Ledger
from agent_memory_log.memory.merging import MERGES
from agent_memory_log.memory.payloads import MemoryBlocked, MemoryChanged, MemoryRemembered, MemoryTombstone, Until
from agent_memory_log.memory.principals import STREAM_RUN
from agent_memory_log.memory.records import Evidence
from agent_memory_log.memory.reports import ForgetReport
from agent_memory_log.memory.state import Live
from agent_memory_log.memory.steps import Load, Redact, Steps, load, redact
from agent_memory_log.memory.subjects import FORGOTTEN, Subject, folded
from agent_memory_log.memory.vectors import erase_orphans

_ATTEMPTS = 500

Place = tuple[str, str, int]
"""An event of the log: agent, run and seq."""


def forget(
    context: Context,
    *,
    record: str | None,
    key: str | None,
    kind: str | None,
    scope: str | None,
    evidence: bool,
) -> Steps[ForgetReport]:
    """Forget what a key has ever held, or a record and whatever else of its key says the same."""
    if (record is None) == (key is None):
        raise InvalidArgument("say what to forget: either id or key")
    for name, value in (("id", record), ("key", key), ("kind", kind)):
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(f"{name} must be text, found {describe(value)}")
    if key is not None:
        wanted = fold_key(key)

        def has_key(live: Live) -> bool:
            return bool(wanted) and fold_key(live.told.key) == wanted and kind in (None, live.told.kind)

        def is_about(blocked: MemoryBlocked) -> bool:
            return bool(wanted) and fold_key(blocked.key) == wanted and kind in (None, "", blocked.kind)

        report = yield from _erase(context, context.one(scope), lambda _: has_key, is_about, evidence=evidence)
        return report
    total = ForgetReport()
    for one in context.readable(None if scope is None else [scope]):
        report = yield from _erase(
            context, one, lambda ledger: _same_as(ledger, record or ""), lambda _: False, evidence=evidence
        )
        total = _sum(total, report)
    return total


def forget_all(
    context: Context, *, scopes: Iterable[str] | None, runs: Sequence[tuple[str, str]], evidence: bool
) -> Steps[ForgetReport]:
    """Forget everything of each scope, and what was said so far in every run that is known or named."""
    total = ForgetReport()
    named: dict[tuple[str, str], int] = {}
    for agent, run in runs:
        there = yield from load(Load(agent, run, limit=1))
        named[agent, run] = there.version
    for scope in context.readable(scopes):
        named |= yield from _linked(context.subject(scope))
        report = yield from _erase(
            context, scope, lambda _: _every, lambda _: True, evidence=evidence, everything=True, runs=named
        )
        total = _sum(total, report)
    return total


def _linked(subject: Subject) -> Steps[dict[tuple[str, str], int]]:
    """The versions of the linked runs: what was said there so far is not to be found again."""
    yield from subject.refresh()
    found: dict[tuple[str, str], int] = {}
    for place in subject.ask(lambda state: tuple(state.linked)):
        with suppress(CursorOutOfRange, RunExpired):  # the run is gone
            found[place] = (yield from load(Load(*place, limit=1))).version
    return found


def _every(_: Live) -> bool:
    return True


def _same_as(ledger: Ledger, record: str) -> Callable[[Live], bool]:
    """Whether a record is the one with this id, or of its kind and key and says the same; or was merged from such."""
    named = next((live for live, _ in ledger.lives() if live.id == record), None)
    if named is None:
        return lambda _: False
    data = read_kind(named.told.kind, named.told.data)

    def says_the_same(live: Live) -> bool:
        if live.id == record:
            return True
        told = live.told
        return (
            told.kind == named.told.kind
            and (bool(told.key) or fold_text(told.text) == fold_text(named.told.text))
            and read_kind(told.kind, told.data).same_as(data)
        )

    # What was merged comes after what it was merged from, and says it too.
    found: set[str] = set()
    for live, _ in ledger.lives():
        parts = {link.target for link in live.told.links if link.type == MERGES}
        if says_the_same(live) or not found.isdisjoint(parts):
            found.add(live.id)
    return lambda live: live.id in found


def _erase(
    context: Context,
    scope: str,
    choose: Callable[[Ledger], Callable[[Live], bool]],
    is_about: Callable[[MemoryBlocked], bool],
    *,
    evidence: bool,
    everything: bool = False,
    runs: dict[tuple[str, str], int] | None = None,
) -> Steps[ForgetReport]:
    subject = context.subject(scope)
    attempt = 0
    redacted: set[Place] = set()
    while True:
        stream = yield from subject.load_all()
        ledger = Ledger(stream)
        state = folded(stream)
        chosen = choose(ledger)
        lives = [live for live, _ in ledger.lives() if chosen(live)]
        blocked = [event for event, data in ledger.blocked if is_about(data)]
        until = {**(state.positions if everything else {})}
        for place, seq in (runs or {}).items():
            until[place] = max(seq, until.get(place, 0))
        until = {place: seq for place, seq in until.items() if seq > state.until.get(place, 0)}
        # What rested on nothing in the log is known by its own place, so that an older export does not bring it back.
        own = [Evidence(subject.agent, STREAM_RUN, live.seq) for live in lives if not ledger.first_evidence(live)]
        if everything and own:
            until[subject.agent, STREAM_RUN] = max(one.seq for one in own)
        sources = sorted({*_sources(lives, blocked), *own})
        sources = [one for one in sources if one.seq > max(until.get((one.agent, one.run), 0), 0)]
        seqs = {seq for live in lives for seq in (live.seq, *live.changed)} | {event.seq for event in blocked}
        if everything:
            seqs |= {event.seq for event in stream.log if isinstance(event.data, _HOLDING)} - state.pending
        if not (seqs or until or state.pending):
            return ForgetReport()
        if evidence:
            said = {
                (one.agent, one.run, one.seq)
                for one in _sources(lives, blocked)
                if one.seq <= state.positions.get((one.agent, one.run), 0)  # as evidence may say anything
            }
            recalled = yield from _recalled({*state.positions, *(runs or {})}, {live.id for live in lives}, said)
            redacted |= yield from _redact(said | recalled)
        if seqs or until:
            tombstone = MemoryTombstone(
                erased=tuple(sorted(seqs | state.chunks)) if seqs else (),
                sources=tuple(sources),
                until=tuple(Until(*place, seq) for place, seq in sorted(until.items())),
            )
            now = context.hooks.now()
            yield from subject.refresh()
            try:
                yield from subject.commit([new_event(tombstone, timestamp=now)], stream.version)
            except VersionConflict:
                attempt += 1
                if attempt == _ATTEMPTS:
                    raise
                continue
        erased = yield from _finish(subject, context)
        return ForgetReport(len(lives), erased, len(redacted))


_HOLDING = (MemoryRemembered, MemoryChanged, MemoryBlocked)
"""The events that hold a value or a key; what snapshots hold is in the state's chunks."""


def _finish(subject: Subject, context: Context) -> Steps[int]:
    yield from subject.refresh()
    erased = yield from subject.finish_erasure()
    erased += yield from erase_orphans(subject)
    yield from subject.keep_opening_fast(context.hooks.now())
    return erased


def _sources(lives: Sequence[Live], blocked: Sequence[Event]) -> list[Evidence]:
    """The statements that are not to be learnt from again."""
    found = {one for live in lives for one in live.told.evidence}
    for event in blocked:
        if isinstance(event.data, MemoryBlocked):
            found.update(event.data.evidence)
    return sorted(found)


def _recalled(runs: Iterable[tuple[str, str]], records: set[str], said: set[Place]) -> Steps[set[Place]]:
    """Where a run says what a model was told from memory, if that names one of these records or messages."""
    found: set[Place] = set()
    for agent, run in sorted(runs):
        with suppress(CursorOutOfRange, RunExpired):  # the run is gone, and what it said with it
            there = yield from load(Load(agent, run, types=(RECALLED_TYPE,)))
            found |= {(agent, run, event.seq) for event in there.log if _names(event, records, said)}
    return found


def _names(event: Event, records: set[str], said: set[Place]) -> bool:
    """Whether an event names one of the records or messages in its data, which may be anything."""
    data = event.data.to_map()
    named, places = data.get("records"), data.get("messages")
    if isinstance(named, list) and any(isinstance(one, str) and one in records for one in named):
        return True
    given = places if isinstance(places, list) else []
    return any(isinstance(one, dict) and _is_one_of(said, one) for one in given)


def _is_one_of(said: set[Place], named: Mapping[str, JsonValue]) -> bool:
    agent, run, seq = (named.get(part) for part in ("agent", "run", "seq"))
    return isinstance(agent, str) and isinstance(run, str) and isinstance(seq, int) and (agent, run, seq) in said


def _redact(places: set[Place]) -> Steps[set[Place]]:
    """Redact events in their own runs; those that could be."""
    by_run: dict[tuple[str, str], set[int]] = {}
    for agent, run, seq in places:
        by_run.setdefault((agent, run), set()).add(seq)
    done: set[Place] = set()
    for (agent, run), seqs in sorted(by_run.items()):
        with suppress(CursorOutOfRange, RunExpired):  # the run is gone, and what it said with it
            yield from redact(Redact(agent, run, tuple(sorted(seqs)), FORGOTTEN))
            done |= {(agent, run, seq) for seq in seqs}
    return done


def _sum(one: ForgetReport, other: ForgetReport) -> ForgetReport:
    return ForgetReport(one.records + other.records, one.events + other.events, one.evidence + other.evidence)
