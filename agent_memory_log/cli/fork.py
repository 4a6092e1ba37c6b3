"""``amlog fork``: creates a run that begins with the events of another run."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_memory_log.cli.errors import UsageProblem
from agent_memory_log.cli.options import AsJson, RunName, StoreUrl, with_store
from agent_memory_log.cli.output import Output
from agent_memory_log.cli.run_names import parse_name, resolve, run_map, run_name
from agent_memory_log.store import Store
from agent_memory_log.transfer.forking import ForkedRun, fork_run
from agent_memory_log.wording import counted


def fork(
    run: RunName,
    new_run: Annotated[
        str, typer.Argument(metavar="NEW_RUN", help="Name of the new run. It has the same agent.", show_default=False)
    ],
    *,
    at: Annotated[int, typer.Option("--at", min=1, metavar="SEQ", help="Copy the events up to this seq.")],
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Create a run from the first events of another run.

    The new run gets the meta of the original run. Its key forked_from names the original. Running the same fork again
    stores nothing.

    With --json: an object with name, agent, run, version, events and inserted.
    """
    new_agent, new_name = parse_name(new_run)

    async def work(opened: Store) -> tuple[str, ForkedRun]:
        agent, name = await resolve(opened, run)
        if new_agent not in (None, agent):
            raise UsageProblem(f"a fork must have the same agent: call it {run_name(agent, new_name)}")
        return run_name(agent, name), await fork_run(opened, agent, name, at, new_name)

    source, forked = with_store(store, work)
    name = run_name(forked.agent, forked.run)
    begins = f"{name} begins with {counted(forked.events, 'event')} of {source}"
    Output().report(
        run_map(forked.agent, forked.run, version=forked.version, events=forked.events, inserted=forked.inserted),
        begins if forked.inserted else f"nothing new: {name} is already this fork",
        as_json=as_json,
    )
