"""``amlog memory stats``: how much is remembered, and how much was refused."""

from __future__ import annotations

import msgspec

from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import Column, Output
from agent_memory_log.memory import Principal, Stats

_COLUMNS = (Column("what"), Column("count", number=True))


def stats(
    *, tenant: Tenant, user: User = None, scopes: Scopes = None, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    """Count what is remembered.

    With --json: active (by kind), closed (by status), blocked (by reason), events (of the memory's streams), runs (that
    are linked) and snapshot_parts.
    """
    found = run_async(_stats(store, principal_of(tenant, user, scopes)))
    output = Output()
    if as_json:
        output.json(msgspec.to_builtins(found))
        return
    counts = {
        **{f"active {kind}": count for kind, count in found.active.items()},
        **dict(found.closed),
        **{f"blocked: {reason}": count for reason, count in found.blocked.items()},
        "events": found.events,
        "runs linked": found.runs,
        "snapshot parts": found.snapshot_parts,
    }
    output.table(_COLUMNS, [(name, f"{count:,}") for name, count in counts.items()])


async def _stats(url: str | None, principal: Principal) -> Stats:
    async with open_memory(url, principal) as memory:
        return await memory.stats()
