"""``amlog copy``: copies runs from one store to another."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
import typer

from agent_memory_log import steps
from agent_memory_log.backend_kit.urls import without_credentials
from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.options import AgentName, AsJson, open_existing, open_or_create, run_async
from agent_memory_log.cli.outfile import is_same_file
from agent_memory_log.cli.output import BAD, DIM, GOOD, Advance, Output, Segment, progress
from agent_memory_log.cli.run_names import existing_run, run_map, run_name
from agent_memory_log.cli.terminal_text import one_line
from agent_memory_log.cli.verify import write_findings
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.upkeep.maintaining import purge_all
from agent_memory_log.opening import store_files
from agent_memory_log.store import RunInfo, Store
from agent_memory_log.transfer.copying import CopiedRun, copy_run, runs_by_age
from agent_memory_log.transfer.verifying import Remark, Severity
from agent_memory_log.wording import counted

_PASSES = 2
"""The number of times that a copy handles an event: once to store it, and once to read it back."""


def copy(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE_URL", help="The store to copy from, such as sqlite:///runs.db.", show_default=False
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET_URL", help="The store to copy to. It is created if needed.", show_default=False),
    ],
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="AGENT/RUN or RUN. Repeatable. Default: every run of the source.",
            show_default=False,
        ),
    ] = None,
    *,
    agent: AgentName = None,
    as_json: AsJson = False,
) -> None:
    """Copy runs from one store to another.

    The stores can have different backends. The seqs, ids, times and labels of events stay the same, and so do meta and
    redactions. A run is created in the target at the time of the copy. The oldest run is copied first, so that an empty
    target lists the runs in the order of the source. Each run is read back and compared with the source. The runs of
    the library's own agents are copied too, so the target gets the memories of the source.

    Copying again continues an interrupted copy, adds new events, and applies new redactions of the source. It stores no
    event twice.

    If the target has a different run of the same name, the target's run is not changed, the other runs are copied, and
    the exit status is 1. A run that was deleted or has expired in the source during the copy is only reported. Runs
    that exist only in the target stay. If memories are copied, those that lost their evidence are first erased in the
    source.

    With --json: an object with ok, events, copied, already_there, redacted, failed, gone, reserved (the number of runs
    of the library's own agents) and runs. Each run has name, agent, run, version, events, copied, already_there,
    redacted, digest (of the content in both stores), problem, seq (of the event with the problem) and gone.
    """
    _check_use(source, target, runs or (), agent)
    results = run_async(_copy(source, target, runs or (), agent))
    output = Output()
    summary = _summary(results)
    if as_json:
        output.json(summary)
    else:
        write_findings(output, [_remark(result) for result in results if result.problem])
        _write_summary(output, results, summary)
    if not summary.ok:
        raise typer.Exit(1)


def _check_use(source: str, target: str, names: Sequence[str], agent: str | None) -> None:
    if names and agent is not None:
        raise UsageProblem("give either names of runs or --agent NAME; without both, every run is copied")
    for name in names:
        if "://" in name:  # the message for a wrong run name would show the URL's password
            raise UsageProblem(
                f"{one_line(without_credentials(name))!r} is a third URL: give two URLs, then the names of runs"
            )
    if _is_same_store(source, target):
        raise UsageProblem("SOURCE_URL and TARGET_URL are the same store: give another TARGET_URL")


async def _copy(source_url: str, target_url: str, names: Sequence[str], agent: str | None) -> list[CopiedRun]:
    async with open_existing(source_url) as source:
        infos = await _select(source, names, agent)
        if any(is_reserved(info.agent) for info in infos):
            await steps.run_async(purge_all(datetime.now(UTC)), source)
            infos = await _select(source, names, agent)
        async with open_or_create(target_url) as target:
            title = f"copying {counted(len(infos), 'run')}"
            with progress(title, _PASSES * sum(info.event_count for info in infos)) as advance:
                return [await _copy_one(source, target, info, advance) for info in infos]


async def _select(source: Store, names: Sequence[str], agent: str | None) -> list[RunInfo]:
    selected = {(run.agent, run.run) for run in [await existing_run(source, name) for name in names]}
    infos = [info for info in await runs_by_age(source, agent) if not names or (info.agent, info.run) in selected]
    if not infos:
        owner = "" if agent is None else f" of the agent {agent!r}"
        raise CommandFailed(f"nothing to copy: the source has no runs{owner}")
    return infos


async def _copy_one(source: Store, target: Store, info: RunInfo, advance: Advance) -> CopiedRun:
    """Copy a run and move the progress bar by exactly two steps for each event."""
    left = _PASSES * info.event_count

    def on_events(events: int) -> None:
        nonlocal left
        amount = min(events, left)
        left -= amount
        advance(amount)

    result = await copy_run(source, target, info.agent, info.run, progress=on_events)
    advance(left)
    return result


class CopySummary(msgspec.Struct, frozen=True, rename={"vanished": "gone"}):
    """The result of ``amlog copy``. The encoded names are the JSON keys."""

    ok: bool
    runs: list[dict[str, JsonValue]]
    events: int
    copied: int
    already_there: int
    redacted: int
    failed: int
    vanished: int
    reserved: int


def _summary(results: Sequence[CopiedRun]) -> CopySummary:
    failed = sum(bool(result.problem) and not result.vanished for result in results)
    return CopySummary(
        ok=not failed,
        runs=[_result_map(result) for result in results],
        events=sum(result.events for result in results),
        copied=sum(result.copied for result in results),
        already_there=sum(result.already_stored for result in results),
        redacted=sum(result.redacted for result in results),
        failed=failed,
        vanished=sum(result.vanished for result in results),
        reserved=sum(not result.problem and is_reserved(result.agent) for result in results),
    )


def _result_map(result: CopiedRun) -> dict[str, JsonValue]:
    return run_map(
        result.agent,
        result.run,
        version=result.version,
        events=result.events,
        copied=result.copied,
        already_there=result.already_stored,
        redacted=result.redacted,
        digest=result.digest,
        problem=result.problem,
        seq=result.seq,
        gone=result.vanished,
    )


def _remark(result: CopiedRun) -> Remark:
    severity = Severity.WARNING if result.vanished else Severity.ERROR
    return Remark(severity, result.agent, result.run, result.seq, result.problem)


def _write_summary(output: Output, results: Sequence[CopiedRun], summary: CopySummary) -> None:
    remaining = [result for result in results if not result.vanished]
    first = remaining[0] if remaining else None
    name = run_name(first.agent, first.run) if first and len(remaining) == 1 else counted(len(remaining), "run")
    sign: Segment = (f"{output.tick} ", GOOD) if summary.ok else (f"{output.cross} ", BAD)
    vanished = f"   {counted(summary.vanished, 'run')} disappeared from the source" if summary.vanished else ""
    if summary.ok and not summary.copied:
        existing = counted(summary.already_there, "event")
        output.line(sign, f"nothing new: {name} with {existing} already stored", (vanished, DIM))
        return
    already = f"   {summary.already_there:,} already stored" if summary.already_there else ""
    redacted = f"   {summary.redacted:,} redacted" if summary.redacted else ""
    reserved = f"   {counted(summary.reserved, 'run')} of the library's own agents" if summary.reserved else ""
    failed = f"   {counted(summary.failed, 'run')} failed" if summary.failed else ""
    copied = f"copied {counted(summary.copied, 'event')} of {name}"
    output.line(sign, copied, (already + redacted + vanished + reserved, DIM), (failed, BAD))


def _is_same_store(source: str, target: str) -> bool:
    """Return whether two URLs have a file in common, or are equal except for the user.

    The same store under two other URLs is not detected. Copying a store to itself changes nothing.
    """
    shared = (is_same_file(left, right) for left in store_files(source) for right in store_files(target))
    return any(shared) or _without_user(source) == _without_user(target)


def _without_user(url: str) -> tuple[str, str, str, list[str]]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower(), parts.path, sorted(parts.query.split("&"))
