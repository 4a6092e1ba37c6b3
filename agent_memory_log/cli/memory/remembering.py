"""``amlog memory remember``: remembers a preference or a fact."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.table import default, option
from agent_memory_log.cli.memory.views import outcome_map, write_outcomes
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import Output
from agent_memory_log.memory import Outcome, Principal
from agent_memory_log.memory.operations import Remember


def remember(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key, such as language.", show_default=False)],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value.", show_default=False)],
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kind: Annotated[str, option(Remember, "kind", "--kind", metavar="KIND")] = default(Remember, "kind"),
    ttl_days: Annotated[float | None, option(Remember, "ttl_days", "--ttl-days", metavar="DAYS")] = default(
        Remember, "ttl_days"
    ),
    as_json: AsJson = False,
) -> None:
    """Remember a preference or a fact. A new value replaces the old value of its key.

    The memory belongs to the home scope: the user, or else the only scope. The store is created if it does not exist.
    The exit status is 1 if the memory was blocked, for example because it contains a secret.

    With --json: an object with action, scope, kind, key, reason, superseded, evidence and record.
    """
    call = Remember(kind=kind, key=key, value=value, ttl_days=ttl_days)
    outcome = run_async(_remember(store, principal_of(tenant, user, scopes), call))
    output = Output()
    if as_json:
        output.json(outcome_map(outcome))
    else:
        write_outcomes(output, [outcome])
    output.flush()
    if outcome.action == "blocked":
        raise typer.Exit(1)


async def _remember(url: str | None, principal: Principal, call: Remember) -> Outcome:
    async with open_memory(url, principal, create=True) as memory:
        return await memory.execute(call)
