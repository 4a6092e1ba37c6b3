"""``amlog memory quotas``: shows the use of the limits of a memory."""

from __future__ import annotations

import msgspec

from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import Column, Output
from agent_memory_log.memory import LimitUse, Principal

_COLUMNS = (
    Column("scope"),
    Column("limit"),
    Column("used", number=True),
    Column("soft", number=True),
    Column("hard", number=True),
)


def quotas(
    *, tenant: Tenant, user: User = None, scopes: Scopes = None, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    """Show the use of each limit of a memory, for each scope.

    The limits are the default ones, or those of the server. A program can set other limits for its own client.

    With --json: a list of objects with scope, limit, used, soft and hard. A limit that is not set is null.
    """
    uses = run_async(_quotas(store, principal_of(tenant, user, scopes)))
    output = Output()
    if as_json:
        output.json(msgspec.to_builtins(uses))
        return
    output.table(
        _COLUMNS, [(use.scope, use.limit, f"{use.used:,}", _bound(use.soft), _bound(use.hard)) for use in uses]
    )


def _bound(limit: int | None) -> str:
    return "-" if limit is None else f"{limit:,}"


async def _quotas(url: str | None, principal: Principal) -> tuple[LimitUse, ...]:
    async with open_memory(url, principal) as memory:
        return await memory.quotas()
