"""``amlog memory history``: every value that a key has had."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from agent_memory_log.cli.memory.options import Kind, Scopes, Tenant, User, open_memory, principal_of, whose
from agent_memory_log.cli.memory.views import record_map, source_name, time_text, words, write_blocks
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
"""Of the table off a terminal, which has no styles."""


def history(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A memory's key.", show_default=False)],
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kind: Kind = None,
    as_json: AsJson = False,
) -> None:
    """List every value that a key has had, the oldest first.

    Of the home scope; what was forgotten is gone. With --json: a list, each with seq, closed_at (null: not), reason and
    record, as an item of amlog memory list.
    """
    principal = principal_of(tenant, user, scopes)
    versions = run_async(_history(store, principal, key, kind))
    output = Output()
    if as_json:
        listed = [
            {
                "seq": one.seq,
                "closed_at": time_text(one.closed_at),
                "reason": one.reason,
                "record": record_map(one.record),
            }
            for one in versions
        ]
        output.json(listed)
        return
    if not versions:
        note(f"{key!r} was never remembered of {whose(principal)}")
        return
    if output.terminal:
        write_blocks(output, [one.record for one in versions], [_story(one) for one in versions])
        return
    rows = [
        (
            _minute(one.record.created),
            one.record.kind,
            words(one.record),
            f"{one.record.confidence:.0%}",
            one.record.status,
            "" if one.closed_at is None else _minute(one.closed_at),
            one.reason,
            source_name(one.record),
        )
        for one in versions
    ]
    output.table(_COLUMNS, rows)


def _story(version: Version) -> str:
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
