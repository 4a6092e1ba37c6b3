"""``amlog memory trace``: shows the records that a memory came from."""

from __future__ import annotations

from typing import Annotated

from agent_memory_log.cli.memory.finding import existing
from agent_memory_log.cli.memory.graph_views import AsOf, moments
from agent_memory_log.cli.memory.options import Kind, RecordName, Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.table import default, option
from agent_memory_log.cli.memory.views import record_map, words
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import DIM, Output, note
from agent_memory_log.memory import MemoryTrace
from agent_memory_log.memory.operations import Trace


def trace(
    record: RecordName,
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kind: Kind = None,
    depth: Annotated[int, option(Trace, "depth", "--depth", metavar="N")] = default(Trace, "depth"),
    valid_at: Annotated[str | None, option(Trace, "valid_at", "--valid-at", metavar="TIME")] = None,
    as_of: AsOf = None,
    as_json: AsJson = False,
) -> None:
    """Show the records that a memory came from, nearest first.

    Follows links such as derived_from, supersedes and contradicts, also to records that are not active any more.

    With --json: an object with complete and steps. Each step has depth, link, of (the id of the record with the link)
    and record (as in amlog memory list).
    """
    principal = principal_of(tenant, user, scopes)
    held_at, known_at = moments(valid_at, as_of)

    async def work() -> MemoryTrace:
        async with open_memory(store, principal) as memory:
            start = await existing(memory, record, kind)
            return await memory.trace(start.id, depth, valid_at=held_at, as_of=known_at)

    result = run_async(work())
    output = Output()
    if as_json:
        steps = [
            {"depth": step.depth, "link": step.link, "of": step.of, "record": record_map(step.record)}
            for step in result.steps
        ]
        output.json({"complete": result.complete, "steps": steps})
        return
    for step in result.steps:
        head = f"{'  ' * step.depth}{step.link} " if step.link else ""
        status = "" if step.record.status == "active" else f" ({step.record.status})"
        output.hanging([(head, DIM)], f"{words(step.record)}{status}")
    if not result.complete:
        note("the trace is cut: choose a smaller --depth")
