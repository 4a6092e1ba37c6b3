"""``amlog memory list``: lists the memories of a user."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, get_args

from agent_memory_log.cli.errors import UsageProblem
from agent_memory_log.cli.memory.options import (
    Kinds,
    Scopes,
    Tenant,
    User,
    not_empty,
    open_memory,
    owner_text,
    principal_of,
)
from agent_memory_log.cli.memory.table import default, option
from agent_memory_log.cli.memory.views import record_map, write_records
from agent_memory_log.cli.options import AsJson, StoreUrl, instant, run_async
from agent_memory_log.cli.output import Output, note
from agent_memory_log.cli.terminal_text import one_line
from agent_memory_log.memory import Principal, Record
from agent_memory_log.memory.operations import AsOf, ListRecords
from agent_memory_log.memory.records.record import Status

_STATUSES: dict[str, Status] = {name: name for name in get_args(Status)}


def list_records(
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kinds: Kinds = None,
    status: Annotated[str, option(ListRecords, "status", "--status", metavar="STATUS")] = default(
        ListRecords, "status"
    ),
    as_of: Annotated[str | None, option(AsOf, "time", "--as-of", metavar="TIME")] = None,
    as_json: AsJson = False,
) -> None:
    """List memories.

    Shows for each memory its confidence, its importance in stars, the days until it expires, and the event it came
    from.

    With --json: a list of objects with id, kind, scope, key, value, text, confidence, importance, memory_type, stars,
    source, evidence, entities, tags, links, supersedes, valid_from, valid_until, ttl_left_days, created, updated,
    status and data. Each piece of evidence has name, agent, run, seq and item.
    """
    principal = principal_of(tenant, user, scopes)
    if status not in _STATUSES:
        raise UsageProblem(f"--status {one_line(status)!r} is unknown: give one of {', '.join(_STATUSES)}")
    if as_of is not None and status != "active":
        raise UsageProblem("--as-of lists the memories that were active then: remove --status")
    time = None if as_of is None else instant("--as-of", as_of)
    records = run_async(_list(store, principal, not_empty("--kind", kinds), _STATUSES[status], time))
    output = Output()
    if as_json:
        output.json([record_map(record) for record in records])
    elif records:
        write_records(output, records)
    else:
        of_kinds = f" of the kind {' or '.join(kinds)}" if kinds else ""
        note(f"no {status} memories{of_kinds} of {owner_text(principal)}")


async def _list(
    url: str | None, principal: Principal, kinds: Sequence[str] | None, status: Status, time: datetime | None
) -> tuple[Record, ...]:
    async with open_memory(url, principal) as memory:
        if time is None:
            return await memory.list(kinds=kinds, status=status)
        return await memory.as_of(time, kinds=kinds)
