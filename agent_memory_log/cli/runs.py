"""``amlog runs``: the runs of a store."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_memory_log.cli.names import run_name
from agent_memory_log.cli.options import AgentName, AsJson, Reserved, StoreUrl, open_existing, run_async
from agent_memory_log.cli.output import DIM, NAME, Column, Output, meta_text, note
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.store import RunInfo, RunPage

_COLUMNS = (
    Column("run", NAME),
    Column("events", number=True),
    Column("created (UTC)", DIM),
    Column("meta", DIM, cut=True),
)


def runs(
    *,
    store: StoreUrl = None,
    agent: AgentName = None,
    reserved: Reserved = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="How many to list.")] = 50,
    cursor: Annotated[
        str | None,
        typer.Option("--cursor", metavar="CURSOR", help="Go on where another page ended.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List runs, the newest first.

    With --json: runs, each with name, agent, run, version, created, events and meta; and cursor, which is null on the
    last page.
    """
    page = run_async(_page(store, agent, limit, cursor, reserved=reserved))
    output = Output()
    if as_json:
        output.json({"runs": [run_map(info) for info in page.runs], "cursor": page.cursor})
        return
    if not page.runs:
        note("no runs" if cursor is None else "no more runs")
        return
    output.table(_COLUMNS, [_row(info) for info in page.runs])
    if page.cursor is not None:
        note(f"there are more: --cursor {page.cursor}")


async def _page(url: str | None, agent: str | None, limit: int, cursor: str | None, *, reserved: bool) -> RunPage:
    async with open_existing(url) as store:
        return await store.list_runs(agent, limit=limit, cursor=cursor, include_reserved=reserved)


def run_map(info: RunInfo) -> dict[str, JsonValue]:
    """A run as JSON, without its events."""
    return {
        "name": run_name(info.agent, info.run),
        "agent": info.agent,
        "run": info.run,
        "version": info.version,
        "created": info.created.isoformat().replace("+00:00", "Z"),
        "events": info.event_count,
        "meta": info.meta,
    }


def _row(info: RunInfo) -> list[str]:
    return [
        run_name(info.agent, info.run),
        f"{info.event_count:,}",
        f"{info.created:%Y-%m-%d %H:%M}",
        meta_text(info.meta),
    ]
