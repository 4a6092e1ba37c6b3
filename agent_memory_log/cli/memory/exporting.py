"""``amlog memory export``: memories as JSONL."""

from __future__ import annotations

from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.options import StoreUrl, run_async
from agent_memory_log.cli.outfile import writer
from agent_memory_log.memory import Principal


def export(*, tenant: Tenant, user: User = None, scopes: Scopes = None, store: StoreUrl = None) -> None:
    """Write what is remembered as JSONL.

    A header and a line for each memory, which amlog memory import reads, for this or another subject. What is not
    active is left out.
    """
    data = run_async(_export(store, principal_of(tenant, user, scopes)))
    with writer(None) as write:
        write(data)


async def _export(url: str | None, principal: Principal) -> bytes:
    async with open_memory(url, principal) as memory:
        return await memory.export_jsonl()
