"""``amlog expire``: the runs that are past their end, gone."""

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
            help="Only runs that ended by then, such as 2026-11-21T09:30:00Z; by default now.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count them, and change nothing.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete the runs that have expired, for good.

    A run ends at the expires_at of its meta, and cannot be read from then on; this removes its events, as amlog delete
    would. Asks first; off a terminal --yes must be given. If the run is written again, its numbering goes on from
    there. amlog compact gives the space back. With --json: runs and events, how many were deleted (with --dry-run:
    would be), and dry_run.
    """
    result = run_async(_expire(store, _instant(before), dry_run=dry_run, yes=yes))
    done = f"{'would delete' if dry_run else 'deleted'} {_what(result)}" if result.runs else "nothing has expired"
    value = {"runs": result.runs, "events": result.events, "dry_run": dry_run}
    Output().report(value, done, as_json=as_json)


async def _expire(url: str | None, before: datetime, *, dry_run: bool, yes: bool) -> ExpireResult:
    async with open_existing(url) as store:
        counted_first = await store.expire_runs(before=before, dry_run=True)
        if dry_run or not counted_first.runs:
            return counted_first
        confirmed(f"Delete {_what(counted_first)} for good?", yes=yes)
        return await store.expire_runs(before=before)


def _what(result: ExpireResult) -> str:
    return f"{counted(result.runs, 'expired run')} with {counted(result.events, 'event')}"


def _instant(text: str | None) -> datetime:
    if text is None:
        return datetime.now(UTC)  # one instant for counting and deleting: what is confirmed is what goes
    return instant("--before", text)
