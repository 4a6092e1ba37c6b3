"""``amlog memory history``: lists every value that a key has had."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from agent_memory_log.cli.memory.options import Kind, Scopes, Tenant, User, open_memory, owner_text, principal_of
from agent_memory_log.cli.memory.views import record_map, source_name, sure, time_text, words, write_blocks
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import Column, Output, note
from agent_memory_log.memory import Principal, Version

_COLUMNS = (
    Column("since (UTC)"),
    Column("kind"),
    Column("memory"),
    Column("sure", number=True),
    Column("status"),
    Column("until (UTC)"),
    Column("why"),
    Column("from"),
)
"""The columns if the output is not a terminal. They have no styles."""


def history(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key of a memory.", show_default=False)],
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kind: Kind = None,
    as_json: AsJson = False,
) -> None:
    """List every value that a key has had, oldest first.

    Reads the home scope only. Forgotten values are not listed.

    With --json: a list of objects with seq, closed_at (null for the current value), reason and record (as in amlog
    memory list).
    """
    principal = principal_of(tenant, user, scopes)
    versions = run_async(_history(store, principal, key, kind))
    output = Output()
    if as_json:
        listed = [
            {
                "seq": version.seq,
                "closed_at": time_text(version.closed_at),
                "reason": version.reason,
                "record": record_map(version.record),
            }
            for version in versions
        ]
        output.json(listed)
        return
    if not versions:
        note(f"the key {key!r} of {owner_text(principal)} has no values")
        return
    if output.terminal:
        write_blocks(output, [version.record for version in versions], [_lifetime(version) for version in versions])
        return
    rows = [
        (
            _minute(version.record.created),
            version.record.kind,
            words(version.record),
            sure(version.record),
            version.record.status,
            "" if version.closed_at is None else _minute(version.closed_at),
            version.reason,
            source_name(version.record),
        )
        for version in versions
    ]
    output.table(_COLUMNS, rows)


def _lifetime(version: Version) -> str:
    since = f"since {_minute(version.record.created)}"
    if version.closed_at is None:
        return f"{since}, {version.record.status}"
    ended = version.record.status
    why = f" ({version.reason})" if version.reason not in ("", ended) else ""
    return f"{since}, {ended} {_minute(version.closed_at)}{why}"


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"


async def _history(url: str | None, principal: Principal, key: str, kind: str | None) -> tuple[Version, ...]:
    async with open_memory(url, principal) as memory:
        return await memory.history(key, kind=kind)
