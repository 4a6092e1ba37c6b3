"""``amlog show``: shows a run as a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.options import AsJson, RunName, StoreUrl, with_store
from agent_memory_log.cli.output import DIM, Output, meta_text, note
from agent_memory_log.cli.run_names import load_existing, run_name
from agent_memory_log.cli.terminal_text import duration
from agent_memory_log.cli.timeline import arrange
from agent_memory_log.cli.timeline_view import TimelineWriter
from agent_memory_log.cli.turns_view import write_json_turns, write_turns
from agent_memory_log.events.payloads import EventType, ToolResult
from agent_memory_log.reader import Reader
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import Store
from agent_memory_log.wording import counted

_SHORTEST_RUN = 0.1
"""The least length of a run for which times are shown, in seconds. Imported messages differ only by microseconds."""

_TYPES = frozenset(map(str, EventType))

Types = Annotated[
    list[str] | None,
    typer.Option("--type", "-t", metavar="TYPE", help="Only events of this type. Repeatable.", show_default=False),
]
After = Annotated[int, typer.Option("--after", min=0, metavar="SEQ", help="Only events after this seq.")]


def show(
    run: RunName,
    *,
    store: StoreUrl = None,
    types: Types = None,
    after: After = 0,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, metavar="N", help="Maximum number of events.", show_default=False),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Do not cut texts. Also show ids, labels and telemetry.")
    ] = False,
    by_turns: Annotated[
        bool, typer.Option("--turns", help="Group the events by turn, with a heading for each.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a run as a timeline.

    A tool call is followed by the calls made inside it and by its result. If the output is not a terminal, each event
    is one line and nothing is cut.

    With --turns, the events are grouped by turn. A turn begins with a user message and ends before the next one.

    With --json: a line for each event, in append order, with type, timestamp, data, labels, event_id and seq.

    With --turns and --json: a line for each turn, with turn (its number), first_seq, last_seq, tool_calls,
    open_tool_calls and events.
    """
    if by_turns and (types or after or limit):
        raise UsageProblem("--turns shows the whole run: remove --type, --after and --limit")

    async def work(opened: Store) -> Snapshot:
        await _check_types(opened, run, types or ())
        return await load_existing(opened, run, after=after, types=types, limit=limit)

    snapshot = with_store(store, work)
    output = Output()
    if as_json and by_turns:
        write_json_turns(output, snapshot)
        return
    if as_json:
        for event in snapshot.log:
            output.json_line(event.to_map())
        return
    write_run(output, snapshot, full=full, by_turns=by_turns)
    if snapshot.last_seq < snapshot.version:
        note(f"more events: continue with --after {snapshot.last_seq}")


async def _check_types(store: Store, run: str, types: Sequence[str]) -> None:
    """Refuse a type that neither this version nor the run knows. A run may have the types of applications."""
    if all(name in _TYPES for name in types):
        return
    of_run = sorted({event.type for event in (await load_existing(store, run)).log})
    for name in types:
        if name not in _TYPES and name not in of_run:
            raise CommandFailed(f"no event has the type {name!r}: the run has events of {', '.join(of_run)}")


def write_run(output: Output, snapshot: Snapshot, *, full: bool = False, by_turns: bool = False) -> None:
    """Write a snapshot as a timeline with a heading and a footer.

    Args:
        output: The output to write to.
        snapshot: All or some events of a run.
        full: Whether to show texts without cuts, and all details.
        by_turns: Whether to write a heading for each turn.
    """
    is_complete = (
        snapshot.types is None and snapshot.after < snapshot.first_seq and snapshot.last_seq == snapshot.version
    )
    events = snapshot.events
    details = [counted(len(events), "event")]
    took = 0.0
    if len(events):
        details.append(f"{events[0].timestamp:%Y-%m-%d %H:%M:%S} UTC")
        took = (events[-1].timestamp - events[0].timestamp).total_seconds()
    timed = took >= _SHORTEST_RUN
    if timed:
        details.append(f"took {duration(round(took * 1e9))}")
    output.heading(run_name(snapshot.agent, snapshot.run), *details)
    if snapshot.meta:
        output.line((meta_text(snapshot.meta), DIM))
    output.line("")
    writer = TimelineWriter(
        output,
        full=full,
        is_complete=is_complete,
        start=events[0].timestamp if len(events) else None,
        timed=timed,
        highest_seq=snapshot.last_seq,
    )
    if by_turns:
        write_turns(output, writer, snapshot)
    else:
        writer.write(arrange(snapshot.log))
    if is_complete:
        _write_calls(output, snapshot)


def _write_calls(output: Output, snapshot: Snapshot) -> None:
    reader = Reader(snapshot)
    calls = reader.tool_calls()
    if not calls:
        return
    failed = sum(isinstance(event.data, ToolResult) and bool(event.data.error_message) for event in snapshot.log)
    waiting = len(reader.open_tool_calls())
    parts = [
        counted(len(calls), "tool call"),
        f"{failed} failed" if failed else "",
        f"{waiting} open" if waiting else "",
    ]
    output.line("")
    output.line((", ".join(part for part in parts if part), DIM))
