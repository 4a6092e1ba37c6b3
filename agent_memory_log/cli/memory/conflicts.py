"""``amlog memory conflicts``: lists memories that contradict each other. The other two commands end and reopen one."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from agent_memory_log.cli.errors import UsageProblem
from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, owner_text, principal_of
from agent_memory_log.cli.memory.table import default, option
from agent_memory_log.cli.memory.views import record_map, words
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import DIM, NAME, WARN, Output, note
from agent_memory_log.cli.terminal_text import one_line
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.memory import ConflictPair, Principal
from agent_memory_log.memory.operations import ListConflicts, Resolve

_STATUSES: dict[str, Literal["open", "resolved"]] = {"open": "open", "resolved": "resolved"}
_KEEP: dict[str, Literal["first", "second", "both", "merged"]] = {
    "first": "first",
    "second": "second",
    "both": "both",
    "merged": "merged",
}

_First = Annotated[str, typer.Argument(metavar="ID", help="The id of the first memory.", show_default=False)]
_Second = Annotated[str, typer.Argument(metavar="OTHER", help="The id of the second memory.", show_default=False)]


def conflicts(
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    status: Annotated[str, option(ListConflicts, "status", "--status", metavar="STATUS")] = default(
        ListConflicts, "status"
    ),
    as_json: AsJson = False,
) -> None:
    """List pairs of memories that cannot both be true now.

    Shows for each memory its id, its text and the trust in it. End a conflict with amlog memory resolve.

    With --json: a list of objects with newer and older (as in amlog memory list), kind, reason, trust (of newer and
    older), status, resolution and merged.
    """
    if status not in _STATUSES:
        raise UsageProblem(f"--status {one_line(status)!r} is unknown: give one of {', '.join(_STATUSES)}")
    principal = principal_of(tenant, user, scopes)
    pairs = run_async(_conflicts(store, principal, _STATUSES[status]))
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
    keep: Annotated[str, option(Resolve, "keep", "--keep", metavar="KEEP")] = default(Resolve, "keep"),
    text: Annotated[str, option(Resolve, "text", "--text", metavar="TEXT")] = default(Resolve, "text"),
    as_json: AsJson = False,
) -> None:
    """End a conflict: keep the first memory, the second, both, or one that replaces both.

    Nothing is erased: amlog memory unresolve opens the conflict again.

    With --json: an object as in amlog memory conflicts.
    """
    if keep not in _KEEP:
        raise UsageProblem(f"--keep {one_line(keep)!r} is unknown: give one of {', '.join(_KEEP)}")
    operation = Resolve(first, second, keep=_KEEP[keep], text=text)
    _show(run_async(_resolve(store, principal_of(tenant, user, scopes), operation)), as_json=as_json)


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
    _show(run_async(_unresolve(store, principal_of(tenant, user, scopes), first, second)), as_json=as_json)


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


async def _conflicts(
    url: str | None, principal: Principal, status: Literal["open", "resolved"]
) -> tuple[ConflictPair, ...]:
    async with open_memory(url, principal) as memory:
        return await memory.conflicts(status=status)


async def _resolve(url: str | None, principal: Principal, operation: Resolve) -> ConflictPair:
    async with open_memory(url, principal) as memory:
        return await memory.execute(operation)


async def _unresolve(url: str | None, principal: Principal, first: str, second: str) -> ConflictPair:
    async with open_memory(url, principal) as memory:
        return await memory.unresolve(first, second)
