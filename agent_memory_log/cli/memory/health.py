"""``amlog memory health``: shows counts that tell whether a memory needs attention."""

from __future__ import annotations

import msgspec

from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.views import time_text
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import Column, Output
from agent_memory_log.memory import Health, Principal

_COLUMNS = (Column("item"), Column("value", number=True))


def health(
    *, tenant: Tenant, user: User = None, scopes: Scopes = None, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    """Show the layers of the memories, open conflicts, events that were not learnt from, and the state of search.

    With --json: an object with active (by kind), closed (by status), layers, weak, blocked (by reason), conflicts_open,
    runs, runs_behind, events_behind, events, maintained_at, maintenance_open, indexed and with_vectors.
    """
    result = run_async(_health(store, principal_of(tenant, user, scopes)))
    output = Output()
    if as_json:
        output.json(msgspec.to_builtins(result))
        return
    counts = {
        **{f"active {kind}": count for kind, count in result.active.items()},
        **{f"layer {layer}": count for layer, count in result.layers.items()},
        **dict(result.closed),
        **{f"blocked: {reason}": count for reason, count in result.blocked.items()},
        "weak": result.weak,
        "conflicts open": result.conflicts_open,
        "runs linked": result.runs,
        "runs behind": result.runs_behind,
        "events behind": result.events_behind,
        "events": result.events,
    }
    rows = [(name, f"{count:,}") for name, count in counts.items()]
    rows.append(("maintained", time_text(result.maintained_at) or "never"))
    for name, share in (("indexed", result.indexed), ("with vectors", result.with_vectors)):
        if share is not None:
            rows.append((name, f"{share:.0%}"))
    output.table(_COLUMNS, rows)


async def _health(url: str | None, principal: Principal) -> Health:
    async with open_memory(url, principal) as memory:
        return await memory.health()
