"""``amlog copy``: runs from one store to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
import typer

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
from agent_memory_log.opening import store_files
from agent_memory_log.store import RunInfo, Store
from agent_memory_log.transfer.copying import CopiedRun, copy_run, runs_by_age
from agent_memory_log.transfer.verifying import Remark, Severity
from agent_memory_log.wording import counted

_PASSES = 2
"""How often a copy goes over an event: it is stored, and read back."""


def copy(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE_URL", help="The store to copy from, such as sqlite:///runs.db.", show_default=False
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET_URL", help="The store to copy to; made if need be.", show_default=False),
    ],
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="AGENT/RUN or RUN, any number of them; every run of the store without any.",
            show_default=False,
        ),
    ] = None,
    *,
    agent: AgentName = None,
    as_json: AsJson = False,
) -> None:
    """Copy runs from one store to another.

    Between any two: a file, a server, a third party's. Seqs, ids, times, labels, meta and redactions are kept, and each
    run is read back and compared. The library's own runs are among them: the target then holds the source's memories.
    Copying again goes on where a copy was interrupted, adds what is new, and redacts what was redacted in the source
    since. Nothing is stored twice.

    A run of which the target holds something else is left as it is there; the others are copied, and the status is 1. A
    run that was deleted or has expired in the source meanwhile is only mentioned. Runs that only the target has stay.

    With --json: ok, events, copied, already_there, redacted, failed, gone, reserved (how many of the runs are the
    library's own), and runs, each with name, agent, run, version, events, copied, already_there, redacted, digest (of
    what both stores hold), problem, the seq it is about and gone.
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
        raise UsageProblem("give either RUNs, or --agent NAME for every run of one agent, or neither for all")
    for name in names:
        if "://" in name:  # no name of a run has that, and what says so would show a password
            raise UsageProblem(f"{one_line(without_credentials(name))!r} is a third URL: give two, and names of runs")
    if _is_same_store(source, target):
        raise UsageProblem("SOURCE_URL and TARGET_URL are the same store")


async def _copy(source_url: str, target_url: str, names: Sequence[str], agent: str | None) -> list[CopiedRun]:
    async with open_existing(source_url) as source:
        infos = await _chosen(source, names, agent)
        async with open_or_create(target_url) as target:
            title = f"copying {counted(len(infos), 'run')}"
            with progress(title, _PASSES * sum(info.event_count for info in infos)) as advance:
                return [await _copy_one(source, target, info, advance) for info in infos]


async def _chosen(source: Store, names: Sequence[str], agent: str | None) -> list[RunInfo]:
    wanted = {(run.agent, run.run) for run in [await existing_run(source, name) for name in names]}
    infos = [info for info in await runs_by_age(source, agent) if not names or (info.agent, info.run) in wanted]
    if not infos:
        whose = "" if agent is None else f" of the agent {agent!r}"
        raise CommandFailed(f"nothing to copy: the source holds no runs{whose}")
    return infos


async def _copy_one(source: Store, target: Store, info: RunInfo, advance: Advance) -> CopiedRun:
    """Copy a run, moving the bar by its share of it, whatever there was to do."""
    left = _PASSES * info.event_count

    def seen(events: int) -> None:
        nonlocal left
        amount = min(events, left)
        left -= amount
        advance(amount)

    result = await copy_run(source, target, info.agent, info.run, seen=seen)
    advance(left)
    return result


class Copied(msgspec.Struct, frozen=True):
    """What ``copy`` did; the names are the keys of its JSON."""

    ok: bool
    runs: list[dict[str, JsonValue]]
    events: int
    copied: int
    already_there: int
    redacted: int
    failed: int
    gone: int
    reserved: int


def _summary(results: Sequence[CopiedRun]) -> Copied:
    failed = sum(bool(result.problem) and not result.gone for result in results)
    return Copied(
        ok=not failed,
        runs=[_result_map(result) for result in results],
        events=sum(result.events for result in results),
        copied=sum(result.copied for result in results),
        already_there=sum(result.already for result in results),
        redacted=sum(result.redacted for result in results),
        failed=failed,
        gone=sum(result.gone for result in results),
        reserved=sum(not result.problem and is_reserved(result.agent) for result in results),
    )


def _result_map(result: CopiedRun) -> dict[str, JsonValue]:
    return run_map(
        result.agent,
        result.run,
        version=result.version,
        events=result.events,
        copied=result.copied,
        already_there=result.already,
        redacted=result.redacted,
        digest=result.digest,
        problem=result.problem,
        seq=result.seq,
        gone=result.gone,
    )


def _remark(result: CopiedRun) -> Remark:
    severity = Severity.WARNING if result.gone else Severity.ERROR
    return Remark(severity, result.agent, result.run, result.seq, result.problem)


def _write_summary(output: Output, results: Sequence[CopiedRun], summary: Copied) -> None:
    kept = [result for result in results if not result.gone]
    name = run_name(kept[0].agent, kept[0].run) if len(kept) == 1 else counted(len(kept), "run")
    sign: Segment = (f"{output.tick} ", GOOD) if summary.ok else (f"{output.cross} ", BAD)
    gone = f"   {counted(summary.gone, 'run')} gone from the source" if summary.gone else ""
    if summary.ok and not summary.copied:
        there = counted(summary.already_there, "event")
        output.line(sign, f"nothing new: {name} with {there} already there", (gone, DIM))
        return
    already = f"   {summary.already_there:,} already there" if summary.already_there else ""
    redacted = f"   {summary.redacted:,} redacted" if summary.redacted else ""
    reserved = f"   {counted(summary.reserved, 'run')} of the library's own" if summary.reserved else ""
    failed = f"   {counted(summary.failed, 'run')} failed" if summary.failed else ""
    copied = f"copied {counted(summary.copied, 'event')} of {name}"
    output.line(sign, copied, (already + redacted + gone + reserved, DIM), (failed, BAD))


def _is_same_store(source: str, target: str) -> bool:
    """Whether two URLs name one store, or have a file in common, as far as URLs and files show it.

    Copying a store onto itself in another guise does no harm: it finds everything there.
    """
    shared = (is_same_file(mine, theirs) for mine in store_files(source) for theirs in store_files(target))
    return any(shared) or _without_user(source) == _without_user(target)


def _without_user(url: str) -> tuple[str, str, str, list[str]]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower(), parts.path, sorted(parts.query.split("&"))
