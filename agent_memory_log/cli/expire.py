"""``amlog expire``: deletes the runs that have expired."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from agent_memory_log.cli.options import AsJson, StoreUrl, Yes, confirmed, instant, open_existing, run_async
from agent_memory_log.cli.output import Output
from agent_memory_log.store import ExpireResult
from agent_memory_log.wording import counted


def expire(
    *,
    store: StoreUrl = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--before",
            metavar="TIME",
            help="Only runs that expired by this time, such as 2026-11-21T09:30:00Z. Default: now.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the expired runs.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete all expired runs permanently.

    A run expires at the time in its meta's key expires_at. It cannot be read after that time, and this command deletes
    its events as amlog delete does. The command asks for confirmation. If there is no terminal, confirm with --yes. If
    a run is written again, its seqs continue after the deleted events. amlog compact frees the disk space.

    With --json: an object with runs, events and dry_run. runs and events are the numbers of deleted runs and events, or
    with --dry-run of those that would be deleted.
    """
    result = run_async(_expire(store, _instant(before), dry_run=dry_run, yes=yes))
    done = f"{'would delete' if dry_run else 'deleted'} {_summary(result)}" if result.runs else "no run has expired"
    value = {"runs": result.runs, "events": result.events, "dry_run": dry_run}
    Output().report(value, done, as_json=as_json)


async def _expire(url: str | None, before: datetime, *, dry_run: bool, yes: bool) -> ExpireResult:
    async with open_existing(url) as store:
        counted_first = await store.expire_runs(before=before, dry_run=True)
        if dry_run or not counted_first.runs:
            return counted_first
        confirmed(f"Delete {_summary(counted_first)} permanently?", yes=yes)
        return await store.expire_runs(before=before)


def _summary(result: ExpireResult) -> str:
    return f"{counted(result.runs, 'expired run')} with {counted(result.events, 'event')}"


def _instant(text: str | None) -> datetime:
    if text is None:
        return datetime.now(UTC)  # counting and deleting use the same time, so the confirmed count is right
    return instant("--before", text)
