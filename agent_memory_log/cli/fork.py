"""``amlog fork``: a new run that begins as another one did."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_memory_log.cli.errors import UsageProblem
from agent_memory_log.cli.names import parse_name, resolve, run_name
from agent_memory_log.cli.options import AsJson, RunName, StoreUrl, open_existing, run_async
from agent_memory_log.cli.output import GOOD, Output
from agent_memory_log.cli.text import counted
from agent_memory_log.transfer.forking import ForkedRun, fork_run


def fork(
    run: RunName,
    new_run: Annotated[
        str, typer.Argument(metavar="NEW_RUN", help="The name of the new run, of the same agent.", show_default=False)
    ],
    *,
    at: Annotated[int, typer.Option("--at", min=1, metavar="SEQ", help="The last event that both have.")],
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Begin a new run with the events of another one, up to a seq.

    The new run has the same meta, and under forked_from says where it comes from. Forking again stores nothing. With
    --json: name, agent, run, version, events and inserted.
    """
    source, forked = run_async(_fork(store, run, at, new_run))
    output = Output()
    name = run_name(forked.agent, forked.run)
    if as_json:
        output.json(
            {
                "name": name,
                "agent": forked.agent,
                "run": forked.run,
                "version": forked.version,
                "events": forked.events,
                "inserted": forked.inserted,
            }
        )
    elif forked.inserted:
        output.line((f"{output.tick} ", GOOD), f"{name} begins with {counted(forked.events, 'event')} of {source}")
    else:
        output.line((f"{output.tick} ", GOOD), f"nothing new: {name} is that fork already")


async def _fork(url: str | None, name: str, at: int, new_name: str) -> tuple[str, ForkedRun]:
    new_agent, new_run = parse_name(new_name)
    async with open_existing(url) as store:
        agent, run = await resolve(store, name)
        if new_agent not in (None, agent):
            raise UsageProblem(f"a fork is a run of the same agent: name it {run_name(agent, new_run)}")
        return run_name(agent, run), await fork_run(store, agent, run, at, new_run)
