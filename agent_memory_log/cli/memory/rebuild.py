"""``amlog memory rebuild``: rebuilds memories from their events and compares the result."""

from __future__ import annotations

import msgspec
import typer

from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.views import memories
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import BAD, GOOD, Output
from agent_memory_log.memory import Principal, RebuildReport
from agent_memory_log.wording import counted


def rebuild(
    *, tenant: Tenant, user: User = None, scopes: Scopes = None, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    """Rebuild memories from their first event.

    Uses no snapshots and no model. The exit status is 1 if the result differs from the stored memories.

    With --json: an object with records, events and equal.
    """
    report = run_async(_rebuild(store, principal_of(tenant, user, scopes)))
    output = Output()
    if as_json:
        output.json(msgspec.to_builtins(report))
    else:
        sign = (f"{output.tick} ", GOOD) if report.equal else (f"{output.cross} ", BAD)
        result = "equal to the stored memories" if report.equal else "different from the stored memories"
        output.line(sign, f"{memories(report.records)} from {counted(report.events, 'event')}, {result}")
    output.flush()
    if not report.equal:
        raise typer.Exit(1)


async def _rebuild(url: str | None, principal: Principal) -> RebuildReport:
    async with open_memory(url, principal) as memory:
        return await memory.rebuild()
