"""``amlog compact``: frees unused disk space, and erases redacted and deleted data from the file."""

from __future__ import annotations

from datetime import UTC, datetime

from agent_memory_log.capabilities import CompactResult, Compacts, KeepsIndexes
from agent_memory_log.cli.errors import CommandFailed
from agent_memory_log.cli.options import AsJson, StoreUrl, scheme, with_store
from agent_memory_log.cli.output import Output
from agent_memory_log.cli.terminal_text import size
from agent_memory_log.memory.upkeep.maintaining import purge_all, purge_indexes
from agent_memory_log.steps import run_async
from agent_memory_log.store import Store


def compact(*, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Erase redacted and deleted data from the file permanently, and free unused disk space.

    Memories that have no other evidence are erased with it, also from the files of the search index. Readable events
    are not changed.

    With --json: an object with before and after, the sizes in bytes.
    """

    async def work(opened: Store) -> CompactResult:
        if not isinstance(opened, Compacts):
            raise CommandFailed(f"{scheme(store)}: stores cannot be compacted")
        await run_async(purge_all(datetime.now(UTC)), opened)
        await run_async(purge_indexes(opened.index_folder if isinstance(opened, KeepsIndexes) else None), opened)
        return await opened.compact()

    result = with_store(store, work)
    saved = result.before - result.after
    Output().report(
        {"before": result.before, "after": result.after},
        f"{size(result.before)} before, {size(result.after)} after",
        f"{size(saved)} freed" if saved > 0 else "",
        as_json=as_json,
    )
