"""The options and the output that the commands on the graph of memory share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated

from agent_memory_log.cli.memory.table import option
from agent_memory_log.cli.memory.views import time_text
from agent_memory_log.cli.options import instant
from agent_memory_log.cli.output import DIM, Output
from agent_memory_log.cli.terminal_text import one_line
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.memory import Edge
from agent_memory_log.memory.operations import Neighbours
from agent_memory_log.memory.records.reports.graphs import ENTITY

ValidAt = Annotated[str | None, option(Neighbours, "valid_at", "--valid-at", metavar="TIME")]
AsOf = Annotated[str | None, option(Neighbours, "as_of", "--as-of", metavar="TIME")]


def moments(valid_at: str | None, as_of: str | None) -> tuple[datetime | None, datetime | None]:
    """Return the times of ``--valid-at`` and ``--as-of``. Raises ``UsageProblem`` for other texts."""
    return (
        None if valid_at is None else instant("--valid-at", valid_at),
        None if as_of is None else instant("--as-of", as_of),
    )


def edge_map(edge: Edge) -> dict[str, JsonValue]:
    """Return an edge as JSON."""
    return {
        "source": edge.source,
        "type": edge.type,
        "target": edge.target,
        "record": edge.record,
        "valid_from": time_text(edge.valid_from),
        "valid_until": time_text(edge.valid_until),
    }


def write_edges(output: Output, edges: Iterable[Edge], names: Mapping[str, str]) -> None:
    """Write a line for each edge. ``names`` has names for ids; other entities are shown with their folded name."""
    for edge in edges:
        source, target = (one_line(names.get(node, node.removeprefix(ENTITY))) for node in (edge.source, edge.target))
        output.line(source, (f"  {one_line(edge.type)}  ", DIM), target, (_span(edge), DIM))


def _span(edge: Edge) -> str:
    begin = "" if edge.valid_from is None else f" from {edge.valid_from.date().isoformat()}"
    end = "" if edge.valid_until is None else f" until {edge.valid_until.date().isoformat()}"
    return f" {begin}{end}" if begin or end else ""
