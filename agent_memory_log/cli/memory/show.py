"""``amlog memory show``: shows all fields of one memory."""

from __future__ import annotations

from datetime import UTC, datetime

from agent_memory_log.cli.memory.finding import existing
from agent_memory_log.cli.memory.options import Kind, RecordName, Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.views import evidence_name, name_of, record_map, stars, sure, time_text, words
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import DIM, Output
from agent_memory_log.memory import Principal, Record


def show(
    record: RecordName,
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kind: Kind = None,
    as_json: AsJson = False,
) -> None:
    """Show all fields of one memory.

    A key selects the active memory with that key. An id selects the memory with that id, even if it is not active.

    With --json: a record as in amlog memory list.
    """
    memory = run_async(_show(store, principal_of(tenant, user, scopes), record, kind))
    output = Output()
    if as_json:
        output.json(record_map(memory))
        return
    write_heading(output, memory)
    source = memory.source
    rows = {
        "confidence": sure(memory) and f"{memory.confidence:.1%}",
        "importance": stars(output, memory) and f"{stars(output, memory)}  {memory.importance:g}",
        "source": f"{source.kind} {source.id}".rstrip() + f"  reliability {source.reliability:g}",
        "evidence": ", ".join(evidence_name(evidence) for evidence in memory.evidence),
        "entities": ", ".join(memory.entities),
        "tags": ", ".join(memory.tags),
        "links": ", ".join(f"{link.type} {link.target}" for link in memory.links),
        "valid": _valid(memory),
        "created": time_text(memory.created) or "",
        "updated": time_text(memory.updated) or "",
        "id": memory.id,
    }
    for title, text in rows.items():
        if text:
            output.line((f"  {title:<10} ", DIM), text)


def write_heading(output: Output, record: Record) -> None:
    """Write the title line of a record: its name, text, kind, scope and status."""
    name = name_of(record)
    details = [record.kind, f"scope {record.scope}", *([record.status] if record.status != "active" else [])]
    output.heading(f"{name}: {words(record)}" if name else words(record), ", ".join(details))


def _valid(record: Record) -> str:
    parts = [f"from {time_text(record.valid_from)}"] if record.valid_from is not None else []
    left = record.ttl_left_days(datetime.now(UTC))
    if left is not None:
        parts.append(f"until {time_text(record.valid_until)}, {left:,} days left")
    return " ".join(parts)


async def _show(url: str | None, principal: Principal, name: str, kind: str | None) -> Record:
    async with open_memory(url, principal) as memory:
        return await existing(memory, name, kind)
