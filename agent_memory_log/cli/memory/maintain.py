"""``amlog memory maintain``: keeps a memory in order, and shows its changes with their reasons."""

from __future__ import annotations

from typing import Annotated

import msgspec

from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.table import default, option
from agent_memory_log.cli.memory.views import memories
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import GOOD, Column, Output, progress
from agent_memory_log.memory import MaintainReport, Principal, Upkeep
from agent_memory_log.memory.operations import Maintain

_COLUMNS = (Column("change"), Column("kind"), Column("key"), Column("why"), Column("id", unbroken=True))

_PARTS = 20
"""The number of calls that carry out one round, so that the bar moves."""

_ACTIONS = {
    "promoted": "promoted",
    "demoted": "demoted",
    "decayed": "archived as weak",
    "expired": "expired",
    "conflicts_found": "conflict found",
    "conflicts_resolved": "conflict resolved",
    "consolidated": "consolidated",
    "returned": "active again",
}
"""The fields of the report that have changes, in words."""

_LAYERS = ("promoted", "demoted")


def maintain(
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    dry_run: Annotated[bool, option(Maintain, "dry_run", "--dry-run")] = default(Maintain, "dry_run"),
    weak_below: Annotated[float, option(Maintain, "weak_below", "--weak-below", metavar="SHARE")] = default(
        Maintain, "weak_below"
    ),
    unused: Annotated[float, option(Maintain, "unused_days", "--unused", metavar="DAYS")] = default(
        Maintain, "unused_days"
    ),
    episodes: Annotated[float, option(Maintain, "episode_days", "--episodes", metavar="DAYS")] = default(
        Maintain, "episode_days"
    ),
    profile_tokens: Annotated[int, option(Maintain, "profile_tokens", "--profile-tokens", metavar="TOKENS")] = default(
        Maintain, "profile_tokens"
    ),
    as_json: AsJson = False,
) -> None:
    """Archive weak memories, mark expired ones, find conflicts, and consolidate old episodes and duplicates.

    Only memories whose evidence was erased are erased. List the archived memories with
    amlog memory list --status archived. Use --dry-run first to see the changes.

    With --json: an object with promoted, demoted, decayed, expired, conflicts_found, conflicts_resolved, consolidated
    and returned, lists of objects with record, scope, kind, key, why and parts. Also purged, checked and remaining.
    """
    call = Maintain(
        dry_run=dry_run, weak_below=weak_below, unused_days=unused, episode_days=episodes, profile_tokens=profile_tokens
    )
    report = run_async(_maintain(store, principal_of(tenant, user, scopes), call))
    output = Output()
    if as_json:
        output.json(msgspec.to_builtins(report))
        return
    changes: dict[str, tuple[Upkeep, ...]] = {action: getattr(report, action) for action in _ACTIONS}
    rows = [
        (_ACTIONS[action], change.kind, change.key, change.why, change.record)
        for action, group in changes.items()
        if action not in _LAYERS
        for change in group
    ]
    if rows:
        output.table(_COLUMNS, rows)
    counts = ", ".join(f"{len(group):,} {_ACTIONS[action]}" for action, group in changes.items() if group)
    done = "would change" if dry_run else "changed"
    output.line(
        (f"{output.tick} ", GOOD), f"{done} {memories(sum(map(len, changes.values())))}", f": {counts}" * bool(counts)
    )


async def _maintain(url: str | None, principal: Principal, call: Maintain) -> MaintainReport:
    async with open_memory(url, principal) as memory:
        if call.dry_run:
            return await memory.execute(call)
        records = sum((await memory.stats()).active.values())
        part = msgspec.structs.replace(call, limit=max(1_000, 3 * records // _PARTS))
        with progress("maintaining", 3 * records or None) as advance:
            report = MaintainReport(remaining=1)
            while report.remaining:
                new = await memory.execute(part)
                report = _sum(report, new)
                advance(new.checked)
        return report


def _sum(left: MaintainReport, right: MaintainReport) -> MaintainReport:
    """Return the changes of two calls of one round."""
    names = [name for name in MaintainReport.__struct_fields__ if name != "remaining"]
    return msgspec.structs.replace(right, **{name: getattr(left, name) + getattr(right, name) for name in names})
