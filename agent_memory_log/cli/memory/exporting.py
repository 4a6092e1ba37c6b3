"""``amlog memory export``: writes memories as JSONL."""

from __future__ import annotations

from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.options import StoreUrl, run_async
from agent_memory_log.cli.outfile import writer
from agent_memory_log.memory import Principal


def export(*, tenant: Tenant, user: User = None, scopes: Scopes = None, store: StoreUrl = None) -> None:
    """Write the active memories as JSONL.

    Writes a header and a line for each memory. amlog memory import reads them, for the same user or another one.
    """
    data = run_async(_export(store, principal_of(tenant, user, scopes)))
    with writer(None) as write:
        write(data)


async def _export(url: str | None, principal: Principal) -> bytes:
    async with open_memory(url, principal) as memory:
        return await memory.export_jsonl()
