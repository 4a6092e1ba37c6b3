"""Verifies a store: finds damage, and reports unusual runs, such as runs with open tool calls.

``verify`` reads every event and runs the store's own check. An error is damage. A warning may have a good reason. A
note describes a normal state that is worth knowing. To add a check, add a kind to ``Check`` and a test of the events to
``_RunChecks``.
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
    """The severity of a finding. Only an error makes ``Verdict.ok`` false."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Check(enum.StrEnum):
    """The kind of a finding, as a stable name for programs."""

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
    LOST_EVIDENCE = "lost_evidence"


_ALSO_FOUND_BY_STORE = {Check.GAP, Check.UNDECODABLE, Check.DAMAGE}
"""The kinds of findings that the store's own check may report a second time."""


class Remark(msgspec.Struct, frozen=True):
    """A message about a run or about the store. The names of the fields are its JSON keys.

    Attributes:
        severity: The severity.
        agent: The id of the agent, or None for a message about the whole store.
        run: The id of the run, or None for a message about the whole store.
        seq: The seq of the event, or 0 for the whole run.
        message: The text, for people.
    """

    severity: Severity
    agent: str | None
    run: str | None
    seq: int
    message: str


class Finding(Remark, frozen=True, kw_only=True):
    """The remark of one check.

    Attributes:
        check: The kind of the finding.
    """

    check: Check


class RunReport(msgspec.Struct, frozen=True):
    """The findings of one run.

    Attributes:
        events: How many events were read.
        calls: How many of them are tool calls that are not redacted.
        findings: The findings in the order of their seqs.
    """

    events: int
    calls: int
    findings: list[Finding]


class Verdict(msgspec.Struct, frozen=True):
    """The result of ``verify``. The names of the fields are its JSON keys.

    Attributes:
        ok: Whether there are no errors.
        runs: How many runs were read.
        events: How many events were read.
        calls: How many of them are tool calls that are not redacted.
        errors: The number of findings that are errors.
        warnings: The number of findings that are warnings.
        notes: The number of findings that are notes.
        findings: The findings in the order of agent, run and seq.
    """

    ok: bool
    runs: int
    events: int
    calls: int
    errors: int
    warnings: int
    notes: int
    findings: list[Finding]


def _no_progress() -> None:
    """Ignore the progress."""


async def verify(
    store: Store, agent: str | None = None, run: str | None = None, *, progress: Callable[[], object] = _no_progress
) -> Verdict:
    """Read and check a run, the runs of an agent, or by default the whole store. Includes the library's own runs.

    Every event is decoded. The store's own check is run too. It also covers expired runs, which cannot be read.

    Args:
        store: The store to check.
        agent: The id of the agent whose runs are checked. By default, the runs of all agents are checked.
        run: The id of the run to check. By default, every run is checked.
        progress: A callback that is called once for each event.

    Returns:
        The counts and the findings. Damage is a finding; it does not raise.

    Raises:
        StoreUnavailable: The store failed.
        StoreClosed: The handle was closed.
        SchemaTooNew: A newer release wrote the store.
    """
    findings: list[Finding] = []
    infos: list[RunInfo] = []
    try:
        listed = await run_async(all_runs(agent, include_reserved=True), store)
        infos = [info for info in listed if run in {None, info.run}]
    except (StoreCorrupt, DecodeError) as error:
        findings.append(Finding(Severity.ERROR, None, None, 0, f"cannot list the runs: {error}", check=Check.DAMAGE))
    reports = [await check_run(store, info, progress) for info in infos]
    findings += [finding for report in reports for finding in report.findings]
    reported = {
        (finding.agent, finding.run, finding.seq)
        for finding in findings
        if finding.check in _ALSO_FOUND_BY_STORE and finding.agent is not None
    }
    async for flaw in store.check(agent, run):
        seq = flaw.seq or 0
        severity, check = (Severity.ERROR, Check.DAMAGE) if flaw.is_damage else (Severity.NOTE, Check.UNCHECKED)
        if not flaw.is_damage or (flaw.agent_id, flaw.run_id, seq) not in reported:
            findings.append(Finding(severity, flaw.agent_id, flaw.run_id, seq, flaw.message, check=check))
    findings.sort(key=lambda finding: (finding.agent or "", finding.run or "", finding.seq))
    errors, warnings, notes = (sum(finding.severity is severity for finding in findings) for severity in Severity)
    events, calls = sum(report.events for report in reports), sum(report.calls for report in reports)
    return Verdict(not errors, len(reports), events, calls, errors, warnings, notes, findings)


async def check_run(store: Store, info: RunInfo, progress: Callable[[], object] = _no_progress) -> RunReport:
    """Read and check a run, and call ``progress`` once for each event.

    Returns:
        The counts and the findings. The report is empty if the run is deleted or expires during the check.
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
            progress()
        first_now, redacted_since = await _redactions_after(store, info, last)
    except RunExpired:
        return RunReport(0, 0, [])
    except StoreCorrupt as error:
        return checks.stopped(error)
    is_same_run = first_now is None or first_now == first
    return checks.finish(last, redacted_since) if is_same_run else RunReport(0, 0, [])


class _RunChecks:
    """The checks of one run. They receive its events in append order and collect findings."""

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

    def _check_seq(self, seq: int) -> None:
        if seq > self._next:
            self._missing(self._next, seq - 1)
        elif seq < self._next:
            self._find(Severity.ERROR, Check.ORDER, seq, f"is stored after seq {self._next - 1}")
        self._next = max(self._next, seq + 1)

    def _missing(self, first: int, last: int) -> None:
        message = f"seq {first} is missing" if first == last else f"seqs {first} to {last} are missing"
        self._find(Severity.ERROR, Check.GAP, first, message)

    def unreadable(self, event: _Unreadable) -> None:
        self._events += 1
        self._check_seq(event.seq)
        self._unread.add(event.seq)
        # The finding already names the run and the seq, so the store's prefix is removed.
        reason = event.reason.removeprefix(f"{self._info.agent}/{self._info.run}: event {event.seq} ")
        self._find(Severity.ERROR, Check.UNDECODABLE, event.seq, reason)

    def event(self, event: Event) -> None:
        self._events += 1
        self._check_seq(event.seq)
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
            self._find(Severity.ERROR, Check.UNDECODABLE, event.seq, f"cannot be decoded from its own export: {error}")

    def _check_result(self, seq: int, data: ToolResult) -> None:
        if self._pairing.add_result(data) is not None:
            return
        if self._unread or self._has_redacted_call:
            self._find(
                Severity.NOTE, Check.ORPHAN_RESULT, seq, "is the result of a call that is redacted or cannot be read"
            )
        else:
            name = data.tool_name
            self._find(Severity.WARNING, Check.ORPHAN_RESULT, seq, f"is a result of {name!r} without an open call")

    def stopped(self, error: StoreCorrupt) -> RunReport:
        """Return the report of a run whose rest cannot be read."""
        message = f"the rest of the run cannot be read: {error}"
        self._find(Severity.ERROR, Check.DAMAGE, self._next if self._events else 0, message)
        return self._report()

    def finish(self, last: int, redacted_since: set[int]) -> RunReport:
        """Return the report of a run read up to ``last``. Markers after ``last`` name the seqs ``redacted_since``."""
        if self._next <= last:
            self._missing(self._next, last)
        self._check_redactions(redacted_since)
        open_calls = sorted(self._pairing.open_calls())
        if open_calls:
            message = f"{counted(len(open_calls), 'call')} without a result: seq {ranges(open_calls)}"
            self._find(Severity.NOTE, Check.OPEN_CALL, open_calls[0], message)
        return self._report()

    def _report(self) -> RunReport:
        self._findings.sort(key=lambda finding: finding.seq)
        return RunReport(self._events, self._calls, self._findings)

    def _check_redactions(self, redacted_since: set[int]) -> None:
        marked = set(redacted_since)
        for seq, targets in self._markers:
            marked.update(targets)
            readable = sorted(self._content.intersection(targets))
            if readable:
                message = f"marks seq {ranges(readable)} as redacted, but its content is still readable"
                self._find(Severity.ERROR, Check.NOT_REDACTED, seq, message)
            unknown = sorted({*targets}.difference(self._content, self._redacted, self._unread))
            if unknown:
                message = f"marks seq {ranges(unknown)} as redacted, but the run does not hold it"
                self._find(Severity.WARNING, Check.NO_MARKER, seq, message)
        unmarked = sorted(self._redacted - marked)
        if unmarked and not self._unread:
            message = f"seq {ranges(unmarked)} is redacted without a redaction marker: followers are not notified"
            self._find(Severity.WARNING, Check.NO_MARKER, unmarked[0], message)


class _Unreadable(msgspec.Struct, frozen=True):
    """A stored event that cannot be read; ``reason`` is the store's message."""

    seq: int
    reason: str


async def _bounds_of(store: Store, info: RunInfo) -> tuple[int, int]:
    """Return the run's first and last seq. If the run cannot be read, compute them from its entry in the list."""
    try:
        # With no types, the store reads no event, so a damaged event cannot make this fail.
        snapshot = await store.load_run(info.agent, info.run, types=())
    except DecodeError:
        return info.version - info.event_count + 1, info.version
    return snapshot.first_seq, snapshot.version


async def _redactions_after(store: Store, info: RunInfo, last: int) -> tuple[int | None, set[int]]:
    """Return the run's current first seq, and the seqs that markers after ``last`` redacted.

    A deletion changes the first seq. The first seq is None if the run cannot be read.
    """
    try:
        snapshot = await store.load_run(info.agent, info.run, after=last, types=(EventType.REDACTION,))
    except DecodeError:
        return None, set()
    return snapshot.first_seq, {seq for event in snapshot.log for seq in cast("Redaction", event.data).seqs}


async def _each_event(store: Store, info: RunInfo, first: int, last: int) -> AsyncIterator[Event | _Unreadable]:
    """Yield the run's events from ``first`` to ``last``, in append order, and ``_Unreadable`` for unreadable events."""
    after, limit = first - 1, _PAGE
    failed: _Unreadable | None = None
    while after < last:
        after, page = await _load(store, info, after, limit)
        if isinstance(page, DecodeError):
            if limit > 1:
                limit //= 2
                continue
            after += 1
            # A load that begins at a missing event fails with the same message as a load of the unreadable event after
            # it. So only the last of several equal failures is the unreadable event.
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
    """Return the events up to the next gap, or after a gap that begins here, and the seq before these events."""
    try:
        return after, await store.load_run(info.agent, info.run, after=after, limit=limit)
    except EventsMissing as error:
        if error.first_seq > after + 1:
            return await _load(store, info, after, error.first_seq - 1 - after)
        return await _load(store, info, error.last_seq, limit)
    except DecodeError as error:
        return after, error
