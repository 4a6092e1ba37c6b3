"""``amlog export``: writes runs as lossless JSONL, or one run in the format of another tool."""

from __future__ import annotations

import enum
import io
import sys
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.options import AgentName, StoreUrl, store_url, with_store
from agent_memory_log.cli.outfile import writer
from agent_memory_log.cli.output import note, progress
from agent_memory_log.cli.run_names import event_count, existing_run, load_existing, runs_of
from agent_memory_log.cli.terminal_text import size
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.interchange.atif import to_atif
from agent_memory_log.interchange.atif.reading import PARENT
from agent_memory_log.memory.upkeep.maintaining import purge_all
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import run_async
from agent_memory_log.store import RunInfo, Store
from agent_memory_log.transfer.jsonl import export_run, export_store
from agent_memory_log.wording import counted


class Format(enum.StrEnum):
    """The formats of an export."""

    JSONL = "jsonl"
    ATIF = "atif"
    OTEL = "otel"


def export(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="AGENT/RUN or RUN. Leave it out with --all.", show_default=False)
    ] = None,
    *,
    store: StoreUrl = None,
    everything: Annotated[bool, typer.Option("--all", help="Export every run of the store.")] = False,
    reserved: Annotated[
        bool,
        typer.Option(
            "--reserved",
            help="With --all: include the library's own agents. First erases memories that lost their evidence.",
        ),
    ] = False,
    agent: AgentName = None,
    to: Annotated[
        Format, typer.Option("--to", metavar="FORMAT", help="jsonl (default), atif or otel. The last two need RUN.")
    ] = Format.JSONL,
    content: Annotated[
        bool, typer.Option("--content", help="With --to otel: include messages, thinking and tool results.")
    ] = False,
    no_server_data: Annotated[
        bool, typer.Option("--no-server-data", help="With --to atif: leave out the server data of tool results.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write to this file, not to standard output.", show_default=False
        ),
    ] = None,
) -> None:
    """Write runs as JSONL, or one run in the format of another tool.

    JSONL has a header line for each run and a line for each event. amlog import jsonl creates the same runs from it.
    Exporting, importing and exporting again gives the same bytes.

    With --to atif: one JSON document, which includes the runs of sub-agents. amlog import atif creates the same runs
    from it.

    With --to otel: one line of OTLP JSON with the spans of the run. An OpenTelemetry Collector can read it from a file.
    """
    if (run is None) != (everything or agent is not None):
        raise UsageProblem("give either a RUN, or --all, or --agent NAME for every run of one agent")
    if to is not Format.JSONL and run is None:
        raise UsageProblem(f"--to {to.value} writes a single run: give its name as RUN")
    if (content and to is not Format.OTEL) or (no_server_data and to is not Format.ATIF):
        raise UsageProblem("--content works only with --to otel, and --no-server-data only with --to atif")
    if run is None or to is Format.JSONL:
        _export(store, run, agent, output, reserved=reserved)
    elif to is Format.ATIF:
        _export_atif(store, run, output, server_data=not no_server_data)
    else:
        _export_spans(store, run, output, content=content)


def _export_atif(url: str | None, name: str, to: Path | None, *, server_data: bool) -> None:
    async def work(store: Store) -> JsonValue:
        snapshot = await load_existing(store, name)
        return to_atif(snapshot, subagents=await _subagents(store, snapshot), server_data=server_data)

    document = with_store(url, work)
    with writer(to, store_url(url)) as write:
        write(msgspec.json.format(encode_json(document), indent=2) + b"\n")


async def _subagents(store: Store, root: Snapshot) -> list[Snapshot]:
    """Return the runs whose meta names ``root`` or one of its sub-agents as their parent."""
    inner: dict[tuple[str, str], list[RunInfo]] = {}
    for info in await runs_of(store):
        parent = info.meta.get(PARENT)
        if isinstance(parent, Mapping):
            inner.setdefault((str(parent.get("agent")), str(parent.get("run"))), []).append(info)
    subagents: list[Snapshot] = []
    pending = [(root.agent, root.run)]
    seen = set(pending)
    while pending:
        for info in inner.get(pending.pop(), ()):
            name = (info.agent, info.run)
            if name not in seen:
                seen.add(name)
                pending.append(name)
                subagents.append(await store.load_run(info.agent, info.run))
    return subagents


def _export_spans(url: str | None, name: str, to: Path | None, *, content: bool) -> None:
    try:
        from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter  # noqa: PLC0415  # an extra

        from agent_memory_log.interchange.opentelemetry import export_spans  # noqa: PLC0415  # imports an extra
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise CommandFailed("--to otel needs OpenTelemetry: pip install 'agent-memory-log[otel]'") from error
    snapshot = with_store(url, lambda store: load_existing(store, name))
    lines = io.StringIO()
    export_spans(snapshot, FileSpanExporter(stream=lines), content=content)
    with writer(to, store_url(url)) as write:
        write(lines.getvalue().encode())


def _export(url: str | None, name: str | None, agent: str | None, to: Path | None, *, reserved: bool) -> None:
    async def work(store: Store) -> None:
        if reserved:
            await run_async(purge_all(datetime.now(UTC)), store)
        lines, runs, events = await _source(store, name, agent, reserved=reserved)
        with writer(to, store_url(url)) as write, progress("exporting", events) as advance:
            written = 0
            async for line in lines:
                write(line)
                written += len(line)
                advance()
        if to is not None and sys.stderr.isatty():
            note(f"wrote {counted(runs, 'run')}, {counted(events, 'event')}, {size(written)} to {to}")

    with_store(url, work)


async def _source(
    store: Store, name: str | None, agent: str | None, *, reserved: bool
) -> tuple[AsyncIterator[bytes], int, int]:
    """Return the lines to write, and the expected numbers of runs and events."""
    if name is not None:
        run = await existing_run(store, name)
        return export_run(store, run.agent, run.run), 1, event_count(run)
    counts = [info.event_count for info in await runs_of(store, agent, reserved=reserved)]
    if not counts and agent is not None:
        raise CommandFailed(f"no runs of the agent {agent!r}: list the runs with amlog runs")
    return export_store(store, agent=agent, include_reserved=reserved), len(counts), sum(counts)
