"""``amlog memory link``: letting the messages of runs be found."""

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
        list[str], typer.Argument(metavar="RUN", help="AGENT/RUN or RUN, as amlog runs names them.", show_default=False)
    ],
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Let the messages of runs be found by amlog memory search and context.

    By all who reach the user, or the scope that is given instead. amlog memory derive does so too with the runs it
    learns from; this learns nothing. Doing it again changes nothing, and what was forgotten is not found again. With
    --json: a list, each with agent and run.
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
        places = list(dict.fromkeys((start.agent, start.run) for start in starts))
        for agent, run in places:
            if is_reserved(agent):
                raise CommandFailed(f"{run_name(agent, run)} is a run of the library's own, and is not linked")
        await MemoryClient(store).of(principal).link_runs(places)
        return places
