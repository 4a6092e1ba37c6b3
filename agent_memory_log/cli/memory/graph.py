"""``amlog memory graph``: writes the graph of memory in a format of other tools."""

from __future__ import annotations

from typing import Annotated, Literal

from agent_memory_log.cli.memory.graph_views import AsOf, ValidAt, moments
from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.table import default, option
from agent_memory_log.cli.options import StoreUrl, run_async
from agent_memory_log.cli.outfile import writer
from agent_memory_log.memory.operations import ExportGraph


def graph(
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    format_: Annotated[
        Literal["graphml", "ntriples"], option(ExportGraph, "format", "--format", metavar="FORMAT")
    ] = default(ExportGraph, "format"),
    valid_at: ValidAt = None,
    as_of: AsOf = None,
) -> None:
    """Write the memories, the names in them and the relations between them as a graph.

    GraphML is for tools such as Gephi and networkx. N-Triples are for tools that read RDF.
    """
    principal = principal_of(tenant, user, scopes)
    held_at, known_at = moments(valid_at, as_of)

    async def work() -> bytes:
        async with open_memory(store, principal) as memory:
            return await memory.export_graph(format_, valid_at=held_at, as_of=known_at)

    data = run_async(work())
    with writer(None) as write:
        write(data)
