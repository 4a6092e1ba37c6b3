"""``amlog memory import``: imports memories from JSONL."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.views import outcome_map, outcomes_text, write_outcomes
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import BAD, GOOD, Output
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
    report = run_async(_import(store, principal, data))
    output = Output()
    if as_json:
        outcomes = [outcome_map(outcome) for outcome in report.outcomes]
        output.json({"status": report.status, "stop_reason": report.stop_reason, "outcomes": outcomes})
    elif report.status == "stopped":
        output.line((f"{output.cross} ", BAD), f"stopped: {report.stop_reason}")
    else:
        output.line((f"{output.tick} ", GOOD), outcomes_text(report.outcomes))
        write_outcomes(output, report.outcomes)
    output.flush()
    if report.status == "stopped":
        raise typer.Exit(1)


async def _import(url: str | None, principal: Principal, data: bytes) -> WriteReport:
    async with open_memory(url, principal, create=True) as memory:
        return await memory.import_jsonl(data)
