"""``amlog verify``: whether a store holds what it promises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from agent_memory_log.cli.errors import CommandFailed
from agent_memory_log.cli.options import AsJson, StoreUrl, with_store
from agent_memory_log.cli.output import BAD, BOLD, DIM, GOOD, WARN, Output, Segment, progress
from agent_memory_log.cli.run_names import resolve, run_name, runs_of
from agent_memory_log.errors import DecodeError, StoreCorrupt
from agent_memory_log.store import Store
from agent_memory_log.transfer.verifying import Remark, Severity, Verdict
from agent_memory_log.transfer.verifying import verify as verify_store
from agent_memory_log.wording import counted

_STYLES = {Severity.ERROR: BAD, Severity.WARNING: WARN, Severity.NOTE: DIM}


def verify(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="AGENT/RUN or RUN; the whole store without it.", show_default=False),
    ] = None,
    *,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Check that a store is whole.

    The status is 1 when it is not. Errors: a missing or misplaced seq, an event that cannot be read, an event id used
    twice, a payload of another type, content that a redaction marker says is gone, and what the store's own check
    finds: a row that differs from its checksum, an index or a list that differs from what it is of, a damaged file.
    Warnings: a tool result that answers no open call, a redacted event without its marker. Notes: calls without a
    result, as in a run that goes on, and how many events have no checksum. The library's own runs are included.

    With --json: ok, runs, events, calls, errors, warnings, notes, and findings, each with severity, check, agent, run,
    seq and message; agent and run are null where it is about the store as a whole.
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
            return await verify_store(store, seen=advance)
    agent, run = await resolve(store, name)
    verdict = await verify_store(store, agent, run)
    if not verdict.runs and verdict.ok:
        raise CommandFailed(f"no run {run_name(agent, run)}: see amlog runs")
    return verdict


async def _events(store: Store) -> int | None:
    """How many events the store's runs hold, None where damage hides it."""
    try:
        return sum(info.event_count for info in await runs_of(store, reserved=True))
    except (StoreCorrupt, DecodeError):
        return None


def write_findings(output: Output, findings: Iterable[Remark]) -> None:
    """Write findings, those of a run together."""
    shown: str | None = None
    for finding in findings:
        name = "the store" if finding.agent is None else run_name(finding.agent, finding.run or "")
        severity: Segment = (f"{finding.severity:<7}", _STYLES[finding.severity])
        place = f"#{finding.seq}" if finding.seq else ""
        if not output.terminal:
            output.line(severity, f"  {name}  {place}  {finding.message}" if place else f"  {name}  {finding.message}")
            continue
        if name != shown:
            shown = name
            output.line((name, BOLD))
        output.hanging(["  ", severity, f"  {place:>6}  "], finding.message)


def _write_verdict(output: Output, verdict: Verdict) -> None:
    sign: Segment = (f"{output.tick} ", GOOD) if verdict.ok else (f"{output.cross} ", BAD)
    counts = [counted(verdict.errors, "error"), counted(verdict.warnings, "warning"), counted(verdict.notes, "note")]
    looked_at = f"{counted(verdict.runs, 'run')}, {counted(verdict.events, 'event')}"
    output.line(sign, f"{looked_at}: ", (", ".join(counts), GOOD if verdict.ok else BAD))
