"""``amlog memory stats``: counts the memories of a user."""

from __future__ import annotations

import msgspec

from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import Column, Output
from agent_memory_log.memory import Principal, Stats

_COLUMNS = (Column("item"), Column("count", number=True))


def stats(
    *, tenant: Tenant, user: User = None, scopes: Scopes = None, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    """Count memories, blocked candidates and linked runs.

    With --json: an object with active (by kind), closed (by status), blocked (by reason), events (of the memory's own
    streams), runs (linked runs) and snapshot_parts.
    """
    result = run_async(_stats(store, principal_of(tenant, user, scopes)))
    output = Output()
    if as_json:
        output.json(msgspec.to_builtins(result))
        return
    counts = {
        **{f"active {kind}": count for kind, count in result.active.items()},
        **dict(result.closed),
        **{f"blocked: {reason}": count for reason, count in result.blocked.items()},
        "events": result.events,
        "runs linked": result.runs,
        "snapshot parts": result.snapshot_parts,
    }
    output.table(_COLUMNS, [(name, f"{count:,}") for name, count in counts.items()])


async def _stats(url: str | None, principal: Principal) -> Stats:
    async with open_memory(url, principal) as memory:
        return await memory.stats()
