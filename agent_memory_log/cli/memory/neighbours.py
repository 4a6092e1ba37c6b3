"""``amlog memory neighbours``: shows the relations around a name or a memory."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_memory_log.cli.memory.graph_views import AsOf, ValidAt, edge_map, moments, write_edges
from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.table import default, option
from agent_memory_log.cli.memory.views import record_map
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import Output, note
from agent_memory_log.memory import MemoryGraph
from agent_memory_log.memory.operations import Neighbours


def neighbours(
    node: Annotated[str, typer.Argument(metavar="NAME", help="A name, or the id of a memory.", show_default=False)],
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    depth: Annotated[int, option(Neighbours, "depth", "--depth", metavar="N")] = default(Neighbours, "depth"),
    limit: Annotated[int, option(Neighbours, "limit", "--limit", metavar="N")] = default(Neighbours, "limit"),
    valid_at: ValidAt = None,
    as_of: AsOf = None,
    as_json: AsJson = False,
) -> None:
    """Show the relations around a name or a memory, and the memories that name it.

    With --json: an object with complete, nodes and edges. Each node has id, name, distance and record (as in amlog
    memory list, null for a name). Each edge has source, type, target, record (the id of the memory that states it),
    valid_from and valid_until.
    """
    principal = principal_of(tenant, user, scopes)
    held_at, known_at = moments(valid_at, as_of)

    async def work() -> MemoryGraph:
        async with open_memory(store, principal) as memory:
            return await memory.neighbours(node, depth, limit=limit, valid_at=held_at, as_of=known_at)

    graph = run_async(work())
    output = Output()
    if as_json:
        nodes = [
            {
                "id": each.id,
                "name": each.name,
                "distance": each.distance,
                "record": None if each.record is None else record_map(each.record),
            }
            for each in graph.nodes
        ]
        output.json({"complete": graph.complete, "nodes": nodes, "edges": [edge_map(edge) for edge in graph.edges]})
        return
    write_edges(output, graph.edges, {each.id: each.name for each in graph.nodes})
    if not graph.edges:
        note(f"nothing is known around {node!r}")
    if not graph.complete:
        note("more is known: use a larger --limit")
