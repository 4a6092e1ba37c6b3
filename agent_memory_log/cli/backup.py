"""``amlog backup``: a verified copy of a store, made while others write to it."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_memory_log.cli.errors import CommandFailed
from agent_memory_log.cli.options import AsJson, StoreUrl, open_existing, run_async, store_url
from agent_memory_log.cli.output import DIM, GOOD, Output
from agent_memory_log.cli.text import counted, size
from agent_memory_log.store import BacksUp, BackupResult


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
    result = run_async(_backup(store, file))
    output = Output()
    if as_json:
        output.json({"runs": result.runs, "events": result.events, "size": result.size})
        return
    what = f"{counted(result.runs, 'run')}, {counted(result.events, 'event')}, {size(result.size)}"
    output.line((f"{output.tick} ", GOOD), f"{file}: {what}", ("   verified", DIM))


async def _backup(url: str | None, file: str) -> BackupResult:
    async with open_existing(url) as store:
        if not isinstance(store, BacksUp):
            raise CommandFailed(
                f"{store_url(url).split(':', 1)[0]}: stores cannot be backed up to a file; amlog copy copies them"
            )
        return await store.backup(file)
