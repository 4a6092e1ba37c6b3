"""``amlog delete``: a run and everything in it, gone."""

from __future__ import annotations

from agent_memory_log.cli.names import existing_run, run_name
from agent_memory_log.cli.options import AsJson, RunName, StoreUrl, Yes, confirmed, open_existing, run_async
from agent_memory_log.cli.output import GOOD, Output
from agent_memory_log.cli.text import counted
from agent_memory_log.store import RunInfo


def delete(run: RunName, *, store: StoreUrl = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a run, for good.

    Its events, their ids and its meta go. Asks first; off a terminal --yes must be given. If the run is written again,
    its numbering goes on from there. amlog compact gives the space back. With --json: agent, run and deleted, the
    number of events.
    """
    info = run_async(_delete(store, run, yes=yes))
    output = Output()
    if as_json:
        output.json({"agent": info.agent, "run": info.run, "deleted": info.event_count})
    else:
        name, events = run_name(info.agent, info.run), counted(info.event_count, "event")
        output.line((f"{output.tick} ", GOOD), f"deleted {name}, {events}")


async def _delete(url: str | None, name: str, *, yes: bool) -> RunInfo:
    async with open_existing(url) as store:
        info = await existing_run(store, name)
        events = counted(info.event_count, "event")
        confirmed(f"Delete {run_name(info.agent, info.run)} with {events} for good?", yes=yes)
        await store.delete_run(info.agent, info.run)
        return info
