"""``amlog memory cleanup``: what is old and of little importance, put away."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.views import memories, record_map, write_records
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import GOOD, Output
from agent_memory_log.memory import CleanupReport, Principal


def cleanup(
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    older_than: Annotated[
        int, typer.Option("--older-than", min=0, metavar="DAYS", help="Only episodes older than that.")
    ] = 90,
    below: Annotated[
        int, typer.Option("--below", min=1, max=6, metavar="STARS", help="Only episodes with fewer stars.")
    ] = 3,
    as_json: AsJson = False,
) -> None:
    """Archive old episodes of little importance, and note what has expired.

    Nothing is erased: amlog memory list --status archived lists them. With --json: archived and expired, lists of items
    as of amlog memory list.
    """
    report = run_async(_cleanup(store, principal_of(tenant, user, scopes), older_than, below))
    output = Output()
    if as_json:
        output.json(
            {
                "archived": [record_map(one) for one in report.archived],
                "expired": [record_map(one) for one in report.expired],
            }
        )
        return
    archived, expired = memories(len(report.archived)), memories(len(report.expired))
    output.line((f"{output.tick} ", GOOD), f"archived {archived}, {expired} had expired")
    for records in (report.archived, report.expired):
        if records:
            write_records(output, records)


async def _cleanup(url: str | None, principal: Principal, older_than: int, below: int) -> CleanupReport:
    async with open_memory(url, principal) as memory:
        return await memory.cleanup(older_than_days=older_than, below_stars=below)
