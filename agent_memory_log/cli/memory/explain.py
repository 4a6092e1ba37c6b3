"""``amlog memory explain``: why something is believed."""

from __future__ import annotations

from agent_memory_log.cli.errors import CommandFailed
from agent_memory_log.cli.memory.finding import existing
from agent_memory_log.cli.memory.options import Kind, RecordName, Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.show import write_heading
from agent_memory_log.cli.memory.views import evidence_map, evidence_name, record_map
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import BOLD, DIM, NAME, Output
from agent_memory_log.memory import Explanation, Principal


def explain(
    record: RecordName,
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kind: Kind = None,
    as_json: AsJson = False,
) -> None:
    """Say why something is remembered.

    Who says so, the events it rests on, in words, and what has happened to it since. With --json: record (as an item of
    amlog memory list), status, source, evidence (each with name, agent, run, seq, item, text and reason) and
    events, a list of texts. Only events of runs that are linked or were derived from are shown; for others the reason.
    """
    found = run_async(_explain(store, principal_of(tenant, user, scopes), record, kind))
    output = Output()
    if as_json:
        evidence = [{**evidence_map(one.evidence), "text": one.text, "reason": one.reason} for one in found.evidence]
        output.json(
            {
                "record": record_map(found.record),
                "status": found.status,
                "source": found.source,
                "evidence": evidence,
                "events": list(found.events),
            }
        )
        return
    write_heading(output, found.record)
    output.line("  ", ("said by ", DIM), found.source)
    if found.evidence:
        output.line(("it rests on", BOLD))
    for line in found.evidence:
        output.hanging(["  ", (evidence_name(line.evidence), NAME), "  "], line.text or f"({line.reason})")
    if found.events:
        output.line(("since then", BOLD))
    for text in found.events:
        output.line("  ", text)


async def _explain(url: str | None, principal: Principal, name: str, kind: str | None) -> Explanation:
    async with open_memory(url, principal) as memory:
        record = await existing(memory, name, kind)
        found = await memory.explain(record.id)
        if found is None:  # forgotten by somebody else in the meantime
            raise CommandFailed(f"{name!r} was forgotten")
        return found
