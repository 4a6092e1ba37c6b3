"""``amlog delete``: a run and everything in it, gone."""

from __future__ import annotations

from agent_memory_log.cli.options import AsJson, RunName, StoreUrl, Yes, confirmed, with_store
from agent_memory_log.cli.output import Output
from agent_memory_log.cli.run_names import event_count, existing_run, run_name
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import Store
from agent_memory_log.wording import counted


def delete(run: RunName, *, store: StoreUrl = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a run, for good.

    Its events, their ids and its meta go. Asks first; off a terminal --yes must be given. If the run is written again,
    its numbering goes on from there. amlog compact gives the space back. With --json: agent, run and deleted, the
    number of events.
    """

    async def work(opened: Store) -> Snapshot:
        there = await existing_run(opened, run)
        events = counted(event_count(there), "event")
        confirmed(f"Delete {run_name(there.agent, there.run)} with {events} for good?", yes=yes)
        await opened.delete_run(there.agent, there.run)
        return there

    gone = with_store(store, work)
    Output().report(
        {"agent": gone.agent, "run": gone.run, "deleted": event_count(gone)},
        f"deleted {run_name(gone.agent, gone.run)}, {counted(event_count(gone), 'event')}",
        as_json=as_json,
    )
