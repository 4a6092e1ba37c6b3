"""``amlog memory paths``: shows how two names or memories are connected."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_memory_log.cli.memory.graph_views import AsOf, ValidAt, edge_map, moments, write_edges
from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.table import default, option
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import Output, note
from agent_memory_log.memory import MemoryPaths
from agent_memory_log.memory.operations import Paths


def paths(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A name, or the id of a memory.", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TO", help="A name, or the id of a memory.", show_default=False)],
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    depth: Annotated[int, option(Paths, "depth", "--depth", metavar="N")] = default(Paths, "depth"),
    limit: Annotated[int, option(Paths, "limit", "--limit", metavar="N")] = default(Paths, "limit"),
    valid_at: ValidAt = None,
    as_of: AsOf = None,
    as_json: AsJson = False,
) -> None:
    """Show the paths between two names or memories, the shortest first.

    With --json: an object with complete and paths, a list of lists of edges (as in amlog memory neighbours).
    """
    principal = principal_of(tenant, user, scopes)
    held_at, known_at = moments(valid_at, as_of)

    async def work() -> MemoryPaths:
        async with open_memory(store, principal) as memory:
            return await memory.paths(source, target, depth, limit=limit, valid_at=held_at, as_of=known_at)

    result = run_async(work())
    output = Output()
    if as_json:
        output.json(
            {"complete": result.complete, "paths": [[edge_map(edge) for edge in path] for path in result.paths]}
        )
        return
    for number, path in enumerate(result.paths):
        if number:
            output.line()
        write_edges(output, path, {})
    if not result.paths:
        note(f"no path of at most {depth} edges connects {source!r} and {target!r}")
    if not result.complete:
        note("there may be more paths: use a larger --limit or a smaller --depth")
