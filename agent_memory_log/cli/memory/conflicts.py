"""``amlog memory conflicts``: lists memories that contradict each other. The other two commands end and reopen one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from agent_memory_log.cli.errors import CommandFailed
from agent_memory_log.cli.memory.options import RECORD_HELP, Scopes, Tenant, User, open_memory, owner_text, principal_of
from agent_memory_log.cli.memory.table import default, option
from agent_memory_log.cli.memory.views import record_map, words
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import DIM, NAME, WARN, Output, note
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.memory import ConflictPair, Memory, Principal
from agent_memory_log.memory.operations import ListConflicts, Resolve

_Status = Literal["open", "resolved"]
_OPEN: _Status = default(ListConflicts, "status")

_First = Annotated[str, typer.Argument(metavar="FIRST", help=f"The first memory. {RECORD_HELP}", show_default=False)]
_Second = Annotated[
    str, typer.Argument(metavar="SECOND", help="The key or id of the second memory.", show_default=False)
]


def conflicts(
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    status: Annotated[_Status, option(ListConflicts, "status", "--status", metavar="STATUS")] = _OPEN,
    as_json: AsJson = False,
) -> None:
    """List pairs of memories that cannot both be true now.

    Shows for each memory its id, its text and the trust in it. End a conflict with amlog memory resolve.

    With --json: a list of objects with newer and older (as in amlog memory list), kind, reason, trust (of newer and
    older), status, resolution and merged.
    """
    principal = principal_of(tenant, user, scopes)
    pairs = run_async(_conflicts(store, principal, status))
    output = Output()
    if as_json:
        output.json([_pair_map(pair) for pair in pairs])
        return
    for pair in pairs:
        _write(output, pair)
    if not pairs:
        note(f"no {status} conflicts in the memory of {owner_text(principal)}")


def resolve(
    first: _First,
    second: _Second,
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    keep: Annotated[Literal["first", "second", "both", "merged"], option(Resolve, "keep", "--keep", metavar="KEEP")],
    text: Annotated[str, option(Resolve, "text", "--text", metavar="TEXT")] = default(Resolve, "text"),
    as_json: AsJson = False,
) -> None:
    """End a conflict: keep the first memory, the second, both, or one that replaces both.

    Nothing is erased: amlog memory unresolve opens the conflict again.

    With --json: an object as in amlog memory conflicts.
    """
    principal = principal_of(tenant, user, scopes)

    async def work() -> ConflictPair:
        async with open_memory(store, principal) as memory:
            ids = await _ids(memory, first, second, ("open", "resolved"))
            return await memory.resolve(*ids, keep=keep, text=text)

    _show(run_async(work()), as_json=as_json)


def unresolve(
    first: _First,
    second: _Second,
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Open a resolved conflict again. A memory that was archived gets a new id.

    With --json: an object as in amlog memory conflicts.
    """
    principal = principal_of(tenant, user, scopes)

    async def work() -> ConflictPair:
        async with open_memory(store, principal) as memory:
            return await memory.unresolve(*await _ids(memory, first, second, ("resolved", "open")))

    _show(run_async(work()), as_json=as_json)


async def _ids(memory: Memory, first: str, second: str, statuses: Sequence[_Status]) -> tuple[str, str]:
    """Return the ids of two memories, given by key or id. A key is that of a memory in a conflict of these statuses.

    Raises ``CommandFailed`` if the keys fit several.
    """
    for status in statuses:
        fitting = {
            (left.id, right.id)
            for pair in await memory.conflicts(status=status)
            for left, right in ((pair.newer, pair.older), (pair.older, pair.newer))
            if first in (left.key, left.id) and second in (right.key, right.id)
        }
        if len(fitting) > 1:
            raise CommandFailed(
                "several conflicts are about these keys: give ids, as amlog memory conflicts shows them"
            )
        for ids in fitting:
            return ids
    return first, second


def _show(pair: ConflictPair, *, as_json: bool) -> None:
    output = Output()
    if as_json:
        output.json(_pair_map(pair))
    else:
        _write(output, pair)


def _write(output: Output, pair: ConflictPair) -> None:
    resolution = f", kept {pair.resolution}" if pair.resolution else ""
    output.line((f"{pair.kind} ({pair.reason}), {pair.status}{resolution}", WARN))
    for name, record, trust in zip(("newer", "older"), (pair.newer, pair.older), pair.trust, strict=True):
        details = f"trust {trust:.0%}" if record.status == "active" else record.status
        output.line("  ", (name, DIM), "  ", (record.id, NAME), f"  {words(record)}", (f"  {details}", DIM))
    if pair.merged is not None:
        output.line("  ", ("merged", DIM), " ", (pair.merged.id, NAME), f"  {words(pair.merged)}")


def _pair_map(pair: ConflictPair) -> dict[str, JsonValue]:
    return {
        "newer": record_map(pair.newer),
        "older": record_map(pair.older),
        "kind": pair.kind,
        "reason": pair.reason,
        "trust": list(pair.trust),
        "status": pair.status,
        "resolution": pair.resolution,
        "merged": None if pair.merged is None else record_map(pair.merged),
    }


async def _conflicts(url: str | None, principal: Principal, status: _Status) -> tuple[ConflictPair, ...]:
    async with open_memory(url, principal) as memory:
        return await memory.conflicts(status=status)
