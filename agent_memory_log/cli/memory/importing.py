"""``amlog memory import``: imports memories from JSONL."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.views import report_write
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.memory import Principal, WriteReport


def import_records(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The file. Use - for standard input.", show_default=False)
    ],
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Import memories that amlog memory export wrote.

    A memory that is already stored is not stored twice. An older value never replaces a newer one. Secrets are blocked.
    The exit status is 1 if the import was stopped. Then nothing was imported.

    With --json: an object with status (ok or stopped), stop_reason and outcomes. Each outcome has action, scope, kind,
    key, reason, superseded, evidence and record.
    """
    principal = principal_of(tenant, user, scopes)
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    report_write(run_async(_import(store, principal, data)), as_json=as_json)


async def _import(url: str | None, principal: Principal, data: bytes) -> WriteReport:
    async with open_memory(url, principal, create=True) as memory:
        return await memory.import_jsonl(data)
