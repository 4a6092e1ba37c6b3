"""``amlog memory rebuild``: memory folded again from its first event."""

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
    """Fold memory again from its first event.

    Without snapshots and without a model. The status is 1 when the result is not what was held. With --json: records,
    events and equal.
    """
    report = run_async(_rebuild(store, principal_of(tenant, user, scopes)))
    output = Output()
    if as_json:
        output.json(msgspec.to_builtins(report))
    else:
        sign = (f"{output.tick} ", GOOD) if report.equal else (f"{output.cross} ", BAD)
        result = "the same as was held" if report.equal else "not what was held"
        output.line(sign, f"{memories(report.records)} from {counted(report.events, 'event')}, {result}")
    output.flush()
    if not report.equal:
        raise typer.Exit(1)


async def _rebuild(url: str | None, principal: Principal) -> RebuildReport:
    async with open_memory(url, principal) as memory:
        return await memory.rebuild()
