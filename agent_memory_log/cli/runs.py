"""``amlog runs``: lists the runs of a store."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_memory_log.cli.options import AgentName, AsJson, Reserved, StoreUrl, with_store
from agent_memory_log.cli.output import DIM, NAME, Column, Output, meta_text, note
from agent_memory_log.cli.run_names import run_map, run_name
from agent_memory_log.events.event import format_timestamp
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.store import RunInfo

_COLUMNS = (
    Column("run", NAME, unbroken=True),
    Column("events", number=True),
    Column("created (UTC)", DIM),
    Column("updated (UTC)", DIM),
    Column("meta", DIM, cut=True),
)


def runs(
    *,
    store: StoreUrl = None,
    agent: AgentName = None,
    reserved: Reserved = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="Maximum number of runs.")] = 50,
    cursor: Annotated[
        str | None,
        typer.Option("--cursor", metavar="CURSOR", help="Continue after the previous page.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first.

    With --json: an object with runs and cursor. Each run has name, agent, run, version, created, updated, events and
    meta. Updated is the time of the newest event. The cursor is null on the last page.
    """
    page = with_store(
        store, lambda opened: opened.list_runs(agent, limit=limit, cursor=cursor, include_reserved=reserved)
    )
    output = Output()
    if as_json:
        output.json({"runs": [_run_map(info) for info in page.runs], "cursor": page.cursor})
        return
    if not page.runs:
        note("no runs" if cursor is None else "no more runs")
        return
    output.table(_COLUMNS, [_row(info) for info in page.runs])
    if page.cursor is not None:
        note(f"more runs: continue with --cursor {page.cursor}")


def _run_map(info: RunInfo) -> dict[str, JsonValue]:
    return run_map(
        info.agent,
        info.run,
        version=info.version,
        created=format_timestamp(info.created),
        updated=format_timestamp(info.updated),
        events=info.event_count,
        meta=info.meta,
    )


def _row(info: RunInfo) -> list[str]:
    return [
        run_name(info.agent, info.run),
        f"{info.event_count:,}",
        f"{info.created:%Y-%m-%d %H:%M}",
        f"{info.updated:%Y-%m-%d %H:%M}",
        meta_text(info.meta),
    ]
