"""``amlog memory subjects``: of whom a store holds memory."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from agent_memory_log.cli.options import AsJson, StoreUrl, open_existing, run_async
from agent_memory_log.cli.output import NAME, Column, Output, note
from agent_memory_log.memory import MemoryClient, SubjectId

_COLUMNS = (Column("tenant"), Column("scope"), Column("id", NAME))


def subjects(
    *,
    store: StoreUrl = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Only those of this tenant.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List of whom a store holds memory.

    With --json: a list, each with tenant, scope and id.
    """
    found = run_async(_subjects(store, tenant))
    output = Output()
    if as_json:
        output.json(msgspec.to_builtins(found))
    elif found:
        output.table(_COLUMNS, [(one.tenant, one.scope, one.id) for one in found])
    else:
        note("no memory of anybody")


async def _subjects(url: str | None, tenant: str | None) -> tuple[SubjectId, ...]:
    async with open_existing(url) as store:
        return await MemoryClient(store).subjects(tenant)
