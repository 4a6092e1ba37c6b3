"""``amlog stats``: counts the runs, events and tool calls of a store."""

from __future__ import annotations

import msgspec

from agent_memory_log.cli.options import AgentName, AsJson, Reserved, StoreUrl, with_store
from agent_memory_log.cli.output import BOLD, DIM, NAME, Column, Output, Segment, note, progress
from agent_memory_log.cli.run_names import runs_of
from agent_memory_log.cli.terminal_text import size
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.events.payloads import ToolCall, ToolResult
from agent_memory_log.pairing import Pairing
from agent_memory_log.store import RunInfo, Store

_PAGE = 500
_COLUMNS = (
    Column("agent", NAME, unbroken=True),
    Column("runs", number=True),
    Column("events", number=True),
    Column("tool calls", number=True),
    Column("failed", number=True),
    Column("open", number=True),
    Column("as JSONL", number=True),
)
_TYPE_COLUMNS = (Column("type"), Column("events", number=True), Column("share", DIM, number=True))


class Totals(msgspec.Struct):
    """Counts over some runs. The field names are the JSON keys.

    Attributes:
        runs: The number of runs.
        events: The number of events.
        tool_calls: The number of tool calls.
        tool_errors: The number of tool results with an error.
        open_calls: The number of tool calls without a result.
        bytes: The size of the events as JSONL.
        types: The number of events for each event type.
    """

    runs: int = 0
    events: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    open_calls: int = 0
    bytes: int = 0
    types: dict[str, int] = {}

    def add(self, other: Totals) -> None:
        """Add the counts of ``other``."""
        self.runs += other.runs
        self.events += other.events
        self.tool_calls += other.tool_calls
        self.tool_errors += other.tool_errors
        self.open_calls += other.open_calls
        self.bytes += other.bytes
        for event_type, count in other.types.items():
            self.types[event_type] = self.types.get(event_type, 0) + count


def stats(
    *, store: StoreUrl = None, agent: AgentName = None, reserved: Reserved = False, as_json: AsJson = False
) -> None:
    """Count the runs, events and tool calls of a store.

    Shows for each agent the number of runs, events and tool calls, the failed and the open tool calls, and the size.
    Also shows the number of events of each type.

    With --json: an object with total and agents (by name). Each has runs, events, tool_calls, tool_errors, open_calls,
    bytes (the size of the events as JSONL) and types (the number of events by type).
    """
    agents = with_store(store, lambda opened: _count(opened, agent, reserved=reserved))
    total = Totals()
    for totals in agents.values():
        total.add(totals)
    total.types = dict(sorted(total.types.items(), key=lambda item: (-item[1], item[0])))
    output = Output()
    if as_json:
        output.json({"total": total, "agents": agents})
        return
    if not agents:
        note("no runs")
        return
    rows: list[list[Segment | str]] = [[*_row(name, totals)] for name, totals in agents.items()]
    if len(rows) > 1:
        rows.append([(cell, BOLD) for cell in _row("total", total)])
    output.table(_COLUMNS, rows)
    if not output.terminal:
        output.line("")
    output.table(
        _TYPE_COLUMNS,
        [(name, f"{count:,}", f"{100 * count / total.events:.0f}%") for name, count in total.types.items()],
    )


async def _count(store: Store, agent: str | None, *, reserved: bool) -> dict[str, Totals]:
    infos = await runs_of(store, agent, reserved=reserved)
    agents: dict[str, Totals] = {}
    with progress("counting", sum(info.event_count for info in infos)) as advance:
        for info in sorted(infos, key=lambda info: (info.agent, info.run)):
            agents.setdefault(info.agent, Totals()).add(await _count_run(store, info))
            advance(info.event_count)
    return agents


async def _count_run(store: Store, info: RunInfo) -> Totals:
    totals = Totals(runs=1)
    pairing: Pairing[Event] = Pairing()
    after = 0
    while True:
        page = await store.load_run(info.agent, info.run, after=after, limit=_PAGE)
        for event in page.log:
            _count_event(totals, pairing, event)
        after = page.last_seq
        if after >= page.version:
            break
    totals.open_calls = pairing.open_count
    return totals


def _count_event(totals: Totals, pairing: Pairing[Event], event: Event) -> None:
    data = event.data
    totals.events += 1
    totals.bytes += len(encode_json(event.to_map())) + 1
    totals.types[event.type] = totals.types.get(event.type, 0) + 1
    if isinstance(data, ToolCall):
        totals.tool_calls += 1
        pairing.add_call(data, event)
    elif isinstance(data, ToolResult):
        totals.tool_errors += bool(data.error_message)
        pairing.add_result(data)


def _row(name: str, totals: Totals) -> list[str]:
    return [
        name,
        f"{totals.runs:,}",
        f"{totals.events:,}",
        f"{totals.tool_calls:,}",
        f"{totals.tool_errors:,}",
        f"{totals.open_calls:,}",
        size(totals.bytes),
    ]
