"""``amlog show``: a run as a timeline."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_memory_log.cli.errors import UsageProblem
from agent_memory_log.cli.options import AsJson, RunName, StoreUrl, with_store
from agent_memory_log.cli.output import DIM, Output, meta_text, note
from agent_memory_log.cli.run_names import load_existing, run_name
from agent_memory_log.cli.terminal_text import duration
from agent_memory_log.cli.timeline import arrange
from agent_memory_log.cli.timeline_view import TimelineWriter
from agent_memory_log.cli.turns_view import write_json_turns, write_turns
from agent_memory_log.events.payloads import ToolResult
from agent_memory_log.reader import Reader
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.wording import counted

_SHORTEST_RUN = 0.1
"""In seconds; below it times only say in which order messages were imported."""

Types = Annotated[
    list[str] | None,
    typer.Option("--type", "-t", metavar="TYPE", help="Only events of this type; may be repeated.", show_default=False),
]
After = Annotated[int, typer.Option("--after", min=0, metavar="SEQ", help="Only events after this seq.")]


def show(
    run: RunName,
    *,
    store: StoreUrl = None,
    types: Types = None,
    after: After = 0,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="At most so many.", show_default=False)
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Cut nothing; show ids, labels and telemetry too.")] = False,
    by_turns: Annotated[bool, typer.Option("--turns", help="Turn by turn, each with a heading of its own.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a run as a timeline.

    Each tool call stands with the calls made inside it and its result. Off a terminal an event is one whole line. With
    --json: a line for each event, in append order, with type, timestamp, data, labels, event_id and seq.

    A turn is what the user said and all up to the next time. With --turns and --json: a line for each turn, with turn
    (its number), first_seq, last_seq, tool_calls, open_tool_calls and events.
    """
    if by_turns and (types or after or limit):
        raise UsageProblem("--turns shows the whole run: leave --type, --after and --limit out")
    snapshot = with_store(store, lambda opened: load_existing(opened, run, after=after, types=types, limit=limit))
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
        note(f"there are more: --after {snapshot.last_seq}")


def write_run(output: Output, snapshot: Snapshot, *, full: bool = False, by_turns: bool = False) -> None:
    """Write a snapshot as a timeline with a heading and a footer; ``by_turns`` with a heading for each turn too."""
    whole = snapshot.types is None and snapshot.after < snapshot.first_seq and snapshot.last_seq == snapshot.version
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
        whole=whole,
        start=events[0].timestamp if len(events) else None,
        timed=timed,
        highest_seq=snapshot.last_seq,
    )
    if by_turns:
        write_turns(output, writer, snapshot)
    else:
        writer.write(arrange(snapshot.log))
    if whole:
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
