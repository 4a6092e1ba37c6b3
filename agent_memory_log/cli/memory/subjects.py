"""``amlog memory subjects``: lists the subjects that have memories in a store."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from agent_memory_log.cli.options import AsJson, StoreUrl, open_existing, run_async
from agent_memory_log.cli.output import NAME, Column, Output, note
from agent_memory_log.memory import MemoryClient, SubjectId

_COLUMNS = (Column("tenant", unbroken=True), Column("scope", unbroken=True), Column("id", NAME, unbroken=True))


def subjects(
    *,
    store: StoreUrl = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="NAME", help="Only the subjects of this tenant.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the users and other subjects that have memories in a store.

    With --json: a list of objects with tenant, scope and id.
    """
    subject_ids = run_async(_subjects(store, tenant))
    output = Output()
    if as_json:
        output.json(msgspec.to_builtins(subject_ids))
    elif subject_ids:
        output.table(_COLUMNS, [(subject.tenant, subject.scope, subject.id) for subject in subject_ids])
    else:
        note("no subjects")


async def _subjects(url: str | None, tenant: str | None) -> tuple[SubjectId, ...]:
    async with open_existing(url) as store:
        return await MemoryClient(store).subjects(tenant)
