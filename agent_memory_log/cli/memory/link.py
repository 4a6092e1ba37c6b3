"""``amlog memory link``: adds the messages of runs to memory search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from agent_memory_log.cli.errors import CommandFailed
from agent_memory_log.cli.memory.options import Scopes, Tenant, User, principal_of
from agent_memory_log.cli.options import AsJson, StoreUrl, open_existing, run_async
from agent_memory_log.cli.output import GOOD, Output
from agent_memory_log.cli.run_names import load_existing, run_name
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory import MemoryClient, Principal


def link(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN", help="AGENT/RUN or RUN, as amlog runs prints them.", show_default=False),
    ],
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make the messages of runs searchable with amlog memory search and context.

    Everyone with access to the given user or scope can find them. This command learns no memories. amlog memory derive
    links the runs that it reads, too. Linking again changes nothing, and forgotten messages stay hidden.

    With --json: a list of objects with agent and run.
    """
    linked = run_async(_link(store, principal_of(tenant, user, scopes), runs))
    output = Output()
    if as_json:
        output.json([{"agent": agent, "run": run} for agent, run in linked])
        return
    for agent, run in linked:
        output.line((f"{output.tick} ", GOOD), f"linked {run_name(agent, run)}")


async def _link(url: str | None, principal: Principal, names: Sequence[str]) -> list[tuple[str, str]]:
    async with open_existing(url) as store:
        starts = [await load_existing(store, name, limit=1) for name in names]
        selected = list(dict.fromkeys((start.agent, start.run) for start in starts))
        for agent, run in selected:
            if is_reserved(agent):
                raise CommandFailed(f"{run_name(agent, run)} belongs to the library's own agent and cannot be linked")
        await MemoryClient(store).of(principal).link_runs(selected)
        return selected
