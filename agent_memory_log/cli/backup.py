"""``amlog backup``: a verified copy of a store, made while others write to it."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_memory_log.capabilities import BacksUp, BackupResult
from agent_memory_log.cli.errors import CommandFailed
from agent_memory_log.cli.options import AsJson, StoreUrl, scheme, with_store
from agent_memory_log.cli.output import Output
from agent_memory_log.cli.terminal_text import size
from agent_memory_log.store import Store
from agent_memory_log.wording import counted


def backup(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Where to; a file that is not there yet.", show_default=False)
    ],
    *,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Copy a store to a file, and verify the copy.

    Others may write to the store meanwhile: the backup holds what it held at one instant. What was redacted or deleted
    is not in it. A plain copy of the file (cp) is no backup, as part of the store is in SQLite's file beside it. With
    --json: runs, events, and size in bytes.
    """

    async def work(opened: Store) -> BackupResult:
        if not isinstance(opened, BacksUp):
            raise CommandFailed(f"{scheme(store)}: stores cannot be backed up to a file; amlog copy copies them")
        return await opened.backup(file)

    result = with_store(store, work)
    contents = f"{counted(result.runs, 'run')}, {counted(result.events, 'event')}, {size(result.size)}"
    value = {"runs": result.runs, "events": result.events, "size": result.size}
    Output().report(value, f"{file}: {contents}", "verified", as_json=as_json)
