"""Verifying a store: whether it holds what it promises, and oddities of its runs that are worth knowing.

``verify`` reads every event and asks the store to check itself. Errors are broken promises; warnings
may have a good reason; notes are what a run may simply be. To add a check: a kind in ``Check``, and where
``_RunChecks`` finds it.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable
from typing import cast

import msgspec

from agent_memory_log.errors import AgentMemoryLogError, DecodeError, EventsMissing, RunExpired, StoreCorrupt
from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import EventType, Redacted, Redaction, ToolCall, ToolResult
from agent_memory_log.pairing import Pairing
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import all_runs, run_async
from agent_memory_log.store import RunInfo, Store
from agent_memory_log.wording import counted, ranges

_PAGE = 500


class Severity(enum.StrEnum):
    """How bad a finding is; only an error makes ``verify`` fail."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Check(enum.StrEnum):
    """What a finding is about; stable, for programs."""

    GAP = "gap"
    ORDER = "order"
    UNDECODABLE = "undecodable"
    EVENT_ID = "event_id"
    TYPE = "type"
    NOT_REDACTED = "not_redacted"
    NO_MARKER = "no_marker"
    ORPHAN_RESULT = "orphan_result"
    OPEN_CALL = "open_call"
    DAMAGE = "damage"
    UNCHECKED = "unchecked"


_SAID_ALREADY = {Check.GAP, Check.UNDECODABLE, Check.DAMAGE}
"""What a store's own check would say once more."""


class Remark(msgspec.Struct, frozen=True):
    """Something to say about a run, at ``seq``; 0 is the run as a whole. The names are the keys of its JSON.

    Without ``agent`` and ``run`` it is about the store as a whole.
    """

    severity: Severity
    agent: str | None
    run: str | None
    seq: int
    message: str


class Finding(Remark, frozen=True, kw_only=True):
    """A remark that a check made."""

    check: Check


class RunReport(msgspec.Struct, frozen=True):
    """What there is to say about a run; ``findings`` by seq."""

    events: int
    calls: int
    findings: list[Finding]


class Verdict(msgspec.Struct, frozen=True):
    """What ``verify`` found, ``findings`` by agent, run and seq; the names are the keys of its JSON."""

    ok: bool
    runs: int
    events: int
    calls: int
    errors: int
    warnings: int
    notes: int
    findings: list[Finding]


def _unseen() -> None:
    """Nobody is watching."""


async def verify(
    store: Store, agent: str | None = None, run: str | None = None, *, seen: Callable[[], object] = _unseen
) -> Verdict:
    """Read a run, an agent's runs, or by default the whole store with the library's own runs, and check it.

    Every event is decoded. The store is asked for its own flaws too, among them those of runs that have
    expired, which cannot be read. ``seen`` is called for each event. Damage is a finding and never an error.
    """
    findings: list[Finding] = []
    infos: list[RunInfo] = []
    try:
        listed = await run_async(all_runs(agent, include_reserved=True), store)
        infos = [info for info in listed if run in {None, info.run}]
    except (StoreCorrupt, DecodeError) as error:
        findings.append(Finding(Severity.ERROR, None, None, 0, f"cannot list the runs: {error}", check=Check.DAMAGE))
    reports = [await check_run(store, info, seen) for info in infos]
    findings += [finding for report in reports for finding in report.findings]
    places = {(one.agent, one.run, one.seq) for one in findings if one.check in _SAID_ALREADY and one.agent is not None}
    async for flaw in store.check(agent, run):
        seq = flaw.seq or 0
        severity, check = (Severity.ERROR, Check.DAMAGE) if flaw.is_damage else (Severity.NOTE, Check.UNCHECKED)
        if not flaw.is_damage or (flaw.agent_id, flaw.run_id, seq) not in places:
            findings.append(Finding(severity, flaw.agent_id, flaw.run_id, seq, flaw.message, check=check))
    findings.sort(key=lambda finding: (finding.agent or "", finding.run or "", finding.seq))
    errors, warnings, notes = (sum(one.severity is severity for one in findings) for severity in Severity)
    events, calls = sum(report.events for report in reports), sum(report.calls for report in reports)
    return Verdict(not errors, len(reports), events, calls, errors, warnings, notes, findings)


async def check_run(store: Store, info: RunInfo, seen: Callable[[], object] = _unseen) -> RunReport:
    """Read a run as it is now and check it; ``seen`` is called for each event.

    A run that is deleted, or that expires, while it is read has nothing to report.
    """
    checks = _RunChecks(info, info.version - info.event_count + 1)
    try:
        first, last = await _bounds_of(store, info)
        checks = _RunChecks(info, first)
        async for event in _each_event(store, info, first, last):
            if isinstance(event, _Unreadable):
                checks.unreadable(event)
            else:
                checks.event(event)
            seen()
        first_now, redacted_since = await _since(store, info, last)
    except RunExpired:
        return RunReport(0, 0, [])
    except StoreCorrupt as error:
        return checks.stopped(error)
    is_same_run = first_now is None or first_now == first
    return checks.finish(last, redacted_since) if is_same_run else RunReport(0, 0, [])


class _RunChecks:
    def __init__(self, info: RunInfo, first: int) -> None:
        self._info = info
        self._next = first
        self._events = 0
        self._calls = 0
        self._findings: list[Finding] = []
        self._ids: dict[str, int] = {}
        self._pairing: Pairing[int] = Pairing()
        self._content: set[int] = set()
        self._unread: set[int] = set()
        self._redacted: set[int] = set()
        self._has_redacted_call = False
        self._markers: list[tuple[int, tuple[int, ...]]] = []

    def _find(self, severity: Severity, check: Check, seq: int, message: str) -> None:
        self._findings.append(Finding(severity, self._info.agent, self._info.run, seq, message, check=check))

    def _place(self, seq: int) -> None:
        if seq > self._next:
            self._missing(self._next, seq - 1)
        elif seq < self._next:
            self._find(Severity.ERROR, Check.ORDER, seq, f"stands after seq {self._next - 1}")
        self._next = max(self._next, seq + 1)

    def _missing(self, first: int, last: int) -> None:
        what = f"seq {first} is missing" if first == last else f"seqs {first} to {last} are missing"
        self._find(Severity.ERROR, Check.GAP, first, what)

    def unreadable(self, event: _Unreadable) -> None:
        self._events += 1
        self._place(event.seq)
        self._unread.add(event.seq)
        # The finding says which event it is; a store does too, which would make it long.
        reason = event.reason.removeprefix(f"{self._info.agent}/{self._info.run}: event {event.seq} ")
        self._find(Severity.ERROR, Check.UNDECODABLE, event.seq, reason)

    def event(self, event: Event) -> None:
        self._events += 1
        self._place(event.seq)
        self._check_identity(event)
        data = event.data
        if isinstance(data, Redacted):
            self._redacted.add(event.seq)
            self._has_redacted_call = self._has_redacted_call or data.original_type == EventType.TOOL_CALL
            return
        self._content.add(event.seq)
        if isinstance(data, ToolCall):
            self._calls += 1
            self._pairing.add_call(data, event.seq)
        elif isinstance(data, ToolResult):
            self._check_result(event.seq, data)
        elif isinstance(data, Redaction):
            self._markers.append((event.seq, data.seqs))

    def _check_identity(self, event: Event) -> None:
        first = self._ids.setdefault(event.event_id, event.seq)
        if not event.event_id:
            self._find(Severity.ERROR, Check.EVENT_ID, event.seq, "has no event id")
        elif first != event.seq:
            self._find(Severity.ERROR, Check.EVENT_ID, event.seq, f"has the event id {event.event_id!r} of seq {first}")
        if event.type != event.data.event_type:
            self._find(
                Severity.ERROR,
                Check.TYPE,
                event.seq,
                f"is a {event.type} with the payload of a {event.data.event_type}",
            )
            return
        try:
            Event.from_map(event.to_map())
        except (AgentMemoryLogError, TypeError, ValueError) as error:
            self._find(Severity.ERROR, Check.UNDECODABLE, event.seq, f"cannot be exported and read again: {error}")

    def _check_result(self, seq: int, data: ToolResult) -> None:
        if self._pairing.add_result(data) is not None:
            return
        if self._unread or self._has_redacted_call:
            self._find(Severity.NOTE, Check.ORPHAN_RESULT, seq, "answers a call that is redacted or cannot be read")
        else:
            name = data.tool_name
            self._find(Severity.WARNING, Check.ORPHAN_RESULT, seq, f"is a result of {name!r} that answers no open call")

    def stopped(self, error: StoreCorrupt) -> RunReport:
        """The report when the rest of the run cannot be read."""
        message = f"the run cannot be read from here on: {error}"
        self._find(Severity.ERROR, Check.DAMAGE, self._next if self._events else 0, message)
        return self._report()

    def finish(self, last: int, redacted_since: set[int]) -> RunReport:
        """The report of a run read up to ``last``; the markers behind it name ``redacted_since``."""
        if self._next <= last:
            self._missing(self._next, last)
        self._check_redactions(redacted_since)
        waiting = sorted(self._pairing.open_calls())
        if waiting:
            what = f"{counted(len(waiting), 'call')} without a result: seq {ranges(waiting)}"
            self._find(Severity.NOTE, Check.OPEN_CALL, waiting[0], what)
        return self._report()

    def _report(self) -> RunReport:
        self._findings.sort(key=lambda finding: finding.seq)
        return RunReport(self._events, self._calls, self._findings)

    def _check_redactions(self, redacted_since: set[int]) -> None:
        named = redacted_since
        for seq, targets in self._markers:
            named.update(targets)
            still_there = sorted(self._content.intersection(targets))
            if still_there:
                message = f"says that seq {ranges(still_there)} was redacted, but its content is still there"
                self._find(Severity.ERROR, Check.NOT_REDACTED, seq, message)
            unknown = sorted({*targets}.difference(self._content, self._redacted, self._unread))
            if unknown:
                message = f"says that seq {ranges(unknown)} was redacted, which the run does not hold"
                self._find(Severity.WARNING, Check.NO_MARKER, seq, message)
        unmarked = sorted(self._redacted - named)
        if unmarked and not self._unread:
            message = f"seq {ranges(unmarked)} is redacted, but no marker says so: followers cannot know"
            self._find(Severity.WARNING, Check.NO_MARKER, unmarked[0], message)


class _Unreadable(msgspec.Struct, frozen=True):
    """An event at ``seq`` that the store holds and cannot read; ``reason`` is its own account."""

    seq: int
    reason: str


async def _bounds_of(store: Store, info: RunInfo) -> tuple[int, int]:
    """The first and the last seq that the run should hold now; from its row alone when reading it fails."""
    try:
        # Asking for no type reads no event, and so cannot fail on one.
        snapshot = await store.load_run(info.agent, info.run, types=())
    except DecodeError:
        return info.version - info.event_count + 1, info.version
    return snapshot.first_seq, snapshot.version


async def _since(store: Store, info: RunInfo, last: int) -> tuple[int | None, set[int]]:
    """The run's first seq now, which a deletion changes, and the seqs that markers behind ``last`` redacted.

    The first seq is None when the run cannot be read.
    """
    try:
        snapshot = await store.load_run(info.agent, info.run, after=last, types=(EventType.REDACTION,))
    except DecodeError:
        return None, set()
    return snapshot.first_seq, {seq for event in snapshot.log for seq in cast("Redaction", event.data).seqs}


async def _each_event(store: Store, info: RunInfo, first: int, last: int) -> AsyncIterator[Event | _Unreadable]:
    """The run's events from ``first`` to ``last``, in append order; ``_Unreadable`` in place of one it cannot read."""
    after, limit = first - 1, _PAGE
    failed: _Unreadable | None = None
    while after < last:
        after, page = await _load(store, info, after, limit)
        if isinstance(page, DecodeError):
            if limit > 1:
                limit //= 2
                continue
            after += 1
            # A missing event before the unreadable one fails with it, and alike: the last such failure is the event.
            if failed is not None and failed.reason != str(page):
                yield failed
            failed = _Unreadable(after, str(page))
            continue
        if failed is not None:
            yield failed
            failed = None
        limit = min(_PAGE, limit * 2)
        for event in page.log:
            if event.seq > last:
                return
            yield event
        after = page.last_seq
    if failed is not None:
        yield failed


async def _load(store: Store, info: RunInfo, after: int, limit: int) -> tuple[int, Snapshot | DecodeError]:
    """The next events, up to a gap, or those behind it; with the seq that they are behind."""
    try:
        return after, await store.load_run(info.agent, info.run, after=after, limit=limit)
    except EventsMissing as error:
        if error.first_seq > after + 1:
            return await _load(store, info, after, error.first_seq - 1 - after)
        return await _load(store, info, error.last_seq, limit)
    except DecodeError as error:
        return after, error
