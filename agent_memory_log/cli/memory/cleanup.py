"""``amlog memory cleanup``: archives old episodes of little importance."""

from __future__ import annotations

from typing import Annotated

from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.table import default, option
from agent_memory_log.cli.memory.views import memories, record_map, write_records
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import GOOD, Output
from agent_memory_log.memory import CleanupReport, Principal
from agent_memory_log.memory.operations import Cleanup


def cleanup(
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    older_than: Annotated[float, option(Cleanup, "older_than_days", "--older-than", metavar="DAYS")] = default(
        Cleanup, "older_than_days"
    ),
    below: Annotated[float, option(Cleanup, "below_stars", "--below", metavar="STARS")] = default(
        Cleanup, "below_stars"
    ),
    as_json: AsJson = False,
) -> None:
    """Archive old episodes of little importance, and mark expired memories.

    Nothing is erased. List the archived memories with amlog memory list --status archived.

    With --json: an object with archived and expired, both lists of records as in amlog memory list.
    """
    report = run_async(_cleanup(store, principal_of(tenant, user, scopes), older_than, below))
    output = Output()
    if as_json:
        output.json(
            {
                "archived": [record_map(record) for record in report.archived],
                "expired": [record_map(record) for record in report.expired],
            }
        )
        return
    archived, expired = memories(len(report.archived)), memories(len(report.expired))
    output.line((f"{output.tick} ", GOOD), f"archived {archived}, marked {expired} as expired")
    for records in (report.archived, report.expired):
        if records:
            write_records(output, records)


async def _cleanup(url: str | None, principal: Principal, older_than: float, below: float) -> CleanupReport:
    async with open_memory(url, principal) as memory:
        return await memory.cleanup(older_than_days=older_than, below_stars=below)
