"""What ``amlog verify`` checks of a run: promises of the store that damage would break, and oddities worth knowing.

Errors are broken promises; warnings may have a good reason; notes are what a run may simply be. To add a check: a kind
in ``Check``, and where ``_RunChecks`` finds it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec

from agent_memory_log.cli.text import counted, ranges
from agent_memory_log.cli.walk import Unreadable, bounds_of, each_event
from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.events import Event
from agent_memory_log.payloads import EventType, Redacted, Redaction, ToolCall, ToolResult
from agent_memory_log.store import RunInfo, Store


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


class Remark(msgspec.Struct, frozen=True):
    """Something to say about a run, at ``seq``; 0 is the run as a whole. The names are the keys of its JSON."""

    severity: Severity
    agent: str
    run: str
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


async def check_run(store: Store, info: RunInfo, seen: Callable[[], object]) -> RunReport:
    """Read a run as it is now and check it; ``seen`` is called for each event."""
    bounds = await bounds_of(store, info)
    checks = _RunChecks(info, bounds.first)
    async for event in each_event(store, info, bounds):
        if isinstance(event, Unreadable):
            checks.unreadable(event)
        else:
            checks.event(event)
        seen()
    return checks.finish(bounds.last)


class _RunChecks:
    def __init__(self, info: RunInfo, first: int) -> None:
        self._info = info
        self._next = first
        self._events = 0
        self._calls = 0
        self._findings: list[Finding] = []
        self._ids: dict[str, int] = {}
        self._open: dict[str, list[int]] = {}
        self._content: set[int] = set()
        self._unread: set[int] = set()
        self._redacted: dict[int, str] = {}
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

    def unreadable(self, event: Unreadable) -> None:
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
            self._redacted[event.seq] = data.original_type
            return
        self._content.add(event.seq)
        if isinstance(data, ToolCall):
            self._calls += 1
            self._open.setdefault(data.tool_call_id, []).append(event.seq)
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
        waiting = self._open.get(data.tool_call_id)
        if waiting:
            waiting.pop()
        elif self._unread or EventType.TOOL_CALL in self._redacted.values():
            self._find(Severity.NOTE, Check.ORPHAN_RESULT, seq, "answers a call that is redacted or cannot be read")
        else:
            name = data.tool_name
            self._find(Severity.WARNING, Check.ORPHAN_RESULT, seq, f"is a result of {name!r} that answers no open call")

    def finish(self, last: int) -> RunReport:
        if self._next <= last:
            self._missing(self._next, last)
        self._check_redactions()
        waiting = sorted(seq for seqs in self._open.values() for seq in seqs)
        if waiting:
            what = f"{counted(len(waiting), 'call')} without a result: seq {ranges(waiting)}"
            self._find(Severity.NOTE, Check.OPEN_CALL, waiting[0], what)
        self._findings.sort(key=lambda finding: finding.seq)
        return RunReport(self._events, self._calls, self._findings)

    def _check_redactions(self) -> None:
        named: set[int] = set()
        for seq, targets in self._markers:
            named.update(targets)
            still_there = sorted(self._content.intersection(targets))
            if still_there:
                message = f"says that seq {ranges(still_there)} was redacted, but its content is still there"
                self._find(Severity.ERROR, Check.NOT_REDACTED, seq, message)
            unknown = sorted(set(targets) - self._content - self._redacted.keys() - self._unread)
            if unknown:
                message = f"says that seq {ranges(unknown)} was redacted, which the run does not hold"
                self._find(Severity.WARNING, Check.NO_MARKER, seq, message)
        unmarked = sorted(self._redacted.keys() - named)
        if unmarked and not self._unread:
            message = f"seq {ranges(unmarked)} is redacted, but no marker says so: followers cannot know"
            self._find(Severity.WARNING, Check.NO_MARKER, unmarked[0], message)
