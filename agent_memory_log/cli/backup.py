"""``amlog backup``: copies a store to a file while others write to it, and verifies the copy."""

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
        str, typer.Argument(metavar="FILE", help="The file to create. It must not exist.", show_default=False)
    ],
    *,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Copy a store to a file and verify the copy.

    Other processes can write to the store meanwhile. The backup holds the state of the store at one moment, without
    redacted or deleted data. Do not use cp for a backup, because SQLite keeps part of the store in a second file.

    With --json: an object with runs, events and size (in bytes).
    """

    async def work(opened: Store) -> BackupResult:
        if not isinstance(opened, BacksUp):
            raise CommandFailed(f"{scheme(store)}: stores cannot be backed up to a file; use amlog copy")
        return await opened.backup(file)

    result = with_store(store, work)
    contents = f"{counted(result.runs, 'run')}, {counted(result.events, 'event')}, {size(result.size)}"
    value = {"runs": result.runs, "events": result.events, "size": result.size}
    Output().report(value, f"{file}: {contents}", "verified", as_json=as_json)
