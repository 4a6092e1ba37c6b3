"""``amlog verify``: checks the content of a store for damage."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated

import msgspec
import typer

from agent_memory_log.cli.errors import CommandFailed
from agent_memory_log.cli.options import AsJson, StoreUrl, with_store
from agent_memory_log.cli.output import BAD, BOLD, DIM, GOOD, WARN, Output, Segment, progress
from agent_memory_log.cli.run_names import resolve, run_name, runs_of
from agent_memory_log.errors import DecodeError, StoreCorrupt
from agent_memory_log.memory.records.principals import STREAM_RUN
from agent_memory_log.memory.upkeep.maintaining import owing_streams
from agent_memory_log.steps import run_async
from agent_memory_log.store import Store
from agent_memory_log.transfer.verifying import Check, Finding, Remark, Severity, Verdict
from agent_memory_log.transfer.verifying import verify as verify_store
from agent_memory_log.wording import counted

_OWING = "it still holds memories whose evidence was erased; no call returns them, and amlog compact erases them"
_STYLES = {Severity.ERROR: BAD, Severity.WARNING: WARN, Severity.NOTE: DIM}


def verify(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="AGENT/RUN or RUN. Default: the whole store.", show_default=False),
    ] = None,
    *,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Check a store for damage.

    The exit status is 1 if there are errors. The runs of the library's own agents are checked too.

    Errors are: a missing or misplaced seq, an unreadable event, a duplicate event id, and a payload of the wrong type.
    An event that still has its content although a redaction marker names it is an error too. The backend also reports
    errors of its own: a row that differs from its checksum, an index that differs from its table, or a damaged file.

    Warnings are: a tool result that answers no open call, a redacted event without a redaction marker, and memories
    whose evidence was erased, but which are still in the file. amlog compact erases them.

    Notes are: tool calls without a result, as in a run that is not finished, and the number of events without a
    checksum.

    With --json: an object with ok, runs, events, calls, errors, warnings, notes and findings. Each finding has
    severity, check, agent, run, seq and message. agent and run are null if the finding concerns the whole store.
    """
    verdict = with_store(store, lambda opened: _verify(opened, run))
    output = Output()
    if as_json:
        output.json(verdict)
    else:
        write_findings(output, verdict.findings)
        _write_verdict(output, verdict)
    if not verdict.ok:
        raise typer.Exit(1)


async def _verify(store: Store, name: str | None) -> Verdict:
    if name is None:
        with progress("verifying", await _events(store)) as advance:
            return await _with_memory(store, await verify_store(store, progress=advance))
    agent, run = await resolve(store, name)
    verdict = await verify_store(store, agent, run)
    if not verdict.runs and verdict.ok:
        raise CommandFailed(f"no run {run_name(agent, run)}: list the runs with amlog runs")
    return verdict


async def _with_memory(store: Store, verdict: Verdict) -> Verdict:
    """Add a warning for each memory that still holds memories without evidence. Damage may prevent the search."""
    with suppress(StoreCorrupt, DecodeError):
        streams = await run_async(owing_streams(), store)
        warnings = [
            Finding(Severity.WARNING, agent, STREAM_RUN, 0, _OWING, check=Check.LOST_EVIDENCE) for agent in streams
        ]
        count = verdict.warnings + len(warnings)
        return msgspec.structs.replace(verdict, findings=[*verdict.findings, *warnings], warnings=count)
    return verdict


async def _events(store: Store) -> int | None:
    """Return the number of events in the store, or None if damage prevents the count."""
    try:
        return sum(info.event_count for info in await runs_of(store, reserved=True))
    except (StoreCorrupt, DecodeError):
        return None


def write_findings(output: Output, findings: Iterable[Remark]) -> None:
    """Write findings. A terminal shows the name of a run once, above its findings."""
    heading: str | None = None
    for finding in findings:
        name = "the store" if finding.agent is None else run_name(finding.agent, finding.run or "")
        severity: Segment = (f"{finding.severity:<7}", _STYLES[finding.severity])
        seq = f"#{finding.seq}" if finding.seq else ""
        if not output.terminal:
            output.line(severity, f"  {name}  {seq}  {finding.message}" if seq else f"  {name}  {finding.message}")
            continue
        if name != heading:
            heading = name
            output.line((name, BOLD))
        output.hanging(["  ", severity, f"  {seq:>6}  "], finding.message)


def _write_verdict(output: Output, verdict: Verdict) -> None:
    sign: Segment = (f"{output.tick} ", GOOD) if verdict.ok else (f"{output.cross} ", BAD)
    counts = [counted(verdict.errors, "error"), counted(verdict.warnings, "warning"), counted(verdict.notes, "note")]
    checked = f"{counted(verdict.runs, 'run')}, {counted(verdict.events, 'event')}"
    output.line(sign, f"{checked}: ", (", ".join(counts), GOOD if verdict.ok else BAD))
