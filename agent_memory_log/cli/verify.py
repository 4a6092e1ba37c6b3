"""``amlog verify``: whether a store holds what it promises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
import typer

from agent_memory_log.cli.checks import Finding, Remark, Severity, check_run
from agent_memory_log.cli.names import each_run, existing_run, run_name
from agent_memory_log.cli.options import AsJson, StoreUrl, open_existing, run_async
from agent_memory_log.cli.output import BAD, BOLD, DIM, GOOD, WARN, Output, Segment, progress
from agent_memory_log.cli.text import counted
from agent_memory_log.store import Store

_STYLES = {Severity.ERROR: BAD, Severity.WARNING: WARN, Severity.NOTE: DIM}


class Verdict(msgspec.Struct):
    """What ``verify`` found; the names are the keys of its JSON."""

    ok: bool = True
    runs: int = 0
    events: int = 0
    calls: int = 0
    errors: int = 0
    warnings: int = 0
    notes: int = 0
    findings: list[Finding] = []


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
    twice, a payload of another type, content that a redaction marker says is gone. Warnings: a tool result that answers
    no open call, a redacted event without its marker. Notes: calls without a result, as in a run that goes on. The
    library's own runs are included.

    With --json: ok, runs, events, calls, errors, warnings, notes, and findings, each with severity, check, agent, run,
    seq and message.
    """
    verdict = run_async(_verify(store, run))
    output = Output()
    if as_json:
        output.json(verdict)
    else:
        write_findings(output, verdict.findings)
        _write_verdict(output, verdict)
    if not verdict.ok:
        output.flush()
        raise typer.Exit(1)


async def _verify(url: str | None, name: str | None) -> Verdict:
    async with open_existing(url) as store:
        return await verify_store(store, name)


async def verify_store(store: Store, name: str | None = None) -> Verdict:
    """Check every run of a store, or the one named."""
    if name is not None:
        infos = [await existing_run(store, name)]
    else:
        infos = [info async for info in each_run(store, reserved=True)]
    verdict = Verdict()
    with progress("verifying", sum(info.event_count for info in infos)) as advance:
        for info in sorted(infos, key=lambda info: (info.agent, info.run)):
            report = await check_run(store, info, advance)
            verdict.runs += 1
            verdict.events += report.events
            verdict.calls += report.calls
            verdict.findings += report.findings
    counts = {severity: sum(one.severity is severity for one in verdict.findings) for severity in Severity}
    verdict.errors, verdict.warnings, verdict.notes = (
        counts[Severity.ERROR],
        counts[Severity.WARNING],
        counts[Severity.NOTE],
    )
    verdict.ok = not verdict.errors
    return verdict


def write_findings(output: Output, findings: Iterable[Remark]) -> None:
    """Write findings, those of a run together."""
    shown: tuple[str, str] | None = None
    for finding in findings:
        name = run_name(finding.agent, finding.run)
        severity: Segment = (f"{finding.severity:<7}", _STYLES[finding.severity])
        place = f"#{finding.seq}" if finding.seq else ""
        if not output.terminal:
            output.line(severity, f"  {name}  {place}  {finding.message}" if place else f"  {name}  {finding.message}")
            continue
        if (finding.agent, finding.run) != shown:
            shown = (finding.agent, finding.run)
            output.line((name, BOLD))
        output.hanging(["  ", severity, f"  {place:>6}  "], finding.message)


def _write_verdict(output: Output, verdict: Verdict) -> None:
    sign: Segment = (f"{output.tick} ", GOOD) if verdict.ok else (f"{output.cross} ", BAD)
    found = [counted(verdict.errors, "error"), counted(verdict.warnings, "warning"), counted(verdict.notes, "note")]
    looked_at = f"{counted(verdict.runs, 'run')}, {counted(verdict.events, 'event')}"
    output.line(sign, f"{looked_at}: ", (", ".join(found), GOOD if verdict.ok else BAD))
