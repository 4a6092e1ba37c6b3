"""``amlog delete``: deletes a run and its events."""

from __future__ import annotations

from agent_memory_log.cli.options import AsJson, RunName, StoreUrl, Yes, confirmed, with_store
from agent_memory_log.cli.output import Output
from agent_memory_log.cli.run_names import event_count, existing_run, fork_names, run_name
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import Store
from agent_memory_log.transfer.forking import forks_of
from agent_memory_log.wording import counted


def delete(run: RunName, *, store: StoreUrl = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a run permanently.

    Deletes its events, their ids and its meta. The command asks for confirmation. If there is no terminal, confirm with
    --yes. If the run is written again, its seqs continue after the deleted events. amlog compact frees the disk space.

    Forks of the run keep its events. The command lists them.

    With --json: an object with agent, run, deleted (the number of deleted events) and forks.
    """

    async def work(opened: Store) -> tuple[Snapshot, list[str]]:
        head = await existing_run(opened, run)
        events = counted(event_count(head), "event")
        confirmed(f"Delete {run_name(head.agent, head.run)} with {events} permanently?", yes=yes)
        await opened.delete_run(head.agent, head.run)
        return head, fork_names(await forks_of(opened, head.agent, head.run))

    deleted, forks = with_store(store, work)
    Output().report(
        {"agent": deleted.agent, "run": deleted.run, "deleted": event_count(deleted), "forks": forks},
        f"deleted {run_name(deleted.agent, deleted.run)}, {counted(event_count(deleted), 'event')}",
        f"forks still hold its events: {', '.join(forks)}" if forks else "",
        as_json=as_json,
    )
