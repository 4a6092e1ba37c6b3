"""``amlog memory delete``, ``restore`` and ``separate``: archive a memory, and write archived memories again."""

from __future__ import annotations

from agent_memory_log.cli.errors import CommandFailed
from agent_memory_log.cli.memory.finding import existing
from agent_memory_log.cli.memory.options import (
    Kind,
    RecordName,
    Scopes,
    Tenant,
    User,
    open_memory,
    owner_text,
    principal_of,
)
from agent_memory_log.cli.memory.views import outcome_map, report_write, write_outcomes
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import Output
from agent_memory_log.memory import Outcome, Principal, WriteReport


def delete(
    record: RecordName,
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kind: Kind = None,
    as_json: AsJson = False,
) -> None:
    """Archive a memory, so that no search and no context has it.

    Nothing is erased: amlog memory restore brings the memory back, and amlog memory forget erases it.

    With --json: an object with action, scope, kind, key, reason, superseded, evidence and record.
    """
    _report(run_async(_delete(store, principal_of(tenant, user, scopes), record, kind)), as_json=as_json)


def restore(
    record: RecordName,
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kind: Kind = None,
    as_json: AsJson = False,
) -> None:
    """Write an archived memory again.

    A key selects the latest archived memory with that key. If the key has a newer value now, that value stays.

    With --json: an object with action, scope, kind, key, reason, superseded, evidence and record.
    """
    _report(run_async(_restore(store, principal_of(tenant, user, scopes), record, kind)), as_json=as_json)


def separate(
    record: RecordName,
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kind: Kind = None,
    as_json: AsJson = False,
) -> None:
    """Undo a consolidation: archive a memory, and write the memories again that it was made from.

    amlog memory maintain consolidates. It does not consolidate the same memories again.

    With --json: the same object as for amlog memory import.
    """
    report_write(run_async(_separate(store, principal_of(tenant, user, scopes), record, kind)), as_json=as_json)


def _report(outcome: Outcome, *, as_json: bool) -> None:
    output = Output()
    if as_json:
        output.json(outcome_map(outcome))
    else:
        write_outcomes(output, [outcome])


async def _delete(url: str | None, principal: Principal, name: str, kind: str | None) -> Outcome:
    async with open_memory(url, principal) as memory:
        return await memory.delete((await existing(memory, name, kind)).id)


async def _separate(url: str | None, principal: Principal, name: str, kind: str | None) -> WriteReport:
    async with open_memory(url, principal) as memory:
        return await memory.separate((await existing(memory, name, kind)).id)


async def _restore(url: str | None, principal: Principal, name: str, kind: str | None) -> Outcome:
    async with open_memory(url, principal) as memory:
        versions = [version.record for version in await memory.history(name, kind=kind)]
        archived = [record for record in versions if record.status == "archived"]
        if versions and not archived:
            raise CommandFailed(f"no memory {name!r} of {owner_text(principal)} is archived")
        record = archived[-1] if archived else await existing(memory, name, kind)
        return await memory.restore(record.id)
